"""Linear attention with a fixed decay (Lightning Attention, arXiv 2401.04658): the sum of key-value products, one matrix per head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpufit.layers.state import State, refusal
from gpufit.quantity import Q


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear(State):
    """Linear attention: one head_dim x head_dim matrix per head, split over tp; there is no convolution.

    Every attention head has a state of its own, also where keys and values come in fewer heads (vLLM 0.33.0,
    mamba_utils.py: linear_attention_state_shape).
    """

    kind: ClassVar[str] = "linear"
    title: ClassVar[str] = "linear attention"

    heads: Q
    head_dim: Q

    def recurrent_elements(self, tp: Q) -> Q:
        """One matrix per head on this GPU."""
        return self.heads // tp * self.head_dim * self.head_dim

    def tp_refusal(self, tp: int) -> str | None:
        """Heads must divide by tp."""
        return refusal(self.heads, "linear-attention heads", tp)
