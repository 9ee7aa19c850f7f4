"""What a checkpoint says of its own format: finds the declaration, has its method read, and puts the result into words.

A checkpoint may declare its quantisation in config.json as `quantization_config` (most), `compression_config` (older
compressed-tensors), `quantization` (MLX), inside `text_config` (Kimi), or only in hf_quant_config.json (modelopt). What is in config.json
comes first: that is what serving engines read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from gpufit.errors import ConfigError
from gpufit.formats.recipe import AllPlain
from gpufit.formats.tensor import PLAIN, Plain
from gpufit.model import Published, Recipe, WeightPart
from gpufit.sources.config import Config, is_off
from gpufit.sources.quant.base import Declared, Found, refuse_unread

_HERE = Path(__file__).parent / "quant"

KEYS = ("quantization", "quantization_config", "compression_config")
"""The fields of config.json that may hold a declaration. MLX's own comes first: it stands beside the one of the file it converted."""


_BESIDE = {"fbgemm_fp8": "fp8", "mxfp4": "microscaled", "awq": "gptq"}
"""Methods met often that share the file of another: knowing it spares an import of every method. The scan needs no such line."""


@cache
def _reader(method: str) -> Callable[[Declared], Found] | None:
    """The reader of one method: its own file's, else the one that claims it; None for a method that is not known."""
    name = _BESIDE.get(method) or method.replace("-", "_")
    if name.isidentifier() and not name.startswith("_") and (_HERE / f"{name}.py").is_file():
        module = import_module(f"gpufit.sources.quant.{name}")
        if method in getattr(module, "METHODS", ()):
            return getattr(module, "read", None)
    return _readers().get(method)


@cache
def _readers() -> dict[str, Callable[[Declared], Found]]:
    """Every known quant_method to its reader."""
    found: dict[str, Callable[[Declared], Found]] = {}
    for path in sorted(_HERE.glob("[a-z]*.py")):
        module = import_module(f"gpufit.sources.quant.{path.stem}")
        found.update(dict.fromkeys(getattr(module, "METHODS", ()), getattr(module, "read", None)))
    return found


def methods() -> tuple[str, ...]:
    """Every quant_method that is recognised."""
    return tuple(sorted(_readers()))


def published(
    config: Config, text: Config, hf_quant: Mapping[str, Any] | None, dtype: str, *, parts: Sequence[WeightPart] = ()
) -> Published:
    """The published form of a checkpoint: short format word, a sentence, the recipe by module, and the cache dtype it asks for.

    `text` is the decoder's own level of config.json, `hf_quant` the content of hf_quant_config.json, `dtype` the short name of the plain
    dtype; `parts` lets a mixed checkpoint be named by its bulk. Raises `ConfigError` for an unknown method, and for a key that was not
    understood and could change the bytes.
    """
    found = _declaration(config, text, hf_quant)
    if found is None:
        plain = AllPlain(plain=PLAIN[dtype]) if any(p.dtype is not None for p in parts) else None
        return Published(format=dtype, recipe=plain, origin=config.where("torch_dtype"))
    keys, method = found
    declared = Declared(keys=keys, plain=PLAIN[dtype], text=text)
    reader = _reader(method.lower())
    if reader is None:
        raise ConfigError(
            f"{keys.where('quant_method')} is {method!r}: a quantisation that is not known",
            hint=f"known are {', '.join(m for m in methods() if '/' not in m)}",
        )
    read = reader(declared)
    refuse_unread(keys, method)
    _settle(keys)
    word, detail = _in_words(read, parts)
    return Published(
        format=word,
        detail=detail,
        recipe=read.recipe,
        kv_cache_dtype=read.cache,
        kv_cache_origin=read.cache_origin,
        origin=keys.where("quant_method") if keys.has("quant_method") else keys.where("").rstrip(". "),
        method=_full_name(keys, method),
        signed=_signed(
            keys, hf_quant if keys.origin.startswith("hf_quant_config.json") else config.data.get("quantization_config")
        ),
    )


def _signed(keys: Config, file: Mapping[str, Any] | None) -> bool:
    """Whether a declaration names its quantiser: by quant_method, or as modelopt's own file, copied into config.json or not."""
    if keys.text("quant_method", "quant_library") or "quant_algo" not in keys.data:
        return True
    producer = file.get("producer") if isinstance(file, Mapping) and "quantization" in file else None
    return isinstance(producer, Mapping) and producer.get("name") == "modelopt"


def _full_name(keys: Config, method: str) -> str:
    """The quantiser's name as engines tell its kinds apart: modelopt with a map from module to algorithm is a kind of its own."""
    mixed = method.startswith("modelopt") and str(keys.raw("quant_algo") or "").upper() == "MIXED_PRECISION"
    return "modelopt_mixed" if mixed else method.lower()


def _declaration(config: Config, text: Config, hf_quant: Mapping[str, Any] | None) -> tuple[Config, str] | None:
    """The object that declares the quantisation, and its method; None for a plain checkpoint."""
    levels = [config] if text is config else [config, text]
    outer = config.data.get("text_config")
    if isinstance(outer, Mapping) and text is not config and text.data is not outer:
        levels.append(config.sub("text_config") or config)
    for level in levels:
        for key in KEYS:
            value = level.raw(key)
            if isinstance(value, Mapping) and not is_off(value):
                sub = level.sub(key)
                assert sub is not None
                sub = _inner(sub)
                method = "mlx" if key == "quantization" and sub.text("quant_method") is None else _method(sub)
                if method:
                    return sub, method
            elif not is_off(value):
                raise ConfigError(f"{level.where(key)} is {value!r}, expected an object", hint="check the config.json")
    if hf_quant is None:
        return None
    file = Config(hf_quant, origin="hf_quant_config.json")
    inner = file.sub("quantization") or file
    if inner.raw("quant_algo") is None and inner.raw("kv_cache_quant_algo") is None:
        return None
    return inner, "modelopt"


def _inner(keys: Config) -> Config:
    """The object inside an object: modelopt's own file copied into config.json, or the older layout of compressed-tensors."""
    for name in ("quantization", "quantization_config"):
        inside = keys.data.get(name)
        if isinstance(inside, Mapping) and ("quant_algo" in inside or "config_groups" in inside):
            keys.ignore(*keys.data)
            return keys.sub(name) or keys
    return keys


def _method(keys: Config) -> str:
    """The method an object names, or the one its keys belong to where it names none."""
    named = keys.text("quant_method", "quant_library")
    if named:
        return named
    data = keys.data
    if "quant_algo" in data:
        return "modelopt"
    if "config_groups" in data:
        return "compressed-tensors"
    if any(data.get(k) for k in ("load_in_4bit", "load_in_8bit", "_load_in_4bit", "_load_in_8bit")):
        return "bitsandbytes"
    if "bits" in data and "group_size" in data and not set(data) & {"desc_act", "sym", "zero_point", "version"}:
        return "mlx"
    raise ConfigError(
        f"{keys.where('quant_method')} is absent, and its keys ({', '.join(sorted(data)[:8])}) belong to no method that is known",
        hint=f"known are {', '.join(m for m in methods() if '/' not in m)}",
    )


def _settle(keys: Config) -> None:
    """Marks a declaration as judged, so that the guard on the whole file does not judge it by its names again."""
    keys.ignore(*keys.data)


def _in_words(found: Found, parts: Sequence[WeightPart]) -> tuple[str, str]:
    """The word of the format that holds most parameters, and a sentence on all formats and on what stays plain."""
    if found.recipe is None or not parts:
        return found.word, found.detail
    counts, plain = _shares(found.recipe, parts)
    if not counts:
        return found.word, found.detail
    by_word: dict[str, int] = {}
    for (word, _), elements in counts.items():
        by_word[word] = by_word.get(word, 0) + elements
    bulk = max(by_word, key=lambda w: by_word[w])
    names = sorted((name for _, name in counts), key=lambda n: -sum(c for (_, m), c in counts.items() if m == n))
    sentence = ", ".join(dict.fromkeys(names)) or found.detail
    return bulk, f"{sentence}; {', '.join(plain)} not quantised" if plain else sentence


def _shares(recipe: Recipe, parts: Sequence[WeightPart]) -> tuple[dict[tuple[str, str], int], tuple[str, ...]]:
    """Elements by (word, name) of their format, plain ones left out, and the roles whose matrices all stay plain, in the order of parts."""
    counts: dict[tuple[str, str], int] = {}
    plain: dict[str, bool] = {}
    for part in parts:
        for chosen, layers in recipe.stored(part):
            kept = isinstance(chosen, Plain)
            if not kept:
                key = (chosen.word, chosen.name)
                counts[key] = counts.get(key, 0) + int(part.per_layer()) * layers
            if part.columns is not None:
                plain[part.role.value] = plain.get(part.role.value, True) and kept
    return counts, tuple(role for role, kept in plain.items() if kept)
