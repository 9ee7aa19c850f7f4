"""Answers as versioned JSON objects: integers for bytes, units in the names, null for what is not known."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from gpufit.engines.base import Capacity, EnginePolicy
from gpufit.hardware import Hardware
from gpufit.model import Model
from gpufit.placement import Placement
from gpufit.quantity import Number, Q
from gpufit.sizing.question import Answer
from gpufit.workload import Workload

if TYPE_CHECKING:
    from gpufit.derivation import Step
    from gpufit.sizing.cost import CacheCost

Json = dict[str, Any]


def to_json(value: Json) -> str:
    """The text of one JSON object, with its newline."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _int(value: Q | None) -> int | None:
    return None if value is None else int(value)


def plain(value: Number) -> int | float:
    """A value as JSON can hold it: integers stay integers; an exact decimal becomes the nearest float."""
    return float(value) if isinstance(value, Fraction) else value


def fit_result(
    answers: Sequence[Answer], hardware: Iterable[Hardware], workload: Workload, engine: EnginePolicy, *, notes: Iterable[str] = ()
) -> Json:
    """`gpufit.fit/1`."""
    share = workload.utilization or engine.utilization()
    return {
        "schema": "gpufit.fit/1",
        "question": {
            "context": _int(workload.context),
            "gpu_memory_utilization": plain(share.value),
            "engine": engine.name if engine.version is None else f"{engine.name}@{engine.version}",
            "kv_cache_dtype": workload.kv_cache_dtype or "auto",
            **_fixed(answers, engine),
            "min_concurrency": workload.min_concurrency,
            "notes": list(notes),
        },
        "hardware": [_hardware(h) for h in hardware],
        "models": [_answer(a) for a in answers],
    }


def _fixed(answers: Sequence[Answer], engine: EnginePolicy) -> Json:
    """What the question fixed beside the workload, the same for every model; null where the placement rule or the engine chooses."""
    asked = answers[0].question if answers else None
    flags = getattr(engine, "flags", None)
    return {
        "weights": asked.weights if asked is not None else None,
        "tensor_parallel": asked.tensor_parallel if asked is not None else None,
        "pipeline_parallel": asked.pipeline_parallel if asked is not None else None,
        "data_parallel": asked.data_parallel if asked is not None else None,
        "max_num_seqs": _int(getattr(flags, "max_num_seqs", None)),
        "max_num_batched_tokens": _int(getattr(flags, "max_num_batched_tokens", None)),
        "engine_flags": list(engine.serve_flags()),
    }


def _hardware(h: Hardware) -> Json:
    return {
        "gpu": h.gpu.id,
        "name": h.gpu.name,
        "count": h.count,
        "memory_bytes": int(h.gpu.memory),
        "memory_basis": h.gpu.memory_basis,
        "allocator_total_bytes": _int(h.gpu.allocator_total),
        "architecture": h.gpu.architecture,
        "compute_capability": h.gpu.compute_capability,
        "bandwidth_gb_s": h.gpu.bandwidth_gb_s,
        "gpus_per_node": h.gpus_per_node,
        "instance": h.instance,
        "notes": list(h.notes),
    }


def parameters(model: Model) -> Json:
    """The counts of a model."""
    return {"total": int(model.total_params), "active": _int(model.active_params), "vision": _int(model.vision_params)}


def placement_json(placement: Placement, hardware: Hardware, replicas: Q | None) -> Json:
    """Where a replica stands."""
    return {
        "gpu": hardware.gpu.id,
        "tensor_parallel": int(placement.tensor_parallel),
        "pipeline_parallel": int(placement.pipeline_parallel),
        **({"data_parallel": int(placement.data_parallel)} if placement.data_parallel is not None else {}),
        "replicas": _int(replicas),
    }


def concurrency_json(capacity: Capacity, total: int) -> Json:
    """Sequences of one replica and of all; null where the weights fit and no cache limits them."""
    if capacity.unlimited and capacity.fits:
        return {"per_replica": None, "total": None}
    return {"per_replica": int(capacity.per_replica), "total": total}


def _answer(a: Answer) -> Json:
    model, capacity = a.question.model, a.capacity
    found: Json = {
        "model": model.id,
        "slug": model.slug,
        "fits": a.fits,
        "reason": a.reason or None,
        "parameters": parameters(model),
        "weights": None,
        "placement": None,
        "kv_cache": None,
        "concurrency": {"per_replica": 0, "total": 0},
        "warnings": [*a.warnings, *(capacity.remarks if capacity is not None else ())],
        "short_by_bytes_per_gpu": a.short_by or None,
        "changes": [{"what": c.what, "option": c.option, "total_concurrency": c.sequences} for c in a.changes],
    }
    engine = a.question.engine
    if engine.version is not None:
        # A model that the engine refuses has the same keys: a script may read them of every model.
        found["engine"] = {"name": engine.name, "version": engine.version, **dict.fromkeys(_ENGINE_FIGURES)}
    if capacity is None or a.placement is None:
        return found
    per_token = a.bytes_per_token
    found["weights"] = {
        "format": capacity.weights.format,
        "published": capacity.weights.published,
        "bytes": int(capacity.weights.bytes),
        "bytes_per_gpu": int(capacity.weights_per_gpu),
    }
    found["placement"] = placement_json(a.placement, a.hardware, a.replicas)
    found["kv_cache"] = {
        "dtype": capacity.cache.name,
        "context": int(capacity.context),
        "bytes_per_token": _int(per_token),
        "bytes_per_sequence": int(capacity.sequence_bytes),
        "bytes_per_sequence_per_gpu": int(capacity.sequence_bytes_per_gpu),
        "pool_bytes_per_gpu": int(capacity.pool),
    }
    found["concurrency"] = concurrency_json(capacity, a.total_sequences)
    if capacity.details:
        found["engine"] = {name: int(v) if isinstance(v, Q) else v for name, v in capacity.details.items()}
    return found


_ENGINE_FIGURES = (
    "requested_bytes", "overhead_bytes", "overhead_low_bytes", "overhead_high_bytes", "kv_cache_bytes", "block_bytes", "blocks",
    "blocks_per_request", "kv_cache_tokens", "max_concurrency", "max_concurrency_low_overhead", "max_concurrency_high_overhead",
)  # fmt: skip
"""Figures that every model has under an engine of its own rules; null where it would not start."""


def kv_result(costs: Iterable[CacheCost]) -> Json:
    """`gpufit.kv/1`."""
    return {"schema": "gpufit.kv/1", "models": [_cost(c) for c in costs]}


def _cost(c: CacheCost) -> Json:
    m = c.model
    return {
        "model": m.id,
        "slug": m.slug,
        "layers": int(m.num_layers),
        "attention_heads": _int(m.attention_heads),
        "kv_heads": _int(m.kv_heads),
        "head_dim": _int(m.head_dim),
        "parameters": parameters(m),
        "max_context": _int(m.max_context),
        "tensor_parallel": c.tensor_parallel,
        "kv_cache": {
            "dtype": c.cache.name,
            "bytes_per_token": int(c.per_token),
            "bytes_per_token_per_gpu": int(c.per_token_on_gpu),
            "bytes_per_token_past_windows": int(c.growing),
            "fixed_bytes_per_sequence": int(c.fixed),
        },
        "contexts": [
            {"context": int(n), "bytes_per_sequence": int(whole), "bytes_per_sequence_per_gpu": int(here)}
            for n, whole, here in c.per_sequence
        ],
        "kinds": [
            {
                "kind": k.kind.kind,
                "layers": int(k.layers),
                "bytes_per_token_per_layer_per_gpu": _int(k.per_token),
                "fixed_bytes_per_layer_per_gpu": _int(k.fixed),
                **{name: int(v) for name in _SHAPES if isinstance(v := getattr(k.kind, name, None), Q)},
            }
            for k in c.kinds
        ],
        "assumptions": list(m.assumptions),
        "notes": list(m.notes),
    }


_SHAPES = (
    "kv_heads", "head_dim", "value_dim", "window", "chunk", "latent_rank", "rope_dim", "state_size", "heads", "groups", "kernel",
)  # fmt: skip
"""Fields of a layer kind that JSON repeats under their own names."""


def explain_result(model: Model | None, steps: Iterable[Step]) -> Json:
    """`gpufit.explain/1`."""
    return {
        "schema": "gpufit.explain/1",
        "model": None if model is None else model.id,
        "steps": [
            {
                "id": s.id,
                "symbol": s.symbol,
                "name": s.name,
                "unit": s.unit,
                "value": plain(s.value),
                "formula": s.formula or None,
                "substitution": s.substitution or None,
                "inputs": list(s.inputs),
                "origin": s.origin or None,
                "note": s.note or None,
            }
            for s in steps
        ],
    }
