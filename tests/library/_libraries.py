"""Helpers that the tests of libraries share."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

import customop as co

X = np.array([0.5, 1.0, 2.0])
numbers = itertools.count()


def line(offset: int = 0) -> str:
    """File and line of the caller, or of a line near it."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{frame.f_back.f_code.co_filename}:{frame.f_back.f_lineno + offset}"


def at(fn: Callable[..., Any]) -> str:
    """File and line of a function."""
    return f"{fn.__code__.co_filename}:{fn.__code__.co_firstlineno}"


def operator(lib: co.Library, name: str) -> co.Operator[..., Any]:
    """Return an operator of a library."""
    found = getattr(getattr(co.ops, lib.ns), name).default
    assert isinstance(found, co.Operator)
    return found


def one(x: Any) -> Any:
    return x * 0 + 1
