"""GLM-5: DeepSeek-V3.2's attention, from 5.2 on with indexers that several layers share."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.mla import deepseek
from gpufit.sources.patterns import class_defaults
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("GlmMoeDsaForCausalLM",)
DEFAULTS = class_defaults(
    "GlmMoeDsaConfig (transformers 5.24.0)",
    vocab_size=154880,
    hidden_size=6144,
    intermediate_size=12288,
    moe_intermediate_size=2048,
    num_hidden_layers=78,
    num_attention_heads=64,
    n_shared_experts=1,
    n_routed_experts=256,
    kv_lora_rank=512,
    q_lora_rank=2048,
    qk_rope_head_dim=64,
    v_head_dim=256,
    qk_nope_head_dim=192,
    num_experts_per_tok=8,
    max_position_embeddings=202752,
    first_k_dense_replace=3,
    index_topk=2048,
    index_head_dim=128,
    index_n_heads=32,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """Layers whose `indexer_types` entry is "shared" have neither an indexer nor index keys."""
    return deepseek(config, score_correction=config.text("topk_method") in (None, "noaux_tc"))
