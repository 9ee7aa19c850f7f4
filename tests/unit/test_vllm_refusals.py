"""What vLLM refuses before it plans, as data with the option to change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from vllm_models import (
    chunked,
    constants,
    deepseek_v3,
    deepseek_v4_flash,
    full,
    gpt_oss_120b,
    llama4_scout,
    llama_8b,
    model,
    n,
    qwen3_next,
    refused,
    state,
)

from gpufit.engines.vllm.refusals import checkpoint_refusals
from gpufit.layers.none import Shared
from gpufit.model import Model, Published, Role, Shard, WeightPart


def phi_4() -> Model:
    return model("phi3", [(full(40, 10, 128), range(40))], heads=40, kv_heads=10)


def sharing() -> Model:
    return model("gemma3n", [(full(8, 2, 256), range(15)), (Shared(target=14), range(15, 20))], heads=8, kv_heads=2)


@pytest.mark.parametrize(
    ("of", "options", "words"),
    [
        (llama4_scout, {"tensor_parallel": 16}, "40 attention heads do not divide by 16"),
        (phi_4, {"tensor_parallel": 4}, "10 KV heads do not divide by 4"),
        (gpt_oss_120b, {"tensor_parallel": 16}, "8 of them are fewer than 16 GPUs"),
        (sharing, {"pipeline_parallel": 4}, "which is on another stage"),
        (llama_8b, {"tensor_parallel": 8, "decode_context_parallel": 2}, "tp must be greater"),
        (llama_8b, {"tensor_parallel": 16, "decode_context_parallel": 4}, "more than the 2 copies"),
        (llama_8b, {"tensor_parallel": 16, "decode_context_parallel": 3}, "does not divide by 3"),
        (deepseek_v4_flash, {"tensor_parallel": 8, "decode_context_parallel": 2}, "not split over context-parallel ranks"),
        (deepseek_v4_flash, {"hybrid_manager": False}, "needs the hybrid KV cache manager"),
        (deepseek_v4_flash, {"block_size": 64}, "needs blocks of 256"),
        (deepseek_v4_flash, {"kv_cache_dtype": "int8_per_token_head"}, "takes only fp8 caches"),
        (qwen3_next, {"tensor_parallel": 4, "hybrid_manager": False}, "cannot be brought to one kind"),
        (deepseek_v3, {"kv_cache_dtype": "nvfp4"}, "latent attention does not take"),
        (llama_8b, {"kv_cache_dtype": "int3"}, "is no cache dtype"),
        (llama_8b, {"speculative_method": "mtp", "speculative_tokens": 1}, "has no draft layers"),
        (llama_8b, {"speculative_method": "eagle3", "speculative_tokens": 3}, "another model's"),
        (llama4_scout, {"kv_cache_dtype": "turboquant_k8v4"}, "chunked local attention does not take"),
    ],
)
def test_refusals_of_the_planner(of: Callable[[], Model], options: dict[str, Any], words: str) -> None:
    """Each refusal that 0.33.0 gave is given here, and says why."""
    assert words in refused(of(), **options)


def test_state_groups_divide_or_are_one() -> None:
    """Eight groups of a Mamba 2 mixer stay on up to eight GPUs; past that vLLM asserts."""
    hybrid = model("nemotron_h", [(state("mamba2"), range(4)), (full(64, 16, 128), range(4, 8))], heads=64, kv_heads=16)
    assert "groups do not divide by 16" in refused(hybrid, tensor_parallel=16)


def test_a_shard_that_does_not_divide_is_refused_unless_its_tower_stays_out() -> None:
    """Qwen2.5-VL's vision MLP is 3,420 wide, which eight GPUs cannot share; without the tower they can."""
    tower = WeightPart(
        name="vision gate_proj", role=Role.VISION, module="visual.mlp.gate_proj", rows=n(3420), columns=n(1280), shard=Shard.COLUMN
    )
    seen = model("qwen2_5_vl", [(full(16, 2, 128), range(36))], heads=16, kv_heads=2, parts=(tower,))
    assert "3420" in refused(seen, tensor_parallel=8)
    from vllm_models import plan

    assert plan(seen, tensor_parallel=8, language_model_only=True).fits


def test_architectures_without_stages_say_so() -> None:
    """A class without pipeline support is refused by its name."""
    whisper = model("whisper", [(full(6, 6, 64), range(4))], heads=6, kv_heads=6, architecture="WhisperForConditionalGeneration")
    assert "WhisperForConditionalGeneration" in refused(whisper, pipeline_parallel=2)


@pytest.mark.parametrize(
    ("version", "method", "served"),
    [
        ("0.33", "bitsandbytes", False),
        ("0.27", "bitsandbytes", True),
        ("0.23", "gguf", True),
        ("0.24", "gguf", False),
        ("0.33", "awq", True),
    ],
)
def test_quantisers_come_and_go_by_version(version: str, method: str, served: bool) -> None:
    """A checkpoint's quantiser is served only in the versions that list it."""
    of = model("llama", [(full(32, 8, 128), range(2))], heads=32, kv_heads=8, published=Published(format="int4", method=method))
    assert (checkpoint_refusals(of, constants(version)) == ()) is served


def test_a_chunked_model_with_a_draft_loses_its_groups() -> None:
    """With draft layers of its own a chunked model is planned without the hybrid manager."""
    from vllm_models import plan

    kind = chunked(40, 8, 128, 8192)
    of = model("llama4", [(kind, range(3)), (full(40, 8, 128), [3])], heads=40, kv_heads=8, draft=[(full(40, 8, 128), [4])])
    assert plan(of, speculative_method="mtp", speculative_tokens=1).hybrid is False


def test_a_kind_without_a_rule_is_refused_not_dropped() -> None:
    """A recurrent layer that no model class serves is named; it never counts as a layer without cache."""
    from gpufit.layers.rwkv import Rwkv
    from gpufit.layers.state import STATE_UNIT

    four = n(4, STATE_UNIT, "b_s")
    kind = Rwkv(heads=n(40), head_dim=n(64), width=n(2560), conv_bytes=four, recurrent_bytes=four)
    assert "no cache for" in refused(model("rwkv5", [(kind, range(32))], heads=40))
