"""What the state mixers of several families have in common: the dtypes of their states, and their projections as published."""

from __future__ import annotations

from typing import Any

from gpufit.errors import ConfigError
from gpufit.layers.gated_delta import GatedDelta
from gpufit.layers.mamba2 import Mamba2
from gpufit.layers.state import STATE_UNIT
from gpufit.model import Role, Shard
from gpufit.quantity import Q, fact
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder, Layers

_BYTES = {
    "bfloat16": 2, "bf16": 2, "float16": 2, "fp16": 2, "half": 2, "float32": 4, "fp32": 4, "float": 4,
    "float8_e4m3fn": 1, "fp8": 1,
}  # fmt: skip


def conv_bytes(config: Config) -> Q:
    """B/sequence of one element of a convolution state: the model's own dtype."""
    return _model_dtype(config, "b_c", "bytes of one convolution state element")


def recurrent_bytes(config: Config, *names: str, default: Default | None = None) -> Q:
    """B/sequence of one element of a recurrent state: the dtype that one of `names` asks for, else `default`, else the model's own.

    The source of each family's rule is vLLM 0.33.0 (model_executor/models/config.py and layers/mamba/mamba_utils.py), whose flag
    --mamba-ssm-cache-dtype can change it.
    """
    symbol, label = "b_r", "bytes of one recurrent state element"
    asked = config.text(*names) if names else None
    if asked is not None and asked != "auto":
        where = config.where(config.name_of(*names) or names[0])
        return fact(_size(asked, where), STATE_UNIT, symbol=symbol, name=f"{label} ({asked})", origin=f"{where} = {asked}")
    if default is not None:
        return fact(_size(str(default.value), default.source), STATE_UNIT, symbol=symbol, name=f"{label} ({default.value})", origin=f"default of {default.source}")
    return _model_dtype(config, symbol, label)


def _model_dtype(config: Config, symbol: str, label: str) -> Q:
    name = config.name_of("torch_dtype", "dtype")
    said = config.text("torch_dtype", "dtype")
    if name is None or said is None:
        return fact(2, STATE_UNIT, symbol=symbol, name=f"{label} (bfloat16)", origin="no torch_dtype: 16 bits, as engines take by default")
    where = config.where(name)
    if _size(said, where) == 4:
        return fact(2, STATE_UNIT, symbol=symbol, name=f"{label} (16 bits)", origin=f"{where} = {said}, served at 16 bits by default")
    return fact(_size(said, where), STATE_UNIT, symbol=symbol, name=f"{label} ({said})", origin=f"{where} = {said}")


def _size(dtype: str, where: str) -> int:
    size = _BYTES.get(dtype.removeprefix("torch."))
    if size is None:
        raise ConfigError(f"{where} is {dtype!r}, which is no known dtype", hint="bfloat16, float16 and float32 are known")
    return size


def layer_types(config: Config, num_layers: Q, names: tuple[str, ...], known: tuple[str, ...]) -> list[str] | None:
    """The list that names each layer's kind, or None when absent; refused when its length or one of its words is not understood."""
    listed = config.items(*names)
    if listed is None:
        return None
    where = config.where(config.name_of(*names) or names[0])
    if len(listed) != int(num_layers):
        raise ConfigError(f"{where} names {len(listed)} layers, but the model has {int(num_layers)}", hint="check the config.json")
    for index, word in enumerate(listed):
        if word not in known:
            raise ConfigError(f"{where}[{index}] is {word!r}, an unknown kind of layer", hint=f"known here: {', '.join(known)}")
    return [str(word) for word in listed]


def where_is(types: list[str], *words: str) -> tuple[int, ...]:
    """The indices of the layers whose type is one of these words."""
    return tuple(i for i, word in enumerate(types) if word in words)


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


def class_defaults(config: Config, source: str, values: dict[str, Any]) -> None:
    """Makes the defaults of a configuration class known to a config: `values` by published name, `source` the class and its version."""
    config.fall_back({name: Default(value=value, source=source) for name, value in values.items()})


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
        d.linear("in_proj B, C", role, f"{module}.in_proj", shared, d.hidden, layers=at, shard=Shard.KV_HEADS, heads=kind.groups, bias=bias)
        convolved = ((" x", inner, split, None), (" B, C", shared, Shard.KV_HEADS, kind.groups))
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
