"""PaliGemma 1 and 2: a SigLIP tower and one projection before a Gemma or Gemma 2 text model."""

from __future__ import annotations

from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import open_text, outer_tied, text_model
from gpufit.sources.towers import projector, siglip

ARCHITECTURES = ("PaliGemmaForConditionalGeneration",)


def read(config: Config) -> Decoder:
    """The image and the prompt attend in both directions, the answer causally: a cache is kept, whatever the text config says."""
    config.ignore("vocab_size", "hidden_size", "projection_dim", "num_image_tokens")
    text = open_text(config, "text_config", model_type="gemma")
    text.ignore("num_image_tokens")
    text.data = {**text.data, "use_bidirectional_attention": False}
    tied = outer_tied(config, Default(value=True, source="PaliGemmaConfig (transformers 5.24.0)"))
    d = text_model(config, inside="language_model.", tied=tied)
    if (v := config.sub("vision_config")) is not None:
        v.ignore("num_image_tokens", "vocab_size", "num_positions")
        tower = siglip(d, v, "vision_tower.vision_model.")
        projector(d, "multi_modal_projector.", tower.width).matrix("projection", "linear", d.hidden, tower.width, bias=True)
    return d
