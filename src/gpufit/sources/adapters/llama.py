"""Llama 2 and 3 and the many models published with the same class."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder

MODEL_TYPES = ("llama",)


def read(config: Config) -> Decoder:
    """Dense grouped-query attention with a gated MLP. Defaults: LlamaConfig (transformers 5.24.0)."""
    d = open_decoder(config, tie_default=False)
    d.full(d.all)
    d.embedding()
    d.attention(d.all, bias=config.flag("attention_bias"), out_bias=config.flag("attention_bias"))
    d.mlp(d.all, config.count("intermediate_size", symbol="I", label="MLP width"), bias=config.flag("mlp_bias"))
    d.norm("input norm", "layers.{i}.input_layernorm", layers=d.all)
    d.norm("post-attention norm", "layers.{i}.post_attention_layernorm", layers=d.all)
    d.norm("final norm", "norm")
    return d
