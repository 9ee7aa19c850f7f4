"""The library's public functions: the same questions as the commands ask, with Python values."""

from __future__ import annotations

from collections.abc import Sequence

from gpufit.derivation import Step
from gpufit.engines.arithmetic import Arithmetic
from gpufit.errors import UsageError
from gpufit.formats.cache import ALIASES, CACHE_FORMATS
from gpufit.hardware import Gpu
from gpufit.model import Model
from gpufit.quantity import NUMBER, TOKEN_PER_SEQUENCE, Q, fact
from gpufit.sizing.advice import with_changes
from gpufit.sizing.cost import CacheCost, cache_cost
from gpufit.sizing.question import Answer, Question
from gpufit.sizing.search import answer as _answer
from gpufit.sizing.trail import derivation
from gpufit.sources.catalogue import all_models, find_model
from gpufit.sources.gpus import load_gpus
from gpufit.sources.gpuspec import parse_specs
from gpufit.workload import Workload


def models() -> tuple[Model, ...]:
    """The models of the built-in catalogue, sorted by slug."""
    return all_models()


def gpus() -> tuple[Gpu, ...]:
    """The GPUs of the built-in catalogue, sorted by id."""
    return load_gpus()


def answer(
    model: str | Model,
    *,
    gpu: str | Sequence[str],
    context: int | None = 8192,
    weights: str = "auto",
    kv_cache_dtype: str = "auto",
    gpu_memory_utilization: str | None = None,
    tensor_parallel_size: int | None = None,
    pipeline_parallel_size: int | None = None,
    min_concurrency: int = 8,
    offline: bool = False,
) -> Answer:
    """What fits where and how often: the answer that `gpufit fit MODEL` prints.

    `model` is anything the command takes, or a Model; `gpu` one SPEC or several. `context` in tokens, None for the model's own limit.
    `gpu_memory_utilization` is decimal text ("0.9"), so that it stays exact. Raises `GpufitError`.
    """
    return with_changes(
        _answer(
            Question(
                model=_model(model, offline),
                hardware=parse_specs([gpu] if isinstance(gpu, str) else gpu),
                workload=_workload(context, kv_cache_dtype, gpu_memory_utilization, min_concurrency),
                engine=Arithmetic(),
                weights=weights,
                tensor_parallel=tensor_parallel_size,
                pipeline_parallel=pipeline_parallel_size,
            )
        )
    )


def kv(
    model: str | Model,
    *,
    kv_cache_dtype: str = "auto",
    tensor_parallel_size: int = 1,
    contexts: Sequence[int] = (),
    offline: bool = False,
) -> CacheCost:
    """What the cache of a model costs: the answer that `gpufit kv MODEL` prints. Raises `GpufitError`."""
    asked = tuple(_tokens(n) for n in contexts) or None
    return cache_cost(_model(model, offline), dtype=_dtype(kv_cache_dtype), tp=tensor_parallel_size, contexts=asked)


def explain(
    model: str | Model,
    *,
    gpu: str | Sequence[str] | None = None,
    context: int | None = 8192,
    weights: str = "auto",
    kv_cache_dtype: str = "auto",
    gpu_memory_utilization: str | None = None,
    tensor_parallel_size: int | None = None,
    pipeline_parallel_size: int | None = None,
    min_concurrency: int = 8,
    offline: bool = False,
) -> tuple[Step, ...]:
    """The derivation behind `answer`, as steps in dependency order; without a GPU that of weights and cache. Raises `GpufitError`."""
    specs = () if gpu is None else parse_specs([gpu] if isinstance(gpu, str) else gpu)
    return derivation(
        Question(
            model=_model(model, offline),
            hardware=specs,
            workload=_workload(context, kv_cache_dtype, gpu_memory_utilization, min_concurrency),
            engine=Arithmetic(),
            weights=weights,
            tensor_parallel=tensor_parallel_size,
            pipeline_parallel=pipeline_parallel_size,
        )
    ).steps


def _model(model: str | Model, offline: bool) -> Model:
    if isinstance(model, Model):
        return model
    found = find_model(model)
    if found is not None:
        return found
    from gpufit.sources.resolve import resolve_model

    return resolve_model(model, offline=offline)


def _tokens(count: int) -> Q:
    if count < 1:
        raise UsageError(f"a context of {count} tokens has no meaning", hint="a whole number from 1")
    return fact(count, TOKEN_PER_SEQUENCE, symbol="n", name="context length", origin="context")


def _dtype(name: str) -> str | None:
    short = ALIASES.get(name, name)
    if short != "auto" and short not in CACHE_FORMATS:
        raise UsageError(f"unknown cache dtype {name!r}", hint=f"one of auto, {', '.join(CACHE_FORMATS)}")
    return None if short == "auto" else short


def _workload(context: int | None, dtype: str, share: str | None, least: int) -> Workload:
    utilization = None
    if share is not None:
        utilization = fact(share, NUMBER, symbol="u", name="share of memory that may be used", origin="gpu_memory_utilization")
        if not 0 < utilization.value <= 1:
            raise UsageError(f"gpu_memory_utilization {share} is outside (0, 1]", hint="a decimal above 0 up to 1, as in 0.9")
    return Workload(
        context=None if context is None else _tokens(context),
        kv_cache_dtype=_dtype(dtype),
        utilization=utilization,
        min_concurrency=least,
    )
