"""Symbolic sizes: steps over an axis of any length, and branches of any shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co
from tests.control.programs import gradient

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


def by_numbers(x: Any) -> Any:
    """Ranges with symbolic limits at both ends, and a body that has sizes alone."""
    n, m = x.shape
    first = co.fori_loop(0, n, lambda i, c: c * 1.1 + i * np.sum(x, 0), x[0] * 0)
    second = co.fori_loop(m, n, lambda i, c: c + i * m, np.sum(x))
    last = co.fori_loop(n - 2, 5, lambda i, c: np.sin(c) + i / n, x[0])
    return np.sum(first + second + last)


def by_numbers_in_python(x: Any) -> Any:
    n, m = x.shape
    first, second, last = x[0] * 0, np.sum(x), x[0]
    for i in range(n):
        first = first * 1.1 + i * np.sum(x, 0)
    for i in range(m, n):
        second = second + i * m
    for i in range(n - 2, 5):
        last = np.sin(last) + i / n
    return np.sum(first + second + last)


@pytest.mark.parametrize("options", [{}, {"sizes": {"x": ("n", "m")}}])
def test_ranges_of_symbolic_sizes(options: Any) -> None:
    """One graph, its gradient and tangent, and a batch, for arrays of all shapes."""
    given: Any = ("symbolic",) if not options else ()
    x = np.ones((4, 3))
    forms = [by_numbers, co.grad(by_numbers), co.vmap(by_numbers)]
    shapes = [x, x, np.ones((6, 4, 3))]
    options = [
        options,
        options,
        {} if not options else {"sizes": {"x": ("b", "n", "m")}},
    ]
    graphs: Any = [
        co.make_fx(form, *given, **option)(like)
        for form, like, option in zip(forms, shapes, options, strict=True)
    ]
    for shape in ((3, 2), (5, 2), (2, 4), (2, 2)):
        x = RNG.normal(size=shape)
        np.testing.assert_allclose(graphs[0](x), by_numbers_in_python(x))
        np.testing.assert_allclose(
            graphs[1](x), gradient(by_numbers_in_python, x), atol=1e-12
        )
        rows = [by_numbers_in_python(x), by_numbers_in_python(2 * x)]
        np.testing.assert_allclose(graphs[2](np.stack([x, 2 * x])), rows)
        np.testing.assert_allclose(co.vmap(graphs[0])(np.stack([x, 2 * x])), rows)
    with co.FakeMode() as mode:
        fake = mode.from_array(np.ones((4, 3)), sizes=("n", "m"))
        assert by_numbers(fake).shape == ()
