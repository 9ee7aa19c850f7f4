"""Compares the weights that the vLLM engine predicts per rank with what vLLM 0.33.0's own classes create.

Prints, by family, how many records are equal to the byte, within 0.1 %, different or refused, and each difference with its size.
The records (shared/oracle beside the repository) are not part of it: without them the script says so and ends well.

    python benchmarks/weights_oracle.py [--all] [--settings] [PATTERN]
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpufit.engines.vllm.stage_parts import Stage
from gpufit.engines.vllm.weight_shards import Spread
from gpufit.engines.vllm.weights import weights_on_rank
from gpufit.errors import GpufitError
from gpufit.model import Model
from gpufit.quantity import NUMBER, fact
from gpufit.sources.read import read_model

SHARED = Path(__file__).resolve().parents[2] / "shared"


def records(name: str) -> Iterator[dict[str, Any]]:
    with (SHARED / "oracle" / name).open() as lines:
        yield from map(json.loads, lines)


class Models:
    """Models read once; a model that is refused gives its reason."""

    def __init__(self) -> None:
        self.known: dict[str, Model | str] = {}
        self.family: dict[str, str] = {}

    def get(self, name: str) -> Model | str:
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


def predicted(model: Model, tp: int) -> int:
    spread = Spread(
        tp=fact(tp, NUMBER, symbol="tp", name="tp", origin="record"), dp=fact(1, NUMBER, symbol="dp", name="dp", origin="record")
    )
    stage = Stage(layers=range(int(model.num_layers)))
    return int(weights_on_rank(model, model.published.recipe, spread, stage).created)


def main() -> int:
    if not SHARED.is_dir():
        print(f"nothing to compare with: {SHARED} is absent")
        return 0
    pattern = next((a for a in sys.argv[1:] if not a.startswith("-")), "").lower()
    models = Models()
    tally: dict[str, Counter[str]] = defaultdict(Counter)
    differences = []
    for row in records("weights_oracle.jsonl"):
        model = models.get(row["model"])
        family = models.family[row["model"]]
        if pattern and pattern not in f"{row['model']} {family} {row['quantization']}".lower():
            continue
        if isinstance(model, str):
            tally[family]["unread"] += 1
            if row["tp"] == 1 and "--all" in sys.argv:
                differences.append(f"unread {row['model']}: {model[:150]}")
            continue
        try:
            ours = predicted(model, row["tp"])
        except GpufitError as error:
            tally[family]["refused"] += 1
            differences.append(f"refused {row['model']} tp {row['tp']}: {error.message}")
            continue
        theirs = row["bytes_per_rank"]
        verdict = "equal" if ours == theirs else "near" if abs(ours - theirs) * 1000 <= theirs else "different"
        tally[family][verdict] += 1
        if verdict != "equal":
            differences.append(
                f"{verdict} {row['model']} [{family}, {row['quantization']}] tp {row['tp']}: {ours} vs {theirs}, off by {ours - theirs} {row['by_dtype']}"
            )
    for family in sorted(tally):
        print(f"{family:28}", dict(tally[family]))
    print(*differences, sep="\n")
    whole = sum(tally.values(), Counter())
    print(dict(whole))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
