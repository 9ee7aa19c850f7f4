"""Falcon-H1: attention and a Mamba 2 mixer side by side in every layer."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.mixers import MAMBA_INERT, mamba2_mixer
from gpufit.sources.states import class_defaults, mamba2_kind, recurrent_bytes, say_defaults

MODEL_TYPES = ("falcon_h1",)
INERT = MAMBA_INERT | {
    "attention_in_multiplier", "attention_out_multiplier", "key_multiplier", "ssm_in_multiplier", "ssm_out_multiplier", "ssm_multipliers",
    "lm_head_multiplier", "mamba_use_mlp", "attn_rotary_emb",
}  # fmt: skip
"""Multipliers of activations; `mamba_use_mlp` is read by no published class."""

DEFAULTS = {
    "vocab_size": 128000, "tie_word_embeddings": False, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192, "mamba_d_ssm": 1024, "mamba_n_heads": 128,
    "mamba_d_head": "auto", "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_conv_bias": True,
}  # fmt: skip


def read(config: Config) -> Decoder:
    """Defaults: FalconH1Config (transformers 5.24.0). Every layer stands in two groups: it keeps a KV cache and a state."""
    class_defaults(config, "FalconH1Config (transformers 5.24.0)", DEFAULTS)
    d = open_decoder(config, tie_default=False)
    bias = config.flag("attention_bias")
    d.full(d.all)
    d.attention(d.all, bias=bias, out_bias=bias)
    expand = config.count("mamba_expand", symbol="x", label="expansion")
    inner = config.maybe("mamba_d_ssm", symbol="I_m", label="Mamba channels")
    kind = mamba2_kind(config, inner if inner is not None else expand * d.hidden, state=recurrent_bytes(config))
    mamba2_mixer(
        d, d.all, kind, module="layers.{i}.mamba", bias=config.flag("mamba_proj_bias"), out_bias=config.flag("projectors_bias"),
        conv_bias=config.flag("mamba_conv_bias"), norm=config.flag("mamba_rms_norm"),
    )  # fmt: skip
    width = config.count("intermediate_size", symbol="I", label="MLP width")
    d.mlp(d.all, width, bias=config.flag("mlp_bias"), module="layers.{i}.feed_forward")
    output(d)
    d.norm("input norm", "layers.{i}.input_layernorm", layers=d.all)
    d.norm("pre-MLP norm", "layers.{i}.pre_ff_layernorm", layers=d.all)
    d.norm("final norm", "final_layernorm")
    say_defaults(d)
    return d
