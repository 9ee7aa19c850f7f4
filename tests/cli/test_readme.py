"""The README's sessions and snippets are what the commands print today.

A wanted change is taken over with `GPUFIT_GOLDEN=write pytest tests/cli/test_readme.py` and read in the diff.
"""

from __future__ import annotations

import os
import re
import shlex

import pytest
from support import ROOT, gpufit

README = ROOT / "README.md"
BLOCK = re.compile(r"```console\n\$ gpufit ([^\n]*)\n((?:(?!```).)+)```", re.DOTALL)
SESSIONS = BLOCK.findall(README.read_text(encoding="utf-8"))


def test_there_are_sessions() -> None:
    """The README shows at least three commands with their output."""
    assert len(SESSIONS) >= 3


@pytest.mark.parametrize("command", [command for command, _ in SESSIONS])
def test_session(command: str) -> None:
    """A console block with output equals what the command prints at 80 columns."""
    ended = gpufit(*shlex.split(command))
    assert ended.returncode == 0
    text = README.read_text(encoding="utf-8")
    if os.environ.get("GPUFIT_GOLDEN") == "write":
        pattern = re.compile(r"(```console\n\$ gpufit " + re.escape(command) + r"\n)((?:(?!```).)+)(```)", re.DOTALL)
        README.write_text(pattern.sub(lambda m: m[1] + ended.stdout + m[3], text, count=1), encoding="utf-8")
        text = README.read_text(encoding="utf-8")
    shown = dict(BLOCK.findall(text))[command]
    assert shown == ended.stdout


def test_python_snippet_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The Python snippet runs as it stands and prints the reference row's 62 sequences."""
    snippet = re.search(r"```python\n(.+?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert snippet
    exec(snippet[1], {})
    assert capsys.readouterr().out.startswith("62 ")


def test_every_command_is_in_the_readme() -> None:
    """Every command that --help lists is named in the README."""
    listed = re.findall(r"^  ([a-z]+)  ", gpufit("--help").stdout.split("Commands:")[1], re.MULTILINE)
    assert listed
    text = README.read_text(encoding="utf-8")
    assert [name for name in listed if f"gpufit {name}" not in text] == []
