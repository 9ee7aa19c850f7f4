"""A derivation for people: facts with their origins, then one equation a step, wrapped where the terminal ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.text import Text

from gpufit.derivation import Step, rounded_text, with_thousands
from gpufit.quantity import Number
from gpufit.report.console import console, heading, model_heading
from gpufit.report.fit_table import hardware_line
from gpufit.report.units import plural
from gpufit.sizing.trail import Trail

_UNITS = {
    "1": "",
    "token/sequence": "tokens",
    "sequence": "sequences",
    "token": "tokens",
    "block": "blocks",
    "token/block": "tokens/block",
    "block/sequence": "blocks/sequence",
    "1/sequence": "",
    "sequence/token": "sequences/token",
}


def unit_text(unit: str, value: Number) -> str:
    """The unit as printed behind a value; plain counts have none, and one of a thing is singular."""
    text = _UNITS.get(unit, unit)
    first, slash, rest = text.partition("/")
    return first.removesuffix("s") + slash + rest if value == 1 else text


def value_text(step: Step) -> str:
    """A value with its unit. The bytes of one element are bytes: that each token or sequence has its own is said by their name."""
    element = step.is_fact and step.unit.startswith("B/") and step.name.startswith("bytes of")
    return f"{rounded_text(step.value)} {unit_text('B' if element else step.unit, step.value)}".rstrip()


def print_steps(trail: Trail, steps: Iterable[Step]) -> None:
    """The derivation of a trail, or the steps of it that were asked for."""
    out = console()
    model = trail.question.model
    out.print(model_heading(model).append(f" at {plural(int(trail.context), 'token')}"))
    if trail.answer is not None:
        out.print(hardware_line(trail.answer.hardware))
        for warning in trail.answer.warnings:
            out.print(f"note: {warning}")
    shown = tuple(steps)
    facts, formulas = [s for s in shown if s.is_fact], [s for s in shown if not s.is_fact]
    if facts:
        out.print()
        out.print(heading("Facts, and where they come from"))
        for fact in facts:
            _fact(out, fact)
    if formulas:
        out.print()
        out.print(heading("Arithmetic"))
        for step in formulas:
            _formula(out, step)


def _plain(out: Console, line: str) -> None:
    out.print(Text(line), soft_wrap=True)


def _words(out: Console, text: str, indent: int) -> None:
    """Words behind an indent, broken where the terminal ends."""
    for line in _wrapped(text, " " * indent, " " * (indent + 2), out.width):
        _plain(out, line)


def _fact(out: Console, step: Step) -> None:
    left = f"  {step.symbol} = {value_text(step)}"
    gap = max(2, 34 - len(left))
    line = f"{left}{' ' * gap}{step.name}"
    origin = f"[{step.origin}]"
    if len(line) + 2 + len(origin) <= out.width:
        _plain(out, f"{line}  {origin}")
        return
    if len(line) <= out.width:
        _plain(out, line)
    else:
        _plain(out, left)
        _words(out, step.name, 6)
    _words(out, origin, 6)


def _formula(out: Console, step: Step) -> None:
    _words(out, step.name + (f" ({step.note})" if step.note else ""), 2)
    for line in equation(step, out.width):
        _plain(out, line)


def equation(step: Step, width: int) -> Iterator[str]:
    """`symbol = formula = substitution = result` on one line where it fits, else broken before each `=` and after `+`."""
    sides = [step.formula, with_thousands(step.substitution), value_text(step)]
    if sides[0] == step.substitution or step.formula == step.substitution:
        del sides[0]
    start = f"    {step.symbol} = "
    one = start + " = ".join(sides)
    if len(one) <= width:
        yield one
        return
    indent = " " * (len(start) - 2) + "= "
    for position, side in enumerate(sides):
        lead = start if position == 0 else indent
        yield from _wrapped(side, lead, " " * len(lead), width)


def _wrapped(text: str, lead: str, indent: str, width: int) -> Iterator[str]:
    """A long side broken at its spaces, never inside a number."""
    line = lead
    empty = True
    for word in text.split(" "):
        if not empty and len(line) + 1 + len(word) > width:
            yield line
            line, empty = indent, True
        line = f"{line}{word}" if empty else f"{line} {word}"
        empty = False
    yield line


def print_page(text: str) -> None:
    """A page of text, wrapped by paragraphs; indented lines are kept as they are."""
    out = console()
    for position, block in enumerate(text.strip().split("\n\n")):
        if position:
            out.print()
        lines = block.split("\n")
        if any(line.startswith(" ") for line in lines):
            for line in lines:
                _plain(out, line)
        elif lines[0].startswith("# "):
            out.print(heading(lines[0].removeprefix("# ")))
        else:
            out.print(" ".join(lines))
