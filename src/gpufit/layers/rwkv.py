"""RWKV time mixing (Eagle, arXiv 2404.05892): a matrix state per head, and the previous token's input of both half layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpufit.layers.state import State, refusal
from gpufit.quantity import Q


@dataclass(frozen=True, slots=True, kw_only=True)
class Rwkv(State):
    """An RWKV-5 layer of `heads` heads, `head_dim` wide, in a model of `width` channels.

    Time mixing and channel mixing each look at the token before: `width` inputs each, which every GPU needs whole. They count as the
    convolution state. The recurrent state is one head_dim x head_dim matrix per head.
    """

    kind: ClassVar[str] = "rwkv"
    title: ClassVar[str] = "RWKV"

    width: Q
    heads: Q
    head_dim: Q

    def conv_elements(self, tp: Q, drafted: Q | int = 0) -> Q:
        """The shifted inputs of time mixing and channel mixing; no engine here verifies drafts with this kind."""
        return 2 * self.width

    def recurrent_elements(self, tp: Q) -> Q:
        """One matrix per head on this GPU."""
        return self.heads // tp * self.head_dim * self.head_dim

    def tp_refusal(self, tp: int) -> str | None:
        """Heads must divide by tp."""
        return refusal(self.heads, "RWKV heads", tp)
