"""A.X-K1: DeepSeek-V3's shapes with a norm after each mixture."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.mla import deepseek, mixture_layers
from gpufit.sources.patterns import class_defaults
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("AXK1ForCausalLM",)
DEFAULTS = class_defaults(
    "AXK1Config (transformers 5.24.0)",
    vocab_size=163840,
    hidden_size=7168,
    intermediate_size=18432,
    moe_intermediate_size=2048,
    num_hidden_layers=61,
    num_attention_heads=64,
    n_shared_experts=1,
    n_routed_experts=192,
    kv_lora_rank=512,
    q_lora_rank=1536,
    qk_rope_head_dim=64,
    v_head_dim=128,
    qk_nope_head_dim=128,
    num_experts_per_tok=8,
    max_position_embeddings=32768,
    first_k_dense_replace=1,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """Mixtures have a score correction, and their output is normalised before it is added."""
    d = deepseek(config, score_correction=True)
    d.norm("post-mixture norm", "layers.{i}.post_mlp_layernorm", layers=mixture_layers(d))
    return d
