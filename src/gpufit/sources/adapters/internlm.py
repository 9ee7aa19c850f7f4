"""InternLM 1: Llama's shape with `bias` on all four attention projections."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, every, llama_shape, windows
from gpufit.sources.patterns import FULL


def read(config: Config) -> Decoder:
    """Shapes of the published class InternLMForCausalLM; `bias` is true unless the file says otherwise."""
    d = basics(config, "InternLMConfig", tie=False, vocab_size=103168, intermediate_size=11008)
    windows(d, None, every(d, FULL))
    bias = config.flag("bias", default=True)
    llama_shape(d, bias=bias, out_bias=bias)
    return d
