"""The cache plan: from a model, a GPU and the memory left for the cache to blocks, tokens and concurrency, as vLLM's planner makes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpufit.engines.vllm.backends import ASSUMED
from gpufit.engines.vllm.blocks import Admission, blocks_per_request
from gpufit.engines.vllm.constants import Constants
from gpufit.engines.vllm.defaults import Batch, batch, cache_dtype, hybrid_manager, prefix_caching
from gpufit.engines.vllm.groups import Group, NoGroups, bytes_per_block, grouped
from gpufit.engines.vllm.layers import Layers, layers_of
from gpufit.engines.vllm.refusals import Refused, batch_refusals, refusals
from gpufit.engines.vllm.settings import VllmSettings
from gpufit.engines.vllm.situation import Setting, Unserved
from gpufit.engines.vllm.traits import UNKNOWN, Traits, device_of, traits_of
from gpufit.hardware import Gpu
from gpufit.layers.chunked import Chunked
from gpufit.layers.full import Full
from gpufit.layers.none import NoCache, Shared
from gpufit.layers.sliding import Sliding
from gpufit.model import Model
from gpufit.placement import stages
from gpufit.quantity import BLOCK, SEQUENCE, TOKEN_PER_SEQUENCE, Q, fact, floor, least, unit


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """One pipeline stage: its decoder layers (drafts counted on), the width of its blocks and how many of them its memory holds."""

    layers: range
    bytes_per_block: Q
    num_blocks: Q


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePlan:
    """What vLLM's planner makes of the cache on each GPU of one replica.

    `bytes_per_block` (B/block) is that of the widest stage, `num_blocks` the fewest of any stage. `max_concurrency` (sequence) is exact;
    `tokens` is the figure that the server prints as its cache size. `required` (B) is what one request of `context` tokens needs on the
    widest stage, and `fits` says whether the blocks that may be used hold it on every stage.
    """

    context: Q
    block_size: Q
    bytes_per_block: Q
    groups: tuple[Group, ...]
    blocks_per_request: Q
    num_blocks: Q
    tokens: Q
    max_concurrency: Q
    required: Q
    fits: bool
    stages: tuple[StagePlan, ...]
    batch: Batch
    admission: Admission
    cache_dtype: str
    prefix_caching: bool
    hybrid: bool
    backends: tuple[str, ...]
    constants: Constants
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoPlan:
    """vLLM would not start so: every reason, as data."""

    refusals: tuple[Refused, ...]


PLAIN_KINDS = (Full, Sliding, Chunked, Shared, NoCache)
"""Layer kinds whose blocks are alike on every CUDA device."""
_NO_BLOCKS = fact(0, unit(B=1, block=-1), symbol="b_b", name="bytes of one block", origin="this model keeps no cache")


def plan_cache(
    model: Model, gpu: Gpu, settings: VllmSettings, available: Q | Sequence[Q], *, constants: Constants
) -> CachePlan | NoPlan:
    """The plan of a model's cache on one GPU of a replica.

    `available` is the memory left for the cache on a GPU (B), one figure for all pipeline stages or one for each.
    """
    traits = traits_of(model, constants, language_model_only=settings.language_model_only)
    context = settings.max_model_len or model.max_context
    if context is None:
        return NoPlan(refusals=(Refused(reason="the model names no longest sequence", option="--max-model-len"),))
    refused = refusals(model, settings, constants, traits)
    if refused:
        return NoPlan(refusals=refused)
    device = device_of(gpu)
    if device is None:
        if not all(type(g.kind) in PLAIN_KINDS for g in model.layers):
            reason = f"the compute capability of {gpu.name} is not known, so neither is how vLLM lays out this model's layers on it"
            return NoPlan(refusals=(Refused(reason=reason, option="--gpu", hint="an NVIDIA part of the catalogue"),))
        device = UNKNOWN
    caching = prefix_caching(model, settings, constants, traits)
    here = Setting(
        model=model,
        traits=traits,
        device=device,
        settings=settings,
        constants=constants,
        cache=cache_dtype(model, device, settings, constants),
        caching=caching and traits.stateful,
    )
    hybrid = hybrid_manager(model, settings, constants)
    try:
        layers = layers_of(here)
        groups = grouped(layers.specs, packed=layers.packed, hybrid=hybrid)
    except (Unserved, NoGroups) as error:
        return NoPlan(refusals=(Refused(reason=str(error)),))
    made = batch(model, gpu, settings, constants, traits, context)
    short = batch_refusals(int(made.tokens), int(made.sequences), int(context), chunked=settings.chunked_prefill is not False)
    if short:
        return NoPlan(refusals=short)
    terms = Admission(
        in_flight=made.in_flight,
        encoder=made.tokens * _PER_SEQUENCE,
        retained=_retained(model, settings),
        context_parallel=settings.decode_context_parallel if here.context_parallel > 1 else None,
    )
    return _filled(model, settings, available, constants, context, groups, layers, made, terms, caching, hybrid, traits)


_PER_SEQUENCE = fact(
    1, unit(sequence=-1), symbol="one", name="encoder input in one batch", origin="vLLM max_num_encoder_input_tokens"
)


def _retained(model: Model, settings: VllmSettings) -> Q | None:
    """Tokens below a window that several draft layers may compute again (config/vllm.py num_prefill_lookahead_tokens)."""
    drafts = settings.drafts
    if settings.speculative_method != "mtp" or drafts is None:
        return None
    modules = sum(len(g.indices) for g in model.draft_layers if g.kind.kind != "none")
    if min(modules, int(drafts)) <= 1:
        return None
    origin = "drafts of several layers read this far ahead, less the token itself"
    return fact(int(drafts) - 1, TOKEN_PER_SEQUENCE, symbol="x", name="tokens kept below a window", origin=origin)


def _filled(
    model: Model,
    settings: VllmSettings,
    available: Q | Sequence[Q],
    constants: Constants,
    context: Q,
    groups: tuple[Group, ...],
    layers: Layers,
    made: Batch,
    terms: Admission,
    caching: bool,
    hybrid: bool,
    traits: Traits,
) -> CachePlan:
    """The plan once the groups stand: blocks of each stage, the fewest of them, and what they hold."""
    request = blocks_per_request(groups, context, terms)
    planned = tuple(_stage(groups, layers, part, memory) for part, memory in _stages(model, settings, available))
    widest = max((s.bytes_per_block for s in planned), key=int)
    blocks = planned[0].num_blocks
    if len(planned) > 1:
        blocks = least(*(s.num_blocks for s in planned)).as_step("N_b", "blocks of the cache, the fewest of any stage")
    required = (request * widest * _ONE).as_step("R", "cache of one request of the longest sequence")
    usable = blocks - constants.number("null_block")
    if int(request) == 0:
        name = "sequences at once: a model without cache is not limited by it"
        concurrency, tokens, fits = fact(0, SEQUENCE, symbol="C", name=name, origin="no cache"), _NO_TOKENS, True
    else:
        concurrency = (blocks / request).as_step("C", "sequences of the longest length at once")
        tokens = _printed_tokens(constants, groups, concurrency, blocks, context, terms)
        fits = int(usable) >= int(request)
    return CachePlan(
        context=context,
        block_size=layers.block_size,
        bytes_per_block=widest,
        groups=groups,
        blocks_per_request=request,
        num_blocks=blocks,
        tokens=tokens,
        max_concurrency=concurrency,
        required=required,
        fits=fits,
        stages=planned,
        batch=made,
        admission=terms,
        cache_dtype=layers.cache,
        prefix_caching=caching,
        hybrid=hybrid,
        backends=layers.backends,
        constants=constants,
        notes=_notes(model, constants, traits, layers),
    )


_ONE = fact(1, SEQUENCE, symbol="one", name="request", origin="the check at start-up")
_NO_TOKENS = fact(0, unit(token=1), symbol="N_t", name="tokens of the cache", origin="this model keeps no cache")


def _stages(model: Model, settings: VllmSettings, available: Q | Sequence[Q]) -> list[tuple[range | None, Q]]:
    """Each pipeline stage with its layers and the memory left on it; draft layers stand on the last."""
    degree = int(settings.pp)
    memory = [available] * degree if isinstance(available, Q) else list(available)
    if len(memory) != degree:
        raise ValueError(f"{len(memory)} figures of memory for {degree} pipeline stages")
    if degree == 1:
        return [(None, memory[0])]
    ranges: list[range | None] = list(stages(int(model.num_layers), degree))
    last = ranges[-1]
    assert last is not None
    ranges[-1] = range(last.start, 1_000_000)
    return list(zip(ranges, memory, strict=True))


def _stage(groups: tuple[Group, ...], layers: Layers, part: range | None, memory: Q) -> StagePlan:
    whole = part if part is not None else range(1_000_000)
    if not groups:
        return StagePlan(
            layers=whole,
            bytes_per_block=_NO_BLOCKS,
            num_blocks=fact(1, BLOCK, symbol="N_b", name="block", origin="a server without cache"),
        )
    width = bytes_per_block(groups, part, packed=layers.packed)
    symbol, name = ("N_b", "blocks of the cache") if part is None else ("N_st", "blocks that the memory of one GPU holds")
    return StagePlan(layers=whole, bytes_per_block=width, num_blocks=(memory // width).as_step(symbol, name))


def _printed_tokens(constants: Constants, groups: tuple[Group, ...], concurrency: Q, blocks: Q, context: Q, terms: Admission) -> Q:
    """The figure in the server's log: concurrency times the longest length; before 0.22, blocks over groups times the smallest block."""
    name = "tokens of the cache, as the server prints them"
    if constants.flag("tokens_from_concurrency"):
        return _in_doubles(floor(concurrency * context), concurrency, context).as_step("N_t", name)
    smallest = min((g.block_size for g in groups), key=int)
    held = blocks // len(groups) * smallest
    if terms.context_parallel is not None:
        held = held * terms.context_parallel
    return held.as_step("N_t", name)


def _in_doubles(exact: Q, concurrency: Q, context: Q) -> Q:
    """The product as the server makes it, in double precision: where it is a whole number it may come out one short."""
    if int(float(concurrency) * int(context)) == int(exact):
        return exact
    one = fact(
        1,
        unit(token=1),
        symbol="r",
        name="token lost to rounding",
        origin="v1/core/kv_cache_utils.py get_kv_cache_capacity: doubles",
    )
    return (exact - one).because("the server multiplies in double precision, which falls just short of this whole number")


def _notes(model: Model, constants: Constants, traits: Traits, layers: Layers) -> tuple[str, ...]:
    notes = []
    if ASSUMED.name in layers.backends:
        notes.append("vLLM's attention backends on this device are not known: blocks of 16 tokens are assumed, as on CUDA devices")
    if layers.packed and not constants.flag("packed_groups"):
        notes.append(f"vLLM {constants.version} grouped this model's caches otherwise: expect a few percent more tokens")
    if not model.published.signed:
        notes.append(
            "the checkpoint's quantisation names no quantiser, so vLLM takes it for a plain one: weights and default cache at 16 bit"
        )
    if constants.version.removeprefix("v").split(".")[:2] != ["0", "33"]:
        notes.append(f"attention backends and their block sizes are those of vLLM 0.33, applied to {constants.version}")
    if traits.pooling:
        notes.append("a pooling model: batches are not scheduled asynchronously")
    return tuple(notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds:
    """What a cache of some size holds: `concurrency` (sequences of the longest length), and whether one request `fits`."""

    concurrency: float
    fits: bool


def holds(plan: CachePlan, left: Sequence[Q]) -> Holds:
    """What the same groups would hold with other memory left on each stage (B), as at the ends of a modelled overhead."""
    request = int(plan.blocks_per_request)
    if min(int(memory) for memory in left) < 0:
        return Holds(concurrency=0.0, fits=False)
    if request == 0:
        return Holds(concurrency=0.0, fits=True)
    blocks = min(int(memory // stage.bytes_per_block) for memory, stage in zip(left, plan.stages, strict=True))
    return Holds(concurrency=blocks / request, fits=blocks - int(plan.constants.number("null_block")) >= request)


def longest_context(plan: CachePlan) -> int:
    """The longest sequence of which one fits, up to the plan's own: what `--max-model-len -1` and the refusal at start-up name.

    0 where not even one token fits. Source: v1/core/kv_cache_planning.py _estimate_max_model_len_from_groups.
    """
    usable = int(plan.num_blocks) - int(plan.constants.number("null_block"))

    def fits(length: int) -> bool:
        context = fact(length, TOKEN_PER_SEQUENCE, symbol="L", name="longest sequence", origin="search for the longest that fits")
        return int(blocks_per_request(plan.groups, context, plan.admission)) <= usable

    low, high, found = 1, int(plan.context), 0
    while low <= high:
        middle = (low + high) // 2
        if fits(middle):
            found, low = middle, middle + 1
        else:
            high = middle - 1
    return found
