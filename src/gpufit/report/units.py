"""Bytes and counts as people read them: GiB for memory, three digits, the unit always shown."""

from __future__ import annotations

from gpufit.quantity import Q

_STEPS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def memory(value: Q | int) -> str:
    """Memory in the largest binary unit that gives at least 1, to three digits (never fewer than the whole part has)."""
    size = int(value)
    sign, size = ("-", -size) if size < 0 else ("", size)
    for name, scale in _STEPS:
        # A size that would read as 1,024 of a unit is 1 of the next.
        if 2048 * size >= 2047 * scale:
            number = size / scale
            # GiB keep a decimal past a hundred, since budgets are compared by it.
            return f"{sign}{number:.0f} {name}" if name != "GiB" and number >= 99.95 else f"{sign}{three_digits(number)} {name}"
    return f"{sign}{size} B"


def gib(value: Q | int) -> str:
    """Memory in GiB with one decimal, for columns that compare; two where that would read 0.0."""
    size = int(value) / 2**30
    text = f"{size:,.1f}"
    return f"{text} GiB" if text not in ("0.0", "-0.0") or size == 0 else f"{size:,.2f} GiB"


def three_digits(number: float) -> str:
    """A number of at least 1 to three digits; larger whole parts are kept whole."""
    if number < 9.995:
        return f"{number:.2f}"
    if number < 99.95:
        return f"{number:.1f}"
    return f"{number:,.0f}" if number >= 999.5 else f"{number:.0f}" if number == int(number) else f"{number:.1f}"


def kib(value: Q | int) -> str:
    """KiB with at most one decimal, as the reference table of KV costs writes them."""
    size = int(value) / 1024
    return f"{size:,.0f}" if size == int(size) else f"{size:,.1f}"


def params(value: Q | int) -> str:
    """A parameter count in millions or billions, to three digits."""
    count = int(value)
    if count >= 999_500_000_000:
        return f"{three_digits(count / 1e12)} T"
    return f"{three_digits(count / 1e9)} B" if count >= 999_500_000 else f"{three_digits(count / 1e6)} M"


def plural(count: int, word: str) -> str:
    """A count with its noun."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
