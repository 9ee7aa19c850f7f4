"""The GPUs of this machine, as nvidia-smi lists them."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, replace

from gpufit.errors import UsageError
from gpufit.hardware import Gpu, Hardware
from gpufit.quantity import BYTE, Q, fact
from gpufit.sources.gpus import MIB, GpuRow, gpu_of, name_key, rows_printing

QUERY = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
MIG_QUERY = ("nvidia-smi", "--query-gpu=mig.mode.current", "--format=csv,noheader")
PATIENCE_SECONDS = 10
NAME_IT = "name the hardware instead, as in --gpu h100-sxm:4 or --gpu 24564MiB:2"

# ECC takes 1/16 of a GDDR board and old drivers print up to 3 % less, so one part stays within 8 % of its figure; editions of
# one name (10 and 12 GB, 24 and 48 GB) lie 16 % and more apart.
SAME_EDITION_PER_CENT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One line of nvidia-smi: a name, and the total in MiB where it prints one."""

    name: str
    memory_mib: int | None


def local_hardware() -> tuple[Hardware, ...]:
    """What this machine holds, equal GPUs together in the order nvidia-smi lists them; UsageError where that cannot be told."""
    seen = parse_listing(_output(QUERY))
    if not seen:
        raise UsageError("nvidia-smi lists no GPU on this machine", hint=NAME_IT)
    if any("enabled" in line.lower() for line in _output(MIG_QUERY, optional=True).splitlines()):
        raise UsageError(
            "a GPU of this machine is cut into MIG slices, and nvidia-smi's total is that of the whole GPU",
            hint="name the slice, as in --gpu h100-80-mig-3g.40gb; `gpufit catalogue gpus mig` lists them",
        )
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    hidden = () if visible is None else (f"CUDA_VISIBLE_DEVICES={visible} is not looked at: every GPU of the machine is counted",)
    counted: dict[Seen, int] = {}
    for one in seen:
        counted[one] = counted.get(one, 0) + 1
    found = []
    for one, count in counted.items():
        gpu, notes = local_gpu(one)
        found.append(Hardware(gpu=gpu, count=count, gpus_per_node=count, notes=(*notes, *hidden)))
    return tuple(found)


def parse_listing(text: str) -> tuple[Seen, ...]:
    """The lines of `nvidia-smi --query-gpu=name,memory.total --format=csv,noheader,nounits`; a line of another form is an error."""
    seen = []
    for line in text.splitlines():
        if not line.strip():
            continue
        name, comma, total = (part.strip() for part in line.rpartition(","))
        digits = total.removesuffix("MiB").strip()
        if digits.isascii() and digits.isdigit() and int(digits) > 0:
            memory_mib: int | None = int(digits)
        elif total.startswith("[") and total.endswith("]"):
            memory_mib = None
        else:
            raise UsageError(f"nvidia-smi printed a line that is no GPU: '{line.strip()}'", hint=NAME_IT)
        if not name or not comma:
            raise UsageError(f"nvidia-smi printed a line without a name: '{line.strip()}'", hint=NAME_IT)
        seen.append(Seen(name=name, memory_mib=memory_mib))
    return tuple(seen)


def local_gpu(seen: Seen) -> tuple[Gpu, tuple[str, ...]]:
    """One GPU of this machine: the memory is what nvidia-smi prints here, the rest is the catalogue's where the name has a row.

    The allocator's total is taken over only when the printed total is the catalogue's own, since it moves with ECC and the driver.
    """
    rows = rows_printing(seen.name)
    if seen.memory_mib is None:
        with_total = [row for row in rows if row.memory_mib is None and row.name_shared_with is None]
        if len(with_total) != 1:
            raise UsageError(f"nvidia-smi prints no memory total for {seen.name}", hint="give its size, as in --gpu 96GiB")
        gpu = gpu_of(with_total[0])
        return gpu, (f"nvidia-smi prints no memory total for {seen.name}; the figure is the catalogue's: {gpu.memory_basis}",)
    memory = fact(
        seen.memory_mib * MIB,
        BYTE,
        symbol="M",
        name="memory of one GPU",
        origin=f"nvidia-smi of this machine: {seen.name} ({seen.memory_mib:,} MiB)",
    )
    basis = "the total nvidia-smi prints on this machine"
    row = _edition(rows, seen.memory_mib)
    if row is not None:
        known = gpu_of(row)
        if row.memory_mib == seen.memory_mib:
            return replace(known, memory=memory, memory_basis=basis), ()
        here = f"nvidia-smi prints {seen.memory_mib:,} MiB here"
        said = f"{here}, the catalogue has {row.memory_mib:,} for {row.id} (ECC or another driver)"
        return replace(known, memory=memory, memory_basis=basis, allocator_total=None), (said,)
    return _uncatalogued(seen, rows, memory_basis=basis, bare=memory)


def _edition(rows: tuple[GpuRow, ...], memory_mib: int) -> GpuRow | None:
    """The row whose own total is nearest, if near enough to be the same product."""
    known = [(abs(row.memory_mib - memory_mib), row.id, row) for row in rows if row.memory_mib is not None]
    if not known:
        return None
    gap, _, row = min(known)
    return row if gap * 100 <= SAME_EDITION_PER_CENT * max(memory_mib, row.memory_mib or 0) else None


def _uncatalogued(seen: Seen, rows: tuple[GpuRow, ...], *, memory_basis: str, bare: Q) -> tuple[Gpu, tuple[str, ...]]:
    """A GPU that no row describes: its printed name and memory, and of the rows of that name only what the chip decides."""
    architectures = {(row.vendor, row.architecture, row.compute_capability, row.fp8, row.fp4) for row in rows}
    same_chip = rows[0] if len(architectures) == 1 else None
    gpu = Gpu(
        id=name_key(seen.name) or "local",
        name=seen.name,
        vendor="nvidia",
        architecture=same_chip.architecture if same_chip else None,
        compute_capability=same_chip.compute_capability if same_chip else None,
        gfx_name=None,
        fp8=same_chip.fp8 if same_chip else None,
        fp4=same_chip.fp4 if same_chip else None,
        memory=bare,
        memory_basis=memory_basis,
        allocator_total=None,
        marketed_gb=None,
        bandwidth_gb_s=None,
        interconnect=None,
        gpus_per_node=1,
        kind="device",
        notes="",
    )
    if same_chip:
        missing = f"the catalogue has no {seen.name} with {seen.memory_mib:,} MiB"
        note = f"{missing}: architecture taken from {same_chip.id}, the rest not known"
    else:
        note = f"{seen.name} is not in the catalogue: only its memory is known, not its architecture"
    return gpu, (note,)


def _output(command: tuple[str, ...], *, optional: bool = False) -> str:
    """What nvidia-smi prints. A failure of an optional call is an empty text, otherwise a UsageError that says what happened."""
    cause: Exception | None = None
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=PATIENCE_SECONDS, check=False)
    except FileNotFoundError as error:
        failure, cause = "nvidia-smi is not on this machine, so its GPUs cannot be listed", error
    except subprocess.TimeoutExpired as timeout:
        failure, cause = f"nvidia-smi gave no answer within {PATIENCE_SECONDS} seconds", timeout
    except OSError as refused:
        failure, cause = f"nvidia-smi cannot be run: {refused.strerror}", refused
    else:
        if done.returncode == 0:
            return done.stdout
        said = (done.stdout.strip() or done.stderr.strip()).splitlines()
        failure = f"nvidia-smi failed with code {done.returncode}: {said[0] if said else 'it said nothing'}"
    if optional:
        return ""
    raise UsageError(failure, hint=NAME_IT) from cause
