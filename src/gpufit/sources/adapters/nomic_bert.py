"""Encoders with rotary positions and gated MLPs: Nomic Embed, GTE (en v1.5, multilingual) and Arctic Embed M v2 and long."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role, Shard
from gpufit.quantity import Q
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import down, fused_gate_up, fused_qkv, inner_width, norms, out_proj
from gpufit.sources.encoders import count, embeddings, encoder, head_norm, matrix, pooler, words
from gpufit.sources.patterns import without

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
    """Nomic Embed v1 to v2: biases by switch, a gate where the activation is SwiGLU or GeGLU, experts in each second layer of v2."""
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
    every = config.integer("moe_every_n_layers", default=0)
    sparse = tuple(i for i in d.all if every and i % every == 1)
    dense = without(d.all, sparse)
    for name in gates:
        d.linear(f"MLP {name}", Role.MLP, f"{at}mlp.{name}", intermediate, d.hidden, layers=dense, shard=Shard.COLUMN, bias=first)
    d.linear("MLP fc2", Role.MLP, at + "mlp.fc2", d.hidden, intermediate, layers=dense, shard=Shard.ROW, bias=last)
    _experts(d, sparse, intermediate)
    norms(d, (("attention norm", "norm1"), ("MLP norm", "norm2")), final="", bias=not config.flag("use_rms_norm"), module=at)
    return d


def _experts(d: Decoder, layers: tuple[int, ...], intermediate: Q) -> None:
    """Experts without a gate projection that stand in one tensor, one bias behind them all (vLLM 0.33.0, bert_with_rope.py)."""
    if not layers:
        return
    config, module = d.config, "encoder.layers.{i}.mlp"
    if config.flag("expert_choice_router") or config.integer("num_shared_experts", default=0):
        raise ConfigError(
            f"{config.where('num_experts')}: experts that choose, or shared ones, are not known here", hint="a newer gpufit may"
        )
    config.ignore("moe_impl", "moe_normalize_expert_weights", "moe_resid_pdrop", "ffn_div")
    experts = config.count("num_experts", symbol="E", label="routed experts")
    used = (config.count("moe_top_k", symbol="E_k", label="experts per token"), experts)
    d.part("router", Role.ROUTER, f"{module}.router.layer", experts, d.hidden, layers=layers)
    role = Role.ROUTED_EXPERTS
    for name, shard in (("w1", Shard.COLUMN), ("w2", Shard.ROW)):
        rows, columns = (intermediate, d.hidden) if name == "w1" else (d.hidden, intermediate)
        d.part(f"expert {name}", role, f"{module}.experts.mlp.{name}", rows, columns, layers=layers, copies=experts, shard=shard,
               active=used)  # fmt: skip
    d.part("expert bias", role, f"{module}.experts.bias", d.hidden, layers=layers)
