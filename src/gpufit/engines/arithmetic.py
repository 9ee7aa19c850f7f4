"""Plain arithmetic: what memory holds when nothing but weights and cache is counted.

Memory is what nvidia-smi reports; weights shard evenly over tensor x pipeline parallel; the cache is counted per GPU, never on a pooled
sum. No engine overhead is taken off beyond the share that utilisation leaves free.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from gpufit.engines.base import Capacity, LedgerLine, WeightChoice
from gpufit.formats.cache import CACHE_FORMATS, CacheFormat
from gpufit.hardware import Gpu
from gpufit.model import LayerGroup, Model
from gpufit.placement import Placement, Refusal, stages
from gpufit.quantity import BYTE_PER_SEQUENCE, BYTE_PER_TOKEN, NUMBER, SEQUENCE, Q, ceil_div, fact, floor, largest, total
from gpufit.workload import Workload


def layer_count(model: Model, group: LayerGroup, layers: range | None = None) -> Q:
    """How many layers of a group there are, in one pipeline stage when `layers` says which."""
    inside = group.indices if layers is None else tuple(i for i in group.indices if i in layers)
    where = "" if layers is None else f" in layers {layers.start} to {layers.stop - 1}"
    return fact(
        len(inside),
        NUMBER,
        symbol=f"L_{group.kind.kind}",
        name=f"{group.kind.title} layers{where}",
        origin=f"{model.slug}: kinds of its layers",
    )


def bytes_per_token(model: Model, tp: Q, cache: CacheFormat) -> Q:
    """What one more token costs one GPU in all layers that keep it, windowed ones while their window fills."""
    terms = []
    for group in model.layers:
        each = group.kind.bytes_per_token(tp, cache)
        if each is not None:
            terms.append(layer_count(model, group) * each)
    return total(terms, unit=BYTE_PER_TOKEN).as_step("K", "KV cache of one token in all layers")


def growing_bytes_per_token(model: Model, tp: Q, cache: CacheFormat) -> Q:
    """What one more token costs one GPU once every window is full: the layers that grow without end."""
    terms = []
    for group in model.layers:
        each = group.kind.bytes_per_token(tp, cache)
        if each is not None and group.kind.grows:
            terms.append(layer_count(model, group) * each)
    return total(terms, unit=BYTE_PER_TOKEN).as_step("K_g", "KV cache of one token past every window")


def fixed_bytes(model: Model, tp: Q, cache: CacheFormat) -> Q:
    """What a sequence of any length keeps on one GPU: recurrent states and the like."""
    terms = []
    for group in model.layers:
        each = group.kind.fixed_bytes(tp, cache)
        if each is not None:
            terms.append(layer_count(model, group) * each)
    return total(terms, unit=BYTE_PER_SEQUENCE).as_step("S_fixed", "cache of one sequence that does not grow with its length")


def sequence_bytes(model: Model, context: Q, tp: Q, cache: CacheFormat, layers: range | None = None) -> Q:
    """The whole cache of one sequence of `context` tokens on one GPU, or on one GPU of the stage that holds `layers`."""
    terms = []
    for group in model.layers:
        each = group.kind.sequence_bytes(context, tp, cache)
        if each is None:
            continue
        if layers is not None and not any(i in layers for i in group.indices):
            continue
        terms.append(layer_count(model, group, layers) * each)
    return total(terms, unit=BYTE_PER_SEQUENCE).as_step("S", "cache of one sequence on one GPU")


@lru_cache(maxsize=1024)
def distinct_stages(model: Model, pp: int) -> tuple[range | None, ...]:
    """The layers of each pipeline stage, the first of those that hold equally many layers of every kind; None: all, in one stage."""
    if pp == 1:
        return (None,)
    seen: dict[tuple[int, ...], range] = {}
    for stage in stages(int(model.num_layers), pp):
        seen.setdefault(tuple([sum([i in stage for i in group.indices]) for group in model.layers]), stage)
    return tuple(seen.values())


@lru_cache(maxsize=1024)
def _tightest(model: Model, context: Q, tp: Q, pp: Q, cache: CacheFormat) -> Q:
    """The cache of one sequence on the GPU that holds most of it: the same under every weight format."""
    return heaviest(sequence_bytes(model, context, tp, cache, stage) for stage in distinct_stages(model, int(pp)))


@lru_cache(maxsize=256)
def _budget(memory: Q, share: Q) -> Q:
    return floor(memory * share).as_step("M_u", "memory that may be used on one GPU")


def heaviest(values: Iterable[Q]) -> Q:
    """The largest of several values with its own derivation: the tightest GPU decides."""
    return max(values, key=int)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """The default engine: interface rules, no server's own accounting."""

    name: str = "arithmetic"
    version: str | None = None

    def utilization(self) -> Q:
        """0.90, as the interface fixes."""
        return _SHARE

    def serve_flags(self) -> tuple[str, ...]:
        """None: arithmetic has no flags of a server."""
        return ()

    def cache_format(self, model: Model, asked: str | None) -> CacheFormat:
        """The dtype asked for; else the one the checkpoint declares, else its 16-bit one."""
        declared = model.published.kv_cache_dtype
        known = asked or (declared if declared in CACHE_FORMATS else None)
        return CACHE_FORMATS[known or ("fp16" if model.dtype == "fp16" else "bf16")]

    def outweighed(self, gpu: Gpu, count: int, workload: Workload, weights: WeightChoice) -> bool:
        """Whether even an equal share for each of all the GPUs is more than may be used of one: then no pool is left anywhere."""
        return int(weights.bytes) > count * int(_budget(gpu.memory, workload.utilization or self.utilization()))

    def capacity(
        self,
        model: Model,
        gpu: Gpu,
        placement: Placement,
        workload: Workload,
        weights: WeightChoice,
        context: Q,
        cache: CacheFormat,
    ) -> Capacity | Refusal:
        """pool = floor(memory * utilisation) - weights / (tp * pp); concurrent = floor(pool / cache of one sequence on one GPU)."""
        if placement.data_parallel is not None:
            return Refusal(reason="plain arithmetic counts replicas itself: --data-parallel-size is an engine's")
        tp, pp = placement.tensor_parallel, placement.pipeline_parallel
        budget = _budget(gpu.memory, workload.utilization or self.utilization())
        held = ceil_div(weights.bytes, tp * pp).as_step("W_g", "weights on one GPU")
        pool = (budget - held).as_step("P", "what is left for the cache on one GPU")
        whole = _tightest(model, context, WHOLE, WHOLE, cache)
        here = _tightest(model, context, tp, pp, cache)
        count = _sequences(pool, here)
        cached = (count * here).as_step("K_c", "cache of the sequences that fit")
        return Capacity(
            weights=weights,
            weights_per_gpu=held,
            budget=budget,
            pool=pool,
            context=context,
            cache=cache,
            sequence_bytes=whole,
            sequence_bytes_per_gpu=here,
            per_replica=count,
            ledger=(
                LedgerLine(name="weights", bytes=held),
                LedgerLine(name="KV cache", bytes=cached),
                LedgerLine(name="left in the pool", bytes=pool - cached),
                LedgerLine(name="outside the budget", bytes=gpu.memory - budget),
            ),
        )


_SHARE = fact("0.9", NUMBER, symbol="u", name="share of memory that may be used", origin="default of --gpu-memory-utilization")

WHOLE = fact(1, NUMBER, symbol="tp_1", name="one GPU", origin="the whole model")
"""The tensor parallel degree at which a figure is the whole model's."""


def _sequences(pool: Q, each: Q) -> Q:
    """Whole sequences in the pool; none when the weights alone are too large."""
    name = "full-length sequences at once in one replica"
    if int(each) == 0:
        return fact(0, SEQUENCE, symbol="C", name=name, origin="this model keeps no cache: sequences are not limited by it")
    if pool < 0:
        return (
            largest(pool // each, Q(0, SEQUENCE, "const"))
            .because("the weights alone are larger than the budget")
            .as_step("C", name)
        )
    return (pool // each).as_step("C", name)
