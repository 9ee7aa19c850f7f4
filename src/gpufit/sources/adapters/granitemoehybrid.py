"""Granite 4: Mamba 2 and attention layers by a list, with a shared MLP and, in some sizes, experts beside it."""

from __future__ import annotations

from gpufit.model import Role, Shard
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.mixers import MAMBA_INERT, mamba2_mixer
from gpufit.sources.states import class_defaults, layer_types, mamba2_kind, recurrent_bytes, say_defaults, where_is

MODEL_TYPES = ("granitemoehybrid",)
INERT = MAMBA_INERT | {"attention_multiplier"}

DEFAULTS = {
    "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
    "max_position_embeddings": 2048, "tie_word_embeddings": False, "num_local_experts": 8, "num_experts_per_tok": 2,
    "shared_intermediate_size": 1024, "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_head": "auto",
    "mamba_d_conv": 4, "mamba_expand": 2, "mamba_conv_bias": True,
}  # fmt: skip


def read(config: Config) -> Decoder:
    """Defaults: GraniteMoeHybridConfig (transformers 5.24.0), where every layer is a mixer unless a list says otherwise."""
    class_defaults(config, "GraniteMoeHybridConfig (transformers 5.24.0)", DEFAULTS)
    d = open_decoder(config, tie_default=False)
    known = ("mamba", "linear_attention", "attention", "full_attention")
    types = layer_types(config, d.num_layers, ("layer_types", "layers_block_type"), known) or ["mamba"] * int(d.num_layers)
    full = where_is(types, "attention", "full_attention")
    bias, proj_bias = config.flag("attention_bias"), config.flag("mamba_proj_bias")
    d.full(full)
    d.attention(full, bias=bias, out_bias=bias)
    width = config.count("mamba_expand", symbol="x", label="expansion") * d.hidden
    mamba2_mixer(
        d, where_is(types, "mamba", "linear_attention"), mamba2_kind(config, width, state=recurrent_bytes(config)),
        module="layers.{i}.mamba", bias=proj_bias, out_bias=proj_bias, conv_bias=config.flag("mamba_conv_bias"),
    )  # fmt: skip
    experts = config.maybe("num_local_experts", symbol="E", label="routed experts")
    sparse = experts is not None and experts > 0
    per_token = config.maybe("num_experts_per_tok", symbol="E_k", label="experts per token")
    wide = config.count("intermediate_size", symbol="I_e", label="expert width")
    role, label = (Role.SHARED_EXPERTS, "shared expert") if sparse else (Role.MLP, "MLP")
    if experts is not None and sparse:
        if per_token is None:
            raise config.missing("num_experts_per_tok")
        moe, used = "layers.{i}.block_sparse_moe", (per_token, experts)
        d.part("router", Role.ROUTER, f"{moe}.router.layer", experts, d.hidden, layers=d.all)
        routed = Role.ROUTED_EXPERTS
        d.linear(
            "expert input_linear",
            routed,
            f"{moe}.input_linear",
            2 * wide,
            d.hidden,
            layers=d.all,
            shard=Shard.COLUMN,
            copies=experts,
            active=used,
        )
        d.linear(
            "expert output_linear",
            routed,
            f"{moe}.output_linear",
            d.hidden,
            wide,
            layers=d.all,
            shard=Shard.ROW,
            copies=experts,
            active=used,
        )
    shared = config.count("shared_intermediate_size", symbol="I_s", label="shared MLP width")
    d.linear(
        f"{label} input_linear", role, "layers.{i}.shared_mlp.input_linear", 2 * shared, d.hidden, layers=d.all, shard=Shard.COLUMN
    )
    d.linear(f"{label} output_linear", role, "layers.{i}.shared_mlp.output_linear", d.hidden, shared, layers=d.all, shard=Shard.ROW)
    output(d)
    d.norm("input norm", "layers.{i}.input_layernorm", layers=d.all)
    d.norm("post-attention norm", "layers.{i}.post_attention_layernorm", layers=d.all)
    d.norm("final norm", "norm")
    say_defaults(d)
    return d
