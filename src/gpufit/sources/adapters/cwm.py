"""Code World Model: Llama's shape; every fourth layer is full, from the first, and the others slide."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, llama_shape, windows
from gpufit.sources.patterns import FULL, SLIDING, window_of

CLASS = "CwmConfig (transformers 5.24.0)"
STEP = 4


def read(config: Config) -> Decoder:
    """The class has no biases in attention; `mlp_bias` is a switch."""
    d = basics(
        config, CLASS, tie=False, vocab_size=128256, intermediate_size=21504, num_key_value_heads=8, head_dim=128,
        max_position_embeddings=131072, sliding_window=8192,
    )  # fmt: skip
    window = window_of(config)
    windows(d, window, [FULL if window is None or i % STEP == 0 else SLIDING for i in d.all])
    llama_shape(d, mlp_bias=config.flag("mlp_bias"))
    return d
