"""The Model of a GGUF file: shapes through the family's own reader, bytes and counts from the tensors, each held to the other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpufit.errors import ConfigError, UnknownModelError
from gpufit.layers.full import Full
from gpufit.model import LayerGroup, Model, Published
from gpufit.quantity import BYTE, NUMBER, fact
from gpufit.sources.gguf import GgufHeader, joined, read_file
from gpufit.sources.gguf_config import Keys, config_of
from gpufit.sources.hub_files import GgufChoice, HubFile, gguf_choices
from gpufit.sources.read import read_model

if TYPE_CHECKING:
    from gpufit.sources.hub import HubAnswer

_NO_WEIGHT = ("rope_freqs", "rope_factors_long", "rope_factors_short")
"""Tensors that hold rotary tables: published models compute them."""
_BUFFERS = ("exp_probs_b",)


def model_of_file(path: Path) -> Model:
    """The Model of a local file; all files of a split model are read, whichever is named."""
    choices = gguf_choices(HubFile(name=p.name, size=p.stat().st_size) for p in sorted(path.parent.glob("*.gguf")) if p.is_file())
    chosen = next((c for c in choices if any(f.name == path.name for f in c.files)), None)
    files = [path.parent / f.name for f in chosen.files] if chosen is not None else [path]
    return model_of_header(
        joined([read_file(p) for p in files]), id=(chosen.name if chosen else path.stem), quant=chosen.quant if chosen else ""
    )


def model_of_folder(folder: Path) -> Model:
    """The Model of a folder's one GGUF model; several are listed in the error."""
    choices = gguf_choices(HubFile(name=p.name, size=p.stat().st_size) for p in sorted(folder.glob("*.gguf")) if p.is_file())
    if len(choices) != 1:
        names = ", ".join(c.files[0].name for c in choices)
        raise UnknownModelError(
            f"{folder} holds {len(choices)} GGUF models", hint=f"name one of its files: {names}" if names else "name a .gguf file"
        )
    return model_of_file(folder / choices[0].files[0].name)


def model_of_hub(answer: HubAnswer, choices: Sequence[GgufChoice], quant: str | None, *, offline: bool) -> Model:
    """The Model of a GGUF file on the Hub: the one that `quant` names, or the only one there."""
    chosen = _choice(answer, choices, quant)
    from gpufit.sources.gguf_hub import headers_of

    header = joined(headers_of(answer, chosen, offline=offline))
    return model_of_header(header, id=f"{answer.id}:{chosen.quant}" if chosen.quant else answer.id, quant=chosen.quant)


def _choice(answer: HubAnswer, choices: Sequence[GgufChoice], quant: str | None) -> GgufChoice:
    if not choices:
        raise UnknownModelError(
            f"{answer.shown} has no GGUF files", hint="leave the part after the colon out, or name a repository with GGUF files"
        )
    if quant is None:
        if len(choices) == 1:
            return choices[0]
        raise UnknownModelError(f"{answer.shown} holds {len(choices)} GGUF models", hint=f"name one: {_listed(answer, choices)}")
    wanted = quant.lower().removesuffix(".gguf")
    found = [c for c in choices if wanted in (c.quant.lower(), c.name.lower(), c.name.rsplit("/", 1)[-1].lower())]
    if len(found) == 1:
        return found[0]
    if found:
        raise UnknownModelError(
            f"{answer.shown} holds {len(found)} models of {quant}", hint=f"name one: {_listed(answer, found, names=True)}"
        )
    raise UnknownModelError(f"{answer.shown} has no {quant}", hint=f"it has {_listed(answer, choices)}")


def _listed(answer: HubAnswer, choices: Sequence[GgufChoice], *, names: bool = False) -> str:
    quants = Counter(c.quant for c in choices)
    words = []
    for c in choices:
        word = c.quant if c.quant and quants[c.quant] == 1 and not names else c.name.rsplit("/", 1)[-1]
        words.append(f"{answer.id}:{word}" + (f" ({c.size / 1e9:.2f} GB)" if c.size is not None else ""))
    return ", ".join(words)


def model_of_header(header: GgufHeader, *, id: str, quant: str = "") -> Model:
    """The Model of a whole header.

    Bytes are those of the tensors, parameters their elements; the KV shapes of the family's reader are held against the key and value
    tensors of every layer, and a file in which they differ is refused.
    """
    keys = Keys(header)
    model = read_model(
        config_of(header),
        id=id,
        name=str(header.metadata.get("general.name") or id.rsplit("/", 1)[-1]),
        origin=f"header of {header.where}",
    )
    _hold_to_tensors(model, keys)
    layers = keys.layers
    own = [t for t in header.tensors if not _is_draft(t.name, layers)]
    extra = [t for t in header.tensors if _is_draft(t.name, layers)]
    weights = [t for t in own if not t.name.startswith(_NO_WEIGHT)]
    held = sum(t.elements for t in weights if not any(b in t.name for b in _BUFFERS))
    made = int(model.total_params)
    size = sum(t.bytes for t in own)
    notes = [*model.notes]
    if held != made:
        notes.append(
            f"{header.where}: its tensors hold {held:,} parameters, the shapes of {model.family} make {made:,} ({held - made:+,}); "
            "the file's count is used"
        )
    if extra:
        notes.append(
            f"{len(extra)} tensors of draft layers ({sum(t.bytes for t in extra):,} bytes) are in the file and not counted"
        )
    stated = fact(held, NUMBER, symbol="N", name="parameters", origin=f"tensors in the header of {header.where}")
    return replace(
        model,
        architecture=header.architecture,
        total_params=stated if held != made else model.total_params,
        published=Published(
            format=(header.file_type or quant or _most(header)).lower(),
            detail=_mix(header),
            bytes=fact(
                size, BYTE, symbol="W_f", name="bytes of the tensors", origin=f"types and shapes in the header of {header.where}"
            ),
            origin=f"header of {header.where}",
            method="gguf",
        ),
        notes=tuple(notes),
    )


def _is_draft(name: str, layers: int) -> bool:
    match = re.match(r"blk\.(\d+)\.", name)
    return match is not None and int(match[1]) >= layers


def _most(header: GgufHeader) -> str:
    """The type that holds the most elements."""
    sizes: Counter[str] = Counter()
    for t in header.tensors:
        sizes[t.type.name] += t.elements
    return sizes.most_common(1)[0][0] if sizes else "gguf"


def _mix(header: GgufHeader) -> str:
    """The tensor types of a file, as "GGUF: Q4_K 4,123 MB in 193 tensors, ...", largest first."""
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for t in header.tensors:
        sizes[t.type.name] += t.bytes
        counts[t.type.name] += 1
    return "GGUF: " + ", ".join(f"{name} {size / 1e6:,.1f} MB in {counts[name]} tensors" for name, size in sizes.most_common())


def _hold_to_tensors(model: Model, keys: Keys) -> None:
    """Refuses a file whose key and value tensors are not as wide as the family's reader says."""
    wide = {i: group for group in model.layers for i in group.indices if isinstance(group.kind, Full)}
    for i in range(keys.layers):
        group = wide.get(i)
        for letter, tensor in (("K", f"blk.{i}.attn_k.weight"), ("V", f"blk.{i}.attn_v.weight")):
            stored = keys.tensors.get(tensor)
            if stored is None:
                continue
            expected = _width(group, letter) if group is not None else 0
            if stored.dims[-1] != expected:
                raise ConfigError(
                    f"{keys.header.where}: {tensor} has {stored.dims[-1]} rows, but {model.family} layer {i} keeps {letter} of {expected}",
                    hint="the file's layers are not those of its family; its KV cache is not guessed",
                )
        fused = keys.tensors.get(f"blk.{i}.attn_qkv.weight")
        if fused is not None and group is not None and isinstance(group.kind, Full):
            query = int(group.kind.attention_heads) * int(group.kind.head_dim)
            if fused.dims[-1] not in (
                query + _width(group, "K") + _width(group, "V"),
                2 * query + _width(group, "K") + _width(group, "V"),
            ):
                raise ConfigError(
                    f"{keys.header.where}: blk.{i}.attn_qkv.weight has {fused.dims[-1]} rows, which read as {model.family} it would not",
                    hint="the file's layers are not those of its family; its KV cache is not guessed",
                )


def _width(group: LayerGroup, letter: str) -> int:
    kind = group.kind
    if not isinstance(kind, Full):
        return 0
    dim = kind.value_dim if letter == "V" and kind.value_dim is not None else kind.head_dim
    return int(kind.kv_heads) * int(dim)
