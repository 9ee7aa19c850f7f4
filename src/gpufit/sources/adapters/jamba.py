"""Jamba: Mamba mixers with an attention layer every few, and a mixture of experts in every second layer."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.layers.mamba1 import Mamba1
from gpufit.sources.adapters.mamba import time_step_rank
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.mixers import MAMBA_INERT, mamba1_mixer
from gpufit.sources.states import class_defaults, conv_bytes, recurrent_bytes, say_defaults

MODEL_TYPES = ("jamba",)
INERT = MAMBA_INERT

DEFAULTS = {
    "vocab_size": 65536, "tie_word_embeddings": False, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 262144, "num_experts_per_tok": 2, "num_experts": 16,
    "expert_layer_period": 2, "expert_layer_offset": 1, "attn_layer_period": 8, "attn_layer_offset": 4, "mamba_d_state": 16,
    "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": "auto", "mamba_conv_bias": True,
}  # fmt: skip


def read(config: Config) -> Decoder:
    """Defaults: JambaConfig (transformers 5.24.0). With one expert every layer has a plain MLP (Jamba Reasoning)."""
    class_defaults(config, "JambaConfig (transformers 5.24.0)", DEFAULTS)
    d = open_decoder(config, tie_default=False)
    full = _every(config, "attn", d)
    mixed = tuple(i for i in d.all if i not in full)
    d.full(full)
    d.attention(full)
    kind = Mamba1(
        channels=(config.count("mamba_expand", symbol="x", label="expansion") * d.hidden).as_step("I_m", "Mamba channels"),
        state_size=config.count("mamba_d_state", symbol="N_s", label="state size"),
        kernel=config.count("mamba_d_conv", symbol="c", label="convolution kernel"),
        conv_bytes=conv_bytes(config),
        recurrent_bytes=recurrent_bytes(config),
    )
    mamba1_mixer(
        d, mixed, kind, time_step_rank(config, d.hidden, "mamba_dt_rank"), module="layers.{i}.mamba", bias=config.flag("mamba_proj_bias"),
        conv_bias=config.flag("mamba_conv_bias"), norms=("dt_layernorm", "b_layernorm", "c_layernorm"),
    )  # fmt: skip
    width = config.count("intermediate_size", symbol="I", label="MLP width")
    experts = config.count("num_experts", "num_local_experts", symbol="E", label="routed experts")
    sparse = _every(config, "expert", d) if experts > 1 else ()
    config.ignore("expert_layer_period", "expert_layer_offset")
    d.mlp((i for i in d.all if i not in sparse), width, module="layers.{i}.feed_forward")
    per_token = config.count("num_experts_per_tok", symbol="E_k", label="experts per token")
    d.experts(sparse, experts=experts, per_token=per_token, intermediate=width, module="layers.{i}.feed_forward", router="router")
    output(d)
    d.norm("input norm", "layers.{i}.input_layernorm", layers=d.all)
    d.norm("pre-MLP norm", "layers.{i}.pre_ff_layernorm", layers=d.all)
    d.norm("final norm", "final_layernorm")
    say_defaults(d)
    return d


def _every(config: Config, what: str, d: Decoder) -> tuple[int, ...]:
    """The layers that `<what>_layer_period` and `<what>_layer_offset` pick."""
    period, offset = config.integer(f"{what}_layer_period"), config.integer(f"{what}_layer_offset")
    if offset >= period:
        raise ConfigError(
            f"{config.where(f'{what}_layer_offset')} is {offset}, but the period is {period}", hint="check the config.json"
        )
    return tuple(i for i in d.all if i % period == offset)
