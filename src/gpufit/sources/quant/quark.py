"""`quant_method: quark` (AMD): a global recipe, overrides by module, and a list of exceptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpufit.formats.eight_bit import ChannelScaled, TensorScaled, in_blocks, scale_of
from gpufit.formats.integer_groups import IntegerGroups
from gpufit.formats.microscaling import MXFP4, MXFP8, mxfp6, nvfp4
from gpufit.formats.names import Names
from gpufit.formats.recipe import ByModule, Rule, Scope
from gpufit.formats.tensor import TensorFormat
from gpufit.quantity import BIT, fact
from gpufit.sources.quant.base import Declared, Found, Kept

METHODS = ("quark", "deepseek_v4_quark")

_FP8 = ("fp8_e4m3", "fp8_e5m2")
_FP32 = "quark: FP32 scales"


def _layout(d: Declared, at: str, weight: Any, inputs: Any) -> TensorFormat | None:
    """The format of one recipe's weights, None where it has none."""
    if weight is None:
        return None
    stages = weight if isinstance(weight, list) else [weight]
    stages = [s for s in stages if isinstance(s, Mapping)]
    if not stages:
        raise d.refuse(at, weight, "expected a weight recipe")
    static = isinstance(inputs, Mapping) and not inputs.get("is_dynamic")
    extra = d.scalars(int(static), 4, f"{at}: static, one FP32 input scale")
    if len(stages) == 2:
        return _two_stages(d, at, stages)
    w = stages[0]
    dtype, scheme, group = str(w.get("dtype")), str(w.get("qscheme")), w.get("group_size")
    if dtype in ("fp4", "mxfp4") and group in (32, None) and _e8m0(w, dtype):
        return MXFP4
    if dtype in ("fp6_e3m2", "fp6_e2m3", "mxfp6_e3m2", "mxfp6_e2m3") and group in (32, None):
        return mxfp6()
    if dtype in (*_FP8, "mxfp8_e4m3") and _e8m0(w, dtype) and (group == 32 or dtype.startswith("mx")):
        return MXFP8
    if dtype in _FP8 or dtype in ("int8", "uint8"):
        word = "fp8" if dtype in _FP8 else "int8"
        if scheme == "per_tensor":
            return TensorScaled(name=f"{word} per tensor", word=word, scale=scale_of(4, _FP32), extra=extra)
        if scheme == "per_channel":
            return ChannelScaled(name=f"{word} per channel", word=word, scale=scale_of(4, _FP32), extra=extra)
        if scheme == "per_block":
            z = scale_of(1 if w.get("scale_type") == "float8_e8m0fnu" else 4, "quark: scale_type")
            return in_blocks(word, *d.pair(f"{at}.block_size", w.get("block_size")), scale=z, origin=f"{at}.block_size")
    if dtype in ("int4", "uint4") and scheme in ("per_group", "per_channel"):
        asymmetric = dtype == "uint4" or w.get("symmetric") is False
        return IntegerGroups(
            name=f"int4 {f'groups of {group}' if scheme == 'per_group' else 'per channel'} (quark)", word="int4",
            bits=fact(4, BIT, symbol="e", name="bits of one weight", origin=at), scale=scale_of(2, "quark: 16-bit group scales"),
            group=d.group(f"{at}.group_size", int(group)) if scheme == "per_group" and group else None,
            packed_rows=True, packed_zero=asymmetric,
        )  # fmt: skip
    raise d.refuse(
        at, {k: w.get(k) for k in ("dtype", "qscheme", "group_size", "scale_format")}, "a weight recipe that is not known"
    )


def _two_stages(d: Declared, at: str, stages: list[Any]) -> TensorFormat:
    dtypes = [str(s.get("dtype")) for s in stages]
    if dtypes[0] == "fp4" and stages[0].get("group_size") == 16:
        return nvfp4(scalars=8)
    if dtypes[0] in _FP8 and dtypes[1] == "int4" and stages[1].get("qscheme") == "per_channel":
        return IntegerGroups(
            name="int4 per channel (quark, over fp8)", word="int4", bits=fact(4, BIT, symbol="e", name="bits of one weight", origin=at),
            scale=scale_of(4, _FP32), extra=d.scalars(1, 4, f"{at}: the FP8 stage's one FP32 scale"),
        )  # fmt: skip
    raise d.refuse(at, dtypes, "a recipe in two stages that is not known")


def _e8m0(w: Mapping[str, Any], dtype: str) -> bool:
    return dtype.startswith("mx") or w.get("scale_format") == "e8m0" or w.get("scale_type") == "float8_e8m0fnu"


def _entries(d: Declared, key: str) -> list[tuple[str, Mapping[str, Any]]]:
    value = d.keys.raw(key) or {}
    if not isinstance(value, Mapping):
        raise d.refuse(key, value, "expected a map")
    return [(str(n), e) for n, e in value.items() if isinstance(e, Mapping)]


def read(d: Declared) -> Found:
    """Linear layers but the excluded ones; an entry of `layer_quant_config` comes before `global_quant_config` (vLLM 0.33, quark.py)."""
    k = d.keys
    k.ignore("export", "algo_config", "quant_mode", "softmax_quant_spec", "pack_method", "log_severity_level", "weight_format")
    k.ignore("custom_mode")
    whole = k.raw("global_quant_config")
    if not isinstance(whole, Mapping):
        raise d.refuse("global_quant_config", whole, "expected an object")
    if _entries(d, "layer_type_quant_config"):
        raise d.refuse("layer_type_quant_config", k.raw("layer_type_quant_config"), "recipes by layer class are not known")
    rules = list(Kept(names=d.names("exclude")).rules())
    for name, entry in _entries(d, "layer_quant_config"):
        layout = _layout(d, f"layer_quant_config.{name}.weight", entry.get("weight"), entry.get("input_tensors"))
        rules.append(Rule(names=Names([name]), format=layout))
    chosen = _layout(d, "global_quant_config.weight", whole.get("weight"), whole.get("input_tensors"))
    main = chosen or next((r.format for r in rules if r.format is not None), None)
    if main is None:
        raise d.refuse("global_quant_config", dict(whole), "no weights are quantised")
    cache, where = _cache(d)
    recipe = ByModule(plain=d.plain, scope=Scope(head=True), rules=tuple(rules), default=chosen)
    return Found(recipe=recipe, word=main.word, detail=main.name, cache=cache, cache_origin=where)


def _cache(d: Declared) -> tuple[str | None, str]:
    """FP8 where the outputs of the key and value projections, or `kv_cache_quant_config`, are FP8."""
    export = d.keys.raw("export")
    group = (export.get("kv_cache_group") if isinstance(export, Mapping) else None) or []
    entries = dict(_entries(d, "layer_quant_config"))
    wanted = [entries.get(str(g), {}).get("output_tensors") for g in group]
    wanted += [e.get("output_tensors") for _, e in _entries(d, "kv_cache_quant_config")]
    for spec in wanted:
        if isinstance(spec, Mapping) and str(spec.get("dtype")) in _FP8:
            return "fp8", d.origin("export.kv_cache_group" if group else "kv_cache_quant_config")
    return None, ""
