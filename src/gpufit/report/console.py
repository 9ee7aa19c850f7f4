"""The terminal as every table uses it: one console, plain enough to read without colour."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, cast

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from gpufit.model import Model

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
            name, justify="right" if justify.startswith("right") else "left", no_wrap=justify in ("right", "fixed"), overflow="fold"
        )
    return made


def width_of(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]) -> int:
    """Cells that a table of these columns takes when nothing in it is broken or cut."""
    return sum(max(cell_len(text) for text in texts) + 2 for texts in zip(*([[n for n, _ in columns], *rows]), strict=True)) - 2


def print_rows(
    out: Console, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], *, drop: Sequence[str] = ()
) -> tuple[str, ...]:
    """Prints rows of one line each, no value or heading cut, and returns the headings left out.

    A column is its heading and `left` or `right`. Where the terminal is too narrow, columns leave in the order of `drop`, no more of
    them than needed; a line says which.
    """
    names = [name for name, _ in columns]

    def chosen(without: Sequence[str]) -> tuple[list[tuple[str, str]], list[list[str]]]:
        kept = [i for i, name in enumerate(names) if name not in without]
        return [columns[i] for i in kept], [[row[i] for i in kept] for row in rows]

    def fits(without: Sequence[str]) -> bool:
        return width_of(*chosen(without)) <= out.width

    left_out: list[str] = []
    for name in drop:
        if fits(left_out):
            break
        if name in names:
            left_out.append(name)
    for name in tuple(left_out):
        # One that left early may have room again after a wide one left.
        fewer = [n for n in left_out if n != name]
        if fits(fewer):
            left_out = fewer
    shown, cells = chosen(left_out)
    made = table(*((name, justify if fits(left_out) else f"{justify} folded") for name, justify in shown))
    for row in cells:
        made.add_row(*row)
    out.print(made)
    if left_out:
        out.print(f"Left out at this width: {', '.join(left_out)} (--json has all).", style="dim")
    return tuple(left_out)


def model_heading(model: Model) -> Text:
    """A model's name with its id, once where both are one word (a folder, stdin)."""
    return heading(model.name if model.name == model.id else f"{model.name} ({model.id})")


def heading(text: str) -> Text:
    """A heading line."""
    return Text(text, style="bold")
