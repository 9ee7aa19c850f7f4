"""`quant_method: gptq` (AutoGPTQ, GPTQModel) and `awq` (AutoAWQ): grouped integers in 32-bit words, in the decoder layers only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpufit.formats.integer_groups import IntegerGroups
from gpufit.formats.names import Names
from gpufit.formats.recipe import ByModule, Rule, Scope
from gpufit.quantity import BIT, BYTE, Q, fact
from gpufit.sources.quant.base import Declared, Found, Kept

METHODS = ("gptq", "awq", "auto_gptq", "gptqmodel")


def integers(d: Declared, bits: int, group: int | None, *, kind: str, rows: bool = False, index: bool = False) -> IntegerGroups:
    """Packed integers with 16-bit scales and packed zero points; `group` None or not positive: one group for each output feature."""
    if bits not in (2, 3, 4, 5, 6, 7, 8):
        raise d.refuse("bits", bits, "expected 2 to 8")
    grouped = group is not None and group > 0
    return IntegerGroups(
        name=f"int{bits} {f'groups of {group}' if grouped else 'per channel'} ({kind})",
        word=f"int{bits}",
        bits=fact(bits, BIT, symbol="e", name="bits of one weight", origin=d.origin("bits")),
        scale=fact(2, BYTE, symbol="z", name="bytes of one scale", origin=f"{kind}: 16-bit scales"),
        group=d.number("group_size", int(group), symbol="g", label="weights that share a scale") if grouped and group else None,
        packed_rows=rows,
        packed_zero=True,
        index=_index() if index else None,
    )


def _index() -> Q:
    return fact(4, BYTE, symbol="i", name="bytes of one group number", origin="GPTQ: g_idx, int32 for each input feature")


def read(d: Declared) -> Found:
    """Linear layers of the decoder blocks; embedding, head (unless `lm_head`), routers and towers are not touched."""
    k = d.keys
    method = k.text("quant_method")
    if method == "awq":
        return _awq(d)
    form = k.text("checkpoint_format", "format")
    if form not in (None, "gptq", "gptq_v2"):
        raise d.refuse("checkpoint_format", form, "only gptq and gptq_v2 are known")
    pack = k.text("pack_dtype")
    if pack not in (None, "int32"):
        raise d.refuse("pack_dtype", pack, "only int32 is known")
    bits, group = k.integer("bits", "wbits"), _group(k.raw("group_size"))
    k.ignore(
        "desc_act", "sym", "meta", "is_marlin_format", "modules_in_block_to_quantize", "block_name_to_quantize", "act_group_aware"
    )
    if k.flag("is_marlin_format"):
        raise d.refuse("is_marlin_format", True, "repacked checkpoints are not known")
    base = integers(d, bits, group, kind="GPTQ", index=True)
    rules: list[Rule] = [*Kept(names=d.names("modules_to_not_convert")).rules()]
    head = k.flag("lm_head")
    scope = Scope(blocks_only=True, head=head, towers=False)
    for pattern, change in _dynamic(d):
        negative = pattern.startswith("-:")
        names = Names([pattern.removeprefix("+:").removeprefix("-:")], regex=True)
        if negative:
            rules.append(Rule(names=names, format=None))
            continue
        known = {"bits", "group_size", "desc_act", "sym", "mse", "pack_dtype"}
        if set(change) - known:
            raise d.refuse("dynamic", json.dumps(dict(change)), f"only {', '.join(sorted(known))} are known there")
        here = integers(d, int(change.get("bits", bits)), _group(change.get("group_size", group)), kind="GPTQ", index=True)
        rules.append(Rule(names=names, format=here))
    inside = k.items("modules_in_block_to_quantize")
    if inside:
        flat = [str(n) for item in inside for n in (item if isinstance(item, list) else [item])]
        rules.append(Rule(names=Names(flat), format=base))
        recipe = ByModule(plain=d.plain, scope=scope, rules=tuple(rules), default=None)
    else:
        recipe = ByModule(plain=d.plain, scope=scope, rules=tuple(rules), default=base)
    return Found(recipe=recipe, word=base.word, detail=base.name)


def _awq(d: Declared) -> Found:
    k = d.keys
    version = (k.text("version") or "gemm").lower()
    if version not in ("gemm", "gemv", "gemv_fast", "exllama", "exllamav2", "marlin", "ipex"):
        raise d.refuse("version", version, "an AWQ layout that is not known")
    if version == "marlin":
        raise d.refuse("version", version, "repacked checkpoints are not known")
    # AutoAWQ stores packed zero points whether or not they are used, so `zero_point` and `sym` change nothing.
    k.ignore("zero_point", "sym", "desc_act", "modules_to_convert")
    base = integers(d, k.integer("bits", "w_bit"), _group(k.raw("group_size", "q_group_size")), kind="AWQ", rows=version == "gemm")
    scope = Scope(blocks_only=True, head=k.flag("lm_head"), towers=False)
    recipe = ByModule(plain=d.plain, scope=scope, rules=Kept(names=d.names("modules_to_not_convert")).rules(), default=base)
    return Found(recipe=recipe, word=base.word, detail=base.name)


def _group(value: Any) -> int | None:
    return None if value is None else int(value)


def _dynamic(d: Declared) -> list[tuple[str, Mapping[str, Any]]]:
    value = d.keys.raw("dynamic")
    if value is None:
        return []
    if not isinstance(value, Mapping):
        raise d.refuse("dynamic", value, "expected a map from expressions to overrides")
    return [(str(p), c if isinstance(c, Mapping) else {}) for p, c in value.items()]
