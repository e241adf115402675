"""Functions and methods that write an array: NumPy's results, rows and slopes."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import customop as co

M = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75], [1.0, 3.0, -2.5]])
V = np.array([3.0, -0.5, 1.25])
MASK = np.array([[True, False, True], [False, False, True], [True, True, False]])
TWICE = np.array([0, 2, 0])

# Each writes the first array; the second is a vector that is traced too.
WRITES: dict[str, Callable[[Any, Any], object]] = {
    "x op= y": lambda x, v: operator.iadd(x, v),
    "x op= number": lambda x, v: operator.itruediv(x, 2.5),
    "x op= matrix": lambda x, v: operator.imatmul(x, x * v),
    "power": lambda x, v: operator.ipow(x, 2),
    "row": lambda x, v: operator.setitem(x, 1, v),
    "column": lambda x, v: operator.setitem(x, (slice(None), 1), v),
    "reversed": lambda x, v: operator.setitem(x, slice(None, None, -1), v * v),
    "number": lambda x, v: operator.setitem(x, (0, 0), np.sum(v)),
    "dots": lambda x, v: operator.setitem(x, (..., 0), v),
    "new axis": lambda x, v: operator.setitem(x, (None, 0), v),
    "leading axes of length one": lambda x, v: operator.setitem(x, 0, v[None, None]),
    "indices": lambda x, v: operator.setitem(x, [0, 2], v),
    "indices twice": lambda x, v: operator.setitem(x, (TWICE, 1), v),
    "indices apart": lambda x, v: operator.setitem(x, ([0, 1], ..., [1, 2]), v[:2]),
    "mask": lambda x, v: operator.setitem(x, MASK, 0.5),
    "mask with values": lambda x, v: operator.setitem(x, MASK, np.arange(5.0) * v[0]),
    "mask by data": lambda x, v: operator.setitem(x, x > 0.3, v[0]),
    "rows of a mask": lambda x, v: operator.setitem(x, MASK[0], v),
    "fill": lambda x, v: x.fill(v[1]),
    "sort": lambda x, v: x.sort(axis=0),
    "flat": lambda x, v: setattr(x, "flat", v),
    "flat part": lambda x, v: operator.setitem(x.flat, slice(2, 7, 2), v),
    "put method": lambda x, v: x.put([0, -1], v),
    "put": lambda x, v: np.put(x, [5, 1, 5], v),
    "put wrapped": lambda x, v: np.put(x, [13, -20], v, mode="wrap"),
    "put clipped": lambda x, v: np.put(x, [13, -20], v, mode="clip"),
    "putmask": lambda x, v: np.putmask(x, MASK, v),
    "place": lambda x, v: np.place(x, MASK, v[:2]),
    "fill_diagonal": lambda x, v: np.fill_diagonal(x, v),
    "fill_diagonal wrapped": lambda x, v: np.fill_diagonal(x[:, :2], v, wrap=True),
    "put_along_axis": lambda x, v: np.put_along_axis(x, TWICE[:, None], v[:, None], 1),
    "copyto": lambda x, v: np.copyto(x, v),
    "copyto where": lambda x, v: np.copyto(x, v, where=MASK),
    "add.at": lambda x, v: np.add.at(x, TWICE, v),
    "subtract.at": lambda x, v: np.subtract.at(x, (TWICE, TWICE), v),
    "multiply.at": lambda x, v: np.multiply.at(x, TWICE, v),
    "multiply.at apart": lambda x, v: np.multiply.at(x, (slice(None), TWICE), v),
    "maximum.at": lambda x, v: np.maximum.at(x, (TWICE, [1, 1, 1]), v),
    "negative.at": lambda x, v: np.negative.at(x, TWICE),
    "at a view": lambda x, v: np.add.at(x, (slice(1, None), 0), v[0]),
    "ufunc out": lambda x, v: np.multiply(v, x, out=x),
    "ufunc out wide": lambda x, v: np.sin(v, out=x),
    "ufunc out where": lambda x, v: np.sin(x, out=x, where=MASK),
    "function out": lambda x, v: np.cumsum(x, axis=1, out=x),
    "reduction out": lambda x, v: np.sum(x * v, axis=0, out=x[0]),
    "method out": lambda x, v: x.clip(-1.0, 1.0, x),
    "concatenate out": lambda x, v: np.stack([v, v * v, v], out=x),
}


def written(way: str) -> Callable[[Any], Any]:
    """A function of one array that writes a part of a larger one."""

    def fn(x: Any) -> Any:
        whole = np.concatenate([x, x * x], axis=1)
        WRITES[way](whole[:, 3:], x[0])
        return whole

    return fn


def slope(fn: Callable[[Any], Any], x: Any, d: Any, h: float = 1e-6) -> Any:
    """The derivative of a function in a direction, by central differences."""
    return (fn(x + h * d) - fn(x - h * d)) / (2 * h)


@pytest.mark.parametrize("way", WRITES)
def test_the_result_is_numpys(way: str) -> None:
    """Values, slopes, rows and shapes of the whole array, of which a part is written."""
    fn = written(way)
    expected = fn(M.copy())
    direction = np.cos(M)
    value, pull = co.vjp(fn, M)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    value, tangent = co.jvp(fn, (M,), (direction,))
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    moved = slope(fn, M, direction)
    np.testing.assert_allclose(tangent, moved, rtol=1e-6, atol=1e-6)
    cotangent = np.sin(1.0 + np.arange(expected.size)).reshape(expected.shape)
    np.testing.assert_allclose(
        np.sum(pull(cotangent)[0] * direction), np.sum(cotangent * moved), rtol=1e-6
    )
    rows = [M, 2.0 * M]
    for axis in (0, -1):
        batch = np.stack(rows, axis)
        found = co.vmap(fn, in_dims=axis)(batch)
        np.testing.assert_allclose(found, [fn(row.copy()) for row in rows], rtol=1e-12)
    assert co.eval_shape(fn, M).shape == expected.shape


def outcome(fn: Callable[[Any], Any], x: Any) -> type[Exception] | None:
    """The class of the error of a function, or None."""
    try:
        fn(x)
    except Exception as error:  # noqa: BLE001  # any error of NumPy
        return type(error)
    return None


WRONG: dict[str, Callable[[Any], object]] = {
    "shape": lambda x: operator.iadd(x, np.ones((2, 3, 3))),
    "shape of an item": lambda x: operator.setitem(x, 0, np.ones(2)),
    "out of a reduction": lambda x: np.sum(x, axis=0, out=x),
    "index": lambda x: operator.setitem(x, 3, 1.0),
    "put": lambda x: np.put(x, [9], 1.0),
    "fill": lambda x: x.fill([1.0, 2.0]),
    "too many axes": lambda x: operator.setitem(x, (0, 0, 0), 1.0),
    "mask": lambda x: operator.setitem(x, np.array([True, False]), 1.0),
    "cast of copyto": lambda x: np.copyto(x, np.ones(3, complex)),
    "cast of out": lambda x: np.add(x, 1j, out=x),
    "cast": lambda x: operator.iadd(x, 1j * np.ones(3)),
    "imaginary part": lambda x: setattr(x, "imag", 1.0),
}


@pytest.mark.parametrize("way", WRONG)
def test_what_numpy_refuses(way: str) -> None:
    """It is refused under each transform too, by a class of NumPy's error."""

    def fn(x: Any) -> Any:
        y = x * 1.0
        WRONG[way](y)
        return np.sum(y)

    error = outcome(fn, M)
    assert error is not None
    known = tuple(e for e in error.__mro__[:-3] if e.__module__ == "builtins")
    for run in (
        lambda: co.grad(fn)(M),
        lambda: co.vmap(fn)(M[None]),
        lambda: co.eval_shape(fn, M),
    ):
        with pytest.raises(known):
            run()


def test_casts_of_assignment() -> None:
    """``x[k] = v`` casts as NumPy does, ``x += v`` keeps the dtype."""

    def fn(x: Any) -> Any:
        small = np.zeros_like(x, dtype=np.float32)
        small[0] = x[1]
        small += x
        counts = np.zeros_like(x, dtype=int)
        counts[1] = 2.75
        assert (small.dtype, counts.dtype) == (np.float32, np.dtype(int))
        return small * counts

    for row in co.vmap(fn)(np.stack([M, M])):
        np.testing.assert_array_equal(row, fn(M))
    np.testing.assert_array_equal(co.vjp(fn, M)[0], fn(M))


def test_masks_of_rows() -> None:
    """``x[mask]`` of a mask by row can be computed with and written back, no more."""

    def fn(x: Any) -> Any:
        y = x * 1.0
        y[y > 0.2] *= 3.0
        y[:, y[0] < 0.0] = 7.0
        y[np.logical_not(y > 0.0)] += np.sum(x)
        return y

    rows = [M, 2.0 * M]
    np.testing.assert_allclose(co.vmap(fn)(np.stack(rows)), [fn(row) for row in rows])
    for bad in (
        lambda x: np.sum(x[x > 0.0]),
        lambda x: x[x > 0.0].shape,
        lambda x: x[x > 0.0] + x[0],
        lambda x: x[x > 0.0] + x[x > 1.0],
        lambda x: operator.setitem(x, x > 0.0, x[0]),
    ):
        with pytest.raises(co.DataDependentError, match=r"np\.where"):
            co.vmap(bad)(np.stack(rows))


BUFFERS: dict[str, Callable[[Any], Any]] = {
    "zeros_like": np.zeros_like,
    "ones_like": np.ones_like,
    "empty_like": np.empty_like,
    "full_like": lambda x: np.full_like(x, 2.0),
    "zeros": lambda x: np.zeros((3, 3), like=x),
    "ones": lambda x: np.ones((3, 3), like=x),
    "empty": lambda x: np.empty((3, 3), like=x),
    "full": lambda x: np.full((3, 3), 2.0, like=x),
    "eye": lambda x: np.eye(3, like=x),
    "computed": lambda x: np.sin(np.zeros_like(x) + 1.0),
}


@pytest.mark.parametrize("name", BUFFERS)
def test_buffers_take_traced_values(name: str) -> None:
    """Arrays that are made like a traced one can be filled."""

    def fn(x: Any) -> Any:
        buffer = BUFFERS[name](x)
        for i in range(3):
            buffer[i] = x[i] * x[0]
        return buffer

    expected = fn(M.copy())
    value, pull = co.vjp(fn, M)
    np.testing.assert_allclose(value, expected)
    moved = slope(fn, M, np.cos(M))
    np.testing.assert_allclose(co.jvp(fn, (M,), (np.cos(M),))[1], moved, rtol=1e-6)
    np.testing.assert_allclose(
        np.sum(pull(np.ones((3, 3)))[0] * np.cos(M)), np.sum(moved), rtol=1e-6
    )
    np.testing.assert_allclose(co.vmap(fn)(np.stack([M, V * M]))[1], fn(V * M))
    assert co.eval_shape(fn, M).shape == (3, 3)


AT = ["add", "divide", "sqrt", "equal", "power", "copysign", "ldexp", "logaddexp"]


@pytest.mark.parametrize("dtype", ["f8", "i8", "?", "f4"])
@pytest.mark.parametrize("name", AT)
def test_at_of_any_ufunc(name: str, dtype: str) -> None:
    """Each turn is cast to the dtype of the array, whatever that loses, as in NumPy."""
    ufunc, places = getattr(np, name), [0, 2, 0]

    def fn(x: Any) -> Any:
        y = x.copy()
        ufunc.at(y, places, *[2 if name == "ldexp" else 1.5] * (ufunc.nin - 1))
        return y

    x = np.array([3, 1, 4]).astype(dtype)
    with np.errstate(all="ignore"):
        found = co.vmap(fn)(x[None])[0]
        np.testing.assert_array_equal(found, fn(x), strict=True)


# ---- numbers of NumPy ----

NUMBERS = [
    *(np.int64(300), np.uint64(2**63), np.float64(1e300), np.float64(math.nan)),
    *(np.float64(-1.5), np.complex64(2.5 + 1j), np.bool_(True), np.array(300)),
]
WRITING = {
    "make_fx": lambda fn, x: co.make_fx(fn)(x)(x),
    "vmap": lambda fn, x: co.vmap(fn)(x[None])[0],
    "compile": lambda fn, x: co.compile(fn)(x),
    "jvp": lambda fn, x: co.jvp(
        lambda t: fn(t.astype(x.dtype)), (x * 1.0,), (x * 1.0,)
    )[0],
}


@pytest.mark.parametrize("key", [0, ..., [0], np.array([True, False])])
@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_numbers_are_written_as_numpy_writes_them(number, key) -> None:
    """At keys without arrays those that do not fit into signed integers are errors."""

    def write(x):
        y = x.copy()
        y[key] = number
        return y

    for x in (np.zeros(2, dtype) for dtype in ("i1", "u2", "?", "f4")):
        with warnings.catch_warnings(action="ignore"):
            expected = _written(write, x)
            for name, way in WRITING.items():
                assert _written(partial(way, write), x) == expected, name
            fake = _written(write, co.FakeArray(x.shape, x.dtype))
        assert isinstance(fake, str) or fake == expected
        assert isinstance(expected, str) or fake == expected


def _written(fn, x):
    """The numbers as text, or the error."""
    try:
        return repr(fn(x))
    except (OverflowError, ValueError) as error:
        return type(error), str(error)


def test_flat_is_not_written_with_elements_of_the_same_array() -> None:
    """NumPy copies them one by one, so that later ones are those written before."""

    def program(x):
        y = x * 1.0
        y.flat[1:] = y
        return np.sum(y)

    for transform in (co.grad, co.make_fx, co.compile):
        with pytest.raises(
            co.ArgumentError, match=r"do: write x\.flat\[key\] = value\.copy"
        ):
            transform(program)(np.arange(3.0))


def test_putmask_with_no_values_writes_nothing() -> None:
    def program(x):
        y = x * 1.0
        np.putmask(y, y > 0, y[:0])
        return np.sum(y * y)

    assert co.grad(program)(np.array([1.0, -2.0])).tolist() == [2.0, -4.0]


def test_a_view_of_a_traced_array_is_not_written_into_a_fake_one() -> None:
    def program(x):
        fake = co.FakeArray((3,), np.float64)
        fake[0:1] = (x * 1.0)[0:1]
        return np.sum(x)

    with pytest.raises(co.ArgumentError, match="would write GradTracer"):
        co.grad(program)(np.ones(3))
