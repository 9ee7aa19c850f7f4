"""Kimi Delta Attention (arXiv 2510.26692): a gated delta rule with a decay for every key channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpufit.layers.state import State, refusal
from gpufit.quantity import Q


@dataclass(frozen=True, slots=True, kw_only=True)
class Kda(State):
    """A Kimi Delta Attention mixer: `heads` heads, `head_dim` wide for queries, keys and values alike.

    Convolutions over queries, keys and values: 3 * heads * head_dim channels in all. Recurrent state: one head_dim x head_dim matrix
    per head. Both split over tp (vLLM 0.33.0, mamba_utils.py: kda_state_shape).
    """

    kind: ClassVar[str] = "kda"
    title: ClassVar[str] = "Kimi Delta Attention"

    heads: Q
    head_dim: Q

    def conv_channels(self, tp: Q) -> Q:
        """Query, key and value channels on one GPU."""
        return 3 * self.heads * self.head_dim // tp

    def recurrent_elements(self, tp: Q) -> Q:
        """One matrix per head on this GPU."""
        return self.heads // tp * self.head_dim * self.head_dim

    def tp_refusal(self, tp: int) -> str | None:
        """Heads must divide by tp."""
        return refusal(self.heads, "linear-attention heads", tp)
