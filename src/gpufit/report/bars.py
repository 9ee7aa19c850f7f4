"""A ledger as one bar: where a GPU's memory goes, readable without colour."""

from __future__ import annotations

from collections.abc import Sequence

from gpufit.engines.base import LedgerLine
from gpufit.report.units import memory

_FILLS = {"weights": "#", "KV": "=", "overhead": "o", "left": ".", "outside": " "}


def _fill(name: str) -> str:
    """One sign, one meaning, under every engine: told by the first word of a line's name."""
    return _FILLS.get(name.split()[0], "+")


def cells(lines: Sequence[LedgerLine], width: int) -> list[tuple[LedgerLine, str, int]]:
    """Each line with its fill and its share of `width` cells; a line that holds anything has at least one cell.

    The shares sum to `width`: the largest gives or takes what rounding leaves. Negative lines have no cells.
    """
    sizes = [max(0, int(line.bytes)) for line in lines]
    whole = sum(sizes) or 1
    shares = [max(1, round(size * width / whole)) if size else 0 for size in sizes]
    largest = max(range(len(shares)), key=shares.__getitem__)
    shares[largest] += width - sum(shares)
    return [(line, _fill(line.name), share) for line, share in zip(lines, shares, strict=True)]


def bar(lines: Sequence[LedgerLine], width: int) -> str:
    """The bar, between brackets."""
    return "[" + "".join(fill * share for _, fill, share in cells(lines, width - 2)) + "]"


def legend(lines: Sequence[LedgerLine]) -> list[tuple[str, str, str]]:
    """One row per line: its fill, name and size."""
    return [(fill, line.name, memory(line.bytes)) for line, fill, _ in cells(lines, 40)]
