"""BLOOM: linear biases in place of positions, a norm after the embedding, biases everywhere."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, down, every, fused_qkv, inner_width, norms, out_proj, output, up, windows
from gpufit.sources.patterns import FULL

CLASS = "BloomConfig (transformers 5.24.0)"
INERT = frozenset({"apply_residual_connection_post_layernorm", "masked_softmax_fusion"})


def read(config: Config) -> Decoder:
    """The MLP is four times as wide as the model. The class has no limit of length; `seq_length` is that of training."""
    d = basics(config, CLASS, tie=True, prefix="transformer.", vocab_size=250880)
    windows(d, None, every(d, FULL))
    output(d, module="word_embeddings")
    d.norm("embedding norm", "word_embeddings_layernorm", bias=True)
    intermediate = inner_width(d)
    fused_qkv(d, "h.{i}.self_attention.query_key_value", bias=True)
    out_proj(d, "h.{i}.self_attention.dense", bias=True)
    up(d, "h.{i}.mlp.dense_h_to_4h", intermediate, bias=True)
    down(d, "h.{i}.mlp.dense_4h_to_h", intermediate, bias=True)
    norms(d, final="ln_f", bias=True, module="h.{i}.")
    return d
