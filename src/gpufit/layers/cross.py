"""Cross attention: keys and values of an encoder's tokens, fixed for a sequence whatever it grows to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpufit.formats.cache import CacheFormat
from gpufit.layers.full import Full, heads_refusal
from gpufit.quantity import Q


@dataclass(frozen=True, slots=True, kw_only=True)
class Cross:
    """Attention from the decoder to `encoder_tokens` encoder positions (unit token/sequence).

    Keys and values of the encoder's output are computed once per sequence and kept for its whole generation: one more decoder token
    costs nothing. `encoder_tokens` is the encoder's full length, which is what an engine must be ready to hold.
    """

    kind: ClassVar[str] = "cross"
    title: ClassVar[str] = "cross-attention"
    grows: ClassVar[bool] = False

    kv_heads: Q
    head_dim: Q
    attention_heads: Q
    encoder_tokens: Q

    def encoder_token_bytes(self, tp: Q, cache: CacheFormat) -> Q:
        """K and V of one encoder token: 2 * heads * head_dim * bytes."""
        heads = Full(kv_heads=self.kv_heads, head_dim=self.head_dim, attention_heads=self.attention_heads).heads_on_gpu(tp)
        held = 2 * heads * self.head_dim * cache.bytes_per_element
        return held.as_step(f"k_{self.kind}", f"cache of one encoder token in one {self.title} layer")

    def bytes_per_token(self, tp: Q, cache: CacheFormat) -> None:
        """One more decoder token costs nothing."""
        return

    def fixed_bytes(self, tp: Q, cache: CacheFormat) -> Q:
        """Encoder tokens times the bytes of one: the same for every decoder length."""
        held = self.encoder_tokens * self.encoder_token_bytes(tp, cache)
        return held.as_step(f"S_{self.kind}", f"cache of one sequence in one {self.title} layer")

    def sequence_bytes(self, context: Q, tp: Q, cache: CacheFormat) -> Q:
        """The encoder's keys and values, whatever the context."""
        return self.fixed_bytes(tp, cache)

    def tp_refusal(self, tp: int) -> str | None:
        """Attention heads must divide by tp; KV heads must divide by tp or tp by them."""
        return heads_refusal(self.attention_heads, self.kv_heads, tp)
