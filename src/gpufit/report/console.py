"""The terminal as every table uses it: one console, plain enough to read without colour."""

from __future__ import annotations

import re
import sys
from typing import IO, cast

from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDEST = 120


class _Trimmed:
    """stdout without the blanks that tables put at the end of lines: they break pasted text and show up in diffs."""

    def write(self, text: str) -> int:
        return sys.stdout.write(re.sub(r" +(?=(?:\x1b\[[0-9;]*m)*\n)", "", text))

    def __getattr__(self, name: str) -> object:
        return getattr(sys.stdout, name)


class _Pipe(Console):
    """A console that leaves a closed pipe to the caller: rich would end the process with 1, which means "does not fit" here."""

    def on_broken_pipe(self) -> None:
        """Passes the failure on."""
        raise BrokenPipeError


def console() -> Console:
    """A console on stdout, at most 120 columns wide; no guesses at what a number or a path is."""
    made = _Pipe(file=cast("IO[str]", _Trimmed()), highlight=False, emoji=False, markup=False)
    if made.width > WIDEST:
        made.width = WIDEST
    return made


def table(*columns: str | tuple[str, str]) -> Table:
    """A table without lines; a column is its heading, or heading and `right`."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    for column in columns:
        name, justify = (column, "left") if isinstance(column, str) else column
        made.add_column(
            name, justify="right" if justify == "right" else "left", no_wrap=justify in ("right", "fixed"), overflow="fold"
        )
    return made


def heading(text: str) -> Text:
    """A heading line."""
    return Text(text, style="bold")
