"""The command that serves an answer, with every assumed flag written out: `vllm serve`, or `llama-server` for what only llama.cpp loads.

llama.cpp: common/arg.cpp; its -c is the total over slots, and src/llama-cparams.h allows 256 slots (LLAMA_MAX_SEQ).
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from gpufit.derivation import number_text
from gpufit.engines.base import Capacity
from gpufit.formats.cache import GGML
from gpufit.hardware import Gpu
from gpufit.model import TOWERS
from gpufit.quantity import Q
from gpufit.sizing.question import Answer

_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_GGML_CACHES = frozenset(f.name for f in GGML)
_MOST_SLOTS = 256
_PLAIN = frozenset(("auto", *_DTYPES, *_DTYPES.values()))
_LEAST_DEFAULT_TOKENS, _USUAL_TOKENS = 2048, 8192
# vLLM 0.33.0: platforms/cuda.py (supported_dtypes), config/model.py (_FLOAT16_NOT_SUPPORTED_MODELS).
_FIRST_BF16 = (8, 0)
_NEVER_FP16 = ("gemma2", "gemma3", "gemma3_text", "glm4")
_STDIN = "YOUR-CHECKPOINT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """How a served checkpoint is named where its model's id does not say it: `path` on this disk, or `revision` on the Hub."""

    path: str = ""
    revision: str = ""


def named_as(typed: str, *, of_catalogue: bool) -> Named:
    """What a user's word for a model means to a server; `of_catalogue` when the catalogue knew the word."""
    if of_catalogue:
        return Named()
    text = typed.strip()
    path = Path(text).expanduser()
    if text == "-" or path.is_file() or (path.exists() and not path.is_dir()):
        # A server loads a folder; that of a config.json is one.
        return Named(path=str(path.parent) if path.name == "config.json" else _STDIN)
    if path.is_dir():
        return Named(path=text)
    revision = re.search(r"/(?:tree|blob|resolve)/([^/?#]+)|^[^:]+@([^@:]+)", text)
    return Named(revision=next(filter(None, revision.groups()), "") if revision else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeLine:
    """A command by its words, one flag with its value each, and what to say below it; without words, why there is none."""

    words: tuple[str, ...]
    note: str


def serve_line(answer: Answer, named: Named | None = None) -> ServeLine | None:
    """The command for one replica of an answer; None when it does not fit."""
    c, p = answer.capacity, answer.placement
    if not answer.fits or c is None or p is None:
        return None
    if c.weights.gguf or c.cache.name in _GGML_CACHES:
        why = _no_llama_cpp(c, p.gpus)
        if why:
            return ServeLine(words=(), note=why)
        fewer = f" It has at most {_MOST_SLOTS} slots." if int(c.per_replica) > _MOST_SLOTS else ""
        more = f"llama.cpp takes more than weights and cache: compute buffers and the CUDA context come on top.{fewer}"
        return _each_its_own(answer, _llama_server(answer, c), more, 8080)
    why = _no_vllm(answer, c)
    if why:
        return ServeLine(words=(), note=why)
    said = [_old_note(answer, c)]
    if answer.question.engine.version is None:
        said.append("vLLM takes more than weights and cache: --engine vllm predicts what its planner allocates.")
    return _each_its_own(answer, vllm_serve(answer, named), " ".join(filter(None, said)), 8000)


def _each_its_own(answer: Answer, words: tuple[str, ...], note: str, port: int) -> ServeLine:
    """The line of the first of several replicas, with the GPUs and the port that the others may not share."""
    p = answer.placement
    replicas = 1 if answer.replicas is None else int(answer.replicas)
    if replicas == 1 or p is None:
        return ServeLine(words=words, note=note)
    if p.gpus > answer.hardware.gpus_per_node:
        return ServeLine(words=words, note=f"Each replica needs servers of its own. {note}".strip())
    if answer.hardware.gpu.kind == "mig":
        return ServeLine(words=words, note=f"Each replica needs a device and a --port of its own. {note}".strip())

    def on(first: int) -> str:
        return "CUDA_VISIBLE_DEVICES=" + ",".join(str(first + i) for i in range(p.gpus))

    here = min(replicas, max(1, answer.hardware.gpus_per_node // p.gpus))
    alone = "" if here > 1 else " on a server of its own"
    following = f": the next has {on(p.gpus)} and --port {port + 1}" if here > 1 else ""
    again = f", and each further server begins again with {on(0)}" if 1 < here < replicas else ""
    own = f"Each replica needs GPUs and a port of its own{alone}{following}{again}."
    return ServeLine(words=(f"{on(0)} {words[0]}", *words[1:], f"--port {port}"), note=f"{own} {note}".strip())


def before_bf16(gpu: Gpu) -> bool:
    """Whether a GPU is older than bf16, which vLLM then refuses; unknown is not old."""
    known = gpu.compute_capability
    return known is not None and tuple(map(int, known.split("."))) < _FIRST_BF16


def _dtype(answer: Answer, c: Capacity) -> str:
    """What --dtype has to say: the plain dtype that was sized, float16 where the GPU has no bf16; empty for quantised weights."""
    asked = _DTYPES.get(c.weights.format, "")
    return "float16" if asked == "bfloat16" and before_bf16(answer.hardware.gpu) else asked


def _old_note(answer: Answer, c: Capacity) -> str:
    if c.weights.format != "bf16" or not before_bf16(answer.hardware.gpu):
        return ""
    gpu = answer.hardware.gpu
    return (
        f"float16, as large as bf16: vLLM refuses bfloat16 on {gpu.name} (compute capability {gpu.compute_capability}, 8.0 has it)."
    )


def _no_vllm(answer: Answer, c: Capacity) -> str:
    """Why vLLM does not serve it so; empty where it does."""
    gpu, model = answer.hardware.gpu, answer.question.model
    if model.family in _NEVER_FP16 and before_bf16(answer.hardware.gpu) and c.weights.format != "fp32":
        return (
            f"No command: vLLM serves {model.family} in bfloat16 or float32 alone, and {gpu.name} has no bfloat16 "
            f"(compute capability {gpu.compute_capability}); --weights fp32 is sized."
        )
    if model.family in _NEVER_FP16 and c.weights.format == "fp16":
        return f"No command: vLLM refuses float16 for {model.family}; --weights bf16 is as large."
    if c.cache.name == "fp32" and _dtype(answer, c) != "float32":
        return "No command: vLLM keeps an fp32 cache only where it computes in fp32, as with --weights fp32."
    return ""


def _no_llama_cpp(c: Capacity, gpus: int) -> str:
    """Why llama.cpp does not serve it so; empty where it does."""
    if gpus > 1:
        return f"No command: llama.cpp splits no model over {gpus} GPUs as this placement does; on one GPU there is one."
    if not c.weights.gguf and c.weights.format not in _DTYPES:
        return f"No command: {c.cache.phrase} is llama.cpp's, which loads no {c.weights.format} weights; GGUF ones are named as in q4_k_m."
    if c.cache.eight_bit:
        return f"No command: GGUF weights are llama.cpp's, which has no {c.cache.name} cache; its 8-bit one is q8_0."
    return ""


def _llama_server(answer: Answer, c: Capacity) -> tuple[str, ...]:
    """llama-server with as many slots as sequences fit, at most those that it allows; -c is what all slots hold together."""
    asked = answer.question.workload.kv_cache_dtype
    slots = min(max(1, int(c.per_replica)), _MOST_SLOTS)
    # 16-bit caches are equally large; f16 is llama.cpp's default.
    cache = {"fp32": "f32", "fp16": "f16", "bf16": "bf16" if asked == "bf16" else "f16"}.get(c.cache.name, c.cache.name)
    words = ["llama-server -m FILE.gguf"]
    if any(part.role in TOWERS for part in answer.question.model.parts):
        words.append("--mmproj MMPROJ.gguf")
    words += [f"-c {int(c.context) * slots}", f"-np {slots}", "-ngl 999", f"--cache-type-k {cache}", f"--cache-type-v {cache}"]
    if c.cache.lossy:
        words.append("--flash-attn on")
    return tuple(words)


def _batches(c: Capacity) -> list[str]:
    """Batches as the engine's plan has them; in plain arithmetic as many sequences as fit."""
    tokens, sequences = c.details.get("max_num_batched_tokens"), c.details.get("max_num_seqs")
    if isinstance(tokens, Q) and isinstance(sequences, Q):
        return [f"--max-num-seqs {int(sequences)}", f"--max-num-batched-tokens {int(tokens)}"]
    if c.unlimited:
        return []
    held = max(1, int(c.per_replica))
    # vLLM refuses fewer tokens in a batch than sequences, and its default may be as low as this.
    more = [f"--max-num-batched-tokens {max(held, _USUAL_TOKENS)}"] if held > _LEAST_DEFAULT_TOKENS else []
    return [f"--max-num-seqs {held}", *more]


def _cache(answer: Answer, c: Capacity) -> str:
    """The cache dtype by vLLM's name; `auto` only where vLLM makes the sized one of it.

    It takes what the checkpoint asks for, else the dtype that it computes in.
    """
    known = answer.question.model.published
    planned = c.details.get("kv_cache_dtype")
    computes = _dtype(answer, c) or (
        "float16" if before_bf16(answer.hardware.gpu) else _DTYPES.get(answer.question.model.dtype, "bfloat16")
    )
    sized = str(planned) if planned not in (None, "auto") else _DTYPES.get(c.cache.name, c.cache.name)
    if sized not in _PLAIN:
        # Where the plan says auto, it says so of a family that takes no other.
        return "auto" if planned == "auto" else sized
    if sized == "bfloat16" and before_bf16(answer.hardware.gpu):
        sized = "float16"
    asked = known.kv_cache_dtype if known.signed or planned is None else None
    declares = planned != "auto" and asked is not None and asked not in _PLAIN
    return "auto" if sized == computes and not declares else sized


def _name(answer: Answer, c: Capacity, named: Named) -> str:
    """What the server loads: the published checkpoint, or a placeholder where the sized format is not its own."""
    model = answer.question.model
    other = not c.weights.published and not c.weights.cast
    if named.path == _STDIN:
        return f"YOUR-{c.weights.format.upper()}-CHECKPOINT" if other else _STDIN
    if other:
        last = re.split(r"[/\\]", named.path or model.id)[-1] or "CHECKPOINT"
        return shlex.quote(f"YOUR-{c.weights.format.upper()}-CHECKPOINT-OF/{last}")
    return shlex.quote(named.path or model.id)


def vllm_serve(answer: Answer, named: Named | None = None) -> tuple[str, ...]:
    """The words of vLLM's command for one replica, one flag with its value each; empty when the model does not fit.

    Numbers are plain integers, since engines read `8k` as 8,000. A weight format that the published checkpoint does not have is served
    from another repository, whose name only its publisher knows: the placeholder says so. A plain checkpoint is cast with --dtype.
    """
    c, p = answer.capacity, answer.placement
    if not answer.fits or c is None or p is None:
        return ()
    named = named or Named()
    share = answer.question.workload.utilization or answer.question.engine.utilization()
    name = _name(answer, c, named)
    words = [f"vllm serve {name}"]
    if named.revision and (c.weights.published or c.weights.cast):
        words.append(f"--revision {shlex.quote(named.revision)}")
    words += [f"--tensor-parallel-size {int(p.tensor_parallel)}", f"--pipeline-parallel-size {int(p.pipeline_parallel)}"]
    if p.data_parallel is not None:
        words.append(f"--data-parallel-size {int(p.data_parallel)}")
    words += [
        f"--max-model-len {int(c.context)}",
        *_batches(c),
        f"--gpu-memory-utilization {number_text(share.value)}",
        f"--kv-cache-dtype {_cache(answer, c)}",
    ]
    dtype = _dtype(answer, c)
    if dtype:
        words.append(f"--dtype {dtype}")
    return (*words, *answer.question.engine.serve_flags())
