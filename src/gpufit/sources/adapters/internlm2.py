"""InternLM 2 and 2.5: one fused projection for queries, keys and values, and names of its own."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, every, fused_qkv, norms, out_proj, output, width, windows
from gpufit.sources.patterns import FULL


def read(config: Config) -> Decoder:
    """Shapes of the published class InternLM2ForCausalLM; the reward model has one output value in place of the head."""
    d = basics(config, "InternLM2Config", tie=False, vocab_size=103168)
    windows(d, None, every(d, FULL))
    output(d, module="tok_embeddings", head="/output")
    bias = config.flag("bias")
    fused_qkv(d, "layers.{i}.attention.wqkv", bias=bias)
    out_proj(d, "layers.{i}.attention.wo", bias=bias)
    d.mlp(d.all, width(d), module="layers.{i}.feed_forward", names=("w1", "w3", "w2"))
    norms(d, (("attention norm", "attention_norm"), ("MLP norm", "ffn_norm")))
    return d
