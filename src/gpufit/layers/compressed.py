"""Attention over compressed entries beside a short window, as in DeepSeek-V4.

Such a layer keeps two things and so stands in two groups: a `SlidingLatent` of the last tokens, and, where it compresses, a
`Compressed` cache with one entry for several tokens. Keys and values are one shared vector, whole on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpufit.formats.cache import CacheFormat
from gpufit.layers.full import heads_refusal
from gpufit.layers.sparse import Index
from gpufit.quantity import BYTE_PER_SEQUENCE, Q, ceil_div, least, total


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingLatent:
    """One shared vector of `entry_dim` for each of the last `window` tokens (unit token/sequence); it is key and value at once."""

    kind: ClassVar[str] = "sliding_latent"
    title: ClassVar[str] = "sliding-window shared-vector"
    grows: ClassVar[bool] = False

    entry_dim: Q
    window: Q
    attention_heads: Q

    def bytes_per_token(self, tp: Q, cache: CacheFormat) -> Q:
        """Width times bytes, on every GPU alike, while the window fills."""
        held = self.entry_dim * cache.bytes_per_element
        if tp > 1:
            held = held.because("the shared vector is copied to each tensor-parallel rank, not divided")
        return held.as_step(f"k_{self.kind}", f"cache of one token in one {self.title} layer")

    def fixed_bytes(self, tp: Q, cache: CacheFormat) -> None:
        """Nothing is held beside the tokens."""
        return

    def tokens_kept(self, context: Q) -> Q:
        """The context, but never more than the window."""
        return least(context, self.window).as_step("n_w", "tokens kept in a sliding-window layer")

    def sequence_bytes(self, context: Q, tp: Q, cache: CacheFormat) -> Q:
        """Tokens kept times the bytes of one token."""
        held = self.tokens_kept(context) * self.bytes_per_token(tp, cache)
        return held.as_step(f"S_{self.kind}", f"cache of one sequence in one {self.title} layer")

    def tp_refusal(self, tp: int) -> str | None:
        """Attention heads must divide by tp."""
        return heads_refusal(self.attention_heads, None, tp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compressed:
    """One entry of `entry_dim` for every `ratio` tokens, with an index key where `index` is given.

    Until an entry is complete its tokens wait in a compressor: for each of `state_tokens` (token/sequence; twice the ratio where
    neighbouring groups overlap) it holds `state_width` elements of `state_bytes` (B/token), and the indexer's own compressor
    `index_state_width` more. Shapes: DeepSeek-V4 (configuration_deepseek_v4.py, transformers 5.24.0; compressor.py, vLLM 0.33.0).
    """

    kind: ClassVar[str] = "compressed"
    title: ClassVar[str] = "compressed"
    grows: ClassVar[bool] = True

    ratio: Q
    entry_dim: Q
    attention_heads: Q
    state_tokens: Q
    state_width: Q
    state_bytes: Q
    index: Index | None = None
    index_state_width: Q | None = None

    def entry_bytes(self, cache: CacheFormat) -> Q:
        """B/token of one entry, which stands for `ratio` tokens: the shared vector and its index key."""
        held = self.entry_dim * cache.bytes_per_element
        if self.index is not None:
            held = held + self.index.bytes_per_token()
        return held.as_step(f"e_{int(self.ratio)}", f"bytes of one entry for {int(self.ratio)} tokens")

    def bytes_per_token(self, tp: Q, cache: CacheFormat) -> Q:
        """A token's share of an entry, on every GPU alike; a share that is not whole is rounded up."""
        share = ceil_div(self.entry_bytes(cache), self.ratio)
        if tp > 1:
            share = share.because("compressed entries are copied to each tensor-parallel rank, not divided")
        return share.as_step(f"k_{int(self.ratio)}", f"cache of one token in one layer that compresses {int(self.ratio)} to 1")

    def fixed_bytes(self, tp: Q, cache: CacheFormat) -> Q:
        """The compressors' waiting tokens."""
        states = [self.state_tokens * self.state_width * self.state_bytes]
        if self.index_state_width is not None:
            states.append(self.state_tokens * self.index_state_width * self.state_bytes)
        return total(states, unit=BYTE_PER_SEQUENCE).as_step(
            f"Z_{int(self.ratio)}", f"compressor state of one sequence in one layer that compresses {int(self.ratio)} to 1"
        )

    def sequence_bytes(self, context: Q, tp: Q, cache: CacheFormat) -> Q:
        """Complete entries, and the compressor state."""
        entries = (context // self.ratio).as_step(f"n_{int(self.ratio)}", f"entries for {int(self.ratio)} tokens each")
        held = entries * self.entry_bytes(cache) + self.fixed_bytes(tp, cache)
        return held.as_step(f"S_{int(self.ratio)}", f"cache of one sequence in one layer that compresses {int(self.ratio)} to 1")

    def tp_refusal(self, tp: int) -> str | None:
        """Attention heads must divide by tp."""
        return heads_refusal(self.attention_heads, None, tp)
