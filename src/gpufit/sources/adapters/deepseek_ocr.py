"""DeepSeek-OCR: SAM's tower and then CLIP's, whose outputs side by side are projected into a small DeepSeek mixture."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role
from gpufit.quantity import Q
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import fixed, said_again, text_model
from gpufit.sources.towers import Tower, projector

ARCHITECTURES = ("DeepseekOCRForCausalLM",)
CODE = "DeepSeek-OCR's published code (both towers are the same in all its files; vLLM 0.33.0, deepencoder.py)"
WIDTHS = {"clip-l-14-224": {"heads": 16, "image_size": 224, "layers": 24, "patch_size": 14, "width": 1024}}


def read(config: Config) -> Decoder:
    """The text model's fields stand at two levels of the file; the towers' are fixed by the code."""
    inner = config.sub("language_config")
    if inner is not None:
        said_again(config, inner)
    config.ignore("candidate_resolutions", "global_view_pos", "tie_word_embeddings")
    d = text_model(config, "language_config", model_type="deepseek_v2")
    v, p = config.sub("vision_config"), config.sub("projector_config")
    if v is None or p is None:
        raise config.missing("vision_config" if v is None else "projector_config")
    _towers(d, v)
    kind, tag = p.text("projector_type") or "linear", config.text("tile_tag") or "2D"
    if kind != "linear" or tag != "2D":
        where = p.where("projector_type") if kind != "linear" else config.where("tile_tag")
        raise ConfigError(f"{where} is {kind if kind != 'linear' else tag!r}", hint="linear and 2D, as published, are understood")
    out = p.count("n_embed", symbol="H_p", label="projector width")
    inputs = p.count("input_dim", symbol="H_pi", label="projector input width")
    projector(d, "model.projector.", inputs).matrix("linear", "layers", out, inputs, bias=True)
    for name in ("image_newline", "view_seperator"):
        d.part(name.replace("_", " "), Role.PROJECTOR, f"/model.{name}", out)
    return d


def _towers(d: Decoder, v: Config) -> None:
    """SAM ViT-B with its neck and two strided convolutions, and CLIP ViT-L without its last norm."""
    v.ignore("image_size", "mlp_ratio", "model_name")
    named = v.raw("width")
    clip_said = named.get("clip-l-14-224") if isinstance(named, dict) else None
    sam_said = named.get("sam_vit_b") if isinstance(named, dict) else None
    known = {"layers": 12, "width": 768, "heads": 12, "global_attn_indexes": [2, 5, 8, 11], "downsample_channels": [512, 1024]}
    if named is not None and (clip_said != WIDTHS["clip-l-14-224"] or sam_said != known):
        raise ConfigError(f"{v.where('width')} is not that of DeepSeek-OCR", hint="a newer gpufit may know these towers")
    s = fixed(
        CODE, width=768, depth=12, patch_points=768, positions=4096, inner=3072, near=27, far=127, head=64, near_blocks=8, far_blocks=4,
        neck=256, first=512, last=1024, area=9,
    )  # fmt: skip

    def n(name: str, symbol: str, label: str) -> Q:
        return s.count(name, symbol=symbol, label=label)

    width, head = n("width", "H_s", "SAM width"), n("head", "d_s", "SAM head dimension")
    t = Tower(decoder=d, role=Role.VISION, prefix="model.sam_model.", width=width, depth=n("depth", "L_s", "SAM blocks"), split=False,
              label="SAM ")  # fmt: skip
    t.patches("patch_embed.proj", n("patch_points", "p_s", "points of a patch"), bias=True)
    t.part("positions", "pos_embed", n("positions", "n_ps", "SAM positions"), width)
    t.norms("norm1", "norm2", bias=True)
    t.qkv()
    t.mlp(n("inner", "I_s", "SAM MLP width"), "mlp", ("lin1", "lin2"))
    for name, rows, blocks in (("windowed", "near", "near_blocks"), ("global", "far", "far_blocks")):
        for axis in ("rel_pos_h", "rel_pos_w"):
            d.part(f"SAM {name} {axis}", Role.VISION, f"/model.sam_model.blocks.{{e}}.attn.{axis}", n(rows, "n_r", f"{name} offsets"), head,
                   copies=n(blocks, "L_r", f"{name} blocks"))  # fmt: skip
    neck, first, last, area = (
        n("neck", "c_n", "neck channels"),
        n("first", "c_1", "channels"),
        n("last", "c_2", "channels"),
        n("area", "k_a", "points of a convolution"),
    )
    t.part("neck convolution 1", "neck.0", neck, width)
    t.part("neck convolution 2", "neck.2", neck, neck * area)
    for i in (1, 3):
        t.norm(f"neck norm {i}", f"neck.{i}", neck, bias=True)
    t.part("convolution 1", "net_2", first, neck * area)
    t.part("convolution 2", "net_3", last, first * area)
    c = fixed(CODE, width=1024, depth=24, patch_points=588, positions=257, inner=4096)
    wide = c.count("width", symbol="H_v", label="CLIP width")
    u = Tower(decoder=d, role=Role.VISION, prefix="model.vision_model.", width=wide,
              depth=c.count("depth", symbol="L_v", label="CLIP blocks"), block="transformer.layers.{e}.", label="CLIP ")  # fmt: skip
    u.part("class token", "embeddings.class_embedding", wide)
    u.patches("embeddings.patch_embedding", c.count("patch_points", symbol="p_v", label="points of a patch"), bias=False)
    u.part("positions", "embeddings.position_embedding", c.count("positions", symbol="n_pv", label="CLIP positions"), wide)
    u.norm("norm before blocks", "pre_layrnorm", bias=True)
    u.norms("layer_norm1", "layer_norm2", bias=True)
    u.qkv("self_attn.qkv_proj", "self_attn.out_proj")
    u.mlp(c.count("inner", symbol="I_v", label="CLIP MLP width"), "mlp", ("fc1", "fc2"))
