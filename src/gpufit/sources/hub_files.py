"""The files of a repository: which of them are the checkpoint, and how many bytes its tensors have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

WIDTHS = {
    "F64": 8, "I64": 8, "U64": 8, "C64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2,
    "I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1,
}  # fmt: skip
"""Bytes of one element of a safetensors dtype (safetensors format specification)."""

_SHARD = re.compile(r"(?P<stem>.+?)[-.](?P<part>\d{5})-of-(?P<of>\d{5})\.(?P<ext>safetensors|gguf)")
_NOT_A_MODEL = ("adapter_model", "optimizer", "training_args", "scheduler", "rng_state", "adapters")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFile:
    """A file of a repository; `size` None where the Hub did not say."""

    name: str
    size: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The safetensors files that are loaded together. `others` counts further safetensors in the repository that are not."""

    files: tuple[HubFile, ...] = ()
    others: int = 0

    @property
    def bytes(self) -> int | None:
        """The size of the files, headers included."""
        sizes = [f.size for f in self.files]
        return sum(s for s in sizes if s is not None) if sizes and None not in sizes else None

    @property
    def index(self) -> str:
        """The name that the index of these files has, whether it exists or not."""
        match = _SHARD.fullmatch(self.files[0].name) if self.files else None
        return f"{match['stem']}.safetensors.index.json".replace(".safetensors.safetensors", ".safetensors") if match else ""


def checkpoint(files: Iterable[HubFile]) -> Checkpoint:
    """The checkpoint among a repository's files.

    Only files at the top count (subfolders hold other forms of the model). A whole set of shards or a single file whose name begins
    with "model" goes before others ("consolidated" is the same weights under their vendor's names).
    """
    everything = [f for f in files if f.name.endswith(".safetensors")]
    top = [f for f in everything if "/" not in f.name and not f.name.startswith(_NOT_A_MODEL)]
    sets: dict[tuple[str, int], list[HubFile]] = {}
    for file in top:
        match = _SHARD.fullmatch(file.name)
        key = (match["stem"], int(match["of"])) if match else (file.name.removesuffix(".safetensors"), 1)
        sets.setdefault(key, []).append(file)

    def rank(item: tuple[tuple[str, int], list[HubFile]]) -> tuple[bool, bool, bool, str]:
        (stem, of), members = item
        return (len(members) != of, stem not in ("model", "model.safetensors"), stem.startswith("consolidated"), stem)

    if not sets:
        return Checkpoint(others=len(everything))
    chosen = min(sets.items(), key=rank)[1]
    return Checkpoint(files=tuple(sorted(chosen, key=lambda f: f.name)), others=len(everything) - len(chosen))


def counted_bytes(parameters: Mapping[str, int]) -> int | None:
    """Bytes of elements counted by dtype, or None when a dtype is not known."""
    if not parameters or any(name not in WIDTHS for name in parameters):
        return None
    return sum(count * WIDTHS[name] for name, count in parameters.items())


def plausible(tensors: int | None, files: int, number: int) -> bool:
    """Whether `tensors` bytes can be what `number` files of `files` bytes in all hold: the rest must look like headers.

    The Hub's counts by dtype are not bytes where words are packed (MXFP4 blocks count twice), and an index may be out of date: either is
    believed only when the file sizes agree.
    """
    if tensors is None:
        return False
    rest = files - tensors
    return 8 * number <= rest <= min(number * (8 << 20), files // 200 + (1 << 20))


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufChoice:
    """One GGUF model in a repository: its files in order (split files together) and the word that names its quantisation."""

    name: str
    quant: str
    files: tuple[HubFile, ...]

    @property
    def size(self) -> int | None:
        """Bytes of its files."""
        sizes = [f.size for f in self.files]
        return sum(s for s in sizes if s is not None) if None not in sizes else None


_QUANT = re.compile(
    r"(?i)(?:^|[-._/])((?:UD-)?(?:I?Q\d+(?:_[A-Z0-9]+)*|TQ\d_\d|BF16|F16|F32|FP16|FP32|MXFP4(?:_MOE)?|NVFP4))(?=$|[-._/])"
)


def gguf_choices(files: Iterable[HubFile]) -> tuple[GgufChoice, ...]:
    """The GGUF models among a repository's files, sorted by name. Projectors (mmproj) and importance matrices are not models."""
    sets: dict[str, dict[int, HubFile]] = {}
    for file in files:
        base = file.name.rsplit("/", 1)[-1].lower()
        if not base.endswith(".gguf") or "mmproj" in base or "imatrix" in base:
            continue
        match = _SHARD.fullmatch(file.name)
        stem, part = (match["stem"], int(match["part"])) if match else (file.name.removesuffix(".gguf"), 1)
        sets.setdefault(stem, {})[part] = file
    found = []
    for stem, parts in sorted(sets.items()):
        words = _QUANT.findall(stem)
        found.append(GgufChoice(name=stem, quant=words[-1].upper() if words else "", files=tuple(parts[i] for i in sorted(parts))))
    return tuple(found)
