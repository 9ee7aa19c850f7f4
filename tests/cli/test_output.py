"""What the screens show at narrow and wide terminals, and what they leave out."""

from __future__ import annotations

import re

import pytest
from support import gpufit

LISTS = {
    "kv": (("kv",), "KV heads"),
    "models": (("catalogue", "models", "qwen3"), "Published"),
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
        if not line or re.match(r"Left out|note:|Placement:|\*", line):
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
    """With several --gpu a list names the GPU of each row, also where every row has the same, and counts where only they differ."""
    rows = _table(_lines("fit", "llama-3.1-8b", "gemma-2-2b", "--gpu", "h100-sxm:8", "--gpu", "l4", width=120), "GPU")
    assert ["h100-sxm" in row for row in rows] == [True, True]
    rows = _table(_lines("fit", "llama-3.1-8b", "gemma-2-2b", "--gpu", "l4:8", "--gpu", "l4", width=120), "GPU")
    assert ["8 x l4 " in row for row in rows] == [True, True]


def test_each_row_names_its_own_limit() -> None:
    """With --context max every row of a list says the context that its sequences have."""
    rows = _table(_lines("fit", "llama-3.1-8b", "qwen3-8b", "--gpu", "h100-sxm", "--context", "max", width=80), "Context")
    assert ["  131,072  " in row for row in rows if row.startswith("llama")] == [True]
    assert ["  40,960  " in row for row in rows if row.startswith("qwen")] == [True]
