"""LFM2: gated short convolutions with attention at listed places, dense or with experts."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.layers.short_conv import ShortConv
from gpufit.quantity import NUMBER, Q, fact, floor, round_up
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.mixers import short_conv_mixer
from gpufit.sources.states import class_defaults, conv_bytes, layer_types, recurrent_bytes, say_defaults, where_is

MODEL_TYPES = ("lfm2", "lfm2_moe")
INERT = frozenset(
    {"block_mlp_init_scale", "block_norm_eps", "block_out_init_scale", "block_use_swiglu", "block_use_xavier_init", "conv_use_xavier_init",
     "block_dim"}
)  # fmt: skip
"""Training and numerics; the MLP is gated and the blocks are as wide as the hidden size in the published class whatever these say."""

_BOTH = {
    "vocab_size": 65536, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 128000,
    "tie_word_embeddings": True, "conv_L_cache": 3,
}  # fmt: skip
DENSE = _BOTH | {
    "hidden_size": 2560, "intermediate_size": 12288, "block_multiple_of": 256, "block_ffn_dim_multiplier": 1,
    "block_auto_adjust_ff_dim": True,
}  # fmt: skip
SPARSE = _BOTH | {
    "hidden_size": 2048, "intermediate_size": 7168, "moe_intermediate_size": 1792, "num_dense_layers": 2, "num_experts_per_tok": 4,
    "num_experts": 32, "use_expert_bias": True,
}  # fmt: skip


def read(config: Config) -> Decoder:
    """Defaults: Lfm2Config and Lfm2MoeConfig (transformers 5.24.0)."""
    sparse = config.text("model_type") == "lfm2_moe"
    class_defaults(config, f"Lfm2{'Moe' if sparse else ''}Config (transformers 5.24.0)", SPARSE if sparse else DENSE)
    d = open_decoder(config, tie_default=True)
    if config.has("tie_embedding"):
        d.tied = config.flag("tie_embedding")
    full = _attention_layers(config, d)
    convolved = tuple(i for i in d.all if i not in full)
    d.full(full)
    d.attention(full, names=("q_proj", "k_proj", "v_proj", "out_proj"))
    for name in ("q_layernorm", "k_layernorm"):
        d.norm(name, f"layers.{{i}}.self_attn.{name}", layers=full, size=d.head_dim)
    for name in ("conv_dim", "conv_dim_out"):
        if config.integer(name, default=int(d.hidden)) != int(d.hidden):
            raise ConfigError(
                f"{config.where(name)} is {config.raw(name)}, but the hidden size is {int(d.hidden)}",
                hint="no published class has convolutions of another width",
            )
    kind = ShortConv(
        channels=d.hidden,
        kernel=config.count("conv_L_cache", symbol="c", label="convolution kernel"),
        conv_bytes=conv_bytes(config),
        recurrent_bytes=recurrent_bytes(config),
    )
    short_conv_mixer(d, convolved, kind, bias=config.flag("conv_bias"))
    _feed_forward(d, sparse)
    output(d)
    d.norm("operator norm", "layers.{i}.operator_norm", layers=d.all)
    d.norm("MLP norm", "layers.{i}.ffn_norm", layers=d.all)
    d.norm("final norm", "embedding_norm")
    say_defaults(d)
    return d


def _attention_layers(config: Config, d: Decoder) -> tuple[int, ...]:
    """The attention layers: by `layer_types`, else by `full_attn_idxs`, else all of them, as the published class takes it."""
    types = layer_types(config, d.num_layers, ("layer_types",), ("conv", "full_attention"))
    listed = config.items("full_attn_idxs")
    if types is not None:
        return where_is(types, "full_attention")
    if listed is None:
        if config.text("model_type") == "lfm2_moe":
            raise config.missing("layer_types")
        return tuple(d.all)
    if any(i not in d.all for i in listed):
        raise ConfigError(
            f"{config.where('full_attn_idxs')} is {listed} for {int(d.num_layers)} layers", hint="check the config.json"
        )
    return tuple(i for i in d.all if i in listed)


def _feed_forward(d: Decoder, sparse: bool) -> None:
    """A gated MLP everywhere, or experts after the first dense layers."""
    config, names = d.config, ("w1", "w3", "w2")
    width = config.count("block_ff_dim", "intermediate_size", symbol="I", label="MLP width")
    if not sparse:
        d.mlp(d.all, _adjusted(config, width), module="layers.{i}.feed_forward", names=names)
        return
    dense = config.integer("num_dense_layers")
    d.mlp(d.all[:dense], width, module="layers.{i}.feed_forward", names=names)
    d.experts(
        d.all[dense:],
        experts=config.count("num_experts", symbol="E", label="routed experts"),
        per_token=config.count("num_experts_per_tok", symbol="E_k", label="experts per token"),
        intermediate=config.count("moe_intermediate_size", symbol="I_e", label="expert width"),
        score_correction=config.flag("use_expert_bias"), module="layers.{i}.feed_forward", names=names,
    )  # fmt: skip


def _adjusted(config: Config, width: Q) -> Q:
    """The MLP width that the class makes of the stated one: two thirds of it, times a multiplier, rounded up to a multiple."""
    if not config.flag("block_auto_adjust_ff_dim"):
        config.ignore("block_multiple_of", "block_ffn_dim_multiplier")
        return width
    adjusted = 2 * width // 3
    multiplier = config.raw("block_ffn_dim_multiplier")
    if multiplier is not None:
        if multiplier != 1:
            where = config.where("block_ffn_dim_multiplier")
            adjusted = floor(adjusted * fact(str(multiplier), NUMBER, symbol="m", name="MLP width multiplier", origin=where))
        adjusted = round_up(adjusted, config.count("block_multiple_of", symbol="a", label="multiple of the MLP width"))
    return adjusted.as_step("I", "MLP width")
