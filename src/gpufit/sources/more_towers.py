"""Vision towers of single families: InternViT, OpenCLIP's bigG, ConvNeXt, and the resamplers that follow some of them."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role, Shard
from gpufit.quantity import Q
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import fixed
from gpufit.sources.patterns import class_defaults
from gpufit.sources.towers import Tower, channels_of, depth_of, image_of, inner_of, patch_of, width_of

INTERN = class_defaults(
    "InternVisionConfig of the published repositories", hidden_size=3200, intermediate_size=12800, num_hidden_layers=48, image_size=224,
    patch_size=14,
)  # fmt: skip


def intern_vit(d: Decoder, v: Config, prefix: str, *, image: Q | None = None) -> Tower:
    """InternViT: class token, learned positions, layer scales, and in the 6B model norms on queries and keys without biases."""
    if v.flag("use_moe"):
        raise ConfigError(
            f"{v.where('use_moe')} is true: a vision tower with experts", hint="dense InternViT towers are understood"
        )
    v.ignore("num_attention_heads", "norm_type", "num_channels", *(n for n in v.data if "expert" in n or "moe" in n))
    v.fall_back(INTERN)
    width, patch = width_of(v, "hidden_size"), patch_of(v)
    edge = (image if image is not None else image_of(v)) // patch
    v.ignore("image_size")
    t = Tower(
        decoder=d, role=Role.VISION, prefix=prefix, width=width, depth=depth_of(v, "num_hidden_layers"), block="encoder.layers.{e}."
    )
    t.part("class token", "embeddings.class_embedding", width)
    t.patches("embeddings.patch_embedding", channels_of(v) * patch * patch, bias=True)
    t.part("positions", "embeddings.position_embedding", edge * edge + 1, width)
    t.norms("norm1", "norm2", bias=v.text("norm_type") != "rms_norm")
    t.norms("ls1", "ls2", bias=False)
    t.qkv(bias=v.flag("qkv_bias", default=False), out_bias=True)
    if v.flag("qk_normalization", default=True):
        t.norms("attn.q_norm", "attn.k_norm", bias=False)
    t.mlp(inner_of(v, "intermediate_size"))
    return t


def resampler(d: Decoder, prefix: str, queries: Q, width: Q, keys: Q, *, positions: bool, norms: tuple[str, ...] = ("ln_q", "ln_kv"),
              outer: tuple[str, ...] = ("ln_post",), outer_prefix: str | None = None) -> None:  # fmt: skip
    """One cross attention from learned queries to the tower's tokens (Qwen-VL, MiniCPM-V).

    `keys` is the tower's width; `positions` where the sinusoidal table is published as a parameter. `outer` and the last projection may
    stand beside the resampler (`outer_prefix`).
    """
    t = Tower(decoder=d, role=Role.PROJECTOR, prefix=prefix, width=width, depth=width, label="resampler ")
    t.part("queries", "query", queries, width)
    if positions:
        t.part("positions", "pos_embed", queries, width)
    if int(keys) != int(width):
        t.matrix("input", "kv_proj", width, keys)
    t.part("attention in", "attn.in_proj_weight", 3 * width, width)
    t.part("attention in bias", "attn.in_proj_bias", 3 * width)
    t.matrix("attention out", "attn.out_proj", width, width, bias=True)
    for name in norms:
        t.norm(name, name, bias=True)
    o = Tower(
        decoder=d,
        role=Role.PROJECTOR,
        prefix=prefix if outer_prefix is None else outer_prefix,
        width=width,
        depth=width,
        label="resampler ",
    )
    for name in outer:
        o.norm(name, name, bias=True)
    o.part("projection", "proj", width, width)


def qwen_vl(d: Decoder, v: Config, prefix: str) -> Tower:
    """The OpenCLIP bigG tower of Qwen-VL (256 positions, stretched to the image) and its resampler of 256 queries."""
    v.ignore("heads", "image_size", "image_start_id")
    width, patch = width_of(v, "width"), patch_of(v)
    ratio = v.raw("mlp_ratio")
    inner = v.item(int(int(width) * float(4 if ratio is None else ratio)), "mlp_ratio", symbol="I_v", label="tower MLP width")
    queries = fixed("Qwen-VL's published code", n_queries=256).count("n_queries", symbol="n_query", label="resampler queries")
    t = Tower(
        decoder=d, role=Role.VISION, prefix=prefix, width=width, depth=depth_of(v, "layers"), block="transformer.resblocks.{e}."
    )
    t.patches("conv1", 3 * patch * patch, bias=False)
    t.part("positions", "positional_embedding", queries, width)
    t.norm("norm before blocks", "ln_pre", bias=True)
    t.norms("ln_1", "ln_2", bias=True)
    t.qkv("attn.in_proj", "attn.out_proj")
    t.mlp(inner, names=("c_fc", "c_proj"))
    out = v.count("output_dim", symbol="H_vo", label="tower output width")
    resampler(d, f"{prefix}attn_pool.", queries, out, width, positions=True, outer_prefix=prefix)
    return t


def convnext(d: Decoder, prefix: str, stages: tuple[tuple[Q, Q], ...], head: Q) -> Tower:
    """A ConvNeXt trunk: `stages` of (width, blocks), 7 x 7 depthwise convolutions, layer scales, and a last norm and projection."""
    first = stages[0][0]
    t = Tower(decoder=d, role=Role.VISION, prefix=prefix, width=first, depth=stages[0][1], label="convnext ", split=False)
    t.part("stem", "stem.0", 48 * first)
    t.part("stem bias", "stem.0.bias", first)
    t.norm("stem norm", "stem.1", bias=True)
    before = None
    for i, (width, blocks) in enumerate(stages):
        s = Tower(
            decoder=d, role=Role.VISION, prefix=f"{prefix}stages.{i}.", width=width, depth=blocks, block="blocks.{e}.",
            label=f"convnext {i} ", split=False,
        )  # fmt: skip
        if before is not None:
            s.norm("downsampling norm", "downsample.0", before, bias=True)
            s.part("downsampling", "downsample.1", width, 4 * before)
            s.part("downsampling bias", "downsample.1.bias", width)
        s.part("depthwise", "conv_dw", 49 * width, each=True)
        s.part("depthwise bias", "conv_dw.bias", width, each=True)
        s.norms("norm", bias=True)
        s.mlp(4 * width)
        s.norms("gamma", bias=False)
        before = width
    last = stages[-1][0]
    t.norm("head norm", "head.norm", last, bias=True)
    t.matrix("head", "head.fc", head, last, bias=True, shard=Shard.REPLICATED)
    return t


def eva_clip(d: Decoder, v: Config, prefix: str, inner: Q) -> Tower:
    """The EVA2-CLIP tower of GLM-4V-9B and CogVLM2: norms after attention and MLP, a strided convolution, a gated projection.

    `inner` is the width of the projection, that of the text model's MLP.
    """
    v.ignore("num_heads", "image_size", "scaling_factor", "num_attention_heads")
    width, patch = width_of(v, "hidden_size"), patch_of(v)
    t = Tower(
        decoder=d,
        role=Role.VISION,
        prefix=prefix,
        width=width,
        depth=depth_of(v, "num_hidden_layers"),
        block="transformer.layers.{e}.",
    )
    t.part("class token", "patch_embedding.cls_embedding", width)
    t.part(
        "positions", "patch_embedding.position_embedding", v.count("num_positions", symbol="n_pv", label="tower positions"), width
    )
    t.patches("patch_embedding.proj", channels_of(v) * patch * patch, bias=True)
    t.norms("input_layernorm", "post_attention_layernorm", bias=True)
    t.qkv("attention.query_key_value", "attention.dense")
    t.mlp(inner_of(v, "intermediate_size"))
    p = Tower(decoder=d, role=Role.PROJECTOR, prefix=prefix, width=d.hidden, depth=d.hidden, label="projector ")
    p.part("downsampling", "conv", d.hidden, 4 * width)
    p.part("downsampling bias", "conv.bias", d.hidden)
    for name in ("boi", "eoi"):
        p.norm(name, name)
    p.matrix("linear", "linear_proj.linear_proj", d.hidden, d.hidden)
    p.norm("norm", "linear_proj.norm1", bias=True)
    for name in ("dense_h_to_4h", "gate_proj"):
        p.matrix(name, f"linear_proj.{name}", inner, d.hidden, shard=Shard.COLUMN)
    p.matrix("dense_4h_to_h", "linear_proj.dense_4h_to_h", d.hidden, inner, shard=Shard.ROW)
    return t
