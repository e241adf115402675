"""Arrays that are made, edited and put in order: what the tables of samples do not show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import optree
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import customop as co

X = np.array([3.0, 1.0, 2.0])
ROWS = np.stack([X, X + 1.0])


def value(fn: Callable[[Any], Any], x: Any = X) -> Any:
    """The result of a function of a value under grad."""
    return co.vjp(fn, x)[0]


# ---- sets: gradients, and lengths that are not known ----


def test_the_first_of_equal_elements_has_the_gradient() -> None:
    """Unique elements are taken from the array."""
    x = np.array([2.0, 1.0, 2.0, 1.0, 5.0])
    grad = co.grad(lambda x: np.sum(np.unique(x) * np.array([1.0, 10.0, 100.0])))(x)
    np.testing.assert_array_equal(grad, [10.0, 1.0, 0.0, 0.0, 100.0])


UNEVEN: dict[str, Callable[[Any], Any]] = {
    "unique": np.unique,
    "unique_all": np.unique_all,
    "union1d": lambda x: np.union1d(x, X),
    "intersect1d": lambda x: np.intersect1d(x, X),
    "setdiff1d": lambda x: np.setdiff1d(X, x),
    "setxor1d": lambda x: np.setxor1d(x, X),
}


@pytest.mark.parametrize("name", UNEVEN)
def test_lengths_that_depend_on_data(name: str) -> None:
    """Rows have an error that says what keeps the shape, and fake arrays a size."""
    text = "the shape of the result depends"
    with pytest.raises(co.DataDependentError, match=text):
        co.vmap(UNEVEN[name])(ROWS)
    fakes = optree.tree_leaves(co.eval_shape(UNEVEN[name], X))
    real = optree.tree_leaves(UNEVEN[name](X))
    assert [(len(x.shape), x.dtype) for x in fakes] == [(x.ndim, x.dtype) for x in real]
    assert str(fakes[0].shape[0]).startswith("u")


def test_what_the_error_says_keeps_the_shape() -> None:
    """A sum over unique elements, under vmap."""

    def total(x: Any) -> Any:
        s = np.sort(x)
        is_new = np.concatenate([np.ones(1, bool), s[1:] != s[:-1]])
        return np.sum(np.where(is_new, s, 0.0))

    rows = np.array([[1.0, 2.0, 1.0], [4.0, 4.0, 4.0]])
    expected = [np.sum(np.unique(row)) for row in rows]
    np.testing.assert_array_equal(co.vmap(total)(rows), expected)


def test_the_order_of_unique_values_is_numpys() -> None:
    """From NumPy 2.3 on, that of a hash table."""
    x = np.array([300, -2, 7, 7, 10**12, -2])
    out = co.vjp(lambda _: np.unique_values(np.asarray(x, like=_)), X)[0]
    np.testing.assert_array_equal(out, np.unique_values(x))


# ---- bools ----


def test_one_bool_for_all_elements() -> None:
    """A bool of Python where it is known, and one for each row under vmap."""
    assert value(lambda x: x * 2.0 if np.array_equal(x, X) else x).tolist() == [6, 2, 4]
    assert co.eval_shape(lambda x: np.allclose(x, X), X).dtype == np.bool_
    found = co.vmap(lambda x: np.where(np.allclose(x, X), x, 0.0))(ROWS)
    np.testing.assert_array_equal(found, [X, 0.0 * X])
    with pytest.raises(co.DataDependentError):
        co.vmap(lambda x: x if np.array_equal(x, X) else 0.0)(ROWS)


# ---- order ----


def test_gradients_of_equal_elements_are_not_lost() -> None:
    """Each element of a partitioned array comes from another place."""
    x = np.array([1.0, 0.0, 1.0, 0.0, -0.0, 1.0, np.nan, np.nan])
    jacobian = co.jacrev(lambda x: np.partition(x, 3))(x)
    np.testing.assert_array_equal(jacobian.sum(0), np.ones(8))
    np.testing.assert_array_equal(jacobian.sum(1), np.ones(8))


def test_searching_in_rows() -> None:
    """A binary search in all rows at once finds what NumPy finds in each."""
    rng = np.random.default_rng(1)
    for dtype in (np.float64, np.int16, np.complex128):
        for length in (0, 1, 2, 7, 64, 100):
            rows = np.sort(rng.integers(-9, 9, (3, length)).astype(dtype), axis=1)
            values = rng.integers(-10, 10, (3, 5)).astype(dtype)
            for side in ("left", "right"):
                found = co.vmap(lambda a, v, s=side: np.searchsorted(a, v, s))(
                    rows, values
                )
                pairs = zip(rows, values, strict=True)
                expected = [np.searchsorted(a, v, side) for a, v in pairs]
                np.testing.assert_array_equal(found, expected)


# ---- arrays from values ----


def test_an_array_of_traced_values() -> None:
    """`like` is what makes NumPy look for them."""
    jacobian = co.jacrev(lambda x: np.array([x[0], 1.0, x[1] * x[2]], like=x))(X)
    np.testing.assert_array_equal(jacobian, [[1, 0, 0], [0, 0, 0], [0, 2, 1]])
    rows = co.vmap(lambda x: np.asarray([[x[0]], [x[1]]], like=x))(ROWS)
    np.testing.assert_array_equal(rows, ROWS[:, :2, None])


MAKERS: dict[str, Callable[[Any], Any]] = {
    "arange": lambda x: np.arange(3.0, like=x),
    "identity": lambda x: np.identity(3, like=x)[0],
    "tri": lambda x: np.tri(3, like=x)[2],
    "array": lambda x: np.array([0.0, 1.0, 2.0], like=x),
    "full": lambda x: np.full(3, x[1], like=x),
    "full_like": lambda x: np.full_like(x, x[1]),
}


@pytest.mark.parametrize("name", MAKERS)
def test_they_take_traced_values(name: str) -> None:
    """They are arrays of their own, as those of np.zeros are."""

    def fn(x: Any) -> Any:
        out = MAKERS[name](x)
        out[1] = x[0] * 10.0
        return np.sum(out) + np.sum(MAKERS[name](x))

    slopes = [
        (fn(X + h) - fn(X - h)) / 2e-6 for h in 1e-6 * np.eye(3)
    ]  # plain NumPy: like is an array
    np.testing.assert_allclose(co.grad(fn)(X), slopes, atol=1e-8)


def test_a_value_of_an_inner_transform_in_an_array_like_an_outer_one() -> None:
    """The array belongs to the inner transform."""

    def outer(x: Any) -> Any:
        inner = co.grad(lambda y: np.sum(np.array([y * y, y], like=x) * 3.0))
        return inner(np.asarray(2.0)) * np.sum(x)

    assert co.grad(outer)(X) == pytest.approx(np.full(3, 15.0))


def test_full_of_traced_values() -> None:
    """Numbers and arrays to fill with have derivatives."""
    jacobian = co.jacrev(lambda x: np.full_like(x, np.sum(x * x)))(X)
    np.testing.assert_array_equal(jacobian, np.tile(2 * X, (3, 1)))
    jacobian = co.jacrev(lambda x: np.full((2, 3), x, like=x)[1])(X)
    np.testing.assert_array_equal(jacobian, np.eye(3))
    assert value(lambda x: np.full(2, np.int8(3), like=x)).dtype == np.int8
    assert value(lambda x: np.full_like(x, x[0], dtype=np.float32)).dtype == np.float32


# ---- sequences ----


def test_a_zero_in_a_geometric_sequence() -> None:
    """An error where it is known."""
    with pytest.raises(ValueError, match="cannot include zero"):
        value(lambda x: np.geomspace(x - 1.0, 8.0, 3))
    assert co.eval_shape(lambda x: np.geomspace(x, 8.0, 3), X).shape == (3, 3)


def test_ends_of_sequences_are_exact() -> None:
    """The last element is the end, and has its derivative alone."""
    jacobian = co.jacrev(lambda x: np.geomspace(x[0], x[1], 4)[-1])(X)
    np.testing.assert_array_equal(jacobian, [0.0, 1.0, 0.0])
    jacobian = co.jacrev(lambda x: np.linspace(x[0], x[1], 4)[-1])(X)
    np.testing.assert_array_equal(jacobian, [0.0, 1.0, 0.0])
    # Between ends of other signs there is nothing; two elements do not need it.
    with np.errstate(invalid="ignore"):
        ends = co.jacrev(lambda x: np.geomspace(x[0], -x[1], 2))(X)
    np.testing.assert_array_equal(ends, [[1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])


def test_sequences_are_numpys_to_the_last_bit() -> None:
    """Sums of steps may miss the end, and steps may underflow."""
    rng = np.random.default_rng(4)
    ends = [*rng.uniform(-3, 3, (20, 2)), np.array([0.0, 5e-324]), np.ones(2)]
    for start, stop in ends:
        expected = np.linspace(start, stop, 7)
        found = co.vjp(lambda a, b: np.linspace(a, b, 7), start, stop)[0]
        np.testing.assert_array_equal(found, expected)
        rows = co.vmap(lambda a, b: np.linspace(a, b, 7))(
            np.array([start, 1.0]), np.array([stop, 1.0])
        )
        np.testing.assert_array_equal(rows[0], expected)


# ---- edits ----


def test_places_that_are_not_known() -> None:
    """One element is deleted in each row; other edits need places."""
    places = np.array([2, 0])
    rows = co.vmap(np.delete)(ROWS, places)
    pairs = zip(ROWS, places, strict=True)
    np.testing.assert_array_equal(rows, [np.delete(r, i) for r, i in pairs])
    for edit in (np.insert, lambda x, i, _: np.delete(x, np.stack([i, i]))):
        with pytest.raises(co.DataDependentError, match="must be known"):
            co.vmap(lambda x, i, edit=edit: edit(x, i, 1.0))(ROWS, places)


def test_values_that_numpy_does_not_cast() -> None:
    """np.place and np.putmask cast safely, but for scalars."""
    for write in (np.place, np.putmask):

        def fn(x: Any, new: Any, write: Any = write) -> Any:
            out = x.astype(np.float32)
            write(out, [True, False, True], new)
            return np.sum(out)

        with pytest.raises(TypeError, match=r"annot cast .*float64.*float32"):
            fn(X, np.ones(1))
        with pytest.raises(TypeError, match="cannot cast from float64 to float32"):
            co.grad(lambda x, fn=fn: fn(x, x[:1]))(X)
        assert fn(X, np.float64(1.0)) == 3.0
        assert value(lambda x, fn=fn: fn(x, np.sum(x) * 0.0 + 1.0)) == 3.0


def test_counts_that_are_not_known() -> None:
    """They decide how long the result of np.repeat is."""
    with pytest.raises(co.DataDependentError, match=r"np\.repeat by counts"):
        co.vmap(lambda x: np.repeat(x, x.astype(int)))(ROWS)
    assert value(lambda x: np.repeat(x, x.astype(int))).tolist() == [3, 3, 3, 1, 2, 2]


def test_windows_of_other_lengths() -> None:
    """Errors where NumPy has one."""
    for shape, axis in ((4, 0), (-1, 0), ((2, 2), 0), (2, 1)):
        for run in (value, lambda f: f(X)):
            with pytest.raises(ValueError, match=r"\w"):
                run(lambda x, s=shape, a=axis: sliding_window_view(x, s, a))


# ---- gradients of windows ----


@pytest.mark.parametrize(
    ("shape", "widths", "axes"),
    [
        ((6, 7), (3, 2), (0, 1)),
        ((6, 7), (2, 3), (1, 1)),
        ((5,), (1,), (0,)),
        ((5,), (0,), (0,)),
        ((40,), (39,), (0,)),  # more places than windows
        ((40,), (40,), (-1,)),
        ((2, 5, 4), (2,), (1,)),
        ((0, 5), (2,), (1,)),
    ],
)
def test_gradients_of_windows(shape: Any, widths: Any, axes: Any) -> None:
    """They add each window at its place, as index arrays would, in every form."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=shape)
    places = sliding_window_view(np.arange(x.size).reshape(shape), widths, axes)
    g = rng.normal(size=places.shape)
    expected = np.zeros(x.size)
    np.add.at(expected, places, g)
    expected = expected.reshape(shape)

    def f(x: Any, g: Any = g) -> Any:
        return np.sum(sliding_window_view(x, widths, axes) * g)

    batch = np.stack([x, 2.0 * x], 1)
    for found in (
        co.grad(f)(x),
        co.compile(co.grad(f))(x),
        co.vmap(co.grad(f), in_dims=1)(batch)[1],
        co.vmap(lambda g: co.grad(lambda x: f(x, g))(x))(g[None])[0],
    ):
        np.testing.assert_allclose(found, expected, atol=1e-14)
    assert co.eval_shape(co.grad(f), x).shape == shape
    by_g = co.grad(lambda g: np.sum(co.grad(lambda x: f(x, g))(x) * x))(g)
    np.testing.assert_allclose(by_g, x.ravel()[places])
