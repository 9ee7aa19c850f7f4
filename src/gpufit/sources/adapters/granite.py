"""IBM Granite, dense, and Granite SWA with windows and attention sinks."""

from __future__ import annotations

from gpufit.model import Role, Shard
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, listed_windows, llama_shape, windows
from gpufit.sources.patterns import FULL, SLIDING, window_of

MODEL_TYPES = ("granite", "granite_swa")
CLASS = "GraniteConfig (transformers 5.24.0)"
SWA = "GraniteSWAConfig (transformers 5.24.0)"
INERT = frozenset({"layer_rope_theta", "attention_multiplier"})


def read(config: Config) -> Decoder:
    """Llama's shape with optional biases; granite_swa has one sink value a head, and its first and every fourth layer are full."""
    swa = config.text("model_type") == "granite_swa"
    if swa:
        d = basics(config, SWA, tie=True, vocab_size=100352, hidden_size=2560, intermediate_size=8192, num_hidden_layers=24,
                   num_attention_heads=20, num_key_value_heads=4, max_position_embeddings=8192, sliding_window=128)  # fmt: skip
        windows(d, window_of(config), [SLIDING if i % 4 else FULL for i in d.all])
    else:
        d = basics(config, CLASS, tie=False, vocab_size=32000, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
                   num_attention_heads=32, max_position_embeddings=2048)  # fmt: skip
        listed_windows(d)
    bias = config.flag("attention_bias")
    llama_shape(d, bias=bias, out_bias=bias, mlp_bias=config.flag("mlp_bias"))
    if swa:
        d.part("sinks", Role.ATTENTION, "layers.{i}.self_attn.sinks", d.need(d.attention_heads), layers=d.all, shard=Shard.COLUMN)
    return d
