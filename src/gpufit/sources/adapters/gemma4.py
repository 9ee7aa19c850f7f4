"""Gemma 4 with its vision and audio towers; the text model is the `gemma4_text` family's."""

from __future__ import annotations

from gpufit.model import Role
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.gemma_towers import audio, vision
from gpufit.sources.nested import VERSION, outer_tied, text_model
from gpufit.sources.towers import projector

MODEL_TYPES = ("gemma4",)
ARCHITECTURES = ("Gemma4ForConditionalGeneration",)


def read(config: Config) -> Decoder:
    """Towers are there where their config is; each is joined by one projection without bias. Ties by class default."""
    tied = outer_tied(config, Default(value=True, source=f"Gemma4Config ({VERSION})"))
    d = text_model(config, prefix="model.language_model.", model_type="gemma4_text", tied=tied)
    config.ignore("vision_soft_tokens_per_image")
    if (v := config.sub("vision_config")) is not None:
        tower = vision(d, v, "model.vision_tower.")
        projector(d, "model.embed_vision.", tower.width).matrix("vision projection", "embedding_projection", d.hidden, tower.width)
    if (a := config.sub("audio_config")) is not None:
        _, out = audio(d, a, "model.audio_tower.")
        projector(d, "model.embed_audio.", out).matrix(
            "audio projection", "embedding_projection", d.hidden, out, role=Role.PROJECTOR
        )
    return d
