"""Youtu-LLM: multi-head latent attention in a dense model."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, latent_shape

CLASS = "YoutuConfig (transformers 5.24.0)"
INERT = frozenset({"num_key_value_heads", "head_dim", "qk_head_dim", "embedding_initializer_range"})


def read(config: Config) -> Decoder:
    """DeepSeek's attention with an ordinary MLP in every layer."""
    d = basics(
        config, CLASS, tie=True, vocab_size=128256, hidden_size=2048, intermediate_size=6144, num_hidden_layers=32,
        num_attention_heads=16, max_position_embeddings=131072, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128,
        qk_rope_head_dim=64, v_head_dim=128,
    )  # fmt: skip
    latent_shape(d)
    return d
