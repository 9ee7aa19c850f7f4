"""What vLLM needs beside weights and cache: runner state (arithmetic), activations and CUDA graphs (modelled, with a low and a high).

The estimate is one line that `--overhead-gib` replaces. Coefficients of the modelled parts come from the shapes of one forward pass
(widths that are alive at once); their calibration against logs is not done.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from gpufit.engines.vllm.constants import Constants
from gpufit.engines.vllm.plan import CachePlan
from gpufit.model import Model, Role
from gpufit.quantity import BYTE, NUMBER, Q, ceil_div, fact, floor, largest, total

_FOUR = Q(4, BYTE, "const")
_TWO = Q(2, BYTE, "const")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """Memory taken off the budget beside weights: `likely` is used, `low` and `high` bound what is modelled (B each)."""

    likely: Q
    low: Q
    high: Q
    stated: bool = False


def stated(gib: Q) -> Overhead:
    """An overhead that the user named, in bytes."""
    return Overhead(likely=gib, low=gib, high=gib, stated=True)


def estimated(model: Model, plan: CachePlan, tp: Q, *, eager: bool, graphs_counted: bool) -> Overhead:
    """The overhead of a server that runs this plan on one GPU."""
    sequences, tokens = plan.batch.sequences.count(), plan.batch.tokens.count()
    exact = [*_sampler_state(model, sequences), *_block_tables(plan, sequences, tokens)]
    known = plan.constants
    activation = largest(_forward(model, tokens, tp), _sampling(model, sequences, known)).as_step(
        "O_a", "activation peak of one batch"
    )
    graphs = _graphs(known, eager=eager or not graphs_counted)
    likely = total([*exact, activation, graphs[1]]).as_step("O", "modelled overhead: runner state, activations, CUDA graphs")
    low = total([*exact, floor(activation * known.number("activation_low_share")), graphs[0]]).as_step("O_low", "overhead, low")
    high = total([*exact, activation * known.number("activation_high_share"), graphs[2]]).as_step("O_high", "overhead, high")
    return Overhead(likely=likely, low=low, high=high)


def _sampler_state(model: Model, sequences: Q) -> list[Q]:
    """Output counts and a bit mask for every sequence and vocabulary entry (v1/worker/gpu/sample/penalties.py)."""
    if model.vocab_size is None:
        return []
    vocab = model.vocab_size
    return [(sequences * vocab * _FOUR + sequences * ceil_div(vocab, 32) * _FOUR).as_step("O_s", "sampler state of all sequences")]


def _block_tables(plan: CachePlan, sequences: Q, tokens: Q) -> list[Q]:
    """Two tables a group, as wide as the longest sequence, and slot mappings (v1/worker/gpu/block_table.py)."""
    if not plan.groups:
        return []
    block = int(plan.block_size)
    multiple = 128 // gcd(128, block) if block else 128
    width = ceil_div(ceil_div(plan.context.count(), max(block, 1)), multiple) * multiple
    groups = fact(len(plan.groups), NUMBER, symbol="n_g", name="groups of layers", origin="the cache plan")
    tables = groups * (2 * sequences * width * _FOUR + tokens * Q(8, BYTE, "const"))
    return [tables.as_step("O_t", "block tables and slot mappings")]


def _forward(model: Model, tokens: Q, tp: Q) -> Q:
    """Widths alive at once for each token of a batch: residual streams, attention rows, the widest MLP (16 bit)."""
    widest = _widest(model, Role.MLP)
    qkv = [p.rows for p in model.parts if p.role in (Role.ATTENTION, Role.LATENT) and p.linear and p.shard.value != "row"]
    terms = [4 * model.hidden_size]
    if widest is not None:
        terms.append(ceil_div(3 * widest, tp))
    if qkv:
        terms.append(ceil_div(max(qkv, key=int), tp))
    routed = next(
        (p for p in model.parts if p.role is Role.ROUTED_EXPERTS and p.columns is not None and p.active is not None), None
    )
    if routed is not None and routed.active is not None:
        inner = _widest(model, Role.ROUTED_EXPERTS)
        assert inner is not None, "an expert has a width"
        terms.append(routed.active[0] * (ceil_div(3 * inner, tp) + model.hidden_size))
    return (tokens * total(terms, unit=NUMBER) * _TWO).as_step("O_f", "activations of a forward pass")


def _widest(model: Model, role: Role) -> Q | None:
    rows = [p.rows for p in model.parts if p.role is role and p.columns is not None and p.shard.value == "column"]
    return max(rows, key=int) if rows else None


def _sampling(model: Model, sequences: Q, known: Constants) -> Q:
    """Logits in 16 and 32 bit and what sampling makes of them."""
    if model.vocab_size is None:
        return Q(0, BYTE, "const")
    return (sequences * model.vocab_size * known.number("logit_bytes")).as_step("O_v", "logits of one sampling pass")


def _graphs(known: Constants, *, eager: bool) -> tuple[Q, Q, Q]:
    """CUDA graphs: low, likely and high; nothing where none are captured or counted."""
    if eager:
        none = fact(0, BYTE, symbol="O_g", name="CUDA graphs", origin="none are captured, or this version does not count them")
        return none, none, none
    return known.number("graphs_low"), known.number("graphs_likely"), known.number("graphs_high")
