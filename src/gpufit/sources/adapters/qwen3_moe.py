"""Qwen3 mixtures of experts: query and key norms per head, experts in all layers but those named as dense."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.patterns import attend, class_defaults, pre_norms, stepped, window_of, without
from gpufit.sources.stated import with_defaults

MODEL_TYPES = ("qwen3_moe", "qwen3_vl_moe_text")
ARCHITECTURES = ("Qwen3MoeForCausalLM",)
INERT = frozenset({"max_window_layers"})
DEFAULTS = class_defaults(
    "Qwen3MoeConfig (transformers 5.24.0)",
    vocab_size=151936,
    hidden_size=2048,
    intermediate_size=6144,
    num_hidden_layers=24,
    num_attention_heads=32,
    num_key_value_heads=4,
    max_position_embeddings=32768,
    sliding_window=4096,
    moe_intermediate_size=768,
    num_experts_per_tok=8,
    num_experts=128,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """With `use_sliding_window` every layer uses the window; without it none does. `head_dim` falls back to hidden_size / heads."""
    d = open_decoder(config, tie_default=False)
    attend(d, sliding=d.all, window=window_of(config) if config.flag("use_sliding_window") else None)
    config.ignore("sliding_window")
    output(d)
    bias = config.flag("attention_bias")
    d.attention(d.all, bias=bias, out_bias=bias, qk_norm="head")
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
    pre_norms(d)
    return d
