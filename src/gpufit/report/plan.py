"""Plans as JSON and as plain rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gpufit.report.result import concurrency_json, placement_json, plain
from gpufit.report.rows import Row
from gpufit.sizing.plan import Plan
from gpufit.sizing.question import Question

Rentable = Sequence[tuple[str, str, int]]
"""Cloud instances as (name, GPU id, GPUs)."""


def fitting_instances(plan: Plan, rentable: Rentable) -> list[tuple[str, int]]:
    """The cloud instances of a plan's GPU, each with how many of it the plan takes, fewest left over first.

    A replica must stand inside one instance, unless it crosses nodes anyway.
    """
    inside = plan.placement.gpus // int(plan.placement.pipeline_parallel)
    found = [
        (name, -(-plan.hardware.count // each), each)
        for name, gpu, each in rentable
        if gpu == plan.hardware.gpu.id and each % inside == 0
    ]
    return [(name, times) for name, times, each in sorted(found, key=lambda i: (i[1] * i[2], i[1], len(i[0]), i[0]))]


def plan_result(question: Question, concurrency: int, plans: Iterable[Plan], rentable: Rentable) -> dict[str, Any]:
    """`gpufit.plan/1`."""
    w, engine = question.workload, question.engine
    share = w.utilization or engine.utilization()
    return {
        "schema": "gpufit.plan/1",
        "question": {
            "model": question.model.id,
            "slug": question.model.slug,
            "context": None if w.context is None else int(w.context),
            "concurrency": concurrency,
            "weights": question.weights,
            "kv_cache_dtype": w.kv_cache_dtype or "auto",
            "gpu_memory_utilization": plain(share.value),
            "engine": engine.name if engine.version is None else f"{engine.name}@{engine.version}",
        },
        "plans": [
            {
                "gpu": p.hardware.gpu.id,
                "count": p.hardware.count,
                "servers": p.servers,
                "memory_bytes": p.memory,
                "weights": {"format": p.capacity.weights.format, "bytes": int(p.capacity.weights.bytes)},
                "placement": placement_json(p.placement, p.hardware, p.replicas),
                "concurrency": concurrency_json(p.capacity, int(p.total)),
                "instances": [{"instance": name, "count": times} for name, times in fitting_instances(p, rentable)],
            }
            for p in plans
        ],
    }


def plan_rows(plans: Iterable[Plan]) -> list[Row]:
    """One row a plan."""
    return [
        {
            "gpu": p.hardware.gpu.id,
            "count": p.hardware.count,
            "servers": p.servers,
            "memory_bytes": p.memory,
            "weights": p.capacity.weights.format,
            "tensor_parallel": int(p.placement.tensor_parallel),
            "pipeline_parallel": int(p.placement.pipeline_parallel),
            "replicas": int(p.replicas),
            "concurrency_per_replica": None if p.capacity.unlimited else int(p.capacity.per_replica),
            "concurrency_total": None if p.capacity.unlimited else int(p.total),
        }
        for p in plans
    ]
