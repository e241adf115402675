"""Which lengths and numbers differ between the calls that were compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from customop.compiling.capturing import Axes
from customop.compiling.entries import Entry

__all__ = ["fixed_numbers", "free_axes", "free_numbers"]


def free_axes(entries: Sequence[Entry], shapes: Sequence[tuple[int, ...]]) -> Axes:
    """The axes whose lengths differ between calls."""
    found: dict[int, set[int]] = {}
    for entry in entries:
        for i, (now, before) in enumerate(zip(shapes, entry.shapes, strict=True)):
            for axis, (n, m) in enumerate(zip(now, before, strict=True)):
                if n != m and n > 1 and m > 1:
                    found.setdefault(i, set()).add(axis)
    return found


def free_numbers(entries: Sequence[Entry], numbers: Mapping[int, Any]) -> list[int]:
    """The ints and floats that differ between calls, and whose values nothing asks for."""
    fixed = fixed_numbers(entries)
    return [
        i
        for i, key in numbers.items()
        if i not in fixed and any(entry.numbers[i] != key for entry in entries)
    ]


def fixed_numbers(entries: Sequence[Entry]) -> dict[int, str]:
    """Those whose values were asked for, and why."""
    known = [entry.found.fixed for entry in entries if entry.found is not None]
    return {i: why for fixed in known for i, why in fixed.items()}
