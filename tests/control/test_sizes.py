"""Symbolic sizes: steps over an axis of any length, and branches of any shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co

RNG = np.random.default_rng(1)


def recurrent(x: Any) -> Any:
    return co.scan(lambda c, r: (np.tanh(c + r), c * r), np.sum(x, 0) * 0, x)


def branched(x: Any) -> Any:
    return co.cond(np.sum(x) > 0, lambda x: np.sin(x) @ x.T, lambda x: x @ x.T, x)


def doubled(x: Any) -> Any:
    return co.while_loop(lambda c: np.sum(c) < 50, lambda c: c * 2 + 1, x)


def mapped(x: Any) -> Any:
    return co.map(lambda r: (r * r, np.sum(r)), x)


def counted(x: Any) -> Any:
    return co.fori_loop(0, 3, lambda i, c: c * x + i, x)


PROGRAMS = [recurrent, branched, doubled, mapped, counted]


@pytest.mark.parametrize("fn", PROGRAMS)
def test_any_length(fn: Any) -> None:
    """A graph with a named size runs for arrays of any length."""
    graph = co.make_fx(fn, "symbolic", sizes={"x": ("n", 3)})(np.ones((4, 3)))
    for length in (1, 4, 7):
        for sign in (1, -1):
            x = sign * RNG.random((length, 3))
            pairs = zip(co.tree.leaves(graph(x)), co.tree.leaves(fn(x)), strict=True)
            for a, b in pairs:
                np.testing.assert_allclose(a, b)


def test_the_results_of_a_scan_have_the_size() -> None:
    """The text of the graph says so."""
    graph = co.make_fx(recurrent, "symbolic", sizes={"x": ("n", 3)})(np.ones((4, 3)))
    text = graph.print_readable(print_output=False)
    assert 'scan: "[f64[3], f64[n, 3]]"' in text


@pytest.mark.parametrize(
    "fn", [lambda x: recurrent(x)[0], counted], ids=["scan", "fori"]
)
def test_gradients(fn: Any) -> None:
    """Of a graph, and in one."""
    of_sum = lambda x: np.sum(fn(x) ** 2)  # short
    captured: Any = [
        co.make_fx(form, "symbolic", sizes={"x": ("n", 3)})(np.ones((4, 3)))
        for form in (of_sum, co.grad(of_sum))
    ]
    for length in (2, 5, 5):
        x = RNG.normal(size=(length, 3))
        want = co.grad(of_sum)(x)
        np.testing.assert_allclose(co.grad(captured[0])(x), want)
        np.testing.assert_allclose(captured[1](x), want)
