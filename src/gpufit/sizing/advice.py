"""What single change would make a model fit: each is the same question asked again with one thing changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpufit.engines.base import Capacity
from gpufit.formats.cache import CACHE_FORMATS
from gpufit.hardware import Hardware
from gpufit.placement import legal_tensor_degrees
from gpufit.quantity import TOKEN_PER_SEQUENCE, Q, fact
from gpufit.sizing.question import Answer, Change, Question
from gpufit.sizing.search import answer, cache_format, context_of

_MOST_GPUS = 1024
_SHORTEST = 256


def with_changes(found: Answer) -> Answer:
    """The answer with the single changes that would make it fit; unchanged when it fits already."""
    if found.fits or found.capacity is None:
        return found
    return replace(found, changes=tuple(_changes(found)))


def other_placements(found: Answer) -> tuple[Answer, ...]:
    """The answers at the other legal tensor parallel degrees of this hardware that fit, by degree; none where the user fixed it."""
    question = replace(found.question, hardware=(found.hardware,))
    if not found.fits or found.placement is None or found.capacity is None or question.tensor_parallel is not None:
        return ()
    # The same weights as in the answer, so that only the placement differs.
    chosen = "published" if found.capacity.weights.published else found.capacity.weights.format
    node = min(found.hardware.gpus_per_node, found.hardware.count)
    taken = int(found.placement.tensor_parallel)
    others = (
        answer(replace(question, weights=chosen, tensor_parallel=tp, pipeline_parallel=1))
        for tp in legal_tensor_degrees(question.model, node)
        if tp != taken
    )
    return tuple(other for other in others if other.fits)


def _changes(found: Answer) -> Iterator[Change]:
    question = replace(found.question, hardware=(found.hardware,))
    gguf = found.capacity is not None and found.capacity.weights.gguf
    narrow = "q4_k_m" if gguf else "int4"
    if question.weights not in ("auto", narrow):
        lower = answer(replace(question, weights=narrow))
        if lower.fits:
            yield Change(what=f"weights in {narrow}", option=f"--weights {narrow}", sequences=lower.sequences)
    # Where the weights leave nothing, no cache is small enough.
    room = found.capacity is not None and int(found.capacity.pool) > 0
    if room and not cache_format(question).lossy:
        eight = CACHE_FORMATS["q8_0" if gguf else "fp8"]
        smaller = answer(replace(question, workload=replace(question.workload, kv_cache_dtype=eight.name)))
        if smaller.fits:
            yield Change(what=eight.phrase, option=f"--kv-cache-dtype {eight.name}", sequences=smaller.sequences)
    shorter = longest_context(question) if room else None
    if shorter is not None:
        at = answer(_at(question, shorter))
        yield Change(what=f"a context of {shorter:,} tokens", option=f"--context {shorter}", sequences=at.sequences)
    more = _enough_gpus(question, found.hardware, found.capacity) if found.capacity is not None else None
    if more is not None:
        yield more


def _at(question: Question, context: int) -> Question:
    tokens = fact(context, TOKEN_PER_SEQUENCE, symbol="n", name="context length", origin="a shorter --context")
    return replace(question, workload=replace(question.workload, context=tokens))


def longest_context(question: Question) -> int | None:
    """The longest context, in steps of 256 tokens, of which one sequence fits; None when even 256 tokens do not."""
    asked: Q | None = context_of(question)
    if asked is None:
        return None
    low, high = 0, int(asked) // _SHORTEST
    while low < high:
        middle = (low + high + 1) // 2
        if answer(_at(question, middle * _SHORTEST)).fits:
            low = middle
        else:
            high = middle - 1
    return low * _SHORTEST or None


def _enough_gpus(question: Question, hardware: Hardware, capacity: Capacity) -> Change | None:
    """The smallest number of GPUs that fits among the legal degrees of one node, then among whole nodes."""
    node = hardware.gpus_per_node
    inside = [tp for tp in legal_tensor_degrees(question.model, node) if tp > hardware.count]
    nodes = [node * k for k in range(1, _MOST_GPUS // max(1, node) + 1) if node * k > hardware.count]
    counts = sorted({*inside, *(nodes if node > 1 else range(hardware.count + 1, 65))})
    # Fewer GPUs than the weights alone fill need no search.
    least_gpus = -(-int(capacity.weights.bytes) // int(capacity.budget))
    for count in [c for c in counts if c >= least_gpus][:24]:
        at = replace(question, hardware=(replace(hardware, count=count, instance=None),))
        # The roomiest placements of so many GPUs tell whether they are enough; only then is the whole search made.
        tried = (
            (tp, pp, answer(replace(at, tensor_parallel=tp, pipeline_parallel=pp))) for tp, pp in _roomiest(question, node, count)
        )
        tp, pp, there = next((t for t in tried if t[2].fits), (0, 0, None))
        if there is None:
            continue
        option = f"--gpu {hardware.gpu.id}:{count}"
        if count > node:
            return Change(what=f"{count} GPUs", option=f"{option} --tp {tp} --pp {pp}", sequences=there.sequences)
        if question.tensor_parallel is not None or question.pipeline_parallel is not None:
            # The degrees that were typed stay on the command line: the advice must replace them.
            return Change(what=f"{count} GPUs", option=f"{option} --tp {tp} --pp {pp}", sequences=there.sequences)
        return Change(what=f"{count} GPUs", option=option, sequences=answer(at).sequences)
    return None


def _roomiest(question: Question, node: int, count: int) -> Iterator[tuple[int, int]]:
    """Each legal tensor parallel degree inside a node, widest first, with as many stages as the GPUs allow.

    None of them is the roomiest for all models: past one KV head a GPU, and for latent caches, only stages make the cache smaller.
    """
    for tp in reversed(legal_tensor_degrees(question.model, min(node, count))):
        yield tp, max(1, min(count // tp, int(question.model.num_layers)))
