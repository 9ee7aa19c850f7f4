"""`gpufit plan`: the smallest hardware that serves a model."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated

import typer

from gpufit.cli import options as o
from gpufit.cli.asked import Asked, asks

HELP = """The reverse question: the smallest hardware that holds so many sequences of a model at once, GPU by GPU.

Every GPU of the catalogue is tried, or those named with --gpu (a count there does not matter).

\b
Examples:
  gpufit plan llama-3.3-70b --context 32k --concurrency 64
  gpufit plan deepseek-v3 --concurrency 200 --gpu h200-sxm --gpu b200 --json
"""


@asks
def command(
    asked: Asked,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Catalogue name, ORG/NAME, folder, config.json or -.")],
    concurrency: Annotated[int, typer.Option("--concurrency", metavar="N", help="Sequences of full length to hold at once.")] = 1,
    every: Annotated[bool, typer.Option("--all", help="List every GPU that works, not only the 15 smallest; slices too.")] = False,
) -> None:
    """Asks for each GPU how few of it are enough."""
    from gpufit.cli.resolve import models_named
    from gpufit.errors import UsageError
    from gpufit.sizing.plan import plans
    from gpufit.sources.gpuspec import parse_specs
    from gpufit.sources.instances import instances
    from gpufit.sources.listing import every_device

    chosen = asked.output()
    o.positive(concurrency, "--concurrency")
    workload, engine = asked.workload(), asked.policy()
    hardware = parse_specs(asked.gpu) if asked.gpu else parse_specs(every_device(slices=every))
    named = models_named([model], offline=asked.offline, assume_dense=asked.assume_dense, exact=asked.exact)[0]
    question = asked.question(named, tuple(replace(h, notes=()) for h in hardware), workload, engine)
    limit = named.max_context
    if workload.context is None and limit is None:
        raise UsageError(f"{named.slug}: its config states no context limit", hint="name a number, as in --context 32k")
    if workload.context is not None and limit is not None and workload.context > limit:
        raise UsageError(
            f"{named.slug} holds at most {int(limit):,} tokens, asked for {int(workload.context):,}",
            hint="--context max takes its limit",
        )
    found = plans(question, concurrency)
    shown = found if every or asked.gpu else found[:15]
    rentable = [(i.name, i.gpu, i.count) for i in instances() if i.count is not None]
    if chosen is o.Format.JSON:
        from gpufit.report.plan import plan_result
        from gpufit.report.result import to_json

        sys.stdout.write(to_json(plan_result(question, concurrency, shown, rentable)))
    elif chosen is o.Format.TABLE:
        from gpufit.report.plan_table import print_plans

        print_plans(question, concurrency, shown, len(found))
    else:
        from gpufit.report.plan import plan_rows
        from gpufit.report.rows import written

        sys.stdout.write(written(plan_rows(shown), chosen.value))
