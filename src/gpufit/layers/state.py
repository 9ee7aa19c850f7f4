"""Recurrent layers: a state of fixed size per sequence, whatever its length.

Each kind is one file beside this one and says how many elements its two states have on one GPU; what they have in common is here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpufit.formats.cache import CacheFormat
from gpufit.quantity import Q, total, unit

STATE_UNIT = unit(B=1, sequence=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A layer with a convolution state, a recurrent state, or both.

    `conv_bytes` and `recurrent_bytes` are the B/sequence of one element of each (facts: the dtype that the family keeps them in).
    """

    kind: ClassVar[str] = "state"
    title: ClassVar[str] = "recurrent state"
    grows: ClassVar[bool] = False

    conv_bytes: Q
    recurrent_bytes: Q

    def conv_elements(self, tp: Q) -> Q | None:
        """Elements of the convolution state of one sequence on one GPU; None where there is none."""
        return None

    def recurrent_elements(self, tp: Q) -> Q | None:
        """Elements of the recurrent state of one sequence on one GPU; None where there is none."""
        return None

    def bytes_per_token(self, tp: Q, cache: CacheFormat) -> None:
        """No token is kept."""
        return

    def fixed_bytes(self, tp: Q) -> Q:
        """Both states, in their own dtypes."""
        terms = []
        conv = self.conv_elements(tp)
        if conv is not None:
            elements = conv.as_step(f"c_{self.kind}", f"elements of the convolution state in one {self.title} layer")
            terms.append(elements * self.conv_bytes)
        recurrent = self.recurrent_elements(tp)
        if recurrent is not None:
            elements = recurrent.as_step(f"r_{self.kind}", f"elements of the recurrent state in one {self.title} layer")
            terms.append(elements * self.recurrent_bytes)
        return total(terms, unit=STATE_UNIT).as_step(f"S_{self.kind}", f"state of one sequence in one {self.title} layer")

    def sequence_bytes(self, context: Q, tp: Q, cache: CacheFormat) -> Q:
        """The state, whatever the context."""
        return self.fixed_bytes(tp)

    def tp_refusal(self, tp: int) -> str | None:
        """Kinds with heads override this."""
        return None
