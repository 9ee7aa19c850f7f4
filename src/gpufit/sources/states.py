"""What configs say of recurrent layers: the dtypes of their states, and which layers they are."""

from __future__ import annotations

from typing import Any

from gpufit.errors import ConfigError
from gpufit.layers.mamba2 import Mamba2
from gpufit.layers.state import STATE_UNIT
from gpufit.quantity import Q, fact
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import STRUCTURE

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
        return fact(
            _size(str(default.value), default.source),
            STATE_UNIT,
            symbol=symbol,
            name=f"{label} ({default.value})",
            origin=f"default of {default.source}",
        )
    return _model_dtype(config, symbol, label)


def _model_dtype(config: Config, symbol: str, label: str) -> Q:
    name = config.name_of("torch_dtype", "dtype")
    said = config.text("torch_dtype", "dtype")
    if name is None or said is None:
        return fact(
            2, STATE_UNIT, symbol=symbol, name=f"{label} (bfloat16)", origin="no torch_dtype: 16 bits, as engines take by default"
        )
    where = config.where(name)
    if _size(said, where) == 4:
        return fact(
            2, STATE_UNIT, symbol=symbol, name=f"{label} (16 bits)", origin=f"{where} = {said}, served at 16 bits by default"
        )
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


def class_defaults(config: Config, source: str, values: dict[str, Any]) -> None:
    """Makes the defaults of a configuration class known to a config: `values` by published name, `source` the class and its version.

    A file of its own always names its width, layers and heads: there an absence means that it is not whole, and is refused.
    """
    known = values if config.path else {name: value for name, value in values.items() if name not in STRUCTURE}
    config.fall_back({name: Default(value=value, source=source) for name, value in known.items()})


def say_defaults(d: Decoder) -> None:
    """Says in the answer which fields a whole config.json leaves to its class; nested configs are published as differences from it."""
    config = d.config
    absent: dict[str, list[str]] = {}
    for name in config.fell_back if not config.path else ():
        absent.setdefault(config.fallbacks[name].source, []).append(name)
    for source, names in absent.items():
        d.assumptions.append(f"{config.origin} has no {', '.join(names)}: the defaults of {source} are used")


def inner_width(config: Config, width: Q, heads: Q, head_dim: Q) -> None:
    """Refuses Mamba 2 heads that do not fill the mixer's inner width, as the published classes do."""
    if int(heads) * int(head_dim) != int(width):
        raise ConfigError(
            f"{config.origin}: {int(heads)} Mamba heads of {int(head_dim)} are not the mixer's {int(width)} channels",
            hint="check the config.json",
        )


def mamba2_kind(config: Config, width: Q, *, state: Q) -> Mamba2:
    """The Mamba 2 kind of the families that name their fields mamba_*; `mamba_d_head` "auto" is an equal share of `width`."""
    heads = config.count("mamba_n_heads", symbol="h_m", label="Mamba heads")
    if config.raw("mamba_d_head") in (None, "auto"):
        head_dim = (width // heads).as_step("d_m", "Mamba head dimension")
    else:
        head_dim = config.count("mamba_d_head", symbol="d_m", label="Mamba head dimension")
    inner_width(config, width, heads, head_dim)
    return Mamba2(
        heads=heads,
        head_dim=head_dim,
        state_size=config.count("mamba_d_state", symbol="N_s", label="state size"),
        groups=config.count("mamba_n_groups", symbol="G", label="B/C groups"),
        kernel=config.count("mamba_d_conv", symbol="c", label="convolution kernel"),
        conv_bytes=conv_bytes(config),
        recurrent_bytes=state,
    )
