"""What a user can set on a vLLM server that moves its cache; None everywhere is the engine's own default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpufit.quantity import BYTE, NUMBER, SEQUENCE, TOKEN, TOKEN_PER_SEQUENCE, Q, Unit, fact, unit

Usage = Literal["server", "llm"]
_TOKEN_PER_BLOCK = unit(token=1, block=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmSettings:
    """The options of `vllm serve` by their own names; numbers are facts with the option as their origin.

    `usage` tells the API server from the `LLM` class, whose default batches differ. `hybrid_manager` False is
    --disable-hybrid-kv-cache-manager. `speculative_method` is "mtp" or "ngram"; drafts that are models of their own are not known.
    """

    max_model_len: Q | None = None
    tensor_parallel: Q | None = None
    pipeline_parallel: Q | None = None
    data_parallel: Q | None = None
    expert_parallel: bool = False
    decode_context_parallel: Q | None = None
    kv_cache_dtype: str | None = None
    max_num_batched_tokens: Q | None = None
    max_num_seqs: Q | None = None
    block_size: Q | None = None
    prefix_caching: bool | None = None
    async_scheduling: bool | None = None
    chunked_prefill: bool | None = None
    hybrid_manager: bool | None = None
    mamba_cache_dtype: str | None = None
    mamba_ssm_cache_dtype: str | None = None
    speculative_method: str | None = None
    speculative_tokens: Q | None = None
    kv_cache_memory: Q | None = None
    usage: Usage = "server"
    language_model_only: bool = False

    @property
    def tp(self) -> Q:
        """Tensor parallel degree, 1 where it is not set."""
        return self.tensor_parallel or ONE_TP

    @property
    def pp(self) -> Q:
        """Pipeline parallel degree, 1 where it is not set."""
        return self.pipeline_parallel or ONE_PP

    @property
    def drafts(self) -> Q | None:
        """Draft tokens under verification, None without speculative decoding."""
        return self.speculative_tokens if self.speculative_method else None


ONE_TP = fact(1, NUMBER, symbol="tp", name="tensor parallel degree", origin="default of --tensor-parallel-size")
ONE_PP = fact(1, NUMBER, symbol="pp", name="pipeline parallel degree", origin="default of --pipeline-parallel-size")

_NUMBERS: dict[str, tuple[str, Unit, str, str]] = {
    "max_model_len": ("L", TOKEN_PER_SEQUENCE, "longest sequence", "--max-model-len"),
    "tensor_parallel": ("tp", NUMBER, "tensor parallel degree", "--tensor-parallel-size"),
    "pipeline_parallel": ("pp", NUMBER, "pipeline parallel degree", "--pipeline-parallel-size"),
    "data_parallel": ("dp", NUMBER, "data parallel degree", "--data-parallel-size"),
    "decode_context_parallel": ("dcp", NUMBER, "decode context parallel degree", "--decode-context-parallel-size"),
    "max_num_batched_tokens": ("T", TOKEN, "tokens in one batch", "--max-num-batched-tokens"),
    "max_num_seqs": ("N_s", SEQUENCE, "sequences in one batch", "--max-num-seqs"),
    "block_size": ("B", _TOKEN_PER_BLOCK, "tokens in one block", "--block-size"),
    "speculative_tokens": ("s", NUMBER, "draft tokens under verification", "--speculative-config"),
    "kv_cache_memory": ("P", BYTE, "memory for the cache", "--kv-cache-memory-bytes"),
}


def setting(name: str, value: int) -> Q:
    """A number of `VllmSettings` typed by a user, with its option as the origin."""
    symbol, of, title, option = _NUMBERS[name]
    return fact(value, of, symbol=symbol, name=title, origin=option)


def vllm_settings(**values: int | str | bool | None) -> VllmSettings:
    """Settings from plain values: whole numbers become facts named after their option."""
    made = {k: setting(k, v) if k in _NUMBERS and isinstance(v, int) else v for k, v in values.items() if v is not None}
    return VllmSettings(**made)  # type: ignore[arg-type]
