"""Operators behind `customop.scipy.linalg`: triangular systems, LU factors, expm.

Their results are in C order. Source of the derivatives: Giles, "Collected matrix derivative
results for forward and reverse mode algorithmic differentiation", 2008; for expm Mathias,
"A chain rule for matrix functions and applications", 1996.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import linalg

from customop import FakeArray, NoDerivativeError, ShapeError, custom_op, fake_like
from customop.numpy.fakes import device_of
from customop.numpy.matrices import linalg_dtype, transposed
from customop.numpy.rules import batch_first, fit, no_gradient, padded_rows
from customop.numpy.sizes import broadcast, smaller

__all__ = ["expm", "lu_factor", "permutation", "solve_triangular"]


def _check_square(name: str, shape: Any) -> None:
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ShapeError(
            f"scipy.linalg.{name} takes square matrices, got shape {tuple(shape)}",
            do="give an array whose last two axes have one length",
        )


# ---- triangular systems ----


@custom_op(
    "scipy::solve_triangular",
    mutates_args=(),
    schema="(Array a, Array b, bool turned, bool lower, bool unit_diagonal) -> Array",
    device_types="cpu",
)
def solve_triangular(
    a: Any, b: Any, turned: bool, lower: bool, unit_diagonal: bool
) -> Any:
    """Solve with one triangle of `a`, or of its transpose where it is turned."""
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if not math.prod(shape) * b.size * a.size:
        core = b.shape[-2:]
        return np.zeros((*shape, *core), _lapack_dtype(a, b))
    wide = np.broadcast_to(b, (*shape, *b.shape[-2:])) if a.ndim > 2 else b
    found = linalg.solve_triangular(
        a, wide, int(turned), lower, unit_diagonal, check_finite=False
    )
    return np.ascontiguousarray(found)


def _lapack_dtype(*arrays: Any) -> Any:
    """The dtype in which LAPACK computes: the shortest that holds the numbers, or double."""
    found = np.result_type(np.float32, *[x.dtype for x in arrays])
    return np.dtype({"g": "d", "G": "D"}.get(found.char, found.char))


@solve_triangular.register_fake
def _(a: Any, b: Any, turned: bool, lower: bool, unit_diagonal: bool) -> FakeArray:
    _check_square("solve_triangular", a.shape)
    if len(b.shape) < 2 or b.shape[-2] != a.shape[-1]:
        raise ShapeError(
            f"scipy.linalg.solve_triangular: shapes {tuple(a.shape)} and"
            f" {tuple(b.shape)} do not fit",
            do="give b as a vector, or as matrices with as many rows as those of a",
        )
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    shape = (*batch, *b.shape[-2:])
    return FakeArray(shape, _lapack_dtype(a, b), device=device_of(a))


def _triangle(x: Any, lower: bool, unit_diagonal: bool) -> Any:
    """The part of matrices that a triangular system reads."""
    skipped = int(unit_diagonal)
    return np.tril(x, -skipped) if lower else np.triu(x, skipped)


def _keep_system(ctx: Any, inputs: Any, output: Any) -> None:
    a, b, *ctx.options = inputs
    ctx.like = b
    ctx.save_for_backward(a, output)


def _system_backward(ctx: Any, g: Any) -> Any:
    a, x = ctx.saved_arrays
    turned, lower, unit_diagonal = ctx.options
    by_b = solve_triangular(a, g, not turned, lower, unit_diagonal)
    outer = -np.matmul(by_b, transposed(x))
    by_a = _triangle(transposed(outer) if turned else outer, lower, unit_diagonal)
    return fit(by_a, a), fit(by_b, ctx.like), None, None, None


solve_triangular.register_autograd(_system_backward, setup_context=_keep_system)


@solve_triangular.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    a, b, *options = primals
    turned, lower, unit_diagonal = options
    x = solve_triangular(a, b, *options)
    moved = 0.0 if tangents[1] is None else tangents[1]
    if tangents[0] is not None:
        part = _triangle(tangents[0], lower, unit_diagonal)
        moved = moved - np.matmul(transposed(part) if turned else part, x)
    return x, fit(solve_triangular(a, moved, *options), x)


@solve_triangular.register_vmap
def _(info: Any, in_dims: Any, a: Any, b: Any, *options: Any) -> Any:
    first, second = in_dims[:2]
    rank = max(a.ndim - (first is not None), b.ndim - (second is not None))
    rows_a = a if first is None else padded_rows(batch_first(a, first), rank)
    rows_b = b if second is None else padded_rows(batch_first(b, second), rank)
    return solve_triangular(rows_a, rows_b, *options), 0


# ---- the matrix exponential ----


@custom_op(
    "scipy::expm", mutates_args=(), schema="(Array a) -> Array", device_types="cpu"
)
def expm(a: Any) -> Any:
    """Exponentials of matrices."""
    return np.ascontiguousarray(linalg.expm(a), _exponential_dtype(a))


@expm.register_sample_inputs
def _() -> list[Any]:
    square = np.array([[0.5, 1.0], [-0.25, 0.75]])
    return [(square,), (np.stack([square, square.T]),)]


def _exponential_dtype(a: Any) -> Any:
    """The dtype of an exponential: SciPy takes float16 for float32, but for one element."""
    return np.dtype(np.float32) if a.dtype == np.float16 else linalg_dtype(a)


@expm.register_fake
def _(a: Any) -> FakeArray:
    _check_square("expm", a.shape)
    return FakeArray(tuple(a.shape), _exponential_dtype(a), device=fake_like(a).device)


def _frechet(a: Any, t: Any) -> Any:
    """The derivative of expm in a direction: a block of the expm of a larger matrix."""
    size = a.shape[-1]
    zero = np.zeros_like(a)
    rows = [np.concatenate([a, t], -1), np.concatenate([zero, a], -1)]
    return expm(np.concatenate(rows, -2))[..., :size, size:]


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])


expm.register_autograd(
    lambda ctx, g: _frechet(transposed(ctx.saved_arrays[0]), g), setup_context=_keep
)
expm.register_jvp(
    lambda primals, tangents: (expm(*primals), _frechet(primals[0], tangents[0]))
)
expm.register_vmap(lambda info, in_dims, a: (expm(batch_first(a, in_dims[0])), 0))


# ---- LU factors ----


@custom_op(
    "scipy::lu_factor",
    mutates_args=(),
    schema="(Array a) -> (Array, Array)",
    device_types="cpu",
)
def lu_factor(a: Any) -> Any:
    """LU factors in one matrix, and the swaps of rows."""
    found, places = linalg.lu_factor(a, check_finite=False)
    # Of matrices without elements SciPy keeps the dtype.
    packed = np.ascontiguousarray(found, _lapack_dtype(a))
    return packed, np.ascontiguousarray(places, np.int32)


@lu_factor.register_fake
def _(a: Any) -> Any:
    shape = tuple(a.shape)
    if len(shape) < 2:
        raise ShapeError(
            f"scipy.linalg.lu_factor takes matrices, got shape {shape}",
            do="give an array of at least two axes",
        )
    places = (*shape[:-2], smaller(*shape[-2:]))
    device = fake_like(a).device
    packed = FakeArray(shape, _lapack_dtype(a), device=device)
    return packed, FakeArray(places, np.int32, device=device)


@lu_factor.register_sample_inputs
def _() -> list[Any]:
    square = np.array([[1.0, 2.0], [3.0, 1.0]])
    wide = np.array([[1.0, 2.0, 0.5], [3.0, 1.0, -1.0]])
    return [(square,), (wide,), (np.stack([square, square.T]),)]


@custom_op(
    "scipy::permutation",
    mutates_args=(),
    schema="(Array places, int rows) -> Array",
    device_types="cpu",
)
def permutation(places: Any, rows: int) -> Any:
    """The order of the rows after the swaps that LAPACK notes."""
    lead = places.shape[:-1]
    order = np.broadcast_to(np.arange(rows), (*lead, rows)).copy()
    for at in np.ndindex(lead):
        row = order[at]
        for i, j in enumerate(places[at]):
            row[i], row[j] = row[j], row[i]
    return order


permutation.register_fake(
    lambda places, rows: FakeArray(
        (*places.shape[:-1], rows), np.int64, device=fake_like(places).device
    )
)
no_gradient(permutation)
permutation.register_vmap(
    lambda info, in_dims, places, rows: (
        permutation(batch_first(places, in_dims[0]), rows),
        0,
    )
)


def _sorted_rows(x: Any, order: Any) -> Any:
    """Matrices with their rows in another order."""
    return np.take_along_axis(x, np.expand_dims(order, -1), -2)


def _between(packed: Any, x: Any) -> Any:
    """The inverse of L, times x, times the inverse of U."""
    left = solve_triangular(packed, x, False, True, True)
    return transposed(solve_triangular(packed, transposed(left), True, False, False))


def _parts(packed: Any) -> tuple[Any, Any]:
    """L without its diagonal of ones, and U."""
    return np.tril(packed, -1), np.triu(packed)


def _check_derivative(shape: Any) -> None:
    if shape[-1] != shape[-2]:
        raise NoDerivativeError(
            f"scipy.linalg.lu has derivatives of square matrices, got shape {tuple(shape)}",
            do="pad the matrix to a square with a part of the identity",
        )


def _lu_backward(ctx: Any, g: Any, _: Any) -> Any:
    packed, order = ctx.saved_arrays
    lower, upper = _parts(packed)
    by_lower, by_upper = _parts(g)
    inner = np.matmul(transposed(lower), by_lower) + by_lower
    inner = np.tril(inner, -1) + np.triu(np.matmul(by_upper, transposed(upper)))
    # The transpose of `_between`.
    turned = solve_triangular(packed, transposed(inner), False, False, False)
    found = solve_triangular(packed, transposed(turned), True, True, True)
    return fit(_sorted_rows(found, np.argsort(order, axis=-1)), ctx.like)


def _keep_factors(ctx: Any, inputs: Any, output: Any) -> None:
    packed, places = output
    _check_derivative(packed.shape)
    ctx.mark_non_differentiable(places)
    ctx.like = inputs[0]
    ctx.save_for_backward(packed, permutation(places, packed.shape[-2]))


lu_factor.register_autograd(_lu_backward, setup_context=_keep_factors)


@lu_factor.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    packed, places = lu_factor(*primals)
    _check_derivative(packed.shape)
    moved = _sorted_rows(tangents[0], permutation(places, packed.shape[-2]))
    lower, upper = _parts(packed)
    inner = _between(packed, moved)
    by_lower, by_upper = np.tril(inner, -1), np.triu(inner)
    found = np.matmul(lower, by_lower) + by_lower + np.matmul(by_upper, upper)
    return (packed, places), (fit(found, packed), None)


lu_factor.register_vmap(
    lambda info, in_dims, a: (lu_factor(batch_first(a, in_dims[0])), (0, 0))
)
