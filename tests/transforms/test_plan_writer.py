"""Plans of operators: every set of tracked arguments, and rows along any axes."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import customop as co

A, B, C = np.random.default_rng(3).normal(size=(3, 2, 4))
SETS = [at for at in product((False, True), repeat=3) if any(at)]


@co.custom_op("plans::formula", mutates_args=())
def formula(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return x y + z, with one formula for all arguments."""
    return x * y + z


def keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:2])


def backward(ctx: Any, g: Any) -> Any:
    x, y = ctx.saved_arrays
    found = (g * y, g * x, g)
    pairs = zip(found, ctx.needs_input_grad, strict=True)
    return tuple(grad if needed else None for grad, needed in pairs)


formula.register_autograd(backward, setup_context=keep)


@formula.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    (x, y, z), (dx, dy, dz) = primals, tangents
    parts = [(dx, y), (dy, x), (dz, 1.0)]
    return formula(x, y, z), sum(d * f for d, f in parts if d is not None)


@co.custom_op("plans::partial", mutates_args=(), tags=co.Tag.pointwise)
def partial(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return x y + z, with a formula for each argument."""
    return x * y + z


rule = co.partials({"x": lambda g, y: g * y, "y": lambda g, x: g * x, "z": lambda g: g})
partial.register_autograd(rule).register_jvp(rule)


@co.custom_op("plans::joined", mutates_args=())
def joined(xs: list[np.ndarray]) -> np.ndarray:
    """Return the product of all arrays of a list of three."""
    return np.asarray(xs[0] * xs[1] * xs[2])


def keep_list(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[0])


def backward_list(ctx: Any, g: Any) -> Any:
    x, y, z = ctx.saved_arrays
    return ([g * y * z, g * x * z, g * x * y],)


joined.register_autograd(backward_list, setup_context=keep_list)


@pytest.mark.parametrize("tracked", SETS)
@pytest.mark.parametrize("op", [formula, partial])
def test_each_set_of_tracked_arguments(op: Any, tracked: Any) -> None:
    """Gradients and tangents are those of x y + z by the tracked arguments."""
    slots = [i for i in range(3) if tracked[i]]

    def fn(*given: Any) -> Any:
        values = [A, B, C]
        for slot, value in zip(slots, given, strict=True):
            values[slot] = value
        return op(*values)

    primals = [(A, B, C)[slot] for slot in slots]
    partials = [(B, A, np.ones((2, 4)))[slot] for slot in slots]
    for _ in range(2):
        value, pull = co.vjp(fn, *primals)
        np.testing.assert_array_equal(value, A * B + C)
        for found, expected in zip(pull(C), partials, strict=True):
            np.testing.assert_array_equal(found, C * expected)
        value, tangent = co.jvp(fn, tuple(primals), tuple(C for _ in slots))
        np.testing.assert_array_equal(value, A * B + C)
        np.testing.assert_allclose(tangent, sum(C * p for p in partials))


@pytest.mark.parametrize("tracked", SETS)
def test_each_set_of_tracked_items(tracked: Any) -> None:
    """Gradients of a list of arrays are those of a product by the tracked items."""
    slots = [i for i in range(3) if tracked[i]]

    def fn(*given: Any) -> Any:
        values = [A, B, C]
        for slot, value in zip(slots, given, strict=True):
            values[slot] = value
        return joined(values)

    partials = [(B * C, A * C, A * B)[slot] for slot in slots]
    for _ in range(2):
        value, pull = co.vjp(fn, *[(A, B, C)[slot] for slot in slots])
        np.testing.assert_array_equal(value, A * B * C)
        for found, expected in zip(pull(np.ones((2, 4))), partials, strict=True):
            np.testing.assert_allclose(found, expected)


@co.custom_op("plans::product", mutates_args=(), tags=co.Tag.pointwise)
def product_of(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return x y."""
    return x * y


# Shapes of rows that NumPy broadcasts.
RANKS = [((), (4,)), ((4,), (4,)), ((4,), (3, 4)), ((3, 4), ()), ((), ())]


@pytest.mark.parametrize(("first", "second"), RANKS)
def test_rows_along_any_axes(first: Any, second: Any) -> None:
    """A pointwise operator gives what NumPy gives for each row, constants too."""
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(2, *first)), rng.normal(size=(2, *second))
    expected = np.stack([a * b for a, b in zip(x, y, strict=True)])
    axes = product(range(x.ndim), range(y.ndim))
    for at, other in axes:
        given = np.moveaxis(x, 0, at), np.moveaxis(y, 0, other)
        found = co.vmap(product_of, in_dims=(at, other))(*given)
        np.testing.assert_array_equal(found, expected)
    for at in range(x.ndim):
        found = co.vmap(product_of, in_dims=(at, None))(np.moveaxis(x, 0, at), y[0])
        np.testing.assert_array_equal(found, np.stack([a * y[0] for a in x]))
        found = co.vmap(product_of, in_dims=(None, at))(y[0], np.moveaxis(x, 0, at))
        np.testing.assert_array_equal(found, np.stack([y[0] * a for a in x]))
