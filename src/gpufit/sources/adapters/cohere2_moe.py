"""Cohere mixtures: full and sliding layers with one norm each, dense layers first, and shared experts."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.patterns import FULL, SLIDING, attend, class_defaults, per_layer, spread, typed_layers, window_of, without
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("Cohere2MoeForCausalLM",)
INERT = frozenset({"shared_expert_combination_strategy", "expert_selection_fn"})
DEFAULTS = class_defaults(
    "Cohere2MoeConfig (transformers 5.24.0)",
    vocab_size=256000,
    hidden_size=8192,
    intermediate_size=22528,
    num_hidden_layers=40,
    num_attention_heads=64,
    head_dim=128,
    max_position_embeddings=8192,
    sliding_window=4096,
    sliding_window_pattern=4,
    prefix_dense_sliding_window_pattern=1,
    num_experts_per_tok=2,
    num_experts=8,
    num_shared_experts=0,
    first_k_dense_replace=0,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """The pattern of windows begins anew after the dense layers, unless `layer_types` says otherwise."""
    d = open_decoder(config, tie_default=True)
    layers, first = int(d.num_layers), config.integer("first_k_dense_replace")
    before, after = config.integer("prefix_dense_sliding_window_pattern"), config.integer("sliding_window_pattern")
    turn = [(i + 1) % before == 0 for i in range(first)] + [(i + 1) % after == 0 for i in range(layers - first)]
    kinds = typed_layers(config, layers, (FULL, SLIDING), otherwise=[FULL if full else SLIDING for full in turn])
    attend(d, full=kinds[FULL], sliding=kinds[SLIDING], window=window_of(config))
    output(d)
    bias = config.flag("attention_bias")
    d.attention(d.all, bias=bias, out_bias=bias)
    words = per_layer(config, "mlp_layer_types", layers) or ["dense" if i < first else "sparse" for i in d.all]
    sparse = spread(config, "mlp_layer_types", words, ("dense", "sparse"))["sparse"]
    width = config.count("intermediate_size", symbol="I", label="expert width")
    wide = config.maybe("prefix_dense_intermediate_size", symbol="I_d", label="MLP width of dense layers")
    d.mlp(without(d.all, sparse), width if wide is None else wide)
    d.experts(
        sparse,
        experts=config.count("num_experts", symbol="E", label="routed experts"),
        per_token=config.count("num_experts_per_tok", symbol="E_k", label="experts per token"),
        intermediate=width,
    )
    shared = config.count("num_shared_experts", symbol="E_s", label="shared experts")
    if int(shared):
        d.shared_experts(sparse, shared * width)
    d.norm("input norm", "layers.{i}.input_layernorm", layers=d.all)
    d.norm("final norm", "norm")
    return d
