"""Qwen2.5-VL and models built on it: a Qwen2 text model, in older files written flat beside `vision_config`."""

from __future__ import annotations

from gpufit.sources.adapters import qwen2
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import flat_or_nested
from gpufit.sources.patterns import class_defaults
from gpufit.sources.qwen_towers import qwen2_5 as tower

MODEL_TYPES = ("qwen2_5_vl", "qwen2_5_vl_text")
ARCHITECTURES = ("Qwen2_5_VLForConditionalGeneration",)
TEXT = class_defaults(
    "Qwen2_5_VLTextConfig (transformers 5.24.0)", vocab_size=152064, hidden_size=8192, intermediate_size=29568,
    num_hidden_layers=80, num_attention_heads=64, num_key_value_heads=8, max_position_embeddings=32768,
)  # fmt: skip


def read(config: Config) -> Decoder:
    """Unties by default, as Qwen2_5_VLConfig does; no `vision_config` means no tower."""
    d = flat_or_nested(config, qwen2.read, tied=False, defaults=TEXT, source="Qwen2_5_VLConfig (transformers 5.24.0)")
    if (v := config.sub("vision_config")) is not None:
        tower(d, v, "visual.")
    return d
