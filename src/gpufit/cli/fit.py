"""`gpufit fit`: which models fit on this hardware, in what format, across how many GPUs, how many sequences at once."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gpufit.cli import options as o
from gpufit.cli.asked import Asked, asks

HELP = """Which models fit on this hardware, in what format, across how many GPUs, how many sequences at once.

No MODEL: the whole catalogue. No --gpu: the GPUs of this machine. After -- a pasted `vllm serve` line is answered as it stands.

\b
Examples:
  gpufit fit --gpu h100-sxm:4
  gpufit fit llama-3.3-70b --gpu 2xh100 --context 32k --kv-cache-dtype fp8
  gpufit fit --gpu h100-sxm:8 -- vllm serve openai/gpt-oss-120b -tp 8
"""


@asks
def command(
    asked: Asked,
    models: Annotated[
        list[str] | None, typer.Argument(metavar="[MODEL]...", help="Catalogue name, ORG/NAME, folder, config.json or -.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Exit 1 when a named model does not fit.")] = False,
) -> int:
    """Asks one question per model and prints the answers together."""
    from gpufit.cli.resolve import models_named
    from gpufit.errors import UsageError
    from gpufit.sizing.advice import other_placements, with_changes
    from gpufit.sizing.search import answer

    said: tuple[str, ...] = ()
    line = None
    if models:
        from gpufit.cli.serve_line import advised, line_of, loaded, pasted

        words = line_of(models)
        if words is not None:
            line = pasted(asked, words)
            asked, models = line.asked, [line.model]
    chosen = asked.output()
    workload, engine = asked.workload(), asked.policy()
    hardware = asked.hardware()
    named = models_named(models, offline=asked.offline, assume_dense=asked.assume_dense, exact=asked.exact)
    if line is not None:
        line = loaded(line, named[0], hardware)
        asked, said = line.asked, line.notes
    answers = [with_changes(answer(asked.question(model, hardware, workload, engine))) for model in named]
    too_long = [a for a in answers if a.context_too_long]
    if models and len(too_long) == len(answers):
        limits = ", ".join(f"{a.question.model.slug} {int(a.question.model.max_context or 0):,}" for a in too_long)
        option, cure = "--context", "--context max takes the limit itself"
        if line is not None:
            option, cure = "--max-model-len", "a line without it takes the limit itself"
        raise UsageError(
            f"{option} {asked.context} is beyond the model's own limit",
            hint=f"at most {limits} tokens; {cure}",
        )
    if line is not None:
        answers = [advised(a) for a in answers]
    if chosen is o.Format.JSON:
        from gpufit.report.result import fit_result, to_json

        sys.stdout.write(to_json(fit_result(answers, hardware, workload, engine, notes=said)))
    elif chosen is o.Format.TABLE:
        from gpufit.report.fit_table import print_fit

        others = other_placements(answers[0]) if len(answers) == 1 else ()
        loads = None
        if models and len(models) == 1:
            from gpufit.report.command import named_as
            from gpufit.sources.catalogue import find_model

            loads = named_as(models[0], of_catalogue=find_model(models[0]) is not None)
        print_fit(answers, hardware, workload, engine, whole_catalogue=not models, others=others, notes=said, named=loads)
    else:
        from gpufit.report.rows import fit_rows, written

        sys.stdout.write(written(fit_rows(answers), chosen.value))
    return 1 if check and models and not all(a.fits for a in answers) else 0
