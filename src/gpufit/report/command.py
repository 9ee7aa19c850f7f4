"""The command that serves an answer, with every assumed flag written out: `vllm serve`, or `llama-server` for what only llama.cpp loads.

llama.cpp: common/arg.cpp; its -c is the total over slots, and src/llama-cparams.h allows 256 slots (LLAMA_MAX_SEQ).
"""

from __future__ import annotations

from dataclasses import dataclass

from gpufit.derivation import number_text
from gpufit.engines.base import Capacity
from gpufit.formats.cache import GGML
from gpufit.model import TOWERS
from gpufit.quantity import Q
from gpufit.sizing.question import Answer

_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_GGML_CACHES = frozenset(f.name for f in GGML)
_MOST_SLOTS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeLine:
    """A command by its words, one flag with its value each, and what to say below it; without words, why there is none."""

    words: tuple[str, ...]
    note: str


def serve_line(answer: Answer) -> ServeLine | None:
    """The command for one replica of an answer; None when it does not fit."""
    c, p = answer.capacity, answer.placement
    if not answer.fits or c is None or p is None:
        return None
    if c.weights.gguf or c.cache.name in _GGML_CACHES:
        why = _no_llama_cpp(c, p.gpus)
        if why:
            return ServeLine(words=(), note=why)
        fewer = f" It has at most {_MOST_SLOTS} slots." if int(c.per_replica) > _MOST_SLOTS else ""
        return ServeLine(
            words=_llama_server(answer, c),
            note=f"llama.cpp takes more than weights and cache: compute buffers and the CUDA context come on top.{fewer}",
        )
    plain = answer.question.engine.version is None
    return ServeLine(
        words=vllm_serve(answer),
        note="vLLM takes more than weights and cache: --engine vllm predicts what its planner allocates." if plain else "",
    )


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
    return [] if c.unlimited else [f"--max-num-seqs {max(1, int(c.per_replica))}"]


def vllm_serve(answer: Answer) -> tuple[str, ...]:
    """The words of vLLM's command for one replica, one flag with its value each; empty when the model does not fit.

    Numbers are plain integers, since engines read `8k` as 8,000. A weight format that the published checkpoint does not have is served
    from another repository, whose name only its publisher knows: the placeholder says so.
    """
    c, p = answer.capacity, answer.placement
    if not answer.fits or c is None or p is None:
        return ()
    model = answer.question.model
    share = answer.question.workload.utilization or answer.question.engine.utilization()
    name = model.id
    if not c.weights.published and c.weights.format not in _DTYPES:
        name = f"YOUR-{c.weights.format.upper()}-CHECKPOINT-OF/{model.id.rsplit('/', 1)[-1]}"
    words = [
        f"vllm serve {name}",
        f"--tensor-parallel-size {int(p.tensor_parallel)}",
        f"--pipeline-parallel-size {int(p.pipeline_parallel)}",
        f"--max-model-len {int(c.context)}",
        *_batches(c),
        f"--gpu-memory-utilization {number_text(share.value)}",
        f"--kv-cache-dtype {c.details.get('kv_cache_dtype', 'fp8' if c.cache.eight_bit else 'auto')}",
    ]
    if p.data_parallel is not None:
        words.insert(3, f"--data-parallel-size {int(p.data_parallel)}")
    if c.weights.format in _DTYPES:
        words.append(f"--dtype {_DTYPES[c.weights.format]}")
    return (*words, *answer.question.engine.serve_flags())
