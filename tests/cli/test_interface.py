"""The figures and exit codes that scripts and people rely on, run as a user runs them."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from support import gpufit, gpufit_json

GIB = 2**30

# The six rows of the interface page: 4 x H100 SXM, 8k, 16-bit weights and cache.
ROWS = {
    "llama-3.1-8b": (15.0, 1, 4, 56, 224),
    "llama-3.3-70b": (131.4, 4, 1, 62, 62),
    "mistral-7b-v0.3": (13.5, 1, 4, 58, 232),
    "qwen2.5-32b": (61.0, 2, 2, 41, 82),
    "qwen3-30b-a3b": (56.9, 1, 4, 19, 76),
    "gpt-oss-120b": (217.6, 4, 1, 241, 241),
}

# KiB per token at 16 bit, all layers at full attention: the twenty reference figures.
KIB = {
    "llama-3.1-8b": 128, "llama-3.2-3b": 112, "llama-3.3-70b": 320, "llama-3.1-405b": 504, "mistral-7b-v0.3": 128,
    "mistral-small-3.1-24b": 160, "mixtral-8x7b": 128, "qwen2.5-7b": 56, "qwen2.5-32b": 256, "qwen2.5-coder-32b": 256,
    "qwen2.5-72b": 320, "qwen3-32b": 256, "qwen3-30b-a3b": 96, "qwen3-235b-a22b": 188, "deepseek-r1-distill-qwen-32b": 256,
    "deepseek-v3": 68.625, "deepseek-r1": 68.625, "gpt-oss-20b": 48, "gpt-oss-120b": 72, "gemma-3-27b": 496, "phi-4": 200,
}  # fmt: skip


@pytest.fixture(scope="module")
def bf16_fit() -> dict[str, Any]:
    found = gpufit_json("fit", "--gpu", "h100-sxm:4", "--weights", "bf16", "--context", "8k")
    assert found["schema"] == "gpufit.fit/1"
    return {m["slug"]: m for m in found["models"]}


@pytest.mark.parametrize("slug", ROWS)
def test_reference_rows(slug: str, bf16_fit: dict[str, Any]) -> None:
    """The six reference rows on 4 x H100 come out to the digit."""
    gib, tp, replicas, each, total = ROWS[slug]
    row = bf16_fit[slug]
    assert round(row["weights"]["bytes"] / GIB, 1) == gib
    assert row["placement"] == {"gpu": "h100-sxm", "tensor_parallel": tp, "pipeline_parallel": 1, "replicas": replicas}
    assert row["concurrency"] == {"per_replica": each, "total": total}


def test_reference_figures_of_the_cache() -> None:
    """The twenty reference figures of KV bytes per token come out to the byte."""
    found = {m["slug"]: m["kv_cache"]["bytes_per_token"] for m in gpufit_json("kv", "--kv-cache-dtype", "bf16")["models"]}
    assert {slug: found[slug] for slug in KIB} == {slug: int(kib * 1024) for slug, kib in KIB.items()}


def test_hardware_is_echoed() -> None:
    """fit repeats what the hardware is, with memory in integer bytes."""
    found = gpufit_json("fit", "llama-3.1-8b", "--gpu", "h100-sxm:4")
    hardware = found["hardware"][0]
    assert hardware["memory_bytes"] == 81_559 * 2**20
    assert (hardware["gpu"], hardware["count"], hardware["architecture"], hardware["compute_capability"]) == (
        "h100-sxm",
        4,
        "Hopper",
        "9.0",
    )
    assert hardware["bandwidth_gb_s"] == 3350
    assert found["question"]["context"] == 8192
    assert found["question"]["gpu_memory_utilization"] == 0.9


def test_published_mxfp4() -> None:
    """gpt-oss-120b is sized as published by default: experts in MXFP4, the rest at 16 bit, 65,248,815,744 bytes."""
    row = gpufit_json("fit", "gpt-oss-120b", "--gpu", "h100-sxm:4")["models"][0]
    assert row["weights"]["format"] == "mxfp4"
    assert row["weights"]["bytes"] == 65_248_815_744


def per_gpu(slug: str, tp: int) -> int:
    found = gpufit_json("kv", slug, "--tp", str(tp), "--kv-cache-dtype", "bf16")["models"][0]["kv_cache"]["bytes_per_token_per_gpu"]
    assert isinstance(found, int)
    return found


def test_latent_caches_are_copied() -> None:
    """DeepSeek-V3 costs each of 8 GPUs as much as it costs one."""
    assert per_gpu("deepseek-v3", 8) == per_gpu("deepseek-v3", 1) == 61 * 576 * 2


def test_kv_heads_never_fall_below_one() -> None:
    """Qwen3-235B-A22B has 4 KV heads: 8 GPUs cost each as much as 4, a quarter of the whole."""
    assert per_gpu("qwen3-235b-a22b", 8) == per_gpu("qwen3-235b-a22b", 4) == 188 * 1024 // 4


def test_illegal_degree_is_refused_with_the_legal_ones() -> None:
    """28 attention heads do not divide by 8: the row says so and names 1, 2 and 4."""
    row = gpufit_json("fit", "qwen2.5-7b", "--gpu", "h100-sxm:8", "--tp", "8")["models"][0]
    assert row["fits"] is False
    assert "28 attention heads" in row["reason"]
    assert "1, 2, 4" in row["reason"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("fit", "--gpu", "h100-sxm:0"), 2, "1 to 100,000"),
        (("fit", "--gpu", "h100-sxm:-1"), 2, "1 to 100,000"),
        (("fit", "--gpu", "h100-sxm:100001"), 2, "100,000"),
        (("fit", "--gpu", "h100-sxm", "--context", "0"), 2, "from 1"),
        (("fit", "--gpu", "h100-sxm", "--context", "-5"), 2, "from 1"),
        (("fit", "--gpu", "h100-sxm", "--context", "8q"), 2, "8k"),
        (("fit", "--gpu", "h100-sxm", "--context", "1e99"), 2, "8k"),
        (("fit", "llama-3.1-8b", "--gpu", "h100-sxm", "--context", "200k"), 2, "131,072"),
        (("fit", "--gpu", "h100-sxm", "--gpu-memory-utilization", "0"), 2, "up to 1"),
        (("fit", "--gpu", "h100-sxm", "--gpu-memory-utilization", "1.1"), 2, "up to 1"),
        (("fit", "--gpu", "h100-sxm", "--gpu-memory-utilization", "ninety"), 2, "up to 1"),
        (("fit", "--gpu", "h100-sxm", "--weights", "int5"), 2, "int4"),
        (("fit", "--gpu", "h100-sxm", "--kv-cache-dtype", "int3"), 2, "fp8"),
        (("fit", "--gpu", "h100-sxm", "--tp", "0"), 2, "from 1"),
        (("fit", "--gpu", "h1000-sxm"), 3, "h100-sxm"),
        (("fit", "llama-3.1-8bb", "--gpu", "h100-sxm"), 3, "llama-3.1-8b"),
        (("kv", "qwen2.5-7b", "--tp", "8"), 2, "1, 2, 4"),
        (("explain", "llama-3.1-8b", "--step", "nonsense"), 2, "steps are"),
        (("nonsense",), 2, "--help"),
        (("fit", "--nonsense"), 2, "--help"),
    ],
)
def test_bad_input(words: tuple[str, ...], code: int, said: str) -> None:
    """Bad input ends with its exit code and says what would work, without a traceback; with --json as an object on stderr."""
    ended = gpufit(*words)
    assert ended.returncode == code, ended.stderr
    assert ended.stderr.startswith("error: ")
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
    as_json = gpufit(*words, "--json")
    assert as_json.returncode == code
    assert as_json.stdout == ""
    assert json.loads(as_json.stderr)["error"]["exit_code"] == code


def test_check_tells_scripts() -> None:
    """--check ends with 1 when a named model does not fit and with 0 when it does; without it both end with 0."""
    assert gpufit("fit", "llama-3.1-405b", "--gpu", "rtx-4090", "--check").returncode == 1
    assert gpufit("fit", "llama-3.1-405b", "--gpu", "rtx-4090").returncode == 0
    assert gpufit("fit", "llama-3.2-1b", "--gpu", "rtx-4090", "--check").returncode == 0


def test_no_local_gpu_is_a_usage_error() -> None:
    """Without --gpu on a machine whose GPUs cannot be listed, fit ends with 2 and names the option."""
    ended = gpufit("fit", env={"PATH": "/nonexistent"})
    assert ended.returncode == 2
    assert "--gpu" in ended.stderr


def loaded(*words: str) -> set[str]:
    """The modules that a command loads."""
    import subprocess

    script = "import sys; from gpufit.cli.app import run; code = run(sys.argv[1:]); print('LOADED', *sys.modules, file=sys.stderr)"
    ended = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)
    return set(ended.stderr.rsplit("LOADED", 1)[1].split())


def test_help_is_light() -> None:
    """--help loads none of pydantic, rich, huggingface_hub, nor the adapters."""
    for words in (("--help",), ("fit", "--help")):
        assert not loaded(*words) & {"pydantic", "rich", "huggingface_hub", "gpufit.sources.read", "gpufit.quantity"}


def test_json_fit_is_light() -> None:
    """fit --json of the catalogue loads neither huggingface_hub nor rich nor pydantic nor the Hub client."""
    assert not loaded("fit", "--gpu", "h100-sxm:4", "--json") & {"pydantic", "rich", "huggingface_hub", "gpufit.sources.hub"}


def test_csv_and_markdown_have_one_row_a_model() -> None:
    """CSV has a header and a row for every model asked; Markdown two more lines."""
    named = ("llama-3.1-8b", "deepseek-v3")
    csv = gpufit("fit", *named, "--gpu", "h100-sxm:8", "--format", "csv").stdout.splitlines()
    assert len(csv) == 3
    assert csv[0].startswith("model,fits,weights,weights_bytes,")
    markdown = gpufit("fit", *named, "--gpu", "h100-sxm:8", "--format", "markdown").stdout.splitlines()
    assert len(markdown) == 4
    assert all(line.startswith("| ") for line in markdown)


@pytest.mark.parametrize("words", [("fit",), ("kv",), ("explain",), ("catalogue",)])
def test_help_ends_with_examples(words: tuple[str, ...]) -> None:
    """The help of every command has two examples, plain text."""
    out = gpufit(*words, "--help").stdout
    assert out.count(f"  gpufit {words[0]}") >= 2


def test_no_speed_is_ever_printed() -> None:
    """No output has a figure of tokens per second."""
    for words in (("fit", "--gpu", "h100-sxm:4"), ("kv",), ("explain",), ("fit", "llama-3.1-8b", "--gpu", "h100-sxm")):
        out = gpufit(*words).stdout.lower()
        assert "tok/s" not in out
        assert not any(c.isdigit() for c in out.split("tokens per second")[0][-12:]) or "tokens per second" not in out


@pytest.mark.parametrize("words", [("fit", "--gpu", "h100-sxm:4"), ("kv",), ("fit", "--gpu", "h100-sxm:4", "--json"), ("explain",)])
def test_a_closed_pipe_is_no_failure(words: tuple[str, ...]) -> None:
    """A reader that stops early (gpufit ... | head) ends the command quietly with 0, not with the code for "does not fit"."""
    import subprocess

    begun = subprocess.Popen([sys.executable, "-m", "gpufit", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert begun.stdout is not None
    assert begun.stderr is not None
    begun.stdout.close()
    said = begun.stderr.read()
    begun.stderr.close()
    assert begun.wait() == 0
    assert said == ""


def test_a_default_context_gives_way_to_a_shorter_limit() -> None:
    """Without --context a model with a limit of 4,096 tokens is sized at that, and the answer says so."""
    row = gpufit_json("fit", "phi-3-mini-4k", "--gpu", "rtx-4090")["models"][0]
    assert row["fits"] is True
    assert row["kv_cache"]["context"] == 4096
    assert "its own limit of 4,096 tokens" in " ".join(row["warnings"])


def test_stages_inside_a_node_where_they_hold_more() -> None:
    """Three GPUs: tensor parallel 2 would hold one sequence of Qwen2.5 72B, three stages hold ten, and ten is more."""
    row = gpufit_json("fit", "qwen2.5-72b", "--gpu", "rtx-4090:3")["models"][0]
    assert (row["placement"]["tensor_parallel"], row["placement"]["pipeline_parallel"]) == (1, 3)
    assert row["concurrency"]["total"] == 10


def test_more_hardware_never_lowers_the_format() -> None:
    """With a second kind of GPU the format is that of the kind that needs the least lowered one."""
    both = gpufit_json("fit", "mixtral-8x22b", "--gpu", "h100-sxm:2", "--gpu", "rtx-4090:4")["models"][0]
    assert both["weights"]["format"] == "fp8"
    assert both["placement"]["gpu"] == "h100-sxm"


def test_slices_hold_replicas_only() -> None:
    """MIG slices do not join: a model too large for one slice does not fit on four."""
    row = gpufit_json("fit", "qwen3-32b", "--gpu", "h100-80-mig-3g.40gb:4", "--weights", "bf16")["models"][0]
    assert row["fits"] is False
    assert row["placement"]["pipeline_parallel"] == 1


def test_a_cast_needs_no_other_checkpoint() -> None:
    """fp16 of a bf16 checkpoint is a cast while loading: no answer says that another checkpoint is needed."""
    out = gpufit("fit", "llama-3.1-8b", "--gpu", "h100-sxm", "--weights", "fp16").stdout
    assert "needs a checkpoint" not in out
    assert "as asked" not in out
