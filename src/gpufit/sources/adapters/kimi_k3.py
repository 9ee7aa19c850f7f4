"""Kimi-K3: the Kimi-Linear text model below a MoonViT tower."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role, Shard
from gpufit.quantity import Q
from gpufit.sources.adapters import kimi_linear
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import relocate
from gpufit.sources.states import class_defaults
from gpufit.sources.towers import Tower

MODEL_TYPES = ("kimi_k3",)
INERT = kimi_linear.INERT | {"merge_type", "ignore_index", "image_placeholder", "init_pos_emb_time"}

VISION = {
    "patch_size": 14, "init_pos_emb_height": 64, "init_pos_emb_width": 64, "vt_num_hidden_layers": 27, "vt_hidden_size": 1024,
    "vt_num_attention_heads": 12, "vt_intermediate_size": 4096, "merge_kernel_size": [2, 2], "qkv_hidden_size": 1536,
    "norm_type": "rmsnorm", "mlp_type": "mlp2", "mm_projector_type": "patchmergerv2", "attn_bias": False,
    "patch_embed_proj_bias": False, "linear_bias": False,
}  # fmt: skip


def read(config: Config) -> Decoder:
    """Text model and tower. Defaults of the tower: KimiK3VisionConfig (vLLM 0.33.0)."""
    text = config.sub("text_config")
    if text is None:
        raise config.missing("text_config")
    d = kimi_linear.read(text)
    relocate(d, inside="language_model.")
    config.ignore("tie_word_embeddings")
    if (v := config.sub("vision_config")) is not None:
        _tower(d, v)
    return d


def _tower(d: Decoder, v: Config) -> None:
    """A MoonViT whose attention is wider than its blocks, and a two-layer merger to the text width."""
    class_defaults(v, "KimiK3VisionConfig (vLLM 0.33.0)", VISION)
    for name, known in (("norm_type", "rmsnorm"), ("mlp_type", "mlp2"), ("mm_projector_type", "patchmergerv2")):
        if v.text(name) != known:
            raise ConfigError(
                f"{v.where(name)} is {v.text(name)!r}, and only {known} is known here", hint="a newer gpufit may know it"
            )
    v.ignore("merge_type", "pos_emb_type", "text_hidden_size", "mm_hidden_size", "projector_hidden_act")

    def count(name: str, symbol: str, label: str) -> Q:
        return v.count(name, symbol=symbol, label=label)

    width = count("vt_hidden_size", "H_v", "tower width")
    inner = count("qkv_hidden_size", "I_v", "attention width of the tower")
    d.extras["tower_heads"] = count("vt_num_attention_heads", "n_v", "tower heads")
    patch = count("patch_size", "p_v", "patch size")
    t = Tower(
        decoder=d, role=Role.VISION, prefix="vision_tower.", width=width, depth=count("vt_num_hidden_layers", "L_v", "tower blocks"),
        block="encoder.blocks.{e}.",
    )  # fmt: skip
    colours = v.item(3, "patch_size", symbol="n_c", label="colour channels")
    t.patches("patch_embed.proj", colours * patch * patch, bias=v.flag("patch_embed_proj_bias"))
    places = count("init_pos_emb_height", "n_h", "tower positions, rows") * count(
        "init_pos_emb_width", "n_w", "tower positions, columns"
    )
    t.part("positions", "patch_embed.pos_emb", places, width)
    t.norms("norm0", "norm1", bias=False)
    t.qkv("wqkv", "wo", bias=v.flag("attn_bias"), inner=inner)
    t.mlp(count("vt_intermediate_size", "I_vm", "tower MLP width"), names=("fc0", "fc1"), bias=v.flag("linear_bias"))
    t.norm("final norm", "encoder.final_layernorm")
    sides = [
        v.item(int(n), "merge_kernel_size", symbol="m_v", label="patches merged per axis")
        for n in v.items("merge_kernel_size") or []
    ]
    if len(sides) != 2:
        raise ConfigError(
            f"{v.where('merge_kernel_size')} is {v.raw('merge_kernel_size')}, expected two numbers", hint="check the config.json"
        )
    merged = width * sides[0] * sides[1]
    p = Tower(decoder=d, role=Role.PROJECTOR, prefix="mm_projector.", width=width, depth=t.depth, split=False, label="projector ")
    p.matrix("in", "proj.0", merged, merged, shard=Shard.REPLICATED)
    p.matrix("out", "proj.2", d.hidden, merged, shard=Shard.REPLICATED)
    p.norm("norm", "post_norm", d.hidden)
