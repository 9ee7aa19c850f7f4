"""MiniMax-M3 with its vision tower: blocks as in CLIP over space-time patches, a projector, and a patch-merging MLP."""

from __future__ import annotations

from gpufit.model import Role, Shard
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import outer_tied, text_model
from gpufit.sources.patterns import class_defaults
from gpufit.sources.towers import Tower, channels_of, depth_of, inner_of, patch_of, projector, width_of

ARCHITECTURES = ("MiniMaxM3SparseForConditionalGeneration",)
INERT = frozenset(
    {"image_grid_pinpoints", "image_seq_length", "vision_feature_layer", "num_reward_heads", "vision_segment_max_frames"}
)
DEFAULTS = class_defaults(
    "MiniMaxM3VLVisionConfig (transformers 5.24.0)",
    hidden_size=1280,
    intermediate_size=5120,
    num_hidden_layers=32,
    num_channels=3,
    patch_size=14,
    temporal_patch_size=2,
    spatial_merge_size=2,
)


def read(config: Config) -> Decoder:
    """The projector works on single patches, the merging MLP on `spatial_merge_size` squared of them (transformers 5.24.0)."""
    config.fall_back(class_defaults("MiniMaxM3VLConfig (transformers 5.24.0)", projector_hidden_size=6144))
    tied = outer_tied(config, False)
    d = text_model(config, inside="language_model.", model_type="minimax_m3_vl_text", tied=tied)
    v = config.sub("vision_config")
    if v is None:
        raise config.missing("vision_config")
    v.fall_back(DEFAULTS)
    v.ignore("num_attention_heads", "image_size", "projection_dim", "vocab_size", "position_embedding_type", "rope_mode")
    config.ignore(
        "img_token_compression_config", "multimodal_projector_bias", "vision_feature_select_strategy", "process_image_mode"
    )
    merging = v.sub("img_token_compression_config") or v
    if merging is not v:
        merging.fall_back(DEFAULTS)
        merging.ignore("image_token_compression_method")
    frames = merging.count("temporal_patch_size", symbol="t_v", label="frames of a patch")
    merge = merging.integer("spatial_merge_size")
    patch = patch_of(v)
    t = Tower(
        decoder=d,
        role=Role.VISION,
        prefix="vision_tower.vision_model.",
        width=width_of(v, "hidden_size"),
        depth=depth_of(v, "num_hidden_layers"),
        block="encoder.layers.{e}.",
    )
    t.patches("embeddings.patch_embedding", channels_of(v) * frames * patch * patch, bias=False)
    t.norm("norm before blocks", "pre_layrnorm", bias=True)
    t.norms("layer_norm1", "layer_norm2", bias=True)
    t.attention()
    t.mlp(inner_of(v, "intermediate_size"))
    width = config.count("projector_hidden_size", symbol="p", label="projector width")
    p = projector(d, "", t.width)
    p.matrix("projection 1", "multi_modal_projector.linear_1", width, t.width, bias=True, shard=Shard.COLUMN)
    p.matrix("projection 2", "multi_modal_projector.linear_2", d.hidden, width, bias=True, shard=Shard.ROW)
    p.matrix("merging 1", "patch_merge_mlp.linear_1", width, merge * merge * d.hidden, bias=True, shard=Shard.COLUMN)
    p.matrix("merging 2", "patch_merge_mlp.linear_2", d.hidden, width, bias=True, shard=Shard.ROW)
    return d
