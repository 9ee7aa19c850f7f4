"""Mistral 7B, Nemo, Small 3 and what shares their class; a window, where there is one, holds in every layer."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, every, llama_shape, windows
from gpufit.sources.patterns import FULL, SLIDING, window_of

MODEL_TYPES = ("mistral", "ministral")
CLASS = "MistralConfig (transformers 5.24.0)"


def read(config: Config) -> Decoder:
    """All layers slide when `sliding_window` is set; null or zero is full attention, absence the class's 4096."""
    d = basics(
        config, CLASS, tie=False, vocab_size=32000, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=131072, sliding_window=4096,
    )  # fmt: skip
    window = window_of(config)
    if window is not None and config.raw("use_sliding_window") is False:
        d.notes.append("use_sliding_window is false, but this class does not read it: the window holds")
    windows(d, window, every(d, SLIDING if window is not None else FULL))
    llama_shape(d)
    return d
