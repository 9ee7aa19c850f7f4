"""Mamba (selective state space, arXiv 2312.00752): one small state per channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpufit.layers.state import State, refusal
from gpufit.quantity import Q


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba1(State):
    """A Mamba mixer of `channels` inner channels (expand * hidden) with `state_size` values each; both states split over tp.

    The convolution runs over the inner channels alone. Draft tokens do not widen it (vLLM 0.33.0, mamba1_state_shape).
    """

    kind: ClassVar[str] = "mamba1"
    title: ClassVar[str] = "Mamba"
    drafts_widen: ClassVar[bool] = False

    channels: Q
    state_size: Q

    def conv_channels(self, tp: Q) -> Q:
        """The inner channels on one GPU."""
        return self.channels // tp

    def recurrent_elements(self, tp: Q) -> Q:
        """`state_size` values for each channel on this GPU."""
        return self.channels // tp * self.state_size

    def tp_refusal(self, tp: int) -> str | None:
        """The inner channels must divide by tp."""
        return refusal(self.channels, "Mamba channels", tp)
