"""The weight parts of state mixers as published, and how each splits: what several families share."""

from __future__ import annotations

from gpufit.layers.gated_delta import GatedDelta
from gpufit.layers.kda import Kda
from gpufit.layers.mamba1 import Mamba1
from gpufit.layers.mamba2 import Mamba2
from gpufit.layers.short_conv import ShortConv
from gpufit.model import Role, Shard
from gpufit.quantity import Q
from gpufit.sources.decoder import Decoder, Layers

MAMBA_INERT = frozenset(
    {"use_mamba_kernels", "use_mambapy", "use_falcon_mambapy", "mamba_chunk_size", "chunk_size", "residual_in_fp32", "mamba_hidden_act",
     "num_logits_to_keep", "mamba_norm_before_gate", "time_step_rank"}
)  # fmt: skip
"""Fields of Mamba families that choose a kernel, a chunk of work or a numeric detail, and change no byte."""


def gated_delta_mixer(d: Decoder, layers: Layers, kind: GatedDelta, *, fused: bool, module: str = "layers.{i}.linear_attn") -> None:
    """Gated DeltaNet layers as in Qwen3-Next and Qwen3.5: projections, convolution over q, k and v, decay, gated norm, and the kind.

    `fused` is Qwen3-Next's publication of q, k, v and z in one matrix and of b and a in another; Qwen3.5 has four matrices. The decay
    A_log is kept at fp32.
    """
    at = tuple(layers)
    if not at:
        return
    d.layer(kind, at)
    keys, values = kind.key_heads * kind.key_dim, kind.value_heads * kind.value_dim
    role, split = Role.STATE, Shard.COLUMN
    if fused:
        d.linear("in_proj_qkvz", role, f"{module}.in_proj_qkvz", 2 * keys + 2 * values, d.hidden, layers=at, shard=split)
        d.linear("in_proj_ba", role, f"{module}.in_proj_ba", 2 * kind.value_heads, d.hidden, layers=at, shard=split)
    else:
        d.linear("in_proj_qkv", role, f"{module}.in_proj_qkv", 2 * keys + values, d.hidden, layers=at, shard=split)
        d.linear("in_proj_z", role, f"{module}.in_proj_z", values, d.hidden, layers=at, shard=split)
        d.linear("in_proj_b", role, f"{module}.in_proj_b", kind.value_heads, d.hidden, layers=at, shard=split)
        d.linear("in_proj_a", role, f"{module}.in_proj_a", kind.value_heads, d.hidden, layers=at, shard=split)
    d.part("conv1d", role, f"{module}.conv1d", 2 * keys + values, kind.kernel, layers=at, shard=split)
    d.part("dt_bias", role, f"{module}.dt_bias", kind.value_heads, layers=at, shard=split)
    d.part("A_log", role, f"{module}.A_log", kind.value_heads, layers=at, shard=split, dtype="fp32")
    d.norm("mixer norm", f"{module}.norm", layers=at, size=kind.value_dim)
    d.linear("out_proj", role, f"{module}.out_proj", d.hidden, values, layers=at, shard=Shard.ROW)


def mamba2_mixer(
    d: Decoder,
    layers: Layers,
    kind: Mamba2,
    *,
    module: str = "layers.{i}.mixer",
    bias: bool = False,
    out_bias: bool = False,
    conv_bias: bool = True,
    norm: bool = True,
) -> None:
    """Mamba 2 layers under the names that all published families share, and the kind.

    The input projection makes z, x, B, C and dt in one matrix. A single B/C group is copied to every tensor-parallel rank while the rest
    is split, so it stands in a part of its own. The decay A_log is kept at fp32 (vLLM 0.33.0, mamba_mixer2.py). `norm` is the gated
    norm before the output projection.
    """
    at = tuple(layers)
    if not at:
        return
    d.layer(kind, at)
    inner, shared = kind.heads * kind.head_dim, 2 * kind.groups * kind.state_size
    role, split = Role.STATE, Shard.COLUMN
    if int(kind.groups) == 1:
        d.linear("in_proj z, x, dt", role, f"{module}.in_proj", 2 * inner + kind.heads, d.hidden, layers=at, shard=split, bias=bias)
        d.linear(
            "in_proj B, C",
            role,
            f"{module}.in_proj",
            shared,
            d.hidden,
            layers=at,
            shard=Shard.KV_HEADS,
            heads=kind.groups,
            bias=bias,
        )
        convolved: tuple[tuple[str, Q, Shard, Q | None], ...] = (
            (" x", inner, split, None),
            (" B, C", shared, Shard.KV_HEADS, kind.groups),
        )
    else:
        d.linear("in_proj", role, f"{module}.in_proj", 2 * inner + shared + kind.heads, d.hidden, layers=at, shard=split, bias=bias)
        convolved = (("", inner + shared, split, None),)
    for what, channels, shard, heads in convolved:
        d.part(f"conv1d{what}", role, f"{module}.conv1d", channels, kind.kernel, layers=at, shard=shard, heads=heads)
        if conv_bias:
            d.part(f"conv1d{what} bias", role, f"{module}.conv1d.bias", channels, layers=at, shard=shard, heads=heads)
    d.part("dt_bias", role, f"{module}.dt_bias", kind.heads, layers=at, shard=split)
    d.part("A_log", role, f"{module}.A_log", kind.heads, layers=at, shard=split, dtype="fp32")
    d.part("D", role, f"{module}.D", kind.heads, layers=at, shard=split)
    if norm:
        d.part("mixer norm", Role.NORM, f"{module}.norm", inner, layers=at, shard=split)
    d.linear("out_proj", role, f"{module}.out_proj", d.hidden, inner, layers=at, shard=Shard.ROW, bias=out_bias)


def mamba1_mixer(
    d: Decoder,
    layers: Layers,
    kind: Mamba1,
    rank: Q,
    *,
    module: str = "layers.{i}.mixer",
    bias: bool = False,
    conv_bias: bool = True,
    norms: tuple[str, str, str] | None = None,
) -> None:
    """Mamba layers under the names that all published families share, and the kind. `rank` is that of the time step.

    The projection to dt, B and C takes the split channels in, so its rows are whole on every rank. `norms` are weighted norms of dt,
    B and C (Jamba). The decay A_log is kept at fp32 (vLLM 0.33.0, mamba_mixer.py).
    """
    at = tuple(layers)
    if not at:
        return
    d.layer(kind, at)
    role, split = Role.STATE, Shard.COLUMN
    d.linear("in_proj", role, f"{module}.in_proj", 2 * kind.channels, d.hidden, layers=at, shard=split, bias=bias)
    d.part("conv1d", role, f"{module}.conv1d", kind.channels, kind.kernel, layers=at, shard=split)
    if conv_bias:
        d.part("conv1d bias", role, f"{module}.conv1d.bias", kind.channels, layers=at, shard=split)
    d.linear("x_proj", role, f"{module}.x_proj", rank + 2 * kind.state_size, kind.channels, layers=at, shard=Shard.ROW)
    d.linear("dt_proj", role, f"{module}.dt_proj", kind.channels, rank, layers=at, shard=split, bias=True)
    d.part("A_log", role, f"{module}.A_log", kind.channels, kind.state_size, layers=at, shard=split, dtype="fp32")
    d.part("D", role, f"{module}.D", kind.channels, layers=at, shard=split)
    if norms is not None:
        for name, size in zip(norms, (rank, kind.state_size, kind.state_size), strict=True):
            d.norm(name, f"{module}.{name}", layers=at, size=size)
    d.linear("out_proj", role, f"{module}.out_proj", d.hidden, kind.channels, layers=at, shard=Shard.ROW, bias=bias)


def short_conv_mixer(d: Decoder, layers: Layers, kind: ShortConv, *, bias: bool, module: str = "layers.{i}.conv") -> None:
    """Gated short convolutions as in LFM2: two gates and the input from one projection, and the kind."""
    at = tuple(layers)
    if not at:
        return
    d.layer(kind, at)
    role = Role.STATE
    d.linear("conv in_proj", role, f"{module}.in_proj", 3 * kind.channels, d.hidden, layers=at, shard=Shard.COLUMN, bias=bias)
    d.part("conv", role, f"{module}.conv", kind.channels, kind.kernel, layers=at, shard=Shard.COLUMN)
    if bias:
        d.part("conv bias", role, f"{module}.conv.bias", kind.channels, layers=at, shard=Shard.COLUMN)
    d.linear("conv out_proj", role, f"{module}.out_proj", d.hidden, kind.channels, layers=at, shard=Shard.ROW, bias=bias)


def kda_mixer(
    d: Decoder, layers: Layers, kind: Kda, *, low_rank_gate: bool, low_rank_decay: bool = True, module: str = "layers.{i}.self_attn"
) -> None:
    """Kimi Delta Attention layers: projections, three convolutions, decay, output gate, gated norm, and the kind.

    Decay and output gate come through a bottleneck of head_dim where they are low-rank, whose first half is whole on every rank.
    Convolutions, dt_bias and A_log are kept at fp32 (vLLM 0.33.0: models/kimi_k3, bailing_moe_v3.py).
    """
    at = tuple(layers)
    if not at:
        return
    d.layer(kind, at)
    width = (kind.heads * kind.head_dim).as_step("I_m", "width of a delta-attention layer")
    role, split = Role.STATE, Shard.COLUMN
    for name in ("q_proj", "k_proj", "v_proj"):
        d.linear(f"linear {name}", role, f"{module}.{name}", width, d.hidden, layers=at, shard=split)
    for name in ("q_conv1d", "k_conv1d", "v_conv1d"):
        d.part(name, role, f"{module}.{name}", width, kind.kernel, layers=at, shard=split, dtype="fp32")
    for letter, low in (("f", low_rank_decay), ("g", low_rank_gate)):
        if low:
            d.linear(
                f"{letter}_a_proj", role, f"{module}.{letter}_a_proj", kind.head_dim, d.hidden, layers=at, shard=Shard.REPLICATED
            )
            d.linear(f"{letter}_b_proj", role, f"{module}.{letter}_b_proj", width, kind.head_dim, layers=at, shard=split)
        else:
            d.linear(f"linear {letter}_proj", role, f"{module}.{letter}_proj", width, d.hidden, layers=at, shard=split)
    d.linear("b_proj", role, f"{module}.b_proj", kind.heads, d.hidden, layers=at, shard=split)
    d.part("dt_bias", role, f"{module}.dt_bias", width, layers=at, shard=split, dtype="fp32")
    d.part("A_log", role, f"{module}.A_log", kind.heads, layers=at, shard=split, dtype="fp32")
    d.norm("mixer norm", f"{module}.o_norm", layers=at, size=kind.head_dim)
    d.linear("linear o_proj", role, f"{module}.o_proj", d.hidden, width, layers=at, shard=Shard.ROW)
