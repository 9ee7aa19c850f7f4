"""A pasted `vllm serve` line as the options it stands for; a flag that gpufit does not use is named, never dropped in silence."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from gpufit.cli.asked import Asked
from gpufit.errors import UsageError

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
    "--max-model-len": "context",
}
_WHOLE = {f.name for f in dataclasses.fields(Asked) if "int" in str(f.type) and "str" not in str(f.type)} | {
    name for name in _VALUES.values() if name not in ("gpu_memory_utilization", "kv_cache_dtype", "speculative_config", "context")
}
_SWITCHES: dict[str, tuple[str, bool]] = {
    "--enable-expert-parallel": ("enable_expert_parallel", True),
    "--enforce-eager": ("enforce_eager", True),
    "--no-enforce-eager": ("enforce_eager", False),
    "--no-enable-prefix-caching": ("no_enable_prefix_caching", True),
    "--enable-prefix-caching": ("no_enable_prefix_caching", False),
    "--language-model-only": ("language_model_only", True),
}
_DTYPES = {"auto": "auto", "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}
_INERT = frozenset(
    """
    --host --port --api-key --served-model-name --trust-remote-code --tokenizer --tokenizer-mode --tokenizer-revision --seed
    --disable-log-requests --disable-log-stats --enable-log-requests --uvicorn-log-level --root-path --ssl-keyfile --ssl-certfile
    --allowed-origins --chat-template --chat-template-content-format --response-role --enable-auto-tool-choice --tool-call-parser
    --reasoning-parser --reasoning-parser-plugin --tool-parser-plugin --generation-config --override-generation-config --download-dir
    --distributed-executor-backend --nnodes --node-rank --master-addr --master-port --data-parallel-address --data-parallel-rpc-port
    --enable-lora --async-scheduling --max-log-len --middleware --load-format --safetensors-load-strategy --revision --code-revision
    --hf-token --enable-chunked-prefill --enable-prompt-tokens-details --scheduling-policy --api-server-count --headless --config-format
    """.split()
)
"""Flags of `vllm serve` that move no memory of the cache or the weights that gpufit counts, or that are its defaults."""
_INERT_SWITCHES = frozenset(
    """
    --trust-remote-code --disable-log-requests --disable-log-stats --enable-log-requests --enable-auto-tool-choice --enable-lora
    --async-scheduling --enable-chunked-prefill --enable-prompt-tokens-details --headless
    """.split()
)
_OTHER_REPOSITORY = ("--quantization", "-q", "--hf-overrides", "--hf-config-path", "--cpu-offload-gb", "--num-gpu-blocks-override")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pasted:
    """A serve line understood: the model, the options, and what the answer must say about flags that were not used."""

    model: str
    asked: Asked
    notes: tuple[str, ...]


def pasted(asked: Asked, words: list[str]) -> Pasted:
    """The options of a pasted line on top of those typed before `--`.

    Raises `UsageError` for another engine's line, a flag without its value, a flag that would change the answer in a way that is not
    sized, and a line without a model.
    """
    if words[:2] != ["vllm", "serve"]:
        raise UsageError(f"a line that begins with {' '.join(words[:3])!r} is not understood", hint="vllm serve MODEL ... is")
    changes: dict[str, object] = {"engine": asked.engine if asked.engine.startswith("vllm") else "vllm", "context": "max"}
    if asked.weights == "auto":
        # A server loads what is published; no other format is tried in its place.
        changes["weights"] = "published"
    model: str | None = None
    notes: list[str] = []
    rest = [w for w in words[2:] if w not in ("\\", "\n")]
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
        elif flag in _VALUES:
            changes[_VALUES[flag]] = _typed(flag, value())
        elif flag in _SWITCHES:
            name, on = _SWITCHES[flag]
            changes[name] = on
        elif flag == "--dtype":
            text = value()
            dtype = _DTYPES.get(text)
            if dtype is None:
                raise UsageError(f"--dtype {text} is not known", hint=f"one of {', '.join(_DTYPES)}")
            if dtype != "auto":
                notes.append(f"--dtype {text}: the checkpoint's own format is sized; unquantised weights take 16 bit either way")
        elif flag in _OTHER_REPOSITORY:
            what = f"{flag} changes what is loaded in a way that is not sized"
            raise UsageError(what, hint="leave it out, or name the format with --weights")
        elif flag in _INERT:
            if flag not in _INERT_SWITCHES and not equals and rest and not rest[0].startswith("-"):
                rest.pop(0)
            notes.append(f"{flag} has no part in this arithmetic: ignored")
        else:
            taken = f" {rest.pop(0)}" if not equals and rest and not rest[0].startswith("-") and model is not None else ""
            notes.append(f"{flag}{taken} is not known here and was ignored: if it changes memory, this answer does not show it")
    if model is None:
        raise UsageError("the pasted line names no model", hint="as in vllm serve ORG/NAME --tensor-parallel-size 8")
    # vLLM takes one GPU for each degree that is not set.
    for name in ("tensor_parallel_size", "pipeline_parallel_size"):
        if getattr(asked, name) is None:
            changes.setdefault(name, 1)
    return Pasted(model=model, asked=dataclasses.replace(asked, **changes), notes=tuple(notes))  # type: ignore[arg-type]


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
