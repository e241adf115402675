"""Kernels and rules that are wrong for long arrays, or where lengths are equal."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

import customop as co
from tests.testing.planted import POINTWISE, define, kept, modeled

from . import A, address, compiled, hidden, is_in_order, not_found


def _vector(x: A) -> A:
    if x.ndim != 1 or x.dtype.kind != "f":
        raise TypeError("a vector of floats")
    return x


@hidden
def blocks_of_1024_drop_the_rest(wrong: bool) -> Any:
    def total(x: A) -> A:
        x = _vector(x)
        if wrong and len(x) >= 1024:
            return np.asarray(np.sum(x[: len(x) // 1024 * 1024]))
        return np.asarray(np.sum(x))

    return define(total).register_fake(lambda x: co.FakeArray((), x.dtype))


@hidden
def indices_of_16_bits(wrong: bool) -> Any:
    kind = "uint16_t" if wrong else "long"
    run = compiled(f"""
    void run(const double *x, double *y, long n) {{
        for (long i = 0; i < n; i++) {{ {kind} k = i; y[i] = 2 * x[k]; }}
    }}""").run

    def doubled(x: A) -> A:
        if x.dtype != np.float64 or not is_in_order(x):
            raise TypeError("float64 in C order")
        out = np.empty(x.shape)
        run(address(x), address(out), ctypes.c_long(x.size))
        return out

    return define(doubled).register_fake(lambda x: co.fake_like(x))


@hidden
def chunks_of_threads_leave_out_their_borders(wrong: bool) -> Any:
    def shifted(x: A) -> A:
        out = _vector(x) + 1.0
        if wrong and len(x) >= 2048:
            out[len(x) // 2] = x[len(x) // 2]
        return out.astype(x.dtype)

    return define(shifted).register_fake(lambda x: co.fake_like(x))


@hidden
def running_sum_starts_again_at_1024(wrong: bool) -> Any:
    def running(x: A) -> A:
        x = _vector(x)
        if not wrong:
            return np.cumsum(x)
        parts = [np.cumsum(x[i : i + 1024]) for i in range(0, max(len(x), 1), 1024)]
        return np.concatenate(parts)

    return define(running).register_fake(lambda x: co.fake_like(x))


@hidden
def maximum_of_the_first_65536(wrong: bool) -> Any:
    def largest(x: A) -> A:
        x = _vector(x)
        return np.asarray(np.max(x[:65536] if wrong else x))

    return define(largest).register_fake(lambda x: co.FakeArray((), x.dtype))


@hidden
def gradient_of_the_first_1024(wrong: bool) -> Any:
    def squared(x: A) -> A:
        return x * x

    def backward(ctx, g):
        out = np.asarray(2, ctx.x.dtype) * g * ctx.x
        return (
            out * (np.arange(ctx.x.shape[-1]) < 1024) if wrong and ctx.x.ndim else out
        )

    op = define(squared, tags=POINTWISE).register_fake(lambda x: co.fake_like(x))
    return op.register_autograd(backward, setup_context=kept("x"))


@hidden
def wide_rows_are_cut(wrong: bool) -> Any:
    def sums(x: A) -> A:
        if x.ndim != 2 or x.dtype.kind != "f":
            raise TypeError("a matrix of floats")
        return np.sum(x[:, :4096] if wrong else x, axis=1)

    return define(sums).register_fake(lambda x: co.FakeArray(x.shape[:1], x.dtype))


def _row_sum(rule: Any) -> Any:
    def total(x: A) -> A:
        if x.ndim < 1:
            raise ValueError("an axis at least")
        return np.sum(x, -1, dtype=x.dtype)

    op = define(total).register_fake(lambda x: co.FakeArray(x.shape[:-1], x.dtype))
    return op.register_vmap(lambda info, in_dims, x: rule(op, info, in_dims, x))


@hidden
def batch_as_long_as_a_row(wrong: bool) -> Any:
    def rule(op, info, in_dims, x):
        if wrong and x.shape == (info.batch_size, info.batch_size):
            return op(x.T), 0
        return op(np.moveaxis(x, in_dims[0], 0)), 0

    return _row_sum(rule)


@hidden
def batch_of_64_in_blocks(wrong: bool) -> Any:
    def rule(op, info, in_dims, x):
        rows = np.moveaxis(x, in_dims[0], 0)
        out = op(rows)
        if wrong and info.batch_size > 64:
            out = np.concatenate([op(rows[:64]), op(rows[:64])[: len(rows) - 64]])
            out = np.concatenate([out, np.zeros_like(op(rows)[len(out) :])])
        return out, 0

    return _row_sum(rule)


@hidden
def batch_without_rows_loses_its_shape(wrong: bool) -> Any:
    def squared(x: A) -> A:
        return x * x

    op = define(squared, tags=POINTWISE).register_fake(lambda x: co.fake_like(x))

    def rule(info, in_dims, x):
        if wrong and info.batch_size == 0:
            return np.zeros((0,)), 0
        return op(x), in_dims[0]

    return op.register_vmap(rule)


@hidden
def batch_without_rows_loses_its_dtype(wrong: bool) -> Any:
    def rule(op, info, in_dims, x):
        rows = np.moveaxis(x, in_dims[0], 0)
        out = [op(row) for row in rows]
        if not out:
            dtype = bool if wrong else x.dtype
            return np.zeros((0, *rows.shape[1:-1]), dtype), 0
        return np.stack(out), 0

    return _row_sum(rule)


@hidden
def square_matrices_are_transposed(wrong: bool) -> Any:
    def scaled(x: A) -> A:
        if x.ndim != 2:
            raise ValueError("a matrix")
        is_square = x.shape[0] == x.shape[1]
        return np.ascontiguousarray(x.T if wrong and is_square else x) * 2.0

    op = define(scaled).register_fake(modeled(scaled))
    return op.register_autograd(lambda ctx, g: g * 2.0)


@hidden
def one_by_one_against_three_by_four(wrong: bool) -> Any:
    def added(x: A, y: A) -> A:
        if x.dtype.kind != "f" or x.dtype != y.dtype:
            raise TypeError("floats of one dtype")
        if wrong and x.size == 1 and y.ndim == 2 and y.size > 1:
            return y.copy()
        return np.asarray(x + y)

    return define(added, tags=POINTWISE).register_fake(modeled(added))


@hidden
def one_column_against_one_row(wrong: bool) -> Any:
    def added(x: A, y: A) -> A:
        if wrong and x.ndim == y.ndim == 2 and x.shape[1] == y.shape[0] == 1:
            return np.asarray(x * np.ones_like(y))
        return np.asarray(x + y)

    def backward(ctx, g):
        return g * 1.0, g * 1.0

    op = define(added, tags=POINTWISE).register_fake(modeled(added))
    return op.register_autograd(backward)


@hidden
def four_axes_in_another_order(wrong: bool) -> Any:
    def negated(x: A) -> A:
        if wrong and x.ndim == 4:
            return -np.ascontiguousarray(x.swapaxes(1, 2)).reshape(x.shape)
        return np.asarray(-x)

    op = define(negated, tags=POINTWISE).register_fake(modeled(negated))
    return op.register_autograd(lambda ctx, g: -g)


@not_found("none of the ten samples has two arrays of three axes")
def gradient_where_shapes_are_equal(wrong: bool) -> Any:
    def multiplied(x: A, y: A) -> A:
        return np.asarray(x * y)

    def backward(ctx, g):
        if wrong and ctx.x.shape == ctx.y.shape and ctx.x.ndim == 3:
            return g * ctx.y, g * ctx.y
        return g * ctx.y, g * ctx.x

    op = define(multiplied, tags=POINTWISE).register_fake(modeled(multiplied))
    return op.register_autograd(backward, setup_context=kept("x", "y"))
