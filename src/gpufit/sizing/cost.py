"""What the cache of one sequence costs, without any hardware: the answer of `gpufit kv`."""

from __future__ import annotations

from dataclasses import dataclass

from gpufit.engines.arithmetic import bytes_per_token, fixed_bytes, growing_bytes_per_token, layer_count, sequence_bytes
from gpufit.errors import UsageError
from gpufit.formats.cache import CACHE_FORMATS, CacheFormat
from gpufit.layers.base import LayerKind
from gpufit.model import LayerGroup, Model
from gpufit.placement import legal_tensor_degrees, placed, tensor_reason
from gpufit.quantity import TOKEN_PER_SEQUENCE, Q, fact

_USUAL = (1024, 8 * 1024, 32 * 1024, 128 * 1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class KindCost:
    """The layers of one kind and what each costs: `per_token` on one GPU, `fixed` whatever the length; None where there is none."""

    kind: LayerKind
    layers: Q
    per_token: Q | None
    fixed: Q | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheCost:
    """The cost of one model's cache. `growing` is what a token costs past every window.
    `per_sequence` pairs contexts (token/sequence) with B/sequence of the whole model."""

    model: Model
    cache: CacheFormat
    tensor_parallel: int
    per_token: Q
    per_token_on_gpu: Q
    growing: Q
    fixed: Q
    kinds: tuple[KindCost, ...]
    per_sequence: tuple[tuple[Q, Q, Q], ...]


def cache_cost(
    model: Model, *, dtype: str | None, tp: int, contexts: tuple[Q | None, ...] | None, skip_too_long: bool = False
) -> CacheCost:
    """The cost of a model's cache in a dtype (None: the checkpoint's own), for the whole model and for one of `tp` GPUs.

    Without `contexts` the usual ones up to the model's limit are taken, and the limit. None among them stands for the limit. Raises
    `UsageError` for a degree whose heads do not divide and for a context beyond the limit, unless `skip_too_long` leaves that one out.
    """
    reason = tensor_reason(model, tp)
    if reason is not None:
        legal = ", ".join(map(str, legal_tensor_degrees(model, 64)))
        raise UsageError(f"{model.slug} cannot be split over {tp} GPUs: {reason}", hint=f"legal degrees up to 64: {legal}")
    declared = model.published.kv_cache_dtype
    cache = CACHE_FORMATS[
        dtype or (declared if declared in CACHE_FORMATS else None) or ("fp16" if model.dtype == "fp16" else "bf16")
    ]
    one = placed(1, tp_origin="the whole model").tensor_parallel
    split = placed(tp, tp_origin="--tensor-parallel-size").tensor_parallel
    kinds = tuple(
        KindCost(
            kind=group.kind,
            layers=layer_count(model, group),
            per_token=group.kind.bytes_per_token(split, cache),
            fixed=group.kind.fixed_bytes(split, cache),
        )
        for group in _merged(model.layers)
    )
    return CacheCost(
        model=model,
        cache=cache,
        tensor_parallel=tp,
        per_token=bytes_per_token(model, one, cache),
        per_token_on_gpu=bytes_per_token(model, split, cache),
        growing=growing_bytes_per_token(model, one, cache),
        fixed=fixed_bytes(model, one, cache),
        kinds=kinds,
        per_sequence=tuple(
            (n, sequence_bytes(model, n, one, cache), sequence_bytes(model, n, split, cache))
            for n in _contexts(model, contexts, skip_too_long)
        ),
    )


def _merged(groups: tuple[LayerGroup, ...]) -> tuple[LayerGroup, ...]:
    """The groups with those that keep nothing joined by kind: which layer they share with is no cost of theirs."""
    found: list[LayerGroup] = []
    for group in groups:
        place = next((i for i, f in enumerate(found) if f.kind.kind == group.kind.kind and group.kind.kind in ("none", "shared")), None)
        if place is None:
            found.append(group)
        else:
            found[place] = LayerGroup(kind=group.kind, indices=tuple(sorted((*found[place].indices, *group.indices))))
    return tuple(found)


def _contexts(model: Model, asked: tuple[Q | None, ...] | None, skip_too_long: bool) -> tuple[Q, ...]:
    limit = model.max_context
    if asked is None:
        usual = [fact(n, TOKEN_PER_SEQUENCE, symbol="n", name="context length", origin="usual contexts") for n in _USUAL]
        kept = [n for n in usual if limit is None or n < limit]
        return (*kept, limit) if limit is not None else tuple(kept)
    found = []
    for n in asked:
        if n is None and limit is None:
            if skip_too_long:
                continue
            raise UsageError(f"{model.slug}: its config states no context limit", hint="name a number, as in --context 32k")
        chosen = n if n is not None else limit
        assert chosen is not None
        if limit is not None and chosen > limit:
            if skip_too_long:
                continue
            raise UsageError(
                f"{model.slug} holds at most {int(limit):,} tokens, asked for {int(chosen):,}", hint="--context max takes its limit"
            )
        found.append(chosen)
    return tuple(found)
