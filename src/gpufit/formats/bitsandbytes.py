"""Formats of the bitsandbytes library: block-wise 4 bit (NF4, FP4), with or without double quantisation, and row-wise INT8.

Dettmers et al., QLoRA (2023), section 3: blocks of 64 with an FP32 constant; double quantisation keeps the constants as 8-bit values in
blocks of 256 with an FP32 constant each.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpufit.formats.tensor import as_matrix
from gpufit.quantity import BIT, BIT_PER_BYTE, BYTE, NUMBER, Q, ceil_div, fact

_PAPER = "QLoRA (2023), section 3"
_BYTE_BITS = Q(8, BIT_PER_BYTE, "const")
_BITS = fact(4, BIT, symbol="e", name="bits of one 4-bit weight", origin=_PAPER)
_BLOCK = fact(64, NUMBER, symbol="g", name="weights that share a constant", origin=_PAPER)
_NESTED = fact(256, NUMBER, symbol="g_2", name="constants that share a constant", origin=_PAPER)
_FP32 = fact(4, BYTE, symbol="z", name="bytes of one FP32 constant", origin=_PAPER)
_BYTE = fact(1, BYTE, symbol="z_q", name="bytes of one quantised constant", origin=_PAPER)
_MAP = fact(16 * 4, BYTE, symbol="m", name="the 16 values of the 4-bit type, FP32", origin="bitsandbytes 0.43: quant_map")
_NESTED_MAP = fact(
    256 * 4, BYTE, symbol="m_2", name="the 256 values of the 8-bit type, FP32", origin="bitsandbytes 0.43: nested_quant_map"
)
_INT8 = fact(1, BYTE, symbol="w8", name="bytes of one 8-bit weight", origin="LLM.int8() (2022)")
_FORMAT = fact(1, BYTE, symbol="m", name="weight_format, one byte", origin="bitsandbytes 0.43")


@dataclass(frozen=True, slots=True, kw_only=True)
class FourBit:
    """NF4 or FP4: two weights a byte, a constant for each block of 64 in the flattened matrix, and the value tables beside them.

    The short JSON text that a checkpoint keeps for each matrix (about 100 bytes, its length depends on the numbers in it) is left out.
    """

    name: str
    word: str
    double: bool

    def tensor_bytes(self, rows: Q, columns: Q | None) -> Q:
        """Packed weights, block constants and tables of one matrix."""
        n, k = as_matrix(rows, columns)
        blocks = ceil_div(n * k, _BLOCK)
        size = ceil_div(n * k * _BITS, _BYTE_BITS) + _MAP
        if not self.double:
            return size + blocks * _FP32
        return size + blocks * _BYTE + ceil_div(blocks, _NESTED) * _FP32 + _NESTED_MAP


@dataclass(frozen=True, slots=True, kw_only=True)
class RowInt8:
    """LLM.int8(): one byte a weight and an FP32 constant for each output feature."""

    name: str
    word: str

    def tensor_bytes(self, rows: Q, columns: Q | None) -> Q:
        """rows * columns + 4 * rows, and one byte that names the layout."""
        n, k = as_matrix(rows, columns)
        return n * k * _INT8 + n * _FP32 + _FORMAT
