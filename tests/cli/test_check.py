"""`gpufit check`: a start-up log against the prediction for the same server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import gpufit

# Figures of a public engine log: Llama 3.1 8B on a 40 GB A100-class card, vLLM 0.10.1.
LOG = """\
INFO Initializing a V1 LLM engine (v0.10.1) with config: model='meta-llama/Llama-3.1-8B-Instruct', speculative_config=None, \
dtype=torch.bfloat16, max_seq_len=131072, tensor_parallel_size=1, pipeline_parallel_size=1, quantization=None, kv_cache_dtype=auto
INFO Model loading took 14.9889 GiB and 3.1 seconds
INFO Available KV cache memory: 19.25 GiB
INFO GPU KV cache size: 157,648 tokens
INFO Maximum concurrency for 131,072 tokens per request: 1.20x
"""


def checked(tmp_path: Path, text: str, *words: str) -> dict[str, dict[str, float]]:
    log = tmp_path / "server.log"
    log.write_text(text, encoding="utf-8")
    ended = gpufit("check", str(log), "--gpu", "a100-sxm4-40gb", "--json", *words)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["schema"] == "gpufit.check/1"
    return {line["quantity"]: line for line in found["lines"]}


def test_exact_parts_agree_with_the_log(tmp_path: Path) -> None:
    """Loaded weights, and tokens and concurrency of the logged cache memory, agree as far as the log prints."""
    lines = checked(tmp_path, LOG)
    assert lines["model loading"]["agrees_as_printed"] or abs(lines["model loading"]["relative"]) < 1e-4
    assert lines["GPU KV cache size, tokens, from the logged memory"]["agrees_as_printed"]
    assert lines["maximum concurrency, from the logged memory"]["agrees_as_printed"]
    assert lines["available KV cache memory"]["logged"] == 19.25 * 2**30


def test_what_is_typed_wins_over_the_log(tmp_path: Path) -> None:
    """An option on the command line replaces what the log says: half the share leaves less cache."""
    less = checked(tmp_path, LOG, "--gpu-memory-utilization", "0.5")
    assert less["available KV cache memory"]["predicted"] < checked(tmp_path, LOG)["available KV cache memory"]["predicted"] / 2


def test_arguments_in_a_log_are_read(tmp_path: Path) -> None:
    """The dict of non-default arguments sets the server: a shorter limit and a share of memory."""
    text = (
        "INFO vLLM API server version 0.19.0\n"
        "INFO non-default args: {'model': 'llama-3.1-8b', 'max_model_len': 8192, 'gpu_memory_utilization': 0.8}\n"
        "INFO Available KV cache memory: 15.00 GiB\n"
    )
    log = tmp_path / "server.log"
    log.write_text(text, encoding="utf-8")
    found = json.loads(gpufit("check", str(log), "--gpu", "a100-sxm4-40gb", "--json").stdout)
    assert found["run"]["vllm_version"] == "0.19.0"
    assert found["run"]["rules_of"] == "0.19"
    assert found["run"]["max_model_len"] == 8192


def test_the_logged_memory_goes_through_the_engine_of_its_version(tmp_path: Path) -> None:
    """Up to 0.20 a server printed blocks // groups * block: 9,593 blocks of 5.27 GiB in two groups of gpt-oss are 76,736 tokens."""
    text = (
        "INFO vLLM API server version 0.19.0\n"
        "INFO non-default args: {'model': 'gpt-oss-120b', 'max_model_len': 32768}\n"
        "INFO Available KV cache memory: 5.27 GiB\n"
        "INFO GPU KV cache size: 76,736 tokens\n"
    )
    log = tmp_path / "server.log"
    log.write_text(text, encoding="utf-8")
    lines = json.loads(gpufit("check", str(log), "--gpu", "h100-sxm", "--json").stdout)["lines"]
    [line] = [found for found in lines if found["quantity"] == "GPU KV cache size, tokens, from the logged memory"]
    assert line["predicted"] == 76_736


def test_standard_input() -> None:
    """- reads the log from standard input."""
    ended = gpufit("check", "-", "--gpu", "a100-sxm4-40gb", stdin=LOG)
    assert ended.returncode == 0
    assert "157,648" in ended.stdout


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("nothing here\n", ("--gpu", "h100-sxm"), "GPU KV cache size"),
        (LOG, (), "--gpu"),
        ("INFO Available KV cache memory: 15.00 GiB\n", ("--gpu", "h100-sxm"), "--model"),
    ],
)
def test_a_log_that_does_not_tell(text: str, words: tuple[str, ...], said: str) -> None:
    """A log without memory lines, without its model, or without a GPU given is a usage error that says what is missing."""
    ended = gpufit("check", "-", *words, stdin=text)
    assert ended.returncode == 2
    assert said in ended.stderr


def test_a_missing_file_is_named() -> None:
    """A file that is not there is a usage error naming it."""
    ended = gpufit("check", "no-such.log", "--gpu", "h100-sxm")
    assert ended.returncode == 2
    assert "no-such.log" in ended.stderr
