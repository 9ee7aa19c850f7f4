"""`quant_method: modelopt` and hf_quant_config.json: NVIDIA's FP8, NVFP4, MXFP8, INT4-AWQ and mixed recipes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from gpufit.formats.eight_bit import ChannelScaled, TensorScaled, in_blocks, scale_of
from gpufit.formats.microscaling import MXFP8, Microscaled, nvfp4
from gpufit.formats.names import Names
from gpufit.formats.recipe import AllPlain, ByModule, Rule, Scope
from gpufit.formats.tensor import TensorFormat
from gpufit.quantity import BIT, BYTE, NUMBER, fact
from gpufit.sources.config import Config
from gpufit.sources.quant.base import Declared, Found, Kept, float8_cache

METHODS = ("modelopt", "modelopt_fp4", "modelopt_mxfp8", "modelopt_mixed")

_ENTRY = {"quant_algo", "group_size", "awq_block_size", "has_zero_point", "pre_quant_scale"}
_SCOPE = Scope(head=True, towers=False)
_NAMED = Scope(head=True, embeddings=True, towers=True, every_matrix=True)


@lru_cache(maxsize=64)
def layout(algo: str, group: int | None, origin: str) -> TensorFormat | None:
    """The format of one quant_algo, None for an unknown one. Tensors as modelopt exports them (vLLM 0.33, quantization/modelopt.py)."""
    if algo == "FP8":
        return TensorScaled(
            name="fp8 per tensor", word="fp8", scale=scale_of(4, "modelopt: weight_scale, FP32"),
            extra=fact(4, BYTE, symbol="z_t", name="input scale of one matrix", origin="modelopt: input_scale, FP32"),
        )  # fmt: skip
    if algo == "FP8_PER_CHANNEL_PER_TOKEN":
        return ChannelScaled(name="fp8 per channel", word="fp8", scale=scale_of(4, "modelopt: weight_scale, FP32"))
    if algo in ("FP8_PB_WO", "FP8_BLOCK_SCALES"):
        return in_blocks("fp8", group or 128, group or 128, scale=scale_of(4, "modelopt: weight_scale, FP32"), origin=origin)
    if algo in ("NVFP4", "NVFP4_AWQ", "NVFP4_SVD"):
        if algo == "NVFP4_SVD":
            return None
        base = nvfp4(scalars=8, block=group or 16, block_origin=origin)
        return base if algo == "NVFP4" else replace(base, column_extra=_smoothing())
    if algo == "W4A16_NVFP4":
        return nvfp4(scalars=4, block=group or 16, block_origin=origin)
    if algo == "MXFP8":
        return MXFP8
    if algo in ("W4A16_AWQ", "INT4_AWQ", "W4A8_AWQ"):
        return Microscaled(
            name=f"int4 groups of {group or 128} (modelopt AWQ)", word="int4",
            bits=fact(4, BIT, symbol="e", name="bits of one weight", origin=f"modelopt: {algo}"),
            block=fact(group or 128, NUMBER, symbol="g", name="weights that share a scale", origin=origin),
            scale=scale_of(2, "modelopt: 16-bit group scales"), column_extra=_smoothing(),
        )  # fmt: skip
    if algo in ("W8A8_SQ_PER_CHANNEL", "INT8_SQ"):
        return ChannelScaled(name="int8 per channel", word="int8", scale=scale_of(4, "modelopt: weight_scale, FP32"))
    if algo in ("W8A16", "INT8"):
        return ChannelScaled(name="int8 per channel", word="int8", scale=scale_of(4, "modelopt: weight_scale, FP32"))
    return None


def _smoothing() -> Any:
    return fact(2, BYTE, symbol="z_k", name="bytes of one pre-quantisation scale", origin="modelopt AWQ: pre_quant_scale, 16 bit")


def _algorithm(d: Declared, at: str, algo: Any, group: Any) -> TensorFormat:
    found = layout(str(algo).upper(), None if group is None else int(group), d.origin("group_size"))
    if found is None:
        raise d.refuse(at, algo, "a quantisation algorithm that is not known")
    return found


def mapped(d: Declared) -> list[Rule]:
    """The rules of a MIXED_PRECISION map from module to algorithm; modules of one algorithm share a rule."""
    value = d.keys.raw("quantized_layers")
    if not isinstance(value, Mapping) or not value:
        raise d.refuse("quantized_layers", value, "MIXED_PRECISION needs a map from module to algorithm")
    by_format: dict[int, tuple[TensorFormat, list[str]]] = {}
    for name, entry in value.items():
        if not isinstance(entry, Mapping) or set(entry) - _ENTRY:
            raise d.refuse(f"quantized_layers.{name}", entry, "an entry with keys that are not known")
        found = _algorithm(d, f"quantized_layers.{name}.quant_algo", entry.get("quant_algo"), entry.get("group_size"))
        by_format.setdefault(id(found), (found, []))[1].append(str(name))
    return [Rule(names=Names(names), format=found, scope=_NAMED) for found, names in by_format.values()]


def cache_of(d: Declared) -> tuple[str | None, str]:
    """The KV cache dtype the object asks for, and where: `kv_cache_scheme`, else `kv_cache_quant_algo`."""
    for key in ("kv_cache_scheme", "kv_cache_quant_algo"):
        found = float8_cache(d.keys.raw(key), d.origin(key))
        if found[0]:
            return found
    return None, ""


def read(d: Declared) -> Found:
    """Linear layers and the output head but those excluded. Towers are never quantised without being named.

    An object without any list of exclusions does not say what stays at 16 bit (the head at least does in every known export): then the
    bytes are unknown, and only the cache dtype is told.
    """
    k = d.keys
    k.ignore("producer", "quant_method")
    algo = (k.text("quant_algo") or "").upper()
    cache, where = cache_of(d)
    if algo in ("", "NONE", "NO_QUANT"):
        if not (k.present("quant_algo") or cache):
            raise d.refuse("quant_algo", None, "a modelopt checkpoint names its algorithm")
        k.ignore("exclude_modules", "ignore", "group_size")
        return Found(
            recipe=AllPlain(plain=d.plain), word=d.plain.name, detail="weights not quantised", cache=cache, cache_origin=where
        )
    k.ignore("config_groups", "has_zero_point", "pre_quant_scale", "awq_block_size")
    group = k.raw("group_size", "awq_block_size")
    if algo == "MIXED_PRECISION":
        kept = Kept(names=d.names("exclude_modules", "ignore"), more=tuple(mapped(d)))
        mixed = ByModule(plain=d.plain, scope=_SCOPE, rules=kept.rules())
        return Found(recipe=mixed, word="nvfp4", detail="mixed precision", cache=cache, cache_origin=where)
    weights_only = algo == "NVFP4" and _no_activations(k)
    chosen = _algorithm(d, "quant_algo", "W4A16_NVFP4" if weights_only else algo, group)
    if not (k.present("exclude_modules") or k.present("ignore")):
        what = f"{chosen.name}; {k.origin} does not list what stays at 16 bit (no exclude_modules)"
        return Found(recipe=None, word=chosen.word, detail=what, cache=cache, cache_origin=where)
    kept = Kept(names=d.names("exclude_modules", "ignore"))
    recipe = ByModule(plain=d.plain, scope=_SCOPE, rules=kept.rules(), default=chosen)
    return Found(recipe=recipe, word=chosen.word, detail=chosen.name, cache=cache, cache_origin=where)


def _no_activations(k: Config) -> bool:
    """Whether every config group leaves the activations alone: then there are no input scales."""
    groups = k.raw("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        return False
    return all(isinstance(g, Mapping) and g.get("input_activations") is None for g in groups.values())
