"""Helium, and others that are Llama's shape with defaults of their own."""

from __future__ import annotations

from typing import Any

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, every, llama_shape, windows
from gpufit.sources.patterns import FULL

CLASSES: dict[str, tuple[str, dict[str, Any]]] = {
    "helium": (
        "HeliumConfig",
        {
            "vocab_size": 48000,
            "num_key_value_heads": 20,
            "head_dim": 128,
            "intermediate_size": 7040,
            "max_position_embeddings": 4096,
        },
    ),
    "iquestcoder": (
        "IQuestCoderConfig",
        {
            "vocab_size": 76800,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 27648,
            "max_position_embeddings": 131072,
        },
    ),
    "internlm3": (
        "InternLM3Config",
        {
            "vocab_size": 128512,
            "num_key_value_heads": 2,
            "head_dim": 128,
            "intermediate_size": 10240,
            "max_position_embeddings": 32768,
        },
    ),
    "telechat3": ("TeleChat3Config", {}),
}
MODEL_TYPES = tuple(CLASSES)


def read(config: Config) -> Decoder:
    """Biases by switch; InternLM3 calls them `qkv_bias` and `bias`, and Helium's output projection never has one."""
    kind = config.text("model_type") or ""
    name, fields = CLASSES[kind]
    d = basics(config, f"{name} (transformers 5.24.0)", tie=False, **fields)
    windows(d, None, every(d, FULL))
    bias = config.flag("attention_bias", "qkv_bias")
    llama_shape(d, bias=bias, out_bias=bias and kind != "helium", mlp_bias=config.flag("mlp_bias", "bias"))
    return d
