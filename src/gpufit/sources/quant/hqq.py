"""`quant_method: hqq` (half-quadratic quantisation) and `eetq`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpufit.formats.eight_bit import ChannelScaled, scale_of
from gpufit.formats.integer_groups import ByteGroups
from gpufit.formats.names import Names
from gpufit.formats.recipe import ByModule, Rule, Scope
from gpufit.formats.tensor import TensorFormat
from gpufit.quantity import BIT, BYTE, NUMBER, fact
from gpufit.sources.quant.base import Declared, Found, Kept

METHODS = ("hqq", "eetq")

_TEN = fact(10, NUMBER, symbol="n_w", name="3-bit weights in one 32-bit word", origin="HQQ: ten 3-bit weights a word")


def _layout(d: Declared, at: str, params: Mapping[str, Any]) -> TensorFormat:
    inner = params.get("weight_quant_params", params)
    if not isinstance(inner, Mapping):
        raise d.refuse(at, params, "expected weight_quant_params")
    for key in ("scale_quant_params", "zero_quant_params"):
        if params.get(key):
            raise d.refuse(f"{at}.{key}", params[key], "quantised scales are not known")
    if inner.get("quant_scale") or inner.get("quant_zero"):
        raise d.refuse(at, dict(inner), "quantised scales are not known")
    bits, group = inner.get("nbits", inner.get("bits")), inner.get("group_size")
    if bits not in (1, 2, 3, 4, 8):
        raise d.refuse(f"{at}.nbits", bits, "known are 1, 2, 3, 4 and 8")
    return ByteGroups(
        name=f"int{bits} {f'groups of {group}' if group else 'per channel'} (HQQ)",
        word=f"int{bits}",
        bits=fact(bits, BIT, symbol="e", name="bits of one weight", origin=d.origin(f"{at}.nbits")),
        scale=fact(4, BYTE, symbol="z", name="bytes of a group's scale and zero", origin="HQQ: 16-bit scale and zero"),
        group=d.group(f"{at}.group_size", int(group)) if group else None,
        per_word=_TEN if bits == 3 else None,
    )


def read(d: Declared) -> Found:
    """Linear layers but those skipped (the output head by default); a map by the last names of modules may give each its own numbers."""
    k = d.keys
    if k.text("quant_method") == "eetq":
        weights = k.text("weights")
        if weights not in (None, "int8"):
            raise d.refuse("weights", weights, "only int8 is known")
        chosen: TensorFormat = ChannelScaled(name="int8 per channel (EETQ)", word="int8", scale=scale_of(2, "EETQ: 16-bit scales"))
        kept = Kept(names=d.names("modules_to_not_convert"))
        recipe = ByModule(plain=d.plain, scope=Scope(head=bool(kept.names)), rules=kept.rules(), default=chosen)
        return Found(recipe=recipe, word="int8", detail=chosen.name)
    inner = k.raw("quant_config")
    k.ignore("offload_meta", "meta")
    if inner is None:
        inner = {n: k.raw(n) for n in ("nbits", "bits", "group_size", "axis", "quant_zero", "quant_scale")}
    if not isinstance(inner, Mapping):
        raise d.refuse("quant_config", inner, "expected an object")
    kept = Kept(names=d.names("skip_modules"))
    scope = Scope(head=bool(kept.names))
    if "weight_quant_params" in inner or "nbits" in inner or "bits" in inner:
        chosen = _layout(d, "quant_config", inner)
        recipe = ByModule(plain=d.plain, scope=scope, rules=kept.rules(), default=chosen)
        return Found(recipe=recipe, word=chosen.word, detail=chosen.name)
    rules = list(kept.rules())
    for name, params in inner.items():
        if not isinstance(params, Mapping):
            raise d.refuse(f"quant_config.{name}", params, "expected an object")
        rules.append(Rule(names=Names([str(name)]), format=_layout(d, f"quant_config.{name}", params)))
    first = next((r.format for r in rules if r.format is not None), None)
    if first is None:
        raise d.refuse("quant_config", dict(inner), "no format in it")
    return Found(recipe=ByModule(plain=d.plain, scope=scope, rules=tuple(rules)), word=first.word, detail=first.name)
