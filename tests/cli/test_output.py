"""What the screens show at narrow and wide terminals, and what they leave out."""

from __future__ import annotations

import csv
import os
import pty
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support import calculate, gpufit

import gpufit as library
from gpufit.quantity import BYTE, fact
from gpufit.report.fit_table import published_text
from gpufit.report.units import memory

LISTS = {
    "kv": (("kv",), "KV heads"),
    "models": (("catalogue", "models", "qwen3"), "Published"),
    "gpus": (("catalogue", "gpus", "mi3"), "GiB"),
    "instances": (("catalogue", "instances", "p5"), "GPU"),
    "plan": (("plan", "llama-3.3-70b", "--context", "32k", "--concurrency", "64"), "Placement"),
    "fit several": (("fit", "--gpu", "h100-sxm:2", "--gpu", "rtx-4090:4"), "GPU"),
    "fit own limits": (("fit", "--gpu", "h100-sxm:4", "--context", "max"), "Context"),
}


def _lines(*words: str, width: int) -> list[str]:
    ended = gpufit(*words, width=width)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def _table(lines: list[str], heading: str) -> list[str]:
    """The rows of a list, up to the blank line or the first remark below it."""
    start = next(i for i, line in enumerate(lines) if re.search(rf"(^|  ){heading}(  |$)", line))
    rows = []
    for line in lines[start + 1 :]:
        if not line or re.match(r"Left out|note:|Placement:|GiB:|\d+ more GPUs|Cloud instances|\*", line):
            break
        rows.append(line)
    return rows


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("which", LISTS)
def test_lists_have_one_line_for_each_row(which: str, width: int) -> None:
    """Every row of a list is one line with a value under each heading, and no heading is cut or broken."""
    words, heading = LISTS[which]
    lines = _lines(*words, width=width)
    head = next(line for line in lines if re.search(rf"(^|  ){heading}(  |$)", line))
    columns = len(re.split(r"  +", head.strip()))
    for row in _table(lines, heading):
        assert len(re.split(r"  +", row.strip())) == columns, row
    assert max(map(len, lines)) <= width


def test_columns_left_out_are_named() -> None:
    """A narrow terminal leaves whole columns out and says which; a wide one shows them."""
    narrow, wide = (_lines("kv", width=w) for w in (80, 120))
    assert "Kinds" not in narrow[1]
    assert "Left out at this width: Kinds (--json has all)." in narrow
    assert wide[1].split()[-1] == "Kinds"
    assert "Left out" not in "".join(wide)


def test_gpus_are_told_apart_though_one_wins_everywhere() -> None:
    """With several --gpu a list names the GPU of each row, also where every row has the same."""
    rows = _table(_lines("fit", "llama-3.1-8b", "gemma-2-2b", "--gpu", "h100-sxm:8", "--gpu", "l4", width=120), "GPU")
    assert ["h100-sxm" in row for row in rows] == [True, True]


def test_each_row_names_its_own_limit() -> None:
    """With --context max every row of a list says the context that its sequences have."""
    rows = _table(_lines("fit", "llama-3.1-8b", "qwen3-8b", "--gpu", "h100-sxm", "--context", "max", width=80), "Context")
    assert ["  131,072  " in row for row in rows if row.startswith("llama")] == [True]
    assert ["  40,960  " in row for row in rows if row.startswith("qwen")] == [True]


def _legend(*words: str) -> dict[str, str]:
    """The signs of a screen's bar, by the first word of what they stand for."""
    lines = _lines(*words, width=80)
    bar = next(i for i, line in enumerate(lines) if line.startswith("["))
    signs = {}
    for line in lines[bar + 1 :]:
        if not line:
            break
        signs[line[3:].split()[0]] = line[0]
    assert set(lines[bar].strip("[]")) <= set(signs.values())
    return signs


def test_one_sign_has_one_meaning() -> None:
    """A bar's signs mean the same under every engine, and each differs from the others."""
    plain = _legend("fit", "qwen3-8b", "--gpu", "h100-sxm")
    engine = _legend("fit", "qwen3-8b", "--gpu", "h100-sxm", "--engine", "vllm")
    assert plain == {"weights": "#", "KV": "=", "left": ".", "outside": " "}
    assert engine == plain | {"overhead": "o"}


@pytest.mark.parametrize("engine", ["arithmetic", "vllm"])
def test_what_does_not_fit_has_no_bar(engine: str) -> None:
    """A model that does not fit is told what it needs of how much, in sizes that are never negative, without a bar of them."""
    screen = gpufit("fit", "llama-3.3-70b", "--gpu", "rtx-4090", "--weights", "bf16", "--engine", engine, width=120).stdout
    assert not re.search(r"^\[", screen, re.MULTILINE)
    assert not re.search(r"-\d[\d.]* GiB", screen)
    flat = " ".join(screen.split())
    assert re.search(r" memory weights 131\.\d GiB, .*, of the 21\.6 GiB that may be used: short by \d+\.\d GiB", flat)


def test_the_footer_speaks_of_what_is_shown() -> None:
    """The line on what the counts are names the columns of the view, and is left out where nothing is counted."""
    model = ("fit", "llama-3.1-8b", "--gpu", "h100-sxm")
    assert "Counted are sequences whose" in gpufit(*model).stdout
    assert "Each and Total count sequences" in gpufit("fit", "llama-3.1-8b", "qwen3-8b", "--gpu", "h100-sxm").stdout
    for words in (("llama-3.3-70b", "--gpu", "rtx-4090"), ("qwen2.5-7b", "--gpu", "h100-sxm:8", "--tp", "8")):
        assert "floor for real traffic" not in gpufit("fit", *words).stdout
    assert "Exact:" not in gpufit("fit", "qwen2.5-7b", "--gpu", "h100-sxm:8", "--tp", "8").stdout


def test_caches_of_entries_are_told_apart() -> None:
    """Layers that keep one entry for several tokens say for how many."""
    kept = [line for line in _lines("kv", "deepseek-v4-flash", width=80) if line.startswith("compressed")]
    assert [line.split("  ")[-1] for line in kept] == ["one entry per 4 tokens", "one entry per 128 tokens"]


CONFIG = """{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16,
"num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 32000, "hidden_act": "silu",
"max_position_embeddings": 8192, "torch_dtype": "bfloat16", "tie_word_embeddings": false}"""


def test_wording(tmp_path: Path) -> None:
    """One of a thing is singular, counts are grouped by thousands, and a model whose name is its id is named once."""
    one = gpufit("fit", "llama-3.1-8b", "--gpu", "l4:100000", "--context", "1", width=120).stdout
    assert "100,000 x NVIDIA L4" in one
    assert "one sequence of 1 token\n" in one
    assert "1 tokens" not in one
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(CONFIG, encoding="utf-8")
    assert gpufit("kv", str(tmp_path / "mine")).stdout.startswith("mine\n")
    assert gpufit("kv", "-", stdin=CONFIG).stdout.startswith("stdin\n")


def test_a_cache_that_does_not_grow() -> None:
    """A model of recurrent states alone is not given a cost of one more token."""
    config = """{"architectures": ["MambaForCausalLM"], "model_type": "mamba", "hidden_size": 768, "intermediate_size": 1536,
    "num_hidden_layers": 24, "state_size": 16, "conv_kernel": 4, "time_step_rank": 48, "vocab_size": 50280, "use_conv_bias": true,
    "tie_word_embeddings": true, "torch_dtype": "float32"}"""
    shown = gpufit("kv", "-", stdin=config).stdout
    assert "a longer sequence costs no more" in shown
    assert "one more token" not in shown


@pytest.mark.parametrize(
    ("size", "text"),
    [(2**30 - 1, "1.00 GiB"), (1023 * 2**20, "1023 MiB"), (2**20 - 1, "1.00 MiB"), (1023, "1023 B"), (-(2**30) + 1, "-1.00 GiB")],
)
def test_no_unit_counts_to_its_next(size: int, text: str) -> None:
    """A size that would round to 1,024 of a unit is 1 of the next."""
    assert memory(size).replace(",", "") == text


def test_the_download_is_named_where_it_is_known() -> None:
    """A model whose files' size is known says it in the decimal unit that downloads are told in."""
    model = library.answer("llama-3.1-8b", gpu="h100-sxm").question.model
    size = fact(16_060_522_496, BYTE, symbol="F", name="files", origin="their index")
    known = replace(model, published=replace(model.published, bytes=size))
    assert published_text(known) == f"{published_text(model)}, files 16.1 GB"


@pytest.mark.parametrize("engine", ["arithmetic", "vllm"])
def test_derivations_as_rows(engine: str) -> None:
    """explain --format csv and markdown write one row a step, whose substitution gives the value beside it."""
    words = ("explain", "qwen3-8b", "--gpu", "h100-sxm", "--context", "5000", "--engine", engine)
    rows = list(csv.DictReader(gpufit(*words, "--format", "csv").stdout.splitlines()))
    assert {"symbol", "name", "value", "unit", "formula", "substitution", "origin"} <= set(rows[0])
    assert len({r["symbol"] for r in rows}) == len(rows) > 10
    for row in rows:
        assert bool(row["formula"]) != bool(row["origin"])
        if row["formula"]:
            assert calculate(row["substitution"]) == calculate(row["value"]), row["symbol"]
    table = gpufit(*words, "--format", "markdown").stdout.splitlines()
    assert len(table) == len(rows) + 2
    assert all(line.startswith("| ") for line in table)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gpu", "h100", "--context", "4k"), "error: --gpu, --context need a model"),
        (("--weights", "int4"), "error: --weights needs a model"),
        (("--format", "csv"), "error: the method in general is a text without rows"),
        (("gemma-3-27b", "--step", "C"), "error: C needs --gpu"),
        (("gemma-3-27b", "--engine", "vllm", "--step", "N_b"), "error: N_b needs --gpu"),
    ],
)
def test_explain_drops_nothing(words: tuple[str, ...], said: str) -> None:
    """What explain cannot use is a usage error that names it, never dropped."""
    ended = gpufit("explain", *words)
    assert ended.returncode == 2
    assert ended.stderr.startswith(said)


def test_unknown_steps_list_steps_and_facts() -> None:
    """A step that no derivation has is answered with all that there are, facts among them."""
    hint = gpufit("explain", "gemma-3-27b", "--step", "XQZ").stderr.splitlines()[1]
    steps, facts = hint.split("; the facts ")
    assert "k_full" in steps
    assert "n_kv" in facts.split(", ")


def test_debug_is_in_the_help() -> None:
    """--debug, which a fault's hint names, is listed."""
    assert re.search(r"^  --debug  ", gpufit("--help").stdout, re.MULTILINE)


def test_errors_wrap_on_a_terminal_only() -> None:
    """An error is one line for a pipe, so that scripts can read it, and broken at words for a terminal."""
    words = ("explain", "gemma-3-27b", "--step", "XQZ")
    piped = gpufit(*words).stderr.splitlines()
    assert len(piped) == 2
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "gpufit", *words]
    subprocess.run(command, stderr=slave, check=False, env=os.environ | {"COLUMNS": "60", "NO_COLOR": "1"})
    os.close(slave)
    shown = os.read(master, 10_000).decode().splitlines()
    os.close(master)
    assert max(map(len, shown)) <= 60
    assert " ".join(shown) == " ".join(piped)
