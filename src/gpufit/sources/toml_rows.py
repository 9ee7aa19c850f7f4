"""Rows of a shipped TOML table, read once; the strict schema is consulted only when a row does not build."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from gpufit.errors import DataError
from gpufit.sources.data import data_text

try:
    # Compiled in its wheels, so several times faster than the pure Python tomllib.
    import tomli as toml
except ModuleNotFoundError:
    import tomllib as toml  # type: ignore[no-redef]

__all__ = ["build_row", "raw_rows", "toml"]

Raw = dict[str, Any]
Row = TypeVar("Row")


@cache
def raw_rows(file: str, table: str) -> tuple[Raw, ...]:
    """The `[[table]]` entries of one data file, unchecked."""
    try:
        content = toml.loads(data_text(file))
    except toml.TOMLDecodeError as error:
        raise DataError(f"{file} is not TOML: {error}", hint="undo the last change to the file") from error
    rows = content.get(table)
    if not isinstance(rows, list) or not rows:
        raise DataError(f"{file} has no [[{table}]]", hint="undo the last change to the file")
    return tuple(rows)


def build_row(make: Callable[..., Row], raw: Raw, file: str) -> Row:
    """One row as its dataclass. A key that is missing or unknown raises DataError with every problem of the whole file."""
    try:
        return make(**raw)
    except TypeError as error:
        # Only a broken file pays for pydantic.
        from gpufit.sources.gpu_schema import file_problems

        problems = file_problems(file) or [str(error)]
        raise DataError(f"{file}: " + "; ".join(problems), hint="the keys are those of the rows beside it") from error
