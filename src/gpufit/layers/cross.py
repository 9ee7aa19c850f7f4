"""Cross attention: keys and values of an encoder's tokens, fixed for a sequence whatever it grows to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpufit.formats.cache import CacheFormat
from gpufit.layers.full import Full
from gpufit.quantity import Q


@dataclass(frozen=True, slots=True, kw_only=True)
class Cross(Full):
    """Attention from the decoder to `encoder_tokens` encoder positions (unit token/sequence).

    The keys and values are computed once and kept for the whole generation, so their cost does not depend on the context.
    """

    kind: ClassVar[str] = "cross"
    title: ClassVar[str] = "cross-attention"
    grows: ClassVar[bool] = False

    encoder_tokens: Q

    def tokens_kept(self, context: Q) -> Q:
        """The encoder's positions, whatever the context."""
        return self.encoder_tokens.as_step("n_e", "encoder tokens kept in a cross-attention layer")
