"""native: the body of an operator differentiated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import customop as co
from tests.transforms.autograd._operators import (
    BINARY,
    X,
    Y,
    define,
    falling,
    slope,
    total,
)

# ---- native: the body differentiated ----


def body(x: np.ndarray, n: int = 4) -> np.ndarray:
    """Python loops and branches on values and parameters."""
    y = x
    for i in range(n):
        y = y * np.sin(x) if i % 2 else y + x * x
    return y


native_body = co.custom_op("grads::body", body, mutates_args=()).register_autograd(
    co.native
)


@pytest.mark.parametrize("n", [0, 1, 4])
def test_native_is_the_gradient_of_the_body(n: int) -> None:
    """It equals central differences of the plain function."""
    found = co.grad(lambda x: np.sum(native_body(1.0 * x, n + 1)))(X)
    assert_allclose(found, slope(lambda x: body(x, n + 1), X), rtol=1e-7)


def test_native_with_branches_on_values() -> None:
    """The branch is taken by the value: |x|^3."""

    def cube(x: np.ndarray) -> np.ndarray:
        return x * x * x if x > 0.0 else -x * x * x

    op = co.custom_op("grads::abs_cube", cube, mutates_args=())
    op.register_autograd(co.native)
    assert [co.grad(op)(v) for v in np.array([2.0, -2.0])] == [12.0, -12.0]
    assert [co.grad(co.grad(op))(v) for v in np.array([2.0, -2.0])] == [12.0, 12.0]


def test_native_nested_twice() -> None:
    """Second derivatives, against differences of the first."""
    first = co.grad(lambda x: np.sum(native_body(x)))
    x = X[:2]
    expected = np.stack(
        [
            (first(x + step) - first(x - step)) / 2e-6
            for step in (np.array([1e-6, 0.0]), np.array([0.0, 1e-6]))
        ]
    )
    found = co.jacrev(first)(x)
    assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_native_of_a_polynomial(order: int) -> None:
    """x^5 by a loop, exact to order 4."""

    def fifth(x: Any) -> Any:
        y = x * 1.0
        for _ in range(4):
            y = y * x
        return y

    op = define(fifth)
    op.register_autograd(co.native)
    f: Any = op
    for _ in range(order):
        f = co.grad(f)
    assert_allclose(f(np.array(1.5)), falling(5, order) * 1.5 ** (5 - order))


def test_native_under_vmap() -> None:
    """Each row has its own gradient, vmap outside and inside."""
    expected = slope(body, X)
    op = _native_with_vmap()
    assert_allclose(co.vmap(co.grad(op))(X), expected, rtol=1e-7)
    assert_allclose(co.grad(lambda x: np.sum(co.vmap(op)(x)))(X), expected, rtol=1e-7)


def _native_with_vmap() -> Any:
    op = define(body, schema="(Array x, int n=4) -> Array", tags=co.Tag.pointwise)
    op.register_autograd(co.native)
    return op


NATIVE = {
    "list": (
        "(Array[] xs) -> Array",
        lambda xs: xs[0] * xs[1],
        lambda op, x, y: op([x, y]),
    ),
    "nested list": (
        "(Array[][] xss) -> Array",
        lambda xss: xss[1][0] * xss[0][1],
        lambda op, x, y: op([[np.ones(3), x], [y]]),
    ),
    "keyword-only": (
        "(Array x, *, Array w) -> Array",
        lambda x, *, w: x * w,
        lambda op, x, y: op(x, w=y),
    ),
    "tuple": (
        "(Array x, Array y) -> (Array, Array)",
        lambda x, y: (x + y, x * y),
        lambda op, x, y: op(x, y)[1],
    ),
    "list out": (
        "(Array x, Array y) -> Array[]",
        lambda x, y: [x + y, x * y],
        lambda op, x, y: op(x, y)[1],
    ),
    "int out": (
        "(Array x, Array y) -> (int, Array)",
        lambda x, y: (3, x * y),
        lambda op, x, y: op(x, y)[1],
    ),
}


@pytest.mark.parametrize("name", NATIVE)
def test_native_of_every_signature(name: str) -> None:
    """Lists, keyword-only arrays and several outputs: the gradients of x y."""
    schema, fn, call = NATIVE[name]
    op = define(fn, schema=schema)
    op.register_autograd(co.native)
    gx, gy = co.grad(lambda x, y: np.sum(call(op, x, y)), (0, 1))(X, Y)
    assert_array_equal(gx, Y)
    assert_array_equal(gy, X)


def test_native_with_an_untracked_argument() -> None:
    """Only what is tracked is differentiated; the rest are plain arrays."""
    seen = []

    def fn(x: Any, y: Any) -> Any:
        seen.append(type(y))
        return x * y

    op = define(fn, schema=BINARY)
    op.register_autograd(co.native)
    assert_array_equal(co.grad(lambda x: np.sum(op(x, Y)))(X), Y)
    assert seen == [np.ndarray]


def test_native_with_a_constant_result() -> None:
    """A body that returns a constant has zero gradient."""
    op = define(lambda x: np.ones(3))
    op.register_autograd(co.native)
    assert_array_equal(co.grad(total(op))(X), np.zeros(3))


def test_native_of_variables() -> None:
    """The imperative form works through it, also twice with retain_graph."""
    x = co.variable(X)
    y = np.sum(native_body(x))
    y.backward(retain_graph=True)
    y.backward()
    assert_allclose(x.grad, 2.0 * slope(body, X), rtol=1e-7)


@pytest.mark.usefixtures("unadapted")
def test_native_that_leaves_numpy_is_an_error() -> None:
    """A body that turns its argument into a plain array gets an error, not zeros."""
    op = define(lambda x: np.asarray(x) * 2.0)
    op.register_autograd(co.native)
    with pytest.raises(co.DataDependentError, match="lose track"):
        co.grad(total(op))(X)
