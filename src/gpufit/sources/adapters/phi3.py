"""Phi-3, 3.5 and 4: fused projections; a window, where there is one, holds in every layer."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, down, every, fused_gate_up, fused_qkv, norms, out_proj, output, width, windows
from gpufit.sources.patterns import FULL, SLIDING, window_of

CLASS = "Phi3Config (transformers 5.24.0)"
INERT = frozenset({"attention_bias"})


def read(config: Config) -> Decoder:
    """Fused query-key-value and gate-up matrices, no biases (the class does not read `attention_bias`)."""
    d = basics(
        config, CLASS, tie=False, vocab_size=32064, hidden_size=3072, intermediate_size=8192, num_hidden_layers=32,
        num_attention_heads=32, max_position_embeddings=4096,
    )  # fmt: skip
    window = window_of(config)
    if config.integer("full_attn_mod", default=1) != 1:
        raise ConfigError(
            f"{config.where('full_attn_mod')} is {config.raw('full_attn_mod')}", hint="1 (no layer differs) is understood"
        )
    windows(d, window, every(d, SLIDING if window is not None else FULL))
    intermediate = width(d)
    output(d)
    fused_qkv(d, "layers.{i}.self_attn.qkv_proj")
    out_proj(d, "layers.{i}.self_attn.o_proj")
    fused_gate_up(d, "layers.{i}.mlp.gate_up_proj", intermediate)
    down(d, "layers.{i}.mlp.down_proj", intermediate)
    norms(d)
    return d
