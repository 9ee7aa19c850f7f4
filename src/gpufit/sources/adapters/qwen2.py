"""Qwen 1.5, 2 and 2.5 and what is built on them: biases on query, key and value."""

from __future__ import annotations

from typing import Any

from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, llama_shape, windows
from gpufit.sources.patterns import FULL, SLIDING, window_of

MODEL_TYPES = ("qwen2",)
CLASS = "Qwen2Config (transformers 5.24.0)"
WINDOW = Default(value=4096, source=CLASS)
FIELDS: dict[str, Any] = {
    "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 32, "max_position_embeddings": 32768,
}  # fmt: skip


def read(config: Config) -> Decoder:
    """The last layers slide where `use_sliding_window` switches it on; see `late_windows`."""
    d = basics(config, CLASS, tie=False, **FIELDS)
    config.ignore("attention_bias")  # the class does not read it: queries, keys and values always have biases
    late_windows(d)
    llama_shape(d, bias=config.flag("qkv_bias", default=True))
    return d


def late_windows(d: Decoder) -> None:
    """The rule of the Qwen classes: with `use_sliding_window`, layers from `max_window_layers` on (default 28) slide; else none does."""
    on = d.config.flag("use_sliding_window")
    first = d.config.integer("max_window_layers", default=28)
    d.config.ignore("sliding_window")
    d.config.fall_back({"sliding_window": WINDOW})
    window = window_of(d.config) if on else None
    windows(d, window, [SLIDING if window is not None and i >= first else FULL for i in d.all])
