"""Every printed line of every catalogue model re-evaluates, with an evaluator that shares no code with gpufit."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path

import pytest
from support import calculate, equations, gives, gpufit

import gpufit as library
from gpufit.derivation import rounded_text, steps
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
            assert calculate(printed[-2]) == step.value
            assert gives(step.value, printed[-1])


@pytest.mark.parametrize("slug", ["llama-3.1-8b", "gpt-oss-120b", "deepseek-v3", "gemma-3-27b"])
def test_every_line_of_the_screen(slug: str) -> None:
    """The screen itself, parsed as text: each equation's last formula gives its result, and each symbol keeps one value."""
    ended = gpufit("explain", slug, "--gpu", "h200-sxm:8")
    found = equations(ended.stdout)
    assert len(found) >= 8
    for _, sides in found:
        assert gives(calculate(sides[-2]), sides[-1])


@pytest.mark.parametrize("slug", ["gpt-oss-120b", "kimi-k3", "llama-4-scout", "nemotron-3-nano-30b-a3b", "qwen3-8b"])
@pytest.mark.parametrize("width", [80, 120])
def test_every_line_of_an_engine(slug: str, width: int) -> None:
    """Under an engine's rules the same holds, no line is wider than the terminal, and no bookkeeping 1 is among the facts."""
    ended = gpufit("explain", slug, "--gpu", "b300:8", "--engine", "vllm", "--context", "5000", width=width)
    assert ended.returncode == 0, ended.stderr
    found = equations(ended.stdout)
    assert len(found) >= 20
    for symbol, sides in found:
        assert gives(calculate(sides[-2]), sides[-1]), symbol
    assert max(map(len, ended.stdout.splitlines())) <= width
    assert not re.search(r"^  (one_row|each) =|per sequence +batches|B/(token|sequence) +bytes of", ended.stdout, re.MULTILINE)


def test_a_fraction_that_does_not_end() -> None:
    """A line ends in the first digits of such a fraction and dots; where the value is read it stands as the exact quotient."""
    lines = dict(equations(gpufit("explain", "qwen3-8b", "--gpu", "h100-sxm", "--engine", "vllm", "--context", "5000").stdout))
    assert re.fullmatch(r"\d+\.\d+\.\.\. sequences", lines["C"][-1])
    assert lines["C_w"][-2] == f"floor({lines['C'][-2]})"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(9867, 1025), "9.62634..."),
        (Fraction(29999999, 3), "9,999,999.6..."),
        (Fraction(-1, 3000), "-0.000333333..."),
        (Fraction(9999999999, 1000000007), "9.99999..."),
        (Fraction(1, 8), "0.125"),
    ],
)
def test_digits_of_fractions(value: Fraction, text: str) -> None:
    """Digits are cut and never rounded up, and a fraction that ends is printed in full."""
    assert rounded_text(value) == text
    assert gives(value, text)


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


@pytest.mark.parametrize("slug", ["deepseek-v3", "gpt-oss-120b", "kimi-k3"])
def test_layers_of_a_checkpoint_have_a_source(slug: str) -> None:
    """No formula of a published checkpoint's bytes begins with a bare count of layers: it is the model's own or a fact of its parts."""
    parts = [s for s in library.explain(slug, context=1024) if s.symbol.startswith("W_")]
    assert len(parts) > 5
    assert [s.symbol for s in parts if re.match(r"\d+ \* ", s.formula)] == []
    assert any(s.formula.startswith("L * ") for s in parts)


def test_layers_of_a_count_have_a_source(tmp_path: Path) -> None:
    """The parameters of a config are counted by its own number of layers, never by a bare one."""
    config = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 896, "num_hidden_layers": 24,
        "num_attention_heads": 14, "num_key_value_heads": 2, "intermediate_size": 4864, "vocab_size": 151936, "hidden_act": "silu",
        "max_position_embeddings": 32768, "torch_dtype": "bfloat16", "tie_word_embeddings": True,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (count,) = [s for s in library.explain(str(tmp_path), context=1024, offline=True) if s.symbol == "N"]
    assert "L * I * H" in count.formula
    assert not re.search(r"\b24 \*", count.formula)
    assert count.value == 494_032_768
