"""What must hold of every answer of the arithmetic engine, whatever the model, the GPUs and the formats; exceptions are named."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import (
    CACHES,
    FAMILIES,
    GROWING,
    KV_FAMILIES,
    QUICK,
    WEIGHTS,
    configs,
    contexts,
    hardware,
    known_model,
    larger,
    models,
    on,
    questions,
    share,
    sizes_for,
    tokens,
    working,
)
from support import calculate

from gpufit.derivation import Step, steps
from gpufit.engines.arithmetic import Arithmetic, sequence_bytes
from gpufit.engines.base import Capacity
from gpufit.formats.cache import BF16
from gpufit.hardware import Hardware
from gpufit.layers.compressed import Compressed, SlidingLatent
from gpufit.layers.full import Full
from gpufit.layers.latent import Latent
from gpufit.model import Model, Role
from gpufit.placement import legal_tensor_degrees, placed, stages
from gpufit.quantity import Q
from gpufit.sizing.advice import longest_context, other_placements, with_changes
from gpufit.sizing.plan import plans
from gpufit.sizing.question import Question
from gpufit.sizing.search import answer
from gpufit.sizing.trail import derivation
from gpufit.sizing.weights import published_weights, weights_in
from gpufit.sources.gpuspec import parse_spec
from gpufit.sources.read import read_model
from gpufit.workload import Workload

ONE_FORMAT = st.sampled_from(["published", *WEIGHTS])
STEP = 256
"""The step in which the longest context is searched."""


def sized(question: Question) -> Capacity:
    """The capacity of a question whose placement is legal."""
    found = answer(question)
    assert found.capacity is not None, found.reason
    return found.capacity


def asked(model: Model, at: Hardware, context: int, *, weights: str = "bf16", least: int = 8, tp: int | None = None) -> Question:
    """A question with all of the memory in use."""
    return Question(
        model=model,
        hardware=(at,),
        workload=Workload(context=tokens(context), kv_cache_dtype="bf16", utilization=share("1"), min_concurrency=least),
        engine=Arithmetic(),
        weights=weights,
        tensor_parallel=tp,
        pipeline_parallel=None if tp is None else 1,
    )


# -- derivations ----------------------------------------------------------------------------------------------------------------


def hold_together(found: tuple[Step, ...]) -> None:
    """Facts have origins, steps have names and units, symbols are unique, inputs come first, lines give their values."""
    seen: dict[str, Step] = {}
    for step in found:
        assert step.symbol == step.id
        assert step.symbol not in seen
        assert step.name
        assert step.unit
        if step.is_fact:
            assert step.origin
            assert not step.inputs
        else:
            assert step.inputs or step.value == 0, f"{step.symbol} = {step.formula} reads nothing"
            assert set(step.inputs) <= set(seen)
            assert calculate(step.substitution) == step.value
        seen[step.symbol] = step


@QUICK
@given(questions())
def test_derivations_hold_together(question: Question) -> None:
    """The whole derivation of an answer, and that of the question without hardware, keeps its record and re-evaluates line by line."""
    if answer(question).capacity is not None:
        hold_together(derivation(question).steps)
    hold_together(derivation(replace(question, hardware=(), tensor_parallel=None, pipeline_parallel=None)).steps)


@QUICK
@given(models())
def test_counted_parameters_show_their_parts(model: Model) -> None:
    """The parameter count of a config is a derivation down to the fields of the file."""
    found = steps(model.total_params)
    hold_together(found)
    assert any("config.json" in s.origin for s in found)


@QUICK
@given(questions())
def test_the_derivation_ends_in_the_answer(question: Question) -> None:
    """The values that the answer reports are the values of its own steps."""
    found = answer(question)
    assume(found.capacity is not None)
    assert found.capacity is not None
    values = {s.symbol: s.value for s in derivation(question).steps}
    assert values["C_t"] == found.total_sequences
    for symbol, value in (("W", found.capacity.weights.bytes), ("P", found.capacity.pool), ("W_g", found.capacity.weights_per_gpu)):
        assert values[symbol] == int(value)


# -- the ledger -----------------------------------------------------------------------------------------------------------------


@QUICK
@given(questions())
def test_ledgers_sum_to_the_memory(question: Question) -> None:
    """The lines of a ledger sum to the GPU's memory exactly; only what is left in the pool may be negative, and only without a fit."""
    found = answer(question)
    if found.capacity is None:
        return
    lines = {line.name: int(line.bytes) for line in found.capacity.ledger}
    assert sum(lines.values()) == int(found.hardware.gpu.memory)
    assert min(v for name, v in lines.items() if name != "left in the pool") >= 0
    assert lines["left in the pool"] >= 0 or not found.fits
    assert (lines["left in the pool"] < 0) == (int(found.capacity.pool) < 0)


# -- monotony at a fixed placement ----------------------------------------------------------------------------------------------


@QUICK
@given(questions(fixed=True, weights=ONE_FORMAT), st.integers(1, 10**9))
def test_more_memory_never_holds_less(question: Question, more: int) -> None:
    """At a fixed placement and format, a larger GPU never holds fewer sequences, and its pool grows by no more than the memory."""
    less, greater = sized(question), sized(larger(question, more))
    assert int(less.per_replica) <= int(greater.per_replica)
    assert 0 <= int(greater.pool) - int(less.pool) <= more


@QUICK
@given(questions(fixed=True, weights=ONE_FORMAT), st.integers(1, 999), st.integers(1, 999))
def test_a_larger_share_never_holds_less(question: Question, one: int, other: int) -> None:
    """At a fixed placement and format, a larger utilisation never lowers the concurrency."""
    low, high = (share(f"0.{n:03d}") for n in sorted((one, other)))
    assert int(sized(working(question, utilization=low)).per_replica) <= int(sized(working(question, utilization=high)).per_replica)


@QUICK
@given(questions(fixed=True, weights=ONE_FORMAT), st.data())
def test_fewer_tokens_never_hold_less(question: Question, data: st.DataObject) -> None:
    """At a fixed placement and format, a shorter context never lowers the concurrency and never costs more bytes."""
    short, long = sorted(data.draw(st.tuples(contexts(question.model), contexts(question.model))))
    a, b = (sized(working(question, context=tokens(n))) for n in (short, long))
    assert int(a.per_replica) >= int(b.per_replica)
    assert int(a.sequence_bytes_per_gpu) <= int(b.sequence_bytes_per_gpu)
    assert int(a.sequence_bytes) <= int(b.sequence_bytes)


@QUICK
@given(questions(fixed=True, weights=ONE_FORMAT, cache=st.none()))
def test_smaller_cache_formats_never_hold_less(question: Question) -> None:
    """At a fixed placement and format, a cache dtype of fewer bytes never lowers the concurrency."""
    held = [int(sized(working(question, kv_cache_dtype=name)).per_replica) for name in CACHES]
    assert held == sorted(held, reverse=True)


@QUICK
@given(questions(fixed=True, weights=st.just("bf16")))
def test_smaller_weight_formats_never_hold_less(question: Question) -> None:
    """At a fixed placement, a weight format of fewer bits has fewer bytes and never lowers the concurrency.

    The format of the published checkpoint is left out: its recipe may keep parts wider than the general rule of that name (decay rates
    of state mixers in fp32, attention of an MXFP4 checkpoint at 16 bit).
    """
    names = [n for n in WEIGHTS if n != question.model.published.format]
    found = [sized(replace(question, weights=name)) for name in names]
    for narrow, wide in pairwise(found):
        assert int(narrow.weights.bytes) <= int(wide.weights.bytes)
        assert int(narrow.per_replica) >= int(wide.per_replica)


@QUICK
@given(questions(fixed=True, weights=ONE_FORMAT), st.integers(1, 16))
def test_more_gpus_of_a_placement_are_more_replicas(question: Question, more: int) -> None:
    """At a fixed placement, more GPUs never lower the total, and the total is replicas times what one holds."""
    at = question.hardware[0]
    few, many = answer(question), answer(on(question, replace(at, count=at.count + more)))
    assert few.total_sequences <= many.total_sequences
    for found in (few, many):
        assert found.capacity is not None
        assert found.placement is not None
        assert found.replicas is not None
        assert int(found.replicas) == found.hardware.count // found.placement.gpus
        assert found.total_sequences == int(found.replicas) * int(found.capacity.per_replica)


# -- monotony under the placement rule, and where it ends -----------------------------------------------------------------------


@QUICK
@given(questions(), st.integers(1, 10**9))
def test_what_fits_fits_on_larger_gpus(question: Question, more: int) -> None:
    """With the placement rule and the ladder of formats free, more memory never turns an answer from "fits" to "does not"."""
    assume(answer(question).fits)
    assert answer(larger(question, more)).fits


@QUICK
@given(questions(weights=ONE_FORMAT), st.integers(1, 10**9))
def test_enough_stays_enough_on_larger_gpus(question: Question, more: int) -> None:
    """With the placement rule free and one format, a replica that holds what was wanted holds it on a larger GPU, on no more GPUs."""
    small, large = answer(question), answer(larger(question, more))
    wanted = question.workload.min_concurrency
    assume(small.capacity is not None and int(small.capacity.per_replica) >= wanted)
    assert small.placement is not None
    assume(int(small.placement.pipeline_parallel) == 1)
    assert large.capacity is not None
    assert large.placement is not None
    assert int(large.capacity.per_replica) >= wanted
    assert int(large.placement.tensor_parallel) <= int(small.placement.tensor_parallel)


LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 256,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16, "max_position_embeddings": 4096,
}  # fmt: skip
LLAMA_WEIGHTS = 2 * (2 * 1000 * 64 + 4 * (4 * 64 * 64 + 3 * 64 * 256 + 2 * 64) + 64)
"""Bytes in bf16: embedding and head, four matrices of attention, three of the MLP and two norms a layer, the final norm."""
LLAMA_SEQUENCE = 1000 * 4 * 2 * 4 * 16 * 2
"""Bytes of a sequence of 1,000 tokens: layers, K and V, heads, width, 16 bit."""


def test_named_exception_the_placement_rule_takes_the_smallest_degree_that_is_enough() -> None:
    """More memory can lower the total: once one GPU holds the wanted eight, the rule stops splitting, though two would hold more.

    With room for 7 sequences beside the weights the rule goes on to tensor parallel 2, where half the weights leave more room; with
    room for 8 it stops at one GPU: two replicas of eight.
    """
    model = read_model(LLAMA, id="test/llama")
    assert int(model.total_params) * 2 == LLAMA_WEIGHTS
    split = answer(asked(model, hardware(LLAMA_WEIGHTS + 8 * LLAMA_SEQUENCE - 1, 2), 1000))
    whole = answer(asked(model, hardware(LLAMA_WEIGHTS + 8 * LLAMA_SEQUENCE, 2), 1000))
    assert split.placement is not None
    assert whole.placement is not None
    assert int(split.placement.tensor_parallel) == 2
    assert split.total_sequences == (LLAMA_WEIGHTS // 2 + 8 * LLAMA_SEQUENCE - 1) // (LLAMA_SEQUENCE // 2)
    assert (int(whole.placement.tensor_parallel), whole.total_sequences) == (1, 16)
    assert whole.total_sequences <= split.total_sequences


def test_named_exception_auto_weights_prefer_the_published_format() -> None:
    """More memory can lower the concurrency under `--weights auto`: as soon as the published format holds one sequence it is taken."""
    model = read_model(LLAMA, id="test/llama")
    enough = LLAMA_WEIGHTS + LLAMA_SEQUENCE
    lowered, published = (answer(asked(model, hardware(size), 1000, weights="auto", least=1)) for size in (enough - 1, enough))
    assert lowered.lowered
    assert not published.lowered
    assert published.total_sequences == 1
    assert lowered.total_sequences >= published.total_sequences


# -- splitting ------------------------------------------------------------------------------------------------------------------


def tp(degree: int) -> Q:
    return placed(degree).tensor_parallel


@QUICK
@given(models(), st.data())
def test_more_gpus_never_raise_what_one_holds(model: Model, data: st.DataObject) -> None:
    """A larger legal degree never raises the weights or the cache on one GPU, and the shares never sum to less than the whole."""
    context = tokens(data.draw(contexts(model)))
    whole = int(published_weights(model).bytes)
    at = hardware(10**9, 64, node=16)
    found = [
        sized(replace(asked(model, at, int(context), weights="published"), tensor_parallel=t, pipeline_parallel=1))
        for t in legal_tensor_degrees(model, 16)
    ]
    for (t, narrow), wide in zip(list(zip(legal_tensor_degrees(model, 16), found, strict=True))[1:], found, strict=False):
        assert int(narrow.weights_per_gpu) <= int(wide.weights_per_gpu)
        assert int(narrow.sequence_bytes_per_gpu) <= int(wide.sequence_bytes_per_gpu)
        assert 0 <= t * int(narrow.weights_per_gpu) - whole < t
        assert t * int(narrow.sequence_bytes_per_gpu) >= int(narrow.sequence_bytes)


@QUICK
@given(models(), st.integers(2, 4), st.data())
def test_stages_share_the_layers(model: Model, pp: int, data: st.DataObject) -> None:
    """The caches of all pipeline stages sum to the cache of the whole model, and the fullest stage is the one an answer reports."""
    pp = min(pp, int(model.num_layers))
    context = tokens(data.draw(contexts(model)))
    each = [
        int(sequence_bytes(model, context, tp(1), BF16, None if pp == 1 else part)) for part in stages(int(model.num_layers), pp)
    ]
    question = replace(asked(model, hardware(10**9, 4), int(context)), tensor_parallel=1, pipeline_parallel=pp)
    assert sum(each) == int(sequence_bytes(model, context, tp(1), BF16))
    assert max(each) == int(sized(question).sequence_bytes_per_gpu)


def excess(model: Model, degree: int, context: Q) -> int:
    """What the shares of all GPUs hold beyond the whole, counted by name: copied heads, latents, shared vectors, index keys, groups."""
    extra = 0
    for group in model.layers:
        kind, layers = group.kind, len(group.indices)
        one = int(kind.sequence_bytes(context, tp(1), BF16) or 0)
        if isinstance(kind, Latent | SlidingLatent | Compressed):
            extra += layers * one * (degree - 1)
        elif isinstance(kind, Full):
            heads = int(kind.kv_heads)
            extra += layers * (one // heads) * max(0, degree - heads)
        elif kind.kind == "mamba2":
            groups, kernel = int(kind.groups), int(kind.kernel)  # type: ignore[attr-defined]
            copies = -(-groups // degree) * degree - groups
            extra += layers * copies * 2 * int(kind.state_size) * (kernel - 1) * int(kind.conv_bytes)  # type: ignore[attr-defined]
    return extra


@QUICK
@given(models(), st.data())
def test_copies_are_accounted_for_by_name(model: Model, data: st.DataObject) -> None:
    """What all GPUs hold beyond one whole cache is exactly the named copies: heads below one a GPU, latents, and Mamba groups."""
    degree = data.draw(st.sampled_from(legal_tensor_degrees(model, 16)))
    context = tokens(data.draw(contexts(model)))
    shares = degree * int(sequence_bytes(model, context, tp(degree), BF16))
    assert shares - int(sequence_bytes(model, context, tp(1), BF16)) == excess(model, degree, context)


@QUICK
@given(models("llama", "mistral", "gpt_oss", "gemma3", "mixtral"), st.data())
def test_kv_heads_never_fall_below_one(model: Model, data: st.DataObject) -> None:
    """With more GPUs than KV heads each keeps exactly one head: a further GPU saves nothing."""
    assert model.kv_heads is not None
    assert model.head_dim is not None
    more = [t for t in legal_tensor_degrees(model, 64) if t >= int(model.kv_heads)]
    degree = data.draw(st.sampled_from(more))
    for group in model.layers:
        assert int(group.kind.bytes_per_token(tp(degree), BF16) or 0) == 2 * int(model.head_dim) * 2


@QUICK
@given(models("deepseek", "deepseek_v32"), st.data())
def test_a_latent_cache_ignores_tensor_parallelism(model: Model, data: st.DataObject) -> None:
    """Each GPU of any legal degree keeps the whole latent of every token, index keys included."""
    degree = data.draw(st.sampled_from(legal_tensor_degrees(model, 64)))
    context = tokens(data.draw(contexts(model)))
    assert int(sequence_bytes(model, context, tp(degree), BF16)) == int(sequence_bytes(model, context, tp(1), BF16))


@QUICK
@given(configs("gpt_oss", "gemma3", "llama4", "mistral", "mixtral"), st.data())
def test_a_window_beyond_the_context_is_full_attention(config: dict[str, object], data: st.DataObject) -> None:
    """A window or chunk as long as the context, or longer, costs what full attention costs; a shorter one costs less."""
    name = "attention_chunk_size" if "attention_chunk_size" in config else "sliding_window"
    window = data.draw(st.integers(1, 20_000))
    model = read_model(config | {name: window}, id="test/windowed")
    kinds = {g.kind.kind for g in model.layers}
    at_most = min(window, int(model.max_context or window))
    inside = data.draw(st.integers(1, at_most))
    assert model.kv_heads is not None
    assert model.head_dim is not None
    full = int(model.num_layers) * inside * 2 * int(model.kv_heads) * int(model.head_dim) * 2
    assert int(sequence_bytes(model, tokens(inside), tp(1), BF16)) == full
    beyond = int(sequence_bytes(model, tokens(window + 1), tp(1), BF16))
    assert (beyond < full * (window + 1) // inside) == bool(kinds & {"sliding", "chunked"})


@QUICK
@given(models(*KV_FAMILIES, "mamba2"), ONE_FORMAT)
def test_embeddings_kept_are_those_of_the_parts(model: Model, name: str) -> None:
    """A format that keeps embedding and head at 16 bit keeps as many parameters as the model's own parts of those roles have."""
    kept = [s.value for s in steps(weights_in(model, name).bytes) if s.name.startswith("embedding")]
    tables = sum(int(p.elements()) for p in model.parts if p.role in (Role.EMBEDDING, Role.HEAD))
    assert kept in ([], [tables])


# -- tight ----------------------------------------------------------------------------------------------------------------------


@QUICK
@given(questions(*KV_FAMILIES))
def test_the_answer_is_tight(question: Question) -> None:
    """The sequences of an answer fit into its pool, and one more does not; where none fits, the shortfall is what one lacks."""
    found = answer(question)
    if found.capacity is None:
        return
    c = found.capacity
    pool, each, count = int(c.pool), int(c.sequence_bytes_per_gpu), int(c.per_replica)
    assert count * each <= max(pool, 0) < (count + 1) * each
    assert found.fits == (count >= 1)
    assert found.short_by == (0 if found.fits else each - pool)


@QUICK
@given(models(*KV_FAMILIES), st.integers(0, 40), st.data())
def test_memory_for_a_count_holds_that_count_and_a_byte_less_does_not(model: Model, count: int, data: st.DataObject) -> None:
    """A GPU of exactly the weights and n sequences holds n; with one byte less it holds n - 1."""
    context = data.draw(contexts(model))
    degree = data.draw(st.sampled_from(legal_tensor_degrees(model, 8)))
    base = sized(asked(model, hardware(10**12, 8), context, tp=degree))
    size = int(base.weights_per_gpu) + count * int(base.sequence_bytes_per_gpu)
    exact, short = (asked(model, hardware(size - less, 8), context, tp=degree) for less in (0, 1))
    assert int(sized(exact).per_replica) == count
    assert int(sized(short).per_replica) == max(0, count - 1)


@QUICK
@given(questions("bert", weights=ONE_FORMAT))
def test_without_a_cache_the_weights_alone_decide(question: Question) -> None:
    """A model that keeps no cache fits where its weights do, on the fewest GPUs that hold them, and no count of sequences is made up."""
    found = answer(question)
    assume(found.capacity is not None)
    assert found.capacity is not None
    assert found.fits == (int(found.capacity.pool) >= 0)
    assert found.sequences is None or not found.fits
    assert found.short_by == max(0, -int(found.capacity.pool))
    if found.fits:
        at = question.hardware[0]
        assert found.placement is not None
        narrower = [t for t in legal_tensor_degrees(question.model, min(at.count, at.gpus_per_node)) if t < found.placement.gpus]
        for degree in narrower:
            assert not answer(replace(question, tensor_parallel=degree, pipeline_parallel=1)).fits


@QUICK
@given(questions(*KV_FAMILIES, short=True))
def test_the_missing_bytes_are_enough(question: Question) -> None:
    """A GPU larger by the bytes that an answer says are missing holds the first sequence; a byte less does not."""
    question = working(question, utilization=share("1"))
    found = answer(question)
    assume(found.capacity is not None and not found.fits)
    assert found.placement is not None
    there = replace(
        question,
        weights=found.capacity.weights.format if not found.capacity.weights.published else "published",  # type: ignore[union-attr]
        tensor_parallel=int(found.placement.tensor_parallel),
        pipeline_parallel=int(found.placement.pipeline_parallel),
    )
    assert answer(larger(there, found.short_by)).fits
    assert not answer(larger(there, found.short_by - 1)).fits


# -- advice ---------------------------------------------------------------------------------------------------------------------


def followed(question: Question, option: str, at: Hardware | None = None) -> Question:
    """The question with an option added that an answer offered; `at` is what its SPEC means where that can be typed."""
    words = option.split()
    given = dict(zip(words[::2], words[1::2], strict=True))
    for name, value in given.items():
        if name == "--weights":
            question = replace(question, weights=value)
        elif name == "--kv-cache-dtype":
            question = working(question, kv_cache_dtype=value)
        elif name == "--context":
            question = working(question, context=tokens(int(value)))
        elif name == "--gpu":
            spec, _, count = value.rpartition(":")
            assert spec == question.hardware[0].gpu.id
            # A size of this test's own has no name to type.
            question = on(question, at or replace(question.hardware[0], count=int(count)))
            question = replace(question, tensor_parallel=None, pipeline_parallel=None)
        else:
            assert name in ("--tp", "--pp"), option
    degrees = {"--tp": "tensor_parallel", "--pp": "pipeline_parallel"}
    return replace(question, **{degrees[n]: int(v) for n, v in given.items() if n in degrees})  # type: ignore[arg-type]


def count_of(option: str) -> int:
    """The number of GPUs in an offered --gpu option."""
    return int(option.split()[1].rpartition(":")[2])


@QUICK
@given(questions(short=True))
def test_what_is_offered_fits(question: Question) -> None:
    """Each change that an answer offers, asked again as offered, fits and holds what was said."""
    found = with_changes(answer(question))
    assert not (found.fits and found.changes)
    for change in found.changes:
        again = answer(followed(question, change.option))
        assert again.fits, change
        assert again.sequences == change.sequences, change


@QUICK
@given(questions(short=True))
def test_the_smallest_number_of_gpus_is_offered(question: Question) -> None:
    """No smaller number of GPUs that the advice considers fits: legal degrees of one node, then whole nodes."""
    found = with_changes(answer(question))
    offered = [count_of(c.option) for c in found.changes if c.option.startswith("--gpu")]
    assume(offered)
    at = question.hardware[0]
    inside = legal_tensor_degrees(question.model, at.gpus_per_node)
    fewer = [n for n in range(at.count + 1, offered[0]) if n in inside or n % at.gpus_per_node == 0]
    for count in fewer:
        assert not answer(followed(question, f"--gpu {at.gpu.id}:{count}")).fits


SPECS = ("l4", "t4", "rtx-4090:3", "a100-sxm-80gb:2", "h100-sxm", "g5.xlarge", "24GiB:2")


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("slug", ["llama-3.1-8b", "qwen2.5-72b", "mixtral-8x7b"])
def test_offered_specs_can_be_typed(slug: str, spec: str) -> None:
    """An offered `--gpu SPEC`, typed as it stands, fits and holds what was said."""
    (at,) = [parse_spec(spec)]
    question = replace(asked(known_model(slug), at, 8192), workload=Workload(context=tokens(8192)))
    for change in with_changes(answer(question)).changes:
        if change.option.startswith("--gpu"):
            again = answer(followed(question, change.option, parse_spec(change.option.split()[1])))
            assert again.fits
            assert again.sequences == change.sequences


@QUICK
@given(questions(weights=ONE_FORMAT))
def test_other_placements_fit_and_differ(question: Question) -> None:
    """The other placements beside an answer are legal, fit, have the same weights, and none is the answer's own degree."""
    found = answer(question)
    others = other_placements(found)
    taken = [int(o.placement.tensor_parallel) for o in others if o.placement is not None]
    assert len(taken) == len(others) == len(set(taken))
    for other in others:
        assert other.fits
        assert found.placement is not None
        assert found.capacity is not None
        assert other.capacity is not None
        assert int(other.capacity.weights.bytes) == int(found.capacity.weights.bytes)
        assert int(found.placement.tensor_parallel) not in taken


@QUICK
@given(questions(*KV_FAMILIES, weights=ONE_FORMAT), st.integers(1, 500))
def test_a_plan_holds_what_was_wanted_and_no_replica_too_many(question: Question, wanted: int) -> None:
    """A plan holds the sequences wanted, one replica fewer would not, and `fit` on its GPUs at its placement says the same."""
    for plan in plans(question, wanted):
        each, replicas = int(plan.capacity.per_replica), int(plan.replicas)
        assert (replicas - 1) * each < wanted <= replicas * each == int(plan.total)
        assert plan.hardware.count == replicas * plan.placement.gpus
        degrees = {
            "tensor_parallel": int(plan.placement.tensor_parallel),
            "pipeline_parallel": int(plan.placement.pipeline_parallel),
        }
        again = answer(replace(on(question, plan.hardware), **degrees))  # type: ignore[arg-type]
        assert again.total_sequences == int(plan.total)


# -- longest context ------------------------------------------------------------------------------------------------------------


@QUICK
@given(questions())
def test_the_longest_context_fits_and_a_step_more_does_not(question: Question) -> None:
    """The longest context that the advice names fits, and 256 tokens more do not, up to the context that was asked."""
    question = working(question, context=tokens(int(question.model.max_context or 40_000)))
    longest = longest_context(question)
    limit = int(question.workload.context or 0)
    if longest is not None:
        assert answer(working(question, context=tokens(longest))).fits
    beyond = (longest or 0) + STEP
    if beyond <= limit:
        assert not answer(working(question, context=tokens(beyond))).fits


@QUICK
@given(models(*GROWING), st.integers(1, 4000), st.data())
def test_longest_context_and_concurrency_invert(model: Model, context: int, data: st.DataObject) -> None:
    """Where every layer keeps every token, n sequences take the tokens of one long sequence, up to one step.

    A model whose one sequence may be L tokens long holds n sequences of c tokens with n * c below L + 256, and n + 1 of them would be more
    than L.
    """
    model = replace(model, max_context=tokens(1 << 20))
    degree = data.draw(st.sampled_from(legal_tensor_degrees(model, 8)))
    question = asked(model, hardware(data.draw(sizes_for(model)), 8), 1 << 20, tp=degree)
    longest = longest_context(question) or 0
    assume(longest < 1 << 20)
    count = int(sized(working(question, context=tokens(context))).per_replica)
    assert count * context < longest + STEP
    assert (count + 1) * context > longest


# -- the strategies themselves --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=5, deadline=None)
@given(st.data())
def test_every_family_is_understood(family: str, data: st.DataObject) -> None:
    """Each family's strategy makes models that its reader understands without an assumption or an unread field."""
    made = data.draw(models(family))
    assert bool(made.layers) == (family != "bert")
    assert not made.assumptions
    assert not made.unused_fields
