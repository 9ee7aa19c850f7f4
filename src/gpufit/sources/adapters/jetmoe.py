"""JetMoE: mixtures of experts in the MLPs and in the query and output projections of attention."""

from __future__ import annotations

from gpufit.model import Role, Shard
from gpufit.quantity import Q
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.patterns import class_defaults, pre_norms
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("JetMoEForCausalLM", "JetMoeForCausalLM")
DEFAULTS = class_defaults(
    "JetMoeConfig (transformers 5.24.0)",
    vocab_size=32000,
    hidden_size=2048,
    num_hidden_layers=12,
    num_key_value_heads=16,
    kv_channels=128,
    intermediate_size=5632,
    max_position_embeddings=4096,
    num_local_experts=8,
    num_experts_per_tok=2,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """Every token has `num_key_value_heads` query heads in each of its experts; keys and values are common to all."""
    d = open_decoder(config, tie_default=True, standard_heads=False)
    experts = config.count("num_local_experts", "moe_num_experts", symbol="E", label="routed experts")
    used = config.count("num_experts_per_tok", "moe_top_k", symbol="E_k", label="experts per token")
    d.kv_heads = config.count("num_key_value_heads", symbol="n_kv", label="KV heads")
    d.head_dim = config.count("kv_channels", "head_dim", symbol="d", label="head dimension")
    d.attention_heads = (used * d.kv_heads).as_step("n_q", "attention heads")
    config.ignore("num_attention_heads", "head_dim")
    d.full(d.all)
    output(d)
    inner = d.kv_heads * d.head_dim
    kv = "layers.{i}.self_attention.kv_proj"
    d.linear("kv_proj", Role.ATTENTION, kv, 2 * inner, d.hidden, layers=d.all, shard=Shard.KV_HEADS, heads=d.kv_heads)
    width = config.count("intermediate_size", "ffn_hidden_size", symbol="I", label="expert width")
    fused(d, "layers.{i}.self_attention.experts", inner, inner, experts, used, "attention expert ")
    fused(d, "layers.{i}.mlp", 2 * width, width, experts, used, "expert ")
    pre_norms(d)
    return d


def fused(d: Decoder, module: str, out: Q, inner: Q, experts: Q, used: Q, label: str) -> None:
    """Input and output matrices of experts that stand in one tensor, their router, and a bias of the layer's width."""
    role, at = Role.ROUTED_EXPERTS, tuple(d.all)
    d.part(f"{label}router", Role.ROUTER, f"{module}.router.layer", experts, d.hidden, layers=at)
    pairs = (("input_linear", out, d.hidden, Shard.COLUMN), ("output_linear", d.hidden, inner, Shard.ROW))
    for name, rows, columns, shard in pairs:
        d.linear(
            label + name, role, f"{module}.{name}", rows, columns, layers=at, shard=shard, copies=experts, active=(used, experts)
        )
    d.part(f"{label}bias", role, f"{module}.bias", d.hidden, layers=at)
