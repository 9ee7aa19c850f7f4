"""Where the shipped data files are: inside the installed package, or in the checkout beside it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from gpufit.errors import DataError

_PACKAGE = Path(__file__).resolve().parent.parent


@cache
def data_root() -> Path:
    """The folder with gpus.toml and models/: package data in a wheel, the checkout's `data/` in an editable install."""
    for candidate in (_PACKAGE / "data", _PACKAGE.parent.parent / "data"):
        if (candidate / "gpus.toml").is_file():
            return candidate
    raise DataError(
        f"the data files are missing: no gpus.toml in {_PACKAGE / 'data'} nor in the checkout's data/",
        hint="reinstall gpufit; the wheel carries its data",
    )


def data_text(name: str) -> str:
    """The text of one data file, by its path below the data folder."""
    path = data_root() / name
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot read the data file {name}: {error.strerror}", hint="reinstall gpufit") from error
