"""Compares the weights that the vLLM engine predicts per rank with what vLLM 0.33.0's own classes create.

Prints, by family, how many records are equal to the byte, within 0.1 %, different or refused, and each difference with its cause where
one is known. `--settings` does the same for other settings (pipeline stages, expert and data parallelism, other GPUs, draft layers).
The records (shared/oracle beside the repository) are not part of it: without them the script says so and ends well.

    python benchmarks/weights_oracle.py [--all] [--settings] [PATTERN]
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpufit.engines.vllm.stage_parts import Stage
from gpufit.engines.vllm.weight_shards import Spread
from gpufit.engines.vllm.weights import draft_weights_on_rank, weights_on_rank
from gpufit.errors import GpufitError
from gpufit.model import Model
from gpufit.placement import stages
from gpufit.quantity import NUMBER, fact
from gpufit.sources.read import read_model

SHARED = Path(__file__).resolve().parents[2] / "shared"

CAPABILITIES = {
    "NVIDIA A100-SXM4-80GB": 80, "NVIDIA H200": 90, "NVIDIA B200": 100, "NVIDIA L40S": 89, "NVIDIA GeForce RTX 4090": 89,
}  # fmt: skip

CAUSES = {
    "moonshotai--Kimi-K2-Thinking": "the abridged config lacks topk_method, so the records have no score correction; published files do",
    "mistralai--Mistral-Small-3.1-24B-Instruct-2503": "tied by default in transformers 5; the published file has a head, so vLLM unties",
    "RedHatAI--DeepSeek-V4-Flash-NVFP4-FP8": "vLLM 0.33 asks the config for experts named w1 to w3, finds none and makes room for bf16",
    "zai-org--GLM-4.1V-9B-Thinking": "the flat config's attention_bias does not reach vLLM's text config; files have the biases",
}
"""Differences that are understood and left as they are."""

IRRELEVANT = {
    "kv_cache_dtype", "max_model_len", "max_num_batched_tokens", "async_scheduling", "enable_prefix_caching", "usage", "block_size",
    "disable_hybrid_kv_cache_manager", "mamba_cache_dtype", "mamba_ssm_cache_dtype", "enable_chunked_prefill", "max_num_seqs",
    "kv_cache_memory_bytes", "tensor_parallel_size", "decode_context_parallel_size",
}  # fmt: skip


def records(name: str) -> Iterator[dict[str, Any]]:
    """The records of one file."""
    with (SHARED / "oracle" / name).open() as lines:
        yield from map(json.loads, lines)


class Models:
    """Models read once; a model that is refused gives its reason."""

    def __init__(self) -> None:
        self.known: dict[str, Model | str] = {}
        self.family: dict[str, str] = {}

    def get(self, name: str) -> Model | str:
        """The model, or why it is not read."""
        if name not in self.known:
            folder = SHARED / "configs" / name
            data = json.loads((folder / "config.json").read_text())
            beside = folder / "hf_quant_config.json"
            hf_quant = json.loads(beside.read_text()) if beside.exists() else None
            self.family[name] = str(data.get("model_type") or data.get("text_config", {}).get("model_type"))
            try:
                self.known[name] = read_model(data, id=name.replace("--", "/", 1), hf_quant=hf_quant)
            except GpufitError as error:
                self.known[name] = error.message
        return self.known[name]


def spread_of(tp: int, settings: dict[str, Any]) -> Spread:
    """The degrees of a record."""
    return Spread(
        tp=fact(tp, NUMBER, symbol="tp", name="tensor parallel degree", origin="record"),
        dp=fact(int(settings.get("data_parallel_size", 1)), NUMBER, symbol="dp", name="data parallel degree", origin="record"),
        expert_parallel=bool(settings.get("enable_expert_parallel")),
        capability=CAPABILITIES.get(settings.get("gpu", ""), 90),
    )


def created(model: Model, tp: int, settings: dict[str, Any]) -> list[int]:
    """Bytes created on a rank of each stage."""
    spread = spread_of(tp, settings)
    parts = stages(int(model.num_layers), int(settings.get("pipeline_parallel_size", 1)))
    last = len(parts) - 1
    return [
        int(weights_on_rank(model, model.published.recipe, spread, Stage(layers=layers, first=i == 0, last=i == last)).created)
        for i, layers in enumerate(parts)
    ]


@dataclass
class Tally:
    """Verdicts by family, and a line for each difference."""

    families: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    lines: list[str] = field(default_factory=list)

    def judge(self, family: str, name: str, what: str, ours: int, theirs: int) -> None:
        """Counts one figure."""
        verdict = "equal" if ours == theirs else "near" if abs(ours - theirs) * 1000 <= theirs else "different"
        self.families[family][verdict] += 1
        if verdict != "equal":
            cause = CAUSES.get(name)
            why = f": {cause}" if cause else ""
            self.lines.append(f"{verdict} {name} [{family}] {what}: {ours} against {theirs}, off by {ours - theirs}{why}")

    def refused(self, family: str, name: str, what: str, reason: str) -> None:
        """Counts a refusal."""
        self.families[family]["refused"] += 1
        self.lines.append(f"refused {name} [{family}] {what}: {reason}")

    def show(self) -> None:
        """Prints the table and the differences."""
        for family in sorted(self.families):
            print(f"{family:28}", dict(self.families[family]))
        print(*self.lines, sep="\n")
        print(dict(sum(self.families.values(), Counter())))


def defaults(models: Models, tally: Tally, pattern: str) -> None:
    """Records at default settings, tp 1 to 8."""
    for row in records("weights_oracle.jsonl"):
        name = row["model"]
        model = models.get(name)
        family = models.family[name]
        if pattern not in f"{name} {family} {row['quantization']}".lower():
            continue
        if isinstance(model, str):
            tally.refused(family, name, f"tp {row['tp']}", f"not read: {model[:150]}")
            continue
        try:
            tally.judge(family, name, f"tp {row['tp']} {row['by_dtype']}", created(model, row["tp"], {})[0], row["bytes_per_rank"])
        except GpufitError as error:
            tally.refused(family, name, f"tp {row['tp']}", error.message)


def other_settings(models: Models, tally: Tally, pattern: str) -> None:
    """Records at other settings, each combination that could move the weights once."""
    seen: set[str] = set()
    for row in records("kv_oracle_settings.jsonl"):
        settings = {k: v for k, v in row["settings"].items() if k not in IRRELEVANT}
        name, what = row["model"], f"tp {row['tp']} {json.dumps(settings, sort_keys=True)}"
        if name + what in seen:
            continue
        seen.add(name + what)
        model = models.get(name)
        family = models.family[name]
        if pattern not in f"{name} {family} {what}".lower():
            continue
        if isinstance(model, str):
            tally.refused(family, name, what, f"not read: {model[:150]}")
            continue
        try:
            found = created(model, row["tp"], settings)
            theirs = [s["weight_bytes_per_rank"] for s in row["stages"]] if "stages" in row else [row["weight_bytes_per_rank"]]
            for i, (a, b) in enumerate(zip(found, theirs, strict=True)):
                tally.judge(family, name, f"{what} stage {i}", a, b)
            if "draft_weight_bytes_per_rank" in row:
                ours = int(draft_weights_on_rank(model, model.published.recipe, spread_of(row["tp"], settings)))
                tally.judge(family, name, f"{what} draft", ours, row["draft_weight_bytes_per_rank"])
        except GpufitError as error:
            tally.refused(family, name, what, error.message)


def main() -> int:
    """Runs one of the comparisons."""
    if not SHARED.is_dir():
        print(f"nothing to compare with: {SHARED} is absent")
        return 0
    pattern = next((a for a in sys.argv[1:] if not a.startswith("-")), "").lower()
    tally = Tally()
    (other_settings if "--settings" in sys.argv else defaults)(Models(), tally, pattern)
    tally.show()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
