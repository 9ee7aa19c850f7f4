"""The strict schema of gpus.toml and instances.toml. Imports pydantic, so only a broken file and the tests come here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from itertools import pairwise
from typing import Any

from pydantic import TypeAdapter, ValidationError

from gpufit.sources import gpus, instances
from gpufit.sources.toml_rows import Raw, raw_rows

GPU_ROWS = TypeAdapter(list[gpus.GpuRow])
INSTANCE_ROWS = TypeAdapter(list[instances.Instance])
_ABOVE_ZERO = (
    "memory_mib",
    "allocator_mib",
    "allocator_gib",
    "marketed_gb",
    "bandwidth_gb_s",
    "gpus_per_node",
    "memory_sightings",
)


def file_problems(file: str) -> list[str]:
    """Every problem of one data file, each with the row and the key it is about; an empty list for a sound file."""
    if file == gpus.FILE:
        rows = raw_rows(file, "gpu")
        return [
            *row_problems(GPU_ROWS, rows, "id"),
            *(p for raw in rows for p in _gpu_rules(raw)),
            *_order(rows, ("id",)),
        ]
    rows = raw_rows(file, "instance")
    return [
        *row_problems(INSTANCE_ROWS, rows, "name"),
        *(p for raw in rows for p in _instance_rules(raw)),
        *_order(rows, ("cloud", "name")),
    ]


def row_problems(adapter: TypeAdapter[Any], rows: tuple[Raw, ...], label: str) -> list[str]:
    """What the row type itself refuses: keys missing or unknown, values of another type, words outside a list."""
    # As JSON, because strict mode takes a mapping for a dataclass only there.
    as_json = json.dumps(rows, default=str)
    try:
        adapter.validate_json(as_json, strict=True)
    except ValidationError as error:
        return [_sentence(item["loc"], item["msg"], rows, label) for item in error.errors()]
    return []


def _sentence(where: tuple[int | str, ...], what: str, rows: tuple[Raw, ...], label: str) -> str:
    at = where[0] if where else 0
    row = rows[at].get(label, f"row {at}") if isinstance(at, int) else at
    return f"{row}.{'.'.join(str(part) for part in where[1:])}: {what}"


def _gpu_rules(raw: Raw) -> Iterator[str]:
    """What the types cannot say of one GPU."""
    gpu = raw.get("id", "?")
    if "memory_mib" not in raw and "allocator_mib" not in raw and "allocator_gib" not in raw:
        yield f"{gpu}: no memory figure; a part without a sighting has no row"
    if "allocator_mib" in raw and "allocator_gib" in raw:
        yield f"{gpu}: allocator_mib and allocator_gib both; one fact has one place"
    if ("allocator_mib" in raw or "allocator_gib" in raw) != ("allocator_source" in raw):
        yield f"{gpu}: an allocator figure and its allocator_source come together"
    for key in _ABOVE_ZERO:
        if key in raw and not raw[key] > 0:
            yield f"{gpu}.{key}: {raw[key]} is not above zero; leave an unknown out"
    yield from _texts(gpu, raw, ("name", "memory_source", "architecture"))
    yield from _dates(gpu, raw)


def _instance_rules(raw: Raw) -> Iterator[str]:
    """What the types cannot say of one instance."""
    name = raw.get("name", "?")
    if ("count" in raw) == ("share" in raw):
        yield f"{name}: count or share, one of them"
    if "count" in raw and not raw["count"] > 0:
        yield f"{name}.count: {raw['count']} is not above zero"
    yield from _texts(name, raw, ("name", "gpu", "source"))
    yield from _dates(name, raw)


def _texts(row: str, raw: Raw, keys: tuple[str, ...]) -> Iterator[str]:
    for key in keys:
        if not str(raw.get(key, "")).strip():
            yield f"{row}.{key}: empty"


def _dates(row: str, raw: Raw) -> Iterator[str]:
    checked = raw.get("checked")
    if not isinstance(checked, date):
        yield f"{row}.checked: a TOML date, as in checked = 2026-11-01"
    elif checked > date.today():
        yield f"{row}.checked: {checked} lies in the future"


def _order(rows: tuple[Raw, ...], keys: tuple[str, ...]) -> Iterator[str]:
    """Rows out of order, or twice."""
    labels = [tuple(str(raw.get(key, "")) for key in keys) for raw in rows]
    for before, after in pairwise(labels):
        if before >= after:
            yield f"{' '.join(after)}: {'twice' if before == after else 'out of order, after ' + ' '.join(before)}"
