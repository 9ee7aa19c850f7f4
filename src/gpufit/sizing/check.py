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


def compared(
    capacity: Capacity, figures: Iterable[tuple[str, Fraction, Fraction]], from_logged: Capacity | None = None
) -> tuple[Line, ...]:
    """The lines that both sides have, in the log's order, and what the logged cache memory alone gives for blocks and tokens.

    Memory of activations and graphs is modelled, so a prediction from the start differs by that. `from_logged` is the same server's
    capacity with the cache memory that was logged: that is arithmetic and should agree.
    """
    known = list(figures)
    predicted = _predicted(capacity)
    lines = [Line(quantity=q, predicted=predicted[q], logged=v, step=s) for q, v, s in known if q in predicted]
    rounding = next((s for q, _, s in known if q == "available KV cache memory"), None)
    if rounding is not None and from_logged is not None:
        lines += _from_logged(from_logged, rounding, known)
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


def _from_logged(capacity: Capacity, rounding: Fraction, known: list[tuple[str, Fraction, Fraction]]) -> list[Line]:
    """Blocks, tokens and concurrency of the cache memory as logged; the print's rounding carries over to their own step."""
    predicted = _predicted(capacity)
    blocks, block = predicted["GPU blocks"], _fraction(capacity.details.get("block_bytes"))
    if not blocks or not block:
        return []
    # So many blocks may the rounding of the logged memory hide; each is worth an equal share of the other figures.
    hidden = rounding / block + 1
    each = {q: hidden * predicted[q] / blocks for q in ("GPU blocks", "GPU KV cache size, tokens", "maximum concurrency")}
    return [
        Line(quantity=f"{q}, from the logged memory", predicted=predicted[q], logged=v, step=s + 2 * each[q])
        for q, v, s in known
        if q in each
    ]
