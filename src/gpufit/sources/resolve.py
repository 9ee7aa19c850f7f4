"""A model by whatever a user types: a catalogue name, ORG/NAME[@revision] on the Hub, a folder, a file, or `-`."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from gpufit.errors import ConfigError, UnknownModelError
from gpufit.model import Model
from gpufit.quantity import BYTE, NUMBER, Q, fact
from gpufit.sources.catalogue import find_model, nearest, unknown_model
from gpufit.sources.hub import GatedError, HubAnswer, fetch_model_files
from gpufit.sources.hub_files import checkpoint, gguf_choices
from gpufit.sources.local import LocalModel, read_config_file, read_directory, read_stdin
from gpufit.sources.read import read_model

_ID = re.compile(r"(?P<id>[\w-][\w.-]*/[\w.-]*\w[\w.-]*)(?:@(?P<revision>[^@:\s]+))?(?::(?P<quant>[\w.-]+))?")
_ADDRESS = re.compile(
    r"https?://(?:www\.)?(?:huggingface\.co|hf\.co)/(?P<id>[\w.-]+/[\w.-]+)(?:/(?:tree|blob|resolve)/(?P<revision>[^/?#]+)(?:/.*)?)?/?(?:[?#].*)?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubName:
    """A repository as typed: ORG/NAME, then `@revision` and, for GGUF, `:QUANT`."""

    id: str
    revision: str | None = None
    quant: str | None = None


def hub_name(text: str) -> HubName | None:
    """What a text names on the Hub, or None when it is no id. Addresses of the Hub's pages work too."""
    if match := _ADDRESS.fullmatch(text):
        return HubName(id=match["id"], revision=match["revision"])
    match = _ID.fullmatch(text.removeprefix("hf.co/"))
    if match is None or ".." in text or len(match["id"]) > 96:
        return None
    return HubName(id=match["id"], revision=match["revision"], quant=match["quant"])


def resolve_model(
    text: str,
    *,
    offline: bool,
    exact: bool = False,
    assume_dense: bool = False,
    stdin: TextIO | None = None,
) -> Model:
    """The Model that a text names, with everything its answer must say in `notes` and `assumptions`.

    The catalogue goes first (but not with `exact`, which asks for the checkpoint's own headers), then what is on this disk, then the
    Hub. Raises `UnknownModelError`, `ConfigError`, `AccessError` or `NetworkError`.
    """
    name = text.strip()
    if name == "-":
        return _of_local(read_stdin(stdin or sys.stdin), assume_dense=assume_dense)
    if not name:
        raise UnknownModelError(
            "an empty model name", hint="name a model of the catalogue, ORG/NAME on the Hub, a folder, a file, or -"
        )
    known = find_model(name)
    if known is not None and not exact:
        return known
    if (path := _on_disk(name)) is not None:
        return _of_path(path, assume_dense=assume_dense)
    asked = hub_name(known.id if known is not None else name)
    if asked is None:
        raise unknown_model(name)
    try:
        answer = fetch_model_files(asked.id, asked.revision, offline=offline)
    except GatedError as error:
        from gpufit.sources.gated import twin_of

        twin = twin_of(error)
        if twin is None:
            raise
        return twin
    except UnknownModelError as error:
        near = nearest(asked.id)
        also = f"; near it in the catalogue: {', '.join(near)}" if near else ""
        raise UnknownModelError(error.message, hint=error.hint + also) from None
    if answer.folder is not None and answer.config is not None and asked.quant is None:
        local = read_directory(answer.folder)
        local = replace(local, id=answer.id, origin=f"config.json of {answer.shown}")
        return _dated(_of_local(local, assume_dense=assume_dense), answer)
    if answer.config is None or asked.quant is not None:
        from gpufit.sources.gguf_model import model_of_hub

        return _dated(model_of_hub(answer, gguf_choices(answer.files), asked.quant, offline=offline), answer)
    return _of_hub(answer, answer.config, exact=exact, offline=offline, assume_dense=assume_dense)


def _on_disk(name: str) -> Path | None:
    """The path that a text names: one that exists, or that can be nothing but a path (then its absence is the error)."""
    path = Path(name).expanduser()
    try:
        if path.exists():
            return path
    except (OSError, ValueError):
        return None
    if name.startswith(("/", "./", "../", "~")) or (name.endswith((".json", ".gguf")) and hub_name(name) is None):
        raise UnknownModelError(f"there is no file or folder {name}", hint="check the path; ORG/NAME asks the Hub")
    return None


def _of_path(path: Path, *, assume_dense: bool) -> Model:
    if path.is_dir():
        if not (path / "config.json").is_file() and any(path.glob("*.gguf")):
            from gpufit.sources.gguf_model import model_of_folder

            return model_of_folder(path)
        return _of_local(read_directory(path), assume_dense=assume_dense)
    if path.is_fifo() or path.is_char_device():  # a shell's <(...), /dev/stdin: read once, from front to back
        with path.open(encoding="utf-8") as stream:
            return _of_local(read_stdin(stream), assume_dense=assume_dense)
    if path.suffix == ".gguf" or _is_gguf(path):
        from gpufit.sources.gguf_model import model_of_file

        return model_of_file(path)
    return _of_local(read_config_file(path), assume_dense=assume_dense)


def _is_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint="check the path and its permissions") from None


def read_any(
    config: Mapping[str, Any],
    *,
    id: str,
    origin: str,
    hf_quant: Mapping[str, Any] | None,
    assume_dense: bool,
) -> Model:
    """The Model of a config through the one reader; an unknown family only under `assume_dense` and where nothing denies it."""

    def reader(data: Mapping[str, Any]) -> Model:
        return read_model(data, id=id, origin=origin, hf_quant=hf_quant)

    try:
        return reader(config)
    except ConfigError as error:
        if not assume_dense or "unknown family" not in error.message:
            raise
        from gpufit.sources.assume import dense_model

        return dense_model(config, reader, why=error, origin=origin)


def _noted(model: Model, notes: tuple[str, ...]) -> Model:
    return replace(model, notes=(*model.notes, *notes)) if notes else model


def _sized(model: Model, size: int, origin: str) -> Model:
    """The model with the exact bytes of its checkpoint."""
    stated: Q = fact(size, BYTE, symbol="W_f", name="bytes of the published tensors", origin=origin)
    return replace(model, published=replace(model.published, bytes=stated))


def _of_local(local: LocalModel, *, assume_dense: bool) -> Model:
    model = read_any(local.config, id=local.id, origin=local.origin, hf_quant=local.hf_quant_config, assume_dense=assume_dense)
    if local.tensors is not None:
        where = f"headers of {local.tensors.files} safetensors file" + ("s" if local.tensors.files != 1 else "")
        model = _sized(model, local.tensors.bytes, f"{where} beside {local.origin}")
        plain = {k: n for k, (n, _) in local.tensors.by_dtype().items()}
        model = _counted(model, plain, f"the {where}")
        model = _noted(model, (f"tensors: {local.tensors.words()}",))
    elif local.size is not None:
        model = _sized(model, *local.size)
    return _noted(model, local.notes)


def _dated(model: Model, answer: HubAnswer) -> Model:
    """The model, saying that its answer was not checked and how old it is, where that is so."""
    if not answer.remark:
        return model
    return replace(model, assumptions=(f"what the Hub said of {answer.shown} is {answer.remark}", *model.assumptions))


def _of_hub(answer: HubAnswer, config: Mapping[str, Any], *, exact: bool, offline: bool, assume_dense: bool) -> Model:
    origin = f"config.json of {answer.shown}"
    model = read_any(config, id=answer.id, origin=origin, hf_quant=answer.hf_quant_config, assume_dense=assume_dense)
    model = _dated(model, answer)
    chosen = checkpoint(answer.files)
    if exact and chosen.files:
        from gpufit.sources.exact import tensors_of

        tensors = tensors_of(answer, chosen, offline=offline)
        if tensors.missing:
            return _noted(model, (f"{answer.shown}: {tensors.missing}",))
        model = _sized(model, tensors.bytes, f"headers of {tensors.files} safetensors files of {answer.shown}")
        model = _counted(model, {k: n for k, (n, _) in tensors.by_dtype().items()}, f"the headers of {answer.shown}")
        return _noted(model, (f"tensors: {tensors.words()}",))
    if found := answer.tensor_bytes():
        model = _sized(model, *found)
    elif any(f.name.endswith((".bin", ".pt", ".pth")) for f in answer.files):
        model = _noted(model, (f"{answer.shown} has no safetensors files at its top: the size of its checkpoint is not read",))
    return _counted(model, answer.parameters, f"the Hub's count for {answer.shown}")


_PLAIN = {"F64", "F32", "F16", "BF16"}


def _counted(model: Model, by_dtype: Mapping[str, int], whose: str) -> Model:
    """Sets the parameters made from the config against those that a checkpoint holds, and says where they differ.

    Only for unquantised checkpoints: packed words are not parameters. Under --assume-dense the checkpoint's count is the better one.
    """
    if not by_dtype or not set(by_dtype) <= _PLAIN:
        return model
    held = sum(by_dtype.values())
    made = int(model.total_params)
    if held == made:
        return model
    if any(a.startswith("--assume-dense") for a in model.assumptions):
        return replace(
            model,
            total_params=fact(held, NUMBER, symbol="N", name="parameters", origin=whose),
            active_params=fact(held, NUMBER, symbol="N_act", name="active parameters per token", origin=whose),
        )
    words = (
        f"{whose}: {held:,} parameters, the config's shapes make {made:,} ({held - made:+,}); "
        "draft layers, buffers and a stored copy of a tied head can be the difference"
    )
    return _noted(model, (words,))
