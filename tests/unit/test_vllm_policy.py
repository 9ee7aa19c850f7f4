"""What the vLLM policy answers for one model on one kind of GPU: its weights, its cache, and what it says about both."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpufit.derivation import Step, steps
from gpufit.engines.base import Capacity
from gpufit.engines.vllm.constants import NEWEST, Constants
from gpufit.engines.vllm.policy import Vllm
from gpufit.engines.vllm.settings import vllm_settings
from gpufit.model import Model
from gpufit.placement import Refusal, placed
from gpufit.quantity import TOKEN_PER_SEQUENCE, Q, fact
from gpufit.sizing.weights import weights_in
from gpufit.sources.catalogue import model_of
from gpufit.sources.engine_constants import engine_rows
from gpufit.sources.gpus import find_gpu
from gpufit.workload import Workload


def sized(
    of: str | Model,
    gpu: str,
    *,
    tp: int = 1,
    weights: str = "published",
    context: int = 8192,
    cache: str | None = None,
    **said: Any,
) -> Capacity | Refusal:
    model = model_of(of) if isinstance(of, str) else of
    policy = Vllm(constants=Constants(version=NEWEST, rows=engine_rows("vllm")), flags=vllm_settings(**said))
    length = fact(context, TOKEN_PER_SEQUENCE, symbol="n", name="context length", origin="test")
    return policy.capacity(
        model,
        find_gpu(gpu),
        placed(tp),
        Workload(context=length, kv_cache_dtype=cache),
        weights_in(model, weights),
        length,
        policy.cache_format(model, cache),
    )


def capacity(*of: Any, **said: Any) -> Capacity:
    found = sized(*of, **said)
    assert isinstance(found, Capacity), found
    return found


def derivation(c: Capacity) -> tuple[Step, ...]:
    return steps(c.weights_per_gpu, c.per_replica, *(v for v in c.details.values() if isinstance(v, Q) and v.symbol))


@pytest.mark.parametrize("slug", ["llama-3.1-8b", "gpt-oss-120b", "deepseek-v3", "qwen3-next-80b-a3b"])
def test_a_number_of_layers_is_one_fact(slug: str) -> None:
    """Parts that stand in the same layers share one number of layers, and no step only repeats another."""
    lines = derivation(capacity(slug, "h200-sxm", tp=8))
    counts = [(line.name, line.value) for line in lines if line.is_fact and line.symbol.startswith("L_")]
    assert len(counts) == len(set(counts))
    assert not [line for line in lines if re.fullmatch(r"\w+", line.formula)]


def test_towers_are_left_out_with_language_model_only() -> None:
    """Without its tower and projector Gemma 3 27B loads 423,060,336 parameters fewer, two bytes each, and the derivation says why."""
    whole = capacity("gemma-3-27b", "h200-sxm")
    alone = capacity("gemma-3-27b", "h200-sxm", language_model_only=True)
    assert int(whole.weights_per_gpu) - int(alone.weights_per_gpu) == 2 * 423_060_336
    notes = [s.note for s in derivation(alone) if s.name == "weights created on one GPU"]
    assert notes == ["towers and projectors are not loaded (--language-model-only)"]
