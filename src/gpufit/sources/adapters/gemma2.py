"""Gemma 2 and VaultGemma: every other layer slides, norms around attention and MLP."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import PRE_NORMS, basics, llama_shape, nth_full, windows
from gpufit.sources.patterns import window_of

MODEL_TYPES = ("gemma2", "vaultgemma")
CLASS = "Gemma2Config (transformers 5.24.0)"
SANDWICH = (*PRE_NORMS, ("pre-MLP norm", "pre_feedforward_layernorm"), ("post-MLP norm", "post_feedforward_layernorm"))
VAULT = (PRE_NORMS[0], SANDWICH[2])


def read(config: Config) -> Decoder:
    """Layers 0, 2, 4 ... slide, the others are full, unless `layer_types` says otherwise."""
    d = basics(
        config, CLASS, tie=True, vocab_size=256000, hidden_size=2304, intermediate_size=9216, num_hidden_layers=26,
        num_attention_heads=8, num_key_value_heads=4, head_dim=256, max_position_embeddings=8192, sliding_window=4096,
    )  # fmt: skip
    window = window_of(config)
    twice = config.raw("sliding_window_size")
    if twice is not None and (window is None or int(window) != twice):
        raise ConfigError(
            f"{config.where('sliding_window_size')} is {twice}, but sliding_window is {config.raw('sliding_window')}",
            hint="the two name one window and must be equal",
        )
    windows(d, window, nth_full(d, 2))
    bias = config.flag("attention_bias")
    llama_shape(d, bias=bias, out_bias=bias, listed=VAULT if config.text("model_type") == "vaultgemma" else SANDWICH)
    return d
