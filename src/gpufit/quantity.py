"""Traced arithmetic: numbers that know their unit, their name and where they came from.

A `Q` is either a fact (a value with an origin) or the result of an operation on other Qs. Formulas are written once, in ordinary
Python arithmetic; `steps` walks a finished value and draws the derivation from the very tree that computed it, so a printed formula
cannot drift from the printed number. Values are `int` where the thing can be counted, otherwise exact `Fraction`s: no floats.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

Number = int | Fraction


class UnitError(TypeError):
    """An operation on quantities whose units do not allow it, such as bytes plus tokens."""


class Unit:
    """A product of base units with whole exponents; equal units are the same object."""

    __slots__ = ("dims", "text")

    def __init__(self, dims: tuple[tuple[str, int], ...]) -> None:
        self.dims = dims
        over = [name if power == 1 else f"{name}^{power}" for name, power in dims if power > 0]
        under = [name if power == -1 else f"{name}^{-power}" for name, power in dims if power < 0]
        self.text = ("*".join(over) or "1") + "".join(f"/{name}" for name in under)

    def __repr__(self) -> str:
        return f"Unit({self.text})"


_units: dict[tuple[tuple[str, int], ...], Unit] = {}
_products: dict[tuple[Unit, Unit, int], Unit] = {}


def _interned(dims: tuple[tuple[str, int], ...]) -> Unit:
    found = _units.get(dims)
    if found is None:
        found = _units[dims] = Unit(dims)
    return found


def _combined(left: Unit, right: Unit, sign: int) -> Unit:
    """The unit of left * right (sign 1) or left / right (sign -1)."""
    if right is NUMBER:
        return left
    key = (left, right, sign)
    found = _products.get(key)
    if found is None:
        powers = dict(left.dims)
        for name, power in right.dims:
            powers[name] = powers.get(name, 0) + sign * power
        found = _products[key] = _interned(tuple(sorted((n, p) for n, p in powers.items() if p)))
    return found


def unit(**powers: int) -> Unit:
    """The unit with these base units and exponents, as in `unit(B=1, token=-1)`."""
    return _interned(tuple(sorted((n, p) for n, p in powers.items() if p)))


NUMBER = unit()
BYTE = unit(B=1)
BIT = unit(bit=1)
TOKEN = unit(token=1)
SEQUENCE = unit(sequence=1)
BLOCK = unit(block=1)
BYTE_PER_TOKEN = unit(B=1, token=-1)
BYTE_PER_SEQUENCE = unit(B=1, sequence=-1)
TOKEN_PER_SEQUENCE = unit(token=1, sequence=-1)
BIT_PER_BYTE = unit(bit=1, B=-1)


class Q:
    """One traced number.

    `op` is "fact" for a value from outside, "const" for a bare number that a formula itself contains, otherwise the operation whose
    `args` gave the value. `symbol` and `name` are set on facts and on the steps a reader wants to see. `note` says which branch of a
    rule was taken. Instances are never changed after they are made.
    """

    __slots__ = ("args", "name", "note", "op", "origin", "symbol", "unit", "value")

    def __init__(
        self,
        value: Number,
        unit: Unit,
        op: str,
        args: tuple[Q, ...] = (),
        symbol: str = "",
        name: str = "",
        origin: str = "",
        note: str = "",
    ) -> None:
        self.value = value
        self.unit = unit
        self.op = op
        self.args = args
        self.symbol = symbol
        self.name = name
        self.origin = origin
        self.note = note

    def __repr__(self) -> str:
        label = f"{self.symbol}=" if self.symbol else ""
        return f"Q({label}{self.value} {self.unit.text})"

    def __int__(self) -> int:
        """The value of a whole quantity; a fraction must be floored or ceiled by the formula first."""
        value = self.value
        if type(value) is int:
            return value
        raise ValueError(f"{self!r} is not whole: floor or ceil it where the rule says so")

    def __float__(self) -> float:
        return float(self.value)

    def as_step(self, symbol: str, name: str) -> Q:
        """The same value as a line of the derivation, under a symbol and a name."""
        if self.symbol or self.op == "const":
            return Q(self.value, self.unit, "same", (self,), symbol, name)
        return Q(self.value, self.unit, self.op, self.args, symbol, name, self.origin, self.note)

    def because(self, note: str) -> Q:
        """The same value carrying the reason for the branch that led to it."""
        if self.op in ("fact", "const"):
            return Q(self.value, self.unit, "same", (self,), note=note)
        return Q(self.value, self.unit, self.op, self.args, self.symbol, self.name, self.origin, note)

    def in_unit(self, to: Unit) -> Q:
        """The same count of another thing: allowed only from a plain number, as in "heads" read as elements."""
        if self.unit is to:
            return self
        if self.unit is not NUMBER:
            raise UnitError(f"{self!r} already has a unit and cannot be read as {to.text}")
        return Q(self.value, to, self.op, self.args, self.symbol, self.name, self.origin, self.note)

    def count(self) -> Q:
        """The same number without its unit, where unlike things are counted alike (rows of a buffer that holds tokens)."""
        return self if self.unit is NUMBER else Q(self.value, NUMBER, "same", (self,))

    def __add__(self, other: Q | int) -> Q:
        right = _wrapped(other)
        _same_unit("add", self, right)
        return Q(self.value + right.value, self.unit, "+", (self, right))

    def __radd__(self, other: int) -> Q:
        return _wrapped(other) + self

    def __sub__(self, other: Q | int) -> Q:
        right = _wrapped(other)
        _same_unit("subtract", self, right)
        return Q(_whole(self.value - right.value), self.unit, "-", (self, right))

    def __rsub__(self, other: int) -> Q:
        return _wrapped(other) - self

    def __mul__(self, other: Q | int) -> Q:
        right = _wrapped(other)
        return Q(_whole(self.value * right.value), _combined(self.unit, right.unit, 1), "*", (self, right))

    def __rmul__(self, other: int) -> Q:
        return _wrapped(other) * self

    def __truediv__(self, other: Q | int) -> Q:
        right = _wrapped(other)
        _not_zero(self, right)
        return Q(_whole(Fraction(self.value) / right.value), _combined(self.unit, right.unit, -1), "/", (self, right))

    def __rtruediv__(self, other: int) -> Q:
        return _wrapped(other) / self

    def __floordiv__(self, other: Q | int) -> Q:
        """The quotient rounded down: whole shares only."""
        right = _wrapped(other)
        _not_zero(self, right)
        return Q(self.value // right.value, _combined(self.unit, right.unit, -1), "//", (self, right))

    def __lt__(self, other: Q | int) -> bool:
        return self.value < _comparable(self, other)

    def __le__(self, other: Q | int) -> bool:
        return self.value <= _comparable(self, other)

    def __gt__(self, other: Q | int) -> bool:
        return self.value > _comparable(self, other)

    def __ge__(self, other: Q | int) -> bool:
        return self.value >= _comparable(self, other)


def _whole(value: Number) -> Number:
    """An int where the value is whole, so that counts stay ints through fractions."""
    # type() and not isinstance: Fraction's abstract base makes isinstance the slowest part of a multiplication.
    if type(value) is int or value.denominator != 1:
        return value
    return value.numerator


_consts: dict[int, Q] = {}


def _wrapped(value: Q | int) -> Q:
    if type(value) is Q:
        return value
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} in a formula: only Q and int take part (a float has lost its exact value)")
    found = _consts.get(value)
    if found is None:
        found = _consts[value] = Q(value, NUMBER, "const")
    return found


def _same_unit(verb: str, left: Q, right: Q) -> None:
    if left.unit is not right.unit:
        raise UnitError(f"cannot {verb} {left.unit.text} and {right.unit.text}: {left!r}, {right!r}")


def _not_zero(left: Q, right: Q) -> None:
    if right.value == 0:
        raise ZeroDivisionError(f"{left!r} divided by {right!r}")


def _comparable(left: Q, right: Q | int) -> Number:
    if isinstance(right, Q):
        _same_unit("compare", left, right)
        return right.value
    return right


def fact(value: int | Fraction | str, unit: Unit, *, symbol: str, name: str, origin: str) -> Q:
    """A value from outside the arithmetic, with its origin.

    `value` may be the decimal text of a fraction ("0.9"), which is kept exactly. An empty origin is refused: a number from nowhere
    cannot be checked.
    """
    if not origin:
        raise ValueError(f"fact {symbol} = {value} has no origin")
    exact = _whole(Fraction(value)) if isinstance(value, str) else _whole(value)
    return Q(exact, unit, "fact", (), symbol, name, origin)


def ceil_div(left: Q, right: Q | int) -> Q:
    """The quotient rounded up: enough whole shares to hold everything."""
    by = _wrapped(right)
    _not_zero(left, by)
    return Q(-(-left.value // by.value), _combined(left.unit, by.unit, -1), "ceil_div", (left, by))


def floor(value: Q) -> Q:
    """The largest whole number not above the value."""
    return Q(value.value // 1, value.unit, "floor", (value,))


def ceil(value: Q) -> Q:
    """The smallest whole number not below the value."""
    return Q(-(-value.value // 1), value.unit, "ceil", (value,))


def least(*values: Q | int) -> Q:
    """The smallest of several quantities of one unit."""
    return _extreme("min", values)


def largest(*values: Q | int) -> Q:
    """The largest of several quantities of one unit."""
    return _extreme("max", values)


def _extreme(op: str, values: tuple[Q | int, ...]) -> Q:
    wrapped = tuple(_wrapped(v) for v in values)
    for other in wrapped[1:]:
        _same_unit("compare", wrapped[0], other)
    numbers = [w.value for w in wrapped]
    return Q(min(numbers) if op == "min" else max(numbers), wrapped[0].unit, op, wrapped)


def total(values: Iterable[Q], *, unit: Unit = BYTE) -> Q:
    """The sum of any number of quantities of one unit; nothing at all sums to a zero of `unit`."""
    terms = tuple(values)
    if not terms:
        return Q(0, unit, "const")
    for other in terms[1:]:
        _same_unit("add", terms[0], other)
    if len(terms) == 1:
        return terms[0]
    return Q(_whole(sum(t.value for t in terms)), terms[0].unit, "sum", terms)


def round_up(value: Q, multiple: Q | int) -> Q:
    """The smallest multiple not below the value."""
    return ceil_div(value, multiple) * multiple
