"""Blocks of one sequence: how many block ids of the pool a request of a given length is charged for, group by group.

Source: vLLM 0.33.0, v1/kv_cache_interface.py (max_memory_usage_bytes of each spec) and config/vllm.py (max_in_flight_tokens).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpufit.engines.vllm.groups import Group
from gpufit.engines.vllm.specs import BLOCK_PER_SEQUENCE, GROWING, WINDOWED, CacheSpec, SpecKind
from gpufit.quantity import TOKEN_PER_SEQUENCE, Q, ceil_div, fact, largest, least, total


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What the block count of a request depends on beside its length.

    `in_flight` (token/sequence): tokens scheduled whose old blocks are not yet freed. `encoder` (token/sequence): encoder tokens that
    cross attention is charged for. `retained` (token/sequence): tokens below a window kept for multi-layer drafts, or None.
    `context_parallel`: decode context parallel degree, None for 1.
    """

    in_flight: Q
    encoder: Q
    retained: Q | None = None
    context_parallel: Q | None = None


_ONE_BLOCK = fact(
    1,
    BLOCK_PER_SEQUENCE,
    symbol="e",
    name="block more, since a window may begin inside one",
    origin="vLLM kv_cache_interface.py SlidingWindowSpec",
)
_ONE_TOKEN = fact(
    1,
    TOKEN_PER_SEQUENCE,
    symbol="t",
    name="token being computed, which the window counts",
    origin="vLLM kv_cache_interface.py SlidingWindowSpec",
)


def spec_blocks(spec: CacheSpec, context: Q, terms: Admission) -> Q:
    """Block/sequence that a sequence of `context` tokens takes in a layer of this spec."""
    if spec.kind in GROWING:
        tokens = context
        if spec.sharded and terms.context_parallel is not None:
            tokens = ceil_div(context, terms.context_parallel).as_step("L_r", "tokens of the sequence on one context-parallel rank")
        return ceil_div(tokens, spec.block_size)
    if spec.kind in WINDOWED:
        assert spec.window is not None
        kept = spec.window - _ONE_TOKEN
        if terms.retained is not None:
            kept = kept + terms.retained
        held = least(kept + terms.in_flight, context).as_step(
            "n_w", f"tokens held in a {spec.title} layer: the window and what is in flight"
        )
        return ceil_div(held, spec.block_size) + _ONE_BLOCK
    if spec.kind is SpecKind.CHUNKED:
        assert spec.chunk is not None
        held = least(spec.chunk + terms.in_flight, context).as_step(
            "n_c", "tokens held in a chunked layer: the chunk and what is in flight"
        )
        return ceil_div(held, spec.block_size)
    if spec.kind is SpecKind.CROSS:
        return ceil_div(terms.encoder, spec.block_size)
    assert spec.state_blocks is not None
    return spec.state_blocks


def group_blocks(group: Group, context: Q, terms: Admission) -> Q:
    """Block/sequence of one group: the most that any of its specs asks for."""
    most = _most(group, context, terms)
    return most if most.symbol else most.as_step("n_b", f"blocks of one sequence in a group of {group.title} layers")


def _most(group: Group, context: Q, terms: Admission) -> Q:
    each = [spec_blocks(spec, context, terms) for spec in group.specs]
    distinct = list({q.value: q for q in each}.values())
    return distinct[0] if len(distinct) == 1 else largest(*distinct)


def blocks_per_request(groups: Sequence[Group], context: Q, terms: Admission) -> Q:
    """Block/sequence of a request of `context` tokens: all groups draw from one pool, so their blocks add up."""
    if len(groups) == 1:
        return _most(groups[0], context, terms).as_step("N_r", f"blocks of one request in the group of {groups[0].title} layers")
    counts: dict[tuple[object, ...], list[Q]] = {}
    for group in groups:
        counts.setdefault(tuple(s.identity() for s in group.specs), []).append(group_blocks(group, context, terms))
    summed = [same[0] if len(same) == 1 else len(same) * same[0] for same in counts.values()]
    return total(summed, unit=BLOCK_PER_SEQUENCE).as_step("N_r", "blocks of one request, all groups together")
