"""Laguna: full and sliding layers with head counts of their own, gated attention outputs, and a mixture with a shared expert."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role, Shard
from gpufit.quantity import Q
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.patterns import (
    FULL,
    SLIDING,
    attend,
    class_defaults,
    per_layer,
    pre_norms,
    spread,
    typed_layers,
    window_of,
    without,
)
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("LagunaForCausalLM",)
INERT = frozenset({"gating_types", "moe_routed_scaling_factor", "moe_router_logit_softcapping", "moe_apply_router_weight_on_input"})
DEFAULTS = class_defaults(
    "LagunaConfig (transformers 5.24.0)",
    vocab_size=100352,
    hidden_size=2048,
    intermediate_size=8192,
    num_hidden_layers=40,
    num_attention_heads=48,
    num_key_value_heads=8,
    head_dim=128,
    max_position_embeddings=131072,
    sliding_window=512,
    moe_intermediate_size=512,
    shared_expert_intermediate_size=512,
    num_experts_per_tok=8,
    num_experts=256,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """Attention heads by `num_attention_heads_per_layer`; KV heads are the same everywhere."""
    d = open_decoder(config, tie_default=False)
    layers = int(d.num_layers)
    kinds = typed_layers(config, layers, (FULL, SLIDING), otherwise=[FULL] * layers)
    window = window_of(config)
    main = int(d.need(d.attention_heads))
    counts = per_layer(config, "num_attention_heads_per_layer", layers) or [main] * layers
    bias = config.flag("attention_bias")
    output(d)
    for count in dict.fromkeys(counts):
        heads = config.item(count, "num_attention_heads_per_layer", symbol=f"n_q{count}", label="attention heads of some layers")
        same = frozenset(i for i in d.all if counts[i] == count)
        full, sliding = (tuple(i for i in kinds[word] if i in same) for word in (FULL, SLIDING))
        attend(d, full=full, sliding=sliding, window=window, heads=heads)
        at = tuple(sorted(same))
        d.attention(at, heads=heads, bias=bias, out_bias=bias, qk_norm="head")
        gate(d, at, heads)
    mixture(d)
    pre_norms(d)
    return d


def gate(d: Decoder, layers: tuple[int, ...], heads: Q) -> None:
    """The output gate: one value a head, or one an element."""
    raw = d.config.raw("gating")
    word = True if raw is None else raw
    if word not in (True, "per-head", "per_head", "per-element", "per_element"):
        raise ConfigError(f"{d.config.where('gating')} is {word!r}, expected per-head or per-element", hint="check the config.json")
    each = word is True or str(word).endswith("head")
    rows = heads if each else heads * d.need(d.head_dim)
    d.linear("g_proj", Role.ATTENTION, "layers.{i}.self_attn.g_proj", rows, d.hidden, layers=layers, shard=Shard.COLUMN)


def mixture(d: Decoder) -> None:
    """Dense layers and mixtures by `mlp_layer_types`, else by `mlp_only_layers`, else all but the first are mixtures."""
    config, layers = d.config, int(d.num_layers)
    words = per_layer(config, "mlp_layer_types", layers)
    dense_only = config.items("mlp_only_layers")
    config.ignore("decoder_sparse_step")
    if words is not None:
        sparse = spread(config, "mlp_layer_types", words, ("dense", "sparse"))["sparse"]
    else:
        sparse = without(d.all, (0,) if dense_only is None else dense_only)
    dense = without(d.all, sparse)
    if dense:
        d.mlp(dense, config.count("intermediate_size", symbol="I", label="MLP width"))
    experts = config.count("num_experts", symbol="E", label="routed experts")
    d.experts(
        sparse,
        experts=experts,
        per_token=config.count("num_experts_per_tok", symbol="E_k", label="experts per token"),
        intermediate=config.count("moe_intermediate_size", symbol="I_e", label="expert width"),
    )
    if sparse:
        module = "layers.{i}.mlp.experts.e_score_correction_bias"
        d.part("router score correction", Role.ROUTER, module, experts, layers=sparse, dtype="fp32")
    shared = config.count("shared_expert_intermediate_size", symbol="I_s", label="shared expert width")
    if int(shared):
        d.shared_experts(sparse, shared, module="layers.{i}.mlp.shared_expert")
