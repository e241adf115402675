"""Chains of elementwise calls, and statements that run them compiled and eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from timing import Statement

import customop as co

__all__ = [
    "ALONE",
    "BY_HAND",
    "EAGER",
    "arithmetic",
    "by_hand",
    "named",
    "sines",
    "statements",
    "transcendental",
]

EAGER, BY_HAND, ALONE = "eager", "NumPy by hand, in place", "its sines alone"


def arithmetic(xp: Any, x: Any) -> Any:
    """A chain of ten calls; in such expressions NumPy writes to its own temporaries."""
    for _ in range(5):
        x = x * 1.01 + 0.5
    return x


def named(xp: Any, x: Any) -> Any:
    """The same, where a name keeps each of the arrays."""
    a = x * 1.01
    b = a + 0.5
    c = b * 1.01
    d = c + 0.5
    e = d * 1.01
    f = e + 0.5
    g = f * 1.01
    h = g + 0.5
    i = h * 1.01
    return i + 0.5


def transcendental(xp: Any, x: Any) -> Any:
    """A chain of ten calls, two of them sines."""
    for _ in range(2):
        x = xp.sin(x * 0.9 + 0.1) - x * 0.5
    return x


_FACTOR, _TERM = np.array(1.01), np.array(0.5)
_BLOCK = 1 << 14


def by_hand(x: Any) -> Any:
    """The arithmetic as fast as NumPy can do it in one thread: in place, by blocks."""
    out = np.empty_like(x)
    for i in range(0, len(x), _BLOCK):
        part = out[i : i + _BLOCK]
        np.multiply(x[i : i + _BLOCK], _FACTOR, part)
        np.add(part, _TERM, part)
        for _ in range(4):
            np.multiply(part, _FACTOR, part)
            np.add(part, _TERM, part)
    return out


def sines(x: Any) -> Any:
    """The two sines of `transcendental` alone, by blocks."""
    scratch = np.empty(_BLOCK)
    for _ in range(2):
        for i in range(0, len(x), _BLOCK):
            part = x[i : i + _BLOCK]
            np.sin(part, scratch[: len(part)])


def statements(
    fn: Callable[..., Any], args: tuple[Any, ...], **backends: str | None
) -> dict[str, Statement]:
    """A compiled function as "ours", and by other back ends; the function as eager."""
    given = {f"a{i}": value for i, value in enumerate(args)}
    call = f"fn({', '.join(given)})"
    expected = fn(*args)
    found = {EAGER: Statement(call, {"fn": fn, **given})}
    for name, backend in (backends or {"ours": None}).items():
        fast = co.compile(fn, backend=backend)
        leaves = co.tree.leaves(fast(*args)), co.tree.leaves(expected)
        for mine, eager in zip(*leaves, strict=True):
            np.testing.assert_allclose(mine, eager, rtol=1e-9, atol=1e-12)
        found[name] = Statement(call, {"fn": fast, **given})
    return found
