"""RecurrentGemma (Griffin): two gated linear recurrences for each layer of local attention."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.layers.rg_lru import RgLru
from gpufit.layers.sliding import Sliding
from gpufit.model import Role, Shard
from gpufit.quantity import TOKEN_PER_SEQUENCE
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.states import class_defaults, conv_bytes, recurrent_bytes, say_defaults, where_is

MODEL_TYPES = ("recurrent_gemma",)
INERT = frozenset({"w_init_variance_scale", "final_w_init_variance_scale", "logits_soft_cap", "_block_types"})

DEFAULTS = {
    "num_hidden_layers": 26, "vocab_size": 256000, "hidden_size": 2560, "intermediate_size": 7680, "num_attention_heads": 10,
    "attention_window_size": 2048, "conv1d_width": 4, "tie_word_embeddings": True, "block_types": ["recurrent", "recurrent", "attention"],
}  # fmt: skip


def read(config: Config) -> Decoder:
    """Defaults: RecurrentGemmaConfig (transformers 5.24.0). The recurrent state is fp32 there."""
    class_defaults(config, "RecurrentGemmaConfig (transformers 5.24.0)", DEFAULTS)
    d = open_decoder(config, tie_default=True)
    d.head_dim = (d.hidden // d.need(d.attention_heads)).as_step("d", "head dimension")
    config.ignore("head_dim")
    period = config.items("block_types") or []
    unknown = [word for word in period if word not in ("recurrent", "attention")]
    if unknown or not period:
        raise ConfigError(
            f"{config.where('block_types')} is {period}, expected recurrent and attention", hint="check the config.json"
        )
    types = [str(period[i % len(period)]) for i in d.all]
    full, recurrent = where_is(types, "attention"), where_is(types, "recurrent")
    window = config.count("attention_window_size", symbol="w", label="attention window", unit=TOKEN_PER_SEQUENCE)
    d.layer(
        Sliding(attention_heads=d.need(d.attention_heads), kv_heads=d.need(d.kv_heads), head_dim=d.head_dim, window=window), full
    )  # fmt: skip
    d.attention(full, bias=config.flag("attention_bias"), out_bias=True, module="layers.{i}.temporal_block")
    _recurrence(d, recurrent)
    width = config.count("intermediate_size", symbol="I_2", label="MLP widths of gate and up together") // 2
    d.mlp(d.all, width, bias=True, module="layers.{i}.mlp_block")
    output(d)
    d.norm("temporal norm", "layers.{i}.temporal_pre_norm", layers=d.all)
    d.norm("channel norm", "layers.{i}.channel_pre_norm", layers=d.all)
    d.norm("final norm", "final_norm")
    say_defaults(d)
    return d


def _recurrence(d: Decoder, layers: tuple[int, ...]) -> None:
    """The recurrent block: two branches in, a convolution, gates that are block-diagonal over the heads, one projection out."""
    config, module, role = d.config, "layers.{i}.temporal_block", Role.STATE
    width = config.maybe("lru_width", symbol="I_r", label="recurrent channels") or d.hidden
    heads = d.need(d.attention_heads)
    kind = RgLru(
        channels=width,
        kernel=config.count("conv1d_width", symbol="c", label="convolution kernel"),
        conv_bytes=conv_bytes(config),
        recurrent_bytes=recurrent_bytes(
            config, default=Default(value="float32", source="RecurrentGemmaRglru (transformers 5.24.0)")
        ),
    )
    d.layer(kind, layers)
    for name in ("linear_y", "linear_x"):
        d.linear(name, role, f"{module}.{name}", width, d.hidden, layers=layers, shard=Shard.COLUMN, bias=True)
    d.linear("linear_out", role, f"{module}.linear_out", d.hidden, width, layers=layers, shard=Shard.ROW, bias=True)
    d.part("conv_1d", role, f"{module}.conv_1d", width, kind.kernel, layers=layers, shard=Shard.COLUMN)
    d.part("conv_1d bias", role, f"{module}.conv_1d.bias", width, layers=layers, shard=Shard.COLUMN)
    d.part("recurrent_param", role, f"{module}.rg_lru.recurrent_param", width, layers=layers, shard=Shard.COLUMN)
    for name in ("input_gate", "recurrent_gate"):
        d.part(f"{name}_weight", role, f"{module}.rg_lru.{name}_weight", width, width // heads, layers=layers, shard=Shard.COLUMN)
        d.part(f"{name}_bias", role, f"{module}.rg_lru.{name}_bias", width, layers=layers, shard=Shard.COLUMN)
