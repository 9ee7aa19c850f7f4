"""The header of a GGUF file: its metadata and every tensor's type and shape, read from front to back without the weights.

Layout (GGUF specification, versions 2 and 3): magic, version, counts; then key, type and value of each metadata entry; then name,
dimensions, type and offset of each tensor; the data begins at the next multiple of the alignment.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gpufit.errors import ConfigError
from gpufit.formats.ggml import TensorType
from gpufit.sources.gguf_tables import ARRAY, FILE_TYPES, SCALARS, STRING, TENSOR_TYPES

MOST_HEADER = 64 << 20
"""Bytes of header that are read at most: the largest published ones (vocabularies of 262,144 tokens) stay below 20 MB."""
_KEPT = 4096
"""Entries of an array that are kept; longer ones (vocabularies) are counted and passed over."""
_LEAST_ENTRY, _LEAST_TENSOR = 13, 41


@dataclass(frozen=True, slots=True)
class Passed:
    """An array that was counted and not kept."""

    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufTensor:
    """One tensor. `dims` are GGML's: the first is the row length (input features)."""

    name: str
    dims: tuple[int, ...]
    type: TensorType
    offset: int

    @property
    def elements(self) -> int:
        """The product of the dimensions."""
        n = 1
        for size in self.dims:
            n *= size
        return n

    @property
    def bytes(self) -> int:
        """Bytes of its blocks; the reader has refused rows that are no whole number of blocks."""
        return self.elements // self.type.block * self.type.size


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """One file's header. `where` names the file; `size` is the header's own length, up to the first byte of data."""

    where: str
    metadata: dict[str, Any] = field(default_factory=dict)
    tensors: tuple[GgufTensor, ...] = ()
    size: int = 0

    @property
    def architecture(self) -> str:
        """The architecture's name, as in "llama"."""
        return str(self.metadata.get("general.architecture", ""))

    @property
    def file_type(self) -> str:
        """The mix that the file says it is, as in "Q4_K_M"; empty when it does not say."""
        number = self.metadata.get("general.file_type")
        return FILE_TYPES.get(number & 1023, "") if isinstance(number, int) else ""

    @property
    def split(self) -> tuple[int, int]:
        """Which file of how many this is, counted from 0."""
        number, count = self.metadata.get("split.no", 0), self.metadata.get("split.count", 1)
        return (number, count) if isinstance(number, int) and isinstance(count, int) and count > 0 else (0, 1)


class Window:
    """The front of a file, read as far as needed. `more(position, size)` gives the next bytes, at least one unless the file ends.

    `reaches` is set by the reader: a position up to which the header surely goes, so that few requests are made and none reaches into
    the weights.
    """

    def __init__(self, where: str, more: Callable[[int, int], bytes], *, least: int = 0) -> None:
        self.where = where
        self._more = more
        self._buffer = b""
        self._at = 0
        self._before = 0
        self._least = least
        self.reaches: Callable[[], int] = lambda: 24

    @property
    def position(self) -> int:
        """Bytes taken so far."""
        return self._before + self._at

    def take(self, size: int) -> bytes:
        """The next bytes; `ConfigError` at the end of the file, or past what a header may have."""
        if len(self._buffer) - self._at < size:
            self._fill(size)
        self._at += size
        return self._buffer[self._at - size : self._at]

    def _fill(self, size: int) -> None:
        parts = [self._buffer[self._at :]]
        have = len(parts[0])
        self._before += self._at
        self._at = 0
        while have < size:
            start = self._before + have
            if start + size - have > MOST_HEADER:
                raise ConfigError(
                    f"the header of {self.where} passes {MOST_HEADER >> 20} MiB", hint="no published one does: the file is damaged"
                )
            got = self._more(start, max(size - have, min(self.reaches() - start, 16 << 20), self._least))
            if not got:
                raise ConfigError(f"{self.where} ends inside its header, after {start:,} bytes", hint="finish the download")
            parts.append(got)
            have += len(got)
        self._buffer = b"".join(parts)

    def number(self, code: str, size: int) -> Any:
        """One little-endian scalar."""
        return struct.unpack("<" + code, self.take(size))[0]

    def text(self) -> str:
        """A string with its length before it."""
        length = self.number("Q", 8)
        if length > MOST_HEADER:
            raise self.broken(f"a text of {length:,} bytes")
        return self.take(length).decode("utf-8", errors="replace")

    def broken(self, what: str) -> ConfigError:
        """The error for content that no GGUF file has."""
        return ConfigError(f"{self.where} is no readable GGUF file: {what} at byte {self.position:,}", hint="download it again")


def parse(window: Window) -> GgufHeader:
    """The header at a window's front. Raises `ConfigError` for what is no GGUF file, or uses what is not known here."""
    where = window.where
    if window.take(4) != b"GGUF":
        raise ConfigError(
            f"{where} is no GGUF file: it does not begin with GGUF", hint="a .gguf file as llama.cpp reads it is expected"
        )
    version = window.number("I", 4)
    if version not in (2, 3):
        swapped = version >> 24 in (2, 3) and version & 0xFFFFFF == 0
        said = "it is big-endian" if swapped else f"it has version {version}"
        raise ConfigError(
            f"{where}: {said}, and versions 2 and 3, little-endian, are read", hint="convert it anew with a current llama.cpp"
        )
    tensor_count, entry_count = window.number("Q", 8), window.number("Q", 8)
    if tensor_count > 1 << 20 or entry_count > 1 << 16:
        raise window.broken(f"{tensor_count:,} tensors and {entry_count:,} metadata entries")
    after = tensor_count * _LEAST_TENSOR
    metadata: dict[str, Any] = {}
    for i in range(entry_count):
        rest = (entry_count - i - 1) * _LEAST_ENTRY + after
        window.reaches = partial(int, window.position + _LEAST_ENTRY + rest)
        key = window.text()
        metadata[key] = _value(window, window.number("I", 4), rest)
    tensors = []
    front = window.position
    for i in range(tensor_count):
        mean = (window.position - front) // i * 7 // 8 if i else 0
        window.reaches = partial(int, window.position + (tensor_count - i) * max(_LEAST_TENSOR, mean))
        tensors.append(_tensor(window))
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise window.broken(f"an alignment of {alignment!r}")
    return GgufHeader(where=where, metadata=metadata, tensors=tuple(tensors), size=-(-window.position // alignment) * alignment)


def _value(window: Window, kind: int, rest: int, depth: int = 0) -> Any:
    if kind in SCALARS:
        return window.number(*SCALARS[kind])
    if kind == STRING:
        return window.text()
    if kind != ARRAY or depth > 4:
        raise window.broken(f"a value of type {kind}")
    inner: int = window.number("I", 4)
    length: int = window.number("Q", 8)
    if length > MOST_HEADER:
        raise window.broken(f"an array of {length:,} entries")
    if inner in SCALARS:
        code, size = SCALARS[inner]
        window.reaches = partial(int, window.position + length * size + rest)
        body = window.take(length * size)
        return list(struct.unpack(f"<{length}{code}", body)) if length <= _KEPT else Passed(length)
    keep = length <= _KEPT
    found = []
    start = window.position
    done = 0

    def reached() -> int:
        """Entries so far tell how long the others are; a little less than that is asked for."""
        mean = (window.position - start) // done * 31 // 32 if done else 8
        return window.position + (length - done - 1) * max(8, mean) + rest

    if depth == 0:
        window.reaches = reached
    for done in range(length):  # noqa: B007 (read by reached)
        if inner == STRING and not keep:
            window.take(window.number("Q", 8))
        else:
            found.append(_value(window, inner, rest, depth + 1))
    return found if keep else Passed(length)


def _tensor(window: Window) -> GgufTensor:
    name = window.text()
    rank = window.number("I", 4)
    if not 1 <= rank <= 8:
        raise window.broken(f"{name!r} with {rank} dimensions")
    dims = struct.unpack(f"<{rank}Q", window.take(8 * rank))
    number = window.number("I", 4)
    offset = window.number("Q", 8)
    kind = TENSOR_TYPES.get(number)
    if kind is None:
        raise ConfigError(
            f"{window.where}: {name} has tensor type {number}, which is not known",
            hint="a newer gpufit may know it; types that llama.cpp has retired need a new conversion",
        )
    if dims[0] % kind.block:
        raise window.broken(f"{name!r} with rows of {dims[0]} in blocks of {kind.block}")
    return GgufTensor(name=name, dims=tuple(dims), type=kind, offset=offset)


def checked(header: GgufHeader, size: int | None) -> GgufHeader:
    """The header of a file that holds all of its tensors; `ConfigError` when its `size` says that it was cut short."""
    whole = header.size + max((t.offset + t.bytes for t in header.tensors), default=0)
    if size is not None and size < whole:
        raise ConfigError(f"{header.where} is cut short: {size:,} of {whole:,} bytes", hint="finish the download")
    return header


def read_file(path: Path) -> GgufHeader:
    """The header of a local file. Raises `ConfigError` when it cannot be read or is not whole."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            return checked(parse(Window(str(path), lambda at, count: file.read(count), least=1 << 16)), size)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint="check the path and its permissions") from None


def joined(headers: list[GgufHeader]) -> GgufHeader:
    """One header for the files of a split model: the first file's metadata and the tensors of all.

    Raises `ConfigError` when files of the set are missing.
    """
    ordered = sorted(headers, key=lambda h: h.split[0])
    first = ordered[0]
    count = first.split[1]
    there = {h.split[0] for h in ordered}
    if len(ordered) != count or there != set(range(count)):
        absent = next((i for i in range(count) if i not in there), count)
        raise ConfigError(
            f"{first.where} is one of {count} files, and number {absent + 1} is not there",
            hint="put all files of the split model into one folder",
        )
    if count == 1:
        return first
    return GgufHeader(
        where=first.where, metadata=first.metadata, tensors=tuple(t for h in ordered for t in h.tensors), size=first.size
    )
