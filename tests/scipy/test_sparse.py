"""Sparse matrices times arrays, compared with dense matrices."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import customop as co

sparse: Any = pytest.importorskip("scipy.sparse", reason="SciPy is not installed")

pytestmark = pytest.mark.exhaustive
import customop.scipy.sparse as ours  # noqa: E402  # after the test for SciPy

RNG = np.random.default_rng(2)
DENSE = RNG.normal(size=(4, 3)) * (RNG.random((4, 3)) < 0.6)
X, WIDE, LEFT = RNG.normal(size=3), RNG.normal(size=(3, 2)), RNG.normal(size=4)
FORMATS = ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")
CLASSES = [f"{f}_{kind}" for f in FORMATS for kind in ("array", "matrix")]


@pytest.mark.parametrize("name", CLASSES)
def test_operators_of_scipy(name: str) -> None:
    """The operators of SciPy's classes see traced arrays; plain ones get SciPy's result."""
    a = getattr(sparse, name)(DENSE)
    np.testing.assert_array_equal(a @ X, getattr(sparse, name)(DENSE) @ X)
    products: list[Any] = [
        lambda x: a @ x,
        lambda x: a.dot(x),
        lambda x: ours.matmul(a, x),
    ]
    if name.endswith("matrix"):
        products.append(lambda x: a * x)
    for product in products:
        found = co.grad(lambda x: np.sum(np.sin(product(x))))(X)  # noqa: B023  # called at once
        np.testing.assert_allclose(found, DENSE.T @ np.cos(DENSE @ X))
    np.testing.assert_allclose(co.jacrev(lambda y: y @ a)(LEFT), DENSE.T)
    np.testing.assert_allclose(co.jacfwd(lambda y: ours.matmul(y, a))(LEFT), DENSE.T)


@pytest.mark.parametrize("x", [X, WIDE], ids=["vector", "columns"])
def test_transforms_of_a_constant(x: Any) -> None:
    """Values, tangents, rows, shapes and second derivatives are those of the dense matrix."""
    a = sparse.csr_array(DENSE)
    both = [lambda x: np.sum(np.sin(a @ x)), lambda x: np.sum(np.sin(DENSE @ x))]
    first, second = (co.hessian(f)(x) for f in both)
    np.testing.assert_allclose(first, second)
    out, tangent = co.jvp(lambda x: a @ x, (x,), (2 * x,))
    np.testing.assert_allclose(out, DENSE @ x)
    np.testing.assert_allclose(tangent, 2 * DENSE @ x)
    rows = np.stack([x, -x, 3 * x], axis=-1)
    found = co.vmap(lambda x: a @ x, -1, -1)(rows)
    np.testing.assert_allclose(
        found, np.stack([DENSE @ x, -DENSE @ x, 3 * DENSE @ x], -1)
    )
    fake = co.eval_shape(lambda x: a @ x, x)
    assert (fake.shape, fake.dtype) == (out.shape, out.dtype)


@pytest.mark.parametrize("dims", [(0, None), (None, 0), (0, 0)])
def test_traced_numbers(dims: Any) -> None:
    """The numbers of a matrix have gradients, in a batch as well."""
    a = sparse.csr_array(DENSE)
    coo = a.tocoo()
    data = np.stack([a.data, 2 * a.data]) if dims[0] == 0 else a.data
    x = np.stack([X, X + 1]) if dims[1] == 0 else X

    def product(data: Any, x: Any) -> Any:
        return ours.with_data(a, data) @ x

    def dense(data: Any, x: Any) -> Any:
        made = np.zeros((4, 3))
        made[coo.row, coo.col] = data
        return made @ x

    rows = [
        (data[i] if dims[0] == 0 else data, x[i] if dims[1] == 0 else x)
        for i in range(2)
    ]
    want = np.stack([dense(*row) for row in rows])
    np.testing.assert_allclose(co.vmap(product, dims)(data, x), want)
    gradient = co.grad(lambda d, x: np.sum(np.sin(product(d, x))), (0, 1))
    for row in rows:
        by_data, by_x = gradient(*row)
        cos = np.cos(dense(*row))
        np.testing.assert_allclose(by_data, cos[coo.row] * row[1][coo.col])
        made = np.zeros((4, 3))
        made[coo.row, coo.col] = row[0]
        np.testing.assert_allclose(by_x, made.T @ cos)
    per_row = co.vmap(gradient, dims)(data, x)
    np.testing.assert_allclose(per_row[1], [gradient(*row)[1] for row in rows])


def test_matrix_of_traced_numbers() -> None:
    """It multiplies from both sides, and has a transpose."""
    a = sparse.csc_array(DENSE)

    def both(data: Any) -> Any:
        made = ours.with_data(a, data)
        return np.sum((LEFT @ made) * (made.T @ LEFT)) + np.sum(made @ WIDE)

    data = a.tocoo().data
    for i, step in itertools.product(range(2), (1e-6,)):
        e = step * np.eye(len(data))[i]
        slope = (both(data + e) - both(data - e)) / (2 * step)
        np.testing.assert_allclose(co.grad(both)(data)[i], slope, rtol=1e-6)
    assert ours.with_data(a, data).shape == (4, 3)


def test_dtypes() -> None:
    """Gradients have the dtype of their arrays; integers and complex numbers work."""
    single = X.astype(np.float32)
    a = sparse.csr_array(DENSE)
    assert co.grad(lambda x: np.sum(a @ x))(single).dtype == np.float32
    whole = sparse.csr_array((DENSE > 0).astype(int))
    found = co.grad(lambda x: np.sum(whole @ x))(X)
    np.testing.assert_array_equal(found, (DENSE > 0).sum(0))
    z = sparse.csr_array(DENSE * 1j)
    _, pullback = co.vjp(lambda x: z @ x, X + 0j)
    np.testing.assert_allclose(pullback(LEFT + 0j)[0], DENSE.T @ LEFT * 1j)


def test_written_matrix() -> None:
    """The gradient is that of the matrix at the time of the call."""
    a = sparse.csr_array(DENSE)
    _, pullback = co.vjp(lambda x: a @ x, X)
    a.data *= 10.0
    np.testing.assert_allclose(pullback(LEFT)[0], DENSE.T @ LEFT)


def test_errors() -> None:
    """Wrong shapes and operands are refused."""
    a = sparse.csr_array(DENSE)
    with pytest.raises(co.ShapeError) as caught:
        co.eval_shape(lambda x: a @ x, np.zeros(5))
    assert caught.value.what == "sparse.matmul: shapes (4, 3) and (5,) do not fit"
    with pytest.raises(co.ArgumentError, match="takes one sparse matrix and one array"):
        ours.matmul(X, X)
    with pytest.raises(co.ShapeError, match=r"numbers of shape \(3,\) for"):
        ours.with_data(a, X)
