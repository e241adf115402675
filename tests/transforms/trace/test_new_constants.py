"""Arrays that a function makes anew in each call are new in each call of its graph."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest

import customop as co

TABLE = np.ones(3)
LISTED = [np.arange(4.0)]


@lru_cache
def kept() -> Any:
    """An array that is made once."""
    return np.full(2, 3.0)


def results(x: Any) -> Any:
    """Arrays of each call, and arrays that are there before."""
    new, whole = np.zeros(3), np.arange(6.0).reshape(2, 3)
    return {
        "new": new,
        "new again": new,
        "row": whole[0],
        "number": np.array(2.0),
        "known": TABLE,
        "part": TABLE[1:],
        "listed": LISTED[0],
        "kept": kept(),
        "sum": x + whole[1, 0],
    }


def shared(a: Any, b: Any) -> list[tuple[str, str]]:
    """Which arrays of two results lie in one memory."""
    pairs = combinations_with_replacement(a, 2)
    return [(i, j) for i, j in pairs if np.may_share_memory(a[i], b[j])]


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_calls_share_the_arrays_that_calls_of_the_function_share(mode: Any) -> None:
    """One call, and two calls: the same arrays lie in one memory."""
    x = np.ones(2)
    graph = co.make_fx(results, mode)(x)
    found, again, expected = graph(x), graph(x), results(x)

    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, strict=True)
    assert shared(found, found) == shared(expected, expected)
    assert shared(found, again) == shared(expected, results(x))
    assert found["known"] is TABLE
    assert found["new"] is found["new again"]


def test_a_caller_who_writes_to_a_result_does_not_change_the_graph() -> None:
    """Two new arrays in one memory too."""

    def fn(x: Any) -> Any:
        new = np.zeros(4)
        return x, new, new[1:]

    graph = co.make_fx(fn)(np.ones(2))
    _, new, part = graph(np.ones(2))
    new += 7
    part += 5

    np.testing.assert_array_equal(graph(np.ones(2))[1], np.zeros(4))
    np.testing.assert_array_equal(graph(np.ones(2))[2], np.zeros(3))
