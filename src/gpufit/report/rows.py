"""Answers as plain rows, and rows as CSV or Markdown: raw bytes and counts, for spreadsheets and documents."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gpufit.derivation import number_text
from gpufit.sizing.cost import CacheCost
from gpufit.sizing.question import Answer

if TYPE_CHECKING:
    from gpufit.derivation import Step

Cell = str | int | None
Row = dict[str, Cell]


def fit_rows(answers: Iterable[Answer]) -> list[Row]:
    """One row per model."""
    rows: list[Row] = []
    for a in answers:
        c, p = a.capacity, a.placement
        rows.append(
            {
                "model": a.question.model.slug,
                "fits": "yes" if a.fits else "no",
                "weights": c.weights.format if c else None,
                "weights_bytes": int(c.weights.bytes) if c else None,
                "gpu": a.hardware.gpu.id,
                "tensor_parallel": int(p.tensor_parallel) if p else None,
                "pipeline_parallel": int(p.pipeline_parallel) if p else None,
                "replicas": int(a.replicas) if a.replicas is not None else None,
                "kv_cache_dtype": c.cache.name if c else None,
                "context": int(c.context) if c else None,
                "bytes_per_sequence": int(c.sequence_bytes) if c else None,
                "concurrency_per_replica": int(c.per_replica) if c and a.sequences is not None else None,
                "concurrency_total": a.sequences,
                "reason": a.reason,
            }
        )
    return rows


def kv_rows(costs: Iterable[CacheCost]) -> list[Row]:
    """One row per model and context."""
    rows: list[Row] = []
    for c in costs:
        for n, whole, here in c.per_sequence:
            rows.append(
                {
                    "model": c.model.slug,
                    "kv_cache_dtype": c.cache.name,
                    "bytes_per_token": int(c.per_token),
                    "bytes_per_token_per_gpu": int(c.per_token_on_gpu),
                    "tensor_parallel": c.tensor_parallel,
                    "context": int(n),
                    "bytes_per_sequence": int(whole),
                    "bytes_per_sequence_per_gpu": int(here),
                }
            )
    return rows


def step_rows(steps: Iterable[Step]) -> list[Row]:
    """One row per step of a derivation, in its order; a fraction that does not end is the quotient of two whole numbers."""
    return [
        {
            "symbol": s.symbol,
            "name": s.name,
            "value": s.value if isinstance(s.value, int) else number_text(s.value).strip("()").replace(" ", ""),
            "unit": s.unit,
            "formula": s.formula or None,
            "substitution": s.substitution or None,
            "origin": s.origin or None,
            "note": s.note or None,
        }
        for s in steps
    ]


def written(rows: Sequence[Row], format: str) -> str:
    """The rows as `csv` or `markdown`, with a header; an unknown cell is empty."""
    if not rows:
        return ""
    head = list(rows[0])
    if format == "csv":
        text = io.StringIO()
        out = csv.DictWriter(text, head, lineterminator="\n")
        out.writeheader()
        out.writerows(rows)
        return text.getvalue()
    known = [[r[h] for r in rows if r[h] is not None] for h in head]
    numeric = [bool(column) and all(isinstance(v, int) for v in column) for column in known]
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---:" if n else "---" for n in numeric) + " |"]
    lines += ["| " + " | ".join(_cell(r[h]) for h in head) + " |" for r in rows]
    return "\n".join(lines) + "\n"


def _cell(value: Cell) -> str:
    return "" if value is None else str(value).replace("|", "\\|")
