"""Ministral 3 and Devstral 2: Mistral's weights without a window unless one is set."""

from __future__ import annotations

from gpufit.sources.adapters import mistral3
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, every, llama_shape, windows
from gpufit.sources.patterns import FULL, SLIDING, window_of

CLASS = "Ministral3Config (transformers 5.24.0)"


def read(config: Config) -> Decoder:
    """All layers slide when `sliding_window` is set. A file with a `text_config` is the multimodal model under its text model's name."""
    if config.has("text_config"):
        return mistral3.read(config)
    d = basics(
        config, CLASS, tie=False, vocab_size=131072, hidden_size=4096, intermediate_size=14336, num_hidden_layers=34,
        num_attention_heads=32, num_key_value_heads=8, head_dim=128, max_position_embeddings=262144,
    )  # fmt: skip
    window = window_of(config)
    windows(d, window, every(d, SLIDING if window is not None else FULL))
    llama_shape(d)
    return d
