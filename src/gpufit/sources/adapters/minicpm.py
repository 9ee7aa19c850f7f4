"""MiniCPM 1, 2 and 4: Llama's shape with scaled residuals."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, every, llama_shape, windows
from gpufit.sources.patterns import FULL

INERT = frozenset({"scale_depth"})


def read(config: Config) -> Decoder:
    """Shapes of the published class MiniCPMForCausalLM, whose embedding is tied unless the file says otherwise."""
    d = basics(config, "MiniCPMConfig", tie=True)
    if config.has("num_experts") and config.integer("num_experts") > 0:
        raise ConfigError(
            f"{config.where('num_experts')} is {config.raw('num_experts')}: MiniCPM-MoE", hint="dense MiniCPM is understood"
        )
    if config.has("sparse_config"):
        d.assumptions.append(
            "sparse_config: attention that picks blocks keeps the keys and values of all tokens, sized as full attention; "
            "the compressed keys that the published code keeps beside them are left out"
        )
    windows(d, None, every(d, FULL))
    bias = config.flag("attention_bias")
    llama_shape(d, bias=bias, out_bias=bias, mlp_bias=config.flag("mlp_bias"))
    return d
