"""Which placement answers a question: the smallest legal tensor parallel degree that holds enough, else the one that holds most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpufit.engines.arithmetic import WHOLE, bytes_per_token
from gpufit.engines.base import Capacity, WeightChoice
from gpufit.formats.cache import CacheFormat
from gpufit.hardware import Hardware
from gpufit.placement import Placement, Refusal, legal_tensor_degrees, placed, tensor_reason
from gpufit.quantity import NUMBER, Q, fact
from gpufit.sizing.question import Answer, Question
from gpufit.sizing.weights import ladder, published_weights, weights_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A legal placement and what it holds on some hardware."""

    placement: Placement
    capacity: Capacity
    replicas: Q
    total: Q

    @property
    def sequences(self) -> int:
        """Sequences over all replicas."""
        return int(self.total)


def answer(question: Question) -> Answer:
    """The answer to a question: every command calls this and nothing else.

    Of several kinds of hardware the one that needs the least lowered format wins, then the one that holds most sequences, then the first
    named.
    """
    best: Answer | None = None
    for hardware in question.hardware:
        here = _on(question, hardware)
        if best is None or _rank(here) > _rank(best):
            best = here
    assert best is not None, "a question names hardware"
    return best


def _rank(found: Answer) -> tuple[bool, int, int, int]:
    return found.fits, -found.rung, found.total_sequences, -found.short_by


def cache_format(question: Question) -> CacheFormat:
    """The cache dtype: the one asked for, else the one the engine takes for this checkpoint."""
    return question.engine.cache_format(question.model, question.workload.kv_cache_dtype)


def context_of(question: Question) -> Q | None:
    """The context in tokens: the one asked for, or the model's own limit; None when the limit is not known.

    A context that nobody typed (`context_is_default`) gives way to a shorter limit.
    """
    asked, limit = question.workload.context, question.model.max_context
    if asked is None or (question.workload.context_is_default and limit is not None and limit < asked):
        return limit
    return asked


def _on(question: Question, hardware: Hardware) -> Answer:
    model = question.model
    context = context_of(question)
    if context is None:
        return Answer(
            question=question, fits=False, reason="its config states no context limit: name one with --context", hardware=hardware
        )
    if model.max_context is not None and context > model.max_context:
        reason = f"its own limit is {int(model.max_context):,} tokens"
        return Answer(question=question, fits=False, reason=reason, hardware=hardware, context_too_long=True)
    refusal = asked_refusal(question, hardware)
    if refusal is not None:
        return Answer(question=question, fits=False, reason=refusal_text(refusal), hardware=hardware)
    names = _formats(question, hardware)
    candidate, why = None, ""
    for tried, name in enumerate(names, start=1):
        weights = published_weights(model) if name == "published" else weights_in(model, name)
        # Of formats that do not fit only the last is shown, at its best placement.
        if tried < len(names) and question.engine.outweighed(hardware.gpu, hardware.count, question.workload, weights):
            continue
        candidate, why = place(question, hardware, weights, context)
        if candidate is not None and candidate.capacity.fits:
            break
    if candidate is None:
        return Answer(question=question, fits=False, reason=why, hardware=hardware)
    fits = candidate.capacity.fits
    lowered = tried > 1 and fits
    return Answer(
        question=question,
        fits=fits,
        reason="" if fits else _shortfall(candidate, weights, tried > 1),
        hardware=hardware,
        placement=candidate.placement,
        capacity=candidate.capacity,
        replicas=candidate.replicas,
        total=candidate.total,
        lowered=lowered,
        rung=tried - 1 if fits else 0,
        bytes_per_token=bytes_per_token(model, WHOLE, candidate.capacity.cache),
        warnings=(*_warnings(question, hardware, candidate, lowered), *candidate.capacity.warnings),
    )


def _formats(question: Question, hardware: Hardware) -> tuple[str, ...]:
    if question.weights == "auto":
        return ladder(question.model, hardware_fp8=hardware.gpu.fp8)
    return (question.weights,)


def asked_refusal(question: Question, hardware: Hardware) -> Refusal | None:
    """Why the degrees that the user named cannot be, with the legal ones; None when they can."""
    model, tp, pp = question.model, question.tensor_parallel, question.pipeline_parallel
    node = min(hardware.gpus_per_node, hardware.count)
    dp = question.data_parallel
    if dp is not None and (tp or 1) * (pp or 1) * dp > hardware.count:
        degrees = " x ".join(f"{name} {n}" for name, n in (("tp", tp), ("pp", pp), ("dp", dp)) if n is not None)
        most = hardware.count // ((tp or 1) * (pp or 1))
        needed = (tp or 1) * (pp or 1) * dp
        return Refusal(reason=f"{degrees} needs {needed} GPUs, {hardware.count} are there", legal=tuple(range(1, most + 1)))
    if tp is not None:
        legal = legal_tensor_degrees(model, node)
        if tp > hardware.count:
            return Refusal(reason=f"tensor parallel {tp} needs {tp} GPUs, {hardware.count} are there", legal=legal)
        if tp > hardware.gpus_per_node and question.engine.version is None:
            return Refusal(
                reason=f"tensor parallel {tp} is larger than a node of {hardware.gpus_per_node} GPUs (pipeline parallel crosses nodes)",
                legal=legal,
            )
        reason = tensor_reason(model, tp)
        if reason is not None:
            return Refusal(reason=reason, legal=legal)
    if pp is not None:
        most = min(int(model.num_layers), hardware.count // (tp or 1))
        if pp > most:
            what = f"{int(model.num_layers)} layers" if pp > int(model.num_layers) else f"{hardware.count:,} GPUs"
            return Refusal(reason=f"pipeline parallel {pp} is more than {what} allow", legal=tuple(range(1, most + 1)))
    return None


def refusal_text(refusal: Refusal) -> str:
    """The reason and the legal values, in one sentence."""
    legal = ", ".join(map(str, refusal.legal))
    return f"{refusal.reason}; legal here: {legal}" if legal else refusal.reason


def place(question: Question, hardware: Hardware, weights: WeightChoice, context: Q) -> tuple[Candidate | None, str]:
    """The placement that the rule picks for these weights, or None and the reason why nothing is legal.

    1. The smallest legal tensor parallel degree (pipeline 1) whose pool holds `min_concurrency` sequences.
    2. Failing that, the placement with the most sequences in total; pipeline stages only cross nodes.
    3. Where no replica holds that many so, pipeline stages inside a node are tried too, and the most in total wins.
    Ties take fewer stages, then fewer GPUs.
    """
    wanted = question.workload.min_concurrency
    cache = cache_format(question)
    refused: dict[Placement, str] = {}
    why = ""
    seen: dict[Placement, Candidate] = {}
    for stage_limit in _stage_limits(question, hardware):
        for placement in _placements(question, hardware, stage_limit):
            # Each round repeats the placements of the one before, which then neither sufficed nor changed.
            if placement in seen:
                continue
            if placement in refused:
                why = refused[placement]
                continue
            capacity = question.engine.capacity(question.model, hardware.gpu, placement, question.workload, weights, context, cache)
            if isinstance(capacity, Refusal):
                why = refused[placement] = refusal_text(capacity)
                continue
            found = seen[placement] = _candidate(hardware, placement, capacity)
            enough = int(capacity.per_replica) >= wanted or (capacity.unlimited and capacity.fits)
            if enough and (int(placement.pipeline_parallel) == 1 or question.pipeline_parallel is not None):
                return found, ""
        if any(int(c.capacity.per_replica) >= wanted or (c.capacity.unlimited and c.capacity.fits) for c in seen.values()):
            break
    if not seen:
        return None, why or "no tensor parallel degree is legal on this hardware"
    return max(seen.values(), key=_preference), ""


def _candidate(hardware: Hardware, placement: Placement, capacity: Capacity) -> Candidate:
    gpus = fact(hardware.count, NUMBER, symbol="G", name="GPUs", origin="--gpu")
    replicas = (gpus // placement.gpus_each()).as_step("R", "replicas that the GPUs hold")
    sequences = (replicas * capacity.per_replica).as_step("C_t", "full-length sequences at once in all replicas")
    return Candidate(placement=placement, capacity=capacity, replicas=replicas, total=sequences)


def _preference(candidate: Candidate) -> tuple[bool, int, int, int, int]:
    headroom = int(candidate.capacity.pool) - int(candidate.capacity.sequence_bytes_per_gpu)
    fewer_stages, fewer_gpus = -int(candidate.placement.pipeline_parallel), -candidate.placement.gpus
    if candidate.capacity.fits:
        return True, candidate.sequences, fewer_stages, fewer_gpus, 0
    return False, 0, headroom, fewer_stages, fewer_gpus


def _stage_limits(question: Question, hardware: Hardware) -> tuple[int, ...]:
    """How many pipeline stages each round of the search may use."""
    if question.pipeline_parallel is not None:
        return (question.pipeline_parallel,)
    if hardware.gpu.kind == "mig":
        # A process sees one slice: slices hold replicas, never parts of one.
        return (1,)
    nodes = -(-hardware.count // hardware.gpus_per_node)
    most = min(int(question.model.num_layers), hardware.count)
    return (1, min(nodes, most), most) if most > 1 else (1,)


def _placements(question: Question, hardware: Hardware, stage_limit: int) -> Iterator[Placement]:
    node = min(hardware.gpus_per_node, hardware.count)
    if question.tensor_parallel is not None:
        degrees: tuple[int, ...] = (question.tensor_parallel,)
        tp_origin = "--tensor-parallel-size"
    else:
        degrees, tp_origin = legal_tensor_degrees(question.model, node), "placement rule"
    pinned = question.pipeline_parallel
    for tp in degrees:
        for pp in (pinned,) if pinned is not None else range(1, stage_limit + 1):
            if tp * pp * (question.data_parallel or 1) <= hardware.count:
                pp_origin = "--pipeline-parallel-size" if pinned is not None else "placement rule"
                yield placed(tp, pp, question.data_parallel, tp_origin=tp_origin, pp_origin=pp_origin)


def _shortfall(candidate: Candidate, weights: WeightChoice, tried_all: bool) -> str:
    if int(candidate.capacity.pool) < 0:
        return f"the weights alone are too large {'in any format' if tried_all else f'in {weights.format}'}"
    return f"the weights fit in {weights.format}, but not the cache of one sequence"


def _warnings(question: Question, hardware: Hardware, candidate: Candidate, lowered: bool) -> Iterator[str]:
    model, cache = question.model, candidate.capacity.cache
    yield from model.assumptions
    if candidate.capacity.weights.assumption:
        yield candidate.capacity.weights.assumption
    weights = candidate.capacity.weights
    if question.weights != "auto" and not weights.published and not weights.cast:
        yield f"weights sized in {weights.format} as asked; the published checkpoint is in {model.published.format}"
    if (
        question.workload.context_is_default
        and question.workload.context is not None
        and candidate.capacity.context < question.workload.context
    ):
        yield f"sized at its own limit of {int(candidate.capacity.context):,} tokens: the default context is longer"
    if lowered:
        yield f"{candidate.capacity.weights.format}: needs a checkpoint in this format; the published one is {model.published.format}"
    if cache.eight_bit and hardware.gpu.fp8 is False:
        yield f"{hardware.gpu.name} has no fp8 hardware: engines may refuse an fp8 cache on it"
    if cache.lossy:
        yield f"{cache.phrase} changes attention numerics"
    if question.workload.kv_cache_dtype is None and cache.name == model.published.kv_cache_dtype:
        yield f"the checkpoint asks for an {cache.name} cache ({model.published.origin})"
    if candidate.capacity.weights.format == "fp8" and hardware.gpu.fp8 is False:
        yield f"{hardware.gpu.name} has no fp8 hardware: engines keep fp8 weights but compute in 16 bit"
    if int(candidate.placement.tensor_parallel) > hardware.gpus_per_node:
        yield f"tensor parallel {int(candidate.placement.tensor_parallel)} crosses servers of {hardware.gpus_per_node} GPUs"
    idle = hardware.count - int(candidate.replicas) * candidate.placement.gpus
    if idle:
        yield f"{idle:,} of {hardware.count:,} GPUs {'stays' if idle == 1 else 'stay'} unused"
