"""DBRX: fused attention projections, norms without bias, and a mixture in every layer."""

from __future__ import annotations

from gpufit.model import Role, Shard
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.patterns import class_defaults
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("DbrxForCausalLM",)
INERT = frozenset({"moe_loss_weight", "moe_jitter_eps", "moe_normalize_expert_weights", "attn_pdrop"})
CLASS = "DbrxConfig (transformers 5.24.0)"
DEFAULTS = class_defaults(CLASS, d_model=2048, n_heads=16, n_layers=24, max_seq_len=2048, vocab_size=32000)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """KV heads stand in `attn_config`, the mixture in `ffn_config`; q, k and v are rows of one published matrix."""
    d = open_decoder(config, tie_default=False, prefix="transformer.")
    attn, ffn = config.sub("attn_config"), config.sub("ffn_config")
    if attn is None or ffn is None:
        raise config.missing("attn_config" if attn is None else "ffn_config")
    attn.fall_back(class_defaults("DbrxAttentionConfig (transformers 5.24.0)", kv_n_heads=1))
    ffn.fall_back(class_defaults("DbrxFFNConfig (transformers 5.24.0)", ffn_hidden_size=3584, moe_num_experts=4, moe_top_k=1))
    attn.ignore("rope_theta", "clip_qkv")
    d.kv_heads = attn.count("kv_n_heads", symbol="n_kv", label="KV heads")
    d.full(d.all)
    output(d, module="wte")
    where = "blocks.{i}.norm_attn_norm"
    d.attention(d.all, module=f"{where}.attn", names=("Wqkv", "Wqkv", "Wqkv", "out_proj"))
    experts = ffn.count("moe_num_experts", symbol="E", label="routed experts")
    used = ffn.count("moe_top_k", symbol="E_k", label="experts per token")
    width = ffn.count("ffn_hidden_size", symbol="I", label="expert width")
    d.part("router", Role.ROUTER, "blocks.{i}.ffn.router.layer", experts, d.hidden, layers=d.all)
    for name, shard in (("w1", Shard.COLUMN), ("v1", Shard.COLUMN), ("w2", Shard.COLUMN)):
        d.linear(
            f"expert {name}", Role.ROUTED_EXPERTS, f"blocks.{{i}}.ffn.experts.mlp.{name}", width, d.hidden, layers=d.all,
            shard=shard, copies=experts, active=(used, experts),
        )  # fmt: skip
    d.norm("input norm", f"{where}.norm_1", layers=d.all)
    d.norm("post-attention norm", f"{where}.norm_2", layers=d.all)
    d.norm("final norm", "norm_f")
    return d
