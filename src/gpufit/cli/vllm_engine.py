"""From typed options to vLLM's policy: version, settings, overhead, adapters."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from gpufit.cli import options as o
from gpufit.engines.vllm.constants import NEWEST, Constants
from gpufit.engines.vllm.formats import KNOWN
from gpufit.engines.vllm.lora import Loras
from gpufit.engines.vllm.policy import Vllm
from gpufit.engines.vllm.settings import vllm_settings
from gpufit.errors import UsageError
from gpufit.formats.cache import GGML
from gpufit.quantity import BYTE, NUMBER, Q, fact
from gpufit.sources.engine_constants import engine_rows

if TYPE_CHECKING:
    from gpufit.cli.asked import Asked

_SHORT = {"bf16": "bfloat16", "fp16": "float16", "half": "float16"}
_DEFAULT_LORAS, _DEFAULT_RANK = 1, 16
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
_STATE_DTYPES = ("float32", "float16", "bfloat16")


def cache_dtype(text: str) -> str | None:
    """A cache dtype by vLLM's name; None for `auto`."""
    word = _SHORT.get(text.strip().lower(), text.strip().lower())
    if word == "auto":
        return None
    if word in {f.name for f in GGML}:
        raise UsageError(
            f"{word} is a cache type of llama.cpp, and vLLM has none like it",
            hint="without --engine vllm it is sized; vLLM's 8-bit cache is fp8",
        )
    if word not in KNOWN:
        raise UsageError(f"unknown cache dtype {text!r}", hint=f"vLLM takes auto, {', '.join(sorted(KNOWN))}")
    return word


def vllm_policy(asked: Asked, version: str | None) -> Vllm:
    """The policy for what was typed; `UsageError` names an option that has no meaning."""
    method, tokens = _speculation(asked.speculative_config)
    _batches(asked)
    settings = vllm_settings(
        expert_parallel=asked.enable_expert_parallel,
        decode_context_parallel=o.positive(asked.decode_context_parallel_size, "--decode-context-parallel-size"),
        max_num_batched_tokens=o.positive(asked.max_num_batched_tokens, "--max-num-batched-tokens"),
        max_num_seqs=o.positive(asked.max_num_seqs, "--max-num-seqs"),
        block_size=o.positive(asked.block_size, "--block-size"),
        kv_cache_memory=o.positive(asked.kv_cache_memory_bytes, "--kv-cache-memory-bytes"),
        prefix_caching=False if asked.no_enable_prefix_caching else None,
        speculative_method=method,
        speculative_tokens=tokens,
        language_model_only=asked.language_model_only,
        chunked_prefill=False if asked.no_enable_chunked_prefill else None,
        hybrid_manager=False if asked.disable_hybrid_kv_cache_manager else None,
        async_scheduling=asked.async_scheduling,
        mamba_cache_dtype=_state_dtype(asked.mamba_cache_dtype, "--mamba-cache-dtype"),
        mamba_ssm_cache_dtype=_state_dtype(asked.mamba_ssm_cache_dtype, "--mamba-ssm-cache-dtype"),
    )
    return Vllm(
        constants=Constants(version=version or NEWEST, rows=engine_rows("vllm")),
        flags=settings,
        overhead=_overhead(asked.overhead_gib),
        eager=asked.enforce_eager,
        loras=_loras(asked),
    )


def _batches(asked: Asked) -> None:
    """A batch holds at least one token of each of its sequences (config/scheduler.py verify_max_model_len)."""
    tokens, sequences = asked.max_num_batched_tokens, asked.max_num_seqs
    if tokens is not None and sequences is not None and tokens < sequences:
        raise UsageError(
            f"--max-num-batched-tokens {tokens} is below --max-num-seqs {sequences}, which vLLM refuses",
            hint=f"--max-num-batched-tokens from {sequences}, or --max-num-seqs up to {tokens}",
        )


def _state_dtype(text: str | None, option: str) -> str | None:
    """The dtype of recurrent states by vLLM's name; None for `auto`."""
    if text is None or text.strip().lower() == "auto":
        return None
    word = {"fp32": "float32", **_SHORT}.get(text.strip().lower(), text.strip().lower())
    if word not in _STATE_DTYPES:
        raise UsageError(f"{option} {text!r} is not known", hint=f"vLLM takes auto, {', '.join(_STATE_DTYPES)}")
    return word


def _overhead(text: str | None) -> Q | None:
    if text is None:
        return None
    plain = text.strip().replace(".", "", 1)
    if not (plain.isascii() and plain.isdigit()) or len(plain) > 9:
        raise UsageError(f"--overhead-gib {text!r} is not a size in GiB", hint="a decimal from 0, as in 2.5")
    size = fact(text.strip(), NUMBER, symbol="o", name="overhead in GiB", origin="--overhead-gib").value * 2**30
    return fact(int(size), BYTE, symbol="O", name="overhead beside weights and cache", origin=f"--overhead-gib {text}")


def _loras(asked: Asked) -> Loras | None:
    if asked.max_loras is None and asked.max_lora_rank is None:
        return None
    if asked.max_lora_rank is not None and asked.max_lora_rank not in _RANKS:
        # config/lora.py, MaxLoRARanks.
        raise UsageError(
            f"--max-lora-rank {asked.max_lora_rank} is no rank that vLLM takes", hint=f"one of {', '.join(map(str, _RANKS))}"
        )

    def number(value: int | None, default: int, option: str, symbol: str, name: str) -> Q:
        chosen = o.positive(value, option)
        origin = option if chosen is not None else f"default of {option}"
        return fact(chosen or default, NUMBER, symbol=symbol, name=name, origin=origin)

    return Loras(
        slots=number(asked.max_loras, _DEFAULT_LORAS, "--max-loras", "n_lora", "LoRA slots"),
        rank=number(asked.max_lora_rank, _DEFAULT_RANK, "--max-lora-rank", "r_lora", "largest LoRA rank"),
    )


def _speculation(text: str | None) -> tuple[str | None, int | None]:
    """Method and draft tokens of a speculative config; a draft that is a model of its own is refused, since its size is not known."""
    if text is None:
        return None, None
    hint = """as in --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'"""
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"--speculative-config is not JSON: {error.msg}", hint=hint) from error
    if not isinstance(given, dict):
        raise UsageError("--speculative-config is not a JSON object", hint=hint)
    method = given.get("method")
    tokens = given.get("num_speculative_tokens", 1)
    if isinstance(method, str) and method.endswith("_mtp"):
        method = "mtp"
    if method not in ("mtp", "ngram") or given.get("model"):
        named = given.get("model") or method
        raise UsageError(f"--speculative-config: a draft of {named!r} is not sized", hint=f"mtp and ngram are; {hint}")
    unknown = sorted(set(given) - {"method", "num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min"})
    if unknown:
        raise UsageError(f"--speculative-config: {', '.join(unknown)} is not understood", hint=hint)
    if not isinstance(tokens, int) or tokens < 1:
        raise UsageError(f"--speculative-config: num_speculative_tokens {tokens!r} is not a count", hint=hint)
    return method, tokens
