"""Traced arithmetic keeps its record: units, exactness, and printed lines that give the printed value."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import calculate

from gpufit.derivation import number_text, steps, with_thousands
from gpufit.quantity import (
    BIT,
    BLOCK,
    BYTE,
    BYTE_PER_TOKEN,
    NUMBER,
    SEQUENCE,
    TOKEN,
    Q,
    UnitError,
    ceil,
    ceil_div,
    fact,
    floor,
    largest,
    least,
    round_up,
    total,
)

UNITS = (NUMBER, BYTE, BIT, TOKEN, SEQUENCE, BLOCK, BYTE_PER_TOKEN)


def a(value: int | str, symbol: str = "a") -> Q:
    return fact(value, NUMBER, symbol=symbol, name=symbol, origin="test")


WHOLE = st.integers(min_value=1, max_value=10**12)
LEAVES = st.one_of(
    WHOLE.map(lambda v: a(v, f"n{v % 7}")),
    st.decimals(min_value="0.001", max_value="1", places=3).map(lambda d: a(str(d), "u")),
    st.integers(min_value=2, max_value=9).map(lambda v: Q(v, NUMBER, "const")),
)


def grown(inner: st.SearchStrategy[Q]) -> st.SearchStrategy[Q]:
    pair = st.tuples(inner, inner)
    return st.one_of(
        pair.map(lambda p: p[0] + p[1]),
        pair.map(lambda p: p[0] - p[1]),
        pair.map(lambda p: p[0] * p[1]),
        pair.filter(lambda p: p[1].value != 0).map(lambda p: p[0] / p[1]),
        pair.filter(lambda p: p[1].value != 0).map(lambda p: p[0] // p[1]),
        pair.filter(lambda p: p[1].value != 0).map(lambda p: ceil_div(p[0], p[1])),
        pair.map(lambda p: least(*p)),
        pair.map(lambda p: largest(*p)),
        inner.map(floor),
        inner.map(ceil),
        st.lists(inner, min_size=1, max_size=4).map(total),
        inner.map(lambda q: q.as_step("s", "a step")),
        inner.map(lambda q: q.because("a reason")),
    )


TREES = st.recursive(LEAVES, grown, max_leaves=12)


@given(TREES)
def test_printed_is_computed(tree: Q) -> None:
    """Every printed line, given to an evaluator that shares no code with gpufit, returns the value printed beside it."""
    for step in steps(tree.as_step("result", "the result")):
        if not step.is_fact:
            assert calculate(step.substitution) == step.value
            assert calculate(with_thousands(step.substitution)) == step.value


@given(TREES)
def test_formula_with_its_inputs_gives_the_value(tree: Q) -> None:
    """The formula, with each symbol replaced by the value of the step of that name, gives the step's value."""
    found = steps(tree.as_step("result", "the result"))
    values = {s.symbol: s.value for s in found}
    for step in found:
        if not step.is_fact:
            words = [f"({number_text(values[w])})" if w in values else w for w in _words(step.formula)]
            assert calculate("".join(words)) == step.value


def _words(formula: str) -> list[str]:
    import re

    return re.findall(r"[A-Za-z_]\w*|[^A-Za-z_]+", formula)


@given(TREES)
def test_steps_are_in_order_and_unique(tree: Q) -> None:
    """The list is in dependency order, symbols are unique, every fact has an origin, every step a name and a unit."""
    seen: set[str] = set()
    for step in steps(tree.as_step("result", "the result")):
        assert step.symbol not in seen
        assert set(step.inputs) <= seen
        assert step.name
        assert step.unit
        assert step.origin or not step.is_fact
        seen.add(step.symbol)


@pytest.mark.parametrize(("left", "right"), [(x, y) for x in UNITS for y in UNITS if x is not y])
def test_unlike_units_do_not_add(left: object, right: object) -> None:
    """Adding, subtracting or comparing two quantities of different units raises, for every pair of units."""
    one = fact(1, left, symbol="x", name="x", origin="test")  # type: ignore[arg-type]
    two = fact(2, right, symbol="y", name="y", origin="test")  # type: ignore[arg-type]
    for operation in (lambda: one + two, lambda: one - two, lambda: one < two, lambda: least(one, two), lambda: total([one, two])):
        with pytest.raises(UnitError):
            operation()


def test_units_multiply_and_cancel() -> None:
    """B/token times tokens is B, and B divided by B/token is tokens."""
    per_token = fact(3, BYTE_PER_TOKEN, symbol="k", name="k", origin="test")
    tokens = fact(5, TOKEN, symbol="n", name="n", origin="test")
    assert (per_token * tokens).unit is BYTE
    assert (per_token * tokens / per_token).unit is TOKEN


def test_a_float_takes_no_part() -> None:
    """A float in a formula is refused: it has lost the exact value."""
    with pytest.raises(TypeError):
        a(1) + 0.5  # type: ignore[operator]


def test_a_fact_needs_an_origin() -> None:
    """A number from nowhere is refused."""
    with pytest.raises(ValueError, match="no origin"):
        fact(1, NUMBER, symbol="x", name="x", origin="")


@given(WHOLE, WHOLE)
def test_rounding_up_reaches_the_next_multiple(value: int, multiple: int) -> None:
    """round_up gives a multiple that is not below the value and less than one multiple above it."""
    up = int(round_up(a(value), a(multiple)))
    assert up % multiple == 0
    assert value <= up < value + multiple


@given(st.decimals(min_value="0.0001", max_value="1", places=4), WHOLE)
def test_a_share_is_exact(share: object, memory: int) -> None:
    """A decimal share is kept exactly: floor(memory * share) is the integer that whole-number arithmetic gives."""
    text = str(share)
    digits = Fraction(text)
    got = floor(a(memory, "M") * a(text, "u"))
    assert int(got) == memory * digits.numerator // digits.denominator


def test_a_value_computed_twice_is_shown_once() -> None:
    """Two trees built alike from the same facts share their lines."""
    one = (a(2, "x") * a(3, "y")).as_step("k", "product")
    two = (a(2, "x") * a(3, "y")).as_step("k", "product")
    assert [s.symbol for s in steps((one + two).as_step("t", "sum"))] == ["x", "y", "k", "t"]


def test_two_values_with_one_symbol_are_told_apart() -> None:
    """A symbol that two different values carry gets a suffix on the second."""
    one, two = a(2, "x") * 5, a(7, "x") * 5
    assert [s.symbol for s in steps((one + two).as_step("t", "sum"))] == ["x", "x_2", "t"]
