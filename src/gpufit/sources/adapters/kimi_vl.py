"""Kimi-VL: a DeepSeek-V3 (Moonlight) text model with a MoonViT tower."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.moonvit import merging_projector, moonvit
from gpufit.sources.nested import outer_tied, text_model

ARCHITECTURES = ("KimiVLForConditionalGeneration",)


def read(config: Config) -> Decoder:
    """The text config names no family in some files: it is DeepSeek-V3's."""
    tied = outer_tied(config, False)
    d = text_model(config, inside="language_model.", model_type="deepseek_v3", tied=tied)
    vision = config.sub("vision_config")
    if vision is None:
        raise config.missing("vision_config")
    moonvit(d, vision)
    merging_projector(d, vision, "multi_modal_projector.", ("linear_1", "linear_2"))
    return d
