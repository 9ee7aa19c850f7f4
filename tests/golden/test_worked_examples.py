"""Ten worked examples of vLLM 0.33's accounting: weights as created, block bytes, blocks a request, and what a given cache holds.

The figures are facts read off vLLM's own planner. Each example gives the memory left for the cache in GiB, cut to two decimals, as
`--kv-cache-memory-bytes`, so that nothing modelled takes part.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from support import gpufit, gpufit_json


@dataclass(frozen=True, kw_only=True)
class Example:
    """One row: the question and the figures."""

    model: str
    gpu: str
    context: int
    cache_gib: str
    block_bytes: int
    per_request: int
    blocks: int
    concurrency: float
    tokens: int
    created: int | None = None
    more: tuple[str, ...] = ()


EXAMPLES = {
    "llama 8B": Example(
        model="llama-3.1-8b", gpu="h100-sxm", context=131072, cache_gib="55.84", block_bytes=2_097_152, per_request=8_192,
        blocks=28_590, concurrency=3.49, tokens=457_440, created=16_060_522_496,
    ),
    "70B fp8 tp 2": Example(
        model="llama-3.1-70b-fp8", gpu="h100-sxm:2", context=131072, cache_gib="36.61", block_bytes=2_621_440, per_request=8_192,
        blocks=14_995, concurrency=1.83, tokens=239_920, created=36_329_509_888, more=("--tp", "2", "--kv-cache-dtype", "bfloat16"),
    ),
    "70B fp8 tp 4": Example(
        model="llama-3.1-70b-fp8", gpu="h100-sxm:4", context=131072, cache_gib="53.53", block_bytes=1_310_720, per_request=8_192,
        blocks=43_851, concurrency=5.35, tokens=701_616, created=18_166_076_416, more=("--tp", "4", "--kv-cache-dtype", "bfloat16"),
    ),
    "70B fp8 tp 8": Example(
        model="llama-3.1-70b-fp8", gpu="h100-sxm:8", context=131072, cache_gib="61.98", block_bytes=655_360, per_request=8_192,
        blocks=101_548, concurrency=12.40, tokens=1_624_768, created=9_084_359_680, more=("--tp", "8", "--kv-cache-dtype", "bfloat16"),
    ),
    "70B fp8 tp 16, KV heads copied": Example(
        model="llama-3.1-70b-fp8", gpu="h100-sxm:16", context=131072, cache_gib="66.23", block_bytes=655_360, per_request=8_192,
        blocks=108_511, concurrency=13.25, tokens=1_736_176, created=4_627_387_392, more=("--tp", "16", "--kv-cache-dtype", "bfloat16"),
    ),
    "70B fp8 tp 16, dcp 2": Example(
        model="llama-3.1-70b-fp8", gpu="h100-sxm:16", context=131072, cache_gib="66.23", block_bytes=655_360, per_request=4_096,
        blocks=108_511, concurrency=26.49, tokens=3_472_352,
        more=("--tp", "16", "--dcp", "2", "--kv-cache-dtype", "bfloat16"),
    ),
    "70B fp8 tp 8, the cache it declares": Example(
        model="llama-3.1-70b-fp8", gpu="h100-sxm:8", context=131072, cache_gib="61.98", block_bytes=327_680, per_request=8_192,
        blocks=203_096, concurrency=24.79, tokens=3_249_536, more=("--tp", "8"),
    ),
    "DeepSeek-V3 tp 8": Example(
        model="deepseek-v3", gpu="h200-sxm:8", context=163840, cache_gib="44.99", block_bytes=1_124_352, per_request=10_240,
        blocks=42_964, concurrency=4.20, tokens=687_424, created=85_140_130_848, more=("--tp", "8"),
    ),
    "DeepSeek-V3 tp 8, fp8 cache": Example(
        model="deepseek-v3", gpu="h200-sxm:8", context=163840, cache_gib="44.99", block_bytes=2_248_704, per_request=2_560,
        blocks=21_482, concurrency=8.39, tokens=1_374_848, more=("--tp", "8", "--kv-cache-dtype", "fp8"),
    ),
    "DeepSeek-V3 tp 8, dcp 8": Example(
        model="deepseek-v3", gpu="h200-sxm:8", context=163840, cache_gib="44.99", block_bytes=1_124_352, per_request=1_280,
        blocks=42_964, concurrency=33.57, tokens=5_499_392, more=("--tp", "8", "--dcp", "8"),
    ),
    "gpt-oss-120b": Example(
        model="gpt-oss-120b", gpu="h100-sxm", context=131072, cache_gib="5.27", block_bytes=589_824, per_request=9_225,
        blocks=9_593, concurrency=1.04, tokens=136_300, created=65_248_815_744,
    ),
    "gpt-oss-120b, small batches": Example(
        model="gpt-oss-120b", gpu="h100-sxm", context=131072, cache_gib="7.16", block_bytes=589_824, per_request=8_329,
        blocks=13_034, concurrency=1.56, tokens=205_113, more=("--max-num-batched-tokens", "1024", "--max-num-seqs", "256"),
    ),
    "gemma 3 27B": Example(
        model="gemma-3-27b", gpu="a100-sxm4-80gb", context=32768, cache_gib="19.46", block_bytes=1_310_720, per_request=3_974,
        blocks=15_941, concurrency=4.01, tokens=131_443, created=54_864_813_280,
    ),
    "Qwen3-Next tp 4": Example(
        model="qwen3-next-80b-a3b", gpu="h100-sxm:4", context=262144, cache_gib="33.04", block_bytes=3_932_160, per_request=829,
        blocks=9_022, concurrency=10.88, tokens=2_852_910, created=39_925_738_176, more=("--tp", "4"),
    ),
    "Qwen3-235B fp8 tp 4": Example(
        model="qwen3-235b-a22b-fp8", gpu="h100-sxm:4", context=40960, cache_gib="14.70", block_bytes=770_048, per_request=2_560,
        blocks=20_497, concurrency=8.01, tokens=327_952, created=59_186_486_512, more=("--tp", "4"),
    ),
    "Qwen3-235B fp8 tp 8": Example(
        model="qwen3-235b-a22b-fp8", gpu="h100-sxm:8", context=40960, cache_gib="42.15", block_bytes=770_048, per_request=2_560,
        blocks=58_773, concurrency=22.96, tokens=940_368, created=29_713_411_312, more=("--tp", "8"),
    ),
    "Qwen3-235B fp8 tp 8, whole experts": Example(
        model="qwen3-235b-a22b-fp8", gpu="h100-sxm:8", context=40960, cache_gib="42.15", block_bytes=770_048, per_request=2_560,
        blocks=58_773, concurrency=22.96, tokens=940_368, created=29_692_620_016, more=("--tp", "8", "--enable-expert-parallel"),
    ),
    "Llama 4 Scout tp 8": Example(
        model="llama-4-scout", gpu="h100-sxm:8", context=131072, cache_gib="43.70", block_bytes=98_304, per_request=12_800,
        blocks=477_320, concurrency=37.29, tokens=4_887_756, created=27_170_135_488, more=("--tp", "8"),
    ),
    "Llama 4 Scout tp 8, a million tokens": Example(
        model="llama-4-scout", gpu="h100-sxm:8", context=1_048_576, cache_gib="41.95", block_bytes=98_304, per_request=70_144,
        blocks=458_205, concurrency=6.53, tokens=6_849_663, more=("--tp", "8"),
    ),
    "Llama 4 Scout tp 8, before 0.14": Example(
        model="llama-4-scout", gpu="h100-sxm:8", context=131072, cache_gib="43.88", block_bytes=393_216, per_request=8_192,
        blocks=119_821, concurrency=14.63, tokens=1_917_136, more=("--tp", "8", "--engine", "vllm@0.13"),
    ),
}  # fmt: skip


MIXTRAL_AWQ = {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "torch_dtype": "float16", "vocab_size": 32000, "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 8,
    "num_experts_per_tok": 2, "max_position_embeddings": 32768, "sliding_window": None, "tie_word_embeddings": False,
    "quantization_config": {
        "bits": 4, "group_size": 128, "modules_to_not_convert": ["gate"], "quant_method": "awq", "version": "gemm", "zero_point": True,
    },
}  # fmt: skip


def test_mixtral_awq() -> None:
    """Mixtral 8x7B in AWQ on an RTX A6000: 24,653,602,816 bytes created, 10,137 blocks in 19.80 GiB, 162,192 tokens."""
    ended = gpufit(
        "fit", "-", "--gpu", "rtx-a6000", "--engine", "vllm", "--context", "32768", "--overhead-gib", "0",
        "--kv-cache-memory-bytes", str(1980 * 2**30 // 100), "--json", stdin=json.dumps(MIXTRAL_AWQ),
    )  # fmt: skip
    engine = json.loads(ended.stdout)["models"][0]["engine"]
    assert engine["weights_created_bytes"] == 24_653_602_816
    assert (engine["block_bytes"], engine["blocks_per_request"], engine["blocks"]) == (2_097_152, 2_048, 10_137)
    assert engine["kv_cache_tokens"] == 162_192


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str) -> None:
    """The example's exact parts come out to the byte."""
    e = EXAMPLES[name]
    from fractions import Fraction

    cache = int(Fraction(e.cache_gib) * 2**30)
    words = ["fit", e.model, "--gpu", e.gpu, "--context", str(e.context), "--kv-cache-memory-bytes", str(cache), "--overhead-gib", "0"]
    row = gpufit_json(*words, *(() if "--engine" in e.more else ("--engine", "vllm")), *e.more)["models"][0]
    assert row["placement"] is not None, row["reason"]
    engine = row["engine"]
    assert engine["block_bytes"] == e.block_bytes
    assert engine["blocks_per_request"] == e.per_request
    assert engine["blocks"] == e.blocks
    assert engine["max_concurrency"] == pytest.approx(e.concurrency, abs=0.011)
    assert engine["kv_cache_tokens"] == e.tokens
    if e.created is not None:
        assert engine["weights_created_bytes"] == e.created
