"""StarCoder 2: layer norms with biases, an MLP without a gate; a window, where there is one, holds in every layer."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, every, norms, output, width, windows
from gpufit.sources.patterns import FULL, SLIDING, window_of

CLASS = "Starcoder2Config (transformers 5.24.0)"


def read(config: Config) -> Decoder:
    """`use_bias` (true by default) puts a bias on every projection."""
    d = basics(config, CLASS, tie=True, vocab_size=49152, hidden_size=3072, intermediate_size=12288, num_hidden_layers=30,
               num_attention_heads=24, num_key_value_heads=2, max_position_embeddings=4096)  # fmt: skip
    window = window_of(config)
    windows(d, window, every(d, SLIDING if window is not None else FULL))
    output(d)
    bias = config.flag("use_bias", default=True)
    d.attention(d.all, bias=bias, out_bias=bias)
    d.mlp(d.all, width(d), gated=False, bias=bias, names=("", "c_fc", "c_proj"))
    norms(d, bias=True)
    return d
