"""`gpufit check` for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from gpufit.report.console import console, heading, table
from gpufit.sizing.check import Line

_MEMORY = ("model loading", "available KV cache memory")


def print_check(about: Mapping[str, Any], lines: Sequence[Line], notes: Sequence[str]) -> None:
    """The lines of a log beside their predictions."""
    out = console()
    version = about["vllm_version"]
    out.print(heading(f"{about['model']} on {about['gpu']}, tensor parallel {about['tensor_parallel']}"))
    rules = f"rules of vLLM {about['rules_of']}"
    out.print(f"log of vLLM {version}, {rules}" if version else f"the log states no vLLM version: {rules}")
    out.print()
    rows = table("Line", ("Predicted", "right"), ("Logged", "right"), ("Off by", "right"))
    for line in lines:
        off = "as printed" if line.agrees else "-" if line.relative is None else f"{line.relative:+.1%}"
        rows.add_row(line.quantity, _text(line.quantity, line.predicted), _text(line.quantity, line.logged), off)
    out.print(rows)
    for note in notes:
        out.print(f"note: {note}")


def _text(quantity: str, value: Fraction) -> str:
    if quantity in _MEMORY:
        return f"{float(value) / 2**30:.2f} GiB"
    return f"{int(value):,}" if value.denominator == 1 else f"{float(value):,.2f}x"
