"""GGML's tensor types: rows cut into blocks of 32 to 256 elements, each stored with its scales.

Sizes: gguf-py 0.19.0, constants.py GGML_QUANT_SIZES. Fallbacks: llama.cpp, src/llama-quant.cpp tensor_type_fallback.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from gpufit.formats.tensor import PLAIN, TensorFormat, as_matrix
from gpufit.quantity import BYTE, NUMBER, Q, ceil_div, fact


@dataclass(frozen=True, slots=True)
class TensorType:
    """A GGML tensor type: rows are stored in blocks of `block` elements, each of `size` bytes with its scales."""

    name: str
    block: int
    size: int


TYPES: dict[str, TensorType] = {
    t.name: t
    for t in (
        TensorType("F32", 1, 4),
        TensorType("F16", 1, 2),
        TensorType("BF16", 1, 2),
        TensorType("F64", 1, 8),
        TensorType("I8", 1, 1),
        TensorType("I16", 1, 2),
        TensorType("I32", 1, 4),
        TensorType("I64", 1, 8),
        TensorType("Q4_0", 32, 18),
        TensorType("Q4_1", 32, 20),
        TensorType("Q5_0", 32, 22),
        TensorType("Q5_1", 32, 24),
        TensorType("Q8_0", 32, 34),
        TensorType("Q8_1", 32, 40),
        TensorType("Q2_K", 256, 84),
        TensorType("Q3_K", 256, 110),
        TensorType("Q4_K", 256, 144),
        TensorType("Q5_K", 256, 176),
        TensorType("Q6_K", 256, 210),
        TensorType("Q8_K", 256, 292),
        TensorType("IQ1_S", 256, 50),
        TensorType("IQ1_M", 256, 56),
        TensorType("IQ2_XXS", 256, 66),
        TensorType("IQ2_XS", 256, 74),
        TensorType("IQ2_S", 256, 82),
        TensorType("IQ3_XXS", 256, 98),
        TensorType("IQ3_S", 256, 110),
        TensorType("IQ4_NL", 32, 18),
        TensorType("IQ4_XS", 256, 136),
        TensorType("TQ1_0", 256, 54),
        TensorType("TQ2_0", 256, 66),
        TensorType("MXFP4", 32, 17),
        TensorType("NVFP4", 64, 36),
        TensorType("Q1_0", 128, 18),
    )
}
"""By name."""

_NARROWER = {
    "Q2_K": "Q4_0", "Q3_K": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0", "IQ1_S": "IQ4_NL", "IQ1_M": "IQ4_NL",
    "IQ2_XXS": "IQ4_NL", "IQ2_XS": "IQ4_NL", "IQ2_S": "IQ4_NL", "IQ3_XXS": "IQ4_NL", "IQ3_S": "IQ4_NL", "IQ4_XS": "IQ4_NL",
}  # fmt: skip
"""The type in blocks of 32 that takes the place of one in blocks of 256 where rows are no multiple of 256."""

_PLAIN = {"F32": "fp32", "F16": "fp16", "BF16": "bf16", "I32": "int32", "I64": "int64", "I8": "int8"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """One block type as a storage format: `size` bytes for each `block` input features of every output feature."""

    name: str
    word: str
    block: Q
    size: Q

    def tensor_bytes(self, rows: Q, columns: Q | None) -> Q:
        """rows * ceil(columns / block) * size."""
        n, k = as_matrix(rows, columns)
        return n * ceil_div(k, self.block) * self.size


@cache
def ggml_format(name: str) -> TensorFormat:
    """The storage format of a type by GGML's name, as in "Q4_K"; the same object each time."""
    plain = _PLAIN.get(name)
    if plain is not None:
        return PLAIN[plain]
    kind = TYPES[name]
    origin = f"gguf-py 0.19.0, GGML_QUANT_SIZES: {name}"
    return Blocks(
        name=name,
        word=name.lower(),
        block=fact(kind.block, NUMBER, symbol="g", name=f"elements of a {name} block", origin=origin),
        size=fact(kind.size, BYTE, symbol="z", name=f"bytes of a {name} block with its scales", origin=origin),
    )


def fitting(name: str, columns: int) -> str:
    """The type that llama.cpp stores rows of so many elements in where `name` is meant: a narrower block, else F16."""
    for candidate in (name, _NARROWER.get(name, "F16")):
        if columns % TYPES[candidate].block == 0:
            return candidate
    return "F16"


def bits_per_weight(name: str) -> float:
    """Bits of one element, its share of the scales included."""
    return TYPES[name].size * 8 / TYPES[name].block
