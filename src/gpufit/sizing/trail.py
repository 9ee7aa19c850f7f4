"""The derivation of one answer, ready to be printed: which values it ends in, and the steps that lead there."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace

from gpufit.derivation import Step, steps
from gpufit.engines.arithmetic import WHOLE, bytes_per_token, fixed_bytes, sequence_bytes
from gpufit.errors import UsageError
from gpufit.placement import legal_tensor_degrees, placed, tensor_reason
from gpufit.quantity import Q
from gpufit.sizing.question import Answer, Question
from gpufit.sizing.search import answer, cache_format, context_of
from gpufit.sizing.weights import published_weights, weights_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Trail:
    """A question with the steps of its answer. `answer` is None without hardware."""

    question: Question
    answer: Answer | None
    steps: tuple[Step, ...]
    context: Q


def derivation(question: Question) -> Trail:
    """The steps behind the same answer that `fit` prints; without hardware those of the weights and of one sequence's cache.

    Raises `UsageError` where there is nothing to derive: no legal placement, a context beyond the limit.
    """
    model = question.model
    context = context_of(question)
    if context is None:
        raise UsageError(f"{model.slug}: its config states no context limit", hint="name a number, as in --context 32k")
    if model.max_context is not None and context > model.max_context:
        raise UsageError(
            f"{model.slug} holds at most {int(model.max_context):,} tokens, asked for {int(context):,}",
            hint="--context max takes its limit",
        )
    if question.hardware:
        found = answer(question)
        if found.capacity is None or found.total is None:
            raise UsageError(
                f"{model.slug} on {found.hardware.count:,} x {found.hardware.gpu.id}: {found.reason}",
                hint="gpufit fit lists what is legal",
            )
        c = found.capacity
        roots = [c.weights.bytes, c.budget, c.weights_per_gpu, c.pool, c.sequence_bytes_per_gpu, c.per_replica, found.total]
        roots += [line.bytes for line in c.ledger if line.bytes.symbol]
        roots += [value for value in c.details.values() if isinstance(value, Q) and value.symbol]
        return Trail(question=question, answer=found, steps=steps(*roots), context=context)
    tp = question.tensor_parallel or 1
    reason = tensor_reason(model, tp)
    if reason is not None:
        legal = ", ".join(map(str, legal_tensor_degrees(model, 64)))
        raise UsageError(f"{model.slug} cannot be split over {tp} GPUs: {reason}", hint=f"legal degrees up to 64: {legal}")
    degree = WHOLE if tp == 1 else placed(tp, tp_origin="--tensor-parallel-size").tensor_parallel
    cache = cache_format(question)
    chosen = published_weights(model) if question.weights == "auto" else weights_in(model, question.weights)
    roots = [chosen.bytes]
    if model.layers:
        roots += [
            bytes_per_token(model, degree, cache),
            fixed_bytes(model, degree, cache),
            sequence_bytes(model, context, degree, cache),
        ]
    return Trail(question=question, answer=None, steps=steps(*[r for r in roots if r.symbol and int(r)]), context=context)


def one_step(all_steps: tuple[Step, ...], name: str) -> tuple[Step, ...]:
    """One step, by symbol or name, with the steps and facts that it reads directly, as a derivation of its own."""
    by_id = {s.id: s for s in all_steps}
    wanted = by_id.get(name) or next((s for s in all_steps if s.name == name), None)
    if wanted is None:
        near = difflib.get_close_matches(name, by_id, n=3, cutoff=0.4)
        steps_named, facts = (", ".join(s.id for s in all_steps if s.is_fact is kind) for kind in (False, True))
        hint = f"did you mean {', '.join(near)}" if near else f"the steps are {steps_named}; the facts {facts}"
        raise UsageError(f"no step {name!r} in this derivation", hint=hint)
    parents = [by_id[i] for i in wanted.inputs]
    return (*[replace(p) for p in parents], wanted)
