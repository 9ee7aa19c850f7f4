"""Qwen2-Audio: a Whisper-like encoder, one projection, and a Qwen2 text model."""

from __future__ import annotations

from gpufit.sources.audio_towers import QWEN2_AUDIO, UNUSED, whisper_encoder
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import outer_tied, text_model
from gpufit.sources.towers import projector

ARCHITECTURES = ("Qwen2AudioForConditionalGeneration",)


def read(config: Config) -> Decoder:
    """vLLM takes the encoder from transformers: whole on every rank."""
    config.ignore("vocab_size")
    tied = outer_tied(config, Default(value=False, source="Qwen2AudioConfig (transformers 5.24.0)"))
    d = text_model(config, inside="language_model.", model_type="qwen2", tied=tied)
    a = config.sub("audio_config")
    if a is not None:
        a.fall_back(QWEN2_AUDIO)
        tower = whisper_encoder(d, a, "audio_tower.", split=False)
        a.ignore(*UNUSED)
        projector(d, "multi_modal_projector.", tower.width).matrix("linear", "linear", d.hidden, tower.width, bias=True)
    return d
