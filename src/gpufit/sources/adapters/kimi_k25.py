"""Kimi K2.5 to K2.7: a DeepSeek-V3 text model with a MoonViT tower for images and video."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.moonvit import merging_projector, moonvit
from gpufit.sources.nested import outer_tied, text_model

ARCHITECTURES = ("KimiK25ForConditionalGeneration", "Kimi_K25ForConditionalGeneration")
INERT = frozenset({"projection_hidden_size", "projection_layer_norm_eps", "use_unified_vision_chunk"})


def read(config: Config) -> Decoder:
    """The published checkpoints are untied, whatever the class default."""
    tied = outer_tied(config, False)
    d = text_model(config, inside="language_model.", model_type="deepseek_v3", tied=tied)
    vision = config.sub("vision_config")
    if vision is None:
        raise config.missing("vision_config")
    moonvit(d, vision)
    merging_projector(d, vision, "mm_projector.", ("proj.0", "proj.2"))
    return d
