"""HyperCLOVA X: Llama's shape, with norms behind attention and MLP as well unless the file turns them off."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import PRE_NORMS, basics, every, llama_shape, windows
from gpufit.sources.patterns import FULL

CLASS = "HyperCLOVAXConfig (transformers 5.24.0)"
INERT = frozenset({"attention_multiplier"})
POST_NORMS = (("attention output norm", "post_norm1"), ("MLP output norm", "post_norm2"))


def read(config: Config) -> Decoder:
    """`use_post_norm` is true by class default."""
    d = basics(config, CLASS, tie=False, vocab_size=32000, intermediate_size=11008, max_position_embeddings=2048)
    windows(d, None, every(d, FULL))
    bias = config.flag("attention_bias")
    listed = (*PRE_NORMS, *POST_NORMS) if config.flag("use_post_norm", default=True) else PRE_NORMS
    llama_shape(d, bias=bias, out_bias=bias, mlp_bias=config.flag("mlp_bias"), listed=listed)
    return d
