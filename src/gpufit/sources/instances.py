"""The cloud instances of instances.toml: which GPUs a rented name stands for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import ClassVar, Literal

from gpufit.errors import DataError, UsageError
from gpufit.sources.toml_rows import build_row, raw_rows

FILE = "instances.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One [[instance]]: `count` whole GPUs of one server, or a `share` of one GPU as decimal text."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    cloud: Literal["aws", "azure", "gcp", "oci"]
    name: str
    gpu: str
    source: str
    checked: date
    count: int | None = None
    share: str | None = None
    note: str | None = None

    def whole_gpus(self) -> int:
        """The GPUs of one instance; UsageError for an instance that rents out a part of a GPU.

        The memory such an instance gets need not be that part of the GPU's total, and no print of it was seen: it is refused and
        not worked out.
        """
        if self.count is not None:
            return self.count
        if self.share is None:
            raise DataError(f"{FILE}: {self.name} has neither count nor share", hint="give one of them")
        said = f" ({self.note})" if self.note else ""
        raise UsageError(
            f"{self.name} rents out {self.share} of one {self.gpu}, and what it may use of the memory has not been seen{said}",
            hint=f"give the memory that nvidia-smi prints there, as in --gpu 2861MiB, or size the whole GPU: --gpu {self.gpu}",
        )


def instances() -> tuple[Instance, ...]:
    """Every instance of the catalogue, sorted by cloud and name."""
    return tuple(build_row(Instance, raw, FILE) for raw in raw_rows(FILE, "instance"))


def instance_names() -> tuple[str, ...]:
    """The names alone, for suggestions."""
    return tuple(raw["name"] for raw in raw_rows(FILE, "instance"))


def find_instance(name: str) -> Instance | None:
    """The instance of this name, any case, Azure's with or without "Standard_"; None when there is none."""
    raw = _by_key().get(instance_key(name))
    return None if raw is None else build_row(Instance, raw_rows(FILE, "instance")[raw], FILE)


def instance_key(name: str) -> str:
    """A name in the form under which it is looked up."""
    return name.strip().lower().removeprefix("standard_")


@cache
def _by_key() -> dict[str, int]:
    return {instance_key(raw["name"]): at for at, raw in enumerate(raw_rows(FILE, "instance"))}
