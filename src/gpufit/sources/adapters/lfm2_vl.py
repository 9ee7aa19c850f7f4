"""LFM2-VL: a SigLIP 2 tower, pixel shuffle and a two-layer projection before an LFM2 text model."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.sources.adapters import lfm2
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import outer_tied, text_model
from gpufit.sources.towers import projector, siglip

MODEL_TYPES = ("lfm2_vl", "lfm2-vl")
ARCHITECTURES = ("Lfm2VlForConditionalGeneration",)
INERT = lfm2.INERT
SOURCE = "Lfm2VlConfig (transformers 5.24.0)"
SETTINGS = (
    "encoder_patch_size", "tile_size", "max_image_tokens", "min_image_tokens", "max_num_patches", "max_tiles", "min_tiles",
    "max_pixels_tolerance", "do_image_splitting", "use_image_special_tokens", "use_thumbnail", "vision_feature_layer",
)  # fmt: skip


def read(config: Config) -> Decoder:
    """`downsample_factor` squared patches become one token. Ties by default."""
    if isinstance(config.raw("vision_feature_layer"), list):
        raise ConfigError(f"{config.where('vision_feature_layer')} is a list", hint="one layer's output is understood")
    config.ignore(*SETTINGS)
    d = text_model(
        config, prefix="model.language_model.", model_type="lfm2", tied=outer_tied(config, Default(value=True, source=SOURCE))
    )
    v = config.sub("vision_config")
    if v is not None:
        v.data = {"model_type": "siglip2_vision_model", **v.data}
        tower = siglip(d, v, "model.vision_tower.vision_model.")
        factor = config.count(
            "downsample_factor", symbol="s_v", label="patches joined per axis", default=Default(value=2, source=SOURCE)
        )
        inner = config.count(
            "projector_hidden_size", symbol="I_p", label="projector width", default=Default(value=2560, source=SOURCE)
        )
        bias = config.flag("projector_bias", default=True)
        joined = factor * factor * tower.width
        p = projector(d, "model.multi_modal_projector.", joined)
        if config.flag("projector_use_layernorm", default=True):
            p.norm("norm", "layer_norm", bias=True)
        p.matrix("in", "linear_1", inner, joined, bias=bias)
        p.matrix("out", "linear_2", d.hidden, inner, bias=bias)
    return d
