"""Real-gated linear recurrent unit (Griffin, arXiv 2402.19427): one number for each channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpufit.layers.state import State, refusal
from gpufit.quantity import Q


@dataclass(frozen=True, slots=True, kw_only=True)
class RgLru(State):
    """A recurrent block of `channels` channels with a short convolution before it; both states split over tp."""

    kind: ClassVar[str] = "rg_lru"
    title: ClassVar[str] = "RG-LRU"

    channels: Q

    def conv_channels(self, tp: Q) -> Q:
        """The channels on one GPU."""
        return self.channels // tp

    def recurrent_elements(self, tp: Q) -> Q:
        """One number per channel on this GPU."""
        return self.channels // tp

    def tp_refusal(self, tp: int) -> str | None:
        """Channels must divide by tp."""
        return refusal(self.channels, "recurrent channels", tp)
