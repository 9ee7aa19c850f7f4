"""The first Gemma: wide heads, tied embedding."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, every, llama_shape, windows
from gpufit.sources.patterns import FULL

CLASS = "GemmaConfig (transformers 5.24.0)"


def read(config: Config) -> Decoder:
    """Full attention in all layers."""
    d = basics(
        config, CLASS, tie=True, vocab_size=256000, hidden_size=3072, intermediate_size=24576, num_hidden_layers=28,
        num_attention_heads=16, num_key_value_heads=16, head_dim=256, max_position_embeddings=8192,
    )  # fmt: skip
    windows(d, None, every(d, FULL))
    bias = config.flag("attention_bias")
    llama_shape(d, bias=bias, out_bias=bias)
    return d
