"""`quant_method: torchao`: weight-only and dynamic recipes by their class or short name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpufit.formats.eight_bit import ChannelScaled, TensorScaled, in_blocks, scale_of
from gpufit.formats.integer_groups import IntegerGroups
from gpufit.formats.names import Names
from gpufit.formats.recipe import ByModule, Rule, Scope
from gpufit.formats.tensor import TensorFormat
from gpufit.quantity import BIT, BYTE, NUMBER, fact
from gpufit.sources.quant.base import Declared, Found, Kept

METHODS = ("torchao",)

_SHORT = {
    "int4_weight_only": "Int4WeightOnlyConfig",
    "int8_weight_only": "Int8WeightOnlyConfig",
    "int8_dynamic_activation_int8_weight": "Int8DynamicActivationInt8WeightConfig",
    "int8_dynamic_activation_int4_weight": "Int8DynamicActivationInt4WeightConfig",
    "float8_weight_only": "Float8WeightOnlyConfig",
    "float8_dynamic_activation_float8_weight": "Float8DynamicActivationFloat8WeightConfig",
}


def _layout(d: Declared, at: str, kind: Any, data: Mapping[str, Any]) -> TensorFormat:
    """The format of one torchao config class; scales of integers are in the model's dtype, of floats FP32 (torchao 0.13)."""
    name = _SHORT.get(str(kind), str(kind))
    group = data.get("group_size")
    if name == "Int4WeightOnlyConfig":
        return _int4(at, int(group or 128), d.plain_bytes(), 4, packed=True)
    if name == "Int8DynamicActivationIntxWeightConfig" or name == "IntxWeightOnlyConfig":
        raise d.refuse(at, name, "integers of any width are not known")
    if name == "Int8DynamicActivationInt4WeightConfig":
        return _int4(at, int(group or 32), 4, 8, packed=False)
    if name in ("Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig"):
        z = scale_of(d.plain_bytes(), "torchao: scales in the model's dtype")
        if group:
            return in_blocks("int8", 1, int(group), scale=z, origin=f"{at}.group_size")
        return ChannelScaled(name="int8 per channel (torchao)", word="int8", scale=z)
    if name == "Float8WeightOnlyConfig":
        return ChannelScaled(name="fp8 per channel (torchao)", word="fp8", scale=scale_of(4, "torchao: FP32 scales"))
    if name == "Float8DynamicActivationFloat8WeightConfig":
        rows = "PerRow" in str(data.get("granularity"))
        z = scale_of(4, "torchao: FP32 scales")
        if rows:
            return ChannelScaled(name="fp8 per channel (torchao)", word="fp8", scale=z)
        return TensorScaled(name="fp8 per tensor (torchao)", word="fp8", scale=z)
    raise d.refuse(at, name, "a torchao recipe that is not known")


def _int4(at: str, group: int, scale: int, bits: int, *, packed: bool) -> TensorFormat:
    """Int4 with scale and zero of a group; `bits` is what one stored weight takes (int4 for dynamic activations is kept in bytes)."""
    return IntegerGroups(
        name=f"int4 groups of {group} (torchao)",
        word="int4",
        bits=fact(
            bits,
            BIT,
            symbol="e",
            name="bits of one stored weight",
            origin=f"torchao: int4 {'packed' if packed else 'kept in int8'}",
        ),
        scale=fact(scale, BYTE, symbol="z", name="bytes of one scale", origin="torchao"),
        zero=fact(scale if packed else 1, BYTE, symbol="z_0", name="bytes of one zero point", origin="torchao"),
        group=fact(group, NUMBER, symbol="g", name="weights that share a scale", origin=f"{at}.group_size"),
    )


def read(d: Declared) -> Found:
    """Linear layers but those listed; a map by module may give each its own recipe. Embedding and head only when asked for."""
    k = d.keys
    kind = k.raw("quant_type")
    both = k.flag("include_input_output_embeddings")
    k.ignore("untie_embedding_weights")
    extra = k.raw("quant_type_kwargs")
    rules = list(Kept(names=d.names("modules_to_not_convert")).rules())
    scope = Scope(head=both, embeddings=both)
    if isinstance(kind, Mapping):
        kind = kind.get("default", kind)
    if isinstance(kind, Mapping):
        name, data = kind.get("_type"), kind.get("_data") or {}
        modules = data.get("module_fqn_to_config") or data.get("fqn_to_config")
        if name in ("ModuleFqnToConfig", "FqnToConfig") and isinstance(modules, Mapping):
            return _by_module(d, rules, scope, modules)
        chosen = _layout(d, "quant_type", name, data)
    else:
        chosen = _layout(d, "quant_type", kind, extra if isinstance(extra, Mapping) else {})
    recipe = ByModule(plain=d.plain, scope=scope, rules=tuple(rules), default=chosen)
    return Found(recipe=recipe, word=chosen.word, detail=chosen.name)


def _by_module(d: Declared, rules: list[Rule], scope: Scope, modules: Mapping[str, Any]) -> Found:
    default: TensorFormat | None = None
    named = Scope(head=True, embeddings=True, every_matrix=True)
    for name, entry in modules.items():
        layout = None if entry is None else _layout(d, f"quant_type.{name}", entry.get("_type"), entry.get("_data") or {})
        if name == "_default":
            default = layout
        elif name.startswith("re:"):
            rules.append(Rule(names=Names([re.sub(r"^re:", "", name)], regex=True), format=layout, scope=named))
        else:
            rules.append(Rule(names=Names([name]), format=layout, scope=named))
    main = default or next((r.format for r in rules if r.format is not None), None)
    if main is None:
        raise d.refuse("quant_type", dict(modules), "no weights are quantised")
    return Found(recipe=ByModule(plain=d.plain, scope=scope, rules=tuple(rules), default=default), word=main.word, detail=main.name)
