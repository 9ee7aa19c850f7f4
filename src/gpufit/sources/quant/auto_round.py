"""`quant_method: auto-round` (Intel; also `inc`): packed as GPTQ or AWQ pack, with a width of its own for modules in `extra_config`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpufit.formats.eight_bit import ChannelScaled, TensorScaled, in_blocks, scale_of
from gpufit.formats.microscaling import MXFP4, MXFP8, nvfp4
from gpufit.formats.names import Names
from gpufit.formats.recipe import ByModule, Rule, Scope
from gpufit.formats.tensor import TensorFormat
from gpufit.sources.quant.base import Declared, Found, Kept
from gpufit.sources.quant.gptq import integers

METHODS = ("auto-round", "auto_round", "intel/auto-round", "inc")

_SPECIAL = set(r"*+?^$()[]{}|\\")


def _layout(d: Declared, kind: str, form: str, bits: int, group: Any) -> TensorFormat | None:
    """The format at so many bits, None at 16 and more."""
    if bits >= 16:
        return None
    if kind in ("mx_fp", "mx_fp4", "mx_fp8", "mx_fp_rceil", "mx_fp4_rceil"):
        return MXFP4 if bits == 4 else MXFP8
    if kind.startswith("nv_fp"):
        return nvfp4(scalars=8)
    if kind in ("fp", "fp8", "fp8_e4m3") and bits == 8:
        z = scale_of(4, "auto-round: FP32 scales")
        if isinstance(group, list):
            return in_blocks("fp8", *d.pair("group_size", group), scale=z, origin=d.origin("group_size"))
        if group == 0:
            return TensorScaled(name="fp8 per tensor", word="fp8", scale=z)
        return ChannelScaled(name="fp8 per channel", word="fp8", scale=z)
    if kind != "int":
        raise d.refuse("data_type", kind, "a data type that is not known")
    awq = "awq" in form
    return integers(d, bits, int(group), kind="AWQ" if awq else "GPTQ", rows=awq)  # its packing has no g_idx


def read(d: Declared) -> Found:
    """Linear layers of the blocks named by `block_name_to_quantize`, else of the decoder; `extra_config` goes first."""
    k = d.keys
    kind = k.text("data_type") or "int"
    form = (k.text("packing_format") or "auto_round:auto_gptq").lower()
    bits, group = k.integer("bits"), k.raw("group_size")
    k.ignore(
        "sym", "super_bits", "super_group_size", "amp", "to_quant_block_names", "supported_types", "act_bits", "static_kv_dtype"
    )
    scales = (k.text("scale_dtype") or "float16").removeprefix("torch.")
    if scales not in ("float16", "fp16", "bfloat16", "bf16"):
        raise d.refuse("scale_dtype", scales, "only 16-bit scales are known")
    if k.raw("super_bits") or k.raw("super_group_size"):
        raise d.refuse("super_bits", k.raw("super_bits"), "scales quantised once more are not known")
    rules: list[Rule] = []
    extra = k.raw("extra_config") or {}
    for name, entry in extra.items() if isinstance(extra, Mapping) else ():
        layout = _layout(d, str(entry.get("data_type", kind)), form, int(entry.get("bits", bits)), entry.get("group_size", group))
        expression = any(c in _SPECIAL for c in name)
        names = Names([f"(?:.*){name}" if expression else name], regex=expression)
        rules.append(Rule(names=names, format=layout, scope=Scope(head=True, every_matrix=True)))
    rules += Kept(names=d.names("modules_to_not_convert")).rules()
    base = _layout(d, kind, form, bits, group)
    if base is None:
        raise d.refuse("bits", bits, "expected fewer than 16")
    blocks = k.raw("block_name_to_quantize")
    listed = [str(b) for b in (blocks if isinstance(blocks, list) else str(blocks).split(","))] if blocks else []
    if listed:
        rules.append(Rule(names=Names(listed), format=base))
        recipe = ByModule(plain=d.plain, scope=Scope(), rules=tuple(rules))
    else:
        recipe = ByModule(plain=d.plain, scope=Scope(blocks_only=True, towers=False), rules=tuple(rules), default=base)
    return Found(recipe=recipe, word=base.word, detail=base.name)
