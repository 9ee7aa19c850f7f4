"""Gated short convolution (LFM2): the last few inputs of each channel and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpufit.layers.state import State, refusal
from gpufit.quantity import Q


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConv(State):
    """A depthwise convolution over `channels` channels, split over tp; there is no recurrent state."""

    kind: ClassVar[str] = "short_conv"
    title: ClassVar[str] = "short convolution"

    channels: Q

    def conv_channels(self, tp: Q) -> Q:
        """The channels on one GPU."""
        return self.channels // tp

    def tp_refusal(self, tp: int) -> str | None:
        """Channels must divide by tp."""
        return refusal(self.channels, "convolution channels", tp)
