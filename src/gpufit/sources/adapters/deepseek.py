"""DeepSeekMoE, the first DeepSeek mixture (arXiv 2401.06066): multi-head attention and shared experts, no latent."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.grouped_moe import grouped_mixture
from gpufit.sources.patterns import class_defaults
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("DeepseekForCausalLM",)
DEFAULTS = class_defaults(
    "DeepseekConfig (published with deepseek-moe-16b)",
    vocab_size=102400,
    hidden_size=4096,
    intermediate_size=11008,
    moe_intermediate_size=1407,
    num_hidden_layers=30,
    num_attention_heads=32,
    first_k_dense_replace=0,
    max_position_embeddings=2048,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """Without an expert count the model is dense, as in the published class."""
    bias = config.flag("attention_bias")
    return grouped_mixture(config, bias=bias, out_bias=bias, score_correction=False)
