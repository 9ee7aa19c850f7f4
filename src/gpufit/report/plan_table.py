"""`gpufit plan` for people."""

from __future__ import annotations

from collections.abc import Sequence

from gpufit.report.console import console, model_heading, print_rows
from gpufit.report.fit_table import EXACT, floor_text
from gpufit.report.units import gib, plural
from gpufit.sizing.plan import Plan
from gpufit.sizing.question import Question


def print_plans(question: Question, concurrency: int, plans: Sequence[Plan], of: int) -> None:
    """The plans, smallest total memory first."""
    out = console()
    model = question.model
    out.print(model_heading(model))
    if not plans:
        out.print(
            f"no hardware asked about holds {plural(concurrency, 'sequence')}: heads do not divide, or it would take thousands of GPUs"
        )
        return
    first = plans[0].capacity
    out.print(
        f"{plural(concurrency, 'sequence')} of {plural(int(first.context), 'token')} at once, {first.weights.format} weights "
        f"({gib(first.weights.bytes)}), {first.cache.name} cache"
    )
    out.print()
    columns = (
        ("GPUs", "left"), ("GiB", "right"), ("Servers", "right"), ("Placement", "left"), ("Replicas", "right"), ("Each", "right"),
        ("Total", "right"),
    )  # fmt: skip
    rows = []
    for p in plans:
        tp, pp = int(p.placement.tensor_parallel), int(p.placement.pipeline_parallel)
        where = "1 GPU" if p.placement.gpus == 1 else f"tp {tp}" if pp == 1 else f"tp {tp} pp {pp}"
        rows.append(
            (
                f"{p.hardware.count:,} x {p.hardware.gpu.id}",
                f"{p.memory / 2**30:,.1f}",
                str(p.servers),
                where,
                str(int(p.replicas)),
                "-" if p.capacity.unlimited else f"{int(p.capacity.per_replica):,}",
                "-" if p.capacity.unlimited else f"{int(p.total):,}",
            )
        )
    print_rows(out, columns, rows, drop=("GiB", "Servers", "Replicas"))
    if of > len(plans):
        out.print(f"{of - len(plans)} more GPUs work: --all lists them", style="dim")
    out.print("Cloud instances that hold each: --json. gpufit fit MODEL --gpu ID:COUNT --tp N shows a row in full.", style="dim")
    out.print()
    out.print(
        f"Fewest servers first, then the least memory: not the cheapest, and nothing is said of speed. {floor_text('Each and Total')}",
        style="dim",
    )
    out.print(EXACT, style="dim")
