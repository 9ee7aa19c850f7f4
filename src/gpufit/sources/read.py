"""From the text of a config.json to a Model: finds the family's adapter, and refuses what nobody understood."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from gpufit.errors import ConfigError
from gpufit.formats.tensor import DTYPES, PLAIN
from gpufit.model import TOWERS, Model, Published, counted
from gpufit.quantity import NUMBER, Q, fact, total
from gpufit.sources import agreement, quantization
from gpufit.sources.config import Config, suspicious
from gpufit.sources.decoder import Decoder

_HERE = Path(__file__).parent / "adapters"


_BESIDE = {"kimi_k2": "deepseek_v3", "olmo3": "olmo2", "qwen3_5_moe": "qwen3_5", "qwen3_5_moe_text": "qwen3_5_text"}
"""Families of the catalogue that share the file of another: knowing it spares an import of every adapter. The scan needs no such line."""


@cache
def _exists(name: str) -> bool:
    return (_HERE / f"{name}.py").is_file()


@cache
def _module(name: str) -> ModuleType:
    return import_module(f"gpufit.sources.adapters.{name}")


@cache
def _claims() -> tuple[dict[str, str], dict[str, str]]:
    """Every claimed model_type and architecture, to the adapter's module name. Imports all adapters: only after a miss by name."""
    types: dict[str, str] = {}
    architectures: dict[str, str] = {}
    for path in sorted(_HERE.glob("[a-z]*.py")):
        module = _module(path.stem)
        types.update(dict.fromkeys(getattr(module, "MODEL_TYPES", (path.stem,)), path.stem))
        architectures.update(dict.fromkeys(getattr(module, "ARCHITECTURES", ()), path.stem))
    return types, architectures


def families() -> tuple[str, ...]:
    """Every model_type that an adapter claims."""
    return tuple(sorted(_claims()[0]))


def adapter_for(config: Config) -> ModuleType:
    """The adapter module of a config's family, by model_type and then by architecture; `ConfigError` for an unknown family."""
    model_type = config.text("model_type") or ""
    listed = config.items("architectures") or []
    name = _BESIDE.get(model_type) or model_type.replace("-", "_").replace(".", "_").lower()
    if name and _exists(name):
        module = _module(name)
        if model_type in getattr(module, "MODEL_TYPES", (name,)):
            return module
    types, architectures = _claims()
    for architecture in listed:
        if architecture in architectures:
            return _module(architectures[architecture])
    if model_type in types:
        return _module(types[model_type])
    from difflib import get_close_matches

    near = get_close_matches(model_type, types, n=2)
    known = f"the nearest families are {', '.join(near)}; " if near else ""
    what = f"model_type {model_type!r}" if model_type else "no model_type"
    raise ConfigError(
        f"unknown family: {config.origin} has {what} and architectures {', '.join(map(str, listed)) or 'none'}",
        hint=f"{known}--assume-dense sizes it as plain full attention when nothing in it hints at another kind of layer",
    )


def decoder_of(config: Config) -> Decoder:
    """The adapter's reading of a config, also for a text_config inside a multimodal one."""
    module = adapter_for(config)
    decoder: Decoder = module.read(config)
    decoder.inert = decoder.inert | getattr(module, "INERT", frozenset())
    return decoder


def read_model(
    data: Mapping[str, Any],
    *,
    id: str,
    name: str = "",
    slug: str = "",
    origin: str = "config.json",
    published: Published | None = None,
    hf_quant: Mapping[str, Any] | None = None,
    total_params: Q | None = None,
    active_params: Q | None = None,
) -> Model:
    """The Model of a config.json.

    `published` replaces what the config itself says of the checkpoint's format; `total_params` and `active_params` replace the counts
    made from the parts (the catalogue's published counts); `hf_quant` is the content of hf_quant_config.json, where there is one.
    Raises `ConfigError` for an unknown family, an unknown quantisation, a missing field, an unread field that could change the cache,
    and a value that no reader can use.
    """
    config = Config(data, origin=origin)
    try:
        return _model(config, id, name, slug, published, hf_quant, total_params, active_params)
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ConfigError(
            f"{id}: {config.last or origin} or a field before it has a value that the reader cannot use ({type(error).__name__}: {error})",
            hint=f"check that {origin} is the model's own and whole",
        ) from error


def _model(
    config: Config,
    id: str,
    name: str,
    slug: str,
    published: Published | None,
    hf_quant: Mapping[str, Any] | None,
    total_params: Q | None,
    active_params: Q | None,
) -> Model:
    origin = config.origin
    decoder = decoder_of(config)
    agreement.settle(decoder)
    dtype = _dtype(config, decoder, say=published is None)
    share = rotary_share(decoder.config)
    if share is not None:
        decoder.extras.setdefault("rotary_share", share)
    if published is None:
        published = quantization.published(config, decoder.config, hf_quant, dtype, parts=decoder.parts)
    config.ignore(*quantization.KEYS)
    decoder.config.ignore(*quantization.KEYS)
    unread = config.unread()
    refused = suspicious(unread, decoder.inert, layers=int(decoder.num_layers))
    if refused:
        shown = ", ".join(f"{p} = {_short(unread[p])}" for p in refused[:6])
        raise ConfigError(
            f"{id}: not understood in {origin}: {shown}" + (f" and {len(refused) - 6} more" if len(refused) > 6 else ""),
            hint="these fields could change the cache or the weights, and the reader for "
            f"{config.text('model_type')!r} does not know them; a newer gpufit may",
        )
    parts = tuple(decoder.parts)
    towers = [p for p in parts if p.role in TOWERS and not p.buffer]
    return Model(
        id=id,
        name=name or id.rsplit("/", 1)[-1],
        slug=slug or id.rsplit("/", 1)[-1].lower(),
        family=config.text("model_type") or "",
        architecture=str((config.items("architectures") or [""])[0]),
        num_layers=decoder.num_layers,
        layers=tuple(decoder.groups),
        hidden_size=decoder.hidden,
        vocab_size=decoder.vocab,
        tied=decoder.tied,
        attention_heads=decoder.attention_heads,
        kv_heads=decoder.kv_heads,
        head_dim=decoder.head_dim,
        max_context=decoder.max_context,
        dtype=dtype,
        parts=parts,
        total_params=total_params or counted(parts, "N", "parameters", decoder.num_layers),
        active_params=active_params or active_count(decoder),
        vision_params=counted(towers, "N_v", "parameters of towers and projectors", decoder.num_layers) if towers else None,
        published=published,
        draft_parts=tuple(decoder.draft_parts),
        draft_layers=tuple(decoder.draft_groups),
        assumptions=tuple(decoder.assumptions),
        notes=tuple(decoder.notes),
        unused_fields=tuple(sorted(unread)),
        extras=dict(decoder.extras),
    )


def _dtype(config: Config, decoder: Decoder, *, say: bool) -> str:
    """The short name of the plain dtype; with `say`, one that no level of the file names is an assumption of the answer."""
    inner = [value for name, value in config.data.items() if isinstance(value, Mapping) and name.endswith("_config")]
    given = [level.raw("torch_dtype", "dtype") for level in (config, decoder.config)]
    given += [value.get("torch_dtype") or value.get("dtype") for value in inner]
    for stated in given:
        if stated is None or stated == "auto":
            continue
        word = str(stated).removeprefix("torch.")
        found = DTYPES.get(word, word if word in PLAIN else None)
        if found is None:
            raise ConfigError(
                f"{config.origin}: torch_dtype is {stated!r}, which is not known", hint=f"known are {', '.join(DTYPES)}"
            )
        return found
    if say:
        decoder.assumptions.append(f"{config.origin} names no dtype: tensors that are not quantised are taken as bf16")
    return "bf16"


def rotary_share(config: Config) -> Q | None:
    """The share of each head that is rotated, where a config states one; None where all of it is."""
    nested = config.raw("rope_parameters")
    for name in ("partial_rotary_factor", "rotary_pct", "rotary_percent"):
        value = config.raw(name)
        if value is None and isinstance(nested, Mapping):
            value = nested.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1:
            return fact(str(value), NUMBER, symbol="f_rot", name="share of a head that is rotated", origin=config.where(name))
    return None


def active_count(decoder: Decoder) -> Q:
    """Parameters that one token uses: everything but the routed experts it does not visit."""
    active = total((p.active_elements(decoder.num_layers) for p in decoder.parts if not p.buffer), unit=NUMBER)
    return active.as_step("N_act", "active parameters per token")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "..."
