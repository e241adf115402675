"""Shared code of the rules of operators of control flow.

Without a graph being captured each rule runs the operator's function on traced values.
While one is captured it makes graphs of the transformed functions, and calls an operator
with them: the functions that users call do that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["gradients", "named_as", "tangents_of"]

Arrays = Sequence[Any]


def gradients(moving: Sequence[bool], found: Arrays) -> list[Any]:
    """Derivatives of all arrays, None for those that do not move."""
    given = iter(found)
    return [next(given) if moves else None for moves in moving]


def tangents_of(values: Arrays, found: Any) -> list[Any]:
    """Tangents of a list of arrays, None where there are none."""
    return [None] * len(values) if found is None else [*found]


def named_as(fn: Any, module: Any) -> Any:
    """A function with the name and place of a graph."""
    fn.__name__, fn.place = module.__name__, module.place
    return fn
