"""Gemma 4 without towers: patches and audio frames go through one projection into the text model."""

from __future__ import annotations

from gpufit.model import Shard
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import VERSION, outer_tied, text_model
from gpufit.sources.patterns import class_defaults
from gpufit.sources.towers import projector

ARCHITECTURES = ("Gemma4UnifiedForConditionalGeneration",)
VISION = class_defaults(
    f"Gemma4UnifiedVisionConfig ({VERSION})", patch_size=16, pooling_kernel_size=3, mm_embed_dim=3840, mm_posemb_size=1120
)
AUDIO = class_defaults(f"Gemma4UnifiedAudioConfig ({VERSION})", audio_embed_dim=640)


def read(config: Config) -> Decoder:
    """The text model of `gemma4_unified_text`, the patch embedder with three LayerNorms, and the audio projection."""
    tied = outer_tied(config, Default(value=True, source=f"Gemma4UnifiedConfig ({VERSION})"))
    d = text_model(config, prefix="model.language_model.", model_type="gemma4_unified_text", tied=tied)
    if (v := config.sub("vision_config")) is not None:
        v.fall_back(VISION)
        v.ignore("output_proj_dims", "model_patch_size", "num_soft_tokens")
        edge = v.count("patch_size", symbol="P_v", label="patch edge") * v.count(
            "pooling_kernel_size", symbol="p_v", label="patches merged per axis"
        )
        width = v.count("mm_embed_dim", symbol="H_v", label="image embedding width")
        inputs = 3 * edge * edge
        p = projector(d, "model.embed_vision.", width, "image ")
        p.part("positions", "pos_embedding", 2 * v.count("mm_posemb_size", symbol="n_pv", label="positions per axis"), width)
        p.norm("patch norm 1", "patch_ln1", inputs, bias=True)
        p.matrix("patch projection", "patch_dense", width, inputs, bias=True, shard=Shard.COLUMN)
        p.norm("patch norm 2", "patch_ln2", bias=True)
        p.norm("position norm", "pos_norm", bias=True)
        p.matrix("projection", "multimodal_embedder.embedding_projection", d.hidden, width)
    if (a := config.sub("audio_config")) is not None:
        a.fall_back(AUDIO)
        a.ignore("hidden_size", "output_proj_dims", "audio_samples_per_token")
        frame = a.count("audio_embed_dim", symbol="H_a", label="audio frame width")
        projector(d, "model.embed_audio.", frame).matrix("audio projection", "embedding_projection", d.hidden, frame)
    return d
