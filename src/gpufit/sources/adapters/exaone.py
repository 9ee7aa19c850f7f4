"""EXAONE 3 and 3.5: Llama's shape under GPT-2's names."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, every, norms, output, width, windows
from gpufit.sources.patterns import FULL

CLASS = "ExaoneConfig (transformers 5.24.0)"


def read(config: Config) -> Decoder:
    """Module names of the published checkpoints."""
    d = basics(config, CLASS, tie=False, prefix="transformer.", vocab_size=102400, hidden_size=4096, intermediate_size=14336,
               num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=4096)  # fmt: skip
    windows(d, None, every(d, FULL))
    output(d, module="wte")
    bias = config.flag("attention_bias")
    d.attention(d.all, bias=bias, out_bias=bias, module="h.{i}.attn.attention", names=("q_proj", "k_proj", "v_proj", "out_proj"))
    d.mlp(d.all, width(d), bias=config.flag("mlp_bias"), module="h.{i}.mlp", names=("c_fc_0", "c_fc_1", "c_proj"))
    norms(d, (("attention norm", "ln_1"), ("MLP norm", "ln_2")), final="ln_f", module="h.{i}.")
    return d
