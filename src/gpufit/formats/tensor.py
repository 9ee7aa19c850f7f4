"""How one stored matrix turns into bytes, scales and padding included: the storage formats of checkpoints.

A `TensorFormat` answers for one matrix of `rows` x `columns` (rows: output features; columns: input features), so that a shard of a
matrix can be asked for as well as a whole one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gpufit.quantity import BYTE, NUMBER, Q, fact


class TensorFormat(Protocol):
    """A storage format of one matrix. `tensor_bytes` has the unit B."""

    @property
    def name(self) -> str:
        """The name for people, as in "fp8 blocks of 128x128"."""
        ...

    @property
    def word(self) -> str:
        """The short word of the format, as in "fp8"."""
        ...

    def tensor_bytes(self, rows: Q, columns: Q | None) -> Q:
        """Bytes of one matrix, or of a vector of `rows` elements when `columns` is None."""
        ...


ONE = fact(1, NUMBER, symbol="one", name="one", origin="arithmetic")


def as_matrix(rows: Q, columns: Q | None) -> tuple[Q, Q]:
    """Output and input features; a vector is one row."""
    return (ONE, rows) if columns is None else (rows, columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """An unquantised dtype: so many bytes for every element."""

    name: str
    bytes_per_element: Q

    @property
    def word(self) -> str:
        """The dtype's short name."""
        return self.name

    def tensor_bytes(self, rows: Q, columns: Q | None) -> Q:
        """rows * columns * bytes."""
        elements = rows if columns is None else rows * columns
        return elements * self.bytes_per_element


def _plain(name: str, size: int, symbol: str) -> Plain:
    return Plain(
        name=name,
        bytes_per_element=fact(size, BYTE, symbol=symbol, name=f"bytes of one {name} weight", origin=f"dtype {name}"),
    )


PLAIN: dict[str, Plain] = {
    "fp32": _plain("fp32", 4, "w32"),
    "bf16": _plain("bf16", 2, "w16"),
    "fp16": _plain("fp16", 2, "w16"),
    "int32": _plain("int32", 4, "w32"),
    "int64": _plain("int64", 8, "w64"),
    "int8": _plain("int8", 1, "w8"),
    "fp8": _plain("fp8", 1, "w8"),
}

DTYPES: dict[str, str] = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "half": "fp16",
    "float": "fp32",
}
"""torch's dtype names, as config.json writes them, to the short ones."""
