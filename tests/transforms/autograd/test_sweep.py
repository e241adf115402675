"""The sweep back: missing formulas, accumulation, higher derivatives, other libraries."""

from __future__ import annotations

import copy
import math
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
    product,
    save_inputs,
    square,
    total,
)

# ---- operators without a formula ----


def test_no_formula_is_an_error_when_a_gradient_flows() -> None:
    """It never gives zeros; the message names the place of the call."""
    op = define(lambda x: 2.0 * x, name="bare")
    with pytest.raises(co.MissingRuleError) as caught:
        co.grad(lambda x: np.sum(op(x)))(X)
    text = str(caught.value)
    assert text.startswith("grads::bare has no 'autograd' rule\n  grads::bare(Array x)")
    line = test_no_formula_is_an_error_when_a_gradient_flows.__code__.co_firstlineno + 4
    assert f"through the call at {__file__}:{line}" in text
    assert text.endswith("(co.native) if the kernel is made of NumPy functions")


def test_no_formula_is_an_error_for_variables() -> None:
    """The forward call works, and backward fails."""
    op = define(lambda x: 2.0 * x)
    y = np.sum(op(co.variable(X)))
    assert_array_equal(y.below, 12.0)
    with pytest.raises(co.MissingRuleError, match="no 'autograd' rule"):
        y.backward()


def test_no_formula_is_fine_where_no_gradient_flows() -> None:
    """An output without a gradient needs no formula."""
    op = define(lambda x: 2.0 * x)

    def f(x: Any) -> Any:
        unused = op(x)
        assert unused.shape == (3,)
        return np.sum(x * x) + np.sum(co.stop_gradient(op(x)))

    assert_array_equal(co.grad(f)(X), 2.0 * X)


def test_no_formula_is_fine_for_integers() -> None:
    """An operator whose output has no derivative needs no formula."""
    op = define(lambda x: np.argsort(x))
    assert_array_equal(co.grad(lambda x: np.sum(x[op(x)] * X))(X), X)


def test_a_formula_registered_later_is_used() -> None:
    """A formula may be registered between two calls."""
    op = define(lambda x: 2.0 * x)
    with pytest.raises(co.MissingRuleError):
        co.grad(total(op))(X)
    op.register_autograd(lambda ctx, g: 2.0 * g)
    assert_array_equal(co.grad(total(op))(X), np.full(3, 2.0))
    op.register_autograd(lambda ctx, g: 5.0 * g, override=True)
    assert_array_equal(co.grad(total(op))(X), np.full(3, 5.0))


# ---- accumulation ----


def test_an_array_used_twice_by_one_call() -> None:
    """The product of x with itself has the gradient 2 x."""
    assert_array_equal(co.grad(lambda x: np.sum(product(x, x)))(X), 2.0 * X)


def test_a_diamond() -> None:
    """Gradients of two paths from one value are summed: x^2 sin(x^2)."""

    def f(x: Any) -> Any:
        y = square(x)
        return np.sum(product(y, np.sin(y)))

    expected = 2.0 * X * (np.sin(X**2) + X**2 * np.cos(X**2))
    assert_allclose(co.grad(f)(X), expected)


@pytest.mark.parametrize("depth", [1, 5, 30])
def test_a_chain_of_diamonds_is_linear(depth: int) -> None:
    """A value doubled n times has the gradient 2^n; each formula runs once."""
    calls = []

    def backward(ctx: Any, g: Any) -> Any:
        calls.append(1)
        return g, g

    op = define(lambda x, y: x + y, backward, schema=BINARY)

    def f(x: Any) -> Any:
        for _ in range(depth):
            x = op(x, x)
        return x

    assert co.grad(f)(np.array(1.0)) == 2.0**depth
    assert len(calls) == depth


def test_branches_of_unequal_length_meet() -> None:
    """A node runs after all its gradients have arrived, over a long path and a short one."""

    def f(x: Any) -> Any:
        y = square(x)
        z = y
        for _ in range(4):
            z = product(z, y)
        return np.sum(z + y)

    assert_allclose(co.grad(f)(X), 10.0 * X**9 + 2.0 * X)


def test_a_long_chain_needs_no_recursion() -> None:
    """Twenty thousand calls in a row are differentiated without a deep stack."""

    def f(x: Any) -> Any:
        for _ in range(20_000):
            x = product(x, ONE)
        return x

    assert co.grad(f)(np.array(3.0)) == 1.0


ONE = np.array(1.0)


def test_formulas_see_one_gradient_for_both_inputs() -> None:
    """Returning g itself for two inputs counts it for each."""
    op = define(lambda x, y: x + y, lambda ctx, g: (g, g), schema=BINARY)
    assert_array_equal(co.grad(lambda x: np.sum(op(x, op(x, x))))(X), np.full(3, 3.0))


def test_formulas_may_return_views_of_the_gradient() -> None:
    """A formula may return views of g in another order or shape."""
    op = define(lambda x: x[::-1].copy(), lambda ctx, g: g[::-1])
    assert_array_equal(co.grad(lambda x: np.sum(op(x) * Y))(X), Y[::-1])


@pytest.mark.parametrize("checks", ["first", "always"])
def test_a_formula_cannot_write_its_gradient(checks: Any) -> None:
    """Another call may use the same gradient, so a write into it is an error."""
    co.config.checks = checks

    def backward(ctx: Any, g: Any) -> Any:
        g *= 2.0
        return g

    op = define(lambda x: 2.0 * x, backward)
    seed = np.ones(3)
    with pytest.raises((co.CustomOpError, ValueError), match=r"read-only|writes"):
        op(co.variable(X)).backward(seed)
    assert_array_equal(seed, np.ones(3))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_is_tracked(copied: Any) -> None:
    """A copy of a tracked value is tracked too."""
    assert co.grad(lambda x: copied(x) * x)(2.0) == 4.0


def test_gradients_of_arguments_share_no_memory() -> None:
    """Gradients of two arguments can be written independently."""
    op = define(lambda x, y: x + y, lambda ctx, g: (g, g), schema=BINARY)
    first, second = co.grad(lambda x, y: np.sum(op(x, y)), (0, 1))(X, Y)
    first += 1.0
    assert_array_equal(first, np.full(3, 2.0))
    assert_array_equal(second, np.ones(3))


@pytest.mark.parametrize(
    "transform",
    [
        co.grad,
        co.value_and_grad,
        lambda f: co.vjp(f, X),
        lambda f: co.jvp(f, (X,), (X,)),
        co.jacrev,
        co.jacfwd,
        co.hessian,
        co.vmap,
        lambda f: co.eval_shape(f, X),
    ],
    ids=["grad", "value_and_grad", "vjp", "jvp", "jacrev", "jacfwd", "hessian", "vmap", "eval_shape"],
)  # fmt: skip
def test_a_transform_takes_a_function(transform: Any) -> None:
    """Anything but a function is refused when the transform is made."""
    with pytest.raises(co.ArgumentError, match=": 3 is not a function"):
        transform(3)


def test_a_missing_formula_names_the_call_that_asks() -> None:
    """The error names the place of the call, not of the operator's first call."""
    op = define(lambda x: x * 1.0)

    def first(x: Any) -> Any:
        return np.sum(op(x))

    def second(x: Any) -> Any:
        return np.sum(op(x))

    for f in (first, second):
        with pytest.raises(co.MissingRuleError) as caught:
            co.grad(f)(X)
        assert f"{__file__}:{f.__code__.co_firstlineno + 1}" in str(caught.value)


# ---- higher derivatives ----


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5, 6, 7, 8, 9])
def test_derivatives_of_every_order(order: int) -> None:
    """x^8 as three squares, to an order past its degree."""
    f: Any = lambda x: square(square(square(x)))
    for _ in range(order):
        f = co.grad(f)
    expected = falling(8, order) * 1.5 ** (8 - order) if order <= 8 else 0.0
    assert_allclose(f(np.array(1.5)), expected, rtol=1e-13)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_derivatives_of_a_product(order: int) -> None:
    """x^4 y^2 by operators of two arrays, mixed derivatives by both."""

    def f(x: Any, y: Any) -> Any:
        return product(square(square(x)), product(y, y))

    inner: Any = co.grad(f, 1)
    for _ in range(order - 1):
        inner = co.grad(inner, 0)
    expected = falling(4, order - 1) * 1.5 ** (5 - order) * 2.0 * 0.5
    assert_allclose(inner(np.array(1.5), np.array(0.5)), expected)


def test_fifth_derivative_of_exp_saved_output() -> None:
    """The formula uses its own output."""
    op = define(
        np.exp,
        lambda ctx, g: g * ctx.saved_arrays[0],
        lambda ctx, inputs, output: ctx.save_for_backward(output),
    )
    f: Any = op
    for _ in range(5):
        f = co.grad(f)
    assert_allclose(f(np.array(0.25)), math.exp(0.25))


def test_a_formula_that_calls_its_own_operator() -> None:
    """The derivative of sin by a formula that calls sin again."""

    def backward(ctx: Any, g: Any) -> Any:
        return g * op(ctx.saved_arrays[0] + math.pi / 2)

    op = define(np.sin, backward, save_inputs)
    assert_allclose(co.grad(co.grad(co.grad(op)))(np.array(0.4)), -math.cos(0.4))


FORMULAS = {
    "grad": lambda x: co.grad(lambda v: np.sum(v**3))(x),
    "vmap of grad": lambda x: co.vmap(co.grad(lambda v: v**3))(x),
    "jvp": lambda x: co.jvp(lambda v: v**3, (x,), (np.ones_like(x),))[1],
    "vjp": lambda x: co.vjp(lambda v: v**3, x)[1](np.ones_like(x))[0],
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_that_transforms(name: str) -> None:
    """A backward formula may itself use grad, vmap, jvp and vjp: of x^3."""

    def backward(ctx: Any, g: Any) -> Any:
        return g * FORMULAS[name](ctx.saved_arrays[0])

    op = define(lambda x: x**3, backward, save_inputs, tags=co.Tag.pointwise)
    assert_allclose(co.grad(total(op))(X), 3.0 * X**2)
    assert_allclose(co.hessian(total(op))(X), np.diag(6.0 * X))


def test_backward_inside_backward() -> None:
    """A formula may make variables and run backward on them."""

    def backward(ctx: Any, g: Any) -> Any:
        v = co.variable(ctx.saved_arrays[0])
        np.sum(v**3).backward()
        return g * v.grad

    op = define(lambda x: x**3, backward, save_inputs)
    assert_allclose(co.grad(total(op))(X), 3.0 * X**2)


def test_inner_function_does_not_confuse_levels() -> None:
    """d/dx (x d/dy (x + y)) is 1: the classic case of perturbation confusion."""

    def outer(x: Any) -> Any:
        return x * co.grad(lambda y: x + y)(np.array(1.0))

    assert co.grad(outer)(np.array(1.0)) == 1.0


def test_inner_gradient_of_a_value_outside() -> None:
    """d/dx of x^2 d/dy (x^3 y) is 5 x^4."""

    def outer(x: Any) -> Any:
        return x**2 * co.grad(lambda y: x**3 * y)(np.array(7.0))

    assert_allclose(co.grad(outer)(np.array(1.5)), 5.0 * 1.5**4)


# ---- against others ----

SHARED = {
    "polynomial": lambda m, x: (x**3 - 2.0 * x).sum(),
    "mixed": lambda m, x: (m.sin(x) * m.exp(x)).sum(),
    "matrix": lambda m, x: (m.tanh(x @ x.T)).sum(),
    "quotient": lambda m, x: (x / (1.0 + x * x)).sum(),
    "logarithm": lambda m, x: m.log(1.0 + m.exp(x)).sum(),
    "indexed": lambda m, x: (x[0] * x[-1] * x[:, 1].sum()).sum(),
}
MATRIX = np.random.default_rng(1).normal(size=(3, 3))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SHARED)
def test_gradients_equal_those_of_torch(name: str) -> None:
    """The same function has the same gradient in torch."""
    torch = pytest.importorskip("torch", reason="torch is the other side of this test")
    x = torch.tensor(MATRIX, requires_grad=True)
    SHARED[name](torch, x).backward()
    found = co.grad(lambda x: SHARED[name](np, x))(MATRIX)
    assert_allclose(found, x.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize("name", SHARED)
def test_gradients_equal_those_of_autograd(name: str) -> None:
    """The same function has the same gradient in HIPS autograd."""
    anp = pytest.importorskip("autograd.numpy", reason="autograd is the other side")
    other = pytest.importorskip("autograd", reason="autograd is the other side")
    expected = other.grad(lambda x: SHARED[name](anp, x))(MATRIX)
    assert_allclose(
        co.grad(lambda x: SHARED[name](np, x))(MATRIX), expected, rtol=1e-12
    )


@pytest.mark.parametrize("name", ["polynomial", "mixed", "quotient", "logarithm"])
def test_gradients_equal_the_complex_step(name: str) -> None:
    """Im f(x + ih) / h for h = 1e-200 has no cancellation."""
    found = co.grad(lambda x: SHARED[name](np, x))(MATRIX)
    for index in np.ndindex(MATRIX.shape):
        stepped = MATRIX.astype(complex)
        stepped[index] += 1e-200j
        expected = SHARED[name](np, stepped).imag / 1e-200
        assert_allclose(found[index], expected, rtol=1e-13)


@pytest.mark.exhaustive
def test_complex_gradients_are_conjugates_of_torchs() -> None:
    """Torch gives du + i dv; this package and JAX give du - i dv: of Re(z^2 w)."""
    torch = pytest.importorskip("torch", reason="torch is the other side of this test")
    z = torch.tensor([1.0 + 2.0j, -0.5j], dtype=torch.complex128, requires_grad=True)
    (z * z * (1.0 - 3.0j)).real.sum().backward()
    found = co.grad(lambda z: np.sum(np.real(z * z * (1.0 - 3.0j))))(z.detach().numpy())
    assert_allclose(found, np.conj(z.grad.numpy()))
