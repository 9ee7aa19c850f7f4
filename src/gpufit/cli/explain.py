"""`gpufit explain`: the arithmetic, line by line, or the method in general."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gpufit.cli import options as o
from gpufit.cli.asked import Asked, asks

if TYPE_CHECKING:
    from gpufit.sizing.question import Question

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
        given = _about_a_model(asked)
        if given:
            raise UsageError(
                f"{', '.join(given)} {'needs' if len(given) == 1 else 'need'} a model: the method in general has no figures of one",
                hint="as in gpufit explain llama-3.1-8b --gpu h100-sxm --context 8k",
            )
        from gpufit.report.method import method_text

        text = method_text()
        if chosen is o.Format.JSON:
            from gpufit.report.result import explain_result, to_json

            sys.stdout.write(to_json(explain_result(None, ()) | {"text": text}))
        elif chosen is o.Format.CSV:
            raise UsageError(
                "the method in general is a text without rows", hint="name a model, or take --format markdown or --json"
            )
        elif chosen is o.Format.MARKDOWN:
            sys.stdout.write(text.lstrip())
        else:
            from gpufit.report.explain import print_page

            print_page(text)
        return
    from gpufit.cli.resolve import models_named
    from gpufit.sizing.trail import derivation, one_step

    workload, engine = asked.workload(), asked.policy()
    hardware = asked.hardware() if asked.gpu else ()
    named = models_named([model], offline=asked.offline, assume_dense=asked.assume_dense, exact=asked.exact)[0]
    question = asked.question(named, hardware, workload, engine)
    trail = derivation(question)
    if step is not None and not hardware and _only_with_hardware(question, {s.id for s in trail.steps}, step):
        raise UsageError(f"{step} needs --gpu", hint=f"as in gpufit explain {model} --gpu h100-sxm --step {step}")
    steps = trail.steps if step is None else one_step(trail.steps, step)
    if chosen is o.Format.JSON:
        from gpufit.report.result import explain_result, to_json

        sys.stdout.write(to_json(explain_result(named, steps)))
    elif chosen in (o.Format.CSV, o.Format.MARKDOWN):
        from gpufit.report.rows import step_rows, written

        sys.stdout.write(written(step_rows(steps), chosen.value))
    else:
        from gpufit.report.explain import print_steps

        print_steps(trail, steps)


def _about_a_model(asked: Asked) -> list[str]:
    """The options given that say something of a model or its hardware."""
    how = ("as_json", "format", "offline", "typed")
    fields = [f for f in dataclasses.fields(asked) if f.name not in how and getattr(asked, f.name) != f.default]
    return ["--" + f.name.replace("_", "-") for f in fields]


def _only_with_hardware(question: Question, known: set[str], step: str) -> bool:
    """Whether a step that this derivation lacks is in the one on a large node: a figure of hardware, as the pool is."""
    from gpufit.errors import GpufitError
    from gpufit.sizing.trail import derivation
    from gpufit.sources.gpuspec import parse_specs

    if step in known:
        return False
    try:
        found = derivation(dataclasses.replace(question, hardware=parse_specs(["b300:64"]), tensor_parallel=None)).steps
    except GpufitError:
        return False
    return any(step in (s.id, s.name) for s in found)
