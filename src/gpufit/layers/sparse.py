"""Sparse attention with a lightning indexer: the whole sequence is kept, and beside it a small key that selects from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpufit.formats.cache import CacheFormat
from gpufit.layers.full import Full
from gpufit.layers.latent import Latent
from gpufit.quantity import BYTE_PER_TOKEN, NUMBER, Q, ceil_div, fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """The key that an indexer keeps for each token: `dim` elements of `element_bytes` (B/token), whatever the cache dtype.

    `scale_bytes` (B/token) stand beside every `scale_group` elements; None where the key is not quantised. Tensor
    parallelism copies the key to every rank.
    """

    dim: Q
    element_bytes: Q
    scale_bytes: Q | None = None
    scale_group: Q | None = None

    def bytes_per_token(self) -> Q:
        """B/token of one indexer."""
        held = self.dim * self.element_bytes
        if self.scale_bytes is not None and self.scale_group is not None:
            held = held + ceil_div(self.dim, self.scale_group) * self.scale_bytes
        return held.as_step("k_index", "index key of one token in one layer")


def fp8_index(dim: Q) -> Index:
    """The index key of DeepSeek-V3.2 and GLM-5: fp8 with an fp32 scale per 128 elements (vLLM 0.33.0 Indexer)."""
    origin = "lightning indexer: fp8 keys with fp32 scales (DeepSeek-V3.2)"
    return Index(
        dim=dim,
        element_bytes=fact(1, BYTE_PER_TOKEN, symbol="b_index", name="bytes of an index element", origin=origin),
        scale_bytes=fact(4, BYTE_PER_TOKEN, symbol="b_scale", name="bytes of an index scale", origin=origin),
        scale_group=fact(128, NUMBER, symbol="g_index", name="index elements per scale", origin=origin),
    )


def bf16_index(dim: Q) -> Index:
    """The index key of MiniMax-M3: 16-bit elements (vLLM 0.33 models/minimax_m3)."""
    origin = "MiniMax-M3 indexer: 16-bit keys"
    return Index(dim=dim, element_bytes=fact(2, BYTE_PER_TOKEN, symbol="b_index", name="bytes of an index element", origin=origin))


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseLatent(Latent):
    """Latent attention over tokens that an indexer selects (DeepSeek-V3.2, GLM-5).

    All tokens stay, so the latent costs what it costs in `Latent`. `index` is None in layers that reuse the selection of an earlier
    layer and keep no index keys of their own.
    """

    kind: ClassVar[str] = "sparse_latent"
    title: ClassVar[str] = "sparse latent attention"

    index: Index | None = None

    def bytes_per_token(self, tp: Q, cache: CacheFormat) -> Q:
        """The latent, and the index key where this layer owns an indexer, on every GPU alike."""
        latent = Latent.bytes_per_token(self, tp, cache)
        if self.index is None:
            return latent
        held = latent + self.index.bytes_per_token()
        return held.as_step("k_indexed", f"cache of one token in one {self.title} layer with an indexer")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseFull(Full):
    """Grouped-query attention over tokens that an indexer selects (MiniMax-M3): K and V of all tokens, and an index key each."""

    kind: ClassVar[str] = "sparse_full"
    title: ClassVar[str] = "sparse attention"

    index: Index

    def bytes_per_token(self, tp: Q, cache: CacheFormat) -> Q:
        """K and V of the heads on this GPU, and the index key whole."""
        held = Full.bytes_per_token(self, tp, cache) + self.index.bytes_per_token()
        return held.as_step("k_indexed", f"cache of one token in one {self.title} layer with an indexer")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOnly(Latent):
    """A sparse layer that attends over the latent of the earlier layer `target`, and keeps at most an index key of its own."""

    kind: ClassVar[str] = "sparse_shared"
    title: ClassVar[str] = "sparse attention over a shared latent"

    target: int
    index: Index | None = None

    def bytes_per_token(self, tp: Q, cache: CacheFormat) -> Q:
        """The index key, or nothing."""
        if self.index is None:
            return fact(0, BYTE_PER_TOKEN, symbol="k_shared", name="cache of one token", origin=f"kept by layer {self.target}")
        return self.index.bytes_per_token()
