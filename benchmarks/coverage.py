"""How many published configs are read, by family, and how their counts and checkpoint bytes compare with published figures.

    python benchmarks/coverage.py [CONFIGS]

CONFIGS is a folder with ORG--NAME/config.json and, where known, PARAMS_META.tsv (exact counts) and PARAMS.tsv (checkpoint bytes);
`../shared/configs` beside the checkout by default. Ends with 0 and says so when it is not there.
"""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

from gpufit.errors import GpufitError
from gpufit.formats.checkpoint import checkpoint_bytes
from gpufit.formats.recipe import AllPlain
from gpufit.formats.tensor import PLAIN
from gpufit.model import Model
from gpufit.sources.read import read_model

ROOT = Path(__file__).resolve().parent.parent


def rows(path: Path) -> dict[str, dict[str, str]]:
    """A table by model id; empty when there is no such file."""
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8") as lines:
        return {row["model_id"]: row for row in csv.DictReader(lines, delimiter="\t")}


def read(folder: Path) -> Model:
    """The model of one folder."""
    quant = folder / "hf_quant_config.json"
    return read_model(
        json.loads((folder / "config.json").read_text(encoding="utf-8")),
        id=folder.name.replace("--", "/", 1),
        hf_quant=json.loads(quant.read_text(encoding="utf-8")) if quant.is_file() else None,
    )


def main() -> None:
    """Prints the tables."""
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT.parent / "shared" / "configs"
    if not place.is_dir():
        print(f"{place} is not there: nothing to compare with")
        return
    counts, sizes = rows(place / "PARAMS_META.tsv"), rows(place / "PARAMS.tsv")
    by_family: dict[str, Counter[str]] = defaultdict(Counter)
    refused: list[str] = []
    differ: list[str] = []
    off: list[str] = []
    compared = equal = weighed = close = 0
    for folder in sorted(p for p in place.iterdir() if (p / "config.json").is_file()):
        name = folder.name.replace("--", "/", 1)
        family = str(json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type") or "(none)")
        try:
            model = read(folder)
        except GpufitError as error:
            by_family[family]["refused"] += 1
            refused.append(f"{name}: {error.message}")
            continue
        by_family[family]["read"] += 1
        if name in counts:
            compared += 1
            ours, theirs = int(model.total_params), int(counts[name]["total"])
            equal += ours == theirs
            if ours != theirs:
                differ.append(f"{name}: {ours:,} here, {theirs:,} counted ({ours - theirs:+,}) {counts[name]['note']}")
        stated = sizes.get(name, {}).get("checkpoint_bytes")
        if stated:
            weighed += 1
            recipe = model.published.recipe or AllPlain(plain=PLAIN.get(model.published.format, PLAIN["bf16"]))
            options = [int(checkpoint_bytes(model, recipe, with_draft=d)) for d in (False, True)]
            nearest = min(options, key=lambda size: abs(size - int(stated)))
            within = abs(nearest - int(stated)) <= int(stated) / 1000
            close += within
            if not within:
                off.append(
                    f"{name}: {nearest:,} from config, {int(stated):,} stated ({nearest / int(stated) - 1:+.3%}) {sizes[name]['source']}"
                )
    print("family                      read  refused")
    for family in sorted(by_family):
        print(f"{family:26}  {by_family[family]['read']:4}  {by_family[family]['refused']:7}")
    read_all, refused_all = (sum(c[k] for c in by_family.values()) for k in ("read", "refused"))
    print(f"{'all':26}  {read_all:4}  {refused_all:7}")
    print("\nrefused, and why:", *refused or ["none"], sep="\n  ")
    print(f"\nparameters equal to the counted ones: {equal} of {compared}", *differ, sep="\n  ")
    print(f"\ncheckpoint bytes within 0.1% from config alone: {close} of {weighed}", *off, sep="\n  ")


if __name__ == "__main__":
    main()
