"""The parameters that vLLM creates for one linear layer on one rank, by the format of its checkpoint.

vLLM fuses neighbouring projections (q, k and v; gate and up; the two latent down-projections) into one tensor. Block scales count the
fused rows, and a scalar scale stands once for each part fused. Source: vLLM 0.33.0, model_executor/layers/quantization.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpufit.engines.vllm.weight_shards import Cut
from gpufit.errors import UsageError
from gpufit.formats.eight_bit import BlockScaled, ChannelScaled, TensorScaled
from gpufit.formats.integer_groups import WORD, IntegerGroups
from gpufit.formats.microscaling import Microscaled
from gpufit.formats.names import FUSED
from gpufit.formats.tensor import PLAIN, Plain, TensorFormat
from gpufit.model import Shard
from gpufit.quantity import BIT, BIT_PER_BYTE, BYTE, NUMBER, Q, ceil_div, fact, total

ELEMENT = fact(1, BYTE, symbol="w8", name="bytes of one 8-bit weight", origin="8-bit formats")
FP32_SCALE = fact(4, BYTE, symbol="z32", name="bytes of one fp32 scale", origin="vLLM 0.33.0: scales are created as fp32")
BYTE_BITS = Q(8, BIT_PER_BYTE, "const")
WORD_BITS = Q(32, BIT, "const")

_FUSES = {part: fused for fused, parts in reversed(FUSED.items()) for part in parts}


def fused_module(module: str) -> str:
    """The path of the module that vLLM makes of a published one: siblings that it fuses share the answer."""
    parent, _, last = module.rpartition(".")
    return f"{parent}.{_FUSES.get(last, last)}"


def linear_bytes(form: TensorFormat, cuts: Sequence[Cut], tp: Q, parts: Q, method: str) -> Q:
    """Bytes of one linear layer on one rank (B): the matrices of `cuts`, fused where there are several, in one format.

    `parts` counts what vLLM fuses in the module: each part brings scalar scales of its own.

    Raises `UsageError` for a format that vLLM 0.33 does not load, and for shards that do not hold whole quantisation blocks.
    """
    rows = total((c.rows for c in cuts), unit=NUMBER)
    columns = cuts[0].columns
    assert columns is not None
    match form:
        case Plain():
            return rows * columns * form.bytes_per_element
        case BlockScaled():
            if int(parts) == 1 or method != "fp8":  # FP8 checkpoints may end in part of a block where parts are fused
                _whole_blocks(form, cuts, tp)
            scales = ceil_div(rows, form.block_rows) * ceil_div(columns, form.block_columns)
            return rows * columns * ELEMENT + scales * block_scale(form)
        case TensorScaled():
            return rows * columns * ELEMENT + _scalars(form.extra is not None, parts)
        case ChannelScaled():
            size = rows * columns * ELEMENT + rows * FP32_SCALE
            return size if form.extra is None else size + parts * FP32_SCALE
        case IntegerGroups():
            _whole_groups(form, cuts, tp)
            return _packed(form, rows, columns)
        case Microscaled():
            packed = rows * ((columns * form.bits) // BYTE_BITS)
            size = packed + rows * (columns // form.block) * form.scale
            return size if form.extra is None else size + parts * form.extra
        case _:
            raise not_loaded(form)


def _packed(form: IntegerGroups, rows: Q, columns: Q) -> Q:
    """Words, scales and zero points of one fused matrix; input features beyond the last whole group have no scale."""
    words = columns * _words(form, rows) if form.packed_rows else rows * _words(form, columns)
    size = words * WORD
    lines = rows * form.scale
    if form.packed_zero:
        lines = lines + _words(form, rows) * WORD
    size = size + (lines if form.group is None else (columns // form.group) * lines)
    return size if form.extra is None else size + form.extra


def _words(form: IntegerGroups, features: Q) -> Q:
    return ceil_div(features * form.bits, WORD_BITS) if form.per_word is None else ceil_div(features, form.per_word)


def block_scale(form: BlockScaled) -> Q:
    """Bytes of one block scale: fp32 even where the file has 16 bit, but the one-byte powers of two of DeepSeek-V4 stay what they are."""
    return form.scale if int(form.scale) == 1 else FP32_SCALE


def not_loaded(form: TensorFormat) -> UsageError:
    """The refusal of a format that vLLM 0.33 has no loader for."""
    return UsageError(
        f"vLLM 0.33 does not load {form.name} checkpoints",
        hint="vLLM 0.33 loads FP8, NVFP4, MXFP4, MXFP8, AWQ, GPTQ and compressed-tensors; bitsandbytes, GGUF, AQLM and HQQ were removed",
    )


def _scalars(static: bool, parts: Q) -> Q:
    """A weight scale for each part, and an input scale where activations are scaled statically."""
    each = parts * FP32_SCALE
    return 2 * each if static else each


def _whole_blocks(form: BlockScaled, cuts: Sequence[Cut], tp: Q) -> None:
    """Refuses shards that cut through a scale block (vLLM 0.33.0, utils/fp8_utils.py validate_fp8_block_shape).

    Parts fused but not split may end in half a block if they stand last.
    """
    high, wide = int(form.block_rows), int(form.block_columns)
    split = int(tp) > 1
    part = cuts[0].part
    columns = cuts[0].columns
    if split and part.shard is Shard.ROW and columns is not None and int(columns) % wide:
        raise _cut_block(f"{part.name}: {int(columns)} input features", wide, tp)
    sharded = split and part.shard in (Shard.COLUMN, Shard.KV_HEADS)
    checked = cuts if sharded else cuts[:-1]
    for c in checked:
        if int(c.rows) % high:
            raise _cut_block(f"{c.part.name}: {int(c.rows)} output features", high, tp)


def _whole_groups(form: IntegerGroups, cuts: Sequence[Cut], tp: Q) -> None:
    """Refuses row shards that cut through a group of input features (vLLM 0.33.0, utils/marlin_utils.py)."""
    columns = cuts[0].columns
    if form.group is None or columns is None or int(tp) == 1:
        return
    if int(columns) % int(form.group):
        raise _cut_block(f"{cuts[0].part.name}: {int(columns)} input features", int(form.group), tp)


def _cut_block(what: str, block: int, tp: Q) -> UsageError:
    return UsageError(
        f"{what} on one rank are no multiple of the {block} weights that share a scale (tensor parallel {int(tp)})",
        hint="a smaller tensor parallel degree",
    )


def sixteen_bit(dtype: str) -> Plain:
    """The plain format that vLLM computes in: 16 bit, fp32 checkpoints included (config/model.py _resolve_auto_dtype)."""
    return PLAIN["fp16" if dtype == "fp16" else "bf16"]
