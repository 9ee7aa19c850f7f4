"""Mamba 2 (state-space duality, arXiv 2405.21060): heads with a matrix state each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpufit.layers.state import State
from gpufit.quantity import Q, round_up


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2(State):
    """A Mamba 2 mixer.

    Convolution over x, B and C: (heads * head_dim + 2 * groups * state_size) channels of kernel - 1 tokens.
    Recurrent state: heads * head_dim * state_size. Both split over tp; groups that do not divide are raised to tp.
    """

    kind: ClassVar[str] = "mamba2"
    title: ClassVar[str] = "Mamba 2"

    heads: Q
    head_dim: Q
    state_size: Q
    groups: Q
    kernel: Q

    def conv_elements(self, tp: Q) -> Q:
        """Channels on one GPU times the tokens that the kernel still needs."""
        groups = self.groups
        if int(groups) % int(tp):
            groups = round_up(groups, tp).because("groups are copied until they divide by tp")
        return (self.heads * self.head_dim + 2 * groups * self.state_size) // tp * (self.kernel - 1)

    def recurrent_elements(self, tp: Q) -> Q:
        """One head_dim x state_size matrix per head on this GPU."""
        return self.heads // tp * self.head_dim * self.state_size

    def tp_refusal(self, tp: int) -> str | None:
        """Heads must divide by tp."""
        if int(self.heads) % tp:
            return f"{int(self.heads)} Mamba heads do not divide by {tp}"
        return None
