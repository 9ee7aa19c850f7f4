"""Olmo Hybrid: Gated DeltaNet with OLMo 2's post-normed attention every fourth layer."""

from __future__ import annotations

from gpufit.layers.gated_delta import GatedDelta
from gpufit.model import Role, Shard
from gpufit.quantity import Q
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.states import class_defaults, conv_bytes, layer_types, recurrent_bytes, say_defaults, where_is

MODEL_TYPES = ("olmo_hybrid",)
INERT = frozenset(
    {"linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor", "linear_allow_neg_eigval",
     "linear_use_gate"}
)  # fmt: skip

DEFAULTS = {
    "vocab_size": 100352, "hidden_size": 3840, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 30,
    "max_position_embeddings": 65536, "tie_word_embeddings": False, "linear_conv_kernel_dim": 4,
}  # fmt: skip


def read(config: Config) -> Decoder:
    """Defaults: OlmoHybridConfig (transformers 5.24.0). The decay A_log keeps the model's dtype here (vLLM 0.33.0)."""
    class_defaults(config, "OlmoHybridConfig (transformers 5.24.0)", DEFAULTS)
    d = open_decoder(config, tie_default=False)
    types = layer_types(config, d.num_layers, ("layer_types",), ("linear_attention", "full_attention"))
    if types is None:
        types = ["full_attention" if i % 4 == 3 else "linear_attention" for i in d.all]
        if "full_attention" not in types:
            types[-1] = "full_attention"
    full, linear = where_is(types, "full_attention"), where_is(types, "linear_attention")
    bias = config.flag("attention_bias")
    d.full(full)
    d.attention(full, bias=bias, out_bias=bias, qk_norm="full")
    _mixer(d, linear)
    output(d)
    d.mlp(d.all, config.count("intermediate_size", symbol="I", label="MLP width"))
    d.norm("input norm", "layers.{i}.input_layernorm", layers=linear)
    d.norm("post-attention norm", "layers.{i}.post_attention_layernorm", layers=d.all)
    d.norm("post-MLP norm", "layers.{i}.post_feedforward_layernorm", layers=full)
    d.norm("final norm", "norm")
    say_defaults(d)
    return d


def _mixer(d: Decoder, layers: tuple[int, ...]) -> None:
    """Gated DeltaNet with a projection for each of its inputs."""
    config, hidden = d.config, d.hidden
    attention = d.need(d.attention_heads)

    def or_else(name: str, symbol: str, label: str, value: Q) -> Q:
        return config.maybe(name, symbol=symbol, label=label) or value.as_step(symbol, label)

    key_heads = or_else("linear_num_key_heads", "h_k", "linear key heads", attention)
    value_heads = or_else("linear_num_value_heads", "h_v", "linear value heads", attention)
    key_dim = or_else("linear_key_head_dim", "d_k", "linear key head dimension", 3 * hidden // (4 * key_heads))
    value_dim = or_else("linear_value_head_dim", "d_v", "linear value head dimension", 2 * key_dim)
    kind = GatedDelta(
        key_heads=key_heads, value_heads=value_heads, key_dim=key_dim, value_dim=value_dim,
        kernel=config.count("linear_conv_kernel_dim", symbol="c", label="convolution kernel"),
        conv_bytes=conv_bytes(config), recurrent_bytes=recurrent_bytes(config),
    )  # fmt: skip
    d.layer(kind, layers)
    keys, values = key_heads * key_dim, value_heads * value_dim
    module, role, split = "layers.{i}.linear_attn", Role.STATE, Shard.COLUMN
    for name, rows in (("q", keys), ("k", keys), ("v", values), ("g", values), ("a", value_heads), ("b", value_heads)):
        d.linear(f"linear {name}_proj", role, f"{module}.{name}_proj", rows, hidden, layers=layers, shard=split)
    for name, rows in (("q", keys), ("k", keys), ("v", values)):
        d.part(f"{name}_conv1d", role, f"{module}.{name}_conv1d", rows, kind.kernel, layers=layers, shard=split)
    for name in ("A_log", "dt_bias"):
        d.part(name, role, f"{module}.{name}", value_heads, layers=layers, shard=split)
    d.norm("mixer norm", f"{module}.o_norm", layers=layers, size=value_dim)
    d.linear("linear o_proj", role, f"{module}.o_proj", hidden, values, layers=layers, shard=Shard.ROW)
