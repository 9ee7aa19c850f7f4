"""mLSTM of xLSTM (arXiv 2405.04517): a matrix memory, a normaliser and a stabiliser for each head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpufit.layers.state import State, refusal
from gpufit.quantity import Q


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlstm(State):
    """An mLSTM layer: key_dim x value_dim memory, key_dim normaliser and one stabiliser per head; there is no convolution.

    Shapes as xLSTMCache of transformers 5.24.0 has them.
    """

    kind: ClassVar[str] = "mlstm"
    title: ClassVar[str] = "mLSTM"

    heads: Q
    key_dim: Q
    value_dim: Q

    def recurrent_elements(self, tp: Q) -> Q:
        """Memory, normaliser and stabiliser of each head on this GPU."""
        return self.heads // tp * (self.key_dim * self.value_dim + self.key_dim + 1)

    def tp_refusal(self, tp: int) -> str | None:
        """Heads must divide by tp."""
        return refusal(self.heads, "mLSTM heads", tp)
