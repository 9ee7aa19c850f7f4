"""Properties of weights per rank: shares and copies, stages, fused scale blocks, experts."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from vllm_models import model

from gpufit.engines.vllm.expert_weights import Experts, expert_bytes
from gpufit.engines.vllm.linear_weights import linear_bytes
from gpufit.engines.vllm.stage_parts import Stage
from gpufit.engines.vllm.weight_shards import Cut, Spread, cut
from gpufit.engines.vllm.weights import weights_on_rank
from gpufit.formats.eight_bit import BlockScaled, scale_of
from gpufit.formats.microscaling import MXFP4, nvfp4
from gpufit.formats.tensor import PLAIN
from gpufit.model import Model, Role, Shard, WeightPart
from gpufit.placement import stages
from gpufit.quantity import NUMBER, Q, fact

DEGREES = st.sampled_from([1, 2, 4, 8, 16])
SIZES = st.integers(1, 40).map(lambda k: 16 * k)


def n(value: int) -> Q:
    return fact(value, NUMBER, symbol="n", name="size", origin="test")


def spread(tp: int, dp: int = 1, *, experts: bool = False, capability: int = 90) -> Spread:
    return Spread(tp=n(tp), dp=n(dp), expert_parallel=experts, capability=capability)


def part(shard: Shard, rows: int, columns: int, *, heads: int | None = None, layers: tuple[int, ...] = (0,)) -> WeightPart:
    return WeightPart(
        name="w", role=Role.MLP, module="layers.{i}.w", rows=n(rows), columns=n(columns), layers=layers, shard=shard,
        heads=None if heads is None else n(heads), linear=True,
    )  # fmt: skip


def block(side: int) -> BlockScaled:
    return BlockScaled(name="fp8 blocks", word="fp8", block_rows=n(side), block_columns=n(side), scale=scale_of(4, "test"))


@given(tp=DEGREES, rows=SIZES, columns=SIZES)
def test_split_parts_sum_to_the_whole(tp: int, rows: int, columns: int) -> None:
    """What column and row shards hold, over all ranks, is the matrix once."""
    for shard in (Shard.COLUMN, Shard.ROW):
        whole = part(shard, rows, columns)
        assert tp * int(cut(whole, spread(tp)).elements()) == rows * columns


@given(tp=DEGREES, heads=st.sampled_from([1, 2, 4, 8, 16, 32]), width=st.integers(1, 64), columns=SIZES)
def test_heads_are_split_or_copied_but_never_cut(tp: int, heads: int, width: int, columns: int) -> None:
    """A rank holds whole KV heads, at least one; below one head a rank, more ranks save nothing."""
    held = cut(part(Shard.KV_HEADS, heads * width, columns, heads=heads), spread(tp))
    assert int(held.rows) == max(1, heads // tp) * width


@given(tp=DEGREES, vocab=st.integers(1, 5000), columns=SIZES)
def test_vocabulary_is_padded_to_whole_rows_of_64(tp: int, vocab: int, columns: int) -> None:
    """All ranks together hold the next multiple of 64 rows: never fewer than the vocabulary, never 64 more."""
    held = tp * int(cut(part(Shard.VOCAB, vocab, columns), spread(tp)).rows)
    assert held % 64 == 0
    assert vocab <= held < vocab + 64


@given(tp=st.sampled_from([1, 2, 4]), experts=st.integers(1, 64), dp=st.sampled_from([1, 2, 3]))
def test_expert_parallel_ranks_hold_enough_whole_experts(tp: int, experts: int, dp: int) -> None:
    """Whole experts over tp x dp ranks: enough for all, and less than one expert a rank to spare."""
    mixture = replace(part(Shard.COLUMN, 64, 64), role=Role.ROUTED_EXPERTS, copies=n(experts))
    held = cut(mixture, spread(tp, dp, experts=True))
    assert held.copies is not None
    assert (int(held.rows), int(held.columns or 0)) == (64, 64)
    assert experts <= int(held.copies) * tp * dp < experts + tp * dp or int(held.copies) == 1


@given(rows=st.lists(st.integers(1, 600), min_size=1, max_size=4), columns=st.integers(1, 600), side=st.sampled_from([32, 128]))
def test_fused_blocks_never_need_more_scales_than_parts_apart(rows: list[int], columns: int, side: int) -> None:
    """Fusing projections rounds block rows up once, so scales are at most those of the parts apart and at least one row of blocks."""
    cuts = [Cut(part=part(Shard.REPLICATED, r, columns), rows=n(r), columns=n(columns), copies=None) for r in rows]
    fused = int(linear_bytes(block(side), cuts, n(1), n(len(rows)), "fp8")) - sum(rows) * columns
    apart = sum(-(-r // side) * -(-columns // side) * 4 for r in rows)
    assert -(-sum(rows) // side) * -(-columns // side) * 4 == fused <= apart


@given(
    count=st.integers(1, 16),
    width=st.integers(1, 32).map(lambda k: 32 * k),
    hidden=st.integers(1, 32).map(lambda k: 32 * k),
    capability=st.sampled_from([80, 89, 90, 100, 120]),
)
def test_padding_never_shrinks_experts(count: int, width: int, hidden: int, capability: int) -> None:
    """Bytes of experts on any device are at least those of the unpadded matrices in the same format."""
    held = Experts(count=n(count), shards=n(2), width=n(width), hidden=n(hidden), bias=False, method="")
    elements = count * 3 * width * hidden
    device = spread(1, capability=capability)
    assert int(expert_bytes(PLAIN["bf16"], held, device)) >= 2 * elements
    assert int(expert_bytes(MXFP4, held, device)) * 32 >= 17 * elements
    assert int(expert_bytes(nvfp4(scalars=8), held, device)) * 16 == 9 * elements + 16 * 8 * count * 3


def _layered(layers: int, rows: int, columns: int) -> Model:
    table = replace(part(Shard.VOCAB, 256, columns), role=Role.EMBEDDING, layers=())
    head = replace(table, role=Role.HEAD, module="lm_head")
    body = part(Shard.COLUMN, rows, columns, layers=tuple(range(layers)))
    return model("test", (), heads=8, layers=layers, parts=(table, head, body))


@given(layers=st.integers(4, 40), pp=st.sampled_from([1, 2, 3, 4]), tp=st.sampled_from([1, 2, 4]), rows=SIZES, columns=SIZES)
def test_stages_of_an_untied_model_hold_it_once(layers: int, pp: int, tp: int, rows: int, columns: int) -> None:
    """Over all pipeline stages an untied model of a plain class stands exactly once."""
    made = _layered(layers, rows, columns)
    whole = int(weights_on_rank(made, None, spread(tp), Stage(layers=range(layers))).created)
    parts = [
        int(weights_on_rank(made, None, spread(tp), Stage(layers=p, first=i == 0, last=i == pp - 1)).created)
        for i, p in enumerate(stages(layers, pp))
    ]
    assert sum(parts) == whole == 2 * (2 * 256 * columns + layers * rows * columns) // tp
