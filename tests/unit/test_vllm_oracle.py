"""The cache plan against every record of vLLM 0.33.0's own planner, where those records are."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest
from support import ROOT, shared

FILES = ("kv_oracle.jsonl", "kv_oracle_settings.jsonl") if shared() is not None else ()


def oracle() -> ModuleType:
    spec = importlib.util.spec_from_file_location("oracle", ROOT / "benchmarks" / "oracle.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", FILES)
def test_every_record_of_a_model_that_is_read_is_equal(name: str) -> None:
    """Blocks, bytes, tokens and concurrency equal the planner's on every record, known causes apart."""
    bench = oracle()
    wrong = []
    for record in bench.records(name):
        try:
            bench.model_of(record["model"])
        except bench.GpufitError:
            continue
        if bench.cause(record) is None:
            found = bench.differences(record)
            if found:
                wrong.append((record["model"], record["tp"], record.get("settings"), found))
    assert wrong[:5] == []


@pytest.mark.parametrize("name", ["refused_settings.jsonl"] if shared() is not None else [])
def test_what_the_planner_refused_is_refused(name: str) -> None:
    """Settings that vLLM refused by its own rules are refused here, known causes apart."""
    bench = oracle()
    accepted = [
        (record["model"], record["setting"])
        for record in bench.records(name)
        if bench.readable(record["model"]) and bench.cause(record) is None and not bench.refused_here(record)
    ]
    assert accepted == []
