"""The catalogue as rows of plain values, as `gpufit catalogue` lists and prints it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpufit.formats.gguf_mixes import GGUF_MIXES
from gpufit.formats.weights import WEIGHT_FORMATS
from gpufit.sources.catalogue import entries, names_of
from gpufit.sources.gpus import gpu_of, gpu_rows
from gpufit.sources.instances import instances

Row = dict[str, Any]


def listing(sections: Iterable[str], text: str | None) -> dict[str, list[Row]]:
    """The rows of each section that have `text` in one of their names (all rows without a text)."""
    makers = {"models": _models, "gpus": _gpus, "instances": _instances, "formats": _formats}
    return {name: [row for names, row in makers[name]() if _has(names, text)] for name in sections}


def every_device(*, slices: bool) -> list[str]:
    """The ids of all GPUs that a server can hold several of; with `slices` those of GPU slices and unified-memory parts too."""
    return [row.id for row in gpu_rows() if slices or row.kind == "device"]


def _has(names: Iterable[str], text: str | None) -> bool:
    return not text or any(text.lower() in n.lower() for n in names)


def _models() -> list[tuple[tuple[str, ...], Row]]:
    return [
        (
            (e.name, *names_of(e)),
            {
                "model": e.id,
                "slug": e.slug,
                "name": e.name,
                "aliases": e.aliases,
                "parameters": e.parameters.total,
                "active_parameters": e.parameters.active,
                "vision_parameters": e.parameters.vision,
                "published": e.published,
                "source": e.source,
                "parameters_source": e.parameters.source,
                "checked": e.checked.isoformat(),
            },
        )
        for e in entries()
    ]


def _gpus() -> list[tuple[tuple[str, ...], Row]]:
    found = []
    for row in gpu_rows():
        gpu = gpu_of(row)
        found.append(
            (
                (row.id, row.name, row.nvidia_smi_name or "", *row.aliases),
                {
                    "gpu": row.id,
                    "name": row.name,
                    "aliases": row.aliases,
                    "memory_bytes": int(gpu.memory),
                    "memory_basis": gpu.memory_basis,
                    "allocator_total_bytes": None if gpu.allocator_total is None else int(gpu.allocator_total),
                    "architecture": row.architecture,
                    "compute_capability": row.compute_capability,
                    "bandwidth_gb_s": row.bandwidth_gb_s,
                    "fp8": row.fp8,
                    "fp4": row.fp4,
                    "gpus_per_node": row.gpus_per_node,
                    "source": row.memory_source,
                    "sightings": row.memory_sightings,
                    "checked": row.checked.isoformat(),
                    "notes": row.notes,
                },
            )
        )
    return found


def _instances() -> list[tuple[tuple[str, ...], Row]]:
    return [
        (
            (i.name, i.gpu, i.cloud),
            {
                "instance": i.name,
                "cloud": i.cloud,
                "gpu": i.gpu,
                "count": i.count,
                "share": i.share,
                "source": i.source,
                "checked": i.checked.isoformat(),
                "note": i.note,
            },
        )
        for i in instances()
    ]


def _formats() -> list[tuple[tuple[str, ...], Row]]:
    plain = [
        (
            (f.name, f.title),
            {
                "format": f.name,
                "title": f.title,
                "bits_per_parameter": float(f.bits_per_param()),
                "keeps_embeddings_at_16_bit": f.keeps_embeddings,
                "embeddings_and_head": "16 bit" if f.keeps_embeddings else "same",
                "source": f.source,
            },
        )
        for f in WEIGHT_FORMATS.values()
    ]
    mixes = [
        (
            (m.name, "gguf", m.base),
            {
                "format": m.name,
                "title": f"GGUF mix of llama.cpp, mostly {m.base}",
                "bits_per_parameter": m.bits,
                "keeps_embeddings_at_16_bit": m.base == "F16",
                "embeddings_and_head": "same" if m.base in ("F16", "Q8_0", "Q6_K") else "by the rule",
                "source": f"GGUF, {m.base}: {m.rule}",
            },
        )
        for m in GGUF_MIXES.values()
    ]
    return [*plain, *mixes]
