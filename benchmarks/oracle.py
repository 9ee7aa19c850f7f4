"""gpufit's vLLM cache plan against what vLLM 0.33.0's own planner gave, record by record.

    python benchmarks/oracle.py [--settings] [--refused] [--only TEXT] [--every]

Reads ../shared/oracle and ../shared/configs beside the checkout; without them it says so and exits 0. Prints equal / different /
unread by family, and each difference with what differs and why; `--every` lists all records of a difference, not the first. Compared
are block size, bytes of a block, blocks of a request, number of blocks, printed tokens and concurrency (as the float that vLLM prints).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from gpufit.engines.vllm.constants import Constants
from gpufit.engines.vllm.plan import CachePlan, NoPlan, longest_context, plan_cache
from gpufit.engines.vllm.refusals import checkpoint_refusals
from gpufit.engines.vllm.settings import VllmSettings, setting, vllm_settings
from gpufit.errors import GpufitError
from gpufit.hardware import Gpu
from gpufit.model import Model
from gpufit.quantity import BYTE, fact
from gpufit.sources.engine_constants import engine_rows
from gpufit.sources.gpus import find_gpu
from gpufit.sources.read import read_model

SHARED = Path(__file__).resolve().parents[2] / "shared"
RECORDS = ("kv_oracle.jsonl", "kv_oracle_settings.jsonl")
GPUS = {
    None: "h100-sxm",
    "NVIDIA H200": "h200-sxm",
    "NVIDIA B200": "b200",
    "NVIDIA A100-SXM4-80GB": "a100-sxm4-80gb",
    "NVIDIA L40S": "l40s",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
}
OPTIONS = {
    "max_num_batched_tokens": "max_num_batched_tokens",
    "max_num_seqs": "max_num_seqs",
    "async_scheduling": "async_scheduling",
    "enable_prefix_caching": "prefix_caching",
    "pipeline_parallel_size": "pipeline_parallel",
    "data_parallel_size": "data_parallel",
    "enable_expert_parallel": "expert_parallel",
    "decode_context_parallel_size": "decode_context_parallel",
    "block_size": "block_size",
    "mamba_cache_dtype": "mamba_cache_dtype",
    "mamba_ssm_cache_dtype": "mamba_ssm_cache_dtype",
    "enable_chunked_prefill": "chunked_prefill",
}
DEFAULT_MEMORY = 60 * 2**30

CAUSES = {
    "XiaomiMiMo--MiMo-7B-Base": "the planner ran without the repository's config class, so it saw sliding_window although "
    "use_sliding_window is false; with that class every layer is full attention, as gpufit reads it",
}
"""Why records differ that are known to, by model."""
NOT_OWN_RULES = ("Cannot access accelerator device",)
"""Reasons that tell of the place where the planner ran, not of vLLM's rules."""

Record = Mapping[str, Any]


def cause(record: Record) -> str | None:
    """Why a record is known to differ, or None."""
    if any(text in record.get("reason", "") for text in NOT_OWN_RULES):
        return "the planner could not be run there"
    return CAUSES.get(record["model"])


def records(name: str) -> Iterator[dict[str, Any]]:
    """The records of one file of the oracle."""
    with (SHARED / "oracle" / name).open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def model_of(name: str) -> Model:
    """The model of a published config; raises `GpufitError` where no reader understands it."""
    found = _read(name)
    if isinstance(found, str):
        raise GpufitError(found)
    return found


@cache
def _read(name: str) -> Model | str:
    folder = SHARED / "configs" / name
    data = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    extra = folder / "hf_quant_config.json"
    hf_quant = json.loads(extra.read_text(encoding="utf-8")) if extra.exists() else None
    try:
        return read_model(data, id=name.replace("--", "/", 1), hf_quant=hf_quant)
    except GpufitError as error:
        return error.message
    except Exception as error:
        return f"the reader failed: {error!r}"


@cache
def gpu_of(name: str | None) -> Gpu:
    """The GPU that a record was planned for."""
    return find_gpu(GPUS[name])


@cache
def constants() -> Constants:
    """The constants of vLLM 0.33."""
    return Constants(version="0.33", rows=engine_rows("vllm"))


def settings_of(record: Record) -> VllmSettings:
    """The settings of a record, or of a refusal."""
    options = dict(record.get("settings", {}))
    values: dict[str, int | str | bool | None] = {OPTIONS[k]: v for k, v in options.items() if k in OPTIONS}
    speculation = options.get("speculative_config")
    if speculation:
        values |= {"speculative_method": speculation["method"], "speculative_tokens": speculation["num_speculative_tokens"]}
    if options.get("disable_hybrid_kv_cache_manager"):
        values["hybrid_manager"] = False
    if options.get("usage"):
        values["usage"] = "llm"
    length = record.get("max_model_len", 0)
    if options.get("max_model_len") == -1:
        # A length that the planner found itself: it is searched for below the model's own.
        length = record.get("model_limit", length)
    dtype = record.get("kv_dtype", "auto")
    values["kv_cache_dtype"] = None if dtype == "auto" else dtype
    return vllm_settings(tensor_parallel=record["tp"], max_model_len=length or None, **values)


def memory_of(record: Record) -> int:
    """Bytes for the cache on one GPU."""
    given = record.get("settings", {}).get("kv_cache_memory_bytes")
    return int(given or record.get("available_memory_bytes", DEFAULT_MEMORY))


def planned(record: Record, settings: VllmSettings) -> CachePlan | NoPlan:
    """gpufit's plan for one record."""
    available = fact(memory_of(record), BYTE, symbol="P", name="memory for the cache", origin="the oracle's setting")
    return plan_cache(
        model_of(record["model"]), gpu_of(record.get("settings", {}).get("gpu")), settings, available, constants=constants()
    )


def differences(record: Record) -> list[str]:
    """What differs between a record and the plan, in words; empty where nothing does."""
    settings = settings_of(record)
    plan = planned(record, settings)
    if isinstance(plan, NoPlan):
        return ["refused here: " + "; ".join(r.reason for r in plan.refusals)]
    if record.get("settings", {}).get("max_model_len") == -1:
        longest = longest_context(plan)
        if longest != record["max_model_len"]:
            return [f"longest length {longest}, planner {record['max_model_len']}"]
        plan = planned(record, replace(settings, max_model_len=setting("max_model_len", longest)))
        assert isinstance(plan, CachePlan)
    found = []
    if not record.get("fits", True):
        if plan.fits:
            found.append("fits here, the planner refuses")
        told = record.get("estimated_max_model_len")
        if told is not None and longest_context(plan) != told:
            found.append(f"longest length {longest_context(plan)}, planner {told}")
        return found
    if not plan.fits and record.get("groups"):
        found.append("does not fit here")
    if not record.get("groups"):
        return ["a cache here, none in the planner"] if plan.groups else []
    pairs = {
        "block size": (int(plan.block_size), record["block_size"]),
        "bytes per block": (int(plan.bytes_per_block), record["bytes_per_block"]),
        "blocks per request": (int(plan.blocks_per_request), record["blocks_per_request"]),
        "blocks": (int(plan.num_blocks), record["num_blocks"]),
        "tokens": (int(plan.tokens), record["reported_tokens"]),
        "concurrency": (float(plan.max_concurrency), record["reported_concurrency"]),
    }
    found += [f"{what} {mine}, planner {theirs}" for what, (mine, theirs) in pairs.items() if mine != theirs]
    if "max_num_seqs" in record and int(plan.batch.sequences) != record["max_num_seqs"]:
        found.append(f"sequences in a batch {int(plan.batch.sequences)}, planner {record['max_num_seqs']}")
    if int(plan.batch.tokens) != record["max_num_batched_tokens"]:
        found.append(f"tokens in a batch {int(plan.batch.tokens)}, planner {record['max_num_batched_tokens']}")
    return found


def compare(name: str, only: str, every: bool) -> None:
    """Compare one file and print the outcome."""
    outcome: dict[str, Counter[str]] = defaultdict(Counter)
    shown: dict[tuple[str, str], list[str]] = defaultdict(list)
    unread: Counter[str] = Counter()
    by_via: dict[str, Counter[str]] = defaultdict(Counter)
    for record in records(name):
        if only and only.lower() not in f"{record['model']} {json.dumps(record.get('settings', {}))}".lower():
            continue
        family = record["architecture"]
        try:
            model_of(record["model"])
        except GpufitError as error:
            outcome[family]["unread"] += 1
            by_via[record.get("via", "model")]["unread"] += 1
            unread[f"{record['model']}: {error.message[:150]}"] += 1
            continue
        found = differences(record)
        word = "different" if found else "equal"
        outcome[family][word] += 1
        by_via[record.get("via", "model")][word] += 1
        if found:
            where = f"tp {record['tp']}, {record['max_model_len']}, {record['kv_dtype']} {json.dumps(record.get('settings', {}))}"
            shown[record["model"], "; ".join(f.split(" ")[0] for f in found)].append(f"{where}: {'; '.join(found)}")
    print(f"\n{name}")
    print(f"{'family':48} {'equal':>6} {'different':>9} {'unread':>6}")
    for family, counts in sorted(outcome.items()):
        print(f"{family:48} {counts['equal']:6} {counts['different']:9} {counts['unread']:6}")
    for via, counts in by_via.items():
        read = counts["equal"] + counts["different"]
        share = 100 * counts["equal"] / read if read else 0
        print(f"via {via}: {counts['equal']} of {read} equal ({share:.2f} %), {counts['unread']} of models that are not read")
    for (model, _), lines in sorted(shown.items()):
        why = CAUSES.get(model)
        print(f"- {model}: {len(lines)} records" + (f" ({why})" if why else ""))
        for line in lines if every else lines[:1]:
            print(f"    {line}")
    for text, count in sorted(unread.items()):
        print(f"- unread ({count} records) {text}")


def readable(name: str) -> bool:
    """Whether a reader understands a config."""
    return isinstance(_read(name), Model)


def refused_here(record: Record) -> bool:
    """Whether gpufit refuses what vLLM refused, in every degree and dtype of the record."""
    tps = record["tp"] if isinstance(record["tp"], list) else [record["tp"]]
    dtypes = record["kv_dtype"] if isinstance(record["kv_dtype"], list) else [record["kv_dtype"]]
    if checkpoint_refusals(model_of(record["model"]), constants()):
        return True
    each = [dict(record) | {"tp": tp, "kv_dtype": dtype} for tp in tps for dtype in dtypes]
    return all(isinstance(planned(one, settings_of(one)), NoPlan) for one in each)


def compare_refusals(only: str) -> None:
    """What vLLM refused, and whether gpufit refuses it too."""
    for name in ("refused.jsonl", "refused_settings.jsonl"):
        counts: Counter[str] = Counter()
        lines = []
        for record in records(name):
            if only and only.lower() not in json.dumps(record).lower():
                continue
            if not readable(record["model"]):
                counts["unread"] += 1
            elif refused_here(record):
                counts["refused alike"] += 1
            else:
                counts["accepted here"] += 1
                told = cause(record) or record["reason"][:140]
                lines.append(f"    {record['model']} tp {record['tp']} {record['kv_dtype']} {record.get('setting', '')}: {told!r}")
        print(f"\n{name}: {dict(counts)}")
        print("\n".join(lines))


def main() -> None:
    """Compare what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--settings", action="store_true", help="the records of other settings")
    parser.add_argument("--refused", action="store_true", help="what vLLM refused")
    parser.add_argument("--only", default="", help="records whose model or settings have this text")
    parser.add_argument("--every", action="store_true", help="list every record of a difference")
    asked = parser.parse_args()
    if not (SHARED / "oracle").is_dir():
        print(f"nothing to compare with: {SHARED / 'oracle'} is not there")
        sys.exit(0)
    if asked.refused:
        compare_refusals(asked.only)
        return
    compare(RECORDS[1] if asked.settings else RECORDS[0], asked.only, asked.every)


if __name__ == "__main__":
    main()
