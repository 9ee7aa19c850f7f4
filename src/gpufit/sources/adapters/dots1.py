"""dots.llm1: multi-head attention with query and key norms, dense layers first, and a mixture with shared experts."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.grouped_moe import grouped_mixture
from gpufit.sources.patterns import FULL, SLIDING, class_defaults, typed_layers, window_of
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("Dots1ForCausalLM",)
DEFAULTS = class_defaults(
    "Dots1Config (transformers 5.24.0)",
    vocab_size=152064,
    hidden_size=4608,
    intermediate_size=10944,
    moe_intermediate_size=1408,
    num_hidden_layers=62,
    num_attention_heads=32,
    num_key_value_heads=32,
    first_k_dense_replace=0,
    max_position_embeddings=2048,
    sliding_window=4096,
    max_window_layers=62,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """Layers from `max_window_layers` on use the window where there is one."""
    layers = config.integer("num_hidden_layers")
    window = window_of(config)
    first = config.integer("max_window_layers")
    words = [SLIDING if window is not None and i >= first else FULL for i in range(layers)]
    kinds = typed_layers(config, layers, (FULL, SLIDING), otherwise=words)
    bias = config.flag("attention_bias")
    return grouped_mixture(
        config, bias=bias, out_bias=bias, qk_norm="head", score_correction=True, sliding=kinds[SLIDING], window=window
    )
