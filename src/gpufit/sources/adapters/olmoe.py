"""OLMoE: multi-head attention with norms over all heads, and a mixture in every layer."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.patterns import class_defaults, pre_norms
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("OlmoeForCausalLM",)
DEFAULTS = class_defaults(
    "OlmoeConfig (transformers 5.24.0)",
    vocab_size=50304,
    hidden_size=2048,
    intermediate_size=2048,
    num_hidden_layers=16,
    num_attention_heads=16,
    max_position_embeddings=4096,
    num_experts_per_tok=8,
    num_experts=64,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """Query and key norms span all heads."""
    d = open_decoder(config, tie_default=False)
    d.full(d.all)
    output(d)
    attention_and_experts(d)
    pre_norms(d)
    return d


def attention_and_experts(d: Decoder) -> None:
    """Attention and mixture of every layer, which FlexOlmo shares."""
    config = d.config
    bias = config.flag("attention_bias")
    d.attention(d.all, bias=bias, out_bias=bias, qk_norm="full")
    d.experts(
        d.all,
        experts=config.count("num_experts", "num_local_experts", symbol="E", label="routed experts"),
        per_token=config.count("num_experts_per_tok", symbol="E_k", label="experts per token"),
        intermediate=config.count("intermediate_size", symbol="I", label="expert width"),
    )
