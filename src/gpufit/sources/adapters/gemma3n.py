"""Gemma 3n with its MobileNet vision tower and conformer audio tower."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role, Shard
from gpufit.quantity import Q
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.gemma_towers import audio_3n
from gpufit.sources.nested import fixed, outer_tied, text_model
from gpufit.sources.patterns import class_defaults
from gpufit.sources.towers import projector

MODEL_TYPES = ("gemma3n",)
ARCHITECTURES = ("Gemma3nForConditionalGeneration",)
MOBILENET = ("mobilenetv5_300m_enc", 294_126_912)
VISION = class_defaults("Gemma3nVisionConfig (transformers 5.24.0)", hidden_size=2048, vocab_size=128, architecture=MOBILENET[0])


def read(config: Config) -> Decoder:
    """Each tower is joined by a small vocabulary of its own, two norms and a projection. Ties by default (Gemma3nConfig)."""
    config.ignore("vision_soft_tokens_per_image", "audio_soft_tokens_per_image")
    tied = outer_tied(config, Default(value=True, source="Gemma3nConfig (transformers 5.24.0)"))
    d = text_model(config, prefix="model.language_model.", model_type="gemma3n_text", tied=tied)
    if (v := config.sub("vision_config")) is not None:
        v.fall_back(VISION)
        v.ignore("vocab_offset", "do_pooling", "num_classes", "model_args", "label_names")
        name = v.text("architecture")
        if name != MOBILENET[0]:
            raise ConfigError(f"{v.where('architecture')} is {name!r}", hint=f"{MOBILENET[0]} is understood")
        count = fixed("timm 1.0.31: mobilenetv5_300m_enc", parameters=MOBILENET[1]).count(
            "parameters", symbol="N_mob", label="MobileNet parameters"
        )
        d.part("vision tower", Role.VISION, "/model.vision_tower.timm_model", count)
        _embedder(d, v, "vision", v.count("hidden_size", symbol="H_v", label="tower width"))
    if (a := config.sub("audio_config")) is not None:
        _embedder(d, a, "audio", audio_3n(d, a, "model.audio_tower."))
    return d


def _embedder(d: Decoder, c: Config, kind: str, width: Q) -> None:
    p = projector(d, f"model.embed_{kind}.", width, f"{kind} embedder ")
    rows = c.count(
        "vocab_size", symbol=f"V_{kind[0]}", label=f"{kind} vocabulary", default=Default(value=128, source="Gemma3n's configs")
    )
    p.part("embedding", "embedding", rows, width, shard=Shard.VOCAB)
    p.norm("hard norm", "hard_embedding_norm")
    p.norm("soft norm", "soft_embedding_norm")
    p.matrix("projection", "embedding_projection", d.hidden, width, shard=Shard.ROW)
