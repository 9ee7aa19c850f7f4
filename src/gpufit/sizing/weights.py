"""The bytes of a model's weights in a format: as published, or as a checkpoint in another format would have them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from gpufit.engines.base import WeightChoice
from gpufit.errors import UsageError
from gpufit.formats.checkpoint import checkpoint_bytes, part_bytes
from gpufit.formats.weights import WEIGHT_FORMATS, WeightFormat
from gpufit.model import TOWERS, Model
from gpufit.quantity import BIT_PER_BYTE, BYTE, Q, ceil, fact, total

if TYPE_CHECKING:
    from gpufit.formats.gguf_mixes import Mix

_SIXTEEN = fact(2, BYTE, symbol="w16", name="bytes of one 16-bit weight", origin="16-bit formats")
_EIGHT = Q(8, BIT_PER_BYTE, "const")

LADDER_BITS = {
    "fp32": 32, "bf16": 16, "fp16": 16, "int8": 8, "fp8": 8, "mxfp8": 8, "int7": 7, "int6": 6, "mxfp6": 6, "int5": 5,
    "nvfp4": 4, "mxfp4": 4, "int4": 4, "nf4": 4, "fp4": 4, "int3": 3, "int2": 2, "aqlm": 2,
}  # fmt: skip
"""Bits of one element, for "lower than the published format"."""

GGUF_LADDER = ("q8_0", "q6_k", "q5_k_m", "q4_k_m", "q3_k_m", "q2_k")
"""The mixes that `auto` tries below a published GGUF file, widest first."""

GGUF_NOTE = "llama.cpp's mix by its rules; published files differ up to 1 %, dynamic (UD) ones more"


@lru_cache(maxsize=256)
def published_weights(model: Model) -> WeightChoice:
    """The checkpoint as published.

    With a recipe the bytes are the sum over parts, each in its stored format; an unquantised checkpoint is parameters x bytes. Without
    either, the size that the file list or index gave; without that, the format in general, as an assumption. Draft
    (multi-token-prediction) layers are not loaded and not counted.
    """
    known = model.published
    if known.recipe is not None:
        size = checkpoint_bytes(model, known.recipe, with_draft=False)
        return WeightChoice(format=known.format, bytes=size, published=True, recipe=known.recipe, note=known.detail)
    if known.method != "gguf" and known.format in WEIGHT_FORMATS and not WEIGHT_FORMATS[known.format].keeps_embeddings:
        return WeightChoice(
            format=known.format, bytes=_plain_bytes(model, WEIGHT_FORMATS[known.format]), published=True, note=known.detail
        )
    if known.bytes is not None:
        return WeightChoice(
            format=known.format,
            bytes=known.bytes.as_step("W", "weights, as the checkpoint's files hold them"),
            published=True,
            gguf=known.method == "gguf",
        )
    generic = WEIGHT_FORMATS.get(known.format)
    if generic is not None:
        said = f"{known.detail or known.format}: taken as {generic.source}, embedding and output head at 16 bit"
        return WeightChoice(
            format=known.format, bytes=_quantised_bytes(model, generic), published=True, note=known.detail, assumption=said
        )
    raise UsageError(
        f"{model.id}: the bytes of its published format ({known.format}) are not known",
        hint="name a format, as in --weights bf16",
    )


@lru_cache(maxsize=1024)
def weights_in(model: Model, name: str) -> WeightChoice:
    """The weights in a format by name; the published checkpoint's own rule where that is its format."""
    if name == "published" or name == model.published.format:
        return published_weights(model)
    chosen = WEIGHT_FORMATS.get(name)
    if chosen is None:
        # Loaded where a mix is asked for, since most answers need none.
        from gpufit.formats.gguf_mixes import GGUF_MIXES, gguf_mix

        mix = gguf_mix(name)
        if mix is None:
            known = ", ".join((*WEIGHT_FORMATS, *GGUF_MIXES))
            raise UsageError(f"unknown weight format {name!r}", hint=f"one of auto, published, {known}")
        return published_weights(model) if mix.name == model.published.format else _gguf_weights(model, mix)
    if not chosen.keeps_embeddings:
        # An unquantised checkpoint is cast while it is loaded: it serves every plain dtype.
        cast = model.published.format in WEIGHT_FORMATS and not WEIGHT_FORMATS[model.published.format].keeps_embeddings
        return WeightChoice(format=name, bytes=_plain_bytes(model, chosen), published=False, cast=cast)
    size = _quantised_bytes(model, chosen)
    note = (
        "embedding and output head stay at 16 bit"
        if not model.tied
        else "the embedding (tied with the output head) stays at 16 bit"
    )
    return WeightChoice(format=name, bytes=size, published=False, note=note)


def _gguf_weights(model: Model, mix: Mix) -> WeightChoice:
    """A GGUF file of the mix: each part in the tensor type that llama.cpp's rules give it, towers at 16 bit as their own file has them."""
    from gpufit.formats.gguf_mixes import gguf_recipe

    recipe = gguf_recipe(mix.name, model)
    size = total(part_bytes(model, p, recipe) for p in model.parts).as_step("W", f"weights in {mix.name}")
    note = GGUF_NOTE
    if any(p.role in TOWERS for p in model.parts):
        note += "; towers at 16 bit, as an mmproj file has them"
    unfit = recipe.unfit(model.parts)
    assumed = f"{', '.join(unfit)}: rows fit no block of {mix.name}, taken at 16 bit" if unfit else ""
    return WeightChoice(format=mix.name, bytes=size, published=False, recipe=recipe, note=note, assumption=assumed, gguf=True)


def _plain_bytes(model: Model, chosen: WeightFormat) -> Q:
    """Parameters times the bytes of one."""
    if chosen.name in ("bf16", "fp16"):
        return (model.total_params * _SIXTEEN).as_step("W", f"weights in {chosen.name}")
    return ceil(model.total_params * chosen.bits / _EIGHT).as_step("W", f"weights in {chosen.name}")


def _quantised_bytes(model: Model, chosen: WeightFormat) -> Q:
    """Embedding and head at 16 bit, everything else in the format with its scales (interface: the arithmetic engine)."""
    if model.vocab_size is None:
        raise UsageError(
            f"{model.id} has no vocabulary size: which weights stay at 16 bit is not known", hint="--weights published"
        )
    table = model.vocab_size * model.hidden_size
    if model.tied:
        embed = table.because("input embedding and output head are one tensor").as_step("E", "embedding parameters, kept at 16 bit")
    else:
        embed = (2 * table).as_step("E", "embedding and output head parameters, kept at 16 bit")
    rest = (model.total_params - embed).as_step("N_q", f"parameters stored in {chosen.name}")
    return ceil(embed * _SIXTEEN + rest * chosen.bits_per_param() / _EIGHT).as_step("W", f"weights in {chosen.name}")


def ladder(model: Model, *, hardware_fp8: bool | None) -> tuple[str, ...]:
    """The formats that `auto` tries, widest first: the published one, then the highest lower ones.

    The 8-bit rung is fp8 where the hardware has it and int8 where it has not; the 4-bit rung is int4. Both are what quantised
    checkpoints are commonly published in; nvfp4 and mxfp4 are sized when named. Below a GGUF file stand llama.cpp's usual mixes.
    """
    if model.published.method == "gguf":
        from gpufit.formats.gguf_mixes import GGUF_MIXES

        at = GGUF_MIXES.get(model.published.format)
        return ("published", *(name for name in GGUF_LADDER if at is None or GGUF_MIXES[name].bits < at.bits))
    published = LADDER_BITS.get(model.published.format, 16)
    lower = [("int8" if hardware_fp8 is False else "fp8", 8), ("int4", 4)]
    return ("published", *(name for name, bits in lower if bits < published))
