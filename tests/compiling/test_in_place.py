"""Code that writes in place writes in place when it is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co


def _steps(x: Any, v: Any) -> Any:
    v[1:-1] += 0.1 * (x[2:] - 2 * x[1:-1] + x[:-2])
    x += v
    x[0] = 0.0
    return x


def _fresh(x: Any) -> Any:
    y = np.zeros_like(x)
    y[1:] = x[:-1]
    y[1:] = y[:-1]
    return y[::-1], y


def _old_is_read(x: Any) -> Any:
    old = x + 0.0
    first = x[:2]
    kept = first + 0.0
    x[0] = 5.0
    x[1] = first[0] + kept[1]
    return x, old, first


def _written_by_itself(x: Any) -> Any:
    x[::-1] += x
    x[1:] = x[:-1]
    return x.sum()


def _matrix(x: Any) -> Any:
    y = x.reshape(2, -1)
    y[:, 0] = 7.0
    y.T[1] *= 2.0
    return y[0], x


@pytest.mark.parametrize("n", [4, 6, 30_000])
@pytest.mark.parametrize("f", [_fresh, _old_is_read, _written_by_itself, _matrix])
def test_results_and_arguments_are_those_of_the_function(f: Any, n: int) -> None:
    fast = co.compile(f)
    for _ in range(2):
        x = np.linspace(0.0, 1.0, n)
        y = x.copy()
        found, expected = co.tree.leaves(fast(x)), co.tree.leaves(f(y))
        assert np.array_equal(x, y)
        for a, b in zip(found, expected, strict=True):
            assert np.array_equal(a, b)
            assert np.shares_memory(a, x) == np.shares_memory(b, y)


def test_parts_are_written_without_copies() -> None:
    fast = co.compile(_steps)
    x, v = np.linspace(0.0, 1.0, 8) ** 2, np.zeros(8)
    y, w = x.copy(), v.copy()
    for _ in range(3):
        assert fast(x, v) is x
        _steps(y, w)
        assert np.array_equal(x, y)
        assert np.array_equal(v, w)
    assert "slice_set" not in fast.code
    assert fast.code.count("setitem(v") == 1


def test_an_old_value_that_is_read_later_is_copied() -> None:
    def f(x: Any) -> Any:
        y = np.sin(x)
        z = y.T
        y[0] = 1.0
        return y + z, co.stop_gradient(y)

    x = np.ones((2, 2))
    for a, b in zip(co.compile(f)(x), f(x), strict=True):
        assert np.array_equal(a, b)


def test_a_result_that_is_spread_into_an_array_can_be_written() -> None:
    def f(x: Any) -> Any:
        y = np.zeros_like(x)
        np.negative(x[:1], out=y)
        return y

    found = _twice(co.compile(f), np.ones(3))
    found[0] = 2.0
    assert found.tolist() == [2.0, -1.0, -1.0]


def _twice(fn: Any, *args: Any) -> Any:
    fn(*args)
    return fn(*args)


def test_other_back_ends_get_a_graph_that_writes_at_its_end_alone() -> None:
    seen = []

    def look(module: Any) -> Any:
        seen.extend(n.target.name for n in module.graph.nodes if n.op == "call")
        return module.run_list

    co.compile(_steps, backend=look)(np.ones(4), np.zeros(4))
    assert seen[-2:] == ["assign", "assign"]
    assert "set_slice" not in seen
