"""OLMo 2 and 3: norms after attention and MLP, and over all query and key heads; in OLMo 3 every fourth layer is full."""

from __future__ import annotations

from typing import Any

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import PRE_NORMS, basics, listed_windows, llama_shape, nth_full, windows
from gpufit.sources.patterns import window_of

MODEL_TYPES = ("olmo2", "olmo3")
POST_NORMS = (PRE_NORMS[1], ("post-MLP norm", "post_feedforward_layernorm"))


def read(config: Config) -> Decoder:
    """OLMo 2 has full attention; OLMo 3 slides but for each fourth layer, unless `layer_types` says otherwise."""
    third = config.text("model_type") == "olmo3"
    name = "Olmo3Config" if third else "Olmo2Config"
    extra: dict[str, Any] = {"sliding_window": 4096} if third else {}
    d = basics(
        config, f"{name} (transformers 5.24.0)", tie=False, vocab_size=50304, hidden_size=4096, intermediate_size=11008,
        num_hidden_layers=32, num_attention_heads=32, max_position_embeddings=2048, **extra,
    )  # fmt: skip
    if third:
        windows(d, window_of(config), nth_full(d, 4))
    else:
        listed_windows(d)
    bias = config.flag("attention_bias")
    llama_shape(d, bias=bias, out_bias=bias, qk_norm="full", listed=POST_NORMS)
    return d
