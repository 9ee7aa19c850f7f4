"""The rows of an engine's data file, for the engine's own policy to choose from by version."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from gpufit.errors import DataError
from gpufit.sources.data import data_text

try:
    # Compiled in its wheels, so several times faster than the pure Python tomllib.
    import tomli as toml
except ModuleNotFoundError:
    import tomllib as toml  # type: ignore[no-redef]

Row = Mapping[str, Any]


@cache
def engine_rows(engine: str) -> Mapping[str, tuple[Row, ...]]:
    """Every table of data/engines/<engine>.toml as its rows, unchecked."""
    file = f"engines/{engine}.toml"
    try:
        content = toml.loads(data_text(file))
    except toml.TOMLDecodeError as error:
        raise DataError(f"{file} is not TOML: {error}", hint="undo the last change to the file") from error
    return {table: tuple(rows) for table, rows in content.items()}
