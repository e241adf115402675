"""Times and sizes as short texts."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["show_bytes", "show_time"]


def show_time(nanoseconds: float) -> str:
    """A time with three digits and a unit."""
    return _with_unit(nanoseconds, 1000, ("ns", "us", "ms", "s"))


def show_bytes(count: int) -> str:
    """A number of bytes with three digits and a unit."""
    return _with_unit(count, 1000, ("B", "kB", "MB", "GB", "TB"))


def _with_unit(number: float, step: int, units: Sequence[str]) -> str:
    """A number in the largest unit that leaves it at least one."""
    scale, at = 1, 0
    # Rounded to three digits, 999.5 of a unit is one of the next.
    while at + 1 < len(units) and number >= 0.9995 * scale * step:
        scale, at = scale * step, at + 1
    if scale == 1:
        return f"{number:.3g} {units[0]}"
    value = number / scale
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {units[at]}"
