"""Layers of a model as cache specs on one GPU: backend, block size and page of each kind, draft layers included.

Source: vLLM 0.33.0, get_kv_cache_spec of the attention layers, platforms/interface.py (update_block_size_for_backend,
_align_hybrid_block_size, _align_heterogeneous_kv_block_size).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gpufit.engines.vllm.backends import ASSUMED, Ask, NoBackend, choose, kernel_blocks, preferred_block, window_block
from gpufit.engines.vllm.compressed import LAYOUT, entry_specs, refusal, window_spec
from gpufit.engines.vllm.constants import Backend, Constants
from gpufit.engines.vllm.formats import NVFP4, PER_TOKEN_HEAD, TURBOQUANT, head_bytes, latent_bytes, quantised
from gpufit.engines.vllm.settings import VllmSettings
from gpufit.engines.vllm.specs import BLOCK_PER_SEQUENCE, TOKEN_PER_BLOCK, CacheSpec, LayerSpec, SpecKind
from gpufit.engines.vllm.traits import UNKNOWN, Device, Traits
from gpufit.layers.chunked import Chunked
from gpufit.layers.compressed import Compressed, SlidingLatent
from gpufit.layers.cross import Cross
from gpufit.layers.full import Full
from gpufit.layers.gated_delta import GatedDelta
from gpufit.layers.kda import Kda
from gpufit.layers.latent import Latent
from gpufit.layers.linear import Linear
from gpufit.layers.mamba2 import Mamba2
from gpufit.layers.sliding import Sliding
from gpufit.layers.sparse import SparseFull, SparseLatent
from gpufit.layers.state import STATE_UNIT, State
from gpufit.model import LayerGroup, Model
from gpufit.quantity import NUMBER, Q, ceil_div, fact, largest, unit

CUDA_8_9 = (8, 9)
"""The first compute capability with fp8 in Triton kernels (v1/attention/backends/triton_attn.py)."""
BOUNDARY = 2
"""Layers at either end that a packed cache leaves at 16 bit (quantization/turboquant/config.py get_boundary_skip_layers)."""
_SEQUENCE_PER_BLOCK = fact(1, unit(sequence=1, block=-1), symbol="each", name="state in one block", origin="vLLM MambaSpec")


class Unserved(Exception):
    """A layer that vLLM would not serve with these settings; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all layers of one model have in common on one GPU of one server."""

    model: Model
    traits: Traits
    device: Device
    settings: VllmSettings
    constants: Constants
    cache: str
    caching: bool

    @property
    def context_parallel(self) -> int:
        """Decode context parallel degree."""
        return 1 if self.settings.decode_context_parallel is None else int(self.settings.decode_context_parallel)

    def ask(self, kind: object, cache: str) -> Ask:
        """What one layer of a kind asks of a backend."""
        block = self.settings.block_size
        heads = self.traits.attention_heads
        common = {
            "cache": cache,
            "block": None if block is None else int(block),
            "heads": None if heads is None else heads // int(self.settings.tp),
            "traits": self.traits,
            "context_parallel": self.context_parallel,
        }
        if isinstance(kind, Latent):
            head = int(kind.latent_rank) + int(kind.rope_dim)
            return Ask(head=head, value=None, latent=True, sparse=isinstance(kind, SparseLatent), **common)  # type: ignore[arg-type]
        assert isinstance(kind, (Full, Cross))
        value = None if isinstance(kind, Cross) or kind.value_dim is None else int(kind.value_dim)
        return Ask(
            head=int(kind.head_dim),
            value=value,
            windowed=isinstance(kind, Sliding),
            cross=isinstance(kind, Cross),
            plain=isinstance(kind, (Cross, Chunked)),
            **common,  # type: ignore[arg-type]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """One layer group with the backend that serves it. `cache` is its own cache dtype, `indices` its layers, drafts counted on."""

    kind: object
    indices: tuple[int, ...]
    cache: str
    backend: Backend
    ask: Ask


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
    skipped = boundary_layers(here)
    placed = _placed(here, groups, skipped)
    cache = _resolved(here.cache, placed)
    block = block_size(here, placed, groups, cache, bool(skipped))
    specs: list[tuple[int, int, CacheSpec]] = []
    for part in placed:
        for order, spec in enumerate(_attention_specs(here, part, block, cache)):
            specs += [(layer, order, spec) for layer in part.indices]
    page = _state_page(here, groups, placed, block, cache)
    compressed = any(isinstance(g.kind, (SlidingLatent, Compressed)) for g in groups)
    for group in groups:
        if isinstance(group.kind, SlidingLatent):
            specs += [(layer, 0, window_spec(group.kind, here.constants)) for layer in group.indices]
        elif isinstance(group.kind, Compressed):
            entries = entry_specs(group.kind, block, here.constants)
            specs += [(layer, 1 + order, spec) for layer in group.indices for order, spec in enumerate(entries)]
        if isinstance(group.kind, State):
            spec = _state_spec(here, group.kind, block, page)
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
    if not isinstance(kind, Latent) or here.traits.nope_dim is None:
        return group
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
        size = _aligned(here, placed, backends, groups, size, cache)
    if boundary and backends:
        size = _boundary_block(here, placed, size)
    return size.as_step("B", "tokens in one block") if size.symbol != "B" else size


def _distinct(here: Setting, placed: Sequence[Placed]) -> list[tuple[Backend, Ask]]:
    """The different backends of a model, index caches included, in layer order."""
    found: dict[str, tuple[Backend, Ask]] = {}
    for part in placed:
        found.setdefault(part.backend.name, (part.backend, part.ask))
        if isinstance(part.kind, SparseLatent) and part.kind.index is not None:
            indexer = here.constants.backends["DEEPSEEK_V32_INDEXER"]
            found.setdefault(indexer.name, (indexer, part.ask))
    return list(found.values())


def _token_bytes(here: Setting, kind: object, cache: str) -> Q:
    """B/token of one layer on this GPU in a cache dtype; index keys are pages of their own."""
    tp = here.settings.tp
    if isinstance(kind, Latent):
        return latent_bytes(kind.latent_rank, kind.rope_dim, cache, here.constants).as_step(
            "k_latent", "latent of one token in one layer, on every GPU alike"
        )
    assert isinstance(kind, (Full, Cross))
    value = None if isinstance(kind, Cross) else kind.value_dim
    heads = (kind if isinstance(kind, Full) else _as_full(kind)).heads_on_gpu(tp)
    if isinstance(kind, SparseFull) and cache in (*TURBOQUANT, *PER_TOKEN_HEAD):
        # Its class keeps its own cache and stores one byte an element, without packing and without scales (models/minimax_m3).
        cache = "fp8"
    held = heads * head_bytes(kind.head_dim, value, cache, here.constants)
    return held.as_step(f"k_{kind.kind}", f"cache of one token in one {kind.title} layer on one GPU")


def _as_full(kind: Cross) -> Full:
    return Full(kv_heads=kind.kv_heads, head_dim=kind.head_dim, attention_heads=kind.attention_heads)


def _main_attention(placed: Sequence[Placed]) -> Placed:
    """The attention whose token the page of a state is measured by: the model's plain one."""
    return next((p for p in placed if isinstance(p.kind, (Full, Latent)) and not isinstance(p.kind, (Sliding, Chunked))), placed[0])


def _aligned(
    here: Setting,
    placed: Sequence[Placed],
    backends: Sequence[tuple[Backend, Ask]],
    groups: Sequence[LayerGroup],
    size: Q,
    cache: str,
) -> Q:
    """The block raised in steps of an alignment until its page of attention is no smaller than a state."""
    smallest = [min(kernel_blocks(b, ask, here.device, head=here.traits.head)[0]) for b, ask in backends]
    step = size
    if smallest[0] > int(step):
        step = fact(smallest[0], TOKEN_PER_BLOCK, symbol="A_k", name="smallest kernel block", origin=backends[0][0].name)
    if here.traits.latent:
        step = largest(step, here.constants.number("latent_hybrid_alignment"))
    export = export_alignment(here, groups) if here.caching else None
    if export is not None and math.lcm(int(step), int(export)) != int(step):
        common = math.lcm(int(step), int(export))
        origin = f"least common multiple of {int(step)} and the {int(export)} tokens between states that a prefill exports"
        step = fact(common, TOKEN_PER_BLOCK, symbol="A", name="multiple that a block must be", origin=origin)
    step = step.as_step("A_s", "step in which a block is raised")
    state = max((state_bytes(here, g.kind) for g in groups if isinstance(g.kind, State)), key=int)
    one = _token_bytes(here, _main_attention(placed).kind, cache)
    raised = step * ceil_div(state * _SEQUENCE_PER_BLOCK, step * one)
    if any(int(raised) % s for s in smallest):
        origin = "platforms/interface.py _align_hybrid_block_size"
        every = fact(math.lcm(*smallest), TOKEN_PER_BLOCK, symbol="A_b", name="kernel block of every backend", origin=origin)
        raised = every * ceil_div(raised, every)
    if int(raised) <= int(size):
        return size
    return raised.because("raised until a page of attention holds one recurrent state")


def _boundary_block(here: Setting, placed: Sequence[Placed], size: Q) -> Q:
    """The block raised until a packed page covers a 16-bit page of the layers at the boundary."""
    first = placed[0]
    wide = _token_bytes(here, first.kind, "auto")
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


def export_alignment(here: Setting, groups: Sequence[LayerGroup]) -> Q | None:
    """Tokens between the states that a prefill can export, where every state layer can (get_mamba_prefill_checkpoint_alignment)."""
    states = [g.kind for g in groups if isinstance(g.kind, State)]
    if not states or not all(isinstance(k, GatedDelta) and _exports(here) for k in states):
        return None
    return here.constants.number("gated_delta_checkpoint")


def _exports(here: Setting) -> bool:
    """Whether Gated DeltaNet prefills with FlashInfer: compute capability 9, or 10 and 12 with keys of 128 and CUDA 13."""
    if here.constants.listed("no_checkpoint_families", here.traits.family) or not here.constants.flag("checkpoint_blocks"):
        return False
    keys = [int(g.kind.key_dim) for g in here.model.layers if isinstance(g.kind, GatedDelta)]
    return here.device.major == 9 or (here.device.major in (10, 12) and all(k == 128 for k in keys))


def state_bytes(here: Setting, kind: State) -> Q:
    """B/sequence of one state, in the dtypes that the user or the family chose, with room for draft tokens."""
    conv, recurrent = kind.conv_bytes, kind.recurrent_bytes
    follows = conv.value == recurrent.value and not isinstance(kind, Kda)
    first = _element(here.settings.mamba_cache_dtype, "--mamba-cache-dtype")
    second = _element(here.settings.mamba_ssm_cache_dtype, "--mamba-ssm-cache-dtype")
    if first is not None:
        conv = first
        if follows or isinstance(kind, Linear):
            recurrent = first
    if second is not None and not isinstance(kind, Linear):
        recurrent = second
    return replace(kind, conv_bytes=conv, recurrent_bytes=recurrent).state_bytes(here.settings.tp, here.settings.drafts or 0)


def _element(dtype: str | None, option: str) -> Q | None:
    size = {"float32": 4, "float16": 2, "bfloat16": 2, "fp32": 4, "fp16": 2, "bf16": 2}.get(dtype or "")
    if size is None:
        return None
    return fact(size, STATE_UNIT, symbol="b_s", name="bytes of one element of a state", origin=f"{option} {dtype}")


def _state_page(here: Setting, groups: Sequence[LayerGroup], placed: Sequence[Placed], block: Q, cache: str) -> Q | None:
    """The page that states are padded to beside attention: a block of attention; None without attention."""
    if not here.traits.stateful or not placed:
        return None
    page = block * _token_bytes(here, _main_attention(placed).kind, cache)
    return page.as_step("p_s", "page of a recurrent state, padded to that of attention")


def _state_spec(here: Setting, kind: State, block: Q, page: Q | None) -> CacheSpec:
    state = state_bytes(here, kind)
    own = state * _SEQUENCE_PER_BLOCK
    return CacheSpec(
        kind=SpecKind.STATE,
        title=kind.title,
        block_size=block,
        page=own if page is None else page,
        layout=(kind.kind, state.value),
        padded=page is not None,
        state_blocks=_state_blocks(here, kind),
        sharded=False,
    )


def _state_blocks(here: Setting, kind: State) -> Q:
    """Block/sequence of a state layer: one state and one for each draft token; with prefix caching one more and an exported one."""
    count, why = (2, "with prefix caching: the last state and the one that is being written") if here.caching else (1, "its state")
    held = fact(count, BLOCK_PER_SEQUENCE, symbol="n_state", name="states that a sequence holds", origin=f"vLLM MambaSpec, {why}")
    drafts = here.settings.drafts
    if drafts is not None:
        each = fact(
            1,
            BLOCK_PER_SEQUENCE,
            symbol="n_draft",
            name="state of each draft token",
            origin="vLLM MambaSpec.num_speculative_blocks",
        )
        held = held + drafts * each
    if here.caching and _has_checkpoint(here, kind):
        held = held + here.constants.number("checkpoint_blocks")
    return held.as_step("n_s", f"blocks of one sequence in a {kind.title} layer")


def _has_checkpoint(here: Setting, kind: State) -> bool:
    if isinstance(kind, Mamba2):
        return True
    if isinstance(kind, GatedDelta):
        return export_alignment(here, here.model.layers) is not None
    if isinstance(kind, Kda):
        bounded = here.constants.listed("bounded_gate_families", here.traits.family)
        return bounded and here.device.major in (9, 10, 12) and int(kind.head_dim) == 128
    return False


def _attention_specs(here: Setting, part: Placed, block: Q, cache: str) -> list[CacheSpec]:
    """The specs of one attention group: its cache, and that of its index keys."""
    kind = part.kind
    own = cache if part.cache != "auto" or here.cache == "auto" else "auto"
    if isinstance(kind, Latent):
        one = _token_bytes(here, kind, own)
        specs = [_spec(SpecKind.LATENT, kind.title, block, one, ("latent", own))]
        if isinstance(kind, SparseLatent) and kind.index is not None:
            specs.insert(0, _spec(SpecKind.LATENT, "index key", block, kind.index.bytes_per_token(), ("index",)))
        return specs
    one = _token_bytes(here, kind, own)
    if isinstance(kind, Cross):
        return [_spec(SpecKind.CROSS, kind.title, block, one, _layout(here, _as_full(kind), own))]
    assert isinstance(kind, Full)
    layout = _layout(here, kind, own)
    if isinstance(kind, Sliding):
        tokens = window_block(part.backend, part.ask, here.device, head=int(kind.head_dim), block=int(block))
        size = block
        if tokens != int(block):
            origin = f"the largest kernel block of {part.backend.name} within {int(block)}"
            size = fact(tokens, TOKEN_PER_BLOCK, symbol="B_w", name="tokens in a block of a sliding-window layer", origin=origin)
        return [replace(_spec(SpecKind.SLIDING, kind.title, size, one, layout), window=kind.window)]
    if isinstance(kind, Chunked):
        return [replace(_spec(SpecKind.CHUNKED, kind.title, block, one, layout), chunk=kind.chunk)]
    specs = [_spec(SpecKind.FULL, kind.title, block, one, layout)]
    if isinstance(kind, SparseFull):
        specs.append(_spec(SpecKind.LATENT, "index key", block, kind.index.bytes_per_token(), ("index",)))
    return specs


def _layout(here: Setting, kind: Full, cache: str) -> tuple[object, ...]:
    value = None if kind.value_dim is None else int(kind.value_dim)
    return (int(kind.heads_on_gpu(here.settings.tp)), int(kind.head_dim), value, cache)


def _spec(kind: SpecKind, title: str, block: Q, one: Q, layout: tuple[object, ...]) -> CacheSpec:
    page = (block * one).as_step("p", f"page of one {title} layer")
    return CacheSpec(kind=kind, title=title, block_size=block, page=page, layout=layout)
