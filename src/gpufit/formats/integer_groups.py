"""Integers of a few bits in groups along the input features: GPTQ, AWQ, pack-quantized, MLX, HQQ, torchao, EETQ."""

from __future__ import annotations

from dataclasses import dataclass

from gpufit.formats.tensor import as_matrix
from gpufit.quantity import BIT, BIT_PER_BYTE, BYTE, Q, ceil_div, fact

WORD = fact(4, BYTE, symbol="w32b", name="bytes of one 32-bit word", origin="packed formats store 32-bit words")
_WORD_BITS = Q(32, BIT, "const")
_BYTE_BITS = Q(8, BIT_PER_BYTE, "const")


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerGroups:
    """Weights of `bits` bits packed into 32-bit words, a scale for each group of `group` input features of every output feature.

    `group` None: one group, the whole row. `packed_rows`: words hold neighbouring output features (AWQ) instead of input features.
    `per_word`: so many weights fill a word and the rest of its bits is lost (compressed-tensors at bits that do not divide 32); None:
    weights cross word borders. `zero` is the bytes of a zero point stored like a scale; `packed_zero` packs zero points like weights.
    `index` is the bytes of the group number of one input feature (g_idx), None where there is none. `extra` is for what one matrix
    carries once (its shape).
    """

    name: str
    word: str
    bits: Q
    scale: Q
    group: Q | None = None
    packed_rows: bool = False
    per_word: Q | None = None
    zero: Q | None = None
    packed_zero: bool = False
    index: Q | None = None
    extra: Q | None = None

    def _words(self, features: Q) -> Q:
        """Words that hold so many weights in a line."""
        return ceil_div(features * self.bits, _WORD_BITS) if self.per_word is None else ceil_div(features, self.per_word)

    def tensor_bytes(self, rows: Q, columns: Q | None) -> Q:
        """Packed words, scales, zero points and group numbers of one matrix."""
        n, k = as_matrix(rows, columns)
        groups = None if self.group is None else ceil_div(k, self.group)
        words = k * self._words(n) if self.packed_rows else n * self._words(k)
        size = words * WORD
        scales = n * self.scale if self.zero is None else n * (self.scale + self.zero)
        size = size + (scales if groups is None else groups * scales)
        if self.packed_zero:
            zeros = self._words(n) * WORD
            size = size + (zeros if groups is None else groups * zeros)
        if self.index is not None:
            size = size + k * self.index
        return size if self.extra is None else size + self.extra


@dataclass(frozen=True, slots=True, kw_only=True)
class Codebooks:
    """Additive codebooks (AQLM): codes for each group of weights, the codebooks themselves and a scale for each output group.

    `codes` is the bytes of all codes of one group (codebooks x bytes of one code), `book` those of the codebooks of one matrix.
    """

    name: str
    word: str
    group_in: Q
    group_out: Q
    codes: Q
    book: Q
    scale: Q

    def tensor_bytes(self, rows: Q, columns: Q | None) -> Q:
        """Codes, codebooks and scales of one matrix."""
        n, k = as_matrix(rows, columns)
        out = ceil_div(n, self.group_out)
        return out * ceil_div(k, self.group_in) * self.codes + self.book + out * self.scale


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteGroups:
    """Weights of `bits` bits packed into bytes over the whole matrix, scale and zero for each group of `group` weights (HQQ).

    `group` None: one group for each output feature. `per_word` weights fill a 32-bit word where the bits do not divide a byte.
    """

    name: str
    word: str
    bits: Q
    scale: Q
    group: Q | None = None
    per_word: Q | None = None

    def tensor_bytes(self, rows: Q, columns: Q | None) -> Q:
        """Packed weights, and scale and zero of every group."""
        n, k = as_matrix(rows, columns)
        packed = ceil_div(n * k * self.bits, _BYTE_BITS) if self.per_word is None else ceil_div(n * k, self.per_word) * WORD
        groups = n if self.group is None else ceil_div(n * k, self.group)
        return packed + groups * self.scale
