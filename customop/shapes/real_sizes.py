"""The values of dynamic sizes, from arrays of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from customop.shapes.division import substitute
from customop.shapes.expressions import solve_for_name
from customop.shapes.size_context import SizeContext
from customop.shapes.symbolic import as_side

__all__ = ["fault_of", "solve_names", "with_values"]


def solve_names(pairs: Iterable[tuple[Any, int]]) -> dict[str, int]:
    """Values of names, from sizes and the numbers that they turned out to be."""
    found: dict[str, int] = {}
    waiting = [(as_side(size), number) for size, number in pairs]
    while True:
        before = len(found)
        for size, number in waiting:
            rest = substitute(size, found)  # type: ignore[arg-type]  # of a size
            solved = solve_for_name(rest, number)
            if solved is not None:
                found[solved[0]] = solved[1]
        if len(found) == before:
            return found


def with_values(context: SizeContext, size: Any, values: Mapping[str, int]) -> Any:
    """A size with numbers in the place of names."""
    return context.wrap(substitute(as_side(size), values))  # type: ignore[arg-type]  # of a size


def fault_of(context: SizeContext, values: Mapping[str, int]) -> str:
    """Which value is outside of its bounds, or which check it fails; or nothing."""
    for name, value in values.items():
        low, high = context.sizes[name].bounds
        if value < low:
            return f"a size {value}, and the fake kernel says at least {low}"
        if high is not None and value > high:
            return f"a size {value}, and the fake kernel says at most {high}"
    for guard in context.checks:
        if guard.names <= values.keys() and not guard.holds(values):
            numbers = " and ".join(f"{n} = {values[n]}" for n in sorted(guard.names))
            return f"{numbers}, and the fake kernel says {guard.text}"
    return ""
