"""What an engine policy answers: how much memory it takes, what a sequence costs it, and how many fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gpufit.formats.cache import CacheFormat
from gpufit.hardware import Gpu
from gpufit.model import Model, Recipe
from gpufit.placement import Placement, Refusal
from gpufit.quantity import Q
from gpufit.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightChoice:
    """The weights in one format: `bytes` of the whole model, and whether it is the published checkpoint's own.

    `recipe` maps parts to storage formats where it is known; `note` says what stays at 16 bit or how the bytes were found;
    `assumption` is what every answer must repeat; `cast` marks a plain dtype that an unquantised checkpoint is turned into while it
    loads. `gguf` says that they are a GGUF file, which llama.cpp loads.
    """

    format: str
    bytes: Q
    published: bool
    recipe: Recipe | None = None
    note: str = ""
    assumption: str = ""
    cast: bool = False
    gguf: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLine:
    """One use of a GPU's memory. The lines of a ledger sum to the GPU's memory; `free` may be negative."""

    name: str
    bytes: Q


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What one replica holds under an engine's rules; all figures per GPU are those of its tightest GPU.

    `pool` may be negative: the weights alone do not fit. `per_replica` counts whole sequences, never below zero; it says nothing where
    no cache limits them (`unlimited`).
    `details` carries an engine's own figures for JSON; `remarks` are sentences with figures of this one model, `warnings` hold for many.
    """

    weights: WeightChoice
    weights_per_gpu: Q
    budget: Q
    pool: Q
    context: Q
    cache: CacheFormat
    sequence_bytes: Q
    sequence_bytes_per_gpu: Q
    per_replica: Q
    ledger: tuple[LedgerLine, ...]
    details: Mapping[str, Q | float | str | None] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def unlimited(self) -> bool:
        """Whether no cache limits how many sequences there are, since the model keeps none (an encoder)."""
        return int(self.sequence_bytes_per_gpu) == 0

    @property
    def fits(self) -> bool:
        """Whether at least one sequence at the full context fits; without a cache, whether the weights do."""
        return int(self.per_replica) >= 1 or (self.unlimited and int(self.pool) >= 0)

    @property
    def short_by(self) -> int:
        """Bytes missing on one GPU for the first sequence; 0 when it fits."""
        return 0 if self.fits else max(0, int(self.sequence_bytes_per_gpu) - int(self.pool))


class EnginePolicy(Protocol):
    """The rules of one engine. Constants live in data/engines, a policy holds rules."""

    @property
    def name(self) -> str:
        """The name typed after --engine."""
        ...

    @property
    def version(self) -> str | None:
        """The version whose rules these are; None for plain arithmetic."""
        ...

    def utilization(self) -> Q:
        """The share of memory taken by default."""
        ...

    def serve_flags(self) -> tuple[str, ...]:
        """Flags of a serve line that the user fixed beyond placement, context, share and batches, as the engine takes them."""
        ...

    def cache_format(self, model: Model, asked: str | None) -> CacheFormat:
        """The cache format of a dtype by name; None is `auto`: what the checkpoint asks for, else 16 bit."""
        ...

    def outweighed(self, gpu: Gpu, count: int, workload: Workload, weights: WeightChoice) -> bool:
        """Whether it is certain that beside these weights no sequence fits on `count` such GPUs, however they are placed."""
        ...

    def capacity(
        self,
        model: Model,
        gpu: Gpu,
        placement: Placement,
        workload: Workload,
        weights: WeightChoice,
        context: Q,
        cache: CacheFormat,
    ) -> Capacity | Refusal:
        """What one replica so placed holds, or why this engine would not start so."""
        ...
