"""FlexOlmo: OLMo 2 with a mixture of independently trained experts in every layer."""

from __future__ import annotations

from gpufit.sources.adapters.olmoe import attention_and_experts
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.patterns import class_defaults
from gpufit.sources.stated import with_defaults

DEFAULTS = class_defaults(
    "FlexOlmoConfig (transformers 5.24.0)",
    vocab_size=100352,
    hidden_size=4096,
    intermediate_size=11008,
    num_hidden_layers=32,
    num_attention_heads=32,
    max_position_embeddings=4096,
    num_experts_per_tok=5,
    num_experts=7,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """Norms stand after attention and mixture, not before them."""
    d = open_decoder(config, tie_default=False)
    d.full(d.all)
    output(d)
    attention_and_experts(d)
    d.norm("post-attention norm", "layers.{i}.post_attention_layernorm", layers=d.all)
    d.norm("post-MLP norm", "layers.{i}.post_feedforward_layernorm", layers=d.all)
    d.norm("final norm", "norm")
    return d
