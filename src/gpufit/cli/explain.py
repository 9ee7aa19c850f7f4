"""`gpufit explain`: the arithmetic, line by line, or the method in general."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gpufit.cli import options as o
from gpufit.cli.asked import Asked, asks

HELP = """The arithmetic, line by line: symbol = formula = substitution = result, and where every input comes from.

No MODEL: the method in general, and the questions people ask about it.

\b
Examples:
  gpufit explain llama-3.1-8b --gpu h100-sxm --context 8k
  gpufit explain deepseek-v3 --step S_latent
"""


@asks
def command(
    asked: Asked,
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="Catalogue name, ORG/NAME, folder, config.json or -.")
    ] = None,
    step: Annotated[str | None, typer.Option("--step", metavar="NAME", help="Show one value with its parents.")] = None,
) -> None:
    """Asks the same question as fit and prints how its answer came about."""
    from gpufit.errors import UsageError

    chosen = asked.output()
    if model is None:
        if step is not None:
            raise UsageError("--step needs a model", hint="as in gpufit explain llama-3.1-8b --gpu h100-sxm --step S")
        from gpufit.report.method import method_text

        text = method_text()
        if chosen is o.Format.JSON:
            from gpufit.report.result import explain_result, to_json

            sys.stdout.write(to_json(explain_result(None, ()) | {"text": text}))
        else:
            from gpufit.report.explain import print_page

            print_page(text)
        return
    from gpufit.cli.resolve import models_named
    from gpufit.sizing.trail import derivation, one_step

    workload, engine = asked.workload(), asked.policy()
    hardware = asked.hardware() if asked.gpu else ()
    named = models_named([model], offline=asked.offline, assume_dense=asked.assume_dense, exact=asked.exact)[0]
    trail = derivation(asked.question(named, hardware, workload, engine))
    steps = trail.steps if step is None else one_step(trail.steps, step)
    if chosen is o.Format.JSON:
        from gpufit.report.result import explain_result, to_json

        sys.stdout.write(to_json(explain_result(named, steps)))
    else:
        from gpufit.report.explain import print_steps

        print_steps(trail, steps)
