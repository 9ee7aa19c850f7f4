"""The screens as people see them, at 80 and 120 columns, held to stored copies.

A wanted change is taken over with `GPUFIT_GOLDEN=write pytest tests/golden` and read in the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support import gpufit

HERE = Path(__file__).parent / "screens"

SCREENS = {
    "fit-one": ("fit", "llama-3.3-70b", "--gpu", "h100-sxm:4"),
    "fit-few": ("fit", "llama-3.1-8b", "gpt-oss-120b", "deepseek-v3", "phi-3-mini-4k", "--gpu", "h100-sxm:4"),
    "fit-short": ("fit", "llama-3.3-70b", "--gpu", "rtx-4090", "--weights", "fp8"),
    "kv-full": ("kv", "llama-3.1-8b"),
    "kv-windowed": ("kv", "gpt-oss-120b", "--kv-cache-dtype", "fp8"),
    "kv-latent": ("kv", "deepseek-v3", "--tp", "8"),
    "explain": ("explain", "llama-3.1-8b", "--gpu", "h100-sxm", "--context", "8k"),
    "explain-step": ("explain", "llama-3.1-8b", "--gpu", "h100-sxm", "--step", "P"),
    "explain-method": ("explain",),
    "plan": ("plan", "llama-3.3-70b", "--context", "32k", "--concurrency", "64"),
    "catalogue-gpus": ("catalogue", "gpus", "h100"),
    "catalogue-formats": ("catalogue", "formats"),
    "help": ("--help",),
    "help-fit": ("fit", "--help"),
}


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", SCREENS)
def test_screen(name: str, width: int) -> None:
    """The screen equals its stored copy, ends without an error, and no line is wider than the terminal or ends in a blank."""
    ended = gpufit(*SCREENS[name], width=width)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    stored = HERE / f"{name}-{width}.txt"
    if os.environ.get("GPUFIT_GOLDEN") == "write":
        stored.parent.mkdir(exist_ok=True)
        stored.write_text(ended.stdout, encoding="utf-8")
    assert ended.stdout == stored.read_text(encoding="utf-8")
    assert max(len(line) for line in ended.stdout.splitlines()) <= width
    assert [line for line in ended.stdout.splitlines() if line.endswith(" ")] == []


def test_piped_output_has_no_escapes() -> None:
    """What goes into a pipe has no escape sequence, whatever the terminal could do."""
    ended = gpufit("fit", "llama-3.1-8b", "--gpu", "h100-sxm", env={"TERM": "xterm-256color"})
    assert "\x1b" not in ended.stdout


def test_colour_changes_no_word() -> None:
    """With colour forced, the text less its escapes is the text without colour."""
    import re

    plain = gpufit("fit", "llama-3.1-8b", "--gpu", "h100-sxm").stdout
    coloured = gpufit(
        "fit", "llama-3.1-8b", "--gpu", "h100-sxm", env={"FORCE_COLOR": "1", "NO_COLOR": "", "TERM": "xterm-256color"}
    ).stdout
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
