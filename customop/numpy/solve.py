"""Linear equations: solve, inv, matrix_power, tensorsolve, tensorinv.

A singular matrix raises NumPy's LinAlgError. Source of the derivatives: Giles, "Collected
matrix derivative results for forward and reverse mode algorithmic differentiation", 2008.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from customop import (
    ArgumentError,
    FakeArray,
    ShapeError,
    custom_op,
    partials,
    register_numpy_function,
)
from customop.numpy.arguments import as_array, dtype_of, shape_of
from customop.numpy.create import eye
from customop.numpy.fakes import device_of, stack_strides
from customop.numpy.layouts import in_order_of
from customop.numpy.matrices import (
    batch_matrices,
    check_square,
    column,
    linalg_dtype,
    stack_of,
    transposed,
)
from customop.numpy.rules import batch_first, fit, padded_rows
from customop.numpy.sizes import broadcast, is_known, product

__all__ = ["inv"]

# ---- inv ----


@custom_op(
    "np::inv", mutates_args=(), schema="(Array a, bool nan_if_singular=False) -> Array"
)
def inv(a: Any, nan_if_singular: bool = False) -> Any:
    """The inverses of matrices; of a singular one nan, or NumPy's LinAlgError."""
    try:
        return np.linalg.inv(a)
    except np.linalg.LinAlgError:
        if not nan_if_singular:
            raise
    if a.ndim == 2:
        return np.full_like(a, np.nan, dtype=linalg_dtype(a))
    return np.stack([inv(part, True) for part in a])


register_numpy_function(np.linalg.inv, lambda a: inv(a))


@inv.register_fake
def _(a: Any, nan_if_singular: bool) -> FakeArray:
    check_square("inv", a.shape)
    return stack_of(a, a.shape[-2:], linalg_dtype(a))


def _inv_moved(t: Any, y: Any) -> Any:
    return -np.matmul(np.matmul(y, t), y)


inv.register_autograd(partials({"a": lambda g, out: _inv_moved(g, transposed(out))}))


@inv.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    y = inv(*primals)
    return y, _inv_moved(tangents[0], y)


inv.register_vmap(batch_matrices("inv", inv))

# ---- solve ----


@custom_op("np::solve", mutates_args=(), schema="(Array a, Array b) -> Array")
def solve(a: Any, b: Any) -> Any:
    return np.linalg.solve(a, b)


register_numpy_function(np.linalg.solve, lambda a, b: solve(as_array(a), as_array(b)))


@solve.register_fake
def _(a: Any, b: Any) -> FakeArray:
    check_square("solve", a.shape)
    rank = min(len(b.shape), 2)
    if not rank or b.shape[-rank] != a.shape[-1]:
        raise ShapeError(
            f"np.linalg.solve: shapes {tuple(a.shape)} and {tuple(b.shape)} do not fit",
            do="give b as a vector, or as matrices with as many rows as those of a",
        )
    batch = broadcast(a.shape[:-2], b.shape[:-rank])
    core = b.shape[len(b.shape) - rank :]
    dtype = linalg_dtype(a, b)
    strides = stack_strides([a, b], [2, rank], core, dtype)
    return FakeArray((*batch, *core), dtype, strides, device_of(a))


def _note_solve(ctx: Any, inputs: Any, output: Any) -> None:
    a, b = inputs
    ctx.is_vector = len(b.shape) == 1
    ctx.like = a, b
    ctx.save_for_backward(a, output)


def _solve_backward(ctx: Any, g: Any) -> tuple[Any, Any]:
    a, x = ctx.saved_arrays
    by_a = by_b = None
    if ctx.is_vector and len(a.shape) == 2:
        by_b = np.linalg.solve(transposed(a), g)
        if ctx.needs_input_grad[0]:
            by_a = fit(column(-by_b) * x, ctx.like[0])
        return by_a, fit(by_b, ctx.like[1]) if ctx.needs_input_grad[1] else None
    wide, given = (column(g), column(x)) if ctx.is_vector else (g, x)
    moved = np.linalg.solve(transposed(a), wide)
    if ctx.needs_input_grad[0]:
        by_a = fit(-np.matmul(moved, transposed(given)), ctx.like[0])
    if ctx.needs_input_grad[1]:
        by_b = fit(moved[..., 0] if ctx.is_vector else moved, ctx.like[1])
    return by_a, by_b


solve.register_autograd(_solve_backward, setup_context=_note_solve)


@solve.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    (a, b), (ta, tb) = primals, tangents
    x = solve(a, b)
    is_vector = len(b.shape) == 1
    parts = [] if tb is None else [column(tb) if is_vector else tb]
    if ta is not None:
        parts.append(-np.matmul(ta, column(x) if is_vector else x))
    found = np.linalg.solve(a, sum(parts[1:], parts[0]))
    return x, fit(found[..., 0] if is_vector else found, x)


@solve.register_vmap
def _(info: Any, in_dims: Any, a: Any, b: Any) -> Any:
    dim_a, dim_b = in_dims
    rank_a, rank_b = a.ndim - (dim_a is not None), b.ndim - (dim_b is not None)
    check_square("solve", batch_first(a, dim_a).shape[-rank_a:] if rank_a else ())
    if rank_b != 1:
        rank = max(rank_a, rank_b)
        rows_a = a if dim_a is None else padded_rows(batch_first(a, dim_a), rank)
        rows_b = b if dim_b is None else padded_rows(batch_first(b, dim_b), rank)
        return solve(rows_a, rows_b), 0
    if dim_a is None and rank_a == 2:
        # One factorization serves all rows: they are the columns of one matrix.
        return solve(a, np.moveaxis(b, dim_b, -1)), 1
    rows_a = a if dim_a is None else batch_first(a, dim_a)
    rows_b = b if dim_b is None else padded_rows(batch_first(b, dim_b), rank_a - 1)
    return solve(rows_a, column(rows_b))[..., 0], 0


# ---- made of these ----


@register_numpy_function(np.linalg.matrix_power)
def _(a: Any, n: int) -> Any:
    """By repeated squares, as in NumPy."""
    check_square("matrix_power", a.shape)
    count = operator.index(n)
    if count == 0:
        return _identities(a)
    square = np.linalg.inv(a) if count < 0 else a
    result = None
    count = abs(count)
    while True:
        if count & 1:
            result = square if result is None else np.matmul(result, square)
        count >>= 1
        if not count:
            return result
        square = np.matmul(square, square)


def _identities(a: Any) -> Any:
    ones = eye(a.shape[-1], None, 0, dtype_of(a), device_of(a))
    return in_order_of(np.zeros_like(a) + ones, a)


@register_numpy_function(np.linalg.tensorsolve)
def _(a: Any, b: Any, axes: Any = None) -> Any:
    a, b = as_array(a), as_array(b)
    rank = len(a.shape)
    order = list(range(rank))
    for axis in () if axes is None else axes:
        order.remove(axis)
        order.insert(rank, axis)
    moved = np.transpose(a, order)
    shape = tuple(moved.shape[len(b.shape) :])
    count = product(shape)
    if product(a.shape) != count * count or product(b.shape) != count:
        raise ShapeError(
            f"np.linalg.tensorsolve: shapes {tuple(a.shape)} and {tuple(b.shape)} do not"
            " make square equations",
            do="give an array a with prod(a.shape[b.ndim:]) == prod(a.shape[:b.ndim])",
        )
    found = np.linalg.solve(np.reshape(moved, (count, count)), np.reshape(b, (count,)))
    return np.reshape(found, shape)


@register_numpy_function(np.linalg.tensorinv)
def _(a: Any, ind: int = 2) -> Any:
    if ind <= 0:
        raise ArgumentError(
            f"np.linalg.tensorinv(ind={ind!r}): it must be positive",
            do="give the number of axes of the first half",
        )
    shape = tuple(shape_of(a))
    count, columns = product(shape[ind:]), product(shape[:ind])
    matrix = np.reshape(a, (count, 0 if is_known(count, 0) else columns))
    return np.reshape(np.linalg.inv(matrix), (*shape[ind:], *shape[:ind]))
