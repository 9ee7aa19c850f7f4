"""Llama 1 to 3 and the many models published with the same class."""

from __future__ import annotations

from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, listed_windows, llama_shape

MODEL_TYPES = ("llama", "code_llama", "Yi", "aquila", "llama_bidirec")
CLASS = "LlamaConfig (transformers 5.24.0)"
_BIDIRECTIONAL = Default(value=False, source="LlamaBidirectionalConfig")


def read(config: Config) -> Decoder:
    """Dense grouped-query attention with a gated MLP.

    `bias` is the name of attention_bias in conversions of InternLM. The class knows no window: a `sliding_window` counts only where
    `layer_types` names the layers that slide (as vLLM's llama.py reads it).
    """
    d = basics(
        config, CLASS, tie=False, vocab_size=32000, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32, max_position_embeddings=2048,
    )  # fmt: skip
    if config.text("model_type") == "llama_bidirec":
        config.fall_back({"is_causal": _BIDIRECTIONAL})
    listed_windows(d)
    bias = config.flag("attention_bias") or config.flag("bias") or config.flag("qkv_bias")
    llama_shape(d, bias=bias, out_bias=config.flag("attention_bias") or config.flag("bias"), mlp_bias=config.flag("mlp_bias"))
    return d
