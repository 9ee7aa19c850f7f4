"""LLaVA and its relatives: a CLIP, SigLIP or Pixtral tower and a two-layer projection before the text model."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role, Shard
from gpufit.sources.adapters import llava_llama
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import outer_tied, text_model
from gpufit.sources.towers import Tower, blocks_used, clip, feature_layers, pixtral, projector, siglip

MODEL_TYPES = ("llava", "llava_next", "llava_next_video", "llava_onevision", "vipllava", "video_llava")
ARCHITECTURES = (
    "LlavaForConditionalGeneration", "LlavaNextForConditionalGeneration", "LlavaNextVideoForConditionalGeneration",
    "LlavaOnevisionForConditionalGeneration", "VipLlavaForConditionalGeneration",
)  # fmt: skip
INERT = frozenset({"use_image_newline_parameter"}) | llava_llama.INERT


def vision_tower(d: Decoder, v: Config, prefix: str) -> Tower:
    """The tower that the nested config names. A LLaVA uses a CLIP tower's last norm as little as its projection, but files hold it."""
    kind = v.text("model_type") or "clip_vision_model"
    if kind == "pixtral":
        return pixtral(d, v, prefix)
    if kind in ("clip_vision_model", "clip"):
        return clip(d, v, prefix + "vision_model.")
    if kind in ("siglip_vision_model", "siglip", "siglip2_vision_model"):
        return siglip(d, v, prefix + "vision_model.")
    raise ConfigError(
        f"{v.where('model_type')} is {kind!r}, a vision tower that is not known", hint="clip, siglip and pixtral towers are"
    )


def read(config: Config) -> Decoder:
    """Unties by default. The image newline of the later ones is one vector of the text width."""
    config.ignore(
        "vocab_size",
        "image_seq_length",
        "hidden_size",
        "image_grid_pinpoints",
        "video_seq_length",
        "spatial_pool_mode",
        "spatial_pool_stride",
    )
    kind = config.text("model_type") or ""
    if kind == "llava" and config.has("mm_vision_tower"):
        return llava_llama.read(config)
    if kind == "vipllava":
        config.fall_back(
            {"vision_feature_layers": Default(value=[-2, -5, -8, -11, 6], source="VipLlavaConfig (transformers 5.24.0)")}
        )
        config.ignore("projector_layernorm_eps")
    if kind == "video_llava":
        raise ConfigError(
            f"model_type {kind!r} is not read yet: its projector differs from LLaVA's",
            hint="llava, llava_next and llava_onevision are",
        )
    tied = outer_tied(config, Default(value=False, source="LlavaConfig (transformers 5.24.0)"))
    d = text_model(config, inside="language_model.", model_type="llama", tied=tied)
    v = config.sub("vision_config")
    if v is not None:
        tower = vision_tower(d, v, "vision_tower.")
        if (used := blocks_used(config, tower.depth, -1 if kind == "llava_onevision" else -2)) is not None:
            d.extras["tower_blocks"] = used
        bias = config.flag("multimodal_projector_bias", default=True)
        p = projector(d, "multi_modal_projector.", tower.width)
        joined = feature_layers(config, tower.width)
        if kind == "vipllava":
            p.norm("norm", "projector_layernorm", joined, bias=True)
        p.split = kind != "llava_onevision"  # vLLM 0.33.0 keeps that projection whole (llava_onevision.py)
        p.matrix("in", "linear_1", d.hidden, joined, bias=bias, shard=Shard.COLUMN)
        p.matrix("out", "linear_2", d.hidden, d.hidden, bias=bias, shard=Shard.ROW)
        if kind not in ("llava", "vipllava"):
            d.part("image newline", Role.PROJECTOR, "/image_newline", d.hidden)
    return d
