"""Bamba: Mamba 2 layers with attention at listed places, a gated MLP in each."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.mixers import MAMBA_INERT, mamba2_mixer
from gpufit.sources.states import class_defaults, layer_types, mamba2_kind, recurrent_bytes, say_defaults, where_is

MODEL_TYPES = ("bamba",)
INERT = MAMBA_INERT | {"attn_rotary_emb"}

DEFAULTS = {
    "vocab_size": 128000, "tie_word_embeddings": False, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 262144, "mamba_n_heads": 128, "mamba_d_head": "auto",
    "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_conv_bias": True,
}  # fmt: skip


def read(config: Config) -> Decoder:
    """Defaults: BambaConfig (transformers 5.24.0); without `attn_layer_indices` no layer has attention."""
    class_defaults(config, "BambaConfig (transformers 5.24.0)", DEFAULTS)
    d = open_decoder(config, tie_default=False)
    types = layer_types(
        config, d.num_layers, ("layer_types", "layers_block_type"), ("linear_attention", "full_attention", "mamba", "attention")
    )
    listed = config.items("attn_layer_indices") or []
    if any(i not in d.all for i in listed):
        raise ConfigError(
            f"{config.where('attn_layer_indices')} is {listed} for {int(d.num_layers)} layers", hint="check the config.json"
        )
    full = tuple(i for i in d.all if i in listed) if types is None else where_is(types, "full_attention", "attention")
    bias, proj_bias = config.flag("attention_bias"), config.flag("mamba_proj_bias")
    d.full(full)
    d.attention(full, bias=bias, out_bias=bias)
    width = config.count("mamba_expand", symbol="x", label="expansion") * d.hidden
    mamba2_mixer(
        d, (i for i in d.all if i not in full), mamba2_kind(config, width, state=recurrent_bytes(config)), module="layers.{i}.mamba",
        bias=proj_bias, out_bias=proj_bias, conv_bias=config.flag("mamba_conv_bias"),
    )  # fmt: skip
    dense = config.count("intermediate_size", symbol="I", label="MLP width")
    d.mlp(d.all, dense, bias=config.flag("mlp_bias"), module="layers.{i}.feed_forward")
    output(d)
    d.norm("input norm", "layers.{i}.input_layernorm", layers=d.all)
    d.norm("pre-MLP norm", "layers.{i}.pre_ff_layernorm", layers=d.all)
    d.norm("final norm", "final_layernorm")
    say_defaults(d)
    return d
