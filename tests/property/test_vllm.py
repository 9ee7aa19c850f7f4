"""Laws of the vLLM cache plan that hold for every model, setting and amount of memory."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st
from support import calculate
from vllm_models import full, model, outcome, plan, sliding, state

from gpufit.derivation import steps
from gpufit.engines.vllm.plan import CachePlan, longest_context
from gpufit.layers.base import LayerKind
from gpufit.model import Model


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Models of full layers with windowed or state layers between them, in published sizes of heads."""
    kv = draw(st.sampled_from([1, 2, 4, 8]))
    dim = draw(st.sampled_from([64, 128, 256]))
    count = draw(st.integers(2, 24))
    every = draw(st.integers(2, 6))
    whole = [i for i in range(count) if i % every == every - 1] or [0]
    rest = [i for i in range(count) if i not in whole]
    groups: list[tuple[LayerKind, Iterable[int]]] = [(full(16, kv, dim), whole)]
    other = draw(st.sampled_from(["full", "sliding", "state"]))
    if rest and other == "sliding":
        groups.append((sliding(16, kv, dim, draw(st.integers(16, 8192))), rest))
    elif rest and other == "state":
        groups.append((state("gated_delta"), rest))
    elif rest:
        groups.append((full(16, kv, dim), rest))
    return model("test", groups, heads=16, kv_heads=kv, layers=count)


LENGTHS = st.integers(1, 131072)
QUICK = settings(max_examples=60, deadline=None)


@QUICK
@given(models(), LENGTHS, st.sampled_from([1, 2, 4, 8]), st.integers(1, 80))
def test_printed_steps_give_the_printed_value(of: Model, length: int, tp: int, gib: int) -> None:
    """Every line of the derivation of tokens and of one request's cache, typed into a calculator, gives its value."""
    made = plan(of, max_model_len=length, tensor_parallel=tp, gib=gib)
    for step in steps(made.tokens, made.required):
        assert step.is_fact or calculate(step.substitution) == step.value, step


@QUICK
@given(models(), st.sampled_from([1, 2, 4]))
def test_groups_hold_every_layer_once(of: Model, pp: int) -> None:
    """Groups part the layers that keep something, and the stages' blocks never sum to less than the whole block."""
    made = outcome(of, pipeline_parallel=pp, max_model_len=4096)
    if not isinstance(made, CachePlan):
        assert pp > int(of.num_layers)
        return
    placed = sorted(s.layer for g in made.groups for s in g.layers)
    assert placed == sorted(i for g in of.layers for i in g.indices)
    whole = plan(of, max_model_len=4096)
    assert sum(int(s.bytes_per_block) for s in made.stages) >= int(whole.bytes_per_block)


@QUICK
@given(models(), LENGTHS, st.integers(1, 40), st.integers(1, 40))
def test_more_memory_never_holds_less(of: Model, length: int, gib: int, more: int) -> None:
    """With everything else fixed, more memory never lowers blocks, tokens or concurrency."""
    less, greater = plan(of, max_model_len=length, gib=gib), plan(of, max_model_len=length, gib=gib + more)
    assert int(less.num_blocks) <= int(greater.num_blocks)
    assert int(less.tokens) <= int(greater.tokens)
    assert less.max_concurrency <= greater.max_concurrency


@QUICK
@given(models(), LENGTHS, st.integers(64, 16384), st.integers(1, 16384))
def test_smaller_batches_never_cost_more_blocks(of: Model, length: int, tokens: int, more: int) -> None:
    """Fewer tokens in a batch never raise the blocks of a request."""
    small = plan(of, max_model_len=length, max_num_batched_tokens=tokens)
    large = plan(of, max_model_len=length, max_num_batched_tokens=tokens + more)
    assert int(small.blocks_per_request) <= int(large.blocks_per_request)


@QUICK
@given(models(), st.integers(1, 8))
def test_the_longest_context_fits_and_one_token_more_does_not(of: Model, gib: int) -> None:
    """The length that the search finds fits as a plan of its own, and the next length does not, up to the model's limit."""
    tokens = 2048
    made = plan(of, gib=gib, max_num_batched_tokens=tokens)
    longest = longest_context(made)
    assert longest > 0
    assert plan(of, gib=gib, max_model_len=longest, max_num_batched_tokens=tokens).fits
    if longest < 131072:
        assert not plan(of, gib=gib, max_model_len=longest + 1, max_num_batched_tokens=tokens).fits


@QUICK
@given(st.sampled_from([1, 2, 4, 8]), st.integers(1, 8), LENGTHS)
def test_a_window_as_long_as_the_context_costs_one_block_more_than_full(kv: int, layers: int, length: int) -> None:
    """A window that reaches over the whole sequence takes the blocks of full attention and the one it may begin inside."""
    whole = model("test", [(full(16, kv, 128), range(layers))], heads=16, kv_heads=kv)
    windowed = model("test", [(sliding(16, kv, 128, length + 1), range(layers))], heads=16, kv_heads=kv)
    a, b = plan(whole, max_model_len=length), plan(windowed, max_model_len=length)
    assert int(b.blocks_per_request) == int(a.blocks_per_request) + 1
    assert int(b.bytes_per_block) == int(a.bytes_per_block)


@QUICK
@given(models(), st.sampled_from([2, 4, 8, 16]))
def test_a_block_narrows_with_tensor_parallelism_down_to_one_head(of: Model, tp: int) -> None:
    """More GPUs never widen the block of attention without states, and past one KV head per GPU it stays as it is."""
    if any(g.kind.kind == "gated_delta" for g in of.layers):
        return
    one, many = plan(of, max_model_len=4096), plan(of, max_model_len=4096, tensor_parallel=tp)
    assert of.kv_heads is not None
    assert int(many.bytes_per_block) == int(one.bytes_per_block) // min(tp, int(of.kv_heads))
