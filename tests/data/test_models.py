"""The model catalogue, held to its own rules."""

from __future__ import annotations

import csv
import json
from collections import Counter
from datetime import date
from typing import Any

import pytest
from support import ROOT, shared

from gpufit.quantity import NUMBER, total
from gpufit.sources.catalogue import Entry, entries, model_of, names_of
from gpufit.sources.model_schema import file_problems
from gpufit.sources.read import read_model
from gpufit.sources.toml_rows import toml

FILES = sorted((ROOT / "data" / "models").glob("*/*.toml"))
ENTRIES = {e.slug: e for e in entries()}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_schema(path: Any) -> None:
    """Every file passes the strict schema and lies at ORG/SLUG.toml."""
    content = toml.loads(path.read_text(encoding="utf-8"))
    assert file_problems(content) == []
    assert path.parent.name == content["id"].split("/")[0]
    assert path.stem == content["slug"]


def test_a_wrong_file_is_told_everything() -> None:
    """A file with an unknown key, a missing one and a wrong type is told all three at once."""
    content = toml.loads(FILES[0].read_text(encoding="utf-8"))
    content["windw"] = 4096
    del content["source"]
    content["parameters"]["total"] = "many"
    problems = " ".join(file_problems(content))
    assert "windw" in problems
    assert "source" in problems
    assert "parameters.total" in problems


def test_names_are_unique() -> None:
    """An id, slug or alias stands for one entry, in any case."""
    counts = Counter(name.lower() for e in ENTRIES.values() for name in {n.lower() for n in names_of(e)})
    assert [name for name, times in counts.items() if times > 1] == []


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=lambda e: e.slug)
def test_entry(entry: Entry) -> None:
    """Sources are present, the day is not in the future, aliases are sorted, counts make sense."""
    assert entry.source
    assert entry.parameters.source
    assert entry.checked <= date.today()
    assert entry.aliases == sorted(set(entry.aliases))
    assert 0 < entry.parameters.active <= entry.parameters.total
    assert (entry.parameters.vision or 0) < entry.parameters.total


@pytest.mark.parametrize("slug", ENTRIES)
def test_counts_are_the_parts(slug: str) -> None:
    """The stated total, active and vision counts equal the sums over the weight parts, and the stated format is the reader's."""
    entry = ENTRIES[slug]
    read = read_model(entry.published_config(), id=entry.id, hf_quant=entry.hf_quant_config)
    assert int(total((p.elements() for p in read.parts if not p.buffer), unit=NUMBER)) == entry.parameters.total
    assert read.active_params is not None
    assert int(read.active_params) == entry.parameters.active
    assert (None if read.vision_params is None else int(read.vision_params)) == entry.parameters.vision
    assert read.published.format == entry.published
    labels = {"model_type", "architectures", "torch_dtype", "dtype"}
    assert [field for field in read.unused_fields if field.rsplit(".", 1)[-1] not in labels] == []


def published_rows() -> list[tuple[str, int]]:
    """Independent counts of catalogue models, or none in a clone that lacks the collected facts."""
    found = shared()
    if found is None:
        return []
    with (found / "configs" / "PARAMS_META.tsv").open(encoding="utf-8") as lines:
        counts = {row["model_id"]: int(row["total"]) for row in csv.DictReader(lines, delimiter="\t")}
    return [(e.slug, counts[e.id]) for e in ENTRIES.values() if e.id in counts]


@pytest.mark.parametrize(("slug", "counted"), published_rows())
def test_counts_are_the_published_ones(slug: str, counted: int) -> None:
    """The stated total equals the count of the instantiated model."""
    assert ENTRIES[slug].parameters.total == counted


def config_files() -> list[str]:
    """Catalogue models whose whole published config lies beside the checkout."""
    found = shared()
    return (
        []
        if found is None
        else [e.slug for e in ENTRIES.values() if (found / "configs" / e.id.replace("/", "--") / "config.json").is_file()]
    )


@pytest.mark.parametrize("slug", config_files())
def test_entry_is_what_the_reader_makes_of_its_config(slug: str) -> None:
    """The entry's shortened config gives the same layers, parts and format as the whole published file."""
    found = shared()
    assert found is not None
    folder = found / "configs" / ENTRIES[slug].id.replace("/", "--")
    quant = folder / "hf_quant_config.json"
    whole = read_model(
        json.loads((folder / "config.json").read_text(encoding="utf-8")),
        id=ENTRIES[slug].id,
        hf_quant=json.loads(quant.read_text(encoding="utf-8")) if quant.is_file() else None,
    )
    kept = model_of(slug)
    assert [repr(g) for g in kept.layers] == [repr(g) for g in whole.layers]
    assert [repr(p) for p in kept.parts] == [repr(p) for p in whole.parts]
    assert (kept.published.format, kept.published.kv_cache_dtype) == (whole.published.format, whole.published.kv_cache_dtype)
    assert int(kept.total_params) == int(whole.total_params)
