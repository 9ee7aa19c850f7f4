"""What one rank holds of a weight part: its rows, columns and copies under tensor, data and expert parallelism."""

from __future__ import annotations

from dataclasses import dataclass

from gpufit.errors import UsageError
from gpufit.model import Role, Shard, WeightPart
from gpufit.quantity import NUMBER, Q, ceil_div, fact, largest, round_up

_VOCAB_PADDING = fact(
    64, NUMBER, symbol="p_v", name="multiple to which vocabulary rows are padded",
    origin="vLLM 0.33.0, layers/vocab_parallel_embedding.py DEFAULT_VOCAB_PADDING_SIZE",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How one replica is spread over GPUs.

    `tp` and `dp` are the tensor and data parallel degrees; `expert_parallel` keeps routed experts whole and deals them out over
    tp x dp ranks. `capability` is the CUDA compute capability times ten (90 for Hopper): expert kernels, and with them their padding,
    are chosen by it.
    """

    tp: Q
    dp: Q
    expert_parallel: bool = False
    capability: int = 90

    @property
    def expert_ranks(self) -> Q:
        """Ranks that share the routed experts: data parallel ranks work on them together."""
        return self.tp if int(self.dp) == 1 else self.tp * self.dp

    @property
    def sequence_parallel(self) -> bool:
        """Whether the tokens of a mixture are split over tensor parallel ranks (config/parallel.py use_sequence_parallel_moe)."""
        return self.expert_parallel and int(self.tp) > 1 and int(self.dp) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One part as one rank holds it: `rows` x `columns` (None for a vector), `copies` in each layer (None for one)."""

    part: WeightPart
    rows: Q
    columns: Q | None
    copies: Q | None

    def elements(self) -> Q:
        """Elements in one layer."""
        one = self.rows if self.columns is None else self.rows * self.columns
        return one if self.copies is None else self.copies * one


def share(part: WeightPart, size: Q, ranks: Q) -> Q:
    """An equal share of `size`; a size that does not divide is refused, as vLLM asserts."""
    if int(ranks) == 1:
        return size
    if int(size) % int(ranks):
        raise UsageError(
            f"{part.name} ({part.module}): {int(size)} does not divide by {int(ranks)}",
            hint="a tensor parallel degree that divides it",
        )
    return size // ranks


def kv_rows(part: WeightPart, rows: Q, heads: Q, tp: Q) -> Q:
    """Rows of the KV heads on one rank: at least one head, so heads are copied where there are fewer than ranks.

    Source: vLLM 0.33.0, layers/linear.py QKVParallelLinear.
    """
    if int(tp) == 1:
        return rows
    if int(heads) >= int(tp):
        return share(part, heads, tp) * (rows // heads)
    return (rows // heads).because(f"fewer KV heads ({int(heads)}) than ranks: each rank holds a copy of one")


def cut(part: WeightPart, spread: Spread) -> Cut:
    """The part on one rank, before any padding that a kernel asks for."""
    if part.role is Role.ROUTED_EXPERTS and part.copies is not None:
        return _expert_cut(part, spread)
    return _sharded(part, spread.tp)


def _sharded(part: WeightPart, tp: Q) -> Cut:
    rows, columns = part.rows, part.columns
    match part.shard:
        case Shard.COLUMN:
            rows = share(part, rows, tp)
        case Shard.ROW if columns is not None:
            columns = share(part, columns, tp)
        case Shard.VOCAB:
            rows = share(part, round_up(rows, _VOCAB_PADDING), tp)
        case Shard.KV_HEADS if part.heads is not None:
            rows = kv_rows(part, rows, part.heads, tp)
        case _:
            pass
    return Cut(part=part, rows=rows, columns=columns, copies=part.copies)


def _expert_cut(part: WeightPart, spread: Spread) -> Cut:
    """Routed experts: whole ones dealt out under expert parallelism (the first ranks hold one more), else every expert cut."""
    ranks = spread.expert_ranks
    if not spread.expert_parallel:
        return _sharded(part, ranks)
    assert part.copies is not None
    return Cut(part=part, rows=part.rows, columns=part.columns, copies=largest(1, ceil_div(part.copies, ranks)))
