"""`gpufit kv`: what the KV cache costs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gpufit.cli import options as o

HELP = """What the KV cache costs: per token, per 1k tokens, per sequence at several contexts.

No MODEL: the reference table of the whole catalogue.

\b
Examples:
  gpufit kv meta-llama/Llama-3.1-8B
  gpufit kv deepseek-v3 gpt-oss-120b --tp 8 --kv-cache-dtype fp8
"""


def command(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="[MODEL]...", help="Catalogue name, ORG/NAME, folder, config.json or -.")
    ] = None,
    context: Annotated[
        list[str] | None,
        typer.Option("--context", metavar="TOKENS", help="A context to show; repeat for several. max: the model's own limit."),
    ] = None,
    kv_cache_dtype: o.CacheDtype = "auto",
    tensor_parallel_size: o.TensorParallel = None,
    as_json: o.Json = False,
    format: o.OutputFormat = o.Format.TABLE,
    offline: o.Offline = False,
    assume_dense: o.AssumeDense = False,
) -> None:
    """Reads the models and prints what one sequence costs."""
    from gpufit.cli.resolve import models_named
    from gpufit.sizing.cost import cache_cost

    chosen = o.output_format(format, as_json)
    contexts = None if not context else tuple(o.context_fact(c) for c in context)
    dtype = o.cache_dtype(kv_cache_dtype)
    tp = o.positive(tensor_parallel_size, "--tensor-parallel-size") or 1
    named = models_named(models, offline=offline, assume_dense=assume_dense, exact=False)
    costs = [cache_cost(model, dtype=dtype, tp=tp, contexts=contexts, skip_too_long=not models) for model in named]
    if chosen is o.Format.JSON:
        from gpufit.report.result import kv_result, to_json

        sys.stdout.write(to_json(kv_result(costs)))
    elif chosen is o.Format.TABLE:
        from gpufit.report.kv_table import print_kv

        print_kv(costs, whole_catalogue=not models)
    else:
        from gpufit.report.rows import kv_rows, written

        sys.stdout.write(written(kv_rows(costs), chosen.value))
