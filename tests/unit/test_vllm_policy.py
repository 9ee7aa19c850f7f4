"""What the vLLM policy answers for one model on one kind of GPU: its weights, its cache, and what it says about both."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
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


def test_an_unsigned_declaration_is_a_plain_checkpoint_throughout() -> None:
    """vLLM takes Nemotron 3 Super FP8 for a plain checkpoint: 241,337,466,880 bytes of weights, a 16-bit cache, and one note on both."""
    found = capacity("nemotron-3-super-120b-a12b-fp8", "b300")
    created = found.details["weights_created_bytes"]
    assert isinstance(created, Q)
    assert int(created) == 241_337_466_880
    assert (found.weights.format, found.weights.assumption, found.cache.name) == ("bf16", "", "bf16")
    assert found.details["kv_cache_dtype"] == "auto"
    said = [w for w in (*found.warnings, *found.remarks) if "fp8" in w or "quantiser" in w]
    assert said == [
        "the checkpoint's quantisation names no quantiser, so vLLM takes it for a plain one: weights and default cache at 16 bit"
    ]


def test_an_assumed_recipe_refuses_nothing() -> None:
    """A signed fp8 declaration without a list of modules is sized with one scale a matrix, where assumed blocks would be cut by a shard."""
    unsigned = model_of("nemotron-3-super-120b-a12b-fp8")
    found = capacity(replace(unsigned, published=replace(unsigned.published, signed=True)), "h100-sxm", tp=4)
    assert found.weights.assumption.endswith("on a GPU as one scale for each matrix")
    assert 0.9 < int(found.weights_per_gpu) * 4 / int(found.weights.bytes) < 1.1


@pytest.mark.parametrize(
    ("slug", "weights", "tp", "said"),
    [
        ("qwen3-vl-235b-a22b", "fp8", 4, "towers and projectors are taken at 16 bit"),
        ("qwen3.5-397b-a17b", "fp8", 4, "in_proj_ba in 16 bit"),
        ("gpt-oss-120b", "fp8", 8, "routed experts in fp8 per channel"),
        ("gpt-oss-120b", "int4", 8, "routed experts in int4 per channel"),
        ("qwen3-30b-a3b", "int4", 4, "routed experts in int4 groups of 64"),
        ("exaone-4.0-32b", "fp8", 8, "gate_up_proj, down_proj in fp8 per channel"),
    ],
)
def test_a_format_that_is_asked_for_fits_its_shards(slug: str, weights: str, tp: int, said: str) -> None:
    """Where a shard cuts through blocks that only gpufit assumes, the matrix is taken otherwise, by name, and nothing is refused."""
    found = capacity(slug, "h100-sxm", tp=tp, weights=weights)
    assert any(said in remark for remark in found.remarks), found.remarks
    assert 0.95 < int(found.weights_per_gpu) * tp / int(found.weights.bytes) < 1.1


def test_the_published_quantiser_has_no_part_in_another_format() -> None:
    """Loading the fp8 checkpoint of DeepSeek-V3 copies its latent projections at 16 bit; a bf16 one needs no copies."""
    named = {w: [s.name for s in derivation(capacity("deepseek-v3", "b300", weights=w))] for w in ("published", "bf16")}
    assert "16-bit copies of absorbed latent projections" in named["published"]
    assert "16-bit copies of absorbed latent projections" not in named["bf16"]


@pytest.mark.parametrize(("dtype", "share"), [("nvfp4", "0.5625"), ("nvfp4_4over6", "0.5625")])
def test_scales_of_an_nvfp4_cache_are_needed_bytes(dtype: str, share: str) -> None:
    """Half a byte an element and a byte of scale for 16 of them: needed bytes are those reserved, and no gap is claimed."""
    found = capacity("llama-3.1-8b", "b200", cache=dtype)
    assert found.cache.bytes_per_element.value == Fraction(share)
    assert not any("reserves" in remark for remark in found.remarks)
    assert int(found.sequence_bytes_per_gpu) == 8192 * 32 * 8 * (128 + 16)


@pytest.mark.parametrize("dtype", ["int4_per_token_head", "int8_per_token_head", "fp8_per_token_head"])
def test_scales_alone_are_no_gap(dtype: str) -> None:
    """Scales that stand once for a head are not counted as needed, which is said; they are no reason for a remark on what is reserved."""
    found = capacity("llama-3.1-8b", "h100-sxm", cache=dtype)
    assert any("without scales" in warning for warning in found.warnings)
    assert not any("reserves" in remark for remark in found.remarks)


def test_what_fits_only_below_the_high_overhead_says_so() -> None:
    """gpt-oss 120B at its full context is on the edge of an H100: the figures at both ends of the overhead are given, and a remark."""
    found = capacity("gpt-oss-120b", "h100-sxm", context=131_072)
    low, likely, high = (found.details[f"max_concurrency{end}"] for end in ("_low_overhead", "", "_high_overhead"))
    assert float(str(high)) < 1 < float(str(likely)) < float(str(low))
    assert any(remark.startswith("does not fit at the high end of the modelled overhead (5.5 GiB)") for remark in found.remarks)
    roomy = capacity("gpt-oss-120b", "h100-sxm", context=8192)
    assert not any("high end" in remark for remark in roomy.remarks)


def test_the_bar_of_weights_names_what_loading_adds() -> None:
    """gpt-oss 120B has 65,248,815,744 bytes as created; tables and padding of its experts are named with their sizes."""
    found = capacity("gpt-oss-120b", "h100-sxm")
    assert (
        "64.3 GiB of weights on a GPU are 60.8 GiB as created and, once loaded, 0.02 GiB rotary tables, "
        "3.56 GiB padding of MXFP4 experts by the Triton kernel"
    ) in found.remarks


def test_chunks_have_the_same_cure_as_windows() -> None:
    """Llama 4's chunks hold the tokens in flight as windows do: the remark on what is reserved names the option."""
    found = capacity("llama-4-scout", "h200-sxm", tp=8, context=65_536)
    assert [r for r in found.remarks if "every chunk, --max-num-batched-tokens" in r]


@pytest.mark.parametrize(
    ("gpu", "said", "unsaid"),
    [("gaudi3", "the total hl-smi prints", ("nvidia-smi", "CUDA reports")), ("rtx-3060", "nvidia-smi's is used", ("hl-smi",))],
)
def test_a_device_is_spoken_of_by_its_own_tool(gpu: str, said: str, unsaid: tuple[str, ...]) -> None:
    """Where no allocator's total is known, the figure in its place is called by the tool of that vendor."""
    about = [w for w in capacity("llama-3.2-1b", gpu).warnings if "was not seen" in w]
    assert len(about) == 1
    assert said in about[0]
    assert not any(word in about[0] for word in unsaid)


def test_formats_without_hardware_are_warned_of() -> None:
    """FP4 weights on a GPU without fp4 hardware, and quantised ones below compute capability 8.0, carry a warning; others none."""

    def warned(slug: str, gpu: str, weights: str) -> list[str]:
        return [w for w in capacity(slug, gpu, weights=weights).warnings if "fp4 hardware" in w or "compute capability" in w]

    assert ["compute in 16 bit" in w for w in warned("gpt-oss-20b", "h100-sxm", "published")] == [True]
    assert "compute in 16 bit, if they load them at all" in warned("llama-3.1-8b", "t4", "nvfp4")[0]
    assert ["compute capability 7.5" in w for w in warned("llama-3.1-8b", "t4", "int4")] == [True]
    assert warned("gpt-oss-20b", "b200", "published") == []
    assert any("Hopper's padding is taken" in w for w in capacity("gpt-oss-20b", "mi300x").warnings)
    assert warned("llama-3.1-8b", "t4", "bf16") == []


def test_what_is_not_quantised_is_said_where_it_weighs() -> None:
    """Gemma 4 E2B keeps the tables of its layers at 16 bit in any format: the bar is wider than the format's bytes, and says so."""
    said = [r for r in capacity("gemma-4-e2b", "h100-sxm", weights="fp8").remarks if "counts whole" in r]
    assert len(said) == 1
    assert not [r for r in capacity("llama-3.1-8b", "h100-sxm", weights="fp8").remarks if "counts whole" in r]
