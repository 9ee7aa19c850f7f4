"""MiniCPM3: multi-head latent attention in a dense model."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, latent_shape

CLASS = "MiniCPM3Config (transformers 5.24.0)"
INERT = frozenset({"scale_depth", "num_key_value_heads", "head_dim", "qk_head_dim"})


def read(config: Config) -> Decoder:
    """The latent and the rotary key are what a sequence needs; vLLM expands them and keeps keys and values for each head."""
    d = basics(
        config, CLASS, tie=True, vocab_size=73448, hidden_size=2560, intermediate_size=6400, num_hidden_layers=62,
        num_attention_heads=40, max_position_embeddings=32768, q_lora_rank=768, kv_lora_rank=256, qk_nope_head_dim=64,
        qk_rope_head_dim=32,
    )  # fmt: skip
    latent_shape(d, value_dim=(d.hidden // d.need(d.attention_heads)).as_step("d_v", "value width"))
    return d
