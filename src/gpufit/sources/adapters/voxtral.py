"""Voxtral: a Whisper encoder, a two-layer projection of stacked frames, and a Mistral text model (published as llama)."""

from __future__ import annotations

from gpufit.model import Shard
from gpufit.sources.audio_towers import UNUSED, VOXTRAL, whisper_encoder
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import outer_tied, text_model
from gpufit.sources.towers import inner_of, projector

ARCHITECTURES = ("VoxtralForConditionalGeneration",)


def read(config: Config) -> Decoder:
    """Frames are stacked to the encoder's MLP width before they are projected. Unties by default (VoxtralConfig)."""
    config.ignore("vocab_size", "hidden_size")
    tied = outer_tied(config, Default(value=False, source="VoxtralConfig (transformers 5.24.0)"))
    d = text_model(config, inside="language_model.", model_type="llama", tied=tied)
    a = config.sub("audio_config")
    if a is not None:
        a.fall_back(VOXTRAL)
        tower = whisper_encoder(d, a, "audio_tower.")
        a.ignore(*UNUSED)
        p = projector(d, "multi_modal_projector.", tower.width)
        stacked = inner_of(a, "encoder_ffn_dim", "intermediate_size", letter="a")
        p.matrix("in", "linear_1", d.hidden, stacked, shard=Shard.REPLICATED)
        p.matrix("out", "linear_2", d.hidden, d.hidden, shard=Shard.REPLICATED)
    return d
