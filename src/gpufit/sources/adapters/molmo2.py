"""Molmo 2: a SigLIP tower read at two depths, attention pooling, and a Qwen3 or OLMo 3 text model under OLMo's names."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role, Shard
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import down, fused_gate_up, fused_qkv, out_proj
from gpufit.sources.nested import open_text
from gpufit.sources.patterns import class_defaults
from gpufit.sources.states import say_defaults
from gpufit.sources.towers import Tower, channels_of, inner_of, width_of

ARCHITECTURES = ("Molmo2ForConditionalGeneration",)
INERT = frozenset({"rope_scaling_layers", "pooling_attention_mask", "float32_attention", "norm_after", "image_default_input_size"})
SOURCE = "Molmo2's configuration classes (vLLM 0.33.0, molmo2.py)"
TEXT = class_defaults(
    SOURCE, hidden_size=3584, num_attention_heads=28, num_key_value_heads=4, head_dim=128, vocab_size=152064, additional_vocab_size=128,
    qkv_bias=True, num_hidden_layers=48, intermediate_size=18944, max_position_embeddings=4096, use_qk_norm=False, qk_norm_type="olmo",
)  # fmt: skip
VIT = class_defaults(
    SOURCE, hidden_size=1152, intermediate_size=4304, num_hidden_layers=27, num_attention_heads=16, num_key_value_heads=16, head_dim=72,
    image_patch_size=14, image_num_pos=577,
)  # fmt: skip
ADAPTER = class_defaults(
    SOURCE, vit_layers=[-3, -9], hidden_size=1152, num_attention_heads=16, num_key_value_heads=16, head_dim=72, intermediate_size=18944,
)  # fmt: skip


def read(config: Config) -> Decoder:
    """Every text layer attends in full; its embedding has rows of its own for special tokens, its output head has not."""
    text = open_text(config, "text_config", model_type="molmo2_text")
    text.fall_back(TEXT)
    d = open_decoder(text, tie_default=False, tie_from=config, prefix="model.transformer.")
    d.full(d.all)
    extra = text.count("additional_vocab_size", symbol="V_x", label="special rows of the embedding")
    d.part("token embedding", Role.EMBEDDING, "wte.embedding", d.need(d.vocab), d.hidden, shard=Shard.VOCAB)
    d.part("special token embedding", Role.EMBEDDING, "wte.new_embedding", extra, d.hidden, shard=Shard.VOCAB)
    if not d.tied:
        d.part("output head", Role.HEAD, "/lm_head", d.need(d.vocab), d.hidden, shard=Shard.VOCAB, linear=True)
    at = "blocks.{i}."
    fused_qkv(d, at + "self_attn.att_proj", bias=text.flag("qkv_bias"))
    out_proj(d, at + "self_attn.attn_out")
    if text.flag("use_qk_norm"):
        _norms(d, text.text("qk_norm_type") or "olmo", at)
    intermediate = text.count("intermediate_size", symbol="I", label="MLP width")
    fused_gate_up(d, at + "mlp.ff_proj", intermediate)
    down(d, at + "mlp.ff_out", intermediate)
    for name in ("attn_norm", "ff_norm"):
        d.norm(name.replace("_", " "), at + name, layers=d.all)
    d.norm("final norm", "ln_f")
    _vision(d, config)
    say_defaults(d)
    return d


def _norms(d: Decoder, kind: str, at: str) -> None:
    """Norms on queries and keys: per head as in Qwen3, or over all heads as in OLMo."""
    heads, kv, dim = d.need(d.attention_heads), d.need(d.kv_heads), d.need(d.head_dim)
    if kind not in ("qwen3", "olmo"):
        raise ConfigError(f"{d.config.where('qk_norm_type')} is {kind!r}", hint="qwen3 and olmo are understood")
    d.norm("q_norm", at + "self_attn.q_norm", layers=d.all, size=dim if kind == "qwen3" else heads * dim)
    d.norm("k_norm", at + "self_attn.k_norm", layers=d.all, size=dim if kind == "qwen3" else kv * dim)


def _vision(d: Decoder, config: Config) -> None:
    """The tower up to the deepest block that is read, pooling over what it reads, and a gated projector."""
    v, a = config.sub("vit_config"), config.sub("adapter_config")
    if v is None or a is None:
        raise config.missing("vit_config" if v is None else "adapter_config")
    v.fall_back(VIT)
    a.fall_back(ADAPTER)
    v.ignore("num_attention_heads", "num_key_value_heads", "head_dim", "image_patch_size", "image_num_pos")
    blocks = v.integer("num_hidden_layers")
    read_at = a.items("vit_layers") or []
    if not read_at or not all(isinstance(i, int) and -blocks <= i < blocks for i in read_at):
        raise ConfigError(f"{a.where('vit_layers')} is {read_at!r} for {blocks} blocks", hint="check the config.json")
    deepest = max(i % blocks for i in read_at) + 1
    width = width_of(v, "hidden_size")
    patch = v.count("image_patch_size", symbol="P_v", label="patch edge")
    depth = a.item(deepest, "vit_layers", symbol="L_v", label="tower blocks up to the deepest that is read")
    t = Tower(
        decoder=d, role=Role.VISION, prefix="model.vision_backbone.image_vit.", width=width, depth=depth,
        block="transformer.resblocks.{e}.",
    )  # fmt: skip
    t.part("positions", "positional_embedding", v.count("image_num_pos", symbol="n_pv", label="tower positions"), width)
    t.patches("patch_embedding", channels_of(v, Default(value=3, source=SOURCE)) * patch * patch, bias=True)
    t.norms("attention_norm", "ffn_norm", bias=True)
    t.attention("attention", ("wq", "wk", "wv", "wo"))
    t.mlp(inner_of(v, "intermediate_size"), "feed_forward", ("w1", "w2"))
    pooled = a.count("num_attention_heads", symbol="n_p", label="pooling heads") * a.count(
        "head_dim", symbol="d_p", label="pooling head dimension"
    )
    a.ignore("text_hidden_size")
    if a.integer("num_key_value_heads") != a.integer("num_attention_heads"):
        raise ConfigError(f"{a.where('num_key_value_heads')}: grouped pooling heads are not known", hint="a newer gpufit may know them")
    own = width_of(a, "hidden_size", letter="p")
    p = Tower(decoder=d, role=Role.PROJECTOR, prefix="model.vision_backbone.", width=own, depth=depth, label="pooling ")
    joined = a.item(len(read_at), "vit_layers", symbol="n_fl", label="tower layers whose output is joined") * width
    for word in ("wq", "wk", "wv"):
        p.matrix(word, f"image_pooling_2d.{word}", pooled, joined, bias=True, shard=Shard.COLUMN)
    p.matrix("wo", "image_pooling_2d.wo", own, pooled, bias=True, shard=Shard.ROW)
    inner = inner_of(a, "intermediate_size", letter="p")
    for word in ("w1", "w3"):
        p.matrix(word, f"image_projector.{word}", inner, own, shard=Shard.COLUMN)
    p.matrix("w2", "image_projector.w2", d.hidden, inner, shard=Shard.ROW)
