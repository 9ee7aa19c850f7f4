"""A question and its answer, as data; neither knows of terminals."""

from __future__ import annotations

from dataclasses import dataclass

from gpufit.engines.base import Capacity, EnginePolicy
from gpufit.hardware import Hardware
from gpufit.model import Model
from gpufit.placement import Placement
from gpufit.quantity import Q
from gpufit.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One model on one or several kinds of hardware.

    `weights` is a format name, `auto` or `published`. `tensor_parallel` and `pipeline_parallel` are None where the placement rule
    chooses; `data_parallel` None is one rank.
    """

    model: Model
    hardware: tuple[Hardware, ...]
    workload: Workload
    engine: EnginePolicy
    weights: str = "auto"
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One single change that would make a model fit: what to change, to what, and what it would give.

    `sequences` is None where no cache limits them.
    """

    what: str
    option: str
    sequences: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the arithmetic says: fits or not, where, how many, and why.

    `capacity` and `placement` are those of the best legal placement, also when it does not fit (then `short_by` says by how much);
    None when no placement is legal at all. `lowered` marks a format below the published one, `rung` how many formats were
    tried before it. `total` sums the replicas.
    """

    question: Question
    fits: bool
    reason: str
    hardware: Hardware
    placement: Placement | None = None
    capacity: Capacity | None = None
    replicas: Q | None = None
    total: Q | None = None
    lowered: bool = False
    rung: int = 0
    warnings: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    context_too_long: bool = False
    bytes_per_token: Q | None = None

    @property
    def total_sequences(self) -> int:
        """Whole sequences over all replicas; 0 when it does not fit."""
        return int(self.total) if self.total is not None else 0

    @property
    def sequences(self) -> int | None:
        """Whole sequences over all replicas; None where the weights fit and no cache limits them."""
        return None if self.fits and self.capacity is not None and self.capacity.unlimited else self.total_sequences

    @property
    def short_by(self) -> int:
        """Bytes missing on one GPU; 0 when it fits or when no placement is legal."""
        return self.capacity.short_by if self.capacity is not None and not self.fits else 0
