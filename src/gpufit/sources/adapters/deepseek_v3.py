"""DeepSeek-V3, R1, V3.1 and what is published with the same class: latent attention and a mixture with shared experts."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.mla import deepseek
from gpufit.sources.patterns import class_defaults
from gpufit.sources.stated import with_defaults

MODEL_TYPES = ("deepseek_v3", "kimi_k2")
ARCHITECTURES = ("DeepseekV3ForCausalLM",)
DEFAULTS = class_defaults(
    "DeepseekV3Config (transformers 5.24.0)",
    vocab_size=129280,
    hidden_size=7168,
    num_hidden_layers=61,
    num_attention_heads=128,
    intermediate_size=18432,
    moe_intermediate_size=2048,
    n_shared_experts=1,
    n_routed_experts=256,
    kv_lora_rank=512,
    q_lora_rank=1536,
    qk_rope_head_dim=64,
    qk_nope_head_dim=128,
    v_head_dim=128,
    num_experts_per_tok=8,
    first_k_dense_replace=3,
    max_position_embeddings=4096,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """Dense layers first, then mixtures with a score-correction buffer beside the router."""
    return deepseek(config, score_correction=config.text("topk_method") in (None, "noaux_tc"))
