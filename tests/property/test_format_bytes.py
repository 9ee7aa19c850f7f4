"""What holds for every storage format, whatever the shape of the matrix."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support import calculate

from gpufit.derivation import steps
from gpufit.formats.bitsandbytes import FourBit, RowInt8
from gpufit.formats.eight_bit import ChannelScaled, TensorScaled, in_blocks, scale_of
from gpufit.formats.integer_groups import ByteGroups, IntegerGroups
from gpufit.formats.microscaling import MXFP4, MXFP8, mxfp6, nvfp4
from gpufit.formats.tensor import PLAIN, TensorFormat
from gpufit.quantity import BIT, BYTE, NUMBER, Q, fact


def number(value: int) -> Q:
    return fact(value, NUMBER, symbol="n", name="n", origin="test")


def _integers(bits: int, *, rows: bool) -> IntegerGroups:
    return IntegerGroups(
        name=f"int{bits}", word=f"int{bits}", bits=fact(bits, BIT, symbol="e", name="bits", origin="test"), packed_rows=rows,
        scale=fact(2, BYTE, symbol="z", name="scale", origin="test"), group=number(128), packed_zero=True,
    )  # fmt: skip


FORMATS: dict[str, tuple[TensorFormat, int]] = {
    "bf16": (PLAIN["bf16"], 16),
    "fp8 tensor": (TensorScaled(name="t", word="fp8", scale=scale_of(4, "test")), 8),
    "fp8 channel": (ChannelScaled(name="t", word="fp8", scale=scale_of(2, "test")), 8),
    "fp8 block": (in_blocks("fp8", 128, 128, scale=scale_of(4, "test"), origin="test"), 8),
    "int4 rows": (_integers(4, rows=True), 4),
    "int3 columns": (_integers(3, rows=False), 3),
    "mxfp4": (MXFP4, 4),
    "mxfp6": (mxfp6(), 6),
    "mxfp8": (MXFP8, 8),
    "nvfp4": (nvfp4(scalars=8), 4),
    "nf4": (FourBit(name="t", word="nf4", double=True), 4),
    "int8 rows": (RowInt8(name="t", word="int8"), 8),
    "hqq": (
        ByteGroups(
            name="t", word="int4", bits=fact(4, BIT, symbol="e", name="b", origin="t"), scale=scale_of(4, "t"), group=number(64)
        ),
        4,
    ),
}
ANY = st.sampled_from(sorted(FORMATS))
SIDE = st.integers(min_value=1, max_value=20_000)


@given(ANY, SIDE, SIDE)
def test_no_format_stores_less_than_its_bits(name: str, rows: int, columns: int) -> None:
    """Padding, scales and tables only add to the bits of the elements."""
    form, bits = FORMATS[name]
    assert 8 * int(form.tensor_bytes(number(rows), number(columns))) >= bits * rows * columns


@given(ANY, SIDE, SIDE, SIDE)
def test_more_output_features_never_take_less(name: str, rows: int, more: int, columns: int) -> None:
    """A matrix with more rows, or twice the columns, is never smaller."""
    form, _ = FORMATS[name]
    small = int(form.tensor_bytes(number(rows), number(columns)))
    assert int(form.tensor_bytes(number(rows + more), number(columns))) >= small
    assert int(form.tensor_bytes(number(rows), number(2 * columns))) >= small


@given(ANY, SIDE, SIDE, st.sampled_from([2, 4, 8]))
def test_shards_are_never_less_than_the_whole(name: str, rows: int, columns: int, ranks: int) -> None:
    """Cutting a matrix by output features keeps or repeats bytes, and loses none."""
    form, _ = FORMATS[name]
    whole = int(form.tensor_bytes(number(rows * ranks), number(columns)))
    assert ranks * int(form.tensor_bytes(number(rows), number(columns))) >= whole


@given(ANY, SIDE, SIDE)
def test_the_printed_line_gives_the_bytes(name: str, rows: int, columns: int) -> None:
    """The substitution of a matrix's line, evaluated by other code, is the number computed."""
    size = FORMATS[name][0].tensor_bytes(number(rows), number(columns)).as_step("W", "bytes")
    last = steps(size)[-1]
    assert calculate(last.substitution) == int(size)
    assert last.unit == "B"


@given(ANY, SIDE)
def test_a_vector_is_one_row(name: str, length: int) -> None:
    """A format asked for a vector answers for a matrix of one output feature."""
    form, _ = FORMATS[name]
    assert int(form.tensor_bytes(number(length), None)) == int(form.tensor_bytes(number(1), number(length)))
