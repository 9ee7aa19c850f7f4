"""Encoders with rotary positions and gated MLPs: Nomic Embed, GTE (en v1.5, multilingual) and Arctic Embed M v2 and long."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role, Shard
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import down, fused_gate_up, fused_qkv, inner_width, norms, out_proj
from gpufit.sources.encoders import count, embeddings, encoder, head_norm, matrix, pooler, words

MODEL_TYPES = ("nomic_bert", "new", "gte")
INERT = frozenset({"logn_attention_clip1", "logn_attention_scale", "layer_norm_type", "use_memory_efficient_attention", "pack_qkv"})
NOMIC_INERT = ("use_flash_attn", "parallel_block", "parallel_block_tied_norm", "prenorm", "use_xentropy", "pad_vocab_size_multiple")


def read(config: Config) -> Decoder:
    """Nomic's files have GPT-2's field names; the other two families are one class under two names."""
    if config.text("model_type") == "nomic_bert":
        return _nomic(config)
    d, top = encoder(config, "NewConfig", inside="new.", vocab_size=30528, intermediate_size=3072, type_vocab_size=0)
    if (kind := config.text("position_embedding_type") or "rope") != "rope":
        raise ConfigError(
            f"{config.where('position_embedding_type')} is {kind!r}", hint="rotary positions are understood in this family"
        )
    embeddings(d, positions="")
    at = "encoder.layer.{i}."
    intermediate = inner_width(d, "intermediate_size")
    fused_qkv(d, at + "attention.qkv_proj", bias=True)
    out_proj(d, at + "attention.o_proj", bias=True)
    fused_gate_up(d, at + "mlp.up_gate_proj", intermediate)
    down(d, at + "mlp.down_proj", intermediate, bias=True)
    norms(d, (("attention norm", "attn_ln"), ("MLP norm", "mlp_ln")), final="", bias=True, module=at)
    if top == "sequence":
        pooler(d)
    if top == "masked":
        matrix(d, "head transform", "lm_head.dense", d.hidden)
        head_norm(d, "lm_head.norm")
        words(d, "lm_head.decoder")
    elif top != "bare":
        matrix(d, "classification head", "qa_outputs" if top == "span" else "classifier", count(d, top))
    return d


def _nomic(config: Config) -> Decoder:
    """Nomic Embed v1 and v1.5: biases by switch, a gate where the activation is SwiGLU or GeGLU."""
    config.ignore(*NOMIC_INERT)
    d, top = encoder(config, "NomicBertConfig", vocab_size=30528, type_vocab_size=2)
    if top != "bare":
        raise ConfigError(f"{config.where('architectures')} has a head", hint="NomicBertModel is understood in this family")
    rotary = config.raw("rotary_emb_fraction")
    if rotary is not None and float(rotary) <= 0:
        raise ConfigError(
            f"{config.where('rotary_emb_fraction')} is {rotary}", hint="rotary positions are understood in this family"
        )
    embeddings(d, positions="", norm="")
    d.norm("embedding norm", "emb_ln", bias=True)
    at = "encoder.layers.{i}."
    intermediate = inner_width(d) if config.has("n_inner") else inner_width(d, "intermediate_size")
    qkv, first, last = config.flag("qkv_proj_bias", default=False), config.flag("mlp_fc1_bias"), config.flag("mlp_fc2_bias")
    fused_qkv(d, at + "attn.Wqkv", bias=qkv)
    out_proj(d, at + "attn.out_proj", bias=qkv)
    gates = ("fc11", "fc12") if config.text("activation_function") in (None, "swiglu", "geglu", "glu") else ("fc1",)
    for name in gates:
        d.linear(f"MLP {name}", Role.MLP, f"{at}mlp.{name}", intermediate, d.hidden, layers=d.all, shard=Shard.COLUMN, bias=first)
    down(d, at + "mlp.fc2", intermediate, bias=last)
    norms(d, (("attention norm", "norm1"), ("MLP norm", "norm2")), final="", bias=not config.flag("use_rms_norm"), module=at)
    return d
