"""Groups: which layers share a block table, and how wide one block of the pool becomes.

Every group draws block ids from one pool, so each block is as wide as the widest group needs it.
Source: vLLM 0.33.0, v1/core/kv_cache_planning.py.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from gpufit.engines.vllm.specs import BYTE_PER_BLOCK, GROWING, WINDOWED, CacheSpec, LayerSpec, SpecKind, uniform
from gpufit.quantity import NUMBER, Q, fact, largest, round_up, total

CLOSE = Fraction(3, 2)
"""Buckets whose largest is under 1.5 times the smallest are padded to the largest (_get_kv_cache_groups_uniform_page_size)."""


class NoGroups(Exception):
    """The pages of these layers cannot be brought to one size; the reason is the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Layers with one block table. Their specs may differ in page; one block holds a page of each."""

    layers: tuple[LayerSpec, ...]

    @property
    def specs(self) -> tuple[CacheSpec, ...]:
        """The distinct specs of the group, in layer order."""
        return tuple({s.spec.identity(): s.spec for s in self.layers}.values())

    @property
    def title(self) -> str:
        """The kinds of its layers, in words."""
        return " and ".join(dict.fromkeys(s.title for s in self.specs))

    @property
    def block_size(self) -> Q:
        """Tokens that one block of this group covers."""
        return self.layers[0].spec.block_size

    def bytes_per_block(self, layers: range | None, *, strided: bool) -> Q:
        """The pages of its layers (those in `layers`, a pipeline stage) summed, each at its stride where `strided`."""
        counts: Counter[tuple[object, ...]] = Counter()
        for held in self.layers:
            if layers is None or held.layer in layers:
                counts[held.spec.identity()] += 1
        terms = []
        for spec in self.specs:
            count = counts[spec.identity()]
            if count:
                page = round_up(spec.page, spec.stride) if strided and spec.stride is not None else spec.page
                terms.append(_count(count, spec) * page)
        return total(terms, unit=BYTE_PER_BLOCK)


def _count(count: int, spec: CacheSpec) -> Q:
    return fact(
        count,
        NUMBER,
        symbol="n",
        name=f"{spec.title} layers in the group",
        origin="grouping of the layers, vLLM kv_cache_planning.py",
    )


def bytes_per_block(groups: Sequence[Group], layers: range | None = None, *, packed: bool = False) -> Q:
    """B/block of the pool: the widest group's pages. `packed` is the layout with the block as its outermost dimension."""
    each = [(g.bytes_per_block(layers, strided=not packed), g) for g in groups]
    widths = list({q.value: (q, g) for q, g in reversed(each)}.values())[::-1]
    if len(widths) == 1:
        return widths[0][0].as_step("b_b", f"bytes of one block: the pages of {widths[0][1].title} layers")
    named = [q.as_step("g", f"pages of a group of {g.title} layers") for q, g in widths]
    return largest(*named).as_step("b_b", "bytes of one block: the widest group's pages")


def grouped(layers: Sequence[LayerSpec], *, packed: bool = False, hybrid: bool = True) -> tuple[Group, ...]:
    """The groups of a model's layers. Raises `NoGroups` where vLLM would refuse.

    `packed`: the backends store blocks outermost, so that pages of several sizes can stand in one block. `hybrid` False keeps windowed
    and chunked layers as long as full ones.
    """
    if not layers:
        return ()
    if not hybrid:
        layers = promoted(layers)
    if uniform(s.spec for s in layers):
        return (Group(layers=tuple(layers)),)
    if packed and len({int(s.spec.page) for s in layers}) > 1:
        return _packed(layers)
    try:
        common = one_page(layers)
    except NoGroups:
        fallback = _all_full(layers)
        if fallback is None:
            raise
        return fallback
    return _even(common)


def promoted(layers: Sequence[LayerSpec]) -> tuple[LayerSpec, ...]:
    """Windowed and chunked layers as full attention, once there is full attention beside them (hybrid manager off)."""
    if uniform(s.spec for s in layers):
        return tuple(layers)
    sizes = {int(s.spec.block_size): s.spec.block_size for s in layers if s.spec.kind in GROWING}
    size = next(iter(sizes.values())) if len(sizes) == 1 else None
    done: list[LayerSpec] = []
    for held in layers:
        spec = held.spec
        if sizes and spec.kind in (*WINDOWED, SpecKind.CHUNKED):
            kind = SpecKind.LATENT if spec.kind is SpecKind.SLIDING_LATENT else SpecKind.FULL
            page = spec.page if size is None else spec.page // spec.block_size * size
            spec = replace(spec, kind=kind, block_size=size or spec.block_size, page=page)
        done.append(replace(held, spec=spec))
    if not uniform(s.spec for s in done):
        kinds = ", ".join(dict.fromkeys(s.spec.title for s in layers))
        raise NoGroups(f"without the hybrid KV cache manager the layers ({kinds}) cannot be brought to one kind")
    return tuple(done)


def _all_full(layers: Sequence[LayerSpec]) -> tuple[Group, ...] | None:
    """Sliding windows beside latent attention with pages that do not agree: kept at full length in one group, where that works."""
    kinds = {s.spec.kind for s in layers}
    if SpecKind.LATENT not in kinds or SpecKind.SLIDING not in kinds or kinds & {SpecKind.SLIDING_LATENT, SpecKind.CHUNKED}:
        return None
    try:
        return (Group(layers=promoted(layers)),)
    except NoGroups:
        return None


def one_page(layers: Sequence[LayerSpec]) -> tuple[LayerSpec, ...]:
    """All layers with the widest page: blocks made longer where that divides, state and plain attention pages padded where not.

    Source: unify_kv_cache_spec_page_size.
    """
    widest = max((s.spec for s in layers), key=lambda s: int(s.page))
    most = int(widest.page)
    done: dict[tuple[object, ...], CacheSpec] = {}
    for held in layers:
        spec, key = held.spec, held.spec.identity()
        if key in done:
            continue
        if int(spec.page) == most:
            done[key] = spec
        elif spec.kind is SpecKind.STATE:
            done[key] = spec.padded_to(widest.page)
        elif most % int(spec.page) == 0:
            done[key] = spec.scaled(most // int(spec.page))
        elif spec.kind in (SpecKind.LATENT,):
            raise NoGroups(
                f"the page of the {spec.title} layers ({int(spec.page)} bytes) neither divides the widest ({most}) nor may be padded"
            )
        else:
            done[key] = spec.padded_to(widest.page)
    return tuple(replace(s, spec=done[s.spec.identity()]) for s in layers)


def _even(layers: Sequence[LayerSpec]) -> tuple[Group, ...]:
    """Buckets of equal specs, cut into groups of one size; layers are dealt in turn, so that each pipeline stage gets its share."""
    buckets: list[list[LayerSpec]] = []
    by_spec: dict[tuple[object, ...], list[LayerSpec]] = {}
    for held in layers:
        by_spec.setdefault(held.spec.identity(), []).append(held)
    for same in by_spec.values():
        for bucket in buckets:
            if bucket[0].spec.joins(same[0].spec):
                bucket.extend(same)
                break
        else:
            buckets.append(list(same))
    smallest, biggest = min(map(len, buckets)), max(map(len, buckets))
    size = biggest if biggest < smallest * CLOSE else smallest
    return tuple(
        Group(layers=tuple(bucket[first :: -(-len(bucket) // size)]))
        for bucket in buckets
        for first in range(-(-len(bucket) // size))
    )


def _packed(layers: Sequence[LayerSpec]) -> tuple[Group, ...]:
    """Groups whose blocks hold pages of several sizes (DeepSeek-V4).

    Layers are bucketed by uniform type. A bucket whose page sizes occur equally often is a repeating pattern, cut into groups with the
    same number of repeats; other buckets stay whole. States go as many to a block as it already fits. Source: _get_packed_kv_cache_groups.
    """
    buckets: list[list[LayerSpec]] = []
    for held in layers:
        for bucket in buckets:
            if uniform([*(s.spec for s in bucket), held.spec]):
                bucket.append(held)
                break
        else:
            buckets.append([held])
    sized = [_by_page(bucket) for bucket in buckets]
    balanced = [len({len(v) for v in pages.values()}) == 1 for pages in sized]
    repeats = [max(len(v) for v in pages.values()) for pages in sized]
    floor = max((r for r, pages, even in zip(repeats, sized, balanced, strict=True) if even and len(pages) > 1), default=0)
    each = _least_padding([r for r, even in zip(repeats, balanced, strict=True) if even], floor) if floor else None
    cuts = [-(-r // each) if even and each else 1 for r, even in zip(repeats, balanced, strict=True)]
    state = [b[0].spec.kind is SpecKind.STATE or (each is None and b[0].spec.kind in WINDOWED) for b in buckets]
    anchor = max(
        sum(-(-len(held) // (len(bucket) if is_state else cut)) * page for page, held in pages.items())
        for bucket, pages, cut, is_state in zip(buckets, sized, cuts, state, strict=True)
    )
    groups: list[Group] = []
    for bucket, pages, cut, is_state in zip(buckets, sized, cuts, state, strict=True):
        if is_state:
            cut = max(cut, -(-len(bucket) // max(1, anchor // int(bucket[0].spec.page))))
        if cut == 1:
            groups.append(Group(layers=tuple(bucket)))
            continue
        patterns = list(zip(*pages.values(), strict=False))
        groups += [Group(layers=tuple(s for repeat in patterns[first::cut] for s in repeat)) for first in range(cut)]
    return tuple(groups)


def _by_page(bucket: Sequence[LayerSpec]) -> dict[int, list[LayerSpec]]:
    pages: dict[int, list[LayerSpec]] = {}
    for held in bucket:
        pages.setdefault(int(held.spec.page), []).append(held)
    return pages


def _least_padding(counts: Sequence[int], at_least: int) -> int:
    """The group length that wastes the fewest slots over all buckets, the longest of equals (_approximate_gcd)."""
    if at_least > max(counts):
        return at_least
    waste = {size: sum(-count % size for count in counts) for size in range(max(1, at_least), max(counts) + 1)}
    return min(waste, key=lambda size: (waste[size], -size))


def common_stride(groups: Sequence[Group]) -> int:
    """The multiple of bytes at which packed blocks start: the least common one of all layers."""
    return math.lcm(*(int(s.stride) for g in groups for s in g.specs if s.stride is not None)) if groups else 1
