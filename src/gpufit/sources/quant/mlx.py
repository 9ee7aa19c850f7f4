"""`quantization` as MLX writes it: affine integers or micro-scaled floats, embeddings included, overrides by module beside the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpufit.formats.integer_groups import IntegerGroups
from gpufit.formats.microscaling import MXFP4, MXFP8, nvfp4
from gpufit.formats.names import Names
from gpufit.formats.recipe import ByModule, Rule, Scope
from gpufit.formats.tensor import TensorFormat
from gpufit.quantity import BIT, BYTE, fact
from gpufit.sources.quant.base import Declared, Found

METHODS = ("mlx",)

_BARE_ROUTERS = (
    "deepseek", "deepseek_v2", "deepseek_v3", "deepseek_v32", "dots1", "exaone_moe", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa",
    "kimi_k2", "kimi_k25", "mimo_v2_flash", "nemotron_h",
)  # fmt: skip
"""Families whose MLX class keeps the router as a bare array, which its quantiser does not see (mlx-lm 0.32.2, models)."""

_KEYS = ("group_size", "bits", "mode", "quant_method", "linear_class", "quantize_input")


def _layout(d: Declared, at: str, entry: Mapping[str, Any]) -> TensorFormat:
    mode, bits, group = entry.get("mode") or "affine", entry.get("bits"), entry.get("group_size")
    if mode == "affine" and bits in (2, 3, 4, 5, 6, 8) and isinstance(group, int):
        return IntegerGroups(
            name=f"int{bits} groups of {group} (MLX)",
            word=f"int{bits}",
            bits=fact(bits, BIT, symbol="e", name="bits of one weight", origin=d.origin(f"{at}bits")),
            scale=fact(2, BYTE, symbol="z", name="bytes of one scale", origin="MLX: 16-bit scales"),
            zero=fact(2, BYTE, symbol="z_0", name="bytes of one bias of a group", origin="MLX affine: 16-bit biases"),
            group=d.number(f"{at}group_size", group, symbol="g", label="weights that share a scale"),
        )
    if mode == "mxfp4" and bits in (4, None) and group in (32, None):
        return MXFP4
    if mode == "mxfp8" and bits in (8, None) and group in (32, None):
        return MXFP8
    if mode == "nvfp4" and bits in (4, None) and group in (16, None):
        return nvfp4(scalars=4 if entry.get("global_scale") else 0)
    raise d.refuse(f"{at}mode", dict(entry), "a kind of MLX quantisation that is not known")


def read(d: Declared) -> Found:
    """Every matrix of the language model whose input features divide by the group: linear layers, routers, embeddings and head.

    Towers stay as they are (mlx-vlm leaves vision and audio modules out), convolutions too, by their shape. The converter casts FP32
    matrices to the model's dtype before. An entry by module has its
    own numbers, or false for a module left as it is.
    """
    family = d.text.text("model_type") or ""
    base = _layout(d, "", {k: d.keys.raw(k) for k in ("group_size", "bits", "mode")})
    d.keys.ignore(*_KEYS)
    group = d.keys.raw("group_size")
    scope = Scope(head=True, embeddings=True, towers=False, every_matrix=True, multiple=int(group) if group is not None else 32,
                  recast=True, routers=family not in _BARE_ROUTERS)  # fmt: skip
    rules: list[Rule] = []
    kept: list[str] = []
    formats: dict[str, tuple[TensorFormat, list[str]]] = {}
    for name, entry in d.keys.data.items():
        if name in _KEYS:
            continue
        d.keys.ignore(name)
        if entry is False:
            kept.append(name)
        elif isinstance(entry, Mapping) and not set(entry) - {"group_size", "bits", "mode", "global_scale"}:
            merged = {"group_size": group, "bits": d.keys.raw("bits"), "mode": d.keys.raw("mode"), **entry}
            formats.setdefault(str(sorted(merged.items(), key=str)), (_layout(d, f"{name}.", merged), []))[1].append(name)
        elif entry is not True:
            raise d.refuse(name, entry, "expected true, false, or bits and group_size of one module")
    if kept:
        rules.append(Rule(names=Names(kept), format=None))
    rules += [
        Rule(names=Names(names), format=chosen, scope=_named(int(group) if group else 32)) for chosen, names in formats.values()
    ]
    recipe = ByModule(plain=d.plain, scope=scope, rules=tuple(rules), default=base)
    return Found(recipe=recipe, word=base.word, detail=base.name)


def _named(multiple: int) -> Scope:
    """What an entry by module reaches: towers too, when it names them."""
    return Scope(head=True, embeddings=True, towers=True, every_matrix=True, multiple=multiple, recast=True)
