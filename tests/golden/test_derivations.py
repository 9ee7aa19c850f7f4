"""Every printed line of every catalogue model re-evaluates, with an evaluator that shares no code with gpufit."""

from __future__ import annotations

import pytest
from support import calculate, equations, gpufit, leading_number

import gpufit as library
from gpufit.derivation import steps
from gpufit.formats.cache import BF16
from gpufit.report.explain import equation
from gpufit.sources.catalogue import entries

SLUGS = [entry.slug for entry in entries()]


@pytest.mark.parametrize("slug", SLUGS)
def test_every_line_gives_its_own_result(slug: str) -> None:
    """For each model on hardware that holds it: every line's substitution gives the value printed at its end, at 80 columns."""
    gpu = next(
        g for g in ("h100-sxm:8", "b300:8", "b300:32", "b300:64") if library.answer(slug, gpu=g, context=1024).capacity is not None
    )
    for found in (library.explain(slug, gpu=gpu, context=1024), library.explain(slug, context=1024)):
        formulas = [s for s in found if not s.is_fact]
        assert formulas
        for step in formulas:
            printed = " ".join(line.strip() for line in equation(step, 80)).split(" = ")
            assert calculate(printed[-2]) == leading_number(printed[-1]) == step.value


@pytest.mark.parametrize("slug", ["llama-3.1-8b", "gpt-oss-120b", "deepseek-v3", "gemma-3-27b"])
def test_every_line_of_the_screen(slug: str) -> None:
    """The screen itself, parsed as text: each equation's last formula gives its result, and each symbol keeps one value."""
    ended = gpufit("explain", slug, "--gpu", "h200-sxm:8")
    found = equations(ended.stdout)
    assert len(found) >= 8
    for _, sides in found:
        assert calculate(sides[-2]) == leading_number(sides[-1])


def test_printed_is_the_answer() -> None:
    """The last lines of the derivation are the very numbers that fit prints."""
    answer = library.answer("llama-3.3-70b", gpu="h100-sxm:4")
    by_symbol = {s.symbol: s.value for s in library.explain("llama-3.3-70b", gpu="h100-sxm:4")}
    assert answer.capacity is not None
    assert by_symbol["C"] == int(answer.capacity.per_replica) == 62
    assert by_symbol["P"] == int(answer.capacity.pool)
    assert by_symbol["W_g"] == int(answer.capacity.weights_per_gpu)


@pytest.mark.parametrize("slug", ["llama-3.2-3b", "gemma-3-1b"])
@pytest.mark.parametrize("name", ["fp8", "int4", "int8"])
def test_embeddings_stay_at_16_bit(slug: str, name: str) -> None:
    """In a quantised format a model with a large vocabulary keeps its embedding at 16 bit, and the derivation shows it."""
    by_symbol = {s.symbol: s for s in library.explain(slug, weights=name)}
    embedding = by_symbol["E"]
    assert "16 bit" in embedding.name
    assert embedding.value == by_symbol["V"].value * by_symbol["H"].value
    assert by_symbol["w16"].value == 2
    assert "E * w16" in by_symbol["W"].formula


def test_ledgers_sum_to_the_memory() -> None:
    """The lines of each ledger sum exactly to the GPU's memory, fitting or not."""
    for slug in SLUGS:
        answer = library.answer(slug, gpu="rtx-4090", context=1024)
        if answer.capacity is not None:
            assert sum(int(line.bytes) for line in answer.capacity.ledger) == int(answer.hardware.gpu.memory)


def test_facts_have_origins_and_symbols_are_unique() -> None:
    """Over all models: each fact names its source, each symbol stands once, inputs come before what reads them."""
    for model in library.models():
        seen: set[str] = set()
        for step in steps(
            model.total_params, *(g.kind.fixed_bytes(model.num_layers, BF16) or model.num_layers for g in model.layers[:1])
        ):
            assert step.origin or not step.is_fact
            assert step.symbol not in seen
            assert set(step.inputs) <= seen
            seen.add(step.symbol)
