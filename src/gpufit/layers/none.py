"""Layers that keep nothing of their own: no attention at all, or a cache shared with another layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpufit.formats.cache import CacheFormat
from gpufit.quantity import Q


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCache:
    """A layer without attention or state, such as a bare MLP layer or one whose attention was pruned."""

    kind: ClassVar[str] = "none"
    title: ClassVar[str] = "no attention"
    grows: ClassVar[bool] = False

    def bytes_per_token(self, tp: Q, cache: CacheFormat) -> None:
        """Nothing."""
        return

    def fixed_bytes(self, tp: Q, cache: CacheFormat) -> None:
        """Nothing."""
        return

    def sequence_bytes(self, context: Q, tp: Q, cache: CacheFormat) -> None:
        """Nothing."""
        return

    def tp_refusal(self, tp: int) -> None:
        """There is nothing to split."""
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared(NoCache):
    """A layer that attends over the cache of an earlier layer (`target`, a layer index) and stores none itself.

    Its own queries still need heads that divide.
    """

    kind: ClassVar[str] = "shared"
    title: ClassVar[str] = "shared cache"

    target: int
