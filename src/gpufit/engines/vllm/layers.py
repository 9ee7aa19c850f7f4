"""Layers of a model as cache specs on one GPU: backend, block size and page of each kind, draft layers included.

Source: vLLM 0.33.0, get_kv_cache_spec of the attention layers, platforms/interface.py (update_block_size_for_backend,
_align_hybrid_block_size, _align_heterogeneous_kv_block_size).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gpufit.engines.vllm.backends import ASSUMED, Ask, NoBackend, choose, preferred_block, window_block
from gpufit.engines.vllm.compressed import LAYOUT, entry_specs, refusal, window_spec
from gpufit.engines.vllm.constants import Backend
from gpufit.engines.vllm.formats import NVFP4, TURBOQUANT, quantised
from gpufit.engines.vllm.situation import Placed, Setting, Unserved, as_full, token_bytes
from gpufit.engines.vllm.specs import TOKEN_PER_BLOCK, CacheSpec, LayerSpec, SpecKind
from gpufit.engines.vllm.states import aligned_block, state_page, state_spec
from gpufit.engines.vllm.traits import UNKNOWN
from gpufit.layers.chunked import Chunked
from gpufit.layers.compressed import Compressed, SlidingLatent
from gpufit.layers.cross import Cross
from gpufit.layers.full import Full
from gpufit.layers.latent import Latent
from gpufit.layers.none import NoCache
from gpufit.layers.rg_lru import RgLru
from gpufit.layers.rwkv import Rwkv
from gpufit.layers.sliding import Sliding
from gpufit.layers.sparse import IndexOnly, SparseFull, SparseLatent
from gpufit.layers.state import State
from gpufit.layers.xlstm import Mlstm
from gpufit.model import LayerGroup
from gpufit.quantity import NUMBER, TOKEN_PER_SEQUENCE, Q, ceil_div, fact

CUDA_8_9 = (8, 9)
"""The first compute capability with fp8 in Triton kernels (v1/attention/backends/triton_attn.py)."""
BOUNDARY = 2
"""Layers at either end that a packed cache leaves at 16 bit (quantization/turboquant/config.py get_boundary_skip_layers)."""
RULED = (Full, Latent, Cross, State, SlidingLatent, Compressed, NoCache)
"""Layer kinds that there is a rule for."""
UNSERVED = (RgLru, Rwkv, Mlstm)
"""Recurrent kinds that no model class of 0.33.0 serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """The specs of a model in layer order, the block size they share, and the cache dtype after the backend had its say."""

    specs: tuple[LayerSpec, ...]
    block_size: Q
    cache: str
    packed: bool
    backends: tuple[str, ...]


def layers_of(here: Setting) -> Layers:
    """The specs of every layer that keeps something. Raises `Unserved` where vLLM refuses."""
    groups = [*here.model.layers, *(here.model.draft_layers if here.settings.speculative_method == "mtp" else ())]
    if here.constants.listed("unpacked_latent_families", here.traits.family):
        groups = [_unpacked(here, g) for g in groups]
    for group in groups:
        if not isinstance(group.kind, RULED) or isinstance(group.kind, UNSERVED):
            raise Unserved(f"vLLM {here.constants.version} has no cache for {group.kind.title} layers")
    skipped = boundary_layers(here)
    placed = _placed(here, groups, skipped)
    cache = _resolved(here.cache, placed)
    block = block_size(here, placed, groups, cache, bool(skipped))
    specs: list[tuple[int, int, CacheSpec]] = []
    for part in placed:
        for order, spec in enumerate(_attention_specs(here, part, block, cache)):
            specs += [(layer, order, spec) for layer in part.indices]
    page = state_page(here, groups, placed, block, cache)
    compressed = any(isinstance(g.kind, (SlidingLatent, Compressed)) for g in groups)
    for group in groups:
        if isinstance(group.kind, SlidingLatent):
            specs += [(layer, 0, window_spec(group.kind, here.constants)) for layer in group.indices]
        elif isinstance(group.kind, Compressed):
            entries = entry_specs(group.kind, block, here.constants)
            specs += [(layer, 1 + order, spec) for layer in group.indices for order, spec in enumerate(entries)]
        if isinstance(group.kind, State):
            spec = state_spec(here, group.kind, block, page)
            specs += [(layer, 0, spec) for layer in group.indices]
    specs.sort(key=lambda s: (s[0], s[1]))
    return Layers(
        specs=tuple(LayerSpec(spec=spec, layer=layer) for layer, _, spec in specs),
        block_size=block,
        cache=LAYOUT if compressed else cache,
        packed=compressed,
        backends=tuple(dict.fromkeys(p.backend.name for p in placed)),
    )


def _unpacked(here: Setting, group: LayerGroup) -> LayerGroup:
    """Latent attention as plain heads: every query head keeps a key and a value, both as wide as the whole key."""
    kind = group.kind
    if not isinstance(kind, Latent):
        return group
    if here.traits.nope_dim is None:
        raise Unserved("the width of a whole key is not known: this family caches latent attention as plain heads")
    nope = fact(here.traits.nope_dim, NUMBER, symbol="d_n", name="key width without rotation", origin="shapes of the up-projection")
    width = (nope + kind.rope_dim).as_step("d", "width of a whole key")
    return replace(group, kind=Full(kv_heads=kind.attention_heads, head_dim=width, attention_heads=kind.attention_heads))


def boundary_layers(here: Setting) -> frozenset[int]:
    """Layers that a packed cache leaves at 16 bit: the first and last two of a model without state layers."""
    if here.cache not in TURBOQUANT or not any(isinstance(g.kind, (Full, Latent)) for g in here.model.layers):
        return frozenset()
    if here.traits.stateful:
        if not any(isinstance(g.kind, Full) for g in here.model.layers):
            raise Unserved(f"{here.cache} needs full-attention layers, and this model has none beside its states")
        return frozenset()
    count = int(here.model.num_layers)
    most = min(BOUNDARY, count // 2)
    return frozenset([*range(most), *range(count - most, count)])


def _placed(here: Setting, groups: Sequence[LayerGroup], skipped: frozenset[int]) -> list[Placed]:
    """Every attention group with its backend, in layer order; groups at the boundary of a packed cache are cut in two."""
    found: list[Placed] = []
    for group in groups:
        kind = group.kind
        if not isinstance(kind, (Full, Latent, Cross)):
            continue
        if here.cache in TURBOQUANT and isinstance(kind, (Chunked, Cross)):
            raise Unserved(f"{kind.title} attention does not take a {here.cache} cache")
        wide = frozenset() if isinstance(kind, SparseFull) else skipped
        for cache, indices in (
            (here.cache, tuple(i for i in group.indices if i not in wide)),
            ("auto", tuple(i for i in group.indices if i in wide)),
        ):
            if indices:
                ask = here.ask(kind, cache)
                found.append(Placed(kind=kind, indices=indices, cache=cache, backend=_backend(here, kind, ask), ask=ask))
    return sorted(found, key=lambda p: p.indices[0])


def _backend(here: Setting, kind: object, ask: Ask) -> Backend:
    if isinstance(kind, SparseFull):
        own = here.constants.backends["MINIMAX_M3_SPARSE"]
        if ask.cache in NVFP4 and (ask.cache != "nvfp4" or here.device.major != 10):
            raise Unserved(f"sparse attention takes an nvfp4 cache only as nvfp4 on compute capability 10, not {ask.cache}")
        return own
    if here.device is UNKNOWN:
        if ask.cache not in ASSUMED.cache:
            raise Unserved(f"whether this device takes a {ask.cache} cache is not known")
        return ASSUMED
    chosen = choose(ask, here.device, here.constants)
    if isinstance(chosen, NoBackend):
        raise Unserved(f"no attention backend takes the {getattr(kind, 'title', 'attention')} layers ({chosen.text()})")
    if chosen.name == "FLASH_ATTN" and quantised(ask.cache) and here.traits.alibi and not isinstance(kind, Cross):
        raise Unserved(f"attention with linear biases (ALiBi) runs on FlashAttention 2, which takes no {ask.cache} cache")
    triton = "Triton MLA" if chosen.name == "TRITON_MLA" else "Triton attention" if chosen.name == "TRITON_ATTN" else ""
    if triton and ask.cache.startswith("fp8") and here.device.capability < CUDA_8_9:
        raise Unserved(
            f"an fp8 cache in the {triton} backend needs compute capability 8.9, not {here.device.major}.{here.device.minor}"
        )
    if ask.sparse and ask.context_parallel > 1 and chosen.name == "FLASHMLA_SPARSE" and not quantised(ask.cache):
        raise Unserved("decode context parallelism of sparse latent attention needs an fp8 cache")
    return chosen


def _resolved(cache: str, placed: Iterable[Placed]) -> str:
    """The cache dtype after sparse latent backends have made it their own (mla_attention.py)."""
    for part in placed:
        if part.backend.name == "FLASHMLA_SPARSE" and quantised(cache) and cache != "nvfp4_ds_mla":
            return "fp8_ds_mla"
        if part.backend.name == "FLASHINFER_MLA_SPARSE_SM120" and cache in ("auto", "fp8", "fp8_e4m3"):
            return "fp8_ds_mla"
    return cache


def block_size(here: Setting, placed: Sequence[Placed], groups: Sequence[LayerGroup], cache: str, boundary: bool) -> Q:
    """Tokens in a block: the user's or the backends', raised beside states until a page of attention holds one state."""
    if any(isinstance(g.kind, (SlidingLatent, Compressed)) for g in groups):
        reason = refusal(here.cache, here.settings.block_size, here.constants)
        if reason is not None:
            raise Unserved(reason)
        return here.settings.block_size or here.constants.number("compressed_block_size")
    default = here.constants.number("block_size")
    size = here.settings.block_size or default
    backends = _distinct(here, placed)
    if here.settings.block_size is None and backends:
        preferred = preferred_block(backends, here.device, int(default))
        names = "/".join(b.name for b, _ in backends)
        if preferred is None:
            raise Unserved(f"the attention backends share no block size ({names})")
        if preferred != int(default):
            size = fact(preferred, TOKEN_PER_BLOCK, symbol="B_0", name="tokens in one block", origin=f"what {names} accept")
    if backends and here.traits.stateful:
        size = aligned_block(here, placed, backends, groups, size, cache)
    if boundary and backends:
        size = _boundary_block(here, placed, size)
    return size.as_step("B", "tokens in one block") if size.symbol != "B" else size


def _distinct(here: Setting, placed: Sequence[Placed]) -> list[tuple[Backend, Ask]]:
    """The different backends of a model, index caches included, in layer order."""
    found: dict[str, tuple[Backend, Ask]] = {}
    for part in placed:
        found.setdefault(part.backend.name, (part.backend, part.ask))
        if isinstance(part.kind, (SparseLatent, IndexOnly)) and part.kind.index is not None:
            indexer = here.constants.backends["DEEPSEEK_V32_INDEXER"]
            found.setdefault(indexer.name, (indexer, part.ask))
    return list(found.values())


def _boundary_block(here: Setting, placed: Sequence[Placed], size: Q) -> Q:
    """The block raised until a packed page covers a 16-bit page of the layers at the boundary."""
    first = placed[0]
    wide = token_bytes(here, first.kind, "auto")
    # The first layer's backend knows nothing of the packing, so the packed page is measured as one byte an element.
    narrow = wide // 2
    kernel = min(first.backend.blocks)
    step = (
        size if kernel <= int(size) else fact(kernel, TOKEN_PER_BLOCK, symbol="A", name="kernel block", origin=first.backend.name)
    )
    kernel_q = fact(kernel, TOKEN_PER_BLOCK, symbol="A_k", name="smallest kernel block", origin=first.backend.name)
    raised = step * ceil_div(wide * kernel_q, step * narrow)
    return (
        size
        if int(raised) <= int(size)
        else raised.because("raised so that packed pages cover the 16-bit pages of the layers at either end")
    )


def _attention_specs(here: Setting, part: Placed, block: Q, cache: str) -> list[CacheSpec]:
    """The specs of one attention group: its cache, and that of its index keys."""
    kind = part.kind
    own = cache if part.cache != "auto" or here.cache == "auto" else "auto"
    if isinstance(kind, IndexOnly):
        return [] if kind.index is None else [_spec(SpecKind.LATENT, "index key", block, kind.index.bytes_per_token(), ("index",))]
    if isinstance(kind, Latent):
        one = token_bytes(here, kind, own)
        specs = [_spec(SpecKind.LATENT, kind.title, block, one, ("latent", own))]
        if isinstance(kind, SparseLatent) and kind.index is not None:
            specs.insert(0, _spec(SpecKind.LATENT, "index key", block, kind.index.bytes_per_token(), ("index",)))
        return specs
    one = token_bytes(here, kind, own)
    if isinstance(kind, Cross):
        return [_spec(SpecKind.CROSS, kind.title, block, one, _layout(here, as_full(kind), own))]
    assert isinstance(kind, Full)
    layout = _layout(here, kind, own)
    if isinstance(kind, Sliding):
        tokens = window_block(part.backend, part.ask, here.device, head=int(kind.head_dim), block=int(block))
        size = block
        if tokens != int(block):
            origin = f"the largest kernel block of {part.backend.name} within {int(block)}"
            size = fact(tokens, TOKEN_PER_BLOCK, symbol="B_w", name="tokens in a block of a sliding-window layer", origin=origin)
        return [replace(_spec(SpecKind.SLIDING, kind.title, size, one, layout), window=_window(here, kind))]
    if isinstance(kind, Chunked):
        return [replace(_spec(SpecKind.CHUNKED, kind.title, block, one, layout), chunk=kind.chunk)]
    specs = [_spec(SpecKind.FULL, kind.title, block, one, layout)]
    if isinstance(kind, SparseFull):
        specs.append(_spec(SpecKind.LATENT, "index key", block, kind.index.bytes_per_token(), ("index",)))
    return specs


def _window(here: Setting, kind: Sliding) -> Q:
    """The window as the cache manager counts it: with the token that is computed, which some families leave out of theirs."""
    if not here.constants.listed("window_beside_token_families", here.traits.family):
        return kind.window
    own = fact(
        1,
        TOKEN_PER_SEQUENCE,
        symbol="u",
        name="token itself, which the family's window does not count",
        origin="vLLM 0.33.0: commandr.py",
    )
    return (kind.window + own).as_step("w", "attention window with the token itself")


def _layout(here: Setting, kind: Full, cache: str) -> tuple[object, ...]:
    value = None if kind.value_dim is None else int(kind.value_dim)
    return (int(kind.heads_on_gpu(here.settings.tp)), int(kind.head_dim), value, cache)


def _spec(kind: SpecKind, title: str, block: Q, one: Q, layout: tuple[object, ...]) -> CacheSpec:
    page = (block * one).as_step("p", f"page of one {title} layer")
    return CacheSpec(kind=kind, title=title, block_size=block, page=page, layout=layout)
