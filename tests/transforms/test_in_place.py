"""In-place code under transforms gives NumPy's numbers: a tracer is a box."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.numpy.arguments import SINCE_2_5

X = np.array([0.5, -1.25, 2.0])


def alias(x: Any) -> Any:
    y = x * 1.0
    z = y
    z *= 3.0
    return np.sum(y)


def add_to(a: Any, b: Any) -> None:
    a += b


def by_helper(x: Any) -> Any:
    total = x * 1.0
    add_to(total, x * x)
    return np.sum(total)


def by_view(x: Any) -> Any:
    y = x * 2.0
    v = y[0:1]
    v += 5.0 * x[1:2]
    return np.sum(y * y)


def seen_in_view(x: Any) -> Any:
    y = x * 2.0
    v = y[::-1]
    y *= x
    return np.sum(v * x)


def item(x: Any) -> Any:
    y = x * 1.0
    y[1] = x[0] * x[2]
    y[0] += y[1]
    return np.sum(y * x)


def narrow(x: Any) -> Any:
    y = x.astype(np.float32)
    y *= x
    assert y.dtype == np.float32
    return np.sum(y * x)


def saved(x: Any) -> Any:
    y = np.exp(x)
    z = np.sin(y)
    y *= 2.0
    return np.sum(z + y)


def of_input(x: Any) -> Any:
    x *= x
    return np.sum(x * 3.0)


PROGRAMS = {
    fn.__name__: fn
    for fn in (
        alias,
        by_helper,
        by_view,
        seen_in_view,
        item,
        narrow,
        saved,
        of_input,
    )
}


def slopes(fn: Callable[[Any], Any], x: Any, h: float = 1e-6) -> Any:
    """Central differences of a function of an array."""
    found = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = h
        found[i] = (fn(x + step) - fn(x - step)) / (2 * h)
    return found


@pytest.mark.parametrize("fn", PROGRAMS.values(), ids=PROGRAMS)
def test_in_place_programs_give_numpys_numbers(fn: Callable[[Any], Any]) -> None:
    """The value is NumPy's, the gradient fits central differences, x is unchanged."""
    expected = fn(X.copy())
    given = X.copy()
    value, gradient = co.value_and_grad(fn)(given)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    tolerance = 2e-2 if fn is narrow else 1e-6
    np.testing.assert_allclose(
        gradient, slopes(fn, X, 1e-2 if fn is narrow else 1e-6), tolerance, tolerance
    )
    np.testing.assert_array_equal(given, X)


def test_a_shape_that_numpy_refuses() -> None:
    """``x += y`` does not grow x."""

    def grow(x: Any) -> Any:
        y = np.sum(x, keepdims=True)
        y += x
        return np.sum(y)

    with pytest.raises(ValueError, match="broadcast"):
        grow(X)
    with pytest.raises(co.ShapeError, match="broadcast"):
        co.grad(grow)(X)


def test_a_cast_that_numpy_refuses() -> None:
    """Floats are not added to an array of integers in place."""

    def add(x: Any) -> Any:
        count = np.zeros_like(x, dtype=int)
        count += x
        return np.sum(count)

    with pytest.raises(TypeError, match="cast"):
        add(X)
    with pytest.raises(TypeError):
        co.vmap(add)(X[None])


def test_an_update_of_a_view_writes_once() -> None:
    """In Python ``y[key] += t`` writes the view, and then the view into its own place."""

    def update(x: Any) -> Any:
        y = x * 2.0
        y[1:] += x[:-1]
        v = y[:2]
        y *= x
        y[:2] = v
        return y

    graph = co.make_fx(update)(X)
    names = [node.target.name for node in graph.graph.nodes if node.op == "call"]
    assert names.count("slice_set") == 1
    np.testing.assert_array_equal(graph(X), update(X))


def test_add_at_writes_read_only_arrays_where_numpy_does() -> None:
    """NumPy 2.4 does, as the guide says: no code of ours runs in such a call."""
    fixed, plain = np.zeros(3), np.zeros(3)
    plain.flags.writeable = False

    def loss(x: Any, count: Any) -> Any:
        assert not count.flags.writeable
        np.add.at(count, [0], 1.0)
        return np.sum(x * count)

    if SINCE_2_5:
        with pytest.raises(ValueError, match="is read-only"):
            np.add.at(plain, [0], 1.0)
        with pytest.raises(ValueError, match="is read-only") as raised:
            co.grad(loss)(np.ones(3), fixed)
        assert "count = count.copy()" in raised.value.__notes__[-1]
        np.testing.assert_array_equal(fixed, np.zeros(3))
        return
    np.add.at(plain, [0], 1.0)
    slope = co.grad(loss)(np.ones(3), fixed)
    for written in (plain, slope, fixed):
        np.testing.assert_array_equal(written, [1.0, 0.0, 0.0])
