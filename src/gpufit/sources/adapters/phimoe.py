"""Phi-3.5-MoE and its slimmed kin: biases in attention and head, LayerNorms, and a mixture in every layer."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.patterns import attend, class_defaults, window_of
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("PhiMoEForCausalLM",)
DEFAULTS = class_defaults(
    "PhimoeConfig (transformers 5.24.0)",
    vocab_size=32064,
    hidden_size=4096,
    intermediate_size=6400,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    max_position_embeddings=131072,
    num_experts_per_tok=2,
    num_local_experts=16,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """Where `sliding_window` is set all layers use it."""
    d = open_decoder(config, tie_default=False)
    attend(d, sliding=d.all, window=window_of(config))
    output(d, head_bias=config.flag("lm_head_bias"))
    bias = config.flag("attention_bias")
    d.attention(d.all, bias=bias, out_bias=bias)
    d.experts(
        d.all,
        experts=config.count("num_local_experts", symbol="E", label="routed experts"),
        per_token=config.count("num_experts_per_tok", symbol="E_k", label="experts per token"),
        intermediate=config.count("intermediate_size", symbol="I", label="expert width"),
        module="layers.{i}.block_sparse_moe",
        names=("w1", "w3", "w2"),
    )
    d.norm("input norm", "layers.{i}.input_layernorm", layers=d.all, bias=True)
    d.norm("post-attention norm", "layers.{i}.post_attention_layernorm", layers=d.all, bias=True)
    d.norm("final norm", "norm", bias=True)
    return d
