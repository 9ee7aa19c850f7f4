"""Models that are at hand: a folder with its checkpoint, a config file, or a config on standard input."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from gpufit.errors import ConfigError, UnknownModelError
from gpufit.sources.hub_files import Checkpoint, HubFile, checkpoint
from gpufit.sources.safetensors import Tensors, missing_shards, pointer_size, read_folder

MOST_CONFIG = 16 << 20
"""Bytes that a config file may have: the largest published ones stay below a megabyte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """What a folder, file or stream says of a model.

    `origin` is how it is called in derivations. `tensors` holds the checkpoint's headers where its files are there; `size` is a size of
    the checkpoint with the words for where it comes from, when the headers are not all at hand.
    """

    id: str
    origin: str
    config: Mapping[str, Any]
    hf_quant_config: Mapping[str, Any] | None = None
    tensors: Tensors | None = None
    size: tuple[int, str] | None = None
    notes: tuple[str, ...] = ()


def parse_config(text: str, *, where: str) -> dict[str, Any]:
    """The JSON object in a text; `ConfigError` says how the text begins when it is something else."""
    if not text.strip():
        raise ConfigError(f"{where} is empty", hint="a model's config.json is expected")
    try:
        found = json.loads(text.removeprefix("\ufeff"))
    except RecursionError:
        raise ConfigError(f"{where} is nested too deeply to be a config.json", hint="a model's config.json is expected") from None
    except ValueError as error:
        begins = " ".join(text.split())[:60]
        at = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise ConfigError(f"{where} is not JSON{at}; it begins {begins!r}", hint="a model's config.json is expected") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{where} holds a JSON {_kind(found)}, not an object", hint="a model's config.json is expected")
    return found


def _kind(value: object) -> str:
    return "list" if isinstance(value, list) else "text" if isinstance(value, str) else "value"


def read_text(path: Path) -> str:
    """The text of a small file; `ConfigError` when it cannot be read as one."""
    try:
        if path.stat().st_size > MOST_CONFIG:
            raise ConfigError(
                f"{path} has {path.stat().st_size:,} bytes: too large for a config.json", hint="name the folder, or the .gguf file"
            )
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file", hint="a model's config.json is expected, or a .gguf file") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint="check the path and its permissions") from None


def read_stdin(stream: TextIO) -> LocalModel:
    """A config.json on standard input."""
    try:
        text = stream.read(MOST_CONFIG + 1)
    except (UnicodeDecodeError, OSError):
        raise ConfigError("standard input is not a text", hint="a model's config.json is expected") from None
    config = parse_config(text, where="standard input")
    return LocalModel(id=_named(config, "stdin"), origin="config.json on standard input", config=config)


def _named(config: Mapping[str, Any], fallback: str) -> str:
    """A config's own name for its model where it is a plain one, else the fallback."""
    name = config.get("_name_or_path")
    if (
        isinstance(name, str)
        and name.count("/") == 1
        and not name.startswith((".", "/", "~"))
        and " " not in name
        and len(name) <= 96
    ):
        return name
    return fallback


def read_config_file(path: Path) -> LocalModel:
    """One config file by itself."""
    config = parse_config(read_text(path), where=str(path))
    named = path.parent.name if path.name == "config.json" and path.parent.name else path.stem
    return LocalModel(
        id=named, origin=str(path), config=config, hf_quant_config=_quantiser(path.parent) if path.name == "config.json" else None
    )


def _quantiser(folder: Path) -> dict[str, Any] | None:
    path = folder / "hf_quant_config.json"
    return parse_config(read_text(path), where=str(path)) if path.is_file() else None


def read_directory(folder: Path) -> LocalModel:
    """A folder with config.json, and the headers of the safetensors files in it.

    Raises `UnknownModelError` for a folder without a config.json, `ConfigError` for a file that cannot be read.
    """
    path = folder / "config.json"
    if not path.is_file():
        adapter = (folder / "adapter_config.json").is_file()
        raise UnknownModelError(
            f"{folder} has no config.json",
            hint="it is an adapter: name the model it was made for"
            if adapter
            else "a folder as published on the Hub is expected, or a .gguf file",
        )
    config = parse_config(read_text(path), where=str(path))
    chosen = checkpoint(HubFile(name=p.name, size=p.stat().st_size) for p in sorted(folder.glob("*.safetensors")) if p.is_file())
    tensors: Tensors | None = None
    size: tuple[int, str] | None = None
    notes: tuple[str, ...] = ()
    if chosen.files:
        tensors = read_folder(folder, chosen)
        if tensors.missing:
            size = _size_without_headers(folder, chosen)
            notes = (
                f"{folder}: {tensors.missing}"
                + ("; the size is that of " + size[1] if size else "; the size of the checkpoint is not known"),
            )
            tensors = None
    return LocalModel(
        id=folder.resolve().name or str(folder),
        origin=str(path),
        config=config,
        hf_quant_config=_quantiser(folder),
        tensors=tensors,
        size=size,
        notes=notes,
    )


def _size_without_headers(folder: Path, chosen: Checkpoint) -> tuple[int, str] | None:
    """The checkpoint's size from its index, or from git-lfs pointers to all of its files."""
    index = folder / chosen.index
    if chosen.index and index.is_file():
        stated = parse_config(read_text(index), where=str(index)).get("metadata")
        total = stated.get("total_size") if isinstance(stated, dict) else None
        if isinstance(total, int | float) and total > 0:
            return int(total), f"total_size in {chosen.index}"
    sizes = [pointer_size(folder / f.name) or (folder / f.name).stat().st_size for f in chosen.files]
    if not missing_shards(f.name for f in chosen.files):
        return sum(sizes), "the files that git-lfs pointers stand for, headers included"
    return None
