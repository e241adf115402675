"""Reductions and products: cases beyond the conformance table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.errors import ArgumentError

X = np.array([[1.0, 3.0, 2.0], [4.0, 0.5, 6.0]])


# ---- ties and zeros ----


@pytest.mark.parametrize(
    ("fn", "expected"), [(np.max, [0.0, 0.5, 0.5]), (np.min, [1.0, 0.0, 0.0])]
)
def test_ties_share_the_gradient(fn: Callable[..., Any], expected: list[float]) -> None:
    """Equal extreme elements share the gradient evenly."""
    assert co.grad(fn)(np.array([1.0, 2.0, 2.0])).tolist() == expected


def test_gradient_of_max_sums_to_one_over_several_axes() -> None:
    """The shares of equal elements sum to one over several axes."""
    x = np.array([[2.0, 2.0], [1.0, 2.0]])
    grads = co.grad(lambda v: np.max(v, axis=(0, 1)))(x)
    assert np.isclose(grads, [[1 / 3, 1 / 3], [0, 1 / 3]]).all()


def test_hessian_of_a_product_with_zeros_is_exact() -> None:
    """Second derivatives of x y z at (0, 2, 0) are products of the other factors."""
    hessian = co.hessian(np.prod)(np.array([0.0, 2.0, 0.0]))
    assert hessian.tolist() == [[0, 0, 2], [0, 0, 0], [2, 0, 0]]


def test_third_derivative_of_a_running_product_with_zeros_is_exact() -> None:
    """The last of the running products of (x, y, z) has the third derivative 1."""
    third = co.jacfwd(co.hessian(lambda v: np.cumprod(v)[-1]))(np.zeros(3))
    assert third[0, 1, 2] == 1.0
    assert third.sum() == 6.0


def test_gradient_of_sort_follows_the_elements() -> None:
    """Each element gets the weight of its place in the sorted array."""
    weights = np.array([10.0, 20.0, 30.0])
    grads = co.grad(lambda v: np.sum(np.sort(v) * weights))(np.array([3.0, 1.0, 2.0]))
    assert grads.tolist() == [30.0, 10.0, 20.0]


def test_sort_of_ties_keeps_the_order_of_elements() -> None:
    """Equal elements keep their order."""
    weights = np.array([1.0, 2.0, 3.0])
    grads = co.grad(lambda v: np.sum(np.sort(v) * weights))(np.array([2.0, 2.0, 1.0]))
    assert grads.tolist() == [2.0, 3.0, 1.0]


# ---- dtypes ----


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("fn", [np.sum, np.mean, np.max, np.prod, np.var, np.std])
def test_gradient_has_the_dtype_of_the_input(
    fn: Callable[..., Any], dtype: Any
) -> None:
    """Gradients of reductions have the dtype of their input."""
    assert co.grad(fn)(X.astype(dtype)).dtype == dtype


def test_sum_in_another_dtype_has_a_gradient_in_its_own() -> None:
    """A sum of float32 values in float64 has a float32 gradient."""
    x = X.astype(np.float32)
    value, grads = co.value_and_grad(lambda v: np.sum(v, dtype=np.float64))(x)
    assert (value.dtype, grads.dtype) == (np.float64, np.float32)


# ---- arguments without an operator ----

_REFUSED: dict[str, Callable[[Any], Any]] = {
    "np.argsort(kind='heapsort')": lambda x: np.argsort(x, kind="heapsort"),
    "np.sort(order='a')": lambda x: np.sort(x, order="a"),
    "np.partition(order='a')": lambda x: np.partition(x, 1, order="a"),
    "np.linalg.norm(ord='nuclear')": lambda x: np.linalg.norm(x, "nuclear"),
    "np.linalg.norm(ord=3)": lambda x: np.linalg.norm(x, 3),
}


@pytest.mark.parametrize("call", list(_REFUSED), ids=list(_REFUSED))
def test_unsupported_arguments_are_refused(call: str) -> None:
    """An argument without an operator raises an error that names it."""
    with pytest.raises(ArgumentError) as raised:
        co.eval_shape(_REFUSED[call], X)
    assert raised.value.what.startswith(
        f"{call} has no operator for traced or fake arrays"
    )


def test_einsum_with_lists() -> None:
    """Subscripts may be lists of numbers from 0 to 51; the error says so."""
    assert co.grad(lambda x: np.einsum(x, [0, 51], []))(X).tolist() == [[1.0] * 3] * 2
    for axis in (-1, 52, 0.5, "a"):
        with pytest.raises(ArgumentError, match="number axes from 0 to 51"):
            co.grad(lambda x, axis=axis: np.einsum(x, [0, axis], []))(X)


def test_einsum_in_a_narrower_dtype_is_refused() -> None:
    """`dtype=` needs a `casting=` that allows it, as in NumPy."""
    with pytest.raises(ArgumentError, match="is not cast to dtype=int64"):
        co.eval_shape(lambda x: np.einsum("ij->", x, dtype=int), X)
    fake = co.eval_shape(lambda x: np.einsum("ij->", x, dtype=int, casting="unsafe"), X)
    assert fake.dtype == int


@pytest.mark.parametrize("fn", [np.sum, np.max, np.cumsum, np.sort, np.argmax])
def test_axis_out_of_bounds_is_numpys_error(fn: Callable[..., Any]) -> None:
    """A missing axis raises NumPy's error, for fake arrays too."""
    with pytest.raises(np.exceptions.AxisError):
        co.eval_shape(lambda x: fn(x, axis=2), X)


@pytest.mark.parametrize(
    ("fn", "shape"),
    [
        (lambda x, y: np.matmul(x, y), (2, 3)),
        (lambda x, y: np.tensordot(x, y, 1), (2, 3)),
        (lambda x, y: np.einsum("ij,jk", x, y), (2, 3)),
        (lambda x, y: np.einsum("ij", x, y), (2, 3)),
        (lambda x, y: np.einsum("ijk,ij", x, y), (2, 3)),
    ],
)
def test_shapes_that_do_not_fit_are_errors(
    fn: Callable[..., Any], shape: tuple[int, ...]
) -> None:
    """Fake arrays whose shapes do not fit raise, as real ones do."""
    y = np.ones(shape)
    with pytest.raises(ValueError):
        fn(X, y)
    with pytest.raises(ValueError):
        co.eval_shape(fn, X, y)
