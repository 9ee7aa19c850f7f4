"""Mistral Small 4: latent attention and a mixture with a shared expert in every layer."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.mla import deepseek
from gpufit.sources.patterns import class_defaults
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("Mistral4ForCausalLM",)
DEFAULTS = class_defaults(
    "Mistral4Config (transformers 5.24.0)",
    vocab_size=131072,
    hidden_size=4096,
    intermediate_size=12288,
    moe_intermediate_size=2048,
    num_hidden_layers=36,
    num_attention_heads=32,
    n_shared_experts=1,
    n_routed_experts=128,
    kv_lora_rank=256,
    q_lora_rank=1024,
    qk_rope_head_dim=64,
    v_head_dim=128,
    qk_nope_head_dim=64,
    num_experts_per_tok=4,
    first_k_dense_replace=0,
    max_position_embeddings=1048576,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """DeepSeek's shapes with a softmax router, which has no score correction."""
    return deepseek(config, score_correction=False)
