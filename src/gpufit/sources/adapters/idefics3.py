"""Idefics3, SmolVLM and Granite-Docling: a SigLIP-like tower, pixel shuffle and one projection before a Llama text model."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import open_text, outer_tied, text_model
from gpufit.sources.patterns import class_defaults
from gpufit.sources.towers import projector, siglip

MODEL_TYPES = ("idefics3", "smolvlm")
ARCHITECTURES = ("Idefics3ForConditionalGeneration", "SmolVLMForConditionalGeneration")
VISION = class_defaults(
    "Idefics3VisionConfig (transformers 5.24.0)",
    hidden_size=1152,
    intermediate_size=3072,
    num_hidden_layers=12,
    image_size=224,
    patch_size=32,
)


def read(config: Config) -> Decoder:
    """`scale_factor` squared neighbouring patches become one token. Unties by default (Idefics3Config)."""
    config.ignore("vocab_size", "pixel_shuffle_factor", "vision_model_name", "text_model_name", "transformers.js_config")
    tied = outer_tied(config, Default(value=False, source="Idefics3Config (transformers 5.24.0)"))
    text = open_text(config, "text_config", model_type="llama")
    if text.flag("use_resampler"):
        raise ConfigError(
            f"{text.where('use_resampler')} is true: a perceiver resampler, which this reader does not know",
            hint="models without one are understood",
        )
    # Left over from training: shapes of a resampler and a tower that the text model has not.
    text.ignore(
        "perceiver_config", "vision_config", "pixel_shuffle_factor", "qk_layer_norms", "transformers.js_config", "is_llama_config"
    )
    d = text_model(config, prefix="model.text_model.", model_type="llama", tied=tied)
    v = config.sub("vision_config")
    if v is not None:
        v.ignore("size", "max_image_size", "tie_word_embeddings", "use_base_siglip", "qk_layer_norms")
        tower = siglip(d, v, "model.vision_model.", known=VISION, head=False)
        scale = config.count(
            "scale_factor", symbol="s_v", label="patches joined per axis", default=Default(value=2, source="Idefics3Config")
        )
        projector(d, "model.connector.", tower.width).matrix(
            "projection", "modality_projection.proj", d.hidden, scale * scale * tower.width
        )
    return d
