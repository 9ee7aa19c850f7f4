"""Mistral Large 4: its text model with a Pixtral tower and a merging projector."""

from __future__ import annotations

from gpufit.quantity import Q
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import outer_tied, text_model
from gpufit.sources.towers import pixtral, projector


def read(config: Config) -> Decoder:
    """The projector merges `spatial_merge_size` squared patches before its two matrices."""
    tied = outer_tied(config, False)
    d = text_model(config, prefix="model.language_model.", model_type="mistral_large4_text", tied=tied)
    vision = config.sub("vision_config")
    if vision is None:
        raise config.missing("vision_config")
    config.ignore("vision_feature_layer", "image_token_index")
    tower = pixtral(d, vision, "model.vision_tower.")
    merge = config.integer("spatial_merge_size", default=2)
    bias = config.flag("multimodal_projector_bias")
    inputs = feature_width(config, tower.width)
    p = projector(d, "model.multi_modal_projector.", tower.width)
    p.norm("norm", "norm")
    p.matrix("merging layer", "patch_merger.merging_layer", tower.width, tower.width * merge * merge)
    p.matrix("linear 1", "linear_1", d.hidden, inputs, bias=bias)
    p.matrix("linear 2", "linear_2", d.hidden, d.hidden, bias=bias)
    return d


def feature_width(config: Config, width: Q) -> Q:
    """The joint width of the tower layers that the projector reads."""
    chosen = config.raw("vision_feature_layer")
    return width * len(chosen) if isinstance(chosen, list) else width
