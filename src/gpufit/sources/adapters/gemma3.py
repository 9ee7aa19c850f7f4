"""Gemma 3 with its SigLIP vision tower; the text model is the `gemma3_text` family's."""

from __future__ import annotations

from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import VERSION, outer_tied, text_model
from gpufit.sources.towers import projector, siglip

MODEL_TYPES = ("gemma3",)
ARCHITECTURES = ("Gemma3ForConditionalGeneration",)


def read(config: Config) -> Decoder:
    """Text model, tower, and a projection without bias behind a norm. Defaults: Gemma3Config (transformers 5.24.0), which ties."""
    d = text_model(
        config,
        inside="language_model.",
        model_type="gemma3_text",
        tied=outer_tied(config, Default(value=True, source=f"Gemma3Config ({VERSION})")),
    )
    v = config.sub("vision_config")
    config.ignore("mm_tokens_per_image")
    if v is not None:
        tower = siglip(d, v, "vision_tower.vision_model.")
        p = projector(d, "multi_modal_projector.", tower.width)
        p.part("input projection", "mm_input_projection_weight", tower.width, d.hidden)
        p.norm("input norm", "mm_soft_emb_norm")
    return d
