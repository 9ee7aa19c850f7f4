"""`gpufit explain`: the arithmetic, line by line, or the method in general."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gpufit.cli import options as o

HELP = """The arithmetic, line by line: symbol = formula = substitution = result, and where every input comes from.

No MODEL: the method in general, and the questions people ask about it.

\b
Examples:
  gpufit explain llama-3.1-8b --gpu h100-sxm --context 8k
  gpufit explain deepseek-v3 --step S_latent
"""


def command(
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="Catalogue name, ORG/NAME, folder, config.json or -.")
    ] = None,
    gpu: o.Gpus = None,
    step: Annotated[str | None, typer.Option("--step", metavar="NAME", help="Show one value with its parents.")] = None,
    context: o.Context = "8k",
    weights: o.Weights = "auto",
    kv_cache_dtype: o.CacheDtype = "auto",
    gpu_memory_utilization: o.Utilization = None,
    tensor_parallel_size: o.TensorParallel = None,
    pipeline_parallel_size: o.PipelineParallel = None,
    min_concurrency: o.MinConcurrency = 8,
    as_json: o.Json = False,
    format: o.OutputFormat = o.Format.TABLE,
    offline: o.Offline = False,
    assume_dense: o.AssumeDense = False,
    exact: o.Exact = False,
) -> None:
    """Asks the same question as fit and prints how its answer came about."""
    from gpufit.errors import UsageError

    chosen = o.output_format(format, as_json)
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
    from gpufit.engines.arithmetic import Arithmetic
    from gpufit.sizing.question import Question
    from gpufit.sizing.trail import derivation, one_step
    from gpufit.sources.gpuspec import parse_specs
    from gpufit.workload import Workload

    named = models_named([model], offline=offline, assume_dense=assume_dense, exact=exact)[0]
    question = Question(
        model=named,
        hardware=parse_specs(gpu) if gpu else (),
        workload=Workload(
            context=o.context_fact(context),
            kv_cache_dtype=o.cache_dtype(kv_cache_dtype),
            utilization=o.utilization_fact(gpu_memory_utilization),
            min_concurrency=o.positive(min_concurrency, "--min-concurrency") or 1,
        ),
        engine=Arithmetic(),
        weights=o.weight_format(weights),
        tensor_parallel=o.positive(tensor_parallel_size, "--tensor-parallel-size"),
        pipeline_parallel=o.positive(pipeline_parallel_size, "--pipeline-parallel-size"),
    )
    trail = derivation(question)
    steps = trail.steps if step is None else one_step(trail.steps, step)
    if chosen is o.Format.JSON:
        from gpufit.report.result import explain_result, to_json

        sys.stdout.write(to_json(explain_result(named, steps)))
    else:
        from gpufit.report.explain import print_steps

        print_steps(trail, steps)
