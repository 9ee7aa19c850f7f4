"""XVERSE: Llama's shape with as many KV heads as heads; and Orion, the same with layer norms that have biases."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, every, llama_shape, windows
from gpufit.sources.patterns import FULL

MODEL_TYPES = ("xverse", "orion")


def read(config: Config) -> Decoder:
    """Shapes of the published classes XverseForCausalLM and OrionForCausalLM."""
    orion = config.text("model_type") == "orion"
    d = basics(config, "OrionConfig" if orion else "XverseConfig", tie=False)
    windows(d, None, every(d, FULL))
    bias = config.flag("attention_bias")
    llama_shape(d, bias=bias, out_bias=bias, norm_bias=orion)
    return d
