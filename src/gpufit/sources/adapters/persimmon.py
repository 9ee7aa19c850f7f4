"""Persimmon: fused projections, layer norms and biases everywhere, norms on queries and keys."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, down, every, fused_qkv, norms, out_proj, output, up, width, windows
from gpufit.sources.patterns import FULL

CLASS = "PersimmonConfig (transformers 5.24.0)"


def read(config: Config) -> Decoder:
    """An MLP without a gate."""
    d = basics(config, CLASS, tie=False, vocab_size=262144, hidden_size=4096, intermediate_size=16384, num_hidden_layers=36,
               num_attention_heads=64, max_position_embeddings=16384)  # fmt: skip
    windows(d, None, every(d, FULL))
    output(d)
    intermediate = width(d)
    fused_qkv(d, "layers.{i}.self_attn.query_key_value", bias=True)
    out_proj(d, "layers.{i}.self_attn.dense", bias=True)
    if config.flag("qk_layernorm", default=True):
        for name in ("q_layernorm", "k_layernorm"):
            d.norm(name, f"layers.{{i}}.self_attn.{name}", layers=d.all, size=d.need(d.head_dim), bias=True)
    up(d, "layers.{i}.mlp.dense_h_to_4h", intermediate, bias=True)
    down(d, "layers.{i}.mlp.dense_4h_to_h", intermediate, bias=True)
    norms(d, final="final_layernorm", bias=True)
    return d
