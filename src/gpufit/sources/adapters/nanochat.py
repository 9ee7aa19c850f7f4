"""nanochat: norms without weights, an MLP without a gate."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, every, output, width, windows
from gpufit.sources.patterns import FULL

CLASS = "NanoChatConfig (transformers 5.24.0)"


def read(config: Config) -> Decoder:
    """Four projections of attention and two of the MLP."""
    d = basics(config, CLASS, tie=False, vocab_size=50304, intermediate_size=8192, max_position_embeddings=2048)
    windows(d, None, every(d, FULL))
    output(d)
    bias = config.flag("attention_bias")
    d.attention(d.all, bias=bias, out_bias=bias)
    d.mlp(d.all, width(d), gated=False, names=("", "fc1", "fc2"))
    return d
