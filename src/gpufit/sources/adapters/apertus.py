"""Apertus: an MLP without a gate, two learned numbers in each activation, norms on queries and keys."""

from __future__ import annotations

from gpufit.model import Role
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, every, llama_shape, windows
from gpufit.sources.patterns import FULL

CLASS = "ApertusConfig (transformers 5.24.0)"
NORMS = (("attention norm", "attention_layernorm"), ("MLP norm", "feedforward_layernorm"))


def read(config: Config) -> Decoder:
    """xIELU (the default activation) learns alpha_p and alpha_n in each layer; its beta and eps are buffers."""
    d = basics(config, CLASS, tie=False, vocab_size=131072, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
               num_attention_heads=32, max_position_embeddings=65536)  # fmt: skip
    windows(d, None, every(d, FULL))
    bias = config.flag("attention_bias")
    llama_shape(d, bias=bias, out_bias=bias, gated=False, qk_norm="head", listed=NORMS)
    if config.text("hidden_act") in (None, "xielu"):
        one = config.item(1, "hidden_act", symbol="one", label="one number")
        for name, buffer in (("alpha_p", False), ("alpha_n", False), ("beta", True), ("eps", True)):
            d.part(f"activation {name}", Role.MLP, f"layers.{{i}}.mlp.act_fn.{name}", one, layers=d.all, buffer=buffer)
    return d
