"""Operators that are wrong for special values or lengths, and derivatives there."""

from __future__ import annotations

from typing import Any

import numpy as np

import customop as co

from . import A, define, kept, modeled, numbers, planted

# ---- complex numbers ----


def formula(fn: Any, backward: Any, *names: str) -> Any:
    """Make an operator with a backward formula."""
    op = define(fn).register_fake(modeled(fn))
    return op.register_autograd(backward, setup_context=kept(*names))


def square(x: A) -> A:
    return x * (x * 1.0)


@planted(
    test_gradients="has a wrong gradient, in 2 of 4 derivatives",
)
def conjugate_where_floats_are_taken(wrong: bool) -> Any:
    def backward(ctx, g):
        return g * 2.0 * (np.conjugate(ctx.x) if wrong else ctx.x)

    return formula(square, backward, "x")


@planted(
    test_gradients="has a wrong gradient, in 1 of 2 derivatives",
)
def conjugate_of_a_product_is_left_out(wrong: bool) -> Any:
    def power(x: A) -> A:
        return np.real((x * 1.0) * np.conjugate(x))

    def backward(ctx, g):
        return g * 2.0 * (ctx.x if wrong else np.conjugate(ctx.x))

    return formula(power, backward, "x")


@planted(
    test_jvp="has a wrong jvp, in 2 of 2 derivatives",
)
def tangent_is_conjugated(wrong: bool) -> Any:
    op = define(square).register_fake(modeled(square))

    def rule(primals, tangents):
        (x,), (t,) = primals, tangents
        return op(x), 2.0 * x * (np.conjugate(t) if wrong else t)

    return op.register_jvp(rule)


# ---- indices ----


@planted(
    test_gradients="has a wrong gradient, in 1 of 6 derivatives",
)
def repeated_indices_count_once(wrong: bool) -> Any:
    def picked(x: A, idx: A) -> A:
        if x.ndim != 1 or idx.dtype.kind != "i":
            raise TypeError("a vector and indices")
        return x[idx] * 1.0

    def put(g: A, idx: A, n: int) -> A:
        out = np.zeros(n, g.dtype)
        if wrong:
            out[idx] = g
        else:
            np.add.at(out, idx, g)
        return out

    def fake(x, idx):
        if x.ndim != 1 or idx.dtype.kind != "i":
            raise TypeError("a vector and indices")
        return co.FakeArray(idx.shape, np.result_type(x.dtype, 1.0))

    spread = define(put).register_fake(lambda g, idx, n: co.FakeArray((n,), g.dtype))
    spread.register_autograd(
        lambda ctx, g: (np.take(g, ctx.idx), None, None),
        setup_context=kept("g", "idx", "n"),
    )
    op = define(picked).register_fake(fake)
    op.register_sample_inputs(lambda: [(np.array([0.5, 1.5, 2.5]), np.array([2, 0]))])
    return op.register_autograd(
        lambda ctx, g: (spread(g, ctx.idx, ctx.x.shape[0]), None),
        setup_context=kept("x", "idx"),
    )


# ---- lengths ----


@planted(
    test_kernels_agree="the output differs between the default kernel and the 'cpu' kernel: 2 of 2 elements (100.0 %) are not close",
)
def square_matrices_are_transposed(wrong: bool) -> Any:
    def product(x: A, y: A) -> A:
        return x @ y

    def fast(x: A, y: A) -> A:
        return x @ y.T if wrong and y.shape[0] == y.shape[1] else x @ y

    name = f"planted::product{next(numbers)}"
    schema = "(Array[m,n] x, Array[n,k] y) -> Array[m,k]"
    op = co.custom_op(name, product, schema=schema, mutates_args=())
    return op.register_kernel("cpu", fast)


@planted(
    test_kernels_agree="the output differs between the default kernel and the 'cpu' kernel: 2 of 2 elements (100.0 %) are not close",
)
def wide_matrices_alone(wrong: bool) -> Any:
    def tallest(x: A) -> A:
        return x.copy()

    def fast(x: A) -> A:
        m, n = x.shape
        return np.flip(x, 1).copy() if wrong and m < n else x.copy()

    name = f"planted::tallest{next(numbers)}"
    schema = "(Array[m,n] x) -> Array[m,n]"
    op = co.custom_op(name, tallest, schema=schema, mutates_args=())
    return op.register_kernel("cpu", fast)


@planted(
    test_faketensor="the 'cpu' kernel returns f64[1, 1] with strides (8, 8) on cpu as output 0, its fake kernel f64[1, 2] with strides (16, 8) on cpu",
)
def two_axes_with_keepdims(wrong: bool) -> Any:
    def total(x: A, axis: list[int] | None = None, keepdims: bool = False) -> A:
        axes = None if axis is None else tuple(axis)
        return np.sum(x, axis=axes, keepdims=keepdims, dtype=x.dtype)

    def fake(x, axis, keepdims):
        axes = range(x.ndim) if axis is None else [i % max(x.ndim, 1) for i in axis]
        if len({*axes}) < len(axes) or any(i >= x.ndim for i in axes):
            raise ValueError("axes")
        if keepdims and wrong and len(axes) == 2 and axis is not None:
            axes = axes[:1]
        kept = [1 if i in axes else n for i, n in enumerate(x.shape)]
        left = [n for i, n in enumerate(x.shape) if i not in axes]
        return co.FakeArray(kept if keepdims else left, x.dtype)

    return define(total).register_fake(fake)


# ---- batches ----


@planted(
    test_vmap="the output differs between row 0 under vmap with in_dims=(1, 2) and that row alone: shapes (1, 2) and (1, 1) differ",
)
def batches_on_different_axes(wrong: bool) -> Any:
    def added(x: A, y: A) -> A:
        if x.ndim != 2 or x.shape != y.shape:
            raise ValueError("matrices of one shape")
        return np.tanh(x * 1.0) + y

    def fake(x, y):
        if x.ndim != 2 or x.shape != y.shape:
            raise ValueError("matrices of one shape")
        return modeled(lambda a, b: np.tanh(a * 1.0) + b)(x, y)

    op = define(added).register_fake(fake)

    def rule(info, in_dims, x, y):
        dx, dy = in_dims
        if wrong and dx and dy:
            dy = dx
        x, y = (v if d is None else np.moveaxis(v, d, 0) for v, d in ((x, dx), (y, dy)))
        return np.tanh(x * 1.0) + y, 0

    return op.register_vmap(rule)


# ---- values ----


@planted(
    test_gradients="has a wrong gradient, in 1 of 1 derivatives",
)
def slope_overflows_for_large_numbers(wrong: bool) -> Any:
    def softplus(x: A) -> A:
        return np.logaddexp(0.0, x)

    def backward(ctx, g):
        x = ctx.x
        if wrong:
            return g * np.exp(x) / (1.0 + np.exp(x))
        return g * np.exp(-np.logaddexp(0.0, -x))

    op = formula(softplus, backward, "x")
    return op.register_sample_inputs(lambda: [(np.array([0.5, -1.5]),)])


@planted(
    test_kernels_agree="the output differs between the default kernel and the 'cpu' kernel: 1 of 1 elements (100.0 %) are not close",
)
def softmax_overflows_for_large_numbers(wrong: bool) -> Any:
    def softmax(x: A) -> A:
        if x.ndim != 1:
            raise ValueError("a vector")
        e = np.exp(x - np.max(x))
        return e / np.sum(e)

    def fast(x: A) -> A:
        if x.ndim != 1:
            raise ValueError("a vector")
        e = np.exp(x if wrong else x - np.max(x))
        return e / np.sum(e)

    op = define(softmax, device_types=None)
    return op.register_fake(modeled(softmax)).register_kernel("cpu", fast)


@planted(
    test_gradients="has a wrong gradient, in 1 of 1 derivatives",
)
def slope_at_zero_is_nan(wrong: bool) -> Any:
    def sinc(x: A) -> A:
        x = x * 1.0
        safe = np.where(x == 0.0, 1.0, x)
        return np.where(x == 0.0, 1.0, np.sin(safe) / safe)

    def backward(ctx, g):
        x = ctx.x * 1.0
        safe = x if wrong else np.where(x == 0.0, 1.0, x)
        slope = (safe * np.cos(safe) - np.sin(safe)) / (safe * safe)
        return g * (slope if wrong else np.where(x == 0.0, 0.0, slope))

    op = formula(sinc, backward, "x")
    return op.register_sample_inputs(lambda: [(np.array([0.5, -1.5]),)])


@planted(
    test_gradients="has a wrong gradient, in 1 of 1 derivatives",
)
def slope_at_zero_is_left_out(wrong: bool) -> Any:
    def linear(x: A) -> A:
        return x * 3.0

    def backward(ctx, g):
        return g * 3.0 * ((ctx.x != 0.0) if wrong else 1.0)

    return formula(linear, backward, "x")
