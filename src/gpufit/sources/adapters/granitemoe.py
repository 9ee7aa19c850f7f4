"""Granite 3 mixtures: grouped-query attention and fused experts in every layer, with a shared MLP in some."""

from __future__ import annotations

from gpufit.model import Role, Shard
from gpufit.quantity import Q
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.patterns import FULL, SLIDING, attend, class_defaults, pre_norms, typed_layers, window_of
from gpufit.sources.stated import with_defaults

MODEL_TYPES = ("granitemoe", "granitemoeshared", "granitemoe_swa")
INERT = frozenset({"attention_multiplier", "embedding_multiplier", "residual_multiplier"})
DEFAULTS = class_defaults(
    "GraniteMoeConfig (transformers 5.24.0)",
    vocab_size=32000,
    hidden_size=4096,
    intermediate_size=11008,
    num_hidden_layers=32,
    num_attention_heads=32,
    max_position_embeddings=2048,
    num_local_experts=8,
    num_experts_per_tok=2,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """Experts are published fused, gate and up in one matrix; `shared_intermediate_size` adds a shared MLP (granitemoeshared)."""
    d = open_decoder(config, tie_default=False)
    if config.text("model_type") == "granitemoe_swa":
        windows_and_sinks(d)
    else:
        d.full(d.all)
    output(d)
    bias = config.flag("attention_bias")
    d.attention(d.all, bias=bias, out_bias=bias)
    experts = config.count("num_local_experts", symbol="E", label="routed experts")
    used = config.count("num_experts_per_tok", symbol="E_k", label="experts per token")
    width = config.count("intermediate_size", symbol="I", label="expert width")
    if int(experts):
        where = "layers.{i}.block_sparse_moe"
        d.part("router", Role.ROUTER, f"{where}.router.layer", experts, d.hidden, layers=d.all)
        fused(d, Role.ROUTED_EXPERTS, "expert ", where, width, copies=experts, active=(used, experts))
    shared = config.maybe("shared_intermediate_size", symbol="I_s", label="shared expert width")
    if shared is not None and int(shared):
        fused(d, Role.SHARED_EXPERTS, "shared ", "layers.{i}.shared_mlp", shared)
    pre_norms(d)
    return d


def windows_and_sinks(d: Decoder) -> None:
    """Sliding layers with a full one at the head of every four, and a sink a head (GraniteMoeSWAConfig, transformers 5.24.0)."""
    d.config.fall_back(class_defaults("GraniteMoeSWAConfig (transformers 5.24.0)", sliding_window=128))
    turn = [FULL if i % 4 == 0 else SLIDING for i in d.all]
    kinds = typed_layers(d.config, int(d.num_layers), (FULL, SLIDING), otherwise=turn)
    attend(d, full=kinds[FULL], sliding=kinds[SLIDING], window=window_of(d.config))
    heads = d.need(d.attention_heads)
    d.part("attention sinks", Role.ATTENTION, "layers.{i}.self_attn.sinks", heads, layers=d.all, shard=Shard.COLUMN)
    d.config.ignore("layer_rope_theta")


def fused(
    d: Decoder, role: Role, label: str, module: str, width: Q, *, copies: Q | None = None, active: tuple[Q, Q] | None = None
) -> None:
    """An MLP whose gate and up projections are one matrix."""
    pairs = (("input_linear", 2 * width, d.hidden, Shard.COLUMN), ("output_linear", d.hidden, width, Shard.ROW))
    for name, rows, columns, shard in pairs:
        d.linear(label + name, role, f"{module}.{name}", rows, columns, layers=d.all, shard=shard, copies=copies, active=active)
