"""Hunyuan 3: grouped-query attention with query and key norms, and mixtures with a shared expert after the first layer."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.grouped_moe import grouped_mixture
from gpufit.sources.patterns import class_defaults
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("HYV3ForCausalLM",)
INERT = frozenset({"router_scaling_factor", "enable_moe_fp32_combine", "moe_router_use_sigmoid", "enable_attention_fp32_softmax"})
DEFAULTS = class_defaults(
    "HYV3Config (transformers 5.24.0)",
    vocab_size=120832,
    hidden_size=4096,
    intermediate_size=13312,
    num_hidden_layers=80,
    num_attention_heads=64,
    num_key_value_heads=8,
    head_dim=128,
    max_position_embeddings=131072,
    num_experts=192,
    num_experts_per_tok=8,
    num_shared_experts=1,
    moe_intermediate_size=1536,
    first_k_dense_replace=1,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """The first layer is dense, all others are mixtures, unless `mlp_layer_types` says otherwise."""
    bias = config.flag("attention_bias")
    return grouped_mixture(config, bias=bias, out_bias=bias, qk_norm="head", score_correction=True, router_dtype="fp32")
