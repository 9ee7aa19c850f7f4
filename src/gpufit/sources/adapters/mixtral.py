"""Mixtral: grouped-query attention and a mixture of experts in every layer."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.patterns import attend, class_defaults, pre_norms, window_of
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("MixtralForCausalLM",)
DEFAULTS = class_defaults(
    "MixtralConfig (transformers 5.24.0)",
    vocab_size=32000,
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    max_position_embeddings=131072,
    num_experts_per_tok=2,
    num_local_experts=8,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """Every layer has `num_local_experts` gated experts; where `sliding_window` is set all layers use it."""
    d = open_decoder(config, tie_default=False)
    attend(d, sliding=d.all, window=window_of(config))
    output(d)
    d.attention(d.all)
    d.experts(
        d.all,
        experts=config.count("num_local_experts", "num_experts", symbol="E", label="routed experts"),
        per_token=config.count("num_experts_per_tok", symbol="E_k", label="experts per token"),
        intermediate=config.count("intermediate_size", symbol="I", label="expert width"),
        module="layers.{i}.block_sparse_moe",
        names=("w1", "w3", "w2"),
    )
    pre_norms(d)
    return d
