"""The cost of a call over its kernel.

An empty kernel shows the cost of the call alone. Beside a kernel that computes, the
same call costs some more, since each drives the other from the processor's caches.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import peers
import pytest
from table import over, ratio
from timing import Statement

import customop as co

RESULT = np.ones(3)
# Nothing in Python that is called as an object costs less.
BARE = "object with `__call__ = staticmethod(kernel)`"


def bare(kernel: Callable[..., object]) -> Callable[..., object]:
    """An object that does nothing but call the kernel."""
    return type("Bare", (), {"__call__": staticmethod(kernel)})()


# As ours, without a test: what is left of the budget is for tests and coercions.
BETWEEN = "the same with a function between"


def between_one(kernel: Callable[..., object]) -> Callable[..., object]:
    """A function that does nothing but call a kernel of one array and a number."""
    return lambda x, k=1.0: kernel(x, k)


def between_five(kernel: Callable[..., object]) -> Callable[..., object]:
    """A function that does nothing but call a kernel of five arguments."""
    return lambda x, y, *, a, b, c: kernel(x, y, a=a, b=b, c=c)


def empty_one(x: np.ndarray, k: float = 1.0) -> np.ndarray:
    """One array and a default float, no work."""
    return RESULT


def scale(x: np.ndarray, k: float = 1.0) -> np.ndarray:
    """One array and a default float."""
    return x * k


def empty_five(
    x: np.ndarray, y: np.ndarray, *, a: float, b: int, c: bool
) -> np.ndarray:
    """Two arrays and three keyword scalars, no work."""
    return RESULT


def mix(x: np.ndarray, y: np.ndarray, *, a: float, b: int, c: bool) -> np.ndarray:
    """Two arrays and three keyword scalars."""
    return x * y


# Kernel -> its name in the table.
NAMES = {
    empty_one: "an empty kernel",
    scale: "`x * k`",
    empty_five: "an empty kernel",
    mix: "`x * y`",
}


@pytest.mark.parametrize("kernel", [empty_one, scale])
def test_one_array(compare: Callable[..., None], kernel: Callable[..., object]) -> None:
    """One NumPy array and one default float."""
    x = np.ones(3)
    op = co.custom_op(f"bench::{kernel.__name__}", kernel, mutates_args=())
    np.testing.assert_array_equal(op(x), kernel(x))
    statements = {
        "ours": Statement("op(x)", {"op": op, "x": x}),
        "op.call": Statement("op(x)", {"op": op.call, "x": x}),
        "kernel": Statement("op(x)", {"op": kernel, "x": x}),
        BARE: Statement("op(x)", {"op": bare(kernel), "x": x}),
        BETWEEN: Statement("op(x)", {"op": bare(between_one(kernel)), "x": x}),
        **peers.one(kernel, x),
    }
    limits = over("kernel", 90e-9), ratio("singledispatch", 1.0)
    compare(f"call, array and default float, {NAMES[kernel]}", statements, *limits)


@pytest.mark.parametrize("kernel", [empty_five, mix])
def test_five_arguments(
    compare: Callable[..., None], kernel: Callable[..., object]
) -> None:
    """Two NumPy arrays and three scalars by keyword."""
    x = y = np.ones(3)
    op = co.custom_op(f"bench::{kernel.__name__}", kernel, mutates_args=())
    expected = kernel(x, y, a=2.0, b=3, c=True)
    np.testing.assert_array_equal(op(x, y, a=2.0, b=3, c=True), expected)
    arrays = {"x": x, "y": y}
    statements = {
        "ours": Statement(peers.FIVE, {"op": op, **arrays}),
        "op.call": Statement(peers.FIVE, {"op": op.call, **arrays}),
        "kernel": Statement(peers.FIVE, {"op": kernel, **arrays}),
        BARE: Statement(peers.FIVE, {"op": bare(kernel), **arrays}),
        BETWEEN: Statement(peers.FIVE, {"op": bare(between_five(kernel)), **arrays}),
        **peers.five(kernel, x, y),
    }
    limit = over("kernel", 250e-9)
    compare(f"call, 2 arrays and 3 keywords, {NAMES[kernel]}", statements, limit)
