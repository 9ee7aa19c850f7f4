"""Full attention: a key and a value for every token of the sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpufit.formats.cache import CacheFormat
from gpufit.quantity import Q, ceil_div


@dataclass(frozen=True, slots=True, kw_only=True)
class Full:
    """Multi-head, grouped-query or multi-query attention over the whole sequence.

    `kv_heads` (not attention heads) times `head_dim` elements are kept for K, and `value_dim` wide ones for V where it differs.
    """

    kind: ClassVar[str] = "full"
    title: ClassVar[str] = "full attention"
    grows: ClassVar[bool] = True

    kv_heads: Q
    head_dim: Q
    value_dim: Q | None = None
    attention_heads: Q

    def heads_on_gpu(self, tp: Q) -> Q:
        """KV heads on one GPU: an equal share, and never less than one (with fewer heads than GPUs they are copied)."""
        heads = ceil_div(self.kv_heads, tp)
        if tp > self.kv_heads:
            heads = heads.because(f"{int(self.kv_heads)} KV heads on {int(tp)} GPUs: heads are copied, not split")
        return heads.as_step("h", "KV heads on one GPU")

    def bytes_per_token(self, tp: Q, cache: CacheFormat) -> Q:
        """K and V of one token: 2 * heads * head_dim * bytes, or heads * (K width + V width) * bytes."""
        heads = self.heads_on_gpu(tp)
        if self.value_dim is None:
            elements = 2 * heads * self.head_dim
        else:
            elements = heads * (self.head_dim + self.value_dim)
        return (elements * cache.bytes_per_element).as_step(f"k_{self.kind}", f"cache of one token in one {self.title} layer")

    def fixed_bytes(self, tp: Q, cache: CacheFormat) -> None:
        """Nothing is held beside the tokens."""
        return

    def tokens_kept(self, context: Q) -> Q:
        """Every token stays."""
        return context

    def sequence_bytes(self, context: Q, tp: Q, cache: CacheFormat) -> Q:
        """Tokens kept times the bytes of one token."""
        held = self.tokens_kept(context) * self.bytes_per_token(tp, cache)
        return held.as_step(f"S_{self.kind}", f"cache of one sequence in one {self.title} layer")

    def tp_refusal(self, tp: int) -> str | None:
        """Attention heads must divide by tp; KV heads must divide by tp or tp by them."""
        return heads_refusal(self.attention_heads, self.kv_heads, tp)


def heads_refusal(attention_heads: Q, kv_heads: Q | None, tp: int) -> str | None:
    """The reason why these heads cannot be split over `tp` GPUs, or None."""
    heads = int(attention_heads)
    if heads % tp:
        return f"{heads} attention heads do not divide by {tp}"
    if kv_heads is not None:
        kv = int(kv_heads)
        if kv % tp and tp % kv:
            return f"{kv} KV heads do not divide by {tp}, nor {tp} by them"
    return None
