"""The exact tensors of a checkpoint on the Hub, from its headers, kept beside the answer so that they are read once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpufit.errors import NetworkError
from gpufit.sources import hub_cache, hub_env
from gpufit.sources.hub import HubAnswer
from gpufit.sources.hub_files import Checkpoint
from gpufit.sources.safetensors import Tensor, Tensors, read_hub

if TYPE_CHECKING:
    from gpufit.sources.hub_http import Patience


def tensors_of(answer: HubAnswer, chosen: Checkpoint, *, offline: bool, patience: Patience | None = None) -> Tensors:
    """The headers of a checkpoint at the commit of an answer: from the cache, else by range requests.

    Raises `NetworkError` when they are not cached and the Hub may not or cannot be asked.
    """
    place = hub_cache.place(answer.id, f"{answer.sha}.headers") if answer.sha else None
    if place is not None and (found := hub_cache.read(place)) is not None:
        try:
            tensors = tuple(Tensor(name=n, dtype=d, shape=tuple(s), bytes=b) for n, d, s, b in found["tensors"])
            return Tensors(tensors=tensors, files=found["files"], missing=found["missing"])
        except (TypeError, ValueError, KeyError):
            pass
    if offline or hub_env.is_offline():
        raise NetworkError(
            f"the headers of {answer.shown} are in no cache here", hint="ask once with the network, or leave --exact out"
        )
    read = read_hub(answer, chosen, patience=patience)
    if place is not None:
        rows = [[t.name, t.dtype, list(t.shape), t.bytes] for t in read.tensors]
        hub_cache.write(place, {"tensors": rows, "files": read.files, "missing": read.missing})
    return read
