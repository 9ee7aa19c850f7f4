"""The derivation of a traced number, as text: a flat list of steps drawn by walking the tree that computed it.

`explain`, `--json` and the documentation all read this list. Formulas and substitutions are printed with the brackets that
precedence asks for, so a line typed into a calculator gives the printed value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from gpufit.quantity import NUMBER, Number, Q

_PRECEDENCE = {"+": 1, "sum": 1, "-": 1, "*": 2, "/": 2}
_CALLS = {"floor": "floor", "ceil": "ceil", "min": "min", "max": "max"}
_ONES = frozenset(("one", "one_row", "each"))
_QUOTIENT = re.compile(r"^\((-?\d+ / \d+)\)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One line of a derivation: a fact with its origin, or a formula with its substitution and value.

    `substitution` uses plain digits; `formula` and `substitution` are empty for facts. `inputs` are the ids of the steps it reads.
    """

    id: str
    symbol: str
    name: str
    unit: str
    value: Number
    formula: str
    substitution: str
    inputs: tuple[str, ...]
    origin: str
    note: str

    @property
    def is_fact(self) -> bool:
        """Whether this is a value from outside, not the result of a formula."""
        return not self.formula


def number_text(value: Number, *, thousands: bool = False) -> str:
    """The exact decimal text of a value; a fraction that does not end is written as a quotient."""
    if isinstance(value, int):
        return f"{value:,}" if thousands else str(value)
    twos = fives = 0
    rest = value.denominator
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    if rest != 1:
        over, under = number_text(value.numerator, thousands=thousands), number_text(value.denominator, thousands=thousands)
        return f"({over} / {under})"
    places = max(twos, fives)
    scaled = abs(value.numerator) * 10**places // value.denominator
    whole, part = divmod(scaled, 10**places)
    sign = "-" if value < 0 else ""
    return f"{sign}{whole:,}.{part:0{places}d}" if thousands else f"{sign}{whole}.{part:0{places}d}"


def rounded_text(value: Number) -> str:
    """The same grouped by thousands, for the end of a line: of a fraction that does not end, six digits and dots."""
    text = number_text(value, thousands=True)
    if not text.startswith("("):
        return text
    whole, rest = divmod(abs(Fraction(value)), 1)
    # At least one decimal, and six digits from the first that is not zero; cut and not rounded, so that the digits shown are the value's.
    places = max(1, 6 - len(str(whole))) if whole else next(n for n in range(1, 400) if rest * 10**n >= 1) + 5
    return f"{'-' if value < 0 else ''}{whole:,}.{int(rest * 10**places):0{places}d}..."


def _is_one(node: Q) -> bool:
    """Whether a node is a bookkeeping 1 that only carries a unit, as in one table row for each position: no reader misses it."""
    return node.op == "fact" and node.symbol in _ONES and node.value == 1 and (node.unit is not NUMBER or node.name == "one")


def _operand(text: str, precedence: int, least_needed: int) -> str:
    return text if precedence >= least_needed else f"({text})"


class _Walk:
    """One pass over a tree: names every distinct node once and prints formulas in terms of those names."""

    def __init__(self) -> None:
        self.keys: dict[int, int] = {}
        self.by_key: dict[tuple[object, ...], int] = {}
        self.symbols: dict[int, str] = {}
        self.taken: dict[str, int] = {}
        self.steps: list[Step] = []
        self.done: set[int] = set()
        self.alive: list[Q] = []

    def key(self, node: Q) -> int:
        """A number that is equal for nodes built alike, so that a value computed twice is shown once."""
        known = self.keys.get(id(node))
        if known is not None:
            return known
        shape = (node.op, node.value, node.unit, node.symbol, node.name, node.origin, tuple(self.key(a) for a in node.args))
        number = self.by_key.setdefault(shape, len(self.by_key))
        self.keys[id(node)] = number
        self.alive.append(node)
        return number

    def symbol(self, node: Q) -> str:
        """The symbol of a named node, made unique within this derivation."""
        number = self.key(node)
        known = self.symbols.get(number)
        if known is not None:
            return known
        chosen, count = node.symbol, 1
        while chosen in self.taken:
            count += 1
            chosen = f"{node.symbol}_{count}"
        self.taken[chosen] = number
        self.symbols[number] = chosen
        return chosen

    def visit(self, node: Q) -> None:
        number = self.key(node)
        if number in self.done:
            return
        self.done.add(number)
        for arg in node.args:
            self.visit(arg)
        if not node.symbol or _is_one(node):
            return
        is_fact = node.op in ("fact", "const")
        inputs: list[str] = []
        self._named_inputs(node, inputs)
        self.steps.append(
            Step(
                id=self.symbol(node),
                symbol=self.symbol(node),
                name=node.name,
                unit=node.unit.text,
                value=node.value,
                formula="" if is_fact else self.text(node, values=False, top=True)[0],
                substitution="" if is_fact else self.text(node, values=True, top=True)[0],
                inputs=tuple(dict.fromkeys(inputs)),
                origin=node.origin,
                note=self._notes(node),
            )
        )

    def _named_inputs(self, node: Q, found: list[str]) -> None:
        for arg in node.args:
            if _is_one(arg):
                continue
            if arg.symbol:
                found.append(self.symbol(arg))
            else:
                self._named_inputs(arg, found)

    def _notes(self, node: Q) -> str:
        notes = [node.note] if node.note else []
        waiting = [a for a in node.args if not a.symbol]
        while waiting:
            inner = waiting.pop(0)
            if inner.note:
                notes.append(inner.note)
            waiting.extend(a for a in inner.args if not a.symbol)
        return "; ".join(dict.fromkeys(notes))

    def text(self, node: Q, *, values: bool, top: bool = False) -> tuple[str, int]:
        """The text of a node and its precedence (3: needs no brackets anywhere)."""
        if _is_one(node):
            return "1", 3
        if node.symbol and not top:
            return self._leaf(node, values), 3
        if node.op in ("const", "fact"):
            return number_text(node.value), 3
        if node.op == "same":
            return self.text(node.args[0], values=values)
        if node.op in ("//", "ceil_div"):
            left, right = (self.text(a, values=values) for a in node.args)
            call = "floor" if node.op == "//" else "ceil"
            return f"{call}({_operand(*left, 2)} / {_operand(*right, 3)})", 3
        if node.op in _CALLS:
            # A call's own brackets are enough around a quotient.
            inner = [self.text(a, values=values)[0] for a in node.args]
            inner = [_QUOTIENT.sub(r"\1", t) if a.symbol else t for a, t in zip(node.args, inner, strict=True)]
            return f"{_CALLS[node.op]}({', '.join(inner)})", 3
        mine = _PRECEDENCE[node.op]
        args = [a for a in node.args if not _is_one(a)] if node.op == "*" else node.args
        if len(args) == 1:
            return self.text(args[0], values=values)
        texts = [self.text(a, values=values) for a in args or node.args]
        sign = " + " if node.op == "sum" else f" {node.op} "
        first = _operand(*texts[0], mine)
        # Only - and / care which side a term of their own rank stands on.
        rest = [_operand(*t, mine + 1 if node.op in ("-", "/") else mine) for t in texts[1:]]
        return sign.join([first, *rest]), mine

    def _leaf(self, node: Q, values: bool) -> str:
        if not values:
            return self.symbol(node)
        text = number_text(node.value)
        return f"({text})" if text.startswith("-") else text


def steps(*results: Q | Iterable[Q]) -> tuple[Step, ...]:
    """The derivation of one or several results: facts and named steps in the order in which they depend on each other.

    Values built alike appear once; two different values with one symbol are told apart by a suffix.
    """
    walk = _Walk()
    for result in results:
        for q in (result,) if isinstance(result, Q) else tuple(result):
            walk.visit(q)
    return tuple(walk.steps)


def with_thousands(expression: str) -> str:
    """An expression with its whole numbers grouped by commas for reading; arguments stay apart by comma and space."""
    out: list[str] = []
    digits = ""
    for position, char in enumerate(expression + "\0"):
        if char.isdigit() and (digits or not (out and (out[-1].isalnum() or out[-1] in "._"))):
            digits += char
            continue
        if digits:
            out.append(f"{int(digits):,}" if len(digits) > 3 else digits)
            digits = ""
        if position < len(expression):
            out.append(char)
    return "".join(out)


def decimal(value: Fraction, places: int) -> str:
    """A value rounded to some decimals, for people."""
    return f"{float(value):.{places}f}"
