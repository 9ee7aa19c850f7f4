"""`gpufit check`: a vLLM start-up log against what gpufit predicts for the same server."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpufit.cli import options as o
from gpufit.cli.asked import Asked, asks

if TYPE_CHECKING:
    from gpufit.engines.base import Capacity
    from gpufit.hardware import Hardware
    from gpufit.model import Model
    from gpufit.sources.vllm_log import Run

HELP = """Reads a vLLM start-up log, predicts each of its memory lines, and prints predicted, logged and difference.

LOG is a file, or - for standard input. What the log does not say (the GPU, often) is given as an option.

\b
Examples:
  gpufit check server.log --gpu h100-sxm
  vllm serve ... 2>&1 | gpufit check - --gpu 2xh100 --json
"""

_OPTIONS: dict[str, str] = {
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "data_parallel_size": "data_parallel_size",
    "decode_context_parallel_size": "decode_context_parallel_size",
    "enable_expert_parallel": "enable_expert_parallel",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "max_num_seqs": "max_num_seqs",
    "block_size": "block_size",
    "kv_cache_memory_bytes": "kv_cache_memory_bytes",
    "enforce_eager": "enforce_eager",
    "language_model_only": "language_model_only",
    "max_loras": "max_loras",
    "max_lora_rank": "max_lora_rank",
}


@asks
def command(
    asked: Asked,
    log: Annotated[str, typer.Argument(metavar="LOG", help="A vLLM start-up log, or - for standard input.")],
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="The model, where the log does not name it.")
    ] = None,
) -> None:
    """Asks for the same server and puts both sides together."""
    from gpufit.cli.resolve import models_named
    from gpufit.errors import UsageError
    from gpufit.sizing.check import compared
    from gpufit.sizing.search import answer
    from gpufit.sources.vllm_log import read_log

    chosen = asked.output()
    run = read_log(_lines(log))
    name = model or run.model
    if name is None:
        raise UsageError("the log does not name its model", hint="give it with --model")
    if not asked.gpu:
        raise UsageError("a vLLM log does not name its GPU", hint="give it with --gpu, as in --gpu h100-sxm:2")
    server = started(asked, run)
    named = models_named([name], offline=server.offline, assume_dense=server.assume_dense, exact=server.exact)[0]
    hardware = server.hardware()
    tp, pp = server.tensor_parallel_size or 1, server.pipeline_parallel_size or 1
    needed = tp * pp * (server.data_parallel_size or 1)
    hardware = tuple(dataclasses.replace(h, count=max(h.count, needed)) for h in hardware)
    server = dataclasses.replace(server, tensor_parallel_size=tp, pipeline_parallel_size=pp)
    found = answer(server.question(named, hardware, server.workload(), server.policy()))
    if found.capacity is None:
        raise UsageError(
            f"{named.slug}: {found.reason}", hint="what vLLM refuses cannot have printed this log: check --gpu and --model"
        )
    lines = compared(
        found.capacity, [(f.quantity, f.value, f.step) for f in run.figures], _with_logged(server, run, named, hardware)
    )
    about = {
        "model": named.id,
        "gpu": found.hardware.gpu.id,
        "tensor_parallel": tp,
        "pipeline_parallel": pp,
        "vllm_version": run.version,
        "rules_of": server.engine.partition("@")[2] or "0.33",
        "max_model_len": int(found.capacity.context),
    }
    if chosen is o.Format.JSON:
        from gpufit.report.check import check_result
        from gpufit.report.result import to_json

        sys.stdout.write(to_json(check_result(about, lines, found.warnings)))
    elif chosen is o.Format.TABLE:
        from gpufit.report.check_table import print_check

        print_check(about, lines, (*found.warnings, *found.capacity.remarks))
    else:
        from gpufit.report.check import check_rows
        from gpufit.report.rows import written

        sys.stdout.write(written(check_rows(lines), chosen.value))


def _with_logged(server: Asked, run: Run, model: Model, hardware: tuple[Hardware, ...]) -> Capacity | None:
    """The same question with the cache memory that the log states in place of the prediction; None where it states none."""
    from gpufit.sizing.search import answer

    logged = next((int(f.value) for f in run.figures if f.quantity == "available KV cache memory"), 0)
    if logged <= 0:
        return None
    given = dataclasses.replace(server, kv_cache_memory_bytes=logged, overhead_gib="0")
    return answer(given.question(model, hardware, given.workload(), given.policy())).capacity


def _lines(log: str) -> list[str]:
    from gpufit.errors import UsageError

    if log == "-":
        return sys.stdin.read().splitlines()
    try:
        return Path(log).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise UsageError(f"cannot read {log}: {error.strerror}", hint="a file, or - for standard input") from error


def started(asked: Asked, run: Run) -> Asked:
    """The options of the server in the log; what was typed wins."""
    said: dict[str, Any] = {}
    for theirs, ours in _OPTIONS.items():
        value = run.options.get(theirs)
        default = next(f.default for f in dataclasses.fields(Asked) if f.name == ours)
        if value is not None and value is not False and getattr(asked, ours) == default:
            said[ours] = value
    if asked.kv_cache_dtype == "auto" and isinstance(run.options.get("kv_cache_dtype"), str):
        said["kv_cache_dtype"] = run.options["kv_cache_dtype"]
    if run.options.get("enable_prefix_caching") is False:
        said["no_enable_prefix_caching"] = True
    if asked.weights == "auto":
        # A server loads what is published; no other format is tried in its place.
        said["weights"] = "published"
    share = run.options.get("gpu_memory_utilization")
    if asked.gpu_memory_utilization is None and share is not None:
        said["gpu_memory_utilization"] = str(share)
    length = run.options.get("max_model_len")
    if isinstance(length, int) and length > 0:
        said["context"] = str(length)
    elif asked.context is None:
        said["context"] = "max"
    if not asked.engine.startswith("vllm"):
        said["engine"] = f"vllm@{known_version(run.version)}" if run.version else "vllm"
    return dataclasses.replace(asked, **said)


def known_version(version: str) -> str:
    """The minor version whose rules are nearest: those of the newest known for a later one."""
    from gpufit.engines.vllm.constants import NEWEST, OLDEST, version_key

    minor = ".".join(version.split(".")[:2])
    key = version_key(minor)
    if key > version_key(NEWEST):
        return NEWEST
    return OLDEST if key < version_key(OLDEST) else minor
