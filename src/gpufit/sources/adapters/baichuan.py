"""Baichuan 1 and 2: one fused projection; the 13B models have linear biases in place of positions, which changes no shape."""

from __future__ import annotations

from gpufit.quantity import TOKEN_PER_SEQUENCE
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, every, fused_qkv, norms, out_proj, output, width, windows
from gpufit.sources.patterns import FULL

ARCHITECTURES = ("BaichuanForCausalLM", "BaiChuanForCausalLM")


def read(config: Config) -> Decoder:
    """Shapes of the published class BaichuanForCausalLM; the 13B files name their limit `model_max_length`."""
    d = basics(config, "BaichuanConfig", tie=False)
    limit = config.maybe("model_max_length", symbol="n_max", label="context limit of the model", unit=TOKEN_PER_SEQUENCE)
    d.max_context = d.max_context or limit
    windows(d, None, every(d, FULL))
    output(d)
    fused_qkv(d, "layers.{i}.self_attn.W_pack")
    out_proj(d, "layers.{i}.self_attn.o_proj")
    d.mlp(d.all, width(d))
    norms(d)
    return d
