"""What must hold of every answer under `--engine vllm`, with its own defaults held fixed; what its rules break is named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st
from strategies import QUICK, contexts, hardware, larger, on, share, tokens, vllm, vllm_questions, working
from support import calculate

from gpufit.engines.base import Capacity
from gpufit.placement import legal_tensor_degrees
from gpufit.quantity import Q
from gpufit.sizing.advice import longest_context
from gpufit.sizing.question import Question
from gpufit.sizing.search import answer
from gpufit.sizing.trail import derivation
from gpufit.sources.read import read_model
from gpufit.workload import Workload


def sized(question: Question) -> Capacity | None:
    """The capacity of a question, None where the server would not start so."""
    return answer(question).capacity


def started(question: Question) -> Capacity:
    """The capacity of a question whose server starts; what is refused is not what a property is about."""
    found = sized(question)
    if found is None:
        reject()
    return found


def detail(c: Capacity, name: str) -> int:
    """A whole figure of the engine's own."""
    value = c.details[name]
    return int(value) if isinstance(value, Q) else int(str(value))


@QUICK
@given(vllm_questions())
def test_ledgers_sum_to_the_memory(question: Question) -> None:
    """The lines of a ledger sum to the GPU's memory exactly; where it fits none is negative."""
    found = answer(question)
    if found.capacity is None:
        return
    lines = {line.name: int(line.bytes) for line in found.capacity.ledger}
    assert sum(lines.values()) == int(found.hardware.gpu.memory)
    if found.fits:
        assert min(lines.values()) >= 0, lines


@QUICK
@given(vllm_questions())
def test_derivations_hold_together(question: Question) -> None:
    """Facts have origins, steps have names and units, symbols are unique, inputs come first, and each line gives its value."""
    started(question)
    seen: set[str] = set()
    for step in derivation(question).steps:
        assert step.symbol not in seen
        assert step.name
        assert step.unit
        assert set(step.inputs) <= seen
        if step.is_fact:
            assert step.origin
        else:
            assert calculate(step.substitution) == step.value
        seen.add(step.symbol)


@QUICK
@given(vllm_questions())
def test_the_answer_is_tight_in_blocks(question: Question) -> None:
    """The sequences of an answer fit into the blocks, one more does not, and the blocks fill the pool to less than one block.

    The check at start-up also keeps the null block out of reach, so a single sequence may be refused in a cache of exactly its blocks.
    """
    c = started(question)
    assume(int(c.pool) >= 0)
    blocks, each, width = (detail(c, name) for name in ("blocks", "blocks_per_request", "block_bytes"))
    count = int(c.per_replica)
    assert count * each <= blocks
    assert (count + 1) * each > blocks or (count == 0 and blocks <= each)
    assert 0 <= int(c.pool) - blocks * width < width
    assert detail(c, "kv_cache_bytes") == blocks * width


@QUICK
@given(vllm_questions(), st.integers(1, 10**9))
def test_more_memory_never_holds_less(question: Question, more: int) -> None:
    """At a fixed placement with fixed batches and overhead, a larger GPU never has fewer blocks or holds fewer sequences."""
    less, greater = started(question), started(larger(question, more))
    assert int(less.per_replica) <= int(greater.per_replica)
    assert detail(less, "blocks") <= detail(greater, "blocks")
    # With several stages, which of them is the tightest may change.
    if question.pipeline_parallel == 1:
        assert int(less.weights_per_gpu) == int(greater.weights_per_gpu)


@QUICK
@given(vllm_questions(), st.data())
def test_fewer_tokens_never_hold_less(question: Question, data: st.DataObject) -> None:
    """At a fixed placement with fixed batches and overhead, a shorter context never holds fewer sequences."""
    short, long = sorted(data.draw(st.tuples(contexts(question.model), contexts(question.model))))
    a, b = (started(working(question, context=tokens(n))) for n in (short, long))
    assert int(a.per_replica) >= int(b.per_replica)
    assert detail(a, "blocks_per_request") <= detail(b, "blocks_per_request")


@QUICK
@given(vllm_questions("llama", "mistral", "gpt_oss", "gemma3", "mixtral"))
def test_an_fp8_cache_never_holds_less(question: Question) -> None:
    """For attention without states or latents, an fp8 cache never holds fewer sequences than a 16-bit one where it starts."""
    narrow, wide = (started(working(question, kv_cache_dtype=name)) for name in ("fp8", "bfloat16"))
    assert int(narrow.per_replica) >= int(wide.per_replica)


@QUICK
@given(vllm_questions(fixed=False))
def test_more_gpus_never_raise_the_weights_of_one(question: Question) -> None:
    """A larger degree at which the server starts never raises the weights on one GPU; all shares hold at least the checkpoint."""
    at = replace(question.hardware[0], count=8, gpus_per_node=8)
    found = []
    for t in legal_tensor_degrees(question.model, 8):
        c = sized(replace(on(question, at), tensor_parallel=t, pipeline_parallel=1))
        if c is not None:
            found.append((t, int(c.weights_per_gpu)))
    held = [w for _, w in found]
    assert held == sorted(held, reverse=True)
    for t, w in found:
        assert t * w >= int(question.model.total_params) * 2


@QUICK
@given(vllm_questions())
def test_what_is_reserved_is_at_least_what_is_needed(question: Question) -> None:
    """The blocks that the engine sets aside for a sequence never hold less than the sequence's own cache on one GPU."""
    c = started(question)
    assert detail(c, "reserved_bytes_per_sequence_per_gpu") >= detail(c, "needed_bytes_per_sequence_per_gpu")


@QUICK
@given(vllm_questions())
def test_the_longest_context_fits_and_a_step_more_does_not(question: Question) -> None:
    """The longest context that the advice names fits, and 256 tokens more do not, up to the model's own limit."""
    question = working(question, context=None)
    started(question)
    longest = longest_context(question) or 0
    limit = int(question.model.max_context or 0)
    if longest:
        assert answer(working(question, context=tokens(longest))).fits
    if longest + 256 <= limit:
        assert not answer(working(question, context=tokens(longest + 256))).fits


LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 2048,
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 32768,
}  # fmt: skip
WINDOWED = LLAMA | {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 1024}


def named(config: dict[str, object], gib: int, *, batches: bool = False, cache_bytes: int | None = None) -> Capacity:
    """The capacity on one H100 of this size, with the engine's own batches unless they are held fixed."""
    question = Question(
        model=read_model(config, id="test/named"),
        hardware=(hardware(gib << 30, part="h100-sxm"),),
        workload=Workload(context=tokens(32768), utilization=share("0.9")),
        engine=vllm(batches=batches, cache_bytes=cache_bytes),
        weights="published",
        tensor_parallel=1,
        pipeline_parallel=1,
    )
    found = sized(question)
    assert found is not None
    return found


def test_named_exception_batches_jump_with_the_size_of_the_gpu() -> None:
    """More memory can hold fewer sequences: from 70 GiB on vLLM batches 8,192 tokens in place of 2,048, and windows hold those in flight.

    One layer's blocks of a request at 32,768 tokens, two batches in flight: ceil((1,023 + 2 * 2,048) / 16) + 1 = 321, and
    ceil((1,023 + 2 * 8,192) / 16) + 1 = 1,089.
    """
    small, large = named(WINDOWED, 69), named(WINDOWED, 71)
    assert (detail(small, "blocks_per_request"), detail(large, "blocks_per_request")) == (321, 1089)
    assert int(small.per_replica) > int(large.per_replica)
    fixed = [named(WINDOWED, gib, batches=True) for gib in (69, 71)]
    assert int(fixed[0].per_replica) <= int(fixed[1].per_replica)


def test_named_exception_the_null_block() -> None:
    """A cache of exactly one request's blocks holds one sequence by the log's figure and is refused: one block is never used."""
    base = named(LLAMA, 40, cache_bytes=2048 * 4 * 2 * 8 * 128 * 2 * 16)
    more = named(LLAMA, 40, cache_bytes=2049 * 4 * 2 * 8 * 128 * 2 * 16)
    assert (detail(base, "blocks"), detail(base, "blocks_per_request")) == (2048, 2048)
    assert (int(base.per_replica), int(more.per_replica)) == (0, 1)


@pytest.mark.parametrize("gib", [24, 80, 141])
def test_the_printed_concurrency_is_blocks_over_blocks(gib: int) -> None:
    """The figure of concurrency of the engine is blocks by blocks of a request; an answer counts the whole ones."""
    c = named(LLAMA, gib)
    exact = detail(c, "blocks") / detail(c, "blocks_per_request")
    assert round(float(str(c.details["max_concurrency"])), 2) == round(exact, 2)
    assert int(c.per_replica) == int(exact)
