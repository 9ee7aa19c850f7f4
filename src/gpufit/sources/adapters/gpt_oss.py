"""gpt-oss: sliding and full attention in turn, attention sinks, and a mixture of experts with biases in every layer."""

from __future__ import annotations

from gpufit.model import Role, Shard
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.patterns import FULL, SLIDING, attend, class_defaults, pre_norms, typed_layers, window_of
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("GptOssForCausalLM",)
INERT = frozenset({"initial_context_length", "experts_per_token"})
DEFAULTS = class_defaults(
    "GptOssConfig (transformers 5.24.0)",
    num_hidden_layers=36,
    num_local_experts=128,
    vocab_size=201088,
    hidden_size=2880,
    intermediate_size=2880,
    head_dim=64,
    num_attention_heads=64,
    num_key_value_heads=8,
    sliding_window=128,
    max_position_embeddings=131072,
    num_experts_per_tok=4,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """Layers as `layer_types` says (absent: sliding first, then in turn); experts are fused as published.

    Attention sinks are one weight a head and keep no cache.
    """
    d = open_decoder(config, tie_default=False)
    turn = [FULL if i % 2 else SLIDING for i in d.all]
    kinds = typed_layers(config, int(d.num_layers), (FULL, SLIDING), otherwise=turn)
    attend(d, full=kinds[FULL], sliding=kinds[SLIDING], window=window_of(config))
    output(d)
    bias = config.flag("attention_bias", default=True)
    d.attention(d.all, bias=bias, out_bias=bias)
    heads = d.need(d.attention_heads)
    d.part("attention sinks", Role.ATTENTION, "layers.{i}.self_attn.sinks", heads, layers=d.all, shard=Shard.COLUMN)
    experts = config.count("num_local_experts", "num_experts", symbol="E", label="routed experts")
    used = config.count("num_experts_per_tok", "experts_per_token", symbol="E_k", label="experts per token")
    width = config.count("intermediate_size", symbol="I", label="expert width")
    d.part("router", Role.ROUTER, "layers.{i}.mlp.router", experts, d.hidden, layers=d.all)
    d.part("router bias", Role.ROUTER, "layers.{i}.mlp.router.bias", experts, layers=d.all)
    for name, rows, columns, shard in (
        ("gate_up_proj", 2 * width, d.hidden, Shard.COLUMN),
        ("down_proj", d.hidden, width, Shard.ROW),
    ):
        d.linear(
            f"expert {name}",
            Role.ROUTED_EXPERTS,
            f"layers.{{i}}.mlp.experts.{name}",
            rows,
            columns,
            layers=d.all,
            shard=shard,
            bias=True,
            copies=experts,
            active=(used, experts),
        )
    pre_norms(d)
    return d
