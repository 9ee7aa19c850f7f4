"""Qwen3-VL: a Qwen3 text model and a tower with deepstack mergers."""

from __future__ import annotations

from gpufit.sources.adapters import qwen3
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import flat_or_nested
from gpufit.sources.patterns import class_defaults
from gpufit.sources.qwen_towers import qwen3 as tower

MODEL_TYPES = ("qwen3_vl", "qwen3_vl_text")
ARCHITECTURES = ("Qwen3VLForConditionalGeneration",)
TEXT = class_defaults(
    "Qwen3VLTextConfig (transformers 5.24.0)", vocab_size=151936, hidden_size=4096, intermediate_size=22016, num_hidden_layers=32,
    num_attention_heads=32, num_key_value_heads=32, head_dim=128, max_position_embeddings=128000,
)  # fmt: skip


def read(config: Config) -> Decoder:
    """Unties by default, as Qwen3VLConfig does."""
    d = flat_or_nested(
        config, qwen3.read, tied=False, defaults=TEXT, source="Qwen3VLConfig (transformers 5.24.0)", prefix="model.language_model."
    )
    if (v := config.sub("vision_config")) is not None:
        tower(d, v, "model.visual.")
    return d
