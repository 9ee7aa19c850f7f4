"""Qwen3-Omni's thinker: a Qwen3 mixture behind Qwen3-VL's tower and an audio tower of its own. Its talker is another model."""

from __future__ import annotations

from gpufit.sources.adapters import qwen3_moe
from gpufit.sources.adapters.qwen2_5_omni import say_speech, thinker
from gpufit.sources.audio_towers import UNUSED, omni_encoder
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import open_text, outer_tied, relocate, set_tied
from gpufit.sources.patterns import class_defaults
from gpufit.sources.qwen_towers import OMNI_MERGER, qwen3

MODEL_TYPES = ("qwen3_omni_moe", "qwen3_omni_moe_thinker")
ARCHITECTURES = ("Qwen3OmniMoeForConditionalGeneration", "Qwen3OmniMoeThinkerForConditionalGeneration")
INERT: frozenset[str] = qwen3_moe.INERT
TEXT = class_defaults(
    "Qwen3OmniMoeTextConfig (transformers 5.24.0)", vocab_size=3584, hidden_size=2048, intermediate_size=18944, num_hidden_layers=28,
    num_attention_heads=28, num_key_value_heads=4, max_position_embeddings=32768, num_experts=128, num_experts_per_tok=8,
    moe_intermediate_size=768,
)  # fmt: skip


def read(config: Config) -> Decoder:
    """Unties by default (Qwen3OmniMoeThinkerConfig)."""
    inner = thinker(config)
    text = open_text(inner, "text_config", model_type="qwen3_omni_moe_text")
    text.fall_back(TEXT)
    d = qwen3_moe.read(text)
    set_tied(d, outer_tied(inner, Default(value=False, source="Qwen3OmniMoeThinkerConfig (transformers 5.24.0)")))
    if (v := inner.sub("vision_config")) is not None:
        v.ignore("apply_vit_abs_pos_embed", "image_size")
        qwen3(d, v, "visual.", names=OMNI_MERGER)
    if (a := inner.sub("audio_config")) is not None:
        omni_encoder(d, a, "audio_tower.")
        a.ignore(*UNUSED)
    relocate(d, inside="thinker." if inner is not config else "")
    say_speech(d, config)
    return d
