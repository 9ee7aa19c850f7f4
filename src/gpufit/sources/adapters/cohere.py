"""Cohere Command R, and Command R7B / A with windows (cohere2): one norm a layer, tied embedding."""

from __future__ import annotations

from typing import Any

from gpufit.errors import ConfigError
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import PRE_NORMS, basics, every, llama_shape, nth_full, windows
from gpufit.sources.patterns import FULL, window_of

MODEL_TYPES = ("cohere", "cohere2")
INERT = frozenset({"use_parallel_block", "use_embedding_sharing", "layer_switch", "order_of_interleaved_layers"})


def read(config: Config) -> Decoder:
    """In cohere2 each fourth layer is full (`sliding_window_pattern`), the others slide, unless `layer_types` says otherwise."""
    second = config.text("model_type") == "cohere2"
    extra: dict[str, Any] = {"sliding_window": 4096} if second else {}
    d = basics(
        config, f"{'Cohere2Config' if second else 'CohereConfig'} (transformers 5.24.0)", tie=True, vocab_size=256000, hidden_size=8192,
        intermediate_size=22528, num_hidden_layers=40, num_attention_heads=64, max_position_embeddings=8192,
        **extra,
    )  # fmt: skip
    if second:
        step = config.integer("sliding_window_pattern", "_sliding_window_pattern", default=4)
        _agree(config, step)
        windows(d, window_of(config), nth_full(d, step))
    else:
        windows(d, None, every(d, FULL))
    bias = config.flag("attention_bias")
    llama_shape(d, bias=bias, out_bias=bias, qk_norm="full" if config.flag("use_qk_norm") else "", listed=PRE_NORMS[:1])
    return d


def _agree(config: Config, step: int) -> None:
    """Older files say the pattern twice more; they must say the same."""
    order, switch = config.raw("order_of_interleaved_layers"), config.raw("layer_switch")
    if order not in (None, "local_attn_first"):
        raise ConfigError(f"{config.where('order_of_interleaved_layers')} is {order!r}", hint="local_attn_first is known")
    if switch is not None and switch != step and not config.has("layer_types"):
        raise ConfigError(
            f"{config.where('layer_switch')} is {switch}, but the window pattern is {step}", hint="the two must agree"
        )
