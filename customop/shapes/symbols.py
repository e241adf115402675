"""The base of symbolic numbers, which takes no time to import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Symbolic", "has_sizes", "made", "number_classes", "with_arrays"]


class Symbolic:
    """A number that is made of symbolic sizes: the base of `SymInt` and its kin."""

    __slots__ = ()

    hint: Any
    context: Any

    @property
    def value(self) -> Any:
        """The number that it is in this call, which becomes a guard."""
        raise NotImplementedError


def has_sizes(value: Any) -> bool:
    """Whether an argument is a symbolic number, or has one in a list."""
    if isinstance(value, list | tuple):
        return any(map(has_sizes, value))
    return isinstance(value, Symbolic)


# Classes of numbers that broadcast with arrays; symbolic ones enter themselves.
number_classes: set[type] = {bool, int, float, complex}

# The function, if it is set, that a ufunc of symbolic numbers and arrays calls.
with_arrays: list[Callable[..., Any]] = []

# Not empty once there may be symbolic sizes. Code that runs often asks it first.
made: list[bool] = []
