"""MiniCPM-o: MiniCPM-V with a Whisper encoder. Its speech synthesis is another model."""

from __future__ import annotations

from gpufit.sources.adapters import minicpmv
from gpufit.sources.audio_towers import UNUSED, WHISPER, whisper_encoder
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.towers import projector

ARCHITECTURES = ("MiniCPMO",)
INERT = minicpmv.INERT
SETTINGS = (
    "audio_chunk_length",
    "audio_pool_step",
    "chunk_input",
    "init_audio",
    "init_tts",
    "init_vision",
    "stream_input",
    "listen_speak_type",
)


def read(config: Config) -> Decoder:
    """The text model follows from `version` as in MiniCPM-V. Only the encoder of the Whisper model is there."""
    config.ignore(*SETTINGS)
    d = minicpmv.read(config)
    a = config.sub("audio_config")
    if a is not None:
        a.fall_back(WHISPER)
        tower = whisper_encoder(d, a, "apm.")
        a.ignore(*UNUSED)
        p = projector(d, "audio_projection_layer.", tower.width, "audio projector ")
        p.matrix("in", "linear1", d.hidden, tower.width, bias=True)
        p.matrix("out", "linear2", d.hidden, d.hidden, bias=True)
    if config.raw("tts_config"):
        d.assumptions.append("the speech synthesis beside the language model (tts_config) is a model of its own and not counted")
    return d
