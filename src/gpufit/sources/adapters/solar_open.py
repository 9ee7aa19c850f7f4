"""Solar Open: grouped-query attention and a mixture with a shared expert in every layer."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.grouped_moe import grouped_mixture
from gpufit.sources.patterns import class_defaults
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("SolarOpenForCausalLM",)
DEFAULTS = class_defaults(
    "SolarOpenConfig (transformers 5.24.0)",
    vocab_size=196608,
    hidden_size=4096,
    num_hidden_layers=48,
    num_attention_heads=64,
    num_key_value_heads=8,
    head_dim=128,
    max_position_embeddings=131072,
    moe_intermediate_size=1280,
    num_experts_per_tok=8,
    n_shared_experts=1,
    n_routed_experts=128,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """GLM-4.5's shapes without dense layers."""
    norm = "head" if config.flag("use_qk_norm") else ""
    return grouped_mixture(config, bias=config.flag("attention_bias"), qk_norm=norm, score_correction=True)
