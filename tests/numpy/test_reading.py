"""Values that are written into arrays are read and cast as by NumPy."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

M = np.array([True, False, True, False])


def increased(x: Any, w: Any) -> None:
    x[0] += w[0]


def flat_increased(x: Any, w: Any) -> None:
    x.flat[0] += w[0]


# The first array is written; the numbers are elements of the second.
WRITES: dict[str, Callable[[Any, Any], object]] = {
    "element": lambda x, w: operator.setitem(x, 0, w[0]),
    "sum": lambda x, w: operator.setitem(x, 0, np.sum(w)),
    "slice": lambda x, w: operator.setitem(x, slice(1, 3), w[0]),
    "dots": lambda x, w: operator.setitem(x, ..., w[0]),
    "indices": lambda x, w: operator.setitem(x, [0, 2], w[0]),
    "mask": lambda x, w: operator.setitem(x, M, w[0]),
    "array without axes": lambda x, w: operator.setitem(x, 0, w[0, ...]),
    "array": lambda x, w: operator.setitem(x, slice(1, 3), w),
    "array for one element": lambda x, w: operator.setitem(x, 0, w),
    "list": lambda x, w: operator.setitem(x, slice(2), [w[0], w[1]]),
    "list with a number": lambda x, w: operator.setitem(x, slice(2), [w[1], 300]),
    "list for one element": lambda x, w: operator.setitem(x, 0, [w[0]]),
    "op=": increased,
    "fill": lambda x, w: x.fill(w[0]),
    "fill array": lambda x, w: x.fill(w),
    "flat": lambda x, w: operator.setitem(x.flat, 0, w[0]),
    "flat op=": flat_increased,
    "flat array": lambda x, w: operator.setitem(x.flat, 0, w),
    "flat slice": lambda x, w: operator.setitem(x.flat, slice(1, 3), w[0]),
    "flat list": lambda x, w: operator.setitem(x.flat, slice(2), [w[0], w[1]]),
    "put": lambda x, w: x.put([0], w[0]),
    "copyto": lambda x, w: np.copyto(x, w[0], casting="unsafe"),
    "add.at": lambda x, w: np.add.at(x, [0, 0], w[0]),
    "add.at array": lambda x, w: np.add.at(x, [0, 0], w),
}

WAYS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "make_fx": lambda f, x, w: co.make_fx(f, "fake")(x, w)(x, w),
    "vmap": lambda f, x, w: co.vmap(f)(np.stack([x, x]), np.stack([w, w]))[0],
    "compile": lambda f, x, w: co.compile(f)(x, w),
}

PAIRS = [[1, 2], [200, 1], [300, 2], [-1, 0], [1.5, 2], [-3.0, 1], [np.nan, 1], [1e30, 1]]  # fmt: skip


def outcome(fn: Callable[[], Any]) -> Any:
    """The result as text, or the class of NumPy's error."""
    try:
        return repr(fn())
    except (TypeError, ValueError, OverflowError) as error:
        return next(c for c in type(error).__mro__ if c.__module__ == "builtins")


def compare(name: str, dtype: str, others: str) -> None:
    def write(x: Any, w: Any) -> Any:
        y = x.copy()
        WRITES[name](y, w)
        return y

    x = np.array([1, 0, 1, 1], dtype)
    for other in others:
        for pair in PAIRS:
            w = np.array(pair).astype(other)
            expected = outcome(lambda: write(x, w))  # noqa: B023  # called at once
            for way, run in WAYS.items():
                found = outcome(lambda: run(write, x, w))  # noqa: B023  # called at once
                assert found == expected, (way, dtype, w)


@pytest.mark.parametrize("name", WRITES)
def test_numbers_that_are_traced_are_read_as_by_numpy(name: str) -> None:
    """One that does not fit into integers is an error, also when a graph runs."""
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        compare(name, "b", "d")


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", "L?")
@pytest.mark.parametrize("name", WRITES)
def test_all_dtypes_are_read_as_by_numpy(name: str, dtype: str) -> None:
    """Into arrays of every kind."""
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        compare(name, dtype, "Bf")


# ---- values that are not traced ----

PLAIN: dict[str, Callable[[Any, Any], object]] = {
    "element": lambda x, v: operator.setitem(x, 0, v),
    "slice": lambda x, v: operator.setitem(x, slice(1, 3), v),
    "fill": lambda x, v: x.fill(v),
    "flat": lambda x, v: operator.setitem(x.flat, 0, v),
    "flat slice": lambda x, v: operator.setitem(x.flat, slice(1, 3), v),
    "all flat": lambda x, v: setattr(x, "flat", v),
    "put": lambda x, v: np.put(x, [0, 2], v),
    "copyto": lambda x, v: np.copyto(x, v),
    "copyto unsafe": lambda x, v: np.copyto(x, v, casting="unsafe"),
    "add.at": lambda x, v: np.add.at(x, [0, 0], v),
    "out": lambda x, v: np.positive(v, out=x),
    "x op=": lambda x, v: operator.imul(x, v),
}
VALUES: list[Any] = [
    *(True, 2, 300, 1.5, 300.0, float("nan"), 1j, [1], [300], [1.5]),
    *(np.int64(300), np.array(300), np.array([300]), np.uint8(200), np.float64(300)),
]


@pytest.mark.parametrize("name", PLAIN)
def test_plain_values_are_read_as_by_numpy(name: str) -> None:
    """Numbers of Python and NumPy, lists and arrays."""

    def write(x: Any, v: Any) -> Any:
        PLAIN[name](x, v)
        return x

    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        for dtype in "?bLfD":
            x = np.array([1, 0, 1, 1], dtype)
            for v in VALUES:
                expected = outcome(lambda: write(x.copy(), v))  # noqa: B023  # called at once
                fn = lambda x: write(x, v)  # noqa: B023  # called at once
                found = outcome(lambda: co.make_fx(fn, "fake")(x)(x.copy()))  # noqa: B023  # called at once
                assert found == expected, (dtype, v)


@pytest.mark.parametrize("value", [np.int64(300), np.float64(1e30), np.float64("nan")])
@pytest.mark.parametrize("name", ["element", "fill", "flat", "flat slice"])
def test_numbers_of_later_calls_are_read_as_by_numpy(name: str, value: Any) -> None:
    """A number that does not fit is the error of NumPy, also where a graph runs again."""

    def write(x: Any, v: Any) -> Any:
        y = x.copy()
        PLAIN[name](y, v)
        return y

    x, small = np.arange(4, dtype=np.int8), type(value)(1)
    compiled = co.compile(write)
    runs = [compiled, *(co.make_fx(write, m)(x, small) for m in ("real", "symbolic"))]
    compiled(x, small)
    with np.errstate(invalid="ignore"):
        expected = outcome(lambda: write(x, value))
        for run in runs:
            assert outcome(lambda: run(x, value)) == expected  # noqa: B023  # called at once


# ---- np.place ----


def test_values_are_placed_by_masks_that_are_traced() -> None:
    """The values come in order, and again from the first."""

    def place(x: Any, mask: Any, values: Any) -> Any:
        y = x.copy()
        np.place(y, mask, values)
        return y

    rng = np.random.default_rng(5)
    for shape in ((3,), (2, 3), (0,)):
        for count in (1, 2, 5):
            x, values = rng.normal(size=shape), rng.normal(size=count)
            mask, twice = rng.random(shape) < 0.6, np.stack([x, x])
            plain = place(x.copy(), mask, values)
            rows = co.vmap(place, (0, 0, None))(twice, np.stack([mask] * 2), values)
            np.testing.assert_array_equal(rows[1], plain)
            graph = co.make_fx(place, "symbolic")(x, mask, values)
            np.testing.assert_array_equal(graph(x, mask, values), plain)
    with pytest.raises(ValueError, match="place: mask and data must be the same size"):
        co.vmap(place)(np.ones((2, 3)), np.ones((2, 2), bool), np.ones((2, 1)))


# ---- lists as operands ----


LISTS: dict[str, Callable[[Any], Any]] = {
    "times": lambda x: x * [1, 2, 3],
    "reflected": lambda x: (1.0, 2.0, 3.0) - x,
    "maximum": lambda x: np.maximum([0.1, 0.5, 0.5], x),
    "matmul": lambda x: x @ [1, 2, 3],
    "of traced values": lambda x: operator.add(x, [x[0], 1, 2]),
    "nested": lambda x: np.add(x, [[1], [2]]),
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_are_operands_as_in_numpy(name: str) -> None:
    """Also those of traced values."""
    fn = LISTS[name]
    x = np.array([0.5, -1.0, 2.0])
    plain = fn(x)
    np.testing.assert_array_equal(co.vmap(fn)(x[None])[0], plain)
    np.testing.assert_array_equal(co.make_fx(fn)(x)(x), plain)
    slope = co.jvp(fn, (x,), (np.ones(3),))[1]
    ahead, behind = fn(x + 1e-6), fn(x - 1e-6)
    np.testing.assert_allclose(slope, (ahead - behind) / 2e-6, rtol=1e-6)
    assert fn(co.FakeArray((3,), "float64")).dtype == plain.dtype
