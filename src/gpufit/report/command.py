"""The `vllm serve` line that matches an answer, with every assumed flag written out."""

from __future__ import annotations

from gpufit.derivation import number_text
from gpufit.engines.base import Capacity
from gpufit.quantity import Q
from gpufit.sizing.question import Answer

_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def _batches(c: Capacity) -> list[str]:
    """Batches as the engine's plan has them; in plain arithmetic as many sequences as fit."""
    tokens, sequences = c.details.get("max_num_batched_tokens"), c.details.get("max_num_seqs")
    if isinstance(tokens, Q) and isinstance(sequences, Q):
        return [f"--max-num-seqs {int(sequences)}", f"--max-num-batched-tokens {int(tokens)}"]
    return [f"--max-num-seqs {max(1, int(c.per_replica))}"]


def vllm_serve(answer: Answer) -> tuple[str, ...]:
    """The words of the command for one replica, one flag with its value each; empty when the model does not fit.

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
