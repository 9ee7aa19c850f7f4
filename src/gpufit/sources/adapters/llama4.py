"""Llama 4: its text model with a vision tower, a pixel-shuffling adapter and one projection."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role, Shard
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import outer_tied, text_model
from gpufit.sources.patterns import class_defaults, known
from gpufit.sources.towers import Tower, channels_of, depth_of, image_of, inner_of, patch_of, projector, width_of

ARCHITECTURES = ("Llama4ForConditionalGeneration",)
INERT = frozenset({"_attn_implementation_autoset", "for_llm_compressor", "image_processor_config", "vision_feature_layer"})
DEFAULTS = class_defaults(
    "Llama4VisionConfig (transformers 5.24.0)",
    hidden_size=768,
    num_hidden_layers=34,
    num_attention_heads=16,
    num_channels=3,
    intermediate_size=5632,
    vision_output_dim=7680,
    image_size=448,
    patch_size=14,
    projector_input_dim=4096,
    projector_output_dim=4096,
)


def read(config: Config) -> Decoder:
    """Some published files repeat the text fields beside `text_config`; they are passed by where they say the same."""
    text = config.sub("text_config")
    if text is None:
        raise config.missing("text_config")
    config.ignore(*(name for name, value in text.data.items() if name in config.data and config.data[name] == value))
    tied = outer_tied(config, False)
    d = text_model(config, inside="language_model.", model_type="llama4_text", tied=tied)
    vision = config.sub("vision_config")
    if vision is None:
        raise config.missing("vision_config")
    vision.fall_back(DEFAULTS)
    tower(d, vision)
    return d


def tower(d: Decoder, v: Config) -> None:
    """The tower, its adapter and the projection into the text model's width (modeling_llama4.py, transformers 5.24.0)."""
    v.ignore("num_attention_heads", "vision_feature_select_strategy", "projector_dropout")
    patch, image = patch_of(v), image_of(v)
    t = Tower(
        decoder=d,
        role=Role.VISION,
        prefix="vision_model.",
        width=width_of(v, "hidden_size"),
        depth=depth_of(v, "num_hidden_layers"),
        block="model.layers.{e}.",
    )
    t.part("patch embedding", "patch_embedding.linear", t.width, channels_of(v) * patch * patch, shard=Shard.COLUMN)
    one = known(1, symbol="one", label="class token", source="modeling_llama4.py (transformers 5.24.0)")
    t.part("class embedding", "class_embedding", t.width)
    side = image // patch
    t.part("positions", "positional_embedding_vlm", side * side + one, t.width)
    for name in ("layernorm_pre", "layernorm_post"):
        t.norm(name, name, bias=True)
    t.norms("input_layernorm", "post_attention_layernorm", bias=True)
    t.attention("self_attn", ("q_proj", "k_proj", "v_proj", "o_proj"))
    t.mlp(inner_of(v, "intermediate_size"))
    adapter = projector(d, "vision_model.vision_adapter.mlp.", t.width, label="adapter ")
    ratio = v.raw("pixel_shuffle_ratio") or 0.5
    if not isinstance(ratio, int | float):
        raise ConfigError(f"{v.where('pixel_shuffle_ratio')} is {ratio!r}, expected a number", hint="check the config.json")
    merged = round(1 / float(ratio))
    if abs(merged * float(ratio) - 1) > 1e-9:
        raise ConfigError(
            f"{v.where('pixel_shuffle_ratio')} is {ratio!r}, expected one over a whole number", hint="check the config.json"
        )
    middle = v.count("projector_input_dim", symbol="p_i", label="adapter width")
    out = v.count("projector_output_dim", symbol="p_o", label="adapter output width")
    adapter.matrix("fc1", "fc1", middle, merged * merged * t.width, shard=Shard.COLUMN)
    adapter.matrix("fc2", "fc2", out, out, shard=Shard.ROW)
    p = projector(d, "multi_modal_projector.", t.width)
    bias = v.flag("multi_modal_projector_bias")
    p.matrix(
        "linear 1",
        "linear_1",
        d.hidden,
        v.count("vision_output_dim", symbol="v_o", label="vision output width"),
        bias=bias,
        shard=Shard.COLUMN,
    )
