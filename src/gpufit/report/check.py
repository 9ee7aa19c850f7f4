"""A check as JSON and as plain rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from gpufit.report.rows import Row
from gpufit.sizing.check import Line


def _number(value: Fraction) -> int | float:
    return value.numerator if value.denominator == 1 else float(value)


def check_result(about: Mapping[str, Any], lines: Iterable[Line], warnings: Iterable[str]) -> dict[str, Any]:
    """`gpufit.check/1`: memory in bytes."""
    return {
        "schema": "gpufit.check/1",
        "run": dict(about),
        "lines": [
            {
                "quantity": line.quantity,
                "predicted": _number(line.predicted),
                "logged": _number(line.logged),
                "difference": _number(line.difference),
                "relative": line.relative,
                "agrees_as_printed": line.agrees,
            }
            for line in lines
        ],
        "warnings": list(warnings),
    }


def check_rows(lines: Iterable[Line]) -> list[Row]:
    """One row a line; fractions as decimal text."""
    return [
        {
            "quantity": line.quantity,
            "predicted": str(_number(line.predicted)),
            "logged": str(_number(line.logged)),
            "difference": str(_number(line.difference)),
            "relative": "" if line.relative is None else f"{line.relative:.6f}",
        }
        for line in lines
    ]
