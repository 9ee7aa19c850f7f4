"""Micro-scaled floats: small blocks along the input features with a one-byte scale each (MXFP4, MXFP8, NVFP4).

OCP Microscaling Formats v1.0: blocks of 32 with an E8M0 scale. NVFP4: blocks of 16 with an FP8 E4M3 scale and one FP32 scale a matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpufit.formats.tensor import as_matrix
from gpufit.quantity import BIT, BIT_PER_BYTE, BYTE, NUMBER, Q, ceil_div, fact

_BYTE_BITS = Q(8, BIT_PER_BYTE, "const")


@dataclass(frozen=True, slots=True, kw_only=True)
class Microscaled:
    """`bits` a weight and `scale` bytes a block of `block` input features; blocks at the edge count whole.

    `extra` is for the scalars of one matrix (global and input scales), `column_extra` for what every input feature has beside it (the
    pre-quantisation scales of AWQ variants).
    """

    name: str
    word: str
    bits: Q
    block: Q
    scale: Q
    extra: Q | None = None
    column_extra: Q | None = None

    def tensor_bytes(self, rows: Q, columns: Q | None) -> Q:
        """Packed elements and block scales of one matrix."""
        n, k = as_matrix(rows, columns)
        size = n * ceil_div(k * self.bits, _BYTE_BITS) + n * ceil_div(k, self.block) * self.scale
        if self.column_extra is not None:
            size = size + k * self.column_extra
        return size if self.extra is None else size + self.extra


def _microscaled(
    word: str, bits: int, block: int, origin: str, scalars: int = 0, name: str = "", block_origin: str = ""
) -> Microscaled:
    return Microscaled(
        name=name or f"{word} blocks of {block}",
        word=word,
        bits=fact(bits, BIT, symbol="e", name=f"bits of one {word} weight", origin=origin),
        block=fact(block, NUMBER, symbol="g", name="weights that share a scale", origin=block_origin or origin),
        scale=fact(1, BYTE, symbol="z", name="bytes of one block scale", origin=origin),
        extra=fact(scalars, BYTE, symbol="z_t", name="scalar scales of one matrix", origin=origin) if scalars else None,
    )


_OCP = "OCP Microscaling Formats v1.0"
_NV = "NVFP4: E4M3 block scales, FP32 scale of the matrix"

MXFP4 = _microscaled("mxfp4", 4, 32, _OCP)
MXFP8 = _microscaled("mxfp8", 8, 32, _OCP)


def mxfp6() -> Microscaled:
    """Six-bit elements in blocks of 32."""
    return _microscaled("mxfp6", 6, 32, _OCP)


def nvfp4(*, scalars: int, block: int = 16, block_origin: str = "") -> Microscaled:
    """NVFP4 with so many bytes of scalar scales a matrix: 4 for the global scale, 4 more for a static input scale."""
    return _microscaled("nvfp4", 4, block, _NV, scalars, f"nvfp4 blocks of {block}", block_origin)
