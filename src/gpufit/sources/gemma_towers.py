"""Vision and audio towers of Gemma 3n and Gemma 4. vLLM runs them as transformers builds them: whole on every rank."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role
from gpufit.quantity import Q
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.patterns import class_defaults
from gpufit.sources.towers import Tower, depth_of, inner_of, patch_of, width_of

VISION = class_defaults(
    "Gemma4VisionConfig (transformers 5.24.0)", hidden_size=768, intermediate_size=3072, num_hidden_layers=16,
    num_attention_heads=12, num_key_value_heads=12, head_dim=64, patch_size=16, position_embedding_size=10240,
)  # fmt: skip
AUDIO = class_defaults(
    "Gemma4AudioConfig (transformers 5.24.0)",
    hidden_size=1024,
    num_hidden_layers=12,
    num_attention_heads=8,
    conv_kernel_size=5,
    output_proj_dims=1536,
)
ATTENTION = ("q_proj.linear", "k_proj.linear", "v_proj.linear", "o_proj.linear")
AUDIO_INERT = (
    "attention_chunk_size",
    "attention_context_left",
    "attention_context_right",
    "attention_logit_cap",
    "attention_invalid_logits_value",
)


def vision(d: Decoder, v: Config, prefix: str) -> Tower:
    """Gemma 4's vision tower: a table of positions for two axes, norms on queries and keys, four norms a block."""
    v.ignore("global_head_dim", "pooling_kernel_size", "max_position_embeddings", "default_output_length", "use_clipped_linears")
    v.fall_back(VISION)
    width, patch = width_of(v, "hidden_size"), patch_of(v)
    heads = v.count("num_attention_heads", symbol="n_v", label="tower heads")
    kv = v.count("num_key_value_heads", symbol="n_kvv", label="tower KV heads")
    dim = v.count("head_dim", symbol="d_v", label="tower head dimension")
    bias = v.flag("attention_bias")
    t = Tower(
        decoder=d,
        role=Role.VISION,
        prefix=prefix,
        width=width,
        depth=depth_of(v, "num_hidden_layers"),
        block="encoder.layers.{e}.",
        split=False,
    )
    positions = v.count("position_embedding_size", symbol="n_pv", label="tower positions")
    t.part("positions", "patch_embedder.position_embedding_table", 2 * positions, width)
    t.matrix("patch embedding", "patch_embedder.input_proj", width, 3 * patch * patch)
    for name, word, rows in (("q", ATTENTION[0], heads * dim), ("k", ATTENTION[1], kv * dim), ("v", ATTENTION[2], kv * dim)):
        t.matrix(name, f"self_attn.{word}", rows, width, bias=bias, each=True)
    t.matrix("attention output", f"self_attn.{ATTENTION[3]}", width, heads * dim, bias=bias, each=True)
    t.norm("q norm", "self_attn.q_norm", dim, each=True)
    t.norm("k norm", "self_attn.k_norm", dim, each=True)
    t.mlp(inner_of(v, "intermediate_size"), "mlp", ("gate_proj.linear", "up_proj.linear", "down_proj.linear"), bias=False)
    t.norms("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm", bias=False)
    if v.flag("standardize"):
        for word in ("std_bias", "std_scale"):
            d.part(f"vision {word}", Role.VISION, f"/{prefix}{word}", width, buffer=True)
    return t


def audio(d: Decoder, a: Config, prefix: str) -> tuple[Tower, Q]:
    """Gemma 4's audio tower (a conformer behind two strided convolutions) and the width that it gives out."""
    a.ignore(*AUDIO_INERT, "use_clipped_linears", "residual_weight")
    a.fall_back(AUDIO)
    width = width_of(a, "hidden_size", letter="a")
    heads = a.count("num_attention_heads", symbol="n_a", label="audio heads")
    t = Tower(
        decoder=d, role=Role.AUDIO, prefix=prefix, width=width, depth=depth_of(a, "num_hidden_layers", letter="a"),
        block="layers.{e}.", split=False, label="audio ",
    )  # fmt: skip
    channels = a.items("subsampling_conv_channels") or [128, 32]
    if len(channels) != 2:
        raise ConfigError(
            f"{a.where('subsampling_conv_channels')} is {channels!r}, expected two numbers", hint="check the config.json"
        )
    one, two = (a.item(c, "subsampling_conv_channels", symbol=f"c_a{i}", label="audio channels") for i, c in enumerate(channels))
    t.part("subsampling 0", "subsample_conv_projection.layer0.conv", 9 * one)
    t.norm("subsampling norm 0", "subsample_conv_projection.layer0.norm", one)
    t.part("subsampling 1", "subsample_conv_projection.layer1.conv", two, 9 * one)
    t.norm("subsampling norm 1", "subsample_conv_projection.layer1.norm", two)
    t.matrix("subsampling output", "subsample_conv_projection.input_proj_linear", width, one // 4 * two)
    for half in ("feed_forward1", "feed_forward2"):
        t.matrix(f"{half} up", f"{half}.ffw_layer_1.linear", 4 * width, width, each=True)
        t.matrix(f"{half} down", f"{half}.ffw_layer_2.linear", width, 4 * width, each=True)
        t.norms(f"{half}.pre_layer_norm", f"{half}.post_layer_norm", bias=False)
    t.norm("query scale", "self_attn.per_dim_scale", width // heads, each=True)
    t.attention("self_attn", ("q_proj.linear", "k_proj.linear", "v_proj.linear", "post.linear"), bias=False)
    t.matrix("relative keys", "self_attn.relative_k_proj", width, width, each=True)
    t.matrix("convolution in", "lconv1d.linear_start.linear", 2 * width, width, each=True)
    t.matrix("convolution out", "lconv1d.linear_end.linear", width, width, each=True)
    t.part(
        "convolution",
        "lconv1d.depthwise_conv1d",
        width,
        a.count("conv_kernel_size", symbol="c_ak", label="audio kernel"),
        each=True,
    )
    t.norms("lconv1d.pre_layer_norm", "lconv1d.conv_norm", "norm_pre_attn", "norm_post_attn", "norm_out", bias=False)
    out = a.count("output_proj_dims", symbol="H_ao", label="audio output width")
    t.matrix("output", "output_proj", out, width, bias=True)
    return t, out


AUDIO_3N = class_defaults(
    "Gemma3nAudioConfig (transformers 5.24.0)", hidden_size=1536, conf_num_hidden_layers=12, conf_num_attention_heads=8,
    conf_conv_kernel_size=5, input_feat_size=128,
)  # fmt: skip
AUDIO_3N_INERT = (
    "conf_attention_chunk_size", "conf_attention_context_left", "conf_attention_context_right", "conf_attention_logit_cap",
    "conf_reduction_factor", "conf_residual_weight", "sscp_conv_group_norm_eps", "sscp_conv_eps", "vocab_offset", "gradient_clipping",
)  # fmt: skip


def audio_3n(d: Decoder, a: Config, prefix: str) -> Q:
    """Gemma 3n's audio tower, a conformer behind two strided convolutions; gives its width."""
    a.ignore(*AUDIO_3N_INERT)
    a.fall_back(AUDIO_3N)
    width = width_of(a, "hidden_size", letter="a")
    heads = a.count("conf_num_attention_heads", symbol="n_a", label="audio heads")
    depth = depth_of(a, "conf_num_hidden_layers", letter="a")
    t = Tower(
        decoder=d, role=Role.AUDIO, prefix=prefix, width=width, depth=depth, block="conformer.{e}.", split=False, label="audio "
    )
    channels = a.items("sscp_conv_channel_size") or [128, 32]
    kernels = a.items("sscp_conv_kernel_size") or [[3, 3], [3, 3]]
    strides = a.items("sscp_conv_stride_size") or [[2, 2], [2, 2]]
    before, bands = None, int(a.count("input_feat_size", symbol="n_mel", label="mel bins"))
    for i, (c, (h, w), stride) in enumerate(zip(channels, kernels, strides, strict=True)):
        out = a.item(c, "sscp_conv_channel_size", symbol=f"c_a{i}", label="audio channels")
        points = a.item(h * w, "sscp_conv_kernel_size", symbol=f"k_a{i}", label="points of the audio kernel")
        t.part(
            f"subsampling {i}",
            f"subsample_conv_projection.conv_{i}.conv",
            points * out if before is None else points * before * out,
        )
        t.norm(f"subsampling norm {i}", f"subsample_conv_projection.conv_{i}.norm", out)
        before, bands = out, (bands + 2 - w) // stride[1] + 1
    left = a.item(bands, "sscp_conv_stride_size", symbol="b_a", label="bands after subsampling")
    t.matrix("subsampling output", "subsample_conv_projection.input_proj_linear", width, left * (before or width))
    for half in ("ffw_layer_start", "ffw_layer_end"):
        t.matrix(f"{half} up", f"{half}.ffw_layer_1", 4 * width, width, each=True)
        t.matrix(f"{half} down", f"{half}.ffw_layer_2", width, 4 * width, each=True)
        t.norms(f"{half}.pre_layer_norm", f"{half}.post_layer_norm", bias=False)
    t.norm("query scale", "attention.attn.per_dim_scale", width // heads, each=True)
    for name in ("attn.q_proj", "attn.k_proj", "attn.v_proj", "post", "attn.relative_position_embedding.pos_proj"):
        t.matrix(name, f"attention.{name}", width, width, each=True)
    t.matrix("convolution in", "lconv1d.linear_start", 2 * width, width, each=True)
    t.matrix("convolution out", "lconv1d.linear_end", width, width, each=True)
    t.part(
        "convolution",
        "lconv1d.depthwise_conv1d",
        width,
        a.count("conf_conv_kernel_size", symbol="c_ak", label="audio kernel"),
        each=True,
    )
    t.norms("attention.pre_attn_norm", "attention.post_norm", "lconv1d.pre_layer_norm", "lconv1d.conv_norm", "norm", bias=False)
    return width
