"""`gpufit fit`: which models fit on this hardware, in what format, across how many GPUs, how many sequences at once."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gpufit.cli import options as o

HELP = """Which models fit on this hardware, in what format, across how many GPUs, how many sequences at once.

No MODEL: the whole catalogue. No --gpu: the GPUs of this machine.

\b
Examples:
  gpufit fit --gpu h100-sxm:4
  gpufit fit llama-3.3-70b --gpu 2xh100 --context 32k --kv-cache-dtype fp8
"""


def command(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="[MODEL]...", help="Catalogue name, ORG/NAME, folder, config.json or -.")
    ] = None,
    gpu: o.Gpus = None,
    context: o.Context = "8k",
    weights: o.Weights = "auto",
    kv_cache_dtype: o.CacheDtype = "auto",
    gpu_memory_utilization: o.Utilization = None,
    tensor_parallel_size: o.TensorParallel = None,
    pipeline_parallel_size: o.PipelineParallel = None,
    min_concurrency: o.MinConcurrency = 8,
    check: Annotated[bool, typer.Option("--check", help="Exit 1 when a named model does not fit.")] = False,
    as_json: o.Json = False,
    format: o.OutputFormat = o.Format.TABLE,
    offline: o.Offline = False,
    assume_dense: o.AssumeDense = False,
    exact: o.Exact = False,
) -> int:
    """Asks one question per model and prints the answers together."""
    from gpufit.cli.resolve import models_named
    from gpufit.engines.arithmetic import Arithmetic
    from gpufit.errors import UsageError
    from gpufit.sizing.advice import other_placements, with_changes
    from gpufit.sizing.question import Question
    from gpufit.sizing.search import answer
    from gpufit.sources.gpuspec import parse_specs
    from gpufit.workload import Workload

    chosen = o.output_format(format, as_json)
    o.positive(min_concurrency, "--min-concurrency")
    workload = Workload(
        context=o.context_fact(context),
        kv_cache_dtype=o.cache_dtype(kv_cache_dtype),
        utilization=o.utilization_fact(gpu_memory_utilization),
        min_concurrency=min_concurrency,
    )
    asked_weights = o.weight_format(weights)
    degrees = (
        o.positive(tensor_parallel_size, "--tensor-parallel-size"),
        o.positive(pipeline_parallel_size, "--pipeline-parallel-size"),
    )
    hardware = parse_specs(gpu or ["local"])
    named = models_named(models, offline=offline, assume_dense=assume_dense, exact=exact)
    engine = Arithmetic()
    answers = [
        with_changes(
            answer(
                Question(
                    model=model,
                    hardware=hardware,
                    workload=workload,
                    engine=engine,
                    weights=asked_weights,
                    tensor_parallel=degrees[0],
                    pipeline_parallel=degrees[1],
                )
            )
        )
        for model in named
    ]
    too_long = [a for a in answers if a.context_too_long]
    if models and len(too_long) == len(answers):
        limits = ", ".join(f"{a.question.model.slug} {int(a.question.model.max_context or 0):,}" for a in too_long)
        raise UsageError(
            f"--context {context} is beyond the model's own limit",
            hint=f"at most {limits} tokens; --context max takes the limit itself",
        )
    if chosen is o.Format.JSON:
        from gpufit.report.result import fit_result, to_json

        sys.stdout.write(to_json(fit_result(answers, hardware, workload, engine)))
    elif chosen is o.Format.TABLE:
        from gpufit.report.fit_table import print_fit

        others = other_placements(answers[0]) if len(answers) == 1 else ()
        print_fit(answers, hardware, workload, engine, whole_catalogue=not models, others=others)
    else:
        from gpufit.report.rows import fit_rows, written

        sys.stdout.write(written(fit_rows(answers), chosen.value))
    return 1 if check and models and not all(a.fits for a in answers) else 0
