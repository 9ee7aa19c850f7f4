"""GLM-4.5V and 4.6V: a GLM-4.5 mixture as text model, and the tower of GLM-4.1V."""

from __future__ import annotations

from gpufit.sources.adapters import glm4_moe
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import flat_or_nested
from gpufit.sources.qwen_towers import glm4v as tower

MODEL_TYPES = ("glm4v_moe", "glm4v_moe_text")
ARCHITECTURES = ("Glm4vMoeForConditionalGeneration",)
INERT: frozenset[str] = getattr(glm4_moe, "INERT", frozenset())


def read(config: Config) -> Decoder:
    """Unties by default, as Glm4vMoeConfig does."""
    d = flat_or_nested(
        config,
        glm4_moe.read,
        tied=False,
        defaults={},
        source="Glm4vMoeConfig (transformers 5.24.0)",
        prefix="model.language_model.",
    )
    if (v := config.sub("vision_config")) is not None:
        tower(d, v, "model.visual.")
    return d
