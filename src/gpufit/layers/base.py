"""What every kind of layer answers: the memory that one sequence keeps in one such layer on one GPU."""

from __future__ import annotations

from typing import ClassVar, Protocol

from gpufit.formats.cache import CacheFormat
from gpufit.quantity import Q


class LayerKind(Protocol):
    """The physics of one kind of layer, for one layer on one GPU of a tensor-parallel group.

    `kind` is the word used in JSON and tables, `title` the words of a derivation. `grows` says whether a longer sequence costs more
    without end. All answers are Qs; `None` means that the kind has no such part.
    """

    kind: ClassVar[str]
    title: ClassVar[str]
    grows: ClassVar[bool]

    def bytes_per_token(self, tp: Q, cache: CacheFormat) -> Q | None:
        """B/token that one more token costs (in a windowed layer: while the window fills); None where no token is kept."""
        ...

    def fixed_bytes(self, tp: Q, cache: CacheFormat) -> Q | None:
        """B/sequence that are held whatever the length, such as a recurrent state; None where there are none."""
        ...

    def sequence_bytes(self, context: Q, tp: Q, cache: CacheFormat) -> Q | None:
        """B/sequence that a sequence of `context` tokens keeps; None where the layer keeps nothing."""
        ...

    def tp_refusal(self, tp: int) -> str | None:
        """Why this layer cannot be split over `tp` GPUs, or None."""
        ...
