"""Least squares: pinv, lstsq, and what singular values say: matrix_rank, cond.

Derivatives of ``pinv`` and ``lstsq`` are those at constant rank, where singular values
that are cut off are zero. Where a nearby matrix has another rank, the functions jump and
have no derivative. A cutoff that drops larger singular values raises GradientError, since
the formulas would not hold. Source: Golub and Pereyra, "The differentiation of
pseudo-inverses and nonlinear least squares problems whose variables separate", 1973.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from customop import (
    ArgumentError,
    FakeArray,
    Operator,
    ShapeError,
    SymFloat,
    custom_op,
    partials,
    register_numpy_function,
    sizes,
)
from customop.numpy.arguments import (
    NO_VALUE,
    as_array,
    as_scalar,
    cast,
    dtype_of,
    shape_of,
)
from customop.numpy.fakes import device_of
from customop.numpy.matrices import (
    adjoint,
    check_matrices,
    check_square,
    column,
    conj,
    from_triangle,
    is_known,
    largest,
    linalg_dtype,
    real_dtype,
    require,
    stack_of,
    to_triangle,
)
from customop.numpy.rules import batch_first, fit, is_complex, padded_rows
from customop.numpy.singular import svdvals
from customop.numpy.sizes import has_none, larger, smaller
from customop.numpy.sizes import is_known as is_size
from customop.numpy.solve import inv

__all__: list[str] = []

_DROPPED = (
    (
        "{}: the gradient is not known where rcond drops singular values that are more than"
        " rounding"
    ),
    "use a smaller rcond, or the sum of u / s * vh over the singular values to keep",
)


def _whole(a: Any, rcond: Any, name: str) -> Any:
    """The matrices; raise where a cutoff drops more than what is as good as zero."""
    small = np.finfo(dtype_of(a)).eps ** 0.5
    if isinstance(rcond, float) and rcond <= small:
        return a
    s = np.linalg.svd(a, compute_uv=False)
    if is_size(s.shape[-1], 0):
        return a
    ratio = s / largest(s, -1, keepdims=True)
    cutoff = column(rcond) if shape_of(rcond) else rcond
    wrong = np.logical_and(np.less_equal(ratio, cutoff), np.greater(ratio, small))
    what, do = _DROPPED
    return require(a, wrong, what.format(name), do)


# ---- pinv ----


@custom_op(
    "np::pinv",
    mutates_args=(),
    schema="(Array a, Array|Scalar rcond, bool hermitian=False) -> Array",
)
def pinv(a: Any, rcond: Any, hermitian: bool = False) -> Any:
    # Not by hermitian=False, which CuPy does not take.
    return np.linalg.pinv(a, rcond, True) if hermitian else np.linalg.pinv(a, rcond)


@register_numpy_function(np.linalg.pinv)
def _(
    a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = NO_VALUE
) -> Any:
    if rcond is not None and rtol is not NO_VALUE:
        raise ArgumentError(
            "np.linalg.pinv: rtol and rcond are one argument", do="leave rcond= away"
        )
    cutoff = rcond if rtol is NO_VALUE else rtol
    cutoff = as_array(cutoff) if isinstance(cutoff, list | tuple) else cutoff
    if cutoff is None and rtol is NO_VALUE:
        cutoff = 1e-15
    elif cutoff is None:
        cutoff = larger(*a.shape[-2:]) * float(np.finfo(dtype_of(a)).eps)
    if sizes.is_symbolic(a.shape):  # NumPy leaves integers where there are no elements
        a = cast(a, linalg_dtype(a))
    return pinv(a, cutoff if shape_of(cutoff) else _number(cutoff), bool(hermitian))


def _number(x: Any) -> Any:
    """A number as a float; one made of symbolic sizes as it is."""
    return x if isinstance(x, SymFloat) else float(x)


@pinv.register_fake
def _(a: Any, rcond: Any, hermitian: bool) -> FakeArray:
    check_matrices("pinv", a.shape)
    m, n = a.shape[-2:]
    # NumPy 2.4 keeps the dtype of integers where there are no elements.
    return stack_of(a, (n, m), a.dtype if has_none((m, n)) else linalg_dtype(a))


@pinv.register_vmap
def _(info: Any, in_dims: Any, a: Any, rcond: Any, hermitian: bool) -> Any:
    dim_a, dim_r = in_dims[:2]
    rank = a.ndim - (dim_a is not None)
    rows = batch_first(a, dim_a, info.batch_size)
    check_matrices("pinv", rows.shape[1:])
    if dim_r is not None:
        rcond = padded_rows(batch_first(rcond, dim_r), rank - 2)
    return pinv(rows, rcond, hermitian), 0


pinv.register_sample_inputs(
    lambda: [
        (np.array([[1.7]]), 1e-12),
        (np.array([[2.3, 0.4, -0.9], [0.6, -1.2, 1.4]]), 1e-12),
        (np.array([[2.3, 0.4], [0.6, -1.2], [0.5, 1.6]]), 1e-10),
        (np.array([[[1.9, 0.3], [0.3, 0.7]], [[-0.4, 1.1], [1.1, 1.6]]]), 1e-9, True),
    ]
)


def _pinv_pull(g: Any, a: Any, rcond: Any, hermitian: bool, out: Any) -> Any:
    p, given = out, conj(g)
    whole = from_triangle(a) if hermitian else a
    whole = _whole(whole, rcond, "np.linalg.pinv")
    flat = adjoint(p)
    missed = given - np.matmul(given, np.matmul(whole, p))
    outside = np.matmul(p, np.matmul(flat, missed))
    missed = given - np.matmul(p, np.matmul(whole, given))
    outside = outside + np.matmul(np.matmul(missed, flat), p)
    inner = np.matmul(np.matmul(p, adjoint(given)), p)
    found = conj(adjoint(outside) - adjoint(inner))
    return to_triangle(found) if hermitian else found


pinv.register_autograd(partials({"a": _pinv_pull, "rcond": None}))


@pinv.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    a, rcond, hermitian = primals
    p, t = pinv(a, rcond, hermitian), tangents[0]
    if t is None:
        return p, None
    if hermitian:
        a, t = from_triangle(a), from_triangle(t)
    a = _whole(a, rcond, "np.linalg.pinv")
    flat = adjoint(t)
    missed = flat - np.matmul(flat, np.matmul(a, p))
    moved = np.matmul(np.matmul(p, adjoint(p)), missed)
    missed = flat - np.matmul(p, np.matmul(a, flat))
    moved = moved + np.matmul(np.matmul(missed, adjoint(p)), p)
    return p, moved - np.matmul(np.matmul(p, t), p)


# ---- lstsq ----


def _lstsq(a: Any, b: Any, rcond: float) -> tuple[Any, Any, Any]:
    x, _, rank, s = np.linalg.lstsq(a, b, rcond)
    return x, np.asarray(rank), s


# The residuals are computed from the solution: their number depends on the rank.
lstsq: Operator[..., Any] = custom_op(
    "np::lstsq",
    _lstsq,
    mutates_args=(),
    schema="(Array a, Array b, float rcond) -> (Array x, Array rank, Array s)",
)


@lstsq.register_fake
def _(a: Any, b: Any, rcond: float) -> tuple[FakeArray, ...]:
    _check_equations(a.shape, b.shape)
    dtype = linalg_dtype(a, b)
    device = device_of(a)
    x = FakeArray((a.shape[1], *b.shape[1:]), dtype, device=device)
    s = FakeArray((smaller(*a.shape),), real_dtype(dtype), device=device)
    return x, FakeArray((), np.dtype(np.intc), device=device), s


def _check_equations(a: Any, b: Any) -> None:
    if len(a) != 2 or len(b) not in (1, 2) or a[0] != b[0]:
        raise ShapeError(
            f"np.linalg.lstsq: shapes {tuple(a)} and {tuple(b)} do not fit",
            do="give a matrix, and a vector or a matrix with as many rows",
        )


def _note_lstsq(ctx: Any, inputs: Any, output: Any) -> None:
    a, b, ctx.rcond = inputs
    x, rank, _ = output
    ctx.mark_non_differentiable(rank)
    ctx.save_for_backward(a, b, x)
    ctx.set_materialize_grads(False)


def _lstsq_backward(ctx: Any, by_x: Any, by_rank: Any, by_s: Any) -> Any:
    a, b, x = ctx.saved_arrays
    by_a, by_b = 0.0, None
    if by_x is not None:
        a = _whole(a, ctx.rcond, "np.linalg.lstsq")
        p, flat = pinv(a, ctx.rcond), conj(by_x)
        is_vector = len(b.shape) == 1
        g, y, side = (column(v) for v in (flat, x, b)) if is_vector else (flat, x, b)
        back = np.matmul(adjoint(p), g)
        by_b = fit(conj(back[..., 0] if is_vector else back), b)
        rest = side - np.matmul(a, y)
        missed = g - np.matmul(p, np.matmul(a, g))
        by_a = np.matmul(rest, adjoint(np.matmul(p, back)))
        by_a = by_a + np.matmul(np.matmul(adjoint(p), y), adjoint(missed))
        by_a = conj(by_a - np.matmul(back, adjoint(y)))
    if by_s is not None:
        u, _, vh = np.linalg.svd(a, full_matrices=False)
        by_a = by_a + np.matmul(conj(u) * by_s, conj(vh))
    return fit(by_a, a), by_b, None


lstsq.register_sample_inputs(
    lambda: [
        (np.array([[1.7]]), np.array([0.4]), 1e-12),
        (
            np.array([[2.3, 0.4], [0.6, -1.2], [0.5, 1.6]]),
            np.array([1.1, -0.7, 0.3]),
            1e-12,
        ),
        (
            np.array([[2.3, 0.4, -0.9], [0.6, -1.2, 1.4]]),
            np.array([[1.1], [-0.7]]),
            1e-9,
        ),
    ]
)
lstsq.register_autograd(_lstsq_backward, setup_context=_note_lstsq)


@lstsq.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    (a, b, rcond), (ta, tb, _) = primals, tangents
    out = lstsq(a, b, rcond)
    x, _, s = out
    p = pinv(a, rcond)
    moved = 0.0 if tb is None else np.matmul(p, tb)
    if ta is None:
        return out, (fit(moved, x), None, None)
    whole = _whole(a, rcond, "np.linalg.lstsq")
    flat = adjoint(ta)
    rest = b - np.matmul(whole, x)
    back = np.matmul(flat, np.matmul(adjoint(p), x))
    moved = moved - np.matmul(p, np.matmul(ta, x))
    moved = moved + np.matmul(p, np.matmul(adjoint(p), np.matmul(flat, rest)))
    moved = moved + back - np.matmul(p, np.matmul(whole, back))
    u, _, vh = np.linalg.svd(a, full_matrices=False)
    by_s = np.real(np.sum(conj(u) * np.matmul(ta, adjoint(vh)), axis=0))
    return out, (fit(moved, x), None, fit(by_s, s))


@lstsq.register_vmap
def _(info: Any, in_dims: Any, a: Any, b: Any, rcond: float) -> Any:
    dim_a, dim_b, _ = in_dims
    rows_a, rows_b = batch_first(a, dim_a), batch_first(b, dim_b)
    _check_equations(rows_a.shape[1:], rows_b.shape[1:])
    if dim_a is None and len(rows_b.shape) == 2:
        # One factorization serves all rows: they are the columns of one matrix.
        x, rank, s = lstsq(a, np.moveaxis(b, dim_b, -1), rcond)
        return (x, rank, s), (1, None, None)
    is_vector = len(rows_b.shape) == 2
    x = np.matmul(pinv(rows_a, rcond), column(rows_b) if is_vector else rows_b)
    s = svdvals(rows_a)
    rank = np.sum(_is_counted(s, rcond), axis=-1).astype(np.intc)
    x, s = _fit_to(x, a, b), _fit_to(s, *(np.real(v) for v in (a, b)))
    found = (x[..., 0] if is_vector else x), rank, s
    if dim_a is None:
        return (found[0], rank[0], s[0]), (0, None, None)
    return found, (0, 0, 0)


def _fit_to(x: Any, *arrays: Any) -> Any:
    """A result in the dtype that NumPy gives it for some arrays."""
    dtype = linalg_dtype(*arrays)
    return x if dtype_of(x) == dtype else x.astype(dtype)


def _is_counted(s: Any, rcond: float) -> Any:
    """Which singular values make the rank."""
    return np.greater(s, largest(s, -1, keepdims=True) * rcond)


@register_numpy_function(np.linalg.lstsq)
def _(a: Any, b: Any, rcond: Any = None) -> Any:
    a, b = as_array(a), as_array(b)
    _check_equations(a.shape, b.shape)
    m, n = a.shape
    dtype = linalg_dtype(a, b)
    if rcond is None:
        # NumPy computes in double precision.
        rcond = float(np.finfo(float).eps) * larger(m, n)
    x, rank, s = lstsq(a, b, _number(rcond))
    rest = b - np.matmul(a, x)
    parts = np.square(np.real(rest))
    if is_complex(rest):
        parts = parts + np.square(np.imag(rest))
    sums = np.sum(parts, axis=0, keepdims=len(b.shape) == 1)
    is_short = (m <= n) is True
    if is_short or (is_known(rank) and bool(np.less(rank, n))):
        return x, sums[:0].astype(real_dtype(dtype)), rank, s
    sums = sums.astype(real_dtype(dtype))
    if (m > n) is not True:
        # There are none unless there are more rows than columns.
        sums = sums[: sums.shape[0] * smaller(larger(m - n, 0), 1)]
    if not is_known(rank):
        # Rows of a batch have one shape: residuals that NumPy leaves out are nan.
        sums = np.where(np.less(rank, n), np.nan, sums)
    return x, sums, rank, s


# ---- made of singular values ----


@register_numpy_function(np.linalg.matrix_rank)
def _(
    A: Any,  # noqa: N803  # NumPy's name
    tol: Any = None,
    hermitian: bool = False,
    *,
    rtol: Any = None,
) -> Any:
    if rtol is not None and tol is not None:
        raise ArgumentError(
            "np.linalg.matrix_rank: tol and rtol are both given", do="leave one away"
        )
    if len(A.shape) < 2:
        return np.any(np.not_equal(A, 0)).astype(int)
    s = np.linalg.svd(A, compute_uv=False, hermitian=hermitian)
    limit: Any = tol
    if tol is None:
        eps = larger(*A.shape[-2:]) * float(np.finfo(dtype_of(s)).eps)
        limit = largest(s, -1) * (eps if rtol is None else rtol)
    wide = np.expand_dims(limit, -1) if shape_of(limit) else limit
    return np.count_nonzero(np.greater(s, wide), axis=-1)


@register_numpy_function(np.linalg.cond)
def _(x: Any, p: Any = None) -> Any:
    x = as_array(x)
    check_matrices("cond", x.shape)
    if has_none(x.shape[-2:]):
        raise ShapeError(
            f"np.linalg.cond of no elements: an array of shape {tuple(x.shape)}",
            do="give matrices that are not empty",
        )
    # As in NumPy, a singular matrix gives inf without a warning.
    with np.errstate(all="ignore"):
        found = _condition(x, p)
    has_nan = np.any(np.isnan(x), axis=(-2, -1))
    is_singular = np.logical_and(np.isnan(found), np.logical_not(has_nan))
    return as_scalar(np.where(is_singular, np.inf, found))


def _condition(x: Any, p: Any) -> Any:
    if p is None or p in (2, -2):
        s = np.linalg.svd(x, compute_uv=False)
        return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    check_square("cond", x.shape)
    inverse = inv(x, True)
    return np.linalg.norm(x, p, (-2, -1)) * np.linalg.norm(inverse, p, (-2, -1))
