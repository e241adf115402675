"""What NumPy's releases do differently, on traced, batched and fake arrays as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.numpy.arguments import SINCE_2_5

X = np.array([[3.0, -1.0, 2.5, 2.5], [0.5, np.nan, 4.0, -2.0]])
new = pytest.mark.skipif(not SINCE_2_5, reason="NumPy before 2.5")
old = pytest.mark.skipif(SINCE_2_5, reason="NumPy since 2.5")

WAYS: dict[str, Callable[[Callable[[Any], Any], Any], Any]] = {
    "grad": lambda fn, x: _seen(fn, x),
    "vmap": lambda fn, x: co.vmap(fn)(np.stack([x, x]))[0],
    "fake": lambda fn, x: fn(co.fake_like(x)),
}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def _seen(fn: Callable[[Any], Any], x: Any) -> Any:
    """The result of a function of traced values."""
    found: list[Any] = []
    co.grad(lambda x: (found.append(co.stop_gradient(fn(x))), np.sum(x))[1])(x)
    return found[0]


# ---- orders from the largest element on ----

DOWN: dict[str, Callable[[Any], Any]] = {
    "sort": lambda x: np.sort(x, descending=True),
    "argsort": lambda x: np.argsort(x, descending=True),
    "method": lambda x: x.argsort(descending=True),
    "in place": lambda x: (y := x + 0.0, y.sort(descending=True))[0],
}


@old
@ways
@pytest.mark.parametrize("name", DOWN)
def test_an_older_numpy_has_no_descending(way: Any, name: str) -> None:
    """The error is NumPy's."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'descending'"):
        way(DOWN[name], X)


@new
def test_sorting_in_place_from_the_largest_on() -> None:
    """The array is written, and its gradient knows where the elements came from."""
    weights = np.array([1.0, 10.0, 100.0, 1000.0])

    def fn(x: Any) -> Any:
        y = 2.0 * x
        y.sort(descending=True)
        return np.sum(weights * y)

    order = [np.sort(row)[::-1] for row in X[:1]]
    assert fn(X[0]) == 2.0 * np.sum(weights * order[0])
    # 3.0, 2.5, 2.5, -1.0: equal elements keep their order
    np.testing.assert_array_equal(co.grad(fn)(X[0]), [2.0, 2000.0, 20.0, 200.0])


KINDS: dict[str, Callable[[Any], Any]] = {
    "stable": lambda x: np.sort(x, kind="stable", stable=True),
    "unstable": lambda x: np.argsort(x, kind="quicksort", stable=False),
}
if SINCE_2_5:
    KINDS["descending"] = lambda x: np.sort(x, kind="stable", descending=False)


@ways
@pytest.mark.parametrize("name", KINDS)
def test_two_ways_to_say_the_algorithm(way: Any, name: str) -> None:
    """NumPy takes one of them."""
    with pytest.raises(ValueError, match="can't be provided at the same time"):
        way(KINDS[name], X)


# ---- other changes ----


@ways
@pytest.mark.parametrize("name", ["eig", "eigvals"])
def test_dtype_of_eigenvalues(way: Any, name: str) -> None:
    """That of NumPy, which is complex for all matrices since 2.5."""
    fn = lambda x: np.ravel(getattr(np.linalg, name)(x)[0])
    a = np.array([[2.0, 1.0], [1.0, 3.0]])
    expected = np.dtype(complex) if way is WAYS["fake"] else fn(a).dtype
    assert way(fn, a).dtype == expected


@new
@ways
def test_fix_warns(way: Any) -> None:
    """At the line that calls it."""
    with pytest.warns(DeprecationWarning, match="Use numpy.trunc instead") as seen:
        found = way(lambda x: np.fix(x), X)
    assert seen[0].filename == __file__
    assert found.shape == X.shape


def _sum_of_ends(x: Any) -> Any:
    match x:
        case [first, *_, last]:
            return first + last
        case _:
            return -x


@ways
def test_structural_patterns(way: Any) -> None:
    """Arrays are sequences for `match` where NumPy's are, and never for isinstance."""
    expected, found = _sum_of_ends(X), way(_sum_of_ends, X)
    assert found.shape == expected.shape
    if way is not WAYS["fake"]:
        np.testing.assert_array_equal(found, expected)


def test_tracers_are_no_sequences() -> None:
    """Of `collections.abc`, as arrays are none."""
    assert not issubclass(co.FakeArray, Sequence)
    assert not isinstance(co.fake_like(X), Sequence)
