"""K-EXAONE: EXAONE 4's layer pattern with query and key norms and mixtures after the dense layers."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.grouped_moe import grouped_mixture
from gpufit.sources.patterns import FULL, SLIDING, class_defaults, typed_layers, window_of
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("ExaoneMoeForCausalLM", "ExaoneMoEForCausalLM")
DEFAULTS = class_defaults(
    "ExaoneMoeConfig (transformers 5.24.0)",
    vocab_size=102400,
    hidden_size=4096,
    intermediate_size=16384,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=32,
    max_position_embeddings=2048,
    sliding_window=4096,
    sliding_window_pattern=4,
    first_k_dense_replace=1,
    moe_intermediate_size=1024,
    num_experts=64,
    num_experts_per_tok=8,
    num_shared_experts=1,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """`layer_types`, else a `sliding_window_pattern`: a step whose last layer is full, or letters (L sliding, G full)."""
    layers = config.integer("num_hidden_layers")
    window = window_of(config)
    pattern = config.raw("sliding_window_pattern")
    if window is None or not pattern:
        words = [FULL] * layers
    elif isinstance(pattern, str):
        if set(pattern) - {"L", "G"}:
            raise ConfigError(
                f"{config.where('sliding_window_pattern')} is {pattern!r}, expected L and G", hint="check the config.json"
            )
        words = [SLIDING if pattern[i % len(pattern)] == "L" and i != layers - 1 else FULL for i in range(layers)]
    else:
        words = [FULL if (i + 1) % int(pattern) == 0 else SLIDING for i in range(layers)]
    kinds = typed_layers(config, layers, (FULL, SLIDING), otherwise=words)
    return grouped_mixture(
        config, bias=False, qk_norm="head", score_correction=True, sliding=kinds[SLIDING], window=window
    )
