"""Aya Vision and Command A Vision: a SigLIP tower, pixel shuffle and a gated projection before a Cohere 2 text model."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import outer_tied, text_model
from gpufit.sources.towers import projector, siglip

MODEL_TYPES = ("aya_vision", "cohere2_vision")
ARCHITECTURES = ("AyaVisionForConditionalGeneration", "Cohere2VisionForConditionalGeneration")


def read(config: Config) -> Decoder:
    """Aya has a LayerNorm before its projection, Command A Vision none. Both tie by default."""
    config.ignore("adapter_layer_norm_eps", "alignment_activation_fn", "alignment_model_type")
    if config.integer("alignment_num_layers", default=2) != 2 or isinstance(config.raw("vision_feature_layer"), list):
        raise ConfigError(
            f"{config.where('alignment_num_layers')}: a projector of another shape", hint="two layers on one feature are understood"
        )
    aya = config.text("model_type") != "cohere2_vision"
    tied = outer_tied(
        config, Default(value=True, source=f"{'AyaVisionConfig' if aya else 'Cohere2VisionConfig'} (transformers 5.24.0)")
    )
    d = text_model(config, inside="language_model.", model_type="cohere2", tied=tied)
    v = config.sub("vision_config")
    if v is not None:
        tower = siglip(d, v, "vision_tower.vision_model.")
        merge = config.count(
            "downsample_factor", symbol="s_v", label="patches joined per axis", default=Default(value=2, source="AyaVisionConfig")
        )
        inner = d.hidden
        if config.has("alignment_intermediate_size"):
            inner = config.count("alignment_intermediate_size", symbol="I_p", label="projector width")
        joined = merge * merge * tower.width
        p = projector(d, "multi_modal_projector.", joined)
        if aya:
            p.norm("norm", "layernorm", bias=True)
        p.matrix("in", "linear_1", inner, joined, bias=True)
        p.matrix("out", "linear_2", d.hidden, inner // 2, bias=True)
    return d
