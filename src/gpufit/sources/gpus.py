"""The GPUs of gpus.toml: rows to facts, and the names by which people call them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from functools import cache
from typing import ClassVar, Literal

from gpufit.errors import UnknownGpuError
from gpufit.hardware import Gpu
from gpufit.quantity import BYTE, Q, fact
from gpufit.sources.toml_rows import build_row, raw_rows

FILE = "gpus.toml"
MIB = 2**20
GIB = 2**30

Tool = Literal[
    "nvidia-smi",
    "nvidia-smi mig -lgip",
    "amd-smi",
    "hl-smi",
    "torch",
    "hip",
    "vulkan",
    "cuda total only",
    "hip total only",
]

BASIS: dict[str, str] = {
    "nvidia-smi": "the total nvidia-smi prints",
    "nvidia-smi mig -lgip": "the size nvidia-smi mig -lgip lists",
    "amd-smi": "the total amd-smi and rocm-smi print",
    "hl-smi": "the total hl-smi prints",
    "torch": "the total torch reports",
    "hip": "the total HIP reports",
    "vulkan": "the size in a Vulkan device list",
    "cuda total only": "the total CUDA reports; nvidia-smi prints none for this part",
    "hip total only": "a total HIP reported; firmware and driver settings move it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRow:
    """One [[gpu]] of gpus.toml, under the names it has there; the head of that file says what each means."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    id: str
    name: str
    aliases: list[str]
    vendor: Literal["nvidia", "amd", "intel", "apple"]
    architecture: str
    fp8: bool
    fp4: bool
    memory_type: str
    marketed_gb: int
    interconnect: str
    gpus_per_node: int
    kind: Literal["device", "unified", "mig"]
    memory_tool: Tool
    memory_sightings: int
    memory_source: str
    checked: date
    nvidia_smi_name: str | None = None
    name_shared_with: str | None = None
    compute_capability: str | None = None
    gfx_name: str | None = None
    bandwidth_gb_s: int | float | None = None
    gpus_per_node_note: str | None = None
    memory_mib: int | None = None
    allocator_mib: int | None = None
    allocator_gib: float | None = None
    allocator_source: str | None = None
    notes: str = ""


def gpu_rows() -> tuple[GpuRow, ...]:
    """Every row of gpus.toml, for lists; a single GPU is cheaper by `find_gpu`."""
    return tuple(build_row(GpuRow, raw, FILE) for raw in raw_rows(FILE, "gpu"))


def load_gpus() -> tuple[Gpu, ...]:
    """Every GPU of the catalogue as facts, sorted by id."""
    return tuple(gpu_of(row) for row in gpu_rows())


def find_gpu(name: str) -> Gpu:
    """The GPU that an id, an alias or a printed name stands for, any case; UnknownGpuError when it stands for none or several."""
    row = find_row(name)
    if row is None:
        raise unknown_gpu((name,))
    return gpu_of(row)


@cache
def row_by_id(gpu_id: str) -> GpuRow | None:
    """The row with exactly this id."""
    for raw in raw_rows(FILE, "gpu"):
        if raw.get("id") == gpu_id:
            return build_row(GpuRow, raw, FILE)
    return None


def find_row(name: str) -> GpuRow | None:
    """The row that a name stands for, or None; UnknownGpuError when the name alone does not tell several parts apart."""
    exact = row_by_id(name.strip().lower())
    if exact is not None:
        return exact
    key = name_key(name)
    strong, printed = _names()
    gpu_id = strong.get(key)
    if gpu_id is not None:
        return row_by_id(gpu_id)
    candidates = printed.get(key, ())
    rows = [row for row in map(row_by_id, candidates) if row is not None]
    if not rows:
        return None
    if len(rows) == 1 and rows[0].name_shared_with is None:
        return rows[0]
    ids = ", ".join(row.id for row in rows)
    everyone = ids if len(rows) > 1 else f"{ids} and {rows[0].name_shared_with}"
    raise UnknownGpuError(
        f"'{name}' does not say which part: that name is printed by {everyone}",
        hint=f"name one by its id ({ids}), or give the memory yours has, as in --gpu 24564MiB",
    )


def rows_printing(name: str) -> tuple[GpuRow, ...]:
    """Every row whose tool prints this name, with or without the maker in front (old drivers leave it out)."""
    strong, printed = _names()
    key = name_key(name)
    found = [row for row in map(row_by_id, printed.get(key, ())) if row is not None]
    if not found and key in strong:
        # A name written as nvidia-smi prints it on another driver, such as A100-SXM4-40GB.
        row = row_by_id(strong[key])
        found = [row] if row is not None else []
    return tuple(found)


_MAKERS = frozenset({"nvidia", "geforce", "tesla", "amd", "radeon", "instinct", "intel"})
_SEPARATORS = str.maketrans({"-": " ", "_": " ", "/": " ", "(": " ", ")": " "})


def name_key(text: str) -> str:
    """A name with the maker, the case and the separators taken away: "NVIDIA GeForce RTX 4090" and rtx-4090 are one."""
    plain = text.lower().replace("(r)", " ").replace("(tm)", " ")
    words = plain.translate(_SEPARATORS).split()
    while words and words[0] in _MAKERS:
        words = words[1:]
    return "".join(words)


@cache
def _names() -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Keys of ids, aliases and catalogue names, each of one id; and keys of printed names, which several ids may share."""
    strong: dict[str, str] = {}
    printed: dict[str, tuple[str, ...]] = {}
    for raw in raw_rows(FILE, "gpu"):
        gpu_id = raw["id"]
        for name in (gpu_id, *raw.get("aliases", ()), raw.get("name", gpu_id)):
            strong[name_key(name)] = gpu_id
        if "nvidia_smi_name" in raw:
            key = name_key(raw["nvidia_smi_name"])
            printed[key] = (*printed.get(key, ()), gpu_id)
    return strong, printed


def unknown_gpu(names: tuple[str, ...], more_names: Iterable[str] = ()) -> UnknownGpuError:
    """The error for a name that nothing has, with the nearest ids and instance names.

    `names` are the ways to read what was typed; the error speaks of the one that comes nearest to something known.
    """
    others = tuple(more_names)
    scored = [(_scores(name, others), name) for name in names]
    near, name = max(scored, key=lambda item: max(item[0].values(), default=0.0))
    shown = _best(near)
    did_you_mean = f"did you mean {', '.join(shown)}? " if shown else ""
    return UnknownGpuError(
        f"no GPU or cloud instance is called '{name}'",
        hint=f"{did_you_mean}`gpufit catalogue gpus` lists what is known; a size of your own works too, as in --gpu 24564MiB",
    )


def nearest_names(name: str, more_names: Iterable[str] = ()) -> tuple[str, ...]:
    """Up to five ids or instance names that look like this one, best first; none where nothing does."""
    return _best(_scores(name, more_names))


# Below this likeness two names have little more than digits in common; a name that holds the other whole is far above it.
_LIKE = 0.65
_HOLDS = 0.5
_NEAR_BEST = 0.35


def _scores(name: str, more_names: Iterable[str]) -> dict[str, float]:
    """How like each known name is, by id or instance name, where it is like at all."""
    from difflib import SequenceMatcher

    wanted = name_key(name)
    if not wanted:
        return {}
    strong, printed = _names()
    spellings = [*strong.items(), *((key, gpu_id) for key, ids in printed.items() for gpu_id in ids)]
    spellings += [(name_key(other), other) for other in more_names]
    found: dict[str, float] = {}
    for key, shown in spellings:
        score = SequenceMatcher(None, wanted, key).ratio()
        if (len(wanted) > 1 and wanted in key) or (len(key) > 2 and wanted.startswith(key)):
            score += _HOLDS
        if score >= _LIKE:
            found[shown] = max(score, found.get(shown, 0.0))
    return found


def _best(scores: dict[str, float]) -> tuple[str, ...]:
    top = max(scores.values(), default=0.0)
    close = [shown for shown, score in scores.items() if score >= top - _NEAR_BEST]
    return tuple(sorted(close, key=lambda shown: (-scores[shown], shown))[:5])


def gpu_of(row: GpuRow) -> Gpu:
    """The facts of one row, memory in bytes with the figure it came from as origin."""
    allocator = _allocator_total(row)
    memory = allocator
    if row.memory_mib is not None:
        memory = fact(
            row.memory_mib * MIB,
            BYTE,
            symbol="M",
            name="memory of one GPU",
            origin=f"{FILE}: {row.id}.memory_mib ({row.memory_mib:,} MiB)",
        )
    elif allocator is not None:
        memory = fact(allocator.value, BYTE, symbol="M", name="memory of one GPU", origin=allocator.origin)
    if memory is None:
        raise UnknownGpuError(f"no memory figure of {row.id} has been seen", hint="give its size, as in --gpu 24564MiB")
    return Gpu(
        id=row.id,
        name=row.name,
        vendor=row.vendor,
        architecture=row.architecture,
        compute_capability=row.compute_capability,
        gfx_name=row.gfx_name,
        fp8=row.fp8,
        fp4=row.fp4,
        memory=memory,
        memory_basis=BASIS[row.memory_tool],
        allocator_total=allocator,
        marketed_gb=row.marketed_gb,
        bandwidth_gb_s=row.bandwidth_gb_s,
        interconnect=row.interconnect,
        gpus_per_node=row.gpus_per_node,
        kind=row.kind,
        notes=row.notes,
    )


def _allocator_total(row: GpuRow) -> Q | None:
    """What CUDA or HIP reports for this part, if it was seen; a rounded figure is floored to bytes and says that it is rounded."""
    if row.allocator_mib is not None:
        size, origin = row.allocator_mib * MIB, f"{FILE}: {row.id}.allocator_mib ({row.allocator_mib:,} MiB)"
    elif row.allocator_gib is not None:
        size = int(Fraction(str(row.allocator_gib)) * GIB)
        origin = f"{FILE}: {row.id}.allocator_gib ({row.allocator_gib} GiB, a rounded figure)"
    else:
        return None
    return fact(size, BYTE, symbol="M_a", name="memory an allocator sees", origin=origin)
