"""Mistral Small 3.1 and later, Ministral 3 and Devstral 2 with a Pixtral tower and a patch merger."""

from __future__ import annotations

from gpufit.model import Shard
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import outer_tied, text_model
from gpufit.sources.towers import feature_layers, pixtral, projector

ARCHITECTURES = ("Mistral3ForConditionalGeneration",)


def read(config: Config) -> Decoder:
    """Where no level says so the output head is its own: the published checkpoints hold one, though the library's class ties."""
    tied = outer_tied(config, Default(value=False, source="the published checkpoints of the family"))
    if not config.has("tie_word_embeddings") and not tied:
        d = text_model(config, inside="language_model.", model_type="mistral", tied=False)
        d.assumptions.append(
            "no tie_word_embeddings in the file: counted with an output head of its own, as the family's checkpoints have"
        )
    else:
        d = text_model(config, inside="language_model.", model_type="mistral", tied=tied)
    if (v := config.sub("vision_config")) is not None:
        tower = pixtral(d, v, "vision_tower.")
        merge = config.count(
            "spatial_merge_size", symbol="m_v", label="patches merged per axis", default=Default(value=2, source="Mistral3Config")
        )
        bias = config.flag("multimodal_projector_bias")
        p = projector(d, "multi_modal_projector.", tower.width)
        p.norm("norm", "norm")
        p.matrix("patch merger", "patch_merger.merging_layer", tower.width, merge * merge * tower.width)
        p.matrix("in", "linear_1", d.hidden, feature_layers(config, tower.width), bias=bias, shard=Shard.COLUMN)
        p.matrix("out", "linear_2", d.hidden, d.hidden, bias=bias, shard=Shard.ROW)
    return d
