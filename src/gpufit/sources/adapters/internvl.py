"""InternVL as converted for transformers, and Intern-S1: an InternViT with separate projections, and a text model of several families."""

from __future__ import annotations

from dataclasses import replace

from gpufit.model import Role
from gpufit.quantity import Q
from gpufit.sources.adapters.internvl_chat import joined_patches
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import outer_tied, text_model
from gpufit.sources.patterns import class_defaults
from gpufit.sources.towers import Tower, channels_of, depth_of, image_of, inner_of, patch_of, projector, width_of

MODEL_TYPES = ("internvl", "interns1")
ARCHITECTURES = ("InternVLForConditionalGeneration", "InternS1ForConditionalGeneration")
VISION = class_defaults(
    "InternVLVisionConfig (transformers 5.24.0)",
    hidden_size=1024,
    intermediate_size=4096,
    num_hidden_layers=24,
    image_size=448,
    patch_size=14,
)


def read(config: Config) -> Decoder:
    """Ties by default (InternVLConfig), which the published files override."""
    config.ignore("image_seq_length", "vision_feature_layer")
    tied = outer_tied(config, Default(value=True, source="InternVLConfig (transformers 5.24.0)"))
    d = text_model(config, inside="language_model.", model_type="qwen2", tied=tied)
    v = config.sub("vision_config")
    if v is not None:
        joined = joined_patches(config, _tower(d, v))
        p = projector(d, "multi_modal_projector.", joined)
        p.norm("norm", "layer_norm", bias=True)
        p.matrix("in", "linear_1", d.hidden, joined, bias=True)
        p.matrix("out", "linear_2", d.hidden, d.hidden, bias=True)
    return d


def _tower(d: Decoder, v: Config) -> Q:
    v.fall_back(VISION)
    v.ignore("num_attention_heads", "norm_type", "use_mean_pooling", "layer_scale_init_value")
    width, patch = width_of(v, "hidden_size"), patch_of(v)
    edge = image_of(v) // patch
    bias = v.flag("attention_bias")
    t = Tower(
        decoder=d,
        role=Role.VISION,
        prefix="vision_tower.",
        width=width,
        depth=depth_of(v, "num_hidden_layers"),
        block="encoder.layer.{e}.",
    )
    t.part("class token", "embeddings.cls_token", width)
    if v.flag("use_mask_token"):
        t.part("mask token", "embeddings.mask_token", width)
    if v.flag("use_absolute_position_embeddings", default=True):
        t.part("positions", "embeddings.position_embeddings", edge * edge + 1, width)
    t.patches("embeddings.patch_embeddings.projection", channels_of(v) * patch * patch, bias=True)
    t.norms("lambda_1", "lambda_2", bias=False)
    t.norms("layernorm_before", "layernorm_after", bias=v.text("norm_type") != "rms_norm")
    whole = replace(t, split=False)  # vLLM 0.33.0 splits the MLPs of this tower only (interns1_vit.py)
    whole.attention("attention", ("q_proj", "k_proj", "v_proj", "projection_layer"), bias=bias, out_bias=True)
    if v.flag("use_qk_norm"):
        t.norms("attention.q_norm", "attention.k_norm", bias=False)
    t.mlp(inner_of(v, "intermediate_size"))
    if not v.flag("use_mean_pooling", default=True):
        t.norm("last norm", "layernorm", bias=True)
    return width
