"""BitNet b1.58: Llama's shape with one more norm inside attention and MLP."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, every, llama_shape, width, windows
from gpufit.sources.patterns import FULL

CLASS = "BitNetConfig (transformers 5.24.0)"


def read(config: Config) -> Decoder:
    """The inner norms stand before the output projections; the packing of ternary weights is the checkpoint's format."""
    d = basics(
        config, CLASS, tie=False, vocab_size=128256, intermediate_size=6912, num_key_value_heads=5, max_position_embeddings=2048
    )
    windows(d, None, every(d, FULL))
    bias = config.flag("attention_bias")
    llama_shape(d, bias=bias, out_bias=bias)
    d.norm("inner attention norm", "layers.{i}.self_attn.attn_sub_norm", layers=d.all)
    d.norm("inner MLP norm", "layers.{i}.mlp.ffn_sub_norm", layers=d.all, size=width(d))
    return d
