"""EXAONE 4: norms after attention and MLP, and per head on queries and keys; the large one mixes sliding and full layers."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.sources.adapters.olmo2 import POST_NORMS
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, every, llama_shape, nth_full, windows
from gpufit.sources.patterns import FULL, SLIDING, window_of

CLASS = "Exaone4Config (transformers 5.24.0)"


def read(config: Config) -> Decoder:
    """`layer_types`, or else `sliding_window_pattern`: a step (default 4), or a word such as LLLG of local and global layers."""
    d = basics(config, CLASS, tie=False, vocab_size=102400, hidden_size=4096, intermediate_size=16384, num_hidden_layers=32,
               num_attention_heads=32, num_key_value_heads=32, max_position_embeddings=2048, sliding_window=4096)  # fmt: skip
    window = window_of(config)
    windows(d, window, pattern(d) if window is not None else every(d, FULL))
    llama_shape(d, qk_norm="head", listed=POST_NORMS)
    return d


def pattern(d: Decoder) -> list[str]:
    """One word a layer from `sliding_window_pattern`. A pattern in letters repeats from layer 0 and leaves the last layer global."""
    found = d.config.raw("sliding_window_pattern")
    if not isinstance(found, str):
        absent = not d.config.present("sliding_window_pattern")
        return nth_full(d, 4 if absent else d.config.integer("sliding_window_pattern", default=0))
    if not found or set(found) - {"L", "G"}:
        raise ConfigError(
            f"{d.config.where('sliding_window_pattern')} is {found!r}", hint="a step, or letters L (local) and G (global)"
        )
    last = int(d.num_layers) - 1
    return [SLIDING if found[i % len(found)] == "L" and i != last else FULL for i in d.all]
