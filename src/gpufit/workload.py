"""What is asked of the hardware: how long the sequences are, how the cache is stored, how much memory may be used."""

from __future__ import annotations

from dataclasses import dataclass

from gpufit.quantity import Q


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One workload.

    `context` (token/sequence) is None for "the model's own limit". `kv_cache_dtype` is None for `auto`: the dtype that the checkpoint
    asks for, else its 16-bit one. `utilization` is the share of memory an engine may take, 0 < u <= 1, kept exactly; None takes the
    engine's default. `min_concurrency` is what the placement rule wants one replica to hold. `context_is_default`
    marks a context that nobody asked for: a model with a shorter limit is then sized at its limit.
    """

    context: Q | None
    kv_cache_dtype: str | None = None
    utilization: Q | None = None
    min_concurrency: int = 8
    context_is_default: bool = False
