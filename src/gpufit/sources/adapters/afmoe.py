"""Trinity (AFMoE): gated attention in full and sliding layers, four norms a layer, and mixtures after the dense layers."""

from __future__ import annotations

from gpufit.model import Role, Shard
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.patterns import FULL, SLIDING, attend, class_defaults, typed_layers, window_of, without
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("AfmoeForCausalLM",)
INERT = frozenset(
    {"mup_enabled", "route_scale", "route_norm", "score_func", "num_expert_groups", "num_limited_groups", "load_balance_coeff"}
)
DEFAULTS = class_defaults(
    "AfmoeConfig (transformers 5.24.0)",
    vocab_size=200192,
    hidden_size=2048,
    intermediate_size=6144,
    moe_intermediate_size=1408,
    num_hidden_layers=32,
    num_dense_layers=1,
    num_attention_heads=16,
    head_dim=128,
    max_position_embeddings=16384,
    num_experts=64,
    num_experts_per_tok=6,
    num_shared_experts=2,
    global_attn_every_n_layers=4,
    sliding_window=1024,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """Every `global_attn_every_n_layers`-th layer attends fully, unless `layer_types` says otherwise."""
    d = open_decoder(config, tie_default=False)
    step = config.integer("global_attn_every_n_layers")
    turn = [SLIDING if (i + 1) % step else FULL for i in d.all]
    kinds = typed_layers(config, int(d.num_layers), (FULL, SLIDING), otherwise=turn)
    attend(d, full=kinds[FULL], sliding=kinds[SLIDING], window=window_of(config))
    output(d)
    bias = config.flag("attention_bias")
    d.attention(d.all, bias=bias, out_bias=bias, qk_norm="head")
    inner = d.need(d.attention_heads) * d.need(d.head_dim)
    d.linear("gate_proj", Role.ATTENTION, "layers.{i}.self_attn.gate_proj", inner, d.hidden, layers=d.all, shard=Shard.COLUMN)
    sparse = tuple(i for i in d.all if i >= config.integer("num_dense_layers"))
    d.mlp(without(d.all, sparse), config.count("intermediate_size", symbol="I", label="MLP width"))
    experts = config.count("num_experts", symbol="E", label="routed experts")
    width = config.count("moe_intermediate_size", symbol="I_e", label="expert width")
    used = config.count("num_experts_per_tok", symbol="E_k", label="experts per token")
    d.experts(sparse, experts=experts, per_token=used, intermediate=width, router="router.gate")
    if sparse:
        d.part("router score correction", Role.ROUTER, "layers.{i}.mlp.expert_bias", experts, layers=sparse, dtype="fp32")
    shared = config.maybe("num_shared_experts", symbol="E_s", label="shared experts")
    if shared is not None and int(shared):
        d.shared_experts(sparse, shared * width)
    for name in ("input_layernorm", "post_attention_layernorm", "pre_mlp_layernorm", "post_mlp_layernorm"):
        d.norm(name, f"layers.{{i}}.{name}", layers=d.all)
    d.norm("final norm", "norm")
    return d
