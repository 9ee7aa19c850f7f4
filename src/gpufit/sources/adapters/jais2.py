"""Jais 2: layer norms with biases, an MLP without a gate, biases everywhere."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, every, llama_shape, windows
from gpufit.sources.patterns import FULL

CLASS = "Jais2Config (transformers 5.24.0)"


def read(config: Config) -> Decoder:
    """Biases are on by class default."""
    d = basics(config, CLASS, tie=False, vocab_size=150272, intermediate_size=26624, head_dim=128, max_position_embeddings=8192)
    windows(d, None, every(d, FULL))
    bias = config.flag("attention_bias", default=True)
    llama_shape(d, bias=bias, out_bias=bias, mlp_bias=config.flag("mlp_bias", default=True), gated=False, norm_bias=True)
    return d
