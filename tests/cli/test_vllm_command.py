"""`--engine vllm` on the command line: its figures, its flags, pasted serve lines, derivations."""

from __future__ import annotations

from typing import Any

import pytest
from support import calculate, gpufit, gpufit_json

VLLM = ("--engine", "vllm")


def one(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = gpufit_json("fit", *words)["models"][0]
    return found


def test_llama_on_an_h100() -> None:
    """Llama 3.1 8B at 131,072 tokens: blocks of 2,097,152 bytes, 8,192 a request, created weights plus the 32 MiB rotary table."""
    row = one("llama-3.1-8b", "--gpu", "h100-sxm", "--context", "131072", "--overhead-gib", "2", *VLLM)
    engine = row["engine"]
    assert (engine["name"], engine["version"]) == ("vllm", "0.33")
    assert row["weights"]["bytes_per_gpu"] == 16_060_522_496 + 131_072 * 128 * 2
    assert (engine["block_bytes"], engine["blocks_per_request"]) == (2_097_152, 8_192)
    # 79.18 GiB as CUDA reports it, 81,081 MiB, at the default share of 0.92.
    assert engine["requested_bytes"] == -(-81_081 * 2**20 * 92 // 100)
    left = engine["requested_bytes"] - row["weights"]["bytes_per_gpu"] - 2 * 2**30
    assert engine["blocks"] == left // 2_097_152
    assert engine["kv_cache_tokens"] == engine["blocks"] * 131_072 // 8_192


def test_windows_count_tokens_in_flight() -> None:
    """gpt-oss-120b at 131,072: 9,225 blocks of 589,824 bytes a request by default, 8,329 with 1,024 tokens in a batch."""
    words = ("gpt-oss-120b", "--gpu", "h100-sxm", "--context", "131072", *VLLM)
    engine = one(*words)["engine"]
    assert (engine["block_bytes"], engine["blocks_per_request"]) == (589_824, 9_225)
    assert engine["reserved_bytes_per_sequence_per_gpu"] > engine["needed_bytes_per_sequence_per_gpu"]
    assert one(*words, "--max-num-batched-tokens", "1024")["engine"]["blocks_per_request"] == 8_329


def test_latents_split_only_over_context_parallel() -> None:
    """DeepSeek-V3 at tp 8: 10,240 blocks a request, an eighth of them with decode context parallel 8."""
    words = ("deepseek-v3", "--gpu", "h200-sxm:8", "--context", "163840", "--tp", "8", *VLLM)
    assert one(*words)["engine"]["blocks_per_request"] == 10_240
    assert one(*words, "--decode-context-parallel-size", "8")["engine"]["blocks_per_request"] == 1_280


def test_version_changes_the_rules() -> None:
    """0.19 takes 0.9 of the memory, 0.33 takes 0.92; a version that is not known is a usage error with the range."""
    words = ("fit", "llama-3.1-8b", "--gpu", "h100-sxm", "--engine")
    old, new = (one(*words[1:], f"vllm@{v}")["engine"]["requested_bytes"] for v in ("0.19", "0.33"))
    assert (old, new) == (-(-81_081 * 2**20 * 9 // 10), -(-81_081 * 2**20 * 92 // 100))
    ended = gpufit(*words, "vllm@0.99")
    assert ended.returncode == 2
    assert "0.11" in ended.stderr


PASTED = (
    "vllm", "serve", "openai/gpt-oss-120b", "--tensor-parallel-size", "2", "--max-model-len", "32768", "--gpu-memory-utilization", "0.95",
    "--max-num-batched-tokens", "4096", "--max-num-seqs=256", "--kv-cache-dtype", "fp8", "--no-enable-prefix-caching", "--enforce-eager",
    "--block-size", "32", "--enable-expert-parallel", "--pipeline-parallel-size", "1", "--language-model-only",
)  # fmt: skip
TYPED = (
    "openai/gpt-oss-120b", "--engine", "vllm", "--tensor-parallel-size", "2", "--context", "32768", "--gpu-memory-utilization", "0.95",
    "--max-num-batched-tokens", "4096", "--max-num-seqs", "256", "--kv-cache-dtype", "fp8", "--no-enable-prefix-caching", "--enforce-eager",
    "--block-size", "32", "--enable-expert-parallel", "--pipeline-parallel-size", "1", "--language-model-only",
)  # fmt: skip


def test_a_pasted_line_is_the_typed_options() -> None:
    """A pasted serve line with 12 flags gives the same answer as the same options typed."""
    pasted = gpufit_json_after("fit", "--gpu", "h100-sxm:2", after=PASTED)
    typed = gpufit_json("fit", "--gpu", "h100-sxm:2", *TYPED)
    assert pasted["models"] == typed["models"]
    assert pasted["models"][0]["fits"] is True


def gpufit_json_after(*words: str, after: tuple[str, ...]) -> Any:
    import json

    ended = gpufit(*words, "--json", "--", *after)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_unknown_flags_are_named() -> None:
    """A flag that gpufit does not know is named in the answer as ignored; one that has no part in memory too; none is dropped."""
    found = gpufit_json_after(
        "fit",
        "--gpu",
        "h100-sxm",
        after=("vllm", "serve", "llama-3.1-8b", "--frobnicate", "7", "--port", "8000", "--enable-auto-tool-choice"),
    )
    said = " ".join(found["question"]["notes"])
    for flag in ("--frobnicate 7", "--port", "--enable-auto-tool-choice"):
        assert flag in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("fit", "llama-3.1-8b", "--gpu", "h100-sxm", "--block-size", "32"), "--engine vllm"),
        (("fit", "llama-3.1-8b", "--gpu", "h100-sxm", "--engine", "tgi"), "arithmetic"),
        (("fit", "llama-3.1-8b", "--gpu", "h100-sxm", "--engine", "vllm", "--overhead-gib", "much"), "2.5"),
        (("fit", "llama-3.1-8b", "--gpu", "h100-sxm", "--engine", "vllm", "--speculative-config", "{"), "JSON"),
        (("fit", "llama-3.1-8b", "--gpu", "h100-sxm", "--engine", "vllm", "--speculative-config", '{"model": "x/y"}'), "mtp"),
        (("fit", "llama-3.1-8b", "--gpu", "h100-sxm", "--engine", "vllm", "--kv-cache-dtype", "fp7"), "fp8"),
        (("fit", "--gpu", "h100-sxm", "--", "vllm", "serve", "--port", "8000"), "ORG/NAME"),
        (("fit", "--gpu", "h100-sxm", "--", "vllm", "serve", "llama-3.1-8b", "--quantization", "awq"), "--weights"),
        (("fit", "--gpu", "h100-sxm", "--", "vllm", "bench", "llama-3.1-8b"), "vllm serve"),
        (("fit", "--gpu", "h100-sxm", "--", "vllm", "serve", "llama-3.1-8b", "--max-num-seqs", "many"), "whole number"),
    ],
)
def test_bad_engine_options(words: tuple[str, ...], said: str) -> None:
    """An engine option without meaning, or one of another engine, ends with 2 and says what would work."""
    ended = gpufit(*words)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_what_vllm_refuses_is_an_answer() -> None:
    """gpt-oss has 8 KV heads and its class does not copy them: tensor parallel 16 is refused with the reason."""
    row = one("gpt-oss-120b", "--gpu", "gb200:16", "--tp", "4", "--pp", "4", *VLLM)
    assert row["fits"] is True
    refused = one("qwen2.5-7b", "--gpu", "h100-sxm:8", "--tp", "8", *VLLM)
    assert refused["fits"] is False
    assert "28 attention heads" in refused["reason"]


def test_the_arithmetic_is_unchanged_by_the_engine() -> None:
    """Without --engine the reference arithmetic has no engine block and no overhead."""
    row = one("llama-3.3-70b", "--gpu", "h100-sxm:4", "--weights", "bf16")
    assert "engine" not in row
    assert row["concurrency"]["total"] == 62


EXPLAINED = [
    ("gpt-oss-120b", "h100-sxm", ()),
    ("gemma-3-27b", "a100-sxm4-80gb", ()),
    ("qwen3-next-80b-a3b", "h100-sxm:4", ("--tp", "4")),
    ("deepseek-v3", "h200-sxm:8", ("--tp", "8")),
    ("deepseek-v3", "h200-sxm:8", ("--tp", "8", "--dcp", "8")),
    ("llama-4-scout", "h100-sxm:8", ("--tp", "8")),
    ("deepseek-v4-flash", "h200-sxm:4", ("--tp", "4")),
    ("deepseek-v3", "h200-sxm:16", ("--tp", "8", "--pp", "2")),
]


@pytest.mark.parametrize(("slug", "gpu", "more"), EXPLAINED)
def test_every_line_re_evaluates(slug: str, gpu: str, more: tuple[str, ...]) -> None:
    """explain --engine vllm shows the whole derivation, and every line gives its own result."""
    steps = gpufit_json("explain", slug, "--gpu", gpu, "--context", "32k", *VLLM, *more)["steps"]
    formulas = [s for s in steps if s["formula"]]
    assert len(formulas) > 20
    for step in formulas:
        assert float(calculate(step["substitution"])) == pytest.approx(step["value"], rel=1e-12)
    names = " ".join(s["name"] for s in formulas)
    for word in ("requests", "blocks", "weights", "overhead"):
        assert word in names


def test_the_printed_serve_line_gives_the_same_answer() -> None:
    """The serve line that fit prints, pasted back, gives the very answer it came with, flags included."""
    import shlex

    words = (
        "fit",
        "deepseek-v3",
        "--gpu",
        "h200-sxm:8",
        "--context",
        "32k",
        "--tp",
        "8",
        "--dcp",
        "8",
        "--enforce-eager",
        "--block-size",
        "32",
    )
    more = ("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 2}', *VLLM)
    first = gpufit_json(*words, *more)["models"]
    screen = gpufit(*words, *more).stdout
    line = screen[screen.index("vllm serve ") :].split("\n\n")[0].replace("\\\n", " ")
    again = gpufit_json_after("fit", "--gpu", "h200-sxm:8", after=tuple(shlex.split(line)))["models"]
    assert again == first
