"""Operators and functions shared by the tests of reverse mode."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import customop as co

X = np.array([1.0, 2.0, 3.0])
Y = np.array([0.5, -1.0, 4.0])
UNARY = "(Array x) -> Array"
BINARY = "(Array x, Array y) -> Array"
_numbers = itertools.count()


def define(
    fn: Callable[..., Any],
    backward: Any = None,
    setup: Any = None,
    *,
    schema: str | None = UNARY,
    name: str = "",
    mutates: tuple[str, ...] = (),
    tags: Any = (),
) -> Any:
    """Make an operator with a backward formula and a new name."""
    op = co.custom_op(
        f"grads::{name or f'op_{next(_numbers)}'}",
        fn,
        mutates_args=mutates,
        schema=schema,
        tags=tags,
    )
    if backward is not None:
        op.register_autograd(backward, setup_context=setup)
    return op


def save_inputs(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


def square_backward(ctx: Any, g: Any) -> Any:
    (x,) = ctx.saved_arrays
    return 2.0 * g * x


square = define(
    lambda x: x * x, square_backward, save_inputs, name="square", tags=co.Tag.pointwise
)


def product_backward(ctx: Any, g: Any) -> Any:
    x, y = ctx.saved_arrays
    return g * y, g * x


product = define(
    lambda x, y: x * y,
    product_backward,
    save_inputs,
    schema=BINARY,
    name="product",
    tags=co.Tag.pointwise,
)


def add_one(x: Any) -> None:
    x += 1.0


def writer() -> Any:
    """Make an operator that writes its array; being new, it is checked at its first call."""
    return define(add_one, schema="(Array(a!) x) -> ()", mutates=("x",))


def total(op: Callable[..., Any]) -> Callable[..., Any]:
    """A function that sums the result of an operator, to take its gradient."""
    return lambda *args, **kwargs: np.sum(op(*args, **kwargs))


def slope(fn: Callable[[Any], Any], x: Any) -> Any:
    """Gradient of the sum of a function of one array, by central differences."""
    found = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[index] = 1e-6
        found[index] = (np.sum(fn(x + step)) - np.sum(fn(x - step))) / 2e-6
    return found


def falling(n: int, order: int) -> float:
    """N (n-1) ... (n-order+1): the factor that differentiating x^n brings."""
    return float(math.prod(range(n - order + 1, n + 1)))
