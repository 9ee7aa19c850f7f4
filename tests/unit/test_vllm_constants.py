"""Constants by version: one value holds at a time, and each has its origin."""

from __future__ import annotations

import pytest
from vllm_models import constants

from gpufit.engines.vllm.constants import NEWEST, OLDEST, UNITS, Constants
from gpufit.errors import DataError, UsageError
from gpufit.sources.engine_constants import engine_rows

VERSIONS = [f"0.{minor}" for minor in range(11, 34)]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_has_one_value_of_every_constant(version: str) -> None:
    """No version lacks a number or a list that another one has, and none has two."""
    newest, here = constants(NEWEST), constants(version)
    assert set(here.numbers) == set(newest.numbers)
    names = [r["name"] for r in engine_rows("vllm")["words"]]
    assert all(here.words(name) is not None for name in names)


def test_rows_are_whole_and_say_where_they_come_from() -> None:
    """Every number has a known unit, and a source file or the word that it is modelled; every backend in an order is described."""
    rows = engine_rows("vllm")
    assert all(r.get("unit", "") in UNITS for r in rows["constant"])
    assert all(".py" in r["source"] or r["source"].startswith("modelled: ") for r in rows["constant"])
    assert all(r["source"] for r in rows["words"])
    known = {r["name"] for r in rows["backend"]}
    assert all(name in known for r in rows["order"] for name in r["names"])


@pytest.mark.parametrize(("version", "value"), [("0.19", "0.9"), ("0.19.1", "0.9"), ("0.20", "0.92"), ("v0.33.0", "0.92")])
def test_the_default_share_of_memory_moved_in_0_20(version: str, value: str) -> None:
    """0.9 up to 0.19.x and 0.92 from 0.20.0, patch releases and a leading v included."""
    assert float(constants(version).number("utilization")) == float(value)


@pytest.mark.parametrize("version", ["0.10", "0.34", "1.0", "latest", "33"])
def test_a_version_outside_what_was_read_is_refused(version: str) -> None:
    """A version whose rules nobody read is a usage error that names the known ones."""
    with pytest.raises(UsageError) as told:
        constants(version)
    assert OLDEST in told.value.hint or NEWEST in told.value.hint


def test_two_values_for_one_version_are_a_data_error() -> None:
    """Rows that overlap are refused by name."""
    row = {"name": "x", "symbol": "x", "title": "x", "value": 1, "source": "a.py"}
    with pytest.raises(DataError, match="two values of x"):
        _ = Constants(version="0.33", rows={"constant": (row, row)}).numbers
