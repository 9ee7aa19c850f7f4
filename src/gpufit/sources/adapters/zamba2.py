"""Zamba2: Mamba 2 in every layer, and a few transformer blocks that many layers share, each use with a cache of its own."""

from __future__ import annotations

from gpufit.layers.mamba2 import Mamba2
from gpufit.model import LayerGroup, Role, Shard
from gpufit.quantity import Q, least
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.mixers import MAMBA_INERT, mamba2_mixer
from gpufit.sources.states import class_defaults, conv_bytes, inner_width, layer_types, recurrent_bytes, say_defaults, where_is

MODEL_TYPES = ("zamba2",)
INERT = MAMBA_INERT | {
    "attention_hidden_size", "attention_head_dim", "kv_channels", "num_query_groups", "hybrid_layer_ids", "use_mem_rope",
    "use_mem_eff_path", "use_long_context", "ffn_hidden_size", "use_shared_mlp_adapter", "use_shared_block_lora", "ft_lora", "lora_rank",
    "gated_linear_unit",
}  # fmt: skip
"""Derived widths, and names of older releases that the published class does not read."""

SOURCE = "Zamba2Config (transformers 5.24.0)"
DEFAULTS = {
    "vocab_size": 32000, "max_position_embeddings": 4096, "hidden_size": 2560, "num_hidden_layers": 54, "mamba_d_state": 64,
    "mamba_d_conv": 4, "mamba_expand": 2, "mamba_ngroups": 1, "use_conv_bias": True, "num_attention_heads": 32,
    "num_mem_blocks": 1, "adapter_rank": 128, "tie_word_embeddings": True,
}  # fmt: skip


def read(config: Config) -> Decoder:
    """Defaults: Zamba2Config (transformers 5.24.0). A hybrid layer stands in two groups: it attends, and keeps a state."""
    class_defaults(config, SOURCE, DEFAULTS)
    d = open_decoder(config, tie_default=True)
    types = layer_types(config, d.num_layers, ("layers_block_type", "layer_types"), ("mamba", "linear_attention", "hybrid"))
    if types is None:
        if int(d.num_layers) != 54:
            raise config.missing("layers_block_type")
        types = ["hybrid" if i in (6, 12, 18, 24, 30, 36, 42, 47, 51) else "mamba" for i in d.all]
    hybrid = where_is(types, "hybrid")
    d.head_dim = (2 * d.hidden // d.need(d.attention_heads)).as_step("d", "head dimension")
    d.full(hybrid)
    _mixers(d, where_is(types, "mamba", "linear_attention"), hybrid)
    _shared_blocks(d, hybrid)
    d.linear("hybrid linear", Role.ATTENTION, "layers.{i}.linear", d.hidden, d.hidden, layers=hybrid, shard=Shard.REPLICATED)
    output(d)
    d.norm("final norm", "final_layernorm")
    say_defaults(d)
    return d


def _mixers(d: Decoder, plain: tuple[int, ...], hybrid: tuple[int, ...]) -> None:
    """Mamba 2 in every layer, one name deeper in hybrid ones.

    Older releases say head dimension, state, kernel and expansion by other names, and leave the number of heads to be derived.
    """
    config = d.config
    width = config.count("mamba_expand", "expansion_factor", symbol="x", label="expansion") * d.hidden
    head_dim = config.maybe("mamba_headdim", symbol="d_m", label="Mamba head dimension")
    if head_dim is not None and not config.has("n_mamba_heads"):
        heads = (width // head_dim).as_step("h_m", "Mamba heads")
    else:
        class_defaults(config, SOURCE, {"n_mamba_heads": 8})
        heads = config.count("n_mamba_heads", symbol="h_m", label="Mamba heads")
        head_dim = (width // heads).as_step("d_m", "Mamba head dimension")
    inner_width(config, width, heads, head_dim)
    kind = Mamba2(
        heads=heads,
        head_dim=head_dim,
        state_size=config.count("mamba_d_state", "state_size", symbol="N_s", label="state size"),
        groups=config.count("mamba_ngroups", symbol="G", label="B/C groups"),
        kernel=config.count("mamba_d_conv", "conv_dimension", symbol="c", label="convolution kernel"),
        conv_bytes=conv_bytes(config),
        recurrent_bytes=recurrent_bytes(config),
    )
    groups = list(d.groups)
    bias, conv_bias = config.flag("add_bias_linear"), config.flag("use_conv_bias")
    for layers, inside in ((plain, "layers.{i}."), (hybrid, "layers.{i}.mamba_decoder.")):
        mamba2_mixer(d, layers, kind, module=f"{inside}mamba", bias=bias, out_bias=bias, conv_bias=conv_bias)
        d.norm("input norm", f"{inside}input_layernorm", layers=layers)
    d.groups = [*groups, LayerGroup(kind=kind, indices=tuple(sorted(plain + hybrid)))]


def _shared_blocks(d: Decoder, hybrid: tuple[int, ...]) -> None:
    """The shared transformer blocks, whose attention sees the hidden state and the embedding side by side, and each use's adapters."""
    if not hybrid:
        return
    config, hidden = d.config, d.hidden
    stored = config.count("num_mem_blocks", symbol="n_b", label="shared blocks")
    blocks = least(stored, config.item(len(hybrid), "layers_block_type", symbol="n_h", label="hybrid layers"))
    heads, kv, dim, both = d.need(d.attention_heads), d.need(d.kv_heads), d.need(d.head_dim), 2 * hidden
    width = config.maybe("intermediate_size", symbol="I", label="MLP width") or (4 * hidden).as_step("I", "MLP width")
    rank = config.count("adapter_rank", symbol="r", label="adapter rank")
    bias = config.flag("add_bias_linear")
    top = "shared_transformer.{e}."

    def shared(name: str, role: Role, module: str, rows: Q, columns: Q | None, shard: Shard, count: Q | None = None) -> None:
        copies = blocks if count is None else count
        matrix = columns is not None
        d.part(
            name,
            role,
            top + module,
            rows,
            columns,
            copies=copies,
            shard=shard,
            linear=matrix,
            heads=kv if shard is Shard.KV_HEADS else None,
        )

    a, m = Role.ATTENTION, Role.MLP
    shared("q_proj", a, "self_attn.q_proj", heads * dim, both, Shard.COLUMN)
    shared("k_proj", a, "self_attn.k_proj", kv * dim, both, Shard.KV_HEADS)
    shared("v_proj", a, "self_attn.v_proj", kv * dim, both, Shard.KV_HEADS)
    shared("o_proj", a, "self_attn.o_proj", hidden, heads * dim, Shard.ROW)
    shared("gate_up_proj", m, "feed_forward.gate_up_proj", 2 * width, hidden, Shard.COLUMN)
    shared("down_proj", m, "feed_forward.down_proj", hidden, width, Shard.ROW)
    if bias:
        shared("gate_up_proj bias", m, "feed_forward.gate_up_proj.bias", 2 * width, None, Shard.COLUMN)
        shared("down_proj bias", m, "feed_forward.down_proj.bias", hidden, None, Shard.REPLICATED)
    shared("shared input norm", Role.NORM, "input_layernorm", both, None, Shard.REPLICATED)
    shared("shared pre-MLP norm", Role.NORM, "pre_ff_layernorm", hidden, None, Shard.REPLICATED)
    uses = config.item(len(hybrid), "layers_block_type", symbol="n_h", label="hybrid layers")
    shared("MLP adapter in", m, "feed_forward.gate_up_proj_adapter_list.0", rank, hidden, Shard.REPLICATED, uses)
    shared("MLP adapter out", m, "feed_forward.gate_up_proj_adapter_list.1", 2 * width, rank, Shard.COLUMN, uses)
    if config.flag("use_shared_attention_adapter"):
        for name in ("q", "k", "v"):
            shared(f"{name} adapter in", a, f"self_attn.linear_{name}_adapter_list.0", rank, both, Shard.REPLICATED, uses)
            shared(f"{name} adapter out", a, f"self_attn.linear_{name}_adapter_list.1", both, rank, Shard.COLUMN, uses)
