"""GLM-4.5, 4.6 and 4.7: grouped-query attention and a mixture with a shared expert."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.grouped_moe import grouped_mixture
from gpufit.sources.patterns import class_defaults
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("Glm4MoeForCausalLM",)
DEFAULTS = class_defaults(
    "Glm4MoeConfig (transformers 5.24.0)",
    vocab_size=151552,
    hidden_size=4096,
    intermediate_size=10944,
    num_hidden_layers=46,
    num_attention_heads=96,
    num_key_value_heads=8,
    max_position_embeddings=131072,
    moe_intermediate_size=1408,
    num_experts_per_tok=8,
    n_shared_experts=1,
    n_routed_experts=128,
    first_k_dense_replace=1,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """The bias is that of q, k and v alone; routers are loaded at fp32 (vLLM 0.33.0, glm4_moe.py)."""
    norm = "head" if config.flag("use_qk_norm") else ""
    return grouped_mixture(config, bias=config.flag("attention_bias"), qk_norm=norm, score_correction=True, router_dtype="fp32")
