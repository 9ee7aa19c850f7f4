"""A pasted `vllm serve` line as the options it stands for; a flag that gpufit does not use is named, never dropped in silence."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpufit.cli.asked import Asked
from gpufit.errors import UsageError
from gpufit.report.command import before_bf16
from gpufit.sizing.question import Answer, Change

if TYPE_CHECKING:
    from gpufit.hardware import Hardware
    from gpufit.model import Model

_VALUES: dict[str, str] = {
    "--tensor-parallel-size": "tensor_parallel_size",
    "-tp": "tensor_parallel_size",
    "--pipeline-parallel-size": "pipeline_parallel_size",
    "-pp": "pipeline_parallel_size",
    "--data-parallel-size": "data_parallel_size",
    "-dp": "data_parallel_size",
    "--decode-context-parallel-size": "decode_context_parallel_size",
    "-dcp": "decode_context_parallel_size",
    "--max-num-batched-tokens": "max_num_batched_tokens",
    "--max-num-seqs": "max_num_seqs",
    "--block-size": "block_size",
    "--kv-cache-memory-bytes": "kv_cache_memory_bytes",
    "--kv-cache-memory": "kv_cache_memory_bytes",
    "--max-loras": "max_loras",
    "--max-lora-rank": "max_lora_rank",
    "--gpu-memory-utilization": "gpu_memory_utilization",
    "--kv-cache-dtype": "kv_cache_dtype",
    "--speculative-config": "speculative_config",
    "-sc": "speculative_config",
    "--max-model-len": "context",
    "--mamba-cache-dtype": "mamba_cache_dtype",
    "--mamba-ssm-cache-dtype": "mamba_ssm_cache_dtype",
}
_WHOLE = {f.name for f in dataclasses.fields(Asked) if "int" in str(f.type) and "str" not in str(f.type)} | {
    name for name in _VALUES.values() if name != "context" and not name.endswith(("_dtype", "_config", "_utilization"))
}
_SWITCHES: dict[str, tuple[str, bool]] = {
    "--enable-expert-parallel": ("enable_expert_parallel", True),
    "-ep": ("enable_expert_parallel", True),
    "--no-enable-expert-parallel": ("enable_expert_parallel", False),
    "--disable-expert-parallel": ("enable_expert_parallel", False),
    "--enforce-eager": ("enforce_eager", True),
    "--no-enforce-eager": ("enforce_eager", False),
    "--no-enable-prefix-caching": ("no_enable_prefix_caching", True),
    "--disable-prefix-caching": ("no_enable_prefix_caching", True),
    "--enable-prefix-caching": ("no_enable_prefix_caching", False),
    "--no-enable-chunked-prefill": ("no_enable_chunked_prefill", True),
    "--disable-chunked-prefill": ("no_enable_chunked_prefill", True),
    "--enable-chunked-prefill": ("no_enable_chunked_prefill", False),
    "--disable-hybrid-kv-cache-manager": ("disable_hybrid_kv_cache_manager", True),
    "--no-disable-hybrid-kv-cache-manager": ("disable_hybrid_kv_cache_manager", False),
    "--enable-hybrid-kv-cache-manager": ("disable_hybrid_kv_cache_manager", False),
    "--async-scheduling": ("async_scheduling", True),
    "--no-async-scheduling": ("async_scheduling", False),
    "--language-model-only": ("language_model_only", True),
    "--no-language-model-only": ("language_model_only", False),
}
_DTYPES = {"auto": "auto", "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}
_INERT = frozenset(
    """
    --host --port --api-key --served-model-name --trust-remote-code --tokenizer --tokenizer-mode --tokenizer-revision --seed
    --disable-log-requests --disable-log-stats --enable-log-requests --uvicorn-log-level --root-path --ssl-keyfile --ssl-certfile
    --allowed-origins --chat-template --chat-template-content-format --response-role --enable-auto-tool-choice --tool-call-parser
    --reasoning-parser --reasoning-parser-plugin --tool-parser-plugin --generation-config --override-generation-config --download-dir
    --distributed-executor-backend --nnodes --node-rank --master-addr --master-port --data-parallel-address --data-parallel-rpc-port
    --max-log-len --middleware --load-format --safetensors-load-strategy --code-revision --lora-modules
    --hf-token --enable-prompt-tokens-details --scheduling-policy --api-server-count --headless --config-format
    """.split()
)
"""Flags of `vllm serve` that move no memory of the cache or the weights that gpufit counts, or that are its defaults."""
_INERT_SWITCHES = frozenset(
    """
    --trust-remote-code --disable-log-requests --disable-log-stats --enable-log-requests --enable-auto-tool-choice
    --enable-prompt-tokens-details --headless
    """.split()
)
_MANY = ("--served-model-name", "--lora-modules", "--middleware")
"""Flags of those that take several values."""
_REFUSED = {
    "--config": "the file can set every option",
    "--hf-overrides": "it changes the model's own config",
    "--hf-config-path": "it replaces the model's own config",
    "--cpu-offload-gb": "weights that stay in host memory are not sized",
    "--num-gpu-blocks-override": "it replaces the number of blocks that is computed here",
}
_JSON = ("--speculative-config", "--hf-overrides")
_STARTS = ("vllm", "python", "python3")
_OTHER_STARTS = frozenset(
    "docker podman nerdctl kubectl trtllm-serve sglang llama-server ollama uv uvx poetry conda sudo nohup exec time srun mpirun ray".split()
)
"""Beginnings that no model is named like, so that the words are a line which is not understood."""
UNDERSTOOD = "vllm serve MODEL ..., and python -m vllm.entrypoints.openai.api_server --model MODEL ..., are understood"
_VARIABLE = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_CONTINUED = re.compile(r"[\\^`][ \t]*\r?\n")
_HARMLESS = (
    "CUDA_VISIBLE_DEVICES=",
    "CUDA_DEVICE_ORDER=",
    "HF_TOKEN=",
    "HF_HOME=",
    "HF_HUB_",
    "HUGGING_FACE_HUB_TOKEN=",
    "VLLM_API_KEY=",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pasted:
    """A serve line understood: the model, the options, and what the answer must say about flags that were not used.

    `quantization` is the method that the line names, which must be the checkpoint's own; `dtype` the plain format of --dtype, None for
    auto. What they mean depends on the checkpoint.
    """

    model: str
    asked: Asked
    notes: tuple[str, ...]
    quantization: str | None = None
    dtype: str | None = None


def line_of(words: list[str]) -> list[str] | None:
    """The words of a pasted line where these are one, else None: names of models hold neither flags nor a server's command.

    One string is cut as a shell would. Raises `UsageError` where a model stands before the line and for quotes that do not end.
    """
    if len(words) == 1 and any(c.isspace() for c in words[0].strip()) and not Path(words[0]).exists():
        try:
            words = shlex.split(_CONTINUED.sub(" ", words[0]).rstrip().rstrip("\\"))
        except ValueError as error:
            raise UsageError(f"the pasted line does not end as it should: {error}", hint="paste the whole line") from error
    elif any(_begins(w) for w in words[1:] if " " in w):
        raise _two(words[0])
    else:
        words = [w.strip("\\\r\n\t ") if w.strip().strip("\\") != w else w for w in words]
    words = [w for w in words if w]
    if not words:
        return None
    if words[0] == "env" or _VARIABLE.fullmatch(words[0]) or Path(words[0]).name in _STARTS:
        return words
    if words[0] in _OTHER_STARTS:
        return words
    for at, word in enumerate(words[1:], start=1):
        if (word == "vllm" and words[at + 1 : at + 2] == ["serve"]) or (word in _STARTS and words[at + 1 : at + 2] == ["-m"]):
            raise _two(words[0])
    # What begins with a dash can only come after `--`, where no model's name does; "-" is a config on stdin.
    return words if any(w.startswith("-") and w != "-" for w in words) else None


def _begins(text: str) -> bool:
    first = text.split()[:1]
    return bool(first) and (first[0] in _STARTS or bool(_VARIABLE.fullmatch(first[0])))


def _two(first: str) -> UsageError:
    return UsageError(f"{first} and a pasted line: which model is asked for", hint=f"the line names its model; {UNDERSTOOD}")


def _command(words: list[str]) -> tuple[list[str], list[str]]:
    """The words after the command, and the variables set before it."""
    rest = list(words)
    if rest[:1] == ["env"]:
        rest.pop(0)
    variables = []
    while rest and _VARIABLE.fullmatch(rest[0]):
        variables.append(rest.pop(0))
    if rest[:1] and Path(rest[0]).name == "vllm" and rest[1:2] == ["serve"]:
        return rest[2:], variables
    if rest[:1] and Path(rest[0]).name in ("python", "python3") and rest[1:3] == ["-m", "vllm.entrypoints.openai.api_server"]:
        return rest[3:], variables
    raise UsageError(f"a line that begins with {' '.join(rest[:3])!r} is not understood", hint=UNDERSTOOD)


def pasted(asked: Asked, words: list[str]) -> Pasted:
    """The options of a pasted line, and those typed before `--` where the line does not set them.

    Raises `UsageError` for another engine's line, a flag without its value, a flag that would change the answer in a way that is not
    sized, an option that the line sets otherwise, and a line without a model.
    """
    rest, variables = _command(words)
    notes = [
        f"{v.partition('=')[0]} has no part in this arithmetic: ignored"
        if v.startswith(_HARMLESS)
        else f"{v} is not known here and was ignored: if it changes memory, this answer does not show it"
        for v in variables
    ]
    changes: dict[str, object] = {}
    flags: dict[str, str] = {}
    model = revision = quantization = dtype = None
    lora: bool | None = None
    while rest:
        word = rest.pop(0)
        flag, equals, inline = word.partition("=")
        flag = flag.replace("_", "-") if flag.startswith("--") else flag

        def value(flag: str = flag, equals: str = equals, inline: str = inline) -> str:
            if equals:
                return inline
            if not rest:
                raise UsageError(f"{flag} has no value in the pasted line", hint="paste the whole line")
            return rest.pop(0)

        if not word.startswith("-"):
            if model is not None:
                raise UsageError(f"two models in the pasted line: {model} and {word}", hint="quote values that hold blanks")
            model = word
        elif flag == "--model":
            model = value()
        elif flag == "--revision":
            revision = value()
        elif flag in ("--quantization", "-q"):
            quantization = value()
        elif flag in _VALUES:
            name = _VALUES[flag]
            changes[name], flags[name] = _typed(flag, value()), flag
        elif flag in _SWITCHES:
            name, on = _SWITCHES[flag]
            changes[name], flags[name] = on, flag
        elif flag in ("--enable-lora", "--no-enable-lora"):
            lora = flag == "--enable-lora"
        elif flag == "--dtype":
            text = value()
            dtype = _DTYPES.get(text)
            if dtype is None:
                raise UsageError(f"--dtype {text} is not known", hint=f"one of {', '.join(_DTYPES)}")
        elif flag in _REFUSED:
            raise UsageError(f"{flag} cannot be sized: {_REFUSED[flag]}", hint="leave it out, and write what it sets as flags")
        elif flag.partition(".")[0] in _JSON:
            raise UsageError(f"{flag} is not understood in parts", hint=f"as JSON: {flag.partition('.')[0]} '{{...}}'")
        elif flag in _INERT:
            if flag not in _INERT_SWITCHES and not equals and rest and not rest[0].startswith("-"):
                rest.pop(0)
                while flag in _MANY and model is not None and rest and not rest[0].startswith("-"):
                    rest.pop(0)
            notes.append(f"{flag} has no part in this arithmetic: ignored")
        else:
            taken = f" {rest.pop(0)}" if not equals and rest and not rest[0].startswith("-") and model is not None else ""
            notes.append(f"{flag}{taken} is not known here and was ignored: if it changes memory, this answer does not show it")
    if model is None:
        raise UsageError("the pasted line names no model", hint="as in vllm serve ORG/NAME --tensor-parallel-size 8")
    notes += _adapters(lora, changes)
    notes += _before(asked, changes, flags)
    if not asked.engine.startswith("vllm"):
        changes["engine"] = "vllm"
    if asked.weights == "auto":
        # A server loads what is published; no other format is tried in its place.
        changes["weights"] = "published"
    if asked.context is None:
        changes.setdefault("context", "max")
    # vLLM takes one GPU for each degree that is not set.
    for name in ("tensor_parallel_size", "pipeline_parallel_size"):
        if getattr(asked, name) is None:
            changes.setdefault(name, 1)
    return Pasted(
        model=_at_revision(model, revision, notes),
        asked=dataclasses.replace(asked, **changes),  # type: ignore[arg-type]
        notes=tuple(notes),
        quantization=quantization,
        dtype=None if dtype == "auto" else dtype,
    )


def _adapters(lora: bool | None, changes: dict[str, object]) -> list[str]:
    """Adapter slots as vLLM makes them: none without --enable-lora, one of rank 16 with it alone."""
    sizes = [n for n in ("max_loras", "max_lora_rank") if n in changes]
    if lora:
        if not sizes:
            changes["max_loras"] = 1
        return []
    for name in sizes:
        del changes[name]
    return [f"--{n.replace('_', '-')} does nothing without --enable-lora: vLLM makes no slots" for n in sizes]


def _before(asked: Asked, changes: dict[str, object], flags: dict[str, str]) -> list[str]:
    """What the answer says of options before `--`: used where the line does not set them, refused where it sets them otherwise."""
    notes = []
    if "engine" in asked.typed and not asked.engine.startswith("vllm"):
        raise UsageError(
            f"--engine {asked.engine} and a vLLM line contradict each other", hint="--engine vllm@VERSION names its rules"
        )
    for name in sorted(asked.typed - _ASIDE):
        option, own = "--" + name.replace("_", "-"), getattr(asked, name)
        shown = option if own is True else f"{option} {own}"
        if name not in changes:
            notes.append(f"{shown}, typed before --, is used although the pasted line does not set it")
            continue
        if _same(name, own, changes[name]):
            continue
        line = f"{flags.get(name, option)} {'' if isinstance(changes[name], bool) else changes[name]}".strip()
        raise UsageError(f"{shown} before -- and {line} in the pasted line contradict each other", hint="leave one of them out")
    return notes


_ASIDE = frozenset("gpu engine min_concurrency overhead_gib as_json format offline assume_dense exact".split())
"""Options that no serve line has: they say how to answer, and stand before `--`."""


def _same(name: str, own: object, line: object) -> bool:
    if name == "context":
        from gpufit.cli.options import tokens

        return tokens(str(own)) == tokens(str(line))
    return own == line


def _at_revision(model: str, revision: str | None, notes: list[str]) -> str:
    """The name with the revision that the line asks for; vLLM reads none of a folder."""
    if revision is None:
        return model
    if Path(model).expanduser().exists():
        notes.append(f"--revision {revision} means nothing for a folder: ignored")
        return model
    if "@" in model:
        raise UsageError(f"{model} and --revision {revision} name two revisions", hint="leave one of them out")
    if revision == "main":
        return model
    from gpufit.sources.catalogue import find_model

    known = find_model(model)
    return f"{known.id if known is not None else model}@{revision}"


def loaded(line: Pasted, model: Model, hardware: tuple[Hardware, ...]) -> Pasted:
    """The line once its checkpoint is known: the format that --dtype makes of it, and what to say of --quantization.

    An unquantised checkpoint is cast; one in fp32 is cast to 16 bit where nothing is said (vLLM 0.33.0, config/model.py). Raises
    `UsageError` for a quantisation that is not the checkpoint's own, for a dtype whose cache is not sized and for one that no GPU here has.
    """
    notes = [*line.notes, *_quantization(line, model)]
    own, said = model.published.format, line.dtype
    asked = line.asked
    if said == "bf16" and all(before_bf16(h.gpu) for h in hardware):
        gpu = hardware[0].gpu
        what = f"vLLM refuses --dtype bfloat16 on {gpu.name} (compute capability {gpu.compute_capability}, 8.0 has it)"
        raise UsageError(what, hint="--dtype float16 is as large")
    if own not in _PLAIN:
        if said == "fp32":
            raise UsageError(f"--dtype float32 with {own} weights is not sized", hint="leave it out: auto computes in 16 bit")
    else:
        if said == "fp32" and asked.kv_cache_dtype == "auto":
            what = "--dtype float32 makes --kv-cache-dtype auto a cache of 4 bytes an element, which is not sized for vLLM"
            raise UsageError(what, hint="as in --kv-cache-dtype bfloat16")
        makes = said or ("bf16" if own == "fp32" else own)
        if makes != own and asked.weights == "published":
            asked = dataclasses.replace(asked, weights=makes)
            why = f"--dtype {_NAMES[makes]}" if said else f"without --dtype vLLM loads it in {_NAMES[makes]}"
            notes.append(f"the checkpoint is in {own}, {why}: sized in {makes}")
    return dataclasses.replace(line, asked=asked, notes=tuple(notes))


_PLAIN = ("bf16", "fp16", "fp32")
_NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def _quantization(line: Pasted, model: Model) -> tuple[str, ...]:
    """What to say of --quantization: the checkpoint's own method changes nothing; another is a `UsageError`."""
    if line.quantization is None:
        return ()
    word = line.quantization.strip().lower().replace("_", "-")
    known = model.published
    own = [n.lower().replace("_", "-") for n in (known.method, known.format) if n]
    if known.method and word in {*own, *(f"{n}-marlin" for n in own)}:
        return (f"--quantization {line.quantization} is the checkpoint's own: nothing changes",)
    what = f"--quantization {line.quantization} is not the checkpoint's own ({known.method or known.format}): what it loads is not sized"
    raise UsageError(what, hint="leave it out, or name the format with --weights before --")


def advised(found: Answer) -> Answer:
    """The answer with its advice in the words of a serve line; what a line cannot say is left out."""
    return dataclasses.replace(found, changes=tuple(_advice(found))) if found.changes else found


def _advice(found: Answer) -> Iterator[Change]:
    from gpufit.sizing.search import answer

    question = dataclasses.replace(found.question, hardware=(found.hardware,))
    wider = answer(dataclasses.replace(question, tensor_parallel=None, pipeline_parallel=None))
    if wider.fits and wider.placement is not None:
        tp, pp = int(wider.placement.tensor_parallel), int(wider.placement.pipeline_parallel)
        yield Change(
            what=f"tensor parallel {tp}" if pp == 1 else f"tp {tp} pp {pp}", option=_degrees(tp, pp), sequences=wider.sequences
        )
    for change in found.changes:
        option, *more = change.option.split()
        if option == "--context":
            yield dataclasses.replace(change, option=f"--max-model-len {more[0]}")
        elif option == "--kv-cache-dtype":
            yield change
        elif option == "--gpu" and not wider.fits:
            typed = dict(zip(more[1::2], more[2::2], strict=False))
            tp, pp = int(typed.get("--tp", 0)), int(typed.get("--pp", 1))
            if tp:
                yield dataclasses.replace(change, what=f"{change.what} (--gpu {more[0]})", option=_degrees(tp, pp))


def _degrees(tp: int, pp: int) -> str:
    return f"--tensor-parallel-size {tp}" + (f" --pipeline-parallel-size {pp}" if pp > 1 else "")


def _typed(flag: str, text: str) -> object:
    name = _VALUES[flag]
    if name == "context":
        return _length(text)
    if name not in _WHOLE:
        return text
    digits = text.replace("_", "")
    if not digits.isdigit():
        raise UsageError(f"{flag} {text!r} in the pasted line is not a whole number", hint="as vLLM takes it")
    return int(digits)


def _length(text: str) -> str:
    """A length as vLLM reads it: `8k` is 8,000 there and `8K` 8,192; -1 and `auto` let it choose, which is the model's limit here."""
    if text in ("-1", "auto"):
        return "max"
    scale = {"k": 1000, "m": 10**6, "g": 10**9, "K": 1024, "M": 1024**2, "G": 1024**3}.get(text[-1:])
    number = text[:-1] if scale else text
    try:
        return str(int(float(number) * scale)) if scale else str(int(number))
    except ValueError as error:
        raise UsageError(f"--max-model-len {text!r} in the pasted line is not a length", hint="as in 32768, 32k or 32K") from error
