"""Recipes for formats that are asked for by name: what a checkpoint in such a format would store, part by part."""

from __future__ import annotations

from gpufit.formats.eight_bit import BlockScaled
from gpufit.formats.integer_groups import IntegerGroups
from gpufit.formats.microscaling import MXFP4, nvfp4
from gpufit.formats.recipe import ByModule, Scope
from gpufit.formats.tensor import PLAIN, TensorFormat
from gpufit.model import Model, Recipe
from gpufit.quantity import BIT, BYTE, NUMBER, Q, fact

_ORIGIN = "the format as asked for: groups of 128 with an fp16 scale"


def _groups(bits: int, *, zeros: bool) -> IntegerGroups:
    return IntegerGroups(
        name=f"int{bits} groups of 128",
        word=f"int{bits}",
        bits=fact(bits, BIT, symbol="e", name="bits of one weight", origin=_ORIGIN),
        scale=fact(2, BYTE, symbol="z", name="bytes of one scale", origin=_ORIGIN),
        group=fact(128, NUMBER, symbol="g", name="weights that share a scale", origin=_ORIGIN),
        packed_rows=True,
        packed_zero=zeros,
    )


def _block() -> BlockScaled:
    def side(name: str) -> Q:
        return fact(128, NUMBER, symbol=f"g_{name}", name=f"{name} that share a scale", origin="blocks of 128x128 with an fp32 scale")

    scale = fact(4, BYTE, symbol="z", name="bytes of one scale", origin="blocks of 128x128 with an fp32 scale")
    return BlockScaled(name="fp8 blocks of 128x128", word="fp8", block_rows=side("rows"), block_columns=side("columns"), scale=scale)


def tensor_format(name: str) -> TensorFormat | None:
    """The storage of a linear layer in a format by name; None for plain dtypes."""
    match name:
        case "fp8":
            return _block()
        case "int8":
            return _groups(8, zeros=False)
        case "int4":
            return _groups(4, zeros=True)
        case "mxfp4":
            return MXFP4
        case "nvfp4":
            return nvfp4(scalars=8)
    return None


def recipe_for(name: str, model: Model) -> Recipe | None:
    """The recipe of a format asked for: every linear layer but the output head in it, the rest at 16 bit; None for plain dtypes."""
    chosen = tensor_format(name)
    if chosen is None:
        return None
    plain = PLAIN["fp16" if model.dtype == "fp16" else "bf16"]
    return ByModule(plain=plain, scope=Scope(), default=chosen)
