"""Qwen3 dense models, embedders and rerankers: norms on queries and keys, no biases."""

from __future__ import annotations

from typing import Any

from gpufit.sources.adapters.qwen2 import late_windows
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, llama_shape

MODEL_TYPES = ("qwen3",)
CLASS = "Qwen3Config (transformers 5.24.0)"
FIELDS: dict[str, Any] = {
    "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 32, "head_dim": 128, "max_position_embeddings": 32768,
}  # fmt: skip


def read(config: Config) -> Decoder:
    """Queries and keys are normalised per head; windows as in Qwen2."""
    d = basics(config, CLASS, tie=False, **FIELDS)
    late_windows(d)
    bias = config.flag("attention_bias")
    llama_shape(d, bias=bias, out_bias=bias, qk_norm="head")
    return d
