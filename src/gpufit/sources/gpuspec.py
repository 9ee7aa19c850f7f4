"""SPEC, the words by which people name hardware on the command line: `h100-sxm:4`, `4xH100`, `p5.48xlarge`, `local`, `80GiB:2`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from gpufit.errors import UnknownGpuError, UsageError
from gpufit.hardware import Gpu, Hardware
from gpufit.quantity import BYTE, fact
from gpufit.sources.gpus import find_row, gpu_of, gpu_rows, name_key, row_by_id, unknown_gpu

if TYPE_CHECKING:
    from gpufit.sources.instances import Instance

MAX_COUNT = 100_000
# No server of one's own is described by a bare size; eight is what most GPU servers hold at most.
NODE_OF_OWN_SIZE = 8
MAX_OWN_BYTES = 16 * 2**40

COUNT_FORMS = "a whole number from 1 to 100,000, as in h100-sxm:4 or 4xh100"
SIZE_FORMS = "a size with its unit, as in 24564MiB, 80GiB (binary) or 80GB (decimal)"

# Patterns as text, since compiling all three costs more than reading a SPEC and `h100-sxm:4` needs none of them.
_NUMBER = r"[+-]?[0-9][0-9.,_]*"
_COUNT_FIRST = rf"({_NUMBER})\s*[xX×*]\s*(\S.*)"
_COUNT_LAST = rf"(.*?\S)\s*[xX×*]\s*({_NUMBER})"
_SIZE = r"([+-]?[0-9]+(?:\.[0-9]+)?)\s*([mMgGtT](?:[iI]?[bB])?)"
_UNITS = {"mib": 2**20, "gib": 2**30, "tib": 2**40, "mb": 10**6, "gb": 10**9, "tb": 10**12}


def parse_spec(text: str) -> Hardware:
    """The hardware of one SPEC.

    UsageError for a count or size without meaning and for a machine whose GPUs differ; UnknownGpuError for a name that nothing
    has, or that several parts share.
    """
    found = parse_specs((text,))
    if len(found) > 1:
        each = " ".join(f"--gpu {part.gpu.id}:{part.count}" for part in found)
        raise UsageError("this machine holds GPUs of several kinds, which do not make one placement", hint=f"choose one of {each}")
    return found[0]


def parse_specs(texts: Iterable[str]) -> tuple[Hardware, ...]:
    """The hardware of several SPECs in order; `local` gives one entry for each kind of GPU in this machine."""
    return tuple(part for text in texts for part in _parsed(text.strip()))


@dataclass(frozen=True, slots=True)
class _Named:
    """What a name without its count stands for: `each` GPUs a time."""

    gpu: Gpu
    each: int
    gpus_per_node: int
    instance: str | None = None
    notes: tuple[str, ...] = ()

    def times(self, count: int, text: str) -> Hardware:
        gpus = self.each * count
        if gpus > MAX_COUNT:
            raise UsageError(f"'{text}' means {gpus:,} GPUs, more than {MAX_COUNT:,}", hint=f"the count is {COUNT_FORMS}")
        notes, node = self.notes, self.gpus_per_node
        if self.gpu.kind == "custom" and gpus > 1:
            notes = (*notes, f"a bare size does not say how many GPUs share a server: up to {NODE_OF_OWN_SIZE} are taken to")
        elif self.gpu.kind == "device" and self.instance is None and node < gpus <= NODE_OF_OWN_SIZE:
            # Whoever names three of a card that servers do not hold has them in one machine; slices of a GPU never join.
            node = gpus
            notes = (*notes, f"servers with {gpus} x {self.gpu.name} are not usual: all {gpus} are taken to be in one machine")
        return Hardware(gpu=self.gpu, count=gpus, gpus_per_node=node, instance=self.instance, notes=notes)


def _parsed(text: str) -> tuple[Hardware, ...]:
    if not text or text.startswith(":"):
        raise UsageError("no GPU is named", hint="as in --gpu h100-sxm:4, --gpu p5.48xlarge or --gpu 24564MiB:2")
    readings = tuple(_readings(text))
    for name, count in readings:
        if name.lower() == "local":
            return _local(None if count is None else _count(count, text), text)
    hits = []
    for name, count in readings:
        named = _named(name)
        if named is not None and count is None:
            return (named.times(1, text),)
        if named is not None and count is not None:
            hits.append((named, name, count))
    if len(hits) > 1:
        choices = " or ".join(f"{name}:{count}" for _, name, count in hits)
        raise UsageError(f"'{text}' can be read in two ways", hint=f"write {choices}")
    if not hits:
        from gpufit.sources.instances import instance_names

        raise unknown_gpu(tuple(name for name, _ in readings), instance_names())
    found, _, times = hits[0]
    return (found.times(_count(times, text), text),)


def _readings(text: str) -> Iterator[tuple[str, str | None]]:
    """Each way to part a SPEC into name and count, the whole as a name first (7900xtx is a name, not 7900 of something)."""
    name, colon, count = text.partition(":")
    if colon:
        yield name.strip(), count.strip()
        return
    yield text, None
    if first := re.fullmatch(_COUNT_FIRST, text):
        yield first[2].strip(), first[1]
    if last := re.fullmatch(_COUNT_LAST, text):
        yield last[1].strip(), last[2]


def _count(count: str, text: str) -> int:
    """A count as people write it; anything but 1 to MAX_COUNT is a UsageError."""
    if not (count.isascii() and count.isdigit()):
        what = f"'{count}' is not a count" if count else "the count is missing"
        raise UsageError(f"in '{text}' {what}", hint=f"the count is {COUNT_FORMS}")
    digits = count.lstrip("0")
    if not digits or len(digits) > len(str(MAX_COUNT)) or int(digits) > MAX_COUNT:
        raise UsageError(f"in '{text}' the count {count[:20]} is out of range", hint=f"the count is {COUNT_FORMS}")
    return int(digits)


def _named(name: str) -> _Named | None:
    """What a name stands for: a size of one's own, a catalogue GPU or a cloud instance; None when nothing has it."""
    if not name:
        return None
    if name[0] in "+-0123456789" and (size := re.fullmatch(_SIZE, name)):
        return _own_size(size[1], size[2], name)
    row = find_row(name)
    if row is not None:
        notes: tuple[str, ...] = ()
        if row.name_shared_with and row.nvidia_smi_name and name.lower() == row.nvidia_smi_name.lower():
            notes = (f"taken as {row.id}; {row.name_shared_with} prints the same name",)
        elif others := _other_sizes(name, row.id, row.marketed_gb):
            notes = (f"{name} is taken as {row.id} ({row.marketed_gb} GB); other sizes: {', '.join(others)}",)
        return _Named(gpu_of(row), 1, row.gpus_per_node, notes=notes)
    from gpufit.sources.instances import find_instance

    instance = find_instance(name)
    return None if instance is None else _rented(instance)


def _other_sizes(name: str, taken: str, marketed_gb: int) -> list[str]:
    """Parts of the same name in other sizes, where the name was a bare one such as "A100"."""
    bare = name_key(name)
    if bare == name_key(taken):
        return []
    return [
        row.id for row in gpu_rows() if row.kind == "device" and row.id.startswith(f"{bare}-") and row.marketed_gb != marketed_gb
    ]


def _rented(instance: Instance) -> _Named:
    count = instance.whole_gpus()
    row = row_by_id(instance.gpu)
    if row is None:
        raise UnknownGpuError(
            f"{instance.name} has {count} x {instance.gpu}, and no memory figure of that GPU has been seen",
            hint=f"give the memory nvidia-smi prints there, as in --gpu 24564MiB:{count}",
        )
    notes = () if instance.note is None else (f"{instance.name}: {instance.note}",)
    return _Named(gpu_of(row), count, count, instance=instance.name, notes=notes)


def _own_size(number: str, unit: str, text: str) -> _Named:
    """A GPU of which only the memory is given, in exact bytes (a fraction of a byte is dropped)."""
    scale = _UNITS.get(unit.lower())
    if scale is None:
        either = f"{number}{unit.upper()}iB or {number}{unit.upper()}B"
        raise UsageError(f"'{text}' does not say which unit it is in", hint=f"write {either}")
    size = int(Fraction(number) * scale)
    if not 0 < size <= MAX_OWN_BYTES:
        raise UsageError(f"'{text}' is no size of a GPU: above 0, at most 16 TiB", hint=f"give {SIZE_FORMS}")
    shown = f"{number} {_written(unit)}"
    notes: tuple[str, ...] = ()
    if not unit.lower().endswith("ib"):
        binary = f"{number}{unit[0].upper()}iB"
        notes = (f"{shown} read as decimal: {size:,} bytes = {size / 2**30:.1f} GiB; write {binary} for the binary unit",)
    gpu = Gpu(
        id=f"{number}{_written(unit)}",
        name=f"GPU of {shown} (size given)",
        vendor=None,
        architecture=None,
        compute_capability=None,
        gfx_name=None,
        fp8=None,
        fp4=None,
        memory=fact(size, BYTE, symbol="M", name="memory of one GPU", origin=f"--gpu {text}"),
        memory_basis="the size given, taken as the total nvidia-smi would print",
        allocator_total=None,
        marketed_gb=None,
        bandwidth_gb_s=None,
        interconnect=None,
        gpus_per_node=NODE_OF_OWN_SIZE,
        kind="custom",
        notes="",
    )
    return _Named(gpu, 1, NODE_OF_OWN_SIZE, notes=notes)


def _written(unit: str) -> str:
    return unit[0].upper() + unit[1:].lower().replace("b", "B")


def _local(count: int | None, text: str) -> tuple[Hardware, ...]:
    """This machine's GPUs, or the first `count` of them where they are of one kind."""
    # subprocess costs a few milliseconds, which only this SPEC pays.
    from gpufit.sources.local_gpus import local_hardware

    found = local_hardware()
    if count is None:
        return found
    if len(found) > 1:
        raise UsageError(f"'{text}': this machine holds GPUs of several kinds", hint="name the kind, as in --gpu rtx-4090:2")
    if count > found[0].count:
        raise UsageError(f"'{text}': this machine holds {found[0].count}", hint=f"at most local:{found[0].count}")
    return (replace(found[0], count=count),)
