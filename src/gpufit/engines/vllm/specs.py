"""Cache specs: what one layer of one kind asks of the block pool on one GPU, before layers are grouped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from gpufit.quantity import Q, unit

TOKEN_PER_BLOCK = unit(token=1, block=-1)
BYTE_PER_BLOCK = unit(B=1, block=-1)
BLOCK_PER_SEQUENCE = unit(block=1, sequence=-1)


class SpecKind(Enum):
    """How blocks of a layer are handed out. The words are used in derivations and JSON."""

    FULL = "full attention"
    LATENT = "latent attention"
    SLIDING = "sliding window"
    SLIDING_LATENT = "sliding-window latent"
    CHUNKED = "chunked local"
    STATE = "recurrent state"
    CROSS = "cross attention"


GROWING = (SpecKind.FULL, SpecKind.LATENT)
"""Kinds that keep a block for every block of tokens of the sequence."""
WINDOWED = (SpecKind.SLIDING, SpecKind.SLIDING_LATENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSpec:
    """The page of one layer and the rule by which a sequence takes pages.

    `block_size` (token/block) and `page` (B/block) belong together: a page holds one block of one layer. `layout` is what must agree,
    beside the block size and the page, for two layers to be of one spec (heads, widths, element format). `window` and `chunk` are
    token/sequence. `state_blocks` (block/sequence) is what a sequence holds in a state layer. `padded` marks a page wider than its
    content, which cannot be rescaled. `stride` is the multiple of bytes at which a page must start where layers are stored one after
    the other, None for any. `sharded` says whether decode context parallelism divides the tokens of this layer.
    Source: vLLM 0.33.0, v1/kv_cache_interface.py.
    """

    kind: SpecKind
    title: str
    block_size: Q
    page: Q
    layout: tuple[object, ...] = ()
    window: Q | None = None
    chunk: Q | None = None
    state_blocks: Q | None = None
    padded: bool = False
    stride: Q | None = None
    sharded: bool = True

    def identity(self) -> tuple[object, ...]:
        """What two equal specs have in common; the text of their derivations may differ."""
        values = (self.block_size, self.page, self.window, self.chunk, self.state_blocks)
        return (self.kind, self.layout, self.sharded, self.padded, *(None if q is None else q.value for q in values))

    def joins(self, other: CacheSpec) -> bool:
        """Whether layers of both may stand in one bucket with one block table: equal, or full attention that differs in window alone."""
        if self.kind is SpecKind.FULL and other.kind is SpecKind.FULL:
            return self._but_window() == other._but_window()
        return self.identity() == other.identity()

    def _but_window(self) -> tuple[object, ...]:
        return replace(self, window=None, chunk=None).identity()

    def scaled(self, ratio: int) -> CacheSpec:
        """The same layer with `ratio` times the tokens in a block."""
        size = (self.block_size * ratio).as_step("B_w", f"block of a {self.title} layer, raised until its page is the common one")
        return replace(self, block_size=size, page=(self.page * ratio).as_step("p_w", f"page of a {self.title} layer, so raised"))

    def padded_to(self, page: Q) -> CacheSpec:
        """The same layer in a wider page."""
        note = f"the page of a {self.title} layer ({int(self.page)} bytes) is padded to the widest one"
        return replace(self, page=page.because(note), padded=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """A spec in its place: `layer` is the decoder layer that owns it, draft layers counted on after the last one."""

    spec: CacheSpec
    layer: int


def uniform(specs: Iterable[CacheSpec]) -> bool:
    """Whether all specs always need the same number of blocks, so that one group can hold them whatever their pages.

    Source: vLLM 0.33.0, v1/kv_cache_interface.py UniformTypeKVCacheSpecs.is_uniform_type; the first spec sets the kind.
    """
    once = {id(s): s for s in specs}
    distinct = {s.identity(): s for s in once.values()}
    if len(distinct) <= 1:
        return True
    first, *rest = distinct.values()
    if any(int(s.block_size) != int(first.block_size) or s.sharded != first.sharded for s in rest):
        return False
    if first.kind in GROWING:
        return all(s.kind in GROWING for s in rest)
    if first.kind in WINDOWED:
        allowed = WINDOWED if first.kind is SpecKind.SLIDING else (SpecKind.SLIDING_LATENT,)
        return all(s.kind in allowed and _same(s.window, first.window) for s in rest)
    if first.kind is SpecKind.CHUNKED:
        return all(s.kind is SpecKind.CHUNKED and _same(s.chunk, first.chunk) for s in rest)
    if first.kind is SpecKind.STATE:
        return all(
            s.kind is SpecKind.STATE and _same(s.page, first.page) and _same(s.state_blocks, first.state_blocks) for s in rest
        )
    return all(s.kind is first.kind for s in rest)


def _same(left: Q | None, right: Q | None) -> bool:
    return (None if left is None else left.value) == (None if right is None else right.value)
