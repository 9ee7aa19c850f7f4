"""Seed-OSS: Llama's shape with biases on query, key and value."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, every, llama_shape, windows
from gpufit.sources.patterns import FULL

CLASS = "SeedOssConfig (transformers 5.24.0)"


def read(config: Config) -> Decoder:
    """The output projection has a switch of its own for its bias."""
    d = basics(config, CLASS, tie=False, vocab_size=155136, hidden_size=4096, intermediate_size=27648, num_hidden_layers=64,
               num_attention_heads=80, num_key_value_heads=8, head_dim=128, max_position_embeddings=524288)  # fmt: skip
    windows(d, None, every(d, FULL))
    llama_shape(
        d,
        bias=config.flag("attention_bias", default=True),
        out_bias=config.flag("attention_out_bias"),
        mlp_bias=config.flag("mlp_bias"),
    )
    return d
