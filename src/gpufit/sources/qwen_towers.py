"""Vision towers of the Qwen families and of GLM-4V, which take images and video as patches over two frames."""

from __future__ import annotations

from gpufit.model import Role, Shard
from gpufit.quantity import Q
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.patterns import class_defaults
from gpufit.sources.towers import Tower, channels_of, depth_of, inner_of, patch_of, projector, width_of

QWEN2 = class_defaults(
    "Qwen2VLVisionConfig (transformers 5.24.0)", depth=32, embed_dim=1280, hidden_size=3584, mlp_ratio=4, patch_size=14,
    spatial_merge_size=2, temporal_patch_size=2,
)  # fmt: skip
QWEN2_5 = class_defaults(
    "Qwen2_5_VLVisionConfig (transformers 5.24.0)", depth=32, hidden_size=3584, intermediate_size=3420, patch_size=14,
    spatial_merge_size=2, temporal_patch_size=2, out_hidden_size=3584,
)  # fmt: skip
QWEN3 = class_defaults(
    "Qwen3VLVisionConfig (transformers 5.24.0)", depth=27, hidden_size=1152, intermediate_size=4304, patch_size=16,
    spatial_merge_size=2, temporal_patch_size=2, out_hidden_size=3584, num_position_embeddings=2304,
)  # fmt: skip
DEEPSTACK = Default(value=[8, 16, 24], source="Qwen3VLVisionConfig (transformers 5.24.0)")
GLM4V = class_defaults(
    "Glm4vVisionConfig (transformers 5.24.0)", depth=24, hidden_size=1536, intermediate_size=13696, patch_size=14, image_size=336,
    spatial_merge_size=2, temporal_patch_size=2, out_hidden_size=4096,
)  # fmt: skip
INERT = ("num_heads", "window_size", "fullatt_block_indexes", "tokens_per_second", "rope_parameters", "spatial_patch_size")


def _opened(d: Decoder, v: Config, prefix: str, known: dict[str, Default], width: str) -> Tower:
    v.ignore(*INERT)
    v.fall_back(known)
    return Tower(decoder=d, role=Role.VISION, prefix=prefix, width=width_of(v, width), depth=depth_of(v, "depth"))


def _points(v: Config) -> Q:
    """Values of one patch: channels, frames and its area."""
    patch = patch_of(v, "patch_size")
    frames = v.count("temporal_patch_size", symbol="t_v", label="frames of one patch")
    return channels_of(v) * frames * patch * patch


def _merged(v: Config) -> Q:
    """Patches that become one token of the text model."""
    merge = v.count("spatial_merge_size", symbol="m_v", label="patches merged per axis")
    return merge * merge


def qwen2(d: Decoder, v: Config, prefix: str) -> Tower:
    """The tower of Qwen2-VL: LayerNorms with bias, an MLP of `mlp_ratio` widths, a two-layer merger to `hidden_size`."""
    t = _opened(d, v, prefix, QWEN2, "embed_dim")
    t.patches("patch_embed.proj", _points(v), bias=False)
    t.norms("norm1", "norm2", bias=True)
    t.qkv()
    t.mlp(v.count("mlp_ratio", symbol="r_v", label="MLP ratio of the tower") * t.width)
    _merger(d, v, t, v.count("hidden_size", symbol="H_vo", label="tower output width"), norm_bias=True)
    return t


def qwen2_5(d: Decoder, v: Config, prefix: str, *, fused: bool = True) -> Tower:
    """The tower of Qwen2.5-VL: RMS norms, gated MLPs with bias, a two-layer merger to `out_hidden_size`.

    `fused` False: queries, keys and values have projections of their own (Qwen2.5-Omni).
    """
    t = _opened(d, v, prefix, QWEN2_5, "hidden_size")
    t.patches("patch_embed.proj", _points(v), bias=False)
    t.norms("norm1", "norm2", bias=False)
    if fused:
        t.qkv()
    else:
        t.attention("attn", ("q", "k", "v", "proj"))
    t.mlp(inner_of(v, "intermediate_size"), names=("gate_proj", "up_proj", "down_proj"))
    _merger(d, v, t, v.count("out_hidden_size", symbol="H_vo", label="tower output width"), norm_bias=False)
    return t


def _merger(d: Decoder, v: Config, t: Tower, out: Q, *, norm_bias: bool) -> None:
    p = projector(d, t.prefix + "merger.", t.width, "merger ")
    inner = _merged(v) * t.width
    p.norm("norm", "ln_q", bias=norm_bias)
    p.matrix("in", "mlp.0", inner, inner, bias=True, shard=Shard.COLUMN)
    p.matrix("out", "mlp.2", out, inner, bias=True, shard=Shard.ROW)


VL_MERGER = ("norm", "linear_fc1", "linear_fc2", "deepstack_merger_list")
OMNI_MERGER = ("ln_q", "mlp.0", "mlp.2", "merger_list")


def qwen3(d: Decoder, v: Config, prefix: str, *, names: tuple[str, str, str, str] = VL_MERGER) -> Tower:
    """The tower of Qwen3-VL, Qwen3-Omni and Qwen3.5: learned positions, and beside the merger one more for each deepstack layer.

    `names` are the merger's norm, its two matrices, and the list of deepstack mergers.
    """
    t = _opened(d, v, prefix, QWEN3, "hidden_size")
    t.patches("patch_embed.proj", _points(v), bias=True)
    t.part("positions", "pos_embed", v.count("num_position_embeddings", symbol="n_pv", label="tower positions"), t.width)
    t.norms("norm1", "norm2", bias=True)
    t.qkv()
    t.mlp(inner_of(v, "intermediate_size"), names=("linear_fc1", "linear_fc2"))
    out = v.count("out_hidden_size", symbol="H_vo", label="tower output width")
    inner = _merged(v) * t.width
    p = projector(d, prefix + "merger.", t.width, "merger ")
    p.norm("norm", names[0], bias=True)
    p.matrix("in", names[1], inner, inner, bias=True, shard=Shard.COLUMN)
    p.matrix("out", names[2], out, inner, bias=True, shard=Shard.ROW)
    if "deepstack_visual_indexes" not in v.data:
        v.fall_back({"deepstack_visual_indexes": DEEPSTACK})
    stacked = v.items("deepstack_visual_indexes") or []
    if stacked:
        number = v.item(len(stacked), "deepstack_visual_indexes", symbol="n_ds", label="deepstack mergers")
        s = Tower(
            decoder=d,
            role=Role.PROJECTOR,
            prefix=prefix,
            width=t.width,
            depth=number,
            block=f"{names[3]}.{{e}}.",
            label="deepstack ",
        )
        s.norm("norm", names[0], inner, bias=True, each=True)
        s.matrix("in", names[1], inner, inner, bias=True, each=True, shard=Shard.COLUMN)
        s.matrix("out", names[2], out, inner, bias=True, each=True, shard=Shard.ROW)
    return t


def glm4v(d: Decoder, v: Config, prefix: str) -> Tower:
    """The tower of GLM-4.1V: RMS norms, gated MLPs as wide as its output, a strided convolution and a gated merger behind it."""
    t = _opened(d, v, prefix, GLM4V, "hidden_size")
    width, out = t.width, v.count("out_hidden_size", symbol="H_vo", label="tower output width")
    edge = v.count("image_size", symbol="M_v", label="image edge") // patch_of(v, "patch_size")
    bias = v.flag("attention_bias")
    t.part("positions", "embeddings.position_embedding", edge * edge, width)
    t.patches("patch_embed.proj", _points(v), bias=True)
    t.norm("norm before blocks", "post_conv_layernorm")
    t.norms("norm1", "norm2", bias=False)
    t.qkv(bias=bias, out_bias=False)
    t.mlp(out, names=("gate_proj", "up_proj", "down_proj"), bias=False)
    t.norm("last norm", "post_layernorm")
    t.part("downsampling", "downsample", out, _merged(v) * width, role=Role.PROJECTOR)
    t.part("downsampling bias", "downsample.bias", out, role=Role.PROJECTOR)
    inner = inner_of(v, "intermediate_size")
    p = projector(d, prefix + "merger.", out, "merger ")
    p.matrix("projection", "proj", out, out, shard=Shard.COLUMN)
    p.norm("norm", "post_projection_norm", bias=True)
    p.matrix("gate", "gate_proj", inner, out, shard=Shard.COLUMN)
    p.matrix("up", "up_proj", inner, out, shard=Shard.COLUMN)
    p.matrix("down", "down_proj", out, inner, shard=Shard.ROW)
    return t
