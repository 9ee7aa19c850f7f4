"""The cache plan of published models, against what vLLM 0.33.0's planner gave for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from vllm_models import (
    deepseek_v3,
    deepseek_v4_flash,
    deepseek_v32,
    full,
    gemma3_27b,
    gpt_oss_120b,
    llama4_scout,
    llama_8b,
    model,
    plan,
    qwen3_next,
    sliding,
    state,
)

from gpufit.engines.vllm.plan import longest_context
from gpufit.model import Model

CASES = [
    # model, options, tokens in a block, bytes of a block, blocks of a request
    (llama_8b, {}, 16, 2_097_152, 8192),
    (gpt_oss_120b, {}, 16, 589_824, 9225),
    (gpt_oss_120b, {"max_num_batched_tokens": 1024}, 16, 589_824, 8329),
    (gemma3_27b, {"gpu": "a100-sxm4-80gb", "max_model_len": 32768}, 16, 1_310_720, 3974),
    (gemma3_27b, {"max_model_len": 32768}, 16, 1_310_720, 8582),
    (qwen3_next, {"tensor_parallel": 4}, 320, 3_932_160, 829),
    (qwen3_next, {"tensor_parallel": 4, "gpu": "a100-sxm4-80gb"}, 272, 3_342_336, 970),
    (qwen3_next, {"tensor_parallel": 4, "mamba_ssm_cache_dtype": "float32"}, 576, 7_077_888, 465),
    (deepseek_v3, {"tensor_parallel": 8}, 16, 1_124_352, 10_240),
    (deepseek_v3, {"tensor_parallel": 8, "kv_cache_dtype": "fp8"}, 64, 2_248_704, 2560),
    (deepseek_v3, {"tensor_parallel": 8, "decode_context_parallel": 8}, 16, 1_124_352, 1280),
    (deepseek_v32, {"tensor_parallel": 8}, 64, 64 * 61 * (1152 + 132), 2560),
    (deepseek_v32, {"tensor_parallel": 8, "kv_cache_dtype": "fp8"}, 64, 64 * 61 * (656 + 132), 2560),
    (deepseek_v32, {"tensor_parallel": 8, "kv_cache_dtype": "fp8", "gpu": "b200"}, 64, 64 * 61 * (576 + 132), 2560),
    (deepseek_v4_flash, {"tensor_parallel": 4, "max_model_len": 32768}, 256, 1_002_240, 6810),
    (llama4_scout, {"tensor_parallel": 8, "max_model_len": 131072}, 16, 98_304, 12_800),
    (llama4_scout, {"tensor_parallel": 8, "max_model_len": 131072, "hybrid_manager": False}, 16, 393_216, 8192),
    (llama4_scout, {"tensor_parallel": 8}, 16, 98_304, 70_144),
]


@pytest.mark.parametrize(("of", "options", "block", "width", "request_blocks"), CASES)
def test_blocks_are_those_of_the_planner(
    of: Callable[[], Model], options: dict[str, Any], block: int, width: int, request_blocks: int
) -> None:
    """Block size, bytes of a block and blocks of a request equal the planner's for every layer kind."""
    made = plan(of(), **options)
    assert (int(made.block_size), int(made.bytes_per_block), int(made.blocks_per_request)) == (block, width, request_blocks)


def test_the_printed_cache_size_is_concurrency_times_the_longest_length() -> None:
    """In 60 GiB gpt-oss-120b prints 11.84 requests of 131,072 tokens and 1,551,920 tokens."""
    made = plan(gpt_oss_120b())
    assert int(made.num_blocks) == 109_226
    assert float(made.max_concurrency) == 109_226 / 9225
    assert int(made.tokens) == 1_551_920


def test_a_whole_number_that_doubles_miss_is_printed_one_lower() -> None:
    """3 GiB hold exactly 50,736 tokens of a 50,720-token request, which the server's doubles make 50,735."""
    made = plan(
        model("minimax_m2", [(full(48, 8, 128), range(62))], heads=48, kv_heads=8), tensor_parallel=4, gib=3, max_model_len=50720
    )
    assert int(made.tokens) == 50_735


def test_a_sliding_window_costs_what_is_in_flight_not_its_width() -> None:
    """A window of 128 takes 1,033 blocks at two batches of 8,192 tokens, 521 at one, and 1,545 with a second pipeline stage."""
    cases: list[dict[str, Any]] = [{}, {"async_scheduling": False}, {"pipeline_parallel": 2}]
    assert [int(plan(gpt_oss_120b(), **options).blocks_per_request) - 8192 for options in cases] == [1033, 521, 1545]


def test_each_pipeline_stage_counts_its_own_layers_of_the_groups() -> None:
    """61 latent layers on two stages are 31 and 30, and the stage with more bytes a block has fewer blocks."""
    made = plan(deepseek_v3(), tensor_parallel=8, pipeline_parallel=2)
    assert [int(s.bytes_per_block) for s in made.stages] == [31 * 18_432, 30 * 18_432]
    assert int(made.num_blocks) == 60 * 2**30 // (31 * 18_432)


def test_a_draft_layer_widens_the_block_of_its_kind() -> None:
    """With one draft token Qwen3-Next has 13 full layers in a block in place of 12, and one state more for each group."""
    made = plan(qwen3_next(), tensor_parallel=4, speculative_method="mtp", speculative_tokens=1, max_model_len=32768)
    assert int(made.bytes_per_block) == 13 * 327_680
    assert int(made.blocks_per_request) == 103 + 3 * 4


def test_prefix_caching_decides_how_many_states_a_sequence_holds() -> None:
    """Mamba 2 holds three states with prefix caching (one exported by the prefill) and one without."""
    hybrid = model("bamba", [(state("mamba2"), range(12)), (full(32, 8, 128), range(12, 16))], heads=32, kv_heads=8)
    held = {
        caching: int(plan(hybrid, prefix_caching=caching, max_model_len=8192).groups[0].specs[0].state_blocks or 0)
        for caching in (True, False)
    }
    assert held == {True: 3, False: 1}


def test_the_checkpoint_decides_what_auto_means() -> None:
    """A checkpoint that asks for an fp8 cache halves the block; one whose declaration names no quantiser is not seen."""
    from gpufit.model import Published

    def made(published: Published) -> int:
        return int(plan(model("llama", [(full(32, 8, 128), range(32))], heads=32, kv_heads=8, published=published)).bytes_per_block)

    assert made(Published(format="fp8", kv_cache_dtype="fp8", method="modelopt")) == 1_048_576
    assert made(Published(format="fp8", kv_cache_dtype="fp8", method="modelopt", signed=False)) == 2_097_152


@pytest.mark.parametrize(
    ("dtype", "head_bytes"),
    [
        ("fp8", 256),
        ("fp8_e5m2", 256),
        ("int8_per_token_head", 264),
        ("fp8_per_token_head", 264),
        ("int4_per_token_head", 136),
        ("nvfp4", 144),
        ("bfloat16", 512),
    ],
)
def test_bytes_of_one_head_by_cache_dtype(dtype: str, head_bytes: int) -> None:
    """One token of one KV head of 128 takes the published bytes of each cache dtype, scales included."""
    assert int(plan(llama_8b(), kv_cache_dtype=dtype).bytes_per_block) == 32 * 16 * 8 * head_bytes


@pytest.mark.parametrize(("dtype", "packed"), [("turboquant_k8v4", 196), ("turboquant_4bit_nc", 134), ("turboquant_3bit_nc", 102)])
def test_packed_caches_leave_two_layers_at_either_end_at_16_bit(dtype: str, packed: int) -> None:
    """Packed pages stand in blocks of 32 beside the 16-bit pages of the first and last two layers, in one group."""
    made = plan(llama_8b(), kv_cache_dtype=dtype)
    assert int(made.block_size) == 32
    assert int(made.bytes_per_block) == 32 * 8 * (28 * packed + 4 * 512)


def test_longest_context_is_what_the_planner_would_fit() -> None:
    """3 GiB less the null block hold 1,535 blocks of Llama-3.1-8B: 24,560 tokens."""
    made = plan(llama_8b(), gib=3)
    assert not made.fits
    assert longest_context(made) == 1535 * 16


def test_layers_without_cache_leave_no_groups() -> None:
    """An encoder keeps nothing: one block, no groups, no tokens, and it fits."""
    made = plan(model("bert", [], heads=12, layers=12, architecture="BertModel"))
    assert (made.groups, int(made.num_blocks), int(made.tokens), made.fits) == ((), 1, 0, True)


def test_older_versions_count_one_batch_and_print_tokens_per_group() -> None:
    """0.20 counts one batch in flight, and its cache size is blocks over groups times the block."""
    made = plan(gpt_oss_120b(), version="0.20")
    assert int(made.blocks_per_request) == 8192 + 521
    assert int(made.tokens) == 109_226 // 2 * 16
    assert any("0.33" in note for note in made.notes)


def test_chunked_layers_had_no_groups_of_their_own_before_0_14() -> None:
    """Llama 4 costs full attention in every layer up to 0.13."""
    assert int(plan(llama4_scout(), tensor_parallel=8, max_model_len=131072, version="0.13").bytes_per_block) == 393_216


def test_default_batches_follow_device_usage_and_version() -> None:
    """2,048 tokens on an A100, 8,192 on an H100, 16,384 for the LLM class and from 160 GiB since 0.28."""
    tokens = {
        (gpu, usage, version): int(plan(llama_8b(), gpu=gpu, usage=usage, version=version).batch.tokens)
        for gpu, usage, version in (
            ("a100-sxm4-80gb", "server", "0.33"),
            ("h100-sxm", "server", "0.33"),
            ("h100-sxm", "llm", "0.33"),
            ("b200", "server", "0.33"),
            ("b200", "server", "0.27"),
            ("l40s", "llm", "0.33"),
        )
    }
    assert list(tokens.values()) == [2048, 8192, 16384, 16384, 8192, 8192]


def test_windows_of_one_width_alone_are_one_group() -> None:
    """A model of sliding layers only is one group, bounded by window and batches, not by the window."""
    made = plan(model("mistral", [(sliding(32, 8, 128, 4096), range(32))], heads=32, kv_heads=8), max_model_len=32768)
    assert len(made.groups) == 1
    assert int(made.blocks_per_request) == -(-(4095 + 16384) // 16) + 1
