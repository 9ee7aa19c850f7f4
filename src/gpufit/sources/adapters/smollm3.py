"""SmolLM3: Llama's shape; some layers have no rotary embedding."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, llama_shape, windows
from gpufit.sources.patterns import FULL, SLIDING, per_layer, window_of

CLASS = "SmolLM3Config (transformers 5.24.0)"
INERT = frozenset({"max_window_layers"})


def read(config: Config) -> Decoder:
    """With `use_sliding_window` the layers without rotary embedding slide: `no_rope_layers` is 0 there, by default each fourth."""
    d = basics(config, CLASS, tie=True, vocab_size=128256, hidden_size=2048, intermediate_size=11008, num_hidden_layers=36,
               num_attention_heads=16, num_key_value_heads=4, max_position_embeddings=32768)  # fmt: skip
    total = int(d.num_layers)
    step = config.integer("no_rope_layer_interval", default=4)
    rotary = per_layer(config, "no_rope_layers", total) or [int((i + 1) % step != 0) if step else 1 for i in range(total)]
    window = window_of(config) if config.flag("use_sliding_window") else None
    windows(d, window, [FULL if window is None or rotary[i] else SLIDING for i in d.all])
    bias = config.flag("attention_bias")
    llama_shape(d, bias=bias, out_bias=bias, mlp_bias=config.flag("mlp_bias"))
    return d
