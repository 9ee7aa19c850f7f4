"""Multi-head latent attention (MLA): one compressed vector per token instead of keys and values per head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpufit.formats.cache import CacheFormat
from gpufit.layers.full import heads_refusal
from gpufit.quantity import Q


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """MLA as in DeepSeek-V2 (arXiv 2405.04434, section 2.1): a latent of `latent_rank` and a shared rotary key of `rope_dim`.

    Every tensor-parallel rank needs the whole latent, so it is copied to each and never divided.
    """

    kind: ClassVar[str] = "latent"
    title: ClassVar[str] = "latent attention"
    grows: ClassVar[bool] = True

    latent_rank: Q
    rope_dim: Q
    attention_heads: Q

    def bytes_per_token(self, tp: Q, cache: CacheFormat) -> Q:
        """(latent rank + rotary width) * bytes, on every GPU alike."""
        held = (self.latent_rank + self.rope_dim) * cache.bytes_per_element
        if tp > 1:
            held = held.because("the latent cache is copied to each tensor-parallel rank, not divided")
        return held.as_step(f"k_{self.kind}", f"cache of one token in one {self.title} layer")

    def fixed_bytes(self, tp: Q, cache: CacheFormat) -> Q | None:
        """Nothing is held beside the tokens."""
        return None

    def sequence_bytes(self, context: Q, tp: Q, cache: CacheFormat) -> Q:
        """Every token stays."""
        held = context * self.bytes_per_token(tp, cache)
        return held.as_step(f"S_{self.kind}", f"cache of one sequence in one {self.title} layer")

    def tp_refusal(self, tp: int) -> str | None:
        """Attention heads must divide by tp."""
        return heads_refusal(self.attention_heads, None, tp)
