"""Qwen1.5-MoE and Qwen2-MoE: biases on q, k and v, routed experts, and a gated shared expert."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.patterns import FULL, SLIDING, attend, class_defaults, pre_norms, stepped, typed_layers, window_of, without
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("Qwen2MoeForCausalLM",)
DEFAULTS = class_defaults(
    "Qwen2MoeConfig (transformers 5.24.0)",
    vocab_size=151936,
    hidden_size=2048,
    intermediate_size=5632,
    num_hidden_layers=24,
    num_attention_heads=16,
    num_key_value_heads=16,
    max_position_embeddings=32768,
    sliding_window=4096,
    max_window_layers=28,
    moe_intermediate_size=1408,
    shared_expert_intermediate_size=5632,
    num_experts_per_tok=4,
    num_experts=60,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """With `use_sliding_window` the even ones of the first `max_window_layers` layers use the window; without it none does."""
    d = open_decoder(config, tie_default=False)
    window = window_of(config) if config.flag("use_sliding_window") else None
    config.ignore("sliding_window")
    first = config.integer("max_window_layers")
    words = [SLIDING if window is not None and i % 2 == 0 and i < first else FULL for i in d.all]
    kinds = typed_layers(config, int(d.num_layers), (FULL, SLIDING), otherwise=words)
    attend(d, full=kinds[FULL], sliding=kinds[SLIDING], window=window)
    output(d)
    d.attention(d.all, bias=config.flag("qkv_bias", default=True))
    experts = config.count("num_experts", "num_local_experts", symbol="E", label="routed experts")
    sparse = stepped(config, int(d.num_layers), experts=int(experts) > 0)
    dense = without(d.all, sparse)
    if dense:
        d.mlp(dense, config.count("intermediate_size", symbol="I", label="MLP width"))
    config.ignore("intermediate_size")
    d.experts(
        sparse,
        experts=experts,
        per_token=config.count("num_experts_per_tok", symbol="E_k", label="experts per token"),
        intermediate=config.count("moe_intermediate_size", symbol="I_e", label="expert width"),
    )
    shared = config.count("shared_expert_intermediate_size", symbol="I_s", label="shared expert width")
    if int(shared):
        d.shared_experts(sparse, shared, gate=True, module="layers.{i}.mlp.shared_expert")
    pre_norms(d)
    return d
