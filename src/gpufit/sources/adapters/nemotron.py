"""Nemotron-4 and Minitron: layer norms with biases, an MLP without a gate."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, every, llama_shape, windows
from gpufit.sources.patterns import FULL

CLASS = "NemotronConfig (transformers 5.24.0)"


def read(config: Config) -> Decoder:
    """Squared ReLU between two projections."""
    d = basics(config, CLASS, tie=False, vocab_size=256000, hidden_size=6144, intermediate_size=24576, num_hidden_layers=32,
               num_attention_heads=48, max_position_embeddings=4096)  # fmt: skip
    windows(d, None, every(d, FULL))
    bias = config.flag("attention_bias")
    llama_shape(d, bias=bias, out_bias=bias, mlp_bias=config.flag("mlp_bias"), gated=False, norm_bias=True)
    return d
