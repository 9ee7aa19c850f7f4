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
    `kernel` is the width of the convolution; None where there is none. `drafts_widen` says whether an engine that verifies draft
    tokens keeps their inputs in the convolution state too (vLLM 0.33.0, model_executor/layers/mamba/mamba_utils.py).
    """

    kind: ClassVar[str] = "state"
    title: ClassVar[str] = "recurrent state"
    grows: ClassVar[bool] = False
    drafts_widen: ClassVar[bool] = True

    conv_bytes: Q
    recurrent_bytes: Q
    kernel: Q | None = None

    def conv_channels(self, tp: Q) -> Q | None:
        """Channels of the convolution on one GPU; None where there is none."""
        return None

    def conv_elements(self, tp: Q, drafted: Q | int = 0) -> Q | None:
        """Elements of the convolution state of one sequence on one GPU; None where there is none.

        A kernel of c looks back at c - 1 tokens; `drafted` tokens under verification are kept beside them.
        """
        channels = self.conv_channels(tp)
        if channels is None or self.kernel is None:
            return None
        tokens = self.kernel - 1
        if self.drafts_widen and drafted != 0:
            tokens = tokens + drafted
        return channels * tokens

    def recurrent_elements(self, tp: Q) -> Q | None:
        """Elements of the recurrent state of one sequence on one GPU; None where there is none."""
        return None

    def bytes_per_token(self, tp: Q, cache: CacheFormat) -> None:
        """No token is kept."""
        return

    def state_bytes(self, tp: Q, drafted: Q | int = 0) -> Q:
        """Both states of one sequence in their own dtypes, with room for `drafted` tokens under verification."""
        terms = []
        conv = self.conv_elements(tp, drafted)
        if conv is not None:
            elements = conv.as_step(f"c_{self.kind}", f"elements of the convolution state in one {self.title} layer")
            terms.append(elements * self.conv_bytes)
        recurrent = self.recurrent_elements(tp)
        if recurrent is not None:
            elements = recurrent.as_step(f"r_{self.kind}", f"elements of the recurrent state in one {self.title} layer")
            terms.append(elements * self.recurrent_bytes)
        return total(terms, unit=STATE_UNIT).as_step(f"S_{self.kind}", f"state of one sequence in one {self.title} layer")

    def fixed_bytes(self, tp: Q, cache: CacheFormat) -> Q:
        """Both states, in their own dtypes."""
        return self.state_bytes(tp)

    def sequence_bytes(self, context: Q, tp: Q, cache: CacheFormat) -> Q:
        """The state, whatever the context."""
        return self.fixed_bytes(tp, cache)

    def tp_refusal(self, tp: int) -> str | None:
        """Kinds with heads override this."""
        return None


def refusal(count: Q, what: str, tp: int) -> str | None:
    """The reason why `count` heads or channels cannot be split over `tp` GPUs, or None."""
    return f"{int(count)} {what} do not divide by {tp}" if int(count) % tp else None
