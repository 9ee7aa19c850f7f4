"""How much work the whole catalogue takes, in counts that are the same on every machine; times are for benchmarks/startup.py."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from gpufit.engines.arithmetic import Arithmetic
from gpufit.engines.base import Capacity
from gpufit.model import Model
from gpufit.placement import Refusal
from gpufit.quantity import TOKEN_PER_SEQUENCE, fact
from gpufit.sizing.question import Question
from gpufit.sizing.search import answer, place
from gpufit.sizing.weights import ladder, weights_in
from gpufit.sources.catalogue import all_models, model_of
from gpufit.sources.gpuspec import parse_spec
from gpufit.workload import Workload

SCRIPT = """
import collections, contextlib, dataclasses, io, json, sys
count = collections.Counter()

def counted(owner, name, key):
    real = getattr(owner, name)
    def stand_in(*given, **named):
        count[key] += 1
        return real(*given, **named)
    setattr(owner, name, stand_in)

made = dataclasses._process_class
def process(cls, *options):
    count["dataclasses"] += cls.__module__.startswith("gpufit")
    return made(cls, *options)
dataclasses._process_class = process

from gpufit.cli import app
from gpufit.engines import arithmetic
from gpufit.formats import names
from gpufit.quantity import Q
from gpufit.sources import quantization, read, toml_rows

class Parser:
    TOMLDecodeError = toml_rows.toml.TOMLDecodeError
    loads = staticmethod(toml_rows.toml.loads)

counted(Parser, "loads", "files")
toml_rows.toml = Parser
counted(arithmetic.Arithmetic, "capacity", "capacities")
counted(names.Names, "match", "matches")
counted(names.Names, "__init__", "lists")
counted(read, "read_model", "models")
counted(Q, "__init__", "quantities")
with contextlib.redirect_stdout(io.StringIO()):
    code = app.run(sys.argv[1:])
assert code == 0
from gpufit.sizing import weights
count["published"] = weights.published_weights.cache_info().misses
count["scans"] = read._claims.cache_info().misses + quantization._readers.cache_info().misses
ours = [name for name in sys.modules if name.partition(".")[0] == "gpufit"]
count["adapters"] = sum(name.startswith("gpufit.sources.adapters.") for name in ours)
count["modules"] = len(ours) - count["adapters"]
print(json.dumps(count))
"""


@cache
def counts(*words: str) -> dict[str, int]:
    """What a command counted, run in an interpreter of its own so that nothing was read before."""
    ended = subprocess.run([sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, check=True)
    found: dict[str, int] = json.loads(ended.stdout)
    return found


@pytest.fixture(params=[("fit", "--gpu", "h100-sxm:4", "--json"), ("fit", "--gpu", "h100-sxm:4")], ids=["json", "table"])
def whole(request: pytest.FixtureRequest) -> dict[str, int]:
    """The counts of the whole catalogue, as JSON and as a table."""
    return counts(*request.param)


def test_every_file_and_model_is_read_once(whole: dict[str, int]) -> None:
    """The GPU table and each model's file are parsed once, each config is read once and each checkpoint is weighed once."""
    models = len(all_models())
    assert whole["files"] == models + 1
    assert whole["models"] == models
    assert whole["published"] <= models


def test_families_are_found_by_name(whole: dict[str, int]) -> None:
    """No adapter and no quantisation method is imported to look for another: only those of the catalogue's families are there."""
    assert whole.get("scans", 0) == 0
    families = {m.family for m in all_models()}
    # A multimodal family reads its decoder with a second adapter, and some adapters lean on another's.
    assert whole["adapters"] <= 1.3 * len(families)


def test_names_are_matched_by_kind_of_layer(whole: dict[str, int]) -> None:
    """A list of names is asked about a part once for each kind of layer that it can tell apart, not once a layer."""
    quantised = [m for m in all_models() if m.published.recipe is not None]
    parts = sum(sum(p.columns is not None for p in m.parts) for m in quantised)
    layers = sum(sum(p.columns is not None for p in m.parts) * int(m.num_layers) for m in quantised)
    assert whole["matches"] <= parts < layers / 20
    assert whole["lists"] <= 2 * len(quantised)


def test_few_placements_are_sized(whole: dict[str, int]) -> None:
    """A model that fits takes a placement or two; one that does not fit, those of its lowest format and a few on more GPUs."""
    assert whole["capacities"] <= 3.5 * len(all_models())


def test_few_quantities_are_made(whole: dict[str, int]) -> None:
    """The traced arithmetic of a model's reading, weights and placements takes some hundred quantities."""
    assert whole["quantities"] <= 350 * len(all_models())


def test_little_is_imported() -> None:
    """JSON of the catalogue needs less than half of the package, and few classes that must be built at import."""
    found = counts("fit", "--gpu", "h100-sxm:4", "--json")
    assert found["modules"] <= 95
    assert found["dataclasses"] <= 70


class Recording(Arithmetic):
    """Plain arithmetic that remembers which placements it was asked about."""

    asked: list[tuple[int, int, str]] = []  # noqa: RUF012

    def capacity(
        self, model: Model, gpu: Any, placement: Any, workload: Any, weights: Any, context: Any, cache: Any
    ) -> Capacity | Refusal:
        """The same, written down."""
        self.asked.append((int(placement.tensor_parallel), int(placement.pipeline_parallel), weights.format))
        return super().capacity(model, gpu, placement, workload, weights, context, cache)


@pytest.mark.parametrize("spec", ["h100-sxm:4", "rtx-4090:2", "h100-sxm:16"])
@pytest.mark.parametrize("slug", ["deepseek-v3", "llama-3.1-405b", "kimi-k2", "llama-3.1-8b"])
def test_no_placement_is_sized_twice(slug: str, spec: str) -> None:
    """The rounds of a search ask the engine about a placement in a format once."""
    Recording.asked.clear()
    answer(question(model_of(slug), spec, Recording()))
    assert len(Recording.asked) == len(set(Recording.asked)) > 0


@pytest.mark.parametrize("spec", ["h100-sxm:4", "rtx-4090:2", "t4:1", "h100-sxm:16"])
def test_what_outweighs_the_gpus_fits_nowhere(spec: str) -> None:
    """A format that plain arithmetic skips unseen holds no sequence at any legal placement, at the shortest context."""
    hardware = parse_spec(spec)
    skipped = 0
    for model in all_models():
        asked = question(model, spec, Arithmetic(), context=1)
        for name in ladder(model, hardware_fp8=hardware.gpu.fp8):
            weights = weights_in(model, name)
            if asked.engine.outweighed(hardware.gpu, hardware.count, asked.workload, weights):
                assert asked.workload.context is not None
                found, _ = place(asked, hardware, weights, asked.workload.context)
                assert found is None or found.sequences == 0
                skipped += 1
    assert skipped


def question(model: Model, spec: str, engine: Arithmetic, *, context: int = 8192) -> Question:
    """A question about one model on one kind of hardware."""
    tokens = fact(context, TOKEN_PER_SEQUENCE, symbol="n", name="context length", origin="test")
    return Question(model=model, hardware=(parse_spec(spec),), workload=Workload(context=tokens), engine=engine)
