"""ERNIE 4.5, the dense model."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, every, llama_shape, windows
from gpufit.sources.patterns import FULL

INERT = frozenset({"compression_ratio"})
CLASS = "Ernie4_5Config (transformers 5.24.0)"


def read(config: Config) -> Decoder:
    """Llama's shape; `use_bias` puts a bias on every projection."""
    d = basics(config, CLASS, tie=True, vocab_size=103424, hidden_size=1024, intermediate_size=3072, num_hidden_layers=18,
               num_attention_heads=16, num_key_value_heads=2, head_dim=128, max_position_embeddings=131072)  # fmt: skip
    windows(d, None, every(d, FULL))
    bias = config.flag("use_bias")
    llama_shape(d, bias=bias, out_bias=bias, mlp_bias=bias)
    return d
