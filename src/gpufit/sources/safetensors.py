"""The header of a safetensors file: every tensor's dtype, shape and bytes, without its weights.

Format: 8 bytes little-endian length, then a JSON object {name: {dtype, shape, data_offsets}}, then the data (safetensors format
specification; a header is at most 100 MB there).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpufit.errors import ConfigError
from gpufit.sources.hub_files import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpufit.sources.hub import HubAnswer
    from gpufit.sources.hub_http import Patience, Reply

MOST_HEADER = 100_000_000
AT_ONCE = 8
"""Headers asked for at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor of a checkpoint as stored; `bytes` by its offsets."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int

    @property
    def elements(self) -> int:
        """Stored elements: packed words count as one each."""
        n = 1
        for size in self.shape:
            n *= size
        return n


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensors:
    """The tensors of a whole checkpoint, or as much of it as is at hand: then `missing` says what is not."""

    tensors: tuple[Tensor, ...] = ()
    files: int = 0
    missing: str = ""

    @property
    def bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(t.bytes for t in self.tensors)

    def by_dtype(self) -> dict[str, tuple[int, int]]:
        """Stored elements and bytes of each dtype, largest first."""
        found: dict[str, tuple[int, int]] = {}
        for t in self.tensors:
            elements, size = found.get(t.dtype, (0, 0))
            found[t.dtype] = (elements + t.elements, size + t.bytes)
        return dict(sorted(found.items(), key=lambda item: -item[1][1]))

    def words(self) -> str:
        """The dtypes in one line for people."""
        return ", ".join(f"{dtype} {elements:,} elements in {size:,} bytes" for dtype, (elements, size) in self.by_dtype().items())


def parse_header(body: bytes, *, where: str, size: int | None = None) -> tuple[Tensor, ...]:
    """The tensors that a header's JSON text names. `size` is that of the whole file, checked where it is known.

    Raises `ConfigError` for a text that is no header, or a file that ends before its last tensor.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _broken(where, "its header is not JSON")
    tensors = []
    last = 0
    for name, entry in found.items():
        if name == "__metadata__":
            continue
        try:
            start, end = entry["data_offsets"]
            shape = tuple(int(n) for n in entry["shape"])
            tensor = Tensor(name=str(name), dtype=str(entry["dtype"]), shape=shape, bytes=int(end) - int(start))
        except (TypeError, KeyError, ValueError):
            raise _broken(where, f"its entry for {name!r} is not one") from None
        if tensor.bytes < 0 or int(start) < 0 or any(n < 0 for n in shape):
            raise _broken(where, f"its entry for {name!r} has negative sizes")
        tensors.append(tensor)
        last = max(last, int(end))
    whole = 8 + len(body) + last
    if size is not None and size < whole:
        raise ConfigError(f"{where} is cut short: {size:,} of {whole:,} bytes", hint="finish the download, or leave the file out")
    return tuple(tensors)


def _broken(where: str, why: str) -> ConfigError:
    return ConfigError(f"{where} is no safetensors file: {why}", hint="download it again")


def read_file(path: Path) -> tuple[Tensor, ...]:
    """The tensors of one local file. Reads its header only."""
    size = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(8)
        length = int.from_bytes(first, "little")
        if len(first) < 8 or length > min(MOST_HEADER, size - 8):
            raise _broken(str(path), "its first 8 bytes are no header length")
        return parse_header(file.read(length), where=str(path), size=size)


_POINTER = re.compile(rb"version https://git-lfs[^\n]*\noid [^\n]*\nsize (\d+)")


def pointer_size(path: Path) -> int | None:
    """The size of the real file where a git-lfs pointer stands in its place, else None."""
    if path.stat().st_size > 1024:
        return None
    match = _POINTER.match(path.read_bytes())
    return int(match[1]) if match else None


def read_folder(folder: Path, chosen: Checkpoint) -> Tensors:
    """The tensors of the checkpoint's files in a folder; `missing` names shards of a set that are not there."""
    tensors: list[Tensor] = []
    pointers = []
    for file in chosen.files:
        path = folder / file.name
        if pointer_size(path) is not None:
            pointers.append(file.name)
        else:
            tensors += read_file(path)
    missing = (
        f"{len(pointers)} of {len(chosen.files)} files are git-lfs pointers"
        if pointers
        else missing_shards(f.name for f in chosen.files)
    )
    return Tensors(tensors=tuple(tensors), files=len(chosen.files), missing=missing)


def missing_shards(names: Iterable[str]) -> str:
    """Which shards of a set "...-00001-of-00004..." are absent, in words; "" when none is."""
    parts = {}
    of = 0
    for name in names:
        if match := re.search(r"(\d{5})-of-(\d{5})", name):
            parts[int(match[1])] = name
            of = int(match[2])
    absent = [i for i in range(1, of + 1) if i not in parts]
    return f"{len(absent)} of {of} shards are not there (number {absent[0]})" if absent else ""


def read_hub(answer: HubAnswer, chosen: Checkpoint, *, patience: Patience | None = None) -> Tensors:
    """The tensors of a checkpoint on the Hub, by range requests for the headers alone: two a file, a few files at a time.

    Raises `NetworkError` or `AccessError`; `ConfigError` for a file that is no safetensors file.
    """
    from urllib.parse import quote

    from gpufit.sources.background import each
    from gpufit.sources.hub import refusal
    from gpufit.sources.hub_env import shown_endpoint
    from gpufit.sources.hub_files import HubFile
    from gpufit.sources.hub_http import Fault, Hub
    from gpufit.sources.talk import Talk

    def bytes_of(count: int) -> Callable[[Reply], bytes]:
        def check(reply: Reply) -> bytes:
            if reply.status in (200, 206) and len(reply.body) == count:
                return reply.body
            if reply.status not in (200, 206):
                raise refusal(reply, answer.id, answer.revision) or Fault(f"it answered {reply.status}", again=False)
            raise Fault("it sent something instead of a part of the file")

        return check

    with Talk(f"reading {len(chosen.files)} headers of {answer.id}") as talk:
        hub = Hub(patience, say=talk.say)
        done = [0]

        def one(file: HubFile) -> tuple[Tensor, ...]:
            path = f"/{quote(answer.id)}/resolve/{quote(answer.sha or answer.revision, safe='')}/{quote(file.name)}"
            what = f"the header of {file.name}"
            length = int.from_bytes(hub.get(path, what=what, span=(0, 8), check=bytes_of(8)), "little")
            if length > min(MOST_HEADER, file.size if file.size is not None else MOST_HEADER):
                raise _broken(f"{answer.id}: {file.name}", "its first 8 bytes are no header length")
            tensors = parse_header(
                hub.get(path, what=what, span=(8, 8 + length), check=bytes_of(length)),
                where=f"{answer.id}: {file.name}",
                size=file.size,
            )
            hub.patience.renew()
            done[0] += 1
            talk.say(f"{shown_endpoint()}: {done[0]} of {len(chosen.files)} headers of {answer.id}")
            return tensors

        found = each(one, chosen.files, at_once=AT_ONCE)
    return Tensors(
        tensors=tuple(t for tensors in found for t in tensors),
        files=len(chosen.files),
        missing=missing_shards(f.name for f in chosen.files),
    )
