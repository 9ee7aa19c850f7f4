"""Predicted against logged: the memory lines of a server's log beside what the same rules give."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from gpufit.engines.base import Capacity
from gpufit.quantity import Q


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One memory line: both values in bytes or plain counts, and `step`, the rounding of the log's print."""

    quantity: str
    predicted: Fraction
    logged: Fraction
    step: Fraction

    @property
    def difference(self) -> Fraction:
        """Predicted less logged."""
        return self.predicted - self.logged

    @property
    def relative(self) -> float | None:
        """The difference as a share of the logged value; None where that is zero."""
        return float(self.difference / self.logged) if self.logged else None

    @property
    def agrees(self) -> bool:
        """Whether the two are equal as far as the log prints."""
        return abs(self.difference) <= self.step / 2


def compared(capacity: Capacity, figures: Iterable[tuple[str, Fraction, Fraction]]) -> tuple[Line, ...]:
    """The lines that both sides have, in the log's order, and what the logged cache memory alone gives for blocks and tokens.

    Memory of activations and graphs is modelled, so a prediction from the start differs by that; a prediction from the cache memory
    that the server logged is arithmetic and should agree.
    """
    known = list(figures)
    predicted = _predicted(capacity)
    lines = [Line(quantity=q, predicted=predicted[q], logged=v, step=s) for q, v, s in known if q in predicted]
    memory = next(((v, s) for q, v, s in known if q == "available KV cache memory"), None)
    if memory is not None:
        lines += _from_logged(capacity, memory, known)
    return tuple(lines)


def _fraction(value: Q | float | str | None) -> Fraction:
    if isinstance(value, Q):
        return Fraction(value.value)
    return Fraction(value) if isinstance(value, int | float) else Fraction(0)


def _predicted(capacity: Capacity) -> dict[str, Fraction]:
    d = capacity.details
    return {
        "model loading": Fraction(capacity.weights_per_gpu.value),
        "available KV cache memory": Fraction(capacity.pool.value),
        "GPU blocks": _fraction(d.get("blocks")),
        "GPU KV cache size, tokens": _fraction(d.get("kv_cache_tokens")),
        "maximum concurrency": _fraction(d.get("max_concurrency")),
    }


def _from_logged(capacity: Capacity, memory: tuple[Fraction, Fraction], known: list[tuple[str, Fraction, Fraction]]) -> list[Line]:
    """Blocks, tokens and concurrency of the cache memory as logged; the print's rounding carries over to their own step."""
    block, request = _fraction(capacity.details.get("block_bytes")), _fraction(capacity.details.get("blocks_per_request"))
    if not block or not request:
        return []
    size, rounding = memory
    each = {
        "GPU blocks": (Fraction(size // block), rounding / block + 1),
        "GPU KV cache size, tokens": (
            Fraction(int((size // block) / request * capacity.context.value)),
            (rounding / block + 1) / request * capacity.context.value + 1,
        ),
        "maximum concurrency": ((size // block) / request, (rounding / block + 1) / request),
    }
    return [
        Line(quantity=f"{q}, from the logged memory", predicted=each[q][0], logged=v, step=s + 2 * each[q][1])
        for q, v, s in known
        if q in each
    ]
