"""Qwen3-VL mixtures: a Qwen3-MoE text model and a tower with deepstack mergers."""

from __future__ import annotations

from gpufit.sources.adapters import qwen3_moe
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import flat_or_nested
from gpufit.sources.patterns import class_defaults
from gpufit.sources.qwen_towers import qwen3 as tower

ARCHITECTURES = ("Qwen3VLMoeForConditionalGeneration",)
INERT = qwen3_moe.INERT
TEXT = class_defaults(
    "Qwen3VLMoeTextConfig (transformers 5.24.0)", vocab_size=151936, hidden_size=2048, intermediate_size=5632, num_hidden_layers=24,
    num_attention_heads=16, num_key_value_heads=16, max_position_embeddings=128000, num_experts=60, num_experts_per_tok=4,
    moe_intermediate_size=1408,
)  # fmt: skip


def read(config: Config) -> Decoder:
    """Unties by default, as Qwen3VLMoeConfig does."""
    d = flat_or_nested(
        config,
        qwen3_moe.read,
        tied=False,
        defaults=TEXT,
        source="Qwen3VLMoeConfig (transformers 5.24.0)",
        prefix="model.language_model.",
    )
    if (v := config.sub("vision_config")) is not None:
        tower(d, v, "model.visual.")
    return d
