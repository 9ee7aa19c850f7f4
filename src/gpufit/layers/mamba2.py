"""Mamba 2 (state-space duality, arXiv 2405.21060): heads with a matrix state each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpufit.layers.state import State, refusal
from gpufit.quantity import Q, round_up


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2(State):
    """A Mamba 2 mixer.

    Convolution over x, B and C: (heads * head_dim + 2 * groups * state_size) channels of kernel - 1 tokens.
    Recurrent state: heads * head_dim * state_size. Both split over tp; a group count that does not divide is raised to tp, so that
    each GPU has the group that its heads read (vLLM 0.33.0, mamba_utils.py).
    """

    kind: ClassVar[str] = "mamba2"
    title: ClassVar[str] = "Mamba 2"

    heads: Q
    head_dim: Q
    state_size: Q
    groups: Q

    def groups_held(self, tp: Q) -> Q:
        """B/C groups over all GPUs together, copies included."""
        if int(self.groups) % int(tp) == 0:
            return self.groups
        note = f"{int(self.groups)} groups on {int(tp)} GPUs: groups are copied"
        return round_up(self.groups, tp).because(note)

    def conv_channels(self, tp: Q) -> Q:
        """Channels of x, B and C on one GPU."""
        return (self.heads * self.head_dim + 2 * self.groups_held(tp) * self.state_size) // tp

    def recurrent_elements(self, tp: Q) -> Q:
        """One head_dim x state_size matrix per head on this GPU."""
        return self.heads // tp * self.head_dim * self.state_size

    def tp_refusal(self, tp: int) -> str | None:
        """Heads must divide by tp, and groups too unless there is only one (copied to every GPU)."""
        reason = refusal(self.heads, "Mamba heads", tp)
        if reason is None and int(self.groups) % tp and int(self.groups) != 1:
            return f"{int(self.groups)} Mamba groups do not divide by {tp}"
        return reason
