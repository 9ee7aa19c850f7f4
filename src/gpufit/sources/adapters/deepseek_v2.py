"""DeepSeek-V2 and V2-Lite: the first models with latent attention."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.mla import deepseek
from gpufit.sources.patterns import class_defaults

DEFAULTS = class_defaults(
    "DeepseekV2Config (transformers 5.24.0)",
    vocab_size=102400,
    hidden_size=4096,
    num_hidden_layers=32,
    num_attention_heads=32,
    intermediate_size=11008,
    moe_intermediate_size=1407,
    n_shared_experts=2,
    n_routed_experts=64,
    kv_lora_rank=512,
    q_lora_rank=1536,
    qk_rope_head_dim=64,
    qk_nope_head_dim=128,
    v_head_dim=128,
    first_k_dense_replace=0,
    max_position_embeddings=2048,
)


def read(config: Config) -> Decoder:
    """As DeepSeek-V3 without a score correction, unless `topk_method` asks for one."""
    config.fall_back(DEFAULTS)
    return deepseek(config, score_correction=config.text("topk_method") == "noaux_tc")
