"""Constants of one vLLM version: numbers, names and attention backends, as the data file of the engine gives them.

The rows come from outside (`gpufit.sources.engine_constants` reads data/engines/vllm.toml); this module chooses those that hold for a
version and gives them types. A number keeps the version from which it holds in its origin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpufit.errors import DataError, UsageError
from gpufit.quantity import BYTE, BYTE_PER_TOKEN, NUMBER, SEQUENCE, TOKEN, Q, Unit, fact, unit

OLDEST, NEWEST = "0.11", "0.33"
"""The first and the last version whose rules were read."""

UNITS: dict[str, Unit] = {
    "": NUMBER,
    "B": BYTE,
    "token": TOKEN,
    "sequence": SEQUENCE,
    "block": unit(block=1),
    "B/token": BYTE_PER_TOKEN,
    "token/block": unit(token=1, block=-1),
    "B/block": unit(B=1, block=-1),
    "block/sequence": unit(block=1, sequence=-1),
}

Row = Mapping[str, Any]


def version_key(version: str) -> tuple[int, ...]:
    """The order of a version such as "0.33" or "0.33.0"; `UsageError` for anything else."""
    parts = version.strip().removeprefix("v").split(".")
    if len(parts) < 2 or not all(p.isdigit() for p in parts):
        raise UsageError(f"{version!r} is not a vLLM version", hint=f"write it as {NEWEST} or {NEWEST}.0")
    return tuple(int(p) for p in parts[:2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """What one attention backend takes, as a row of the data file.

    `blocks` are tokens of a kernel block; `multiples` says whether the kernel itself takes any multiple of them. `capability` is the
    first and last compute capability, each as (major, minor). `heads` empty takes any head size. `own` marks a cache that chooses its
    backend itself. `dtypes` empty takes bf16 and fp16.
    """

    name: str
    blocks: tuple[int, ...]
    cache: frozenset[str]
    latent: bool = False
    sparse: bool = False
    own: bool = False
    multiples: bool = False
    capability: tuple[tuple[int, ...], tuple[int, ...]] = ((0, 0), (99, 9))
    heads: tuple[int, ...] = ()
    least_head: int = 0
    dtypes: tuple[str, ...] = ()
    sinks: bool = False
    prefix_lm: bool = False
    cross: bool = False
    window: bool = True
    context_parallel: bool = False

    def takes_block(self, size: int | None) -> bool:
        """Whether a block of this many tokens can be cut into kernel blocks; no size at all is always taken."""
        return size is None or any(size % block == 0 for block in self.blocks)


@dataclass(frozen=True, kw_only=True)
class Constants:
    """The constants that hold for `version`, from the rows of the data file."""

    version: str
    rows: Mapping[str, tuple[Row, ...]]

    def __post_init__(self) -> None:
        key = version_key(self.version)
        if not version_key(OLDEST) <= key <= version_key(NEWEST):
            raise UsageError(f"vLLM {self.version} is not known", hint=f"the rules of {OLDEST} to {NEWEST} are known")

    @cached_property
    def numbers(self) -> Mapping[str, Q]:
        """Every number that holds for this version, by name."""
        found: dict[str, Q] = {}
        for row in self._holding("constant"):
            if row["name"] in found:
                raise DataError(
                    f"vllm.toml: two values of {row['name']} hold for {self.version}", hint="let one row end where the next begins"
                )
            since = f" since {row['since']}" if "since" in row else ""
            found[row["name"]] = fact(
                row["value"],
                UNITS[row.get("unit", "")],
                symbol=row["symbol"],
                name=row["title"],
                origin=f"vLLM{since}: {row['source']}",
            )
        return found

    @cached_property
    def _words(self) -> Mapping[str, frozenset[str]]:
        return {row["name"]: frozenset(row["values"]) for row in self._holding("words")}

    @cached_property
    def backends(self) -> Mapping[str, Backend]:
        """Every attention backend by name."""
        return {row["name"]: _backend(row) for row in self._holding("backend")}

    def order(self, *, latent: bool, major: int) -> tuple[Backend, ...]:
        """The backends in the order in which a GPU of this major compute capability tries them."""
        rows = [r for r in self._holding("order") if r["latent"] == latent]
        row = next((r for r in rows if major in r["majors"]), None) or next(r for r in rows if not r["majors"])
        return tuple(self.backends[name] for name in row["names"])

    def number(self, name: str) -> Q:
        """One number, such as `block_size`."""
        return self.numbers[name]

    def flag(self, name: str) -> bool:
        """Whether a rule holds in this version."""
        return self.numbers[name].value != 0

    def listed(self, name: str, word: str) -> bool:
        """Whether a list of names has this one."""
        return word in self._words[name]

    def words(self, name: str) -> frozenset[str]:
        """A list of names."""
        return self._words[name]

    def _holding(self, table: str) -> Iterable[Row]:
        key = version_key(self.version)
        for row in self.rows[table]:
            if ("since" not in row or version_key(row["since"]) <= key) and ("until" not in row or key < version_key(row["until"])):
                yield row


def _backend(row: Row) -> Backend:
    values = {k: v for k, v in row.items() if k not in ("since", "until", "capability", "blocks", "cache", "heads", "dtypes")}
    first, *last = (tuple(int(p) for p in text.split(".")) for text in row.get("capability", ["0.0"]))
    return Backend(
        **values,
        blocks=tuple(row["blocks"]),
        cache=frozenset(row["cache"]),
        capability=(first, last[0] if last else (99, 9)),
        heads=tuple(row.get("heads", ())),
        dtypes=tuple(row.get("dtypes", ())),
    )
