"""Which attention backend serves a layer where, and what it does to blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from vllm_models import (
    deepseek_v3,
    deepseek_v32,
    full,
    gemma3_27b,
    gpt_oss_120b,
    llama_8b,
    model,
    n,
    plan,
    qwen3_next,
    refused,
    sliding,
)

from gpufit.model import Model


def gemma3_4b() -> Model:
    whole = [i for i in range(34) if i % 6 == 5]
    groups = [(full(8, 4, 256), whole), (sliding(8, 4, 256, 1024), [i for i in range(34) if i not in whole])]
    return model("gemma3", groups, heads=8, kv_heads=4, architecture="Gemma3ForConditionalGeneration")


def gemma4_26b() -> Model:
    whole = list(range(5, 30, 6))
    groups = [(full(16, 2, 512), whole), (sliding(16, 8, 256, 1024), [i for i in range(30) if i not in whole])]
    return model("gemma4", groups, heads=16, kv_heads=8, extras={"bidirectional_vision": n(1)})


@pytest.mark.parametrize(
    ("of", "gpu", "dtype", "backend", "block"),
    [
        (llama_8b, "h100-sxm", "auto", "FLASH_ATTN", 16),
        (llama_8b, "b200", "auto", "FLASHINFER", 16),
        (llama_8b, "a100-sxm4-80gb", "fp8", "FLASHINFER", 16),
        (llama_8b, "h100-sxm", "fp8_e5m2", "FLASHINFER", 16),
        (llama_8b, "h100-sxm", "int8_per_token_head", "TRITON_ATTN", 16),
        (gpt_oss_120b, "a100-sxm4-80gb", "auto", "TRITON_ATTN", 16),
        (gemma3_27b, "h100-sxm", "auto", "TRITON_ATTN", 16),
        (gemma3_4b, "h100-sxm", "auto", "TRITON_FLASH_ATTN", 16),
        (gemma3_4b, "b200", "auto", "TRITON_FLASHINFER", 64),
        (gemma4_26b, "h100-sxm", "auto", "TRITON_FLASH_ATTN", 16),
        (gemma4_26b, "h100-sxm", "fp8", "TRITON_FLASH_ATTN", 64),
        (gemma4_26b, "l40s", "fp8", "TRITON_ATTN", 16),
        (deepseek_v3, "h100-sxm", "auto", "FLASH_ATTN_MLA", 16),
        (deepseek_v3, "h100-sxm", "fp8", "FLASHMLA", 64),
        (deepseek_v3, "b200", "auto", "FLASHINFER_MLA", 32),
        (deepseek_v3, "a100-sxm4-80gb", "auto", "TRITON_MLA", 16),
        (deepseek_v32, "h100-sxm", "auto", "FLASH_ATTN_MLA_SPARSE", 64),
        (deepseek_v32, "h100-sxm", "fp8", "FLASHMLA_SPARSE", 64),
        (deepseek_v32, "b200", "fp8", "FLASHINFER_MLA_SPARSE", 64),
    ],
)
def test_backend_and_block_by_hardware(of: Callable[[], Model], gpu: str, dtype: str, backend: str, block: int) -> None:
    """The backend that 0.33.0 chose, and the block that follows from it."""
    options: dict[str, Any] = {} if dtype == "auto" else {"kv_cache_dtype": dtype}
    made = plan(of(), gpu=gpu, max_model_len=32768, **options)
    assert (made.backends, int(made.block_size)) == ((backend,), block)


def test_a_block_size_of_the_user_is_kept_where_a_backend_takes_it() -> None:
    """--block-size 64 is taken as it is, and rules out a backend that cannot cut it."""
    assert int(plan(llama_8b(), block_size=64).block_size) == 64
    assert plan(deepseek_v3(), tensor_parallel=8, kv_cache_dtype="fp8", block_size=32).backends == ("TRITON_MLA",)


def test_a_users_block_is_still_raised_for_states() -> None:
    """Beside recurrent states the block is raised from the user's size until a page of attention holds a state."""
    assert int(plan(qwen3_next(), tensor_parallel=4, block_size=32).block_size) == 320


@pytest.mark.parametrize(
    ("of", "options", "words"),
    [
        (deepseek_v32, {"gpu": "a100-sxm4-80gb"}, "no attention backend takes"),
        (deepseek_v32, {"block_size": 32}, "no attention backend takes"),
        (deepseek_v32, {"tensor_parallel": 8, "decode_context_parallel": 2}, "needs an fp8 cache"),
        (deepseek_v3, {"kv_cache_dtype": "int8_per_token_head"}, "no attention backend takes"),
        (gpt_oss_120b, {"gpu": "a100-sxm4-80gb", "kv_cache_dtype": "fp8"}, "compute capability 8.9"),
        (gpt_oss_120b, {"kv_cache_dtype": "nvfp4"}, "no attention backend takes"),
        (gemma3_27b, {"kv_cache_dtype": "turboquant_k8v4"}, "no attention backend takes"),
        (llama_8b, {"kv_cache_dtype": "nvfp4_4over6"}, "no attention backend takes"),
    ],
)
def test_layers_that_no_backend_takes_are_refused(of: Callable[[], Model], options: dict[str, Any], words: str) -> None:
    """What 0.33.0 refused for want of a backend is refused here, with the backends that came nearest."""
    assert words in refused(of(), **options)


def test_linear_biases_take_no_fp8_cache() -> None:
    """ALiBi falls back to FlashAttention 2, which has no fp8 cache."""
    bloom = model("bloom", [(full(32, 32, 128), range(4))], heads=32, kv_heads=32, context=2048)
    assert "ALiBi" in refused(bloom, kv_cache_dtype="fp8")
    assert int(plan(bloom).block_size) == 16


def test_a_part_whose_backends_are_not_known_is_assumed_in_words_or_refused() -> None:
    """Plain attention on another vendor's part is planned in blocks of 16 and says so; latent attention is refused."""
    made = plan(llama_8b(), gpu="mi300x")
    assert int(made.block_size) == 16
    assert any("assumed" in note for note in made.notes)
    assert "compute capability" in refused(deepseek_v3(), gpu="mi300x")
