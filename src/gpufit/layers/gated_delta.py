"""Gated DeltaNet (arXiv 2412.06464): a matrix state per value head, with a short convolution before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpufit.layers.state import State, refusal
from gpufit.quantity import Q


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDelta(State):
    """A Gated DeltaNet mixer as in Qwen3-Next.

    Convolution over queries, keys and values: 2 * key_heads * key_dim + value_heads * value_dim channels. Recurrent state: one
    value_dim x key_dim matrix per value head. Both split over tp (vLLM 0.33.0, mamba_utils.py).
    """

    kind: ClassVar[str] = "gated_delta"
    title: ClassVar[str] = "Gated DeltaNet"

    key_heads: Q
    value_heads: Q
    key_dim: Q
    value_dim: Q

    def conv_channels(self, tp: Q) -> Q:
        """Query, key and value channels on one GPU."""
        return (2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim) // tp

    def recurrent_elements(self, tp: Q) -> Q:
        """One matrix per value head on this GPU."""
        return self.value_heads // tp * self.value_dim * self.key_dim

    def tp_refusal(self, tp: int) -> str | None:
        """Key heads and value heads must divide by tp."""
        return refusal(self.key_heads, "linear-attention key heads", tp) or refusal(
            self.value_heads, "linear-attention value heads", tp
        )
