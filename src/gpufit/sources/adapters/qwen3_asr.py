"""Qwen3-ASR: a Qwen3 text model behind Qwen3-Omni's audio tower."""

from __future__ import annotations

from gpufit.sources.adapters import qwen3
from gpufit.sources.adapters.qwen2_5_omni import thinker
from gpufit.sources.audio_towers import UNUSED, omni_encoder
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import open_text, outer_tied, relocate, set_tied
from gpufit.sources.patterns import class_defaults

MODEL_TYPES = ("qwen3_asr", "qwen3_asr_thinker")
ARCHITECTURES = ("Qwen3ASRForConditionalGeneration",)
TEXT = class_defaults(
    "Qwen3ASRTextConfig (vLLM 0.33.0)", vocab_size=151936, hidden_size=4096, intermediate_size=22016, num_hidden_layers=32,
    num_attention_heads=32, num_key_value_heads=32, head_dim=128, max_position_embeddings=128000,
)  # fmt: skip


def read(config: Config) -> Decoder:
    """The published file holds everything in `thinker_config`. Tied where the text model says so."""
    inner = thinker(config)
    text = open_text(inner, "text_config", model_type="qwen3_asr_text")
    text.fall_back(TEXT)
    text.ignore("mlp_only_layers")  # of the mixture whose config class this one was cut from: this class has no experts
    d = qwen3.read(text)
    set_tied(d, outer_tied(inner, Default(value=False, source="Qwen3ASRThinkerConfig (vLLM 0.33.0)")))
    audio = inner.sub("audio_config")
    if audio is None:
        raise inner.missing("audio_config")
    omni_encoder(d, audio, "audio_tower.")
    audio.ignore(*UNUSED)
    relocate(d, inside="thinker." if inner is not config else "")
    return d
