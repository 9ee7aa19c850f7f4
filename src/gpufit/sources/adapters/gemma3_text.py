"""Gemma 3's text model, and EmbeddingGemma: five sliding layers to one full, norms on queries and keys."""

from __future__ import annotations

from gpufit.sources.adapters.gemma2 import SANDWICH
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, llama_shape, nth_full, windows
from gpufit.sources.patterns import window_of

CLASS = "Gemma3TextConfig (transformers 5.24.0)"
INERT = frozenset({"rope_local_base_freq"})


def read(config: Config) -> Decoder:
    """Each `sliding_window_pattern`-th layer (default 6) is full, unless `layer_types` says otherwise."""
    d = basics(
        config, CLASS, tie=True, vocab_size=262208, hidden_size=2304, intermediate_size=9216, num_hidden_layers=26,
        num_attention_heads=8, num_key_value_heads=4, head_dim=256, max_position_embeddings=131072, sliding_window=4096,
    )  # fmt: skip
    step = config.integer("sliding_window_pattern", "_sliding_window_pattern", default=6)
    windows(d, window_of(config), nth_full(d, step))
    bias = config.flag("attention_bias")
    llama_shape(d, bias=bias, out_bias=bias, qk_norm="head", listed=SANDWICH)
    return d
