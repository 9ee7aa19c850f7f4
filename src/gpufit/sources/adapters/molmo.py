"""Molmo: a CLIP tower whose shape is fixed in the published code, attention pooling, and a text model with OLMo's names."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role, Shard
from gpufit.quantity import Q
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import down, fused_gate_up, fused_qkv, out_proj
from gpufit.sources.nested import fixed
from gpufit.sources.towers import Tower, channels_of, depth_of, inner_of, patch_of, width_of

ARCHITECTURES = ("MolmoForCausalLM",)
INERT = frozenset({"use_position_ids", "clip_qkv"})
TOWER = "Molmo's published code (its vision tower is the same in all models)"


def read(config: Config) -> Decoder:
    """`intermediate_size` counts both halves of the gated MLP. 128 rows of the input embedding are special tokens of their own."""
    d = open_decoder(config, tie_default=False, prefix="model.transformer.")
    d.full(d.all)
    d.tied = config.flag("weight_tying", default=d.tied)
    rows = config.maybe("embedding_size", symbol="V_e", label="embedding rows") or d.need(d.vocab)
    extra = fixed("Molmo's published code", additional_vocab=128).count(
        "additional_vocab", symbol="V_x", label="special rows of the embedding"
    )
    d.part("token embedding", Role.EMBEDDING, "wte.embedding", rows, d.hidden, shard=Shard.VOCAB)
    d.part("special token embedding", Role.EMBEDDING, "wte.new_embedding", extra, d.hidden, shard=Shard.VOCAB)
    if not d.tied:
        d.part("output head", Role.HEAD, "ff_out", rows, d.hidden, shard=Shard.VOCAB, linear=True)
    fused_qkv(d, "blocks.{i}.att_proj", bias=config.flag("qkv_bias"))
    out_proj(d, "blocks.{i}.attn_out")
    if config.flag("attention_layer_norm"):
        d.norm("q_norm", "blocks.{i}.q_norm", layers=d.all)
        d.norm("k_norm", "blocks.{i}.k_norm", layers=d.all, size=d.need(d.kv_heads) * d.need(d.head_dim))
    both = config.count("intermediate_size", symbol="I2", label="width of gate and up together")
    half = (both // 2).as_step("I", "MLP width")
    fused_gate_up(d, "blocks.{i}.ff_proj", half)
    down(d, "blocks.{i}.ff_out", half)
    config.ignore("norm_after", "layer_norm_type")
    if config.raw("layer_norm_type") not in (None, "rms"):
        raise ConfigError(f"{config.where('layer_norm_type')} is {config.raw('layer_norm_type')!r}", hint="rms is understood")
    for name in ("attn_norm", "ff_norm"):
        d.norm(name.replace("_", " "), f"blocks.{{i}}.{name}", layers=d.all)
    d.norm("final norm", "ln_f")
    _vision(d, half)
    return d


def _vision(d: Decoder, half: Q) -> None:
    v = fixed(
        TOWER,
        image_emb_dim=1024,
        image_num_layers=23,
        image_mlp_dim=4096,
        image_patch_size=14,
        image_num_pos=577,
        joined_layers=2,
        pad_embed=2,
    )
    width, patch = width_of(v, "image_emb_dim"), patch_of(v, "image_patch_size")
    inner = inner_of(v, "image_mlp_dim")
    t = Tower(
        decoder=d, role=Role.VISION, prefix="model.vision_backbone.image_vit.", width=width, depth=depth_of(v, "image_num_layers"),
        block="transformer.resblocks.{e}.",
    )  # fmt: skip
    t.part("class token", "class_embedding", width)
    t.part("positions", "positional_embedding", v.count("image_num_pos", symbol="n_pv", label="tower positions"), width)
    t.patches("patch_embedding", channels_of(v) * patch * patch, bias=False)
    t.norm("norm before blocks", "pre_ln", bias=True)
    t.norms("attention_norm", "ffn_norm", bias=True)
    t.attention("attention", ("wq", "wk", "wv", "wo"))
    t.mlp(inner, "feed_forward", ("w1", "w2"))
    p = Tower(decoder=d, role=Role.PROJECTOR, prefix="model.vision_backbone.", width=width, depth=width, label="pooling ")
    joined = v.count("joined_layers", symbol="n_fl", label="tower layers whose output is joined") * width
    p.part("padding", "pad_embed", v.count("pad_embed", symbol="n_pad", label="padding vectors"), joined)
    for word in ("wq", "wk", "wv"):
        p.matrix(word, f"image_pooling_2d.{word}", width, joined, bias=True, shard=Shard.COLUMN)
    p.matrix("wo", "image_pooling_2d.wo", width, width, bias=True, shard=Shard.ROW)
    for word in ("w1", "w3"):
        p.matrix(word, f"image_projector.{word}", half, width, shard=Shard.COLUMN)
    p.matrix("w2", "image_projector.w2", d.hidden, half, shard=Shard.ROW)
