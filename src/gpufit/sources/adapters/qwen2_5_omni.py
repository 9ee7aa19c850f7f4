"""Qwen2.5-Omni's thinker: a Qwen2 text model behind Qwen2.5-VL's tower and a Whisper encoder. Its talker is another model."""

from __future__ import annotations

from gpufit.model import Role
from gpufit.sources.adapters import qwen2
from gpufit.sources.audio_towers import QWEN2_AUDIO, UNUSED, whisper_encoder
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import open_text, outer_tied, relocate, set_tied
from gpufit.sources.patterns import class_defaults
from gpufit.sources.qwen_towers import qwen2_5

MODEL_TYPES = ("qwen2_5_omni", "qwen2_5_omni_thinker")
ARCHITECTURES = ("Qwen2_5OmniModel", "Qwen2_5OmniForConditionalGeneration", "Qwen2_5OmniThinkerForConditionalGeneration")
TEXT = class_defaults(
    "Qwen2_5OmniTextConfig (transformers 5.24.0)", vocab_size=152064, hidden_size=3584, intermediate_size=18944, num_hidden_layers=28,
    num_attention_heads=28, num_key_value_heads=4, max_position_embeddings=32768,
)  # fmt: skip
AUDIO = class_defaults("Qwen2_5OmniAudioEncoderConfig (transformers 5.24.0)", output_dim=3584) | QWEN2_AUDIO
SPEECH = ("talker_config", "token2wav_config", "code2wav_config")
SWITCHES = ("enable_audio_output", "enable_talker", "seconds_per_chunk", "position_id_per_seconds")


def thinker(config: Config) -> Config:
    """The thinker's own config, which stands alone or beside the talker's."""
    inner = config.sub("thinker_config")
    config.ignore(*SPEECH, *SWITCHES)
    if inner is None:
        return config
    inner.ignore(*SWITCHES)
    return inner


def say_speech(d: Decoder, config: Config) -> None:
    """What the answer must say of the speech models in the same file."""
    if any(config.data.get(name) for name in SPEECH):
        d.assumptions.append(
            "only the thinker is sized: talker and vocoder, which turn its answer into speech, are models of their own"
        )


def read(config: Config) -> Decoder:
    """Unties by default (Qwen2_5OmniThinkerConfig)."""
    inner = thinker(config)
    inside = "thinker." if inner is not config else ""
    text = open_text(inner, "text_config", model_type="qwen2_5_omni_text")
    text.fall_back(TEXT)
    d = qwen2.read(text)
    set_tied(d, outer_tied(inner, Default(value=False, source="Qwen2_5OmniThinkerConfig (transformers 5.24.0)")))
    if (v := inner.sub("vision_config")) is not None:
        qwen2_5(d, v, "visual.", fused=False)
    if (a := inner.sub("audio_config")) is not None:
        a.fall_back(AUDIO)
        tower = whisper_encoder(d, a, "audio_tower.", positions=False, last_norm="ln_post")
        out = a.count("output_dim", symbol="H_ao", label="audio output width")
        tower.part("begin and end of audio", "audio_bos_eos_token", 2 * out)
        tower.matrix("output", "proj", out, tower.width, bias=True, role=Role.PROJECTOR)
        a.ignore(*UNUSED)
    relocate(d, inside=inside)
    say_speech(d, config)
    return d
