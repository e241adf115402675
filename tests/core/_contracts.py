"""Operators whose kernels keep or break their contracts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

_numbers = itertools.count()


def define(
    schema: str, fn: Callable[..., Any], written: tuple[str, ...] = (), **kwargs: Any
) -> co.Operator[..., Any]:
    """Make an operator of a new name."""
    name = f"contracts::op{next(_numbers)}"
    return co.custom_op(name, fn, mutates_args=written, schema=schema, **kwargs)


def fresh() -> np.ndarray:
    """A small array that nothing else holds."""
    return np.arange(6.0).reshape(2, 3)


def numbered(table: list[tuple[Any, ...]]) -> list[Any]:
    """Rows of a table as cases that have their number for a name."""
    return [pytest.param(*row, id=str(i)) for i, row in enumerate(table)]


def halves() -> tuple[np.ndarray, np.ndarray]:
    """Two disjoint views of one buffer."""
    buffer = np.zeros(4)
    return buffer[:2], buffer[2:]


def twice(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One array as two results."""
    out = x * 2
    return out, out
