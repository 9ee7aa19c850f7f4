"""Recipes for formats that are asked for by name: what a checkpoint in such a format would store, part by part."""

from __future__ import annotations

from functools import cache
from math import gcd

from gpufit.formats.eight_bit import BlockScaled, ChannelScaled, TensorScaled, scale_of
from gpufit.formats.integer_groups import IntegerGroups
from gpufit.formats.microscaling import MXFP4, nvfp4
from gpufit.formats.recipe import ByModule, Scope
from gpufit.formats.tensor import PLAIN, TensorFormat
from gpufit.model import Model, Recipe
from gpufit.quantity import BIT, BYTE, NUMBER, Q, fact


@cache
def _groups(bits: int, *, zeros: bool, group: int | None = 128) -> IntegerGroups:
    scales = "one fp16 scale a channel" if group is None else f"groups of {group} with an fp16 scale"
    origin = f"the format as asked for: {scales}"
    return IntegerGroups(
        name=f"int{bits} per channel" if group is None else f"int{bits} groups of {group}",
        word=f"int{bits}",
        bits=fact(bits, BIT, symbol="e", name="bits of one weight", origin=origin),
        scale=fact(2, BYTE, symbol="z", name="bytes of one scale", origin=origin),
        group=None if group is None else fact(group, NUMBER, symbol="g", name="weights that share a scale", origin=origin),
        packed_rows=True,
        packed_zero=zeros,
    )


def _block() -> BlockScaled:
    def side(name: str) -> Q:
        return fact(
            128, NUMBER, symbol=f"g_{name}", name=f"{name} that share a scale", origin="blocks of 128x128 with an fp32 scale"
        )

    scale = fact(4, BYTE, symbol="z", name="bytes of one scale", origin="blocks of 128x128 with an fp32 scale")
    return BlockScaled(
        name="fp8 blocks of 128x128", word="fp8", block_rows=side("rows"), block_columns=side("columns"), scale=scale
    )


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
    """The recipe of a format asked for: every linear layer of the decoder but the output head in it, towers and the rest at 16 bit.

    None for plain dtypes.
    """
    return _of(tensor_format(name), model)


def assumed_recipe(name: str, model: Model) -> Recipe | None:
    """The recipe of a published format that no declaration spells out: as `recipe_for`, fp8 with one scale a matrix.

    Blocks of scales would be a claim that the checkpoint does not make, and that could cut through a shard.
    """
    return _of(_ONE_SCALE if name == "fp8" else tensor_format(name), model)


def _of(chosen: TensorFormat | None, model: Model) -> Recipe | None:
    if chosen is None:
        return None
    plain = PLAIN["fp16" if model.dtype == "fp16" else "bf16"]
    return ByModule(plain=plain, scope=Scope(towers=False), default=chosen)


_ONE_SCALE = TensorScaled(name="fp8 per tensor", word="fp8", scale=scale_of(4, "assumed: one fp32 scale a matrix"))
_PER_CHANNEL = ChannelScaled(
    name="fp8 per channel", word="fp8", scale=scale_of(4, "the format as asked for: one fp32 scale a channel")
)
_LEAST_GROUP = 32
"""The smallest group of integers that quantisers write."""


def finer(form: TensorFormat, width: int) -> tuple[TensorFormat, ...]:
    """Formats of the same bits whose scales no shard cuts, for a matrix with so many input features on a GPU; none where none is known."""
    if isinstance(form, BlockScaled):
        return (_PER_CHANNEL,)
    if isinstance(form, IntegerGroups) and form.group is not None:
        group = gcd(int(form.group), width)
        bits, zeros = int(form.bits), form.packed_zero
        between = (_groups(bits, zeros=zeros, group=group),) if _LEAST_GROUP <= group < int(form.group) else ()
        return (*between, _groups(bits, zeros=zeros, group=None))
    return ()
