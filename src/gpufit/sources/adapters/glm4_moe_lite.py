"""GLM-4.7-Flash: latent attention and a small mixture with a shared expert."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.mla import deepseek
from gpufit.sources.patterns import class_defaults
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("Glm4MoeLiteForCausalLM",)
DEFAULTS = class_defaults(
    "Glm4MoeLiteConfig (transformers 5.24.0)",
    vocab_size=154880,
    hidden_size=2048,
    intermediate_size=10240,
    moe_intermediate_size=1536,
    num_hidden_layers=47,
    num_attention_heads=20,
    n_shared_experts=1,
    n_routed_experts=64,
    kv_lora_rank=512,
    q_lora_rank=768,
    qk_rope_head_dim=64,
    v_head_dim=256,
    qk_nope_head_dim=192,
    num_experts_per_tok=4,
    max_position_embeddings=202752,
    first_k_dense_replace=1,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """One dense layer, then mixtures with a score correction; routers are loaded at fp32 (vLLM 0.33.0, glm4_moe.py)."""
    return deepseek(config, score_correction=True, router_dtype="fp32")
