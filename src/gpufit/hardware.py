"""What a computer offers: a GPU part, and how many of it stand where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpufit.quantity import Q

Kind = Literal["device", "unified", "mig", "custom"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU, slice or accelerator, as facts with origins; None is "not known", never zero.

    Three sizes have three names. `marketed_gb` is the size on the box. `memory` (bytes, symbol M) is what the vendor's tool
    prints as the total, nvidia-smi for most; where no tool gives a total it is the allocator's, and `memory_basis` says whose
    figure it is. `allocator_total` (bytes, symbol M_a) is what CUDA or HIP reports and what an engine multiplies by its
    utilisation: the former less what the driver keeps for itself.
    """

    id: str
    name: str
    vendor: str | None
    architecture: str | None
    compute_capability: str | None
    gfx_name: str | None
    fp8: bool | None
    fp4: bool | None
    memory: Q
    memory_basis: str
    allocator_total: Q | None
    marketed_gb: int | None
    bandwidth_gb_s: int | float | None
    interconnect: str | None
    gpus_per_node: int
    kind: Kind
    notes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """A number of equal GPUs, and how many of them share a server.

    `gpus_per_node` is the part's usual largest number, or exactly what the cloud instance or this machine holds. `notes` are
    what an answer on this hardware has to say: an assumption made, an edition that the name did not tell.
    """

    gpu: Gpu
    count: int
    gpus_per_node: int
    instance: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def total_memory(self) -> Q:
        """The memory of all GPUs together, in bytes; for people to read, since nothing may be sized on a pooled sum."""
        return (self.gpu.memory * self.count).as_step("M_t", "memory of all GPUs")
