"""What the Hub says of a model: its config.json, the quantiser's own file, and one call for sizes, counts and access.

Cold, an answer costs at most three requests whatever the number of shards: the metadata, config.json, and one of hf_quant_config.json
(where config.json says nothing of quantisation), the head of the index, or the length of a single file's header. Warm, it costs one HEAD
(none at a whole commit hash), and no import of the client. When the Hub is gone the warm answer stands, with its age.
Weights are never read.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gpufit.errors import AccessError, ConfigError, NetworkError, UnknownModelError
from gpufit.sources import hub_cache, hub_env
from gpufit.sources.hub_files import HubFile, checkpoint, counted_bytes, plausible
from gpufit.sources.talk import Talk

if TYPE_CHECKING:
    from gpufit.sources.hub_http import Hub, Patience, Reply

MAIN = "main"
_INDEX_HEAD = 65_536
_TOTAL = re.compile(rb'"total_size"\s*:\s*(\d+)(?:\.0*)?\s*[,}\n]')


@dataclass(frozen=True, slots=True, kw_only=True)
class HubAnswer:
    """What is known of one repository at one revision.

    `sha` is the commit ("" when not known). `config` is None where the repository has no config.json. `parameters` counts elements by
    safetensors dtype as the Hub does. `index_bytes` is the index's total_size; `header_bytes` the length of a single file's header.
    `fetched` is the time in seconds since 1970; `source` is "hub", "cache" or "client cache", `remark` says why a cached answer was not
    checked. `folder` is the client's own copy, where the answer comes from there.
    """

    id: str
    revision: str = MAIN
    sha: str = ""
    etag: str = ""
    config: Mapping[str, Any] | None = None
    hf_quant_config: Mapping[str, Any] | None = None
    files: tuple[HubFile, ...] = ()
    parameters: Mapping[str, int] = field(default_factory=dict)
    index_bytes: int | None = None
    header_bytes: int | None = None
    gated: str = ""
    fetched: float = 0.0
    source: str = "hub"
    remark: str = ""
    folder: Path | None = None
    whole: bool = True

    @property
    def shown(self) -> str:
        """The repository and its commit, for origins."""
        return f"{self.id}@{self.sha[:8]}" if self.sha else self.id

    def age(self, now: float | None = None) -> str:
        """How old the answer is, in words."""
        return age_words((now if now is not None else time.time()) - self.fetched)

    def tensor_bytes(self) -> tuple[int, str] | None:
        """Bytes of the checkpoint's tensors and where the number comes from; None when the files' sizes are not known.

        Counts by dtype, else the index, else one header's length: each only where the file sizes agree. Otherwise the file sizes
        themselves, and the words say that headers are inside.
        """
        chosen = checkpoint(self.files)
        size = chosen.bytes
        number = len(chosen.files)
        files = f"{number} safetensors file" + ("s" if number != 1 else "")
        if size is None:
            return None
        if self.header_bytes is not None and number == 1:
            return size - 8 - self.header_bytes, f"size of the {files} of {self.shown} less its header"
        counted = counted_bytes(self.parameters)
        if counted is not None and plausible(counted, size, number):
            return counted, f"the Hub's counts by dtype for {self.shown}, which the sizes of its {files} bear out"
        if self.index_bytes is not None and plausible(self.index_bytes, size, number):
            return self.index_bytes, f"total_size in {chosen.index} of {self.shown}"
        return size, f"sizes of the {files} of {self.shown}, headers included"


class GatedError(AccessError):
    """A gated repository whose config.json was not shown: `answer` and `stated` are what the Hub tells openly."""

    def __init__(self, message: str, *, hint: str, answer: HubAnswer, stated: Mapping[str, Any]) -> None:
        super().__init__(message, hint=hint)
        self.answer = answer
        self.stated = stated


def age_words(seconds: float) -> str:
    """A span of time as people say it."""
    for size, word in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            n = int(seconds // size)
            return f"{n} {word}" + ("s" if n != 1 else "")
    return "less than a minute"


def fetch_model_files(
    id: str,
    revision: str | None = None,
    *,
    offline: bool = False,
    patience: Patience | None = None,
) -> HubAnswer:
    """The answer for `id` (ORG/NAME) at a branch, tag or commit; see the module for what it costs.

    Raises `UnknownModelError` (no such repository or revision), `AccessError` (gated or private; the message carries what the Hub tells
    openly), `NetworkError` (no usable answer and nothing cached).
    """
    wanted = revision or MAIN
    place = hub_cache.place(id, wanted)
    known = _stored(place)
    if offline or hub_env.is_offline():
        why = "--offline" if offline else "HF_HUB_OFFLINE"
        found = known or _from_client_cache(id, wanted)
        if found is None:
            raise NetworkError(
                f"{_asked(id, wanted)} is in no cache here, and {why} forbids asking the Hub",
                hint="ask once with the network; the answer is kept. A config.json from elsewhere can be read with `-`",
            )
        return replace(found, remark=f"{found.age()} old and not checked ({why})")
    if known is not None:
        if hub_cache.is_commit(wanted):
            return known
        from gpufit.sources.hub_probe import Probe, probe

        probed_file = "config.json" if known.config is not None else known.files[0].name if known.files else "README.md"
        state, words = probe(known.id, wanted, probed_file, sha=known.sha, etag=known.etag)
        if state is Probe.SAME:
            return known
        if state is Probe.GONE:
            return _stale(known, f"{hub_env.shown_endpoint()} {words}")
    try:
        with Talk(f"asking {hub_env.shown_endpoint()} for {id}") as talk:
            answer = _ask(id, wanted, patience, talk.say)
    except NetworkError as error:
        found = known or _from_client_cache(id, wanted)
        if found is None:
            raise
        return _stale(found, error.message)
    if answer.whole:
        hub_cache.write(place, _plain(answer))
    return answer


def _stale(answer: HubAnswer, why: str) -> HubAnswer:
    return replace(answer, remark=f"{answer.age()} old and not checked: {why}")


def _asked(id: str, revision: str) -> str:
    return id if revision == MAIN else f"{id}@{revision}"


def _plain(answer: HubAnswer) -> dict[str, Any]:
    kept = asdict(answer)
    for name in ("source", "remark", "folder", "whole"):
        del kept[name]
    kept["files"] = [[f.name, f.size] for f in answer.files]
    return kept


def _stored(place: Path) -> HubAnswer | None:
    found = hub_cache.read(place)
    if found is None:
        return None
    try:
        found.pop("schema")
        found["files"] = tuple(HubFile(name=name, size=size) for name, size in found["files"])
        answer = HubAnswer(**found, source="cache")
        return answer if answer.config is None or isinstance(answer.config, dict) else None
    except (TypeError, ValueError, KeyError):
        return None


def _from_client_cache(id: str, revision: str) -> HubAnswer | None:
    """An answer from the repositories that the Hub's client has downloaded."""
    folder = hub_cache.snapshot(id, revision)
    if folder is None:
        return None
    config = _json_file(folder / "config.json")
    if config is None and (folder / "config.json").exists():
        return None
    files = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            files.append(HubFile(name=path.relative_to(folder).as_posix(), size=path.stat().st_size))
    dated = folder / "config.json" if config is not None else folder
    return HubAnswer(
        id=id,
        revision=revision,
        sha=folder.name,
        config=config,
        hf_quant_config=_json_file(folder / "hf_quant_config.json"),
        files=tuple(files),
        fetched=dated.stat().st_mtime,
        source="client cache",
        folder=folder,
    )


def _json_file(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


# -- asking ---------------------------------------------------------------------------------------------------------------------------


def _ask(id: str, revision: str, patience: Patience | None, say: Callable[[str], None]) -> HubAnswer:
    from gpufit.sources.hub_http import Hub

    hub = Hub(patience, say=say)
    path = f"/api/models/{quote(id)}" + ("" if revision == MAIN else f"/revision/{quote(revision, safe='')}")
    info = hub.get(f"{path}?blobs=true", what=f"the metadata of {id}", check=_access(id, revision, _is_info))
    assert info is not None
    siblings = info["siblings"]
    answer = HubAnswer(
        id=str(info.get("id") or info.get("modelId") or id),
        revision=revision,
        sha=str(info.get("sha") or ""),
        files=tuple(HubFile(name=str(s["rfilename"]), size=s.get("size")) for s in siblings),
        parameters=_counts(info),
        gated=str(info.get("gated") or ""),  # "auto" or "manual"
        fetched=time.time(),
    )
    names = {f.name for f in answer.files}
    if "config.json" not in names and any(n.endswith(".gguf") for n in names):
        return answer
    etags: list[str] = []

    def is_config(reply: Reply) -> dict[str, Any]:
        found = _is_object(reply)
        etags.append(reply.headers.get("etag", "").removeprefix("W/").strip('"'))
        return found

    check = _access(answer.id, revision, is_config, openly=_openly(info, answer), missing_file=_no_config(answer))
    try:
        config = hub.get(_file(answer, "config.json"), what=f"config.json of {id}", check=check)
    except AccessError as error:
        if not answer.gated:
            raise
        stated = info.get("config")
        shown = stated if isinstance(stated, dict) else {}
        raise GatedError(error.message, hint=error.hint, answer=answer, stated=shown) from None
    answer = replace(answer, config=config, etag=etags[-1] if etags else "")
    return _third(hub, answer, names)


def _third(hub: Hub, answer: HubAnswer, names: set[str]) -> HubAnswer:
    """One request more, for what is still open: the quantiser's file before the exact size."""
    assert answer.config is not None
    if "hf_quant_config.json" in names and not _says_quantisation(answer.config):
        check = _access(answer.id, answer.revision, _is_object)
        found = hub.get(_file(answer, "hf_quant_config.json"), what=f"hf_quant_config.json of {answer.id}", check=check)
        return replace(answer, hf_quant_config=found)
    chosen = checkpoint(answer.files)
    size = chosen.bytes
    if size is None or plausible(counted_bytes(answer.parameters), size, len(chosen.files)):
        return answer
    try:
        if len(chosen.files) == 1:
            length = hub.get(_file(answer, chosen.files[0].name), what="a header's length", span=(0, 8), check=_is_length)
            if 0 < length < size:
                return replace(answer, header_bytes=length)
        elif chosen.index in names:
            head = hub.get(_file(answer, chosen.index), what="the index", limit=_INDEX_HEAD, check=_is_index_head)
            if total := _TOTAL.search(head):
                return replace(answer, index_bytes=int(total[1]))
    except (NetworkError, AccessError):
        return replace(answer, whole=False)  # answers, with the files' sizes; not kept, so that the next question asks again
    return answer


def _file(answer: HubAnswer, name: str) -> str:
    """The path of a file, at the commit that the metadata named."""
    return f"/{quote(answer.id)}/resolve/{quote(answer.sha or answer.revision, safe='')}/{quote(name)}"


def _says_quantisation(config: Mapping[str, Any]) -> bool:
    inner = config.get("text_config")
    return any(
        level.get(key)
        for level in (config, inner if isinstance(inner, Mapping) else {})
        for key in ("quantization_config", "compression_config", "quantization")
    )


def _counts(info: Mapping[str, Any]) -> dict[str, int]:
    stated = info.get("safetensors")
    counts = stated.get("parameters") if isinstance(stated, Mapping) else None
    if not isinstance(counts, Mapping):
        return {}
    return {str(k): v for k, v in counts.items() if isinstance(v, int)}


# -- what counts as an answer ---------------------------------------------------------------------------------------------------------


def _is_object(reply: Reply) -> dict[str, Any]:
    """The JSON object in a reply; a `Fault` for anything else, so that a sign-in page is never taken for a config."""
    from gpufit.sources.hub_http import Fault

    try:
        found = json.loads(reply.body.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        html = reply.body.lstrip()[:1] == b"<"
        raise Fault("it sent an HTML page instead of JSON" if html else "it sent broken JSON instead of a file") from None
    if not isinstance(found, dict):
        raise Fault("it sent something instead of a JSON object", again=False)
    return found


def _is_info(reply: Reply) -> dict[str, Any]:
    from gpufit.sources.hub_http import Fault

    found = _is_object(reply)
    siblings = found.get("siblings")
    if not isinstance(siblings, list) or not all(isinstance(s, dict) and s.get("rfilename") for s in siblings):
        raise Fault("it sent something instead of a model's metadata", again=False)
    return found


def _is_length(reply: Reply) -> int:
    from gpufit.sources.hub_http import Fault

    if reply.status not in (200, 206) or len(reply.body) != 8:
        raise Fault("it sent something instead of the file's first bytes", again=reply.status in (200, 206))
    return int.from_bytes(reply.body, "little")


def _is_index_head(reply: Reply) -> bytes:
    from gpufit.sources.hub_http import Fault

    if reply.status not in (200, 206) or not reply.body.lstrip().startswith(b"{"):
        raise Fault("it sent something instead of an index", again=reply.status in (200, 206))
    return reply.body


def _access(
    id: str,
    revision: str,
    then: Callable[[Reply], dict[str, Any]],
    *,
    openly: str = "",
    missing_file: ConfigError | None = None,
) -> Callable[[Reply], dict[str, Any]]:
    """A check that turns the Hub's refusals into errors that say what to do, and leaves the rest to `then`."""

    def check(reply: Reply) -> dict[str, Any]:
        from gpufit.sources.hub_http import Fault

        if reply.status in (200, 206):
            return then(reply)
        refused = refusal(reply, id, revision, openly=openly, missing_file=missing_file)
        if refused is not None:
            raise refused
        raise Fault(f"it answered {reply.status}", again=False)

    return check


def refusal(
    reply: Reply, id: str, revision: str, *, openly: str = "", missing_file: ConfigError | None = None
) -> UnknownModelError | AccessError | ConfigError | None:
    """The error that a refusing answer of the Hub stands for, or None when it is not one of the Hub's refusals."""
    has_token = hub_env.token() is not None
    message = reply.headers.get("x-error-message", "")
    if reply.code == "RevisionNotFound":
        return UnknownModelError(
            f"{id} has no revision {revision!r}", hint="a branch, a tag or a commit of the repository; none means main"
        )
    if reply.code == "EntryNotFound" and missing_file is not None:
        return missing_file
    if reply.code == "GatedRepo":
        page = f"{hub_env.shown_endpoint()}/{id}"
        if has_token:
            todo = f"ask for access at {page} with the account of the token in use, or set HF_TOKEN to one that has it"
        else:
            todo = f"accept the terms at {page}, then set HF_TOKEN to a token of that account"
        return AccessError(
            f"{id} is gated: its config.json is not shown " + ("to this token" if has_token else "without a token") + openly,
            hint=f"{todo}; a config.json that you have can be read with `-`",
        )
    if reply.status == 401 and "Invalid credentials" in message:
        return AccessError("the Hub does not accept the token", hint="set HF_TOKEN to a valid one, or unset it for public models")
    if reply.code == "RepoNotFound" or reply.status == 404:
        seen = "for this token" if has_token else "without a token"
        return UnknownModelError(
            f"{hub_env.shown_endpoint()} has no model {id} {seen}",
            hint="check the spelling" + ("" if has_token else "; a private repository needs HF_TOKEN"),
        )
    if reply.status in (401, 403):
        disabled = "disabled" in message
        return AccessError(
            f"access to {id} is " + ("disabled on the Hub" if disabled else "refused"),
            hint="a config.json from elsewhere can be read with `-`" if disabled else "set HF_TOKEN to a token that may read it",
        )
    return None


def _openly(info: Mapping[str, Any], answer: HubAnswer) -> str:
    """What the Hub tells of a gated model, and what is missing for an answer."""
    stated = info.get("config")
    config = stated if isinstance(stated, Mapping) else {}
    told = []
    if config.get("model_type"):
        told.append(f"model_type {config['model_type']}")
    if answer.parameters:
        told.append(" + ".join(f"{count:,} {dtype}" for dtype, count in answer.parameters.items()) + " parameters")
    if found := answer.tensor_bytes():
        told.append(f"{found[0]:,} bytes of weights")
    if not told:
        return ""
    return f". Openly known: {', '.join(told)}. Missing: layers, heads and windows, without which the KV cache is not known"


def _no_config(answer: HubAnswer) -> ConfigError:
    names = {f.name for f in answer.files}
    if "adapter_config.json" in names:
        hint = "it is an adapter: name the model it was made for (base_model_name_or_path in its adapter_config.json)"
    elif "model_index.json" in names:
        hint = "it is a pipeline of several models, not a language model"
    elif "params.json" in names:
        hint = "it has its vendor's params.json only; a repository converted for transformers has a config.json"
    else:
        hint = "gpufit reads config.json or GGUF files; this repository has neither"
    return ConfigError(f"{answer.shown} has no config.json", hint=hint)
