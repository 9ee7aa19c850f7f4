"""openPangu Embedded: Llama's shape with `bias` on all four attention projections."""

from __future__ import annotations

from gpufit.sources.adapters.pangu_ultra_moe import sandwich
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, every, llama_shape, windows
from gpufit.sources.patterns import FULL

MODEL_TYPES = ("PanguEmbedded",)


def read(config: Config) -> Decoder:
    """Shapes of the published class PanguEmbeddedForCausalLM."""
    d = basics(config, "PanguEmbeddedConfig", tie=False)
    windows(d, None, every(d, FULL))
    bias = config.flag("bias", "attention_bias", default=True)
    qkv = config.flag("qkv_bias") if config.has("qkv_bias") else bias
    llama_shape(d, bias=qkv, out_bias=bias, mlp_bias=config.flag("mlp_bias"))
    if config.flag("sandwich_norm"):
        sandwich(d, d.all)
    return d
