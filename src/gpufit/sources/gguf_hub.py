"""GGUF headers on the Hub, by range requests that stop where the header does, kept beside the answer."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gpufit.errors import NetworkError
from gpufit.formats.ggml import TensorType
from gpufit.sources import hub_cache, hub_env
from gpufit.sources.gguf import GgufHeader, GgufTensor, Passed, Window, checked, parse, read_file
from gpufit.sources.hub_files import GgufChoice, HubFile
from gpufit.sources.talk import Talk

if TYPE_CHECKING:
    from gpufit.sources.hub import HubAnswer
    from gpufit.sources.hub_http import Patience, Reply


def headers_of(answer: HubAnswer, chosen: GgufChoice, *, offline: bool, patience: Patience | None = None) -> list[GgufHeader]:
    """The headers of a model's files, in order. Raises `NetworkError` when they are not cached and the Hub may not be asked."""
    if answer.folder is not None:
        return [read_file(answer.folder / f.name) for f in chosen.files]
    place = hub_cache.place(answer.id, f"{answer.sha}.{chosen.name}") if answer.sha else None
    if place is not None and (found := hub_cache.read(place)) is not None:
        try:
            return [_restored(row) for row in found["headers"]]
        except (TypeError, ValueError, KeyError):
            pass
    if offline or hub_env.is_offline():
        raise NetworkError(f"the header of {chosen.name} of {answer.shown} is in no cache here", hint="ask once with the network")
    with Talk(f"reading the header of {chosen.name}") as talk:
        from gpufit.sources.hub_http import Hub

        hub = Hub(patience, say=talk.say)
        headers = [_read(hub, answer, file) for file in chosen.files]
    if place is not None:
        hub_cache.write(place, {"headers": [_kept(h) for h in headers]})
    return headers


def _read(hub: Any, answer: HubAnswer, file: HubFile) -> GgufHeader:
    from gpufit.sources.hub import refusal
    from gpufit.sources.hub_http import Fault

    path = f"/{quote(answer.id)}/resolve/{quote(answer.sha or answer.revision, safe='')}/{quote(file.name)}"

    def more(start: int, size: int) -> bytes:
        end = start + size if file.size is None else min(start + size, file.size)
        if end <= start:
            return b""

        def check(reply: Reply) -> bytes:
            if reply.status in (200, 206) and len(reply.body) == end - start:
                return reply.body
            if reply.status not in (200, 206):
                raise refusal(reply, answer.id, answer.revision) or Fault(f"it answered {reply.status}", again=False)
            raise Fault("it sent something instead of a part of the file")

        got: bytes = hub.get(path, what=f"the header of {file.name}", span=(start, end), check=check)
        hub.patience.renew()
        return got

    return checked(parse(Window(f"{answer.id}/{file.name}", more)), file.size)


def _kept(header: GgufHeader) -> dict[str, Any]:
    metadata = {k: ({"passed": v.length} if isinstance(v, Passed) else v) for k, v in header.metadata.items() if _is_shape(k)}
    rows = [[t.name, list(t.dims), asdict(t.type), t.offset] for t in header.tensors]
    return {"where": header.where, "metadata": metadata, "tensors": rows, "size": header.size}


def _is_shape(key: str) -> bool:
    """Keys that say something of the model: of the tokenizer only its length."""
    return key == "tokenizer.ggml.tokens" or not key.startswith("tokenizer.")


def _restored(row: dict[str, Any]) -> GgufHeader:
    metadata = {k: (Passed(v["passed"]) if isinstance(v, dict) else v) for k, v in row["metadata"].items()}
    tensors = tuple(GgufTensor(name=n, dims=tuple(d), type=TensorType(**t), offset=o) for n, d, t, o in row["tensors"])
    return GgufHeader(where=row["where"], metadata=metadata, tensors=tensors, size=row["size"])
