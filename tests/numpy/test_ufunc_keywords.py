"""Keywords of ufuncs on traced values: where, dtype, signature, casting, order, subok."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.array([[0.5, -1.5, 2.5], [3.0, 0.0, -5.5]])
W = X.astype("i4")

CALLS: dict[str, Callable[[Any], Any]] = {
    "dtype": lambda x: np.add(x, 1, dtype="f4"),
    "dtype of a comparison": lambda x: np.less(x, 1, dtype=bool),
    "dtype of two results": lambda x: np.divmod(x, 2, dtype="f4"),
    "dtype of a method": lambda x: np.multiply.outer(x, x, dtype="f4"),
    "dtype that needs a cast": lambda x: np.sin(x.astype("i2"), dtype="f8"),
    "signature": lambda x: np.multiply(x, x, signature="ff->f"),
    "signature by parts": lambda x: np.add(x, 1, signature=("f4", None, None)),
    "unsafe": lambda x: np.add(x, 1.75, dtype="i4", casting="unsafe"),
    "no cast": lambda x: np.add(x, 1.5, casting="no"),
    "no cast of floats": lambda x: np.add(x, W, casting="no"),
    "no cast to integers": lambda x: np.add(x, 1, dtype="i4"),
    "no loop": lambda x: np.less(x, 1, dtype="f8"),
    "subok": lambda x: np.sqrt(np.absolute(x), subok=False),
    "order F": lambda x: np.multiply(x, x, order="F"),
    "order C": lambda x: np.multiply(x.T, x.T, order="C"),
}


def graded(fn: Callable[[Any], Any]) -> Any:
    """The result under vjp."""
    return co.vjp(lambda x: (fn(x), x), X)[0][0]


def batched(fn: Callable[[Any], Any]) -> Any:
    """The result for one row of a batch."""
    found = co.vmap(fn)(np.stack([X + 1, X]))
    return tuple(f[1] for f in found) if isinstance(found, tuple) else found[1]


@pytest.mark.parametrize("way", [graded, batched])
@pytest.mark.parametrize("name", CALLS)
def test_keyword_is_numpys(way: Any, name: str) -> None:
    """The values, dtypes and errors are NumPy's."""
    call = CALLS[name]
    try:
        expected: Any = call(X)
    except TypeError as error:
        with pytest.raises(type(error), match=r"annot cast|No loop"):
            way(call)
        return
    for found, known in zip(
        np.atleast_1d(way(call)), np.atleast_1d(expected), strict=True
    ):
        np.testing.assert_array_equal(found, known, strict=True)


@pytest.mark.parametrize("order", ["C", "F"])
def test_order_of_the_axes(order: Any) -> None:
    """order= chooses how the result lies in memory, of fake arrays too."""
    for x in (X, X.T):
        known = np.add(x, 1.0, order=order)
        fake = co.eval_shape(lambda x: np.add(x, 1.0, order=order), x)
        assert fake.strides == known.strides


TWO_RESULTS: dict[str, Callable[[Any, Any], Any]] = {
    "positional": np.modf,
    "second, positional": lambda x, out: np.modf(x, None, out),
    "first": lambda x, out: np.modf(x, out=(out, None)),
    "second": lambda x, out: np.divmod(x, 0.7, out=(None, out)),
}


@pytest.mark.parametrize("way", [graded, batched])
@pytest.mark.parametrize("name", TWO_RESULTS)
def test_out_for_one_of_two_results(way: Any, name: str) -> None:
    """The other one is a new array."""

    def program(x: Any) -> Any:
        out = np.zeros_like(x)
        found = TWO_RESULTS[name](x, out)
        return (*found, out)

    for found, known in zip(way(program), program(X), strict=True):
        np.testing.assert_array_equal(found, known)
    with pytest.raises(co.ArgumentError, match="pass out= too"):
        way(lambda x: np.modf(x, out=(np.zeros_like(x), None), where=x > 0))


def logs(x: Any, mask: Any) -> Any:
    """Logarithms where a mask is set, 7 elsewhere."""
    out = np.full_like(x, 7.0)
    np.log(x, where=mask, out=out)
    return out


def test_where_with_out() -> None:
    """Only the elements of the mask are computed: no warning, no gradient elsewhere."""
    expected = np.where(X > 0, np.log(np.where(X > 0, X, 1.0)), 7.0)
    value, pullback = co.vjp(lambda x: logs(x, X > 0), X)
    np.testing.assert_array_equal(value, expected)
    (grads,) = pullback(np.ones_like(X))
    np.testing.assert_array_equal(grads, np.where(X > 0, 1 / np.where(X > 0, X, 1), 0))
    batch = co.vmap(logs)(np.stack([X, X]), np.stack([X > 0, X > 1]))
    np.testing.assert_array_equal(batch[0], expected)
    assert (batch[1] == 7.0).sum() == 4


@pytest.mark.parametrize(
    "name", ["arcsin", "arccos", "arctanh", "arccosh", "reciprocal"]
)
def test_where_is_harmless(name: str) -> None:
    """Elements outside the mask have no effect, whatever they are, on all derivatives."""
    ufunc, x = getattr(np, name), np.array([0.5, np.nan, 9.0, 0.0])
    x[0] = 1.5 if name == "arccosh" else 0.5

    def fn(x: Any) -> Any:
        return np.sum(ufunc(x, where=[True, False, False, False], out=np.zeros_like(x)))

    for depth in (fn, lambda x: np.sum(co.grad(fn)(x))):
        assert np.isfinite(depth(x))
        assert np.isfinite(co.grad(depth)(x)).all()


def test_where_takes_flags_only() -> None:
    """A mask of integers is an error, as in NumPy."""
    with pytest.raises(co.ArgumentError, match="is an array of int64, must be of bool"):
        co.grad(lambda x: np.sum(np.exp(x, where=np.array([1, 0, 1]), out=x * 1)))(X)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "?"])
@pytest.mark.parametrize("name", ["sum", "max", "any", "prod", "add.reduce"])
def test_reductions_into_another_dtype(name: str, dtype: str) -> None:
    """A reduction computes in the dtype that holds those of the array and of `out`."""
    x = np.array([16777216.0, 1.5, -2.25, 0.5], "f4")
    fn = np.add.reduce if name == "add.reduce" else getattr(np, name)
    expected = np.zeros((), dtype)
    fn(x, out=expected)

    def into(x: Any) -> Any:
        out = np.zeros((), dtype, like=x)
        fn(x, out=out)
        return out

    np.testing.assert_array_equal(co.vmap(into)(x[None])[0], expected)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.float32, np.complex64])
def test_squares_have_numpys_dtype(dtype: Any) -> None:
    """X ** 2 of an array is its square: of flags int8, where np.power gives int64."""
    x = np.array([1, 0, 1], dtype)
    for exponent in (2, True, 3, 2.0, np.int8(2)):
        expected = x**exponent
        found = co.vmap(lambda x, y=exponent: x**y)(x[None])[0]
        np.testing.assert_array_equal(found, expected, strict=True)
