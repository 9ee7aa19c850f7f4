"""Sparse, latent and compressed layers: what holds for every size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpufit.formats.cache import BF16, FP8
from gpufit.layers.compressed import Compressed, SlidingLatent
from gpufit.layers.latent import Latent
from gpufit.layers.sparse import SparseFull, SparseLatent, bf16_index, fp8_index
from gpufit.quantity import BYTE_PER_TOKEN, NUMBER, TOKEN_PER_SEQUENCE, Q, Unit, fact

SIZES = st.integers(min_value=1, max_value=1024)
CONTEXTS = st.integers(min_value=0, max_value=1 << 20)


def q(value: int, unit: Unit = NUMBER) -> Q:
    return fact(value, unit, symbol="x", name="value", origin="test")


@given(rank=SIZES, rope=SIZES, dim=SIZES, tp=st.sampled_from([1, 2, 4, 8]))
def test_an_index_adds_the_same_whatever_the_cache(rank: int, rope: int, dim: int, tp: int) -> None:
    """An indexer adds its key and one 4-byte scale for every 128 elements begun, at any cache dtype and any tp."""
    plain = Latent(latent_rank=q(rank), rope_dim=q(rope), attention_heads=q(64))
    sparse = SparseLatent(latent_rank=q(rank), rope_dim=q(rope), attention_heads=q(64), index=fp8_index(q(dim)))
    for cache in (BF16, FP8):
        added = int(sparse.bytes_per_token(q(tp), cache)) - int(plain.bytes_per_token(q(tp), cache))
        assert added == dim + 4 * ((dim + 127) // 128)


@given(heads=st.sampled_from([1, 2, 4, 8]), dim=SIZES, index=SIZES, tp=st.sampled_from([1, 2, 4, 8]))
def test_index_keys_are_copied_where_heads_are_split(heads: int, dim: int, index: int, tp: int) -> None:
    """A rank keeps its share of the heads, at least one, and the whole index key."""
    kind = SparseFull(attention_heads=q(64), kv_heads=q(heads), head_dim=q(dim), index=bf16_index(q(index)))
    assert int(kind.bytes_per_token(q(tp), BF16)) == 2 * max(1, heads // tp) * dim * 2 + 2 * index


@given(ratio=st.sampled_from([4, 128]), width=SIZES, context=CONTEXTS, more=CONTEXTS)
def test_compressed_caches_grow_by_whole_entries(ratio: int, width: int, context: int, more: int) -> None:
    """The cache is its state plus one entry for each complete group of tokens, and never shrinks with the context."""
    kind = Compressed(
        ratio=q(ratio), entry_dim=q(width), attention_heads=q(64), state_tokens=q(ratio, TOKEN_PER_SEQUENCE), state_width=q(2 * width),
        state_bytes=q(4, BYTE_PER_TOKEN),
    )  # fmt: skip
    held = int(kind.sequence_bytes(q(context, TOKEN_PER_SEQUENCE), q(1), BF16))
    assert held == context // ratio * width * 2 + ratio * 2 * width * 4
    assert int(kind.sequence_bytes(q(context + more, TOKEN_PER_SEQUENCE), q(8), BF16)) >= held


@given(width=SIZES, window=SIZES, context=CONTEXTS)
def test_a_shared_vector_window_is_bounded(width: int, window: int, context: int) -> None:
    """Never more than the window is kept, and a window at least as long as the context keeps all of it."""
    kind = SlidingLatent(entry_dim=q(width), window=q(window, TOKEN_PER_SEQUENCE), attention_heads=q(64))
    held = int(kind.sequence_bytes(q(context, TOKEN_PER_SEQUENCE), q(1), BF16))
    assert held == min(context, window) * width * 2
