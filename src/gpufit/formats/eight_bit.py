"""One byte a weight with scales beside it: FP8 and INT8 checkpoints scaled per tensor, per channel or per block."""

from __future__ import annotations

from dataclasses import dataclass

from gpufit.formats.tensor import as_matrix
from gpufit.quantity import BYTE, NUMBER, Q, ceil_div, fact

ELEMENT = fact(1, BYTE, symbol="w8", name="bytes of one 8-bit weight", origin="8-bit formats")


def scale_of(size: int, origin: str) -> Q:
    """The bytes of one scale, by where the format says so."""
    return fact(size, BYTE, symbol="z", name="bytes of one scale", origin=origin)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorScaled:
    """One scale for the whole matrix; `extra` is for further scalars beside it (a static input scale, a zero point)."""

    name: str
    word: str
    scale: Q
    extra: Q | None = None

    def tensor_bytes(self, rows: Q, columns: Q | None) -> Q:
        """rows * columns + scale."""
        n, k = as_matrix(rows, columns)
        size = n * k * ELEMENT + self.scale
        return size if self.extra is None else size + self.extra


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelScaled:
    """One scale for each output feature; `extra` as in `TensorScaled`."""

    name: str
    word: str
    scale: Q
    extra: Q | None = None

    def tensor_bytes(self, rows: Q, columns: Q | None) -> Q:
        """rows * columns + rows * scale."""
        n, k = as_matrix(rows, columns)
        size = n * k * ELEMENT + n * self.scale
        return size if self.extra is None else size + self.extra


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockScaled:
    """One scale for each block of `block_rows` x `block_columns`; blocks at the edge count whole.

    DeepSeek-V3 technical report, section 3.3.2; `weight_scale_inv` in the checkpoints.
    """

    name: str
    word: str
    block_rows: Q
    block_columns: Q
    scale: Q
    extra: Q | None = None

    def tensor_bytes(self, rows: Q, columns: Q | None) -> Q:
        """rows * columns + ceil(rows / block) * ceil(columns / block) * scale."""
        n, k = as_matrix(rows, columns)
        size = n * k * ELEMENT + ceil_div(n, self.block_rows) * ceil_div(k, self.block_columns) * self.scale
        return size if self.extra is None else size + self.extra


def in_blocks(word: str, rows: int, columns: int, *, scale: Q, origin: str, extra: Q | None = None) -> BlockScaled:
    """Blocks of `rows` x `columns`, whose size stands at `origin`; groups of one row are named by their length."""
    return BlockScaled(
        name=f"{word} groups of {columns}" if rows == 1 else f"{word} blocks of {rows}x{columns}",
        word=word,
        block_rows=fact(rows, NUMBER, symbol="g_n", name="output features of a block", origin=origin),
        block_columns=fact(columns, NUMBER, symbol="g_k", name="input features of a block", origin=origin),
        scale=scale,
        extra=extra,
    )
