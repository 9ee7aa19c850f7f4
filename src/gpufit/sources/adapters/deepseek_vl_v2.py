"""DeepSeek-VL2: a SigLIP tower with its pooling, a projection of four patches, and a DeepSeek-V2 mixture."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role
from gpufit.quantity import Q
from gpufit.sources.adapters import deepseek_ocr
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import text_model
from gpufit.sources.patterns import class_defaults
from gpufit.sources.towers import Tower, channels_of, depth_of, image_of, patch_of, projector, width_of

ARCHITECTURES = ("DeepseekVLV2ForCausalLM",)
VISION = class_defaults(
    "VisionEncoderConfig of the published repositories", layers=24, width=1024, patch_size=16, image_size=384, mlp_ratio=4
)
PROJECTOR = class_defaults(
    "MlpProjectorConfig of the published repositories", input_dim=1152, n_embed=2048, depth=2, mlp_ratio=1, downsample_ratio=2
)


def read(config: Config) -> Decoder:
    """The text model decides about its head by its own config. DeepSeek-OCR's files have the same model type."""
    if any("DeepseekOCR" in str(name) for name in config.items("architectures") or []):
        return deepseek_ocr.read(config)
    config.ignore("candidate_resolutions", "global_view_pos", "tie_word_embeddings")
    d = text_model(config, "language_config", inside="language.", model_type="deepseek_v2")
    v, p = config.sub("vision_config"), config.sub("projector_config")
    if v is not None:
        _tower(d, v)
    if p is not None:
        _projector(d, config, p)
    return d


def _tower(d: Decoder, v: Config) -> None:
    v.fall_back(VISION)
    v.ignore("model_name", "heads", "cls", "params", "global_pool", "ignore_head", "class_token", "num_classes")
    width, patch = width_of(v, "width"), patch_of(v)
    edge = image_of(v) // patch
    ratio = v.raw("mlp_ratio")
    inner: Q = v.item(int(int(width) * float(ratio)), "mlp_ratio", symbol="I_v", label="tower MLP width")
    t = Tower(decoder=d, role=Role.VISION, prefix="vision.", width=width, depth=depth_of(v, "layers"))
    t.patches("patch_embed.proj", channels_of(v) * patch * patch, bias=True)
    t.part("positions", "pos_embed", edge * edge, width)
    t.norms("norm1", "norm2", bias=True)
    t.qkv()
    t.mlp(inner)
    t.norm("last norm", "norm", bias=True)
    t.part("pooling latent", "attn_pool.latent", width)
    t.matrix("pooling q", "attn_pool.q", width, width, bias=True)
    t.matrix("pooling kv", "attn_pool.kv", 2 * width, width, bias=True)
    t.matrix("pooling out", "attn_pool.proj", width, width, bias=True)
    t.norm("pooling norm", "attn_pool.norm", bias=True)
    t.matrix("pooling fc1", "attn_pool.mlp.fc1", inner, width, bias=True)
    t.matrix("pooling fc2", "attn_pool.mlp.fc2", width, inner, bias=True)


def _projector(d: Decoder, config: Config, p: Config) -> None:
    p.fall_back(PROJECTOR)
    kind = p.text("projector_type") or "downsample_mlp_gelu"
    out = p.count("n_embed", symbol="H_p", label="projector width")
    inputs = p.count("input_dim", symbol="H_pi", label="projector input width")
    t = projector(d, "projector.layers.", inputs)
    p.ignore("token_pooling")
    if kind == "linear":
        p.ignore("depth", "mlp_ratio", "downsample_ratio")
        t.matrix("linear", "", out, inputs, bias=True)
    elif kind == "downsample_mlp_gelu":
        side = p.count("downsample_ratio", symbol="s_v", label="patches joined per axis")
        inner = p.count("mlp_ratio", symbol="r_p", label="projector MLP ratio") * out
        depth = p.integer("depth")
        t.matrix("in", "0", inner, side * side * inputs, bias=True)
        for i in range(1, depth - 1):
            t.matrix(f"middle {i}", str(2 * i), inner, inner, bias=True)
        t.matrix("out", str(2 * depth - 2), out, inner, bias=True)
    else:
        raise ConfigError(f"{p.where('projector_type')} is {kind!r}", hint="linear and downsample_mlp_gelu are understood")
    tag = config.text("tile_tag") or "2D"
    if tag != "2D":
        raise ConfigError(f"{config.where('tile_tag')} is {tag!r}", hint="2D, that of the published models, is understood")
    for name in ("image_newline", "view_seperator"):
        d.part(name.replace("_", " "), Role.PROJECTOR, f"/{name}", out)
