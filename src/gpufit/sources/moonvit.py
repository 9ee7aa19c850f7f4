"""The MoonViT towers of the Kimi models, and the projector that merges their patches."""

from __future__ import annotations

from math import prod

from gpufit.errors import ConfigError
from gpufit.model import Role, Shard
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.patterns import class_defaults, known
from gpufit.sources.towers import Tower, depth_of, inner_of, patch_of, projector, width_of

DEFAULTS = class_defaults(
    "Kimi_K25VisionConfig (transformers 5.24.0)",
    patch_size=14,
    init_pos_emb_height=64,
    init_pos_emb_width=64,
    num_attention_heads=16,
    num_hidden_layers=27,
    hidden_size=1152,
    intermediate_size=4304,
)


def moonvit(d: Decoder, v: Config, prefix: str = "vision_tower.") -> Tower:
    """A tower with learned positions that are interpolated, fused attention projections, biases and LayerNorms.

    Kimi-VL names its fields as usual, Kimi-K2.5 with vt_ before them. Module paths are the published ones; splitting is vLLM 0.33.0's
    (kimi_k25_vit.py, moonvit.py).
    """
    v.fall_back(DEFAULTS)
    v.ignore(
        "vt_num_attention_heads", "num_attention_heads", "pos_emb_type", "init_pos_emb_time", "pos_emb_time", "video_attn_type"
    )
    v.ignore("merge_type", "text_hidden_size", "max_position_embeddings")
    tower = Tower(
        decoder=d,
        role=Role.VISION,
        prefix=prefix,
        width=width_of(v, "vt_hidden_size", "hidden_size"),
        depth=depth_of(v, "vt_num_hidden_layers", "num_hidden_layers"),
        block="encoder.blocks.{e}.",
    )
    patch = patch_of(v)
    three = known(3, symbol="c_v", label="image channels", source="modeling_kimi_k25.py (transformers 5.24.0)")
    tower.patches("patch_embed.proj", three * patch * patch, bias=True)
    high = v.count("init_pos_emb_height", "pos_emb_height", symbol="p_h", label="rows of positions")
    wide = v.count("init_pos_emb_width", "pos_emb_width", symbol="p_w", label="columns of positions")
    tower.part("positions", "patch_embed.pos_emb", high * wide, tower.width)
    tower.norms("norm0", "norm1", bias=True)
    tower.qkv("wqkv", "wo")
    tower.mlp(inner_of(v, "vt_intermediate_size", "intermediate_size"), names=("fc0", "fc1"))
    tower.norm("last norm", "encoder.final_layernorm", bias=True)
    return tower


def merging_projector(d: Decoder, v: Config, prefix: str, names: tuple[str, str]) -> None:
    """A norm of the tower's width, and two matrices over merged patches, whole on every rank."""
    merge = v.raw("merge_kernel_size") or [2, 2]
    if not isinstance(merge, list | tuple) or not all(isinstance(m, int) for m in merge):
        raise ConfigError(f"{v.where('merge_kernel_size')} is {merge!r}, expected two whole numbers", hint="check the config.json")
    kind = v.text("mm_projector_type")
    if kind not in (None, "patchmerger"):
        raise ConfigError(f"{v.where('mm_projector_type')} is {kind!r}, expected patchmerger", hint="a newer gpufit may know it")
    width = v.count("mm_hidden_size", "vt_hidden_size", "hidden_size", symbol="H_m", label="projector width")
    inner = width * prod(merge)
    p = projector(d, prefix, width)
    p.norm("norm before projection", "pre_norm", bias=True)
    p.matrix("matrix 1", names[0], inner, inner, bias=True, shard=Shard.REPLICATED)
    p.matrix("matrix 2", names[1], d.hidden, inner, bias=True, shard=Shard.REPLICATED)
