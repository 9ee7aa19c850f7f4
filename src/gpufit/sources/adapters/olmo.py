"""The first OLMo: norms without weights."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, every, output, width, windows
from gpufit.sources.patterns import FULL

CLASS = "OlmoConfig (transformers 5.24.0)"


def read(config: Config) -> Decoder:
    """Llama's projections; the layer norms have neither weight nor bias."""
    d = basics(config, CLASS, tie=False, vocab_size=50304, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
               num_attention_heads=32, max_position_embeddings=2048)  # fmt: skip
    windows(d, None, every(d, FULL))
    output(d)
    bias = config.flag("attention_bias")
    d.attention(d.all, bias=bias, out_bias=bias)
    d.mlp(d.all, width(d))
    return d
