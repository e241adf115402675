"""Norms, least squares, and ranks of matrices.

At zero, where a norm has a kink, its gradient is the subgradient 0, as that of
``np.absolute``; so does torch 2.13, while JAX 0.10 gives nan. The norms 'nuc', 2 and -2 of
a matrix are those of its singular values, with the gradients of ``np.linalg.svdvals``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from customop import (
    ArgumentError,
    FakeArray,
    Operator,
    ShapeError,
    SymFloat,
    check,
    custom_op,
    partials,
    register_numpy_function,
    sizes,
)
from customop.numpy.arguments import (
    NO_VALUE,
    NUMBERS,
    as_array,
    as_axis,
    as_scalar,
    cast,
    counted_axes,
    dtype_of,
    has_none,
    int_axes,
    is_inexact,
    kept,
    larger,
    listed_axes,
    product,
    shape_of,
    smaller,
)
from customop.numpy.arguments import is_known as is_size
from customop.numpy.eigen import svdvals
from customop.numpy.guesses import fact, seen
from customop.numpy.matrices import (
    adjoint,
    check_matrices,
    check_square,
    column,
    conj,
    from_triangle,
    largest,
    linalg_dtype,
    real_dtype,
    require,
    stack_of,
    to_triangle,
    transposed,
)
from customop.numpy.reductions import reduction_of
from customop.numpy.rules import batch_first, device_of, fit, is_complex, padded_rows
from customop.numpy.solve import inv

# ---- norms of vectors and matrices ----


def _norm_kernel(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    x = x if x.dtype.kind in "fc" else x.astype(float)  # short integers wrap around
    squares = (x * x.conj()).real if x.dtype.kind == "c" else x * x
    return np.sqrt(squares.sum(axis=as_axis(axis), keepdims=keepdims))


norm: Operator[..., Any] = reduction_of("norm", _norm_kernel)


@norm.register_kernel("cpu")
def _(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Add up as NumPy does: the squares of a whole array by BLAS."""
    if axis is not None or x.dtype.kind not in "fc":
        return _norm_kernel(x, axis, keepdims)
    line = x.ravel(order="K")
    parts = (line.real, line.imag) if line.dtype.kind == "c" else (line,)
    size = np.sqrt(sum(part.dot(part) for part in parts))
    return size.reshape((1,) * x.ndim) if keepdims else size


def _norm_pull(g: Any, x: Any, axis: Any, keepdims: bool, out: Any) -> Any:
    """Return each element over the norm; 0 where the norm is zero."""
    if type(x) is np.ndarray and isinstance(g, np.ndarray | np.generic):
        size = kept(out, x.shape, axis, keepdims)
        if size.all():
            share = kept(g, x.shape, axis, keepdims) / size
            return share * (x.conj() if x.dtype.kind == "c" else x)
    share = g / np.where(np.equal(out, 0), np.inf, out)
    share = kept(share, x.shape, axis, keepdims)
    return share * (np.conjugate(x) if is_complex(x) else x)


norm.register_autograd(partials({"x": _norm_pull}))


@norm.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    x, axis, keepdims = primals
    y = norm(x, axis, keepdims)
    top = np.conjugate(x) if is_complex(x) else x
    moved = np.sum(fit(tangents[0] * top, y), axis=as_axis(axis), keepdims=keepdims)
    return y, moved / np.where(np.equal(y, 0), np.inf, y)


# ---- norms of an order greater than 1 ----


def _power_kernel(
    x: Any, axis: Any = None, keepdims: bool = False, order: float = 3.0
) -> Any:
    powers = np.absolute(x) ** order
    total = np.sum(powers, axis=as_axis(axis), keepdims=keepdims)
    return total ** (1.0 / order)


_power_norm: Operator[..., Any] = reduction_of(
    "power_norm", _power_kernel, ", float order=3.0"
)
_power_norm.register_kernel(
    "cpu",
    lambda x, axis, keepdims, order: (
        (np.absolute(x) ** order).sum(axis=as_axis(axis), keepdims=keepdims)
        ** (1.0 / order)
    ),
)
_power_norm.register_sample_inputs(
    lambda: [
        (np.array([0.3, -1.2, 2.0]),),
        (np.array([[0.3, -1.2, 2.0], [0.7, 0.4, -0.9]]), [1], False, 2.5),
        (np.array([[0.3, -1.2, 2.0], [0.7, 0.4, -0.9]]), [0], True, 1.5),
    ]
)


def _power_pull(
    g: Any, x: Any, axis: Any, keepdims: bool, order: float, out: Any
) -> Any:
    """Apply the sign of each element times its share to the power order - 1."""
    size = kept(out, x.shape, axis, keepdims)
    return kept(g, x.shape, axis, keepdims) * _power_slope(x, size, order)


def _power_slope(x: Any, y: Any, order: float) -> Any:
    size = np.absolute(x)
    if type(x) is not np.ndarray or not y.all():
        y = np.where(np.equal(y, 0), 1.0, y)
    # The power of a quotient: powers of large numbers alone overflow.
    share = (size / y) ** (order - 1.0)
    if not is_complex(x):
        return share * np.sign(x)
    return share * (np.conjugate(x) / np.where(np.equal(size, 0), 1.0, size))


_power_norm.register_autograd(partials({"x": _power_pull}))


@_power_norm.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    x, axis, keepdims, order = primals
    y = _power_norm(x, axis, keepdims, order)
    part = fit(
        tangents[0] * _power_slope(x, kept(y, x.shape, axis, keepdims), order), y
    )
    return y, np.sum(part, axis=as_axis(axis), keepdims=keepdims)


@register_numpy_function(np.linalg.norm)
def _(x: Any, ord: Any = None, axis: Any = None, keepdims: Any = False) -> Any:  # noqa: A002  # NumPy's name
    rank = len(shape_of(x))
    if axis is None and _is_root_of_squares(ord, rank) and is_inexact(x):
        return norm.call(x, None, bool(keepdims))
    if type(ord) is int and ord > 2 and axis is None and rank == 1 and is_inexact(x):
        return _power_norm.run(x, None, bool(keepdims), float(ord))
    if axis is not None and not isinstance(axis, tuple):
        axis = int(axis)  # as NumPy: it takes bools here alone
    axes = None if axis is None else list(counted_axes(int_axes(axis), rank))
    if axes is None and ord is not None:
        axes = list(range(rank))
    floats = x if is_inexact(x) else x.astype(float)
    if axes is not None and (not axes or len(axes) > 2):
        raise _no_norm(ord, axes)
    if ord is None or (len(axes or ()) == 1 and ord == 2):
        return norm(floats, axes, bool(keepdims))
    if axes is not None and len(axes) == 1:
        return as_scalar(_vector_norm(floats, ord, axes[0], bool(keepdims)))
    return as_scalar(_matrix_norm(floats, ord, axes, bool(keepdims)))


def _is_root_of_squares(order: Any, rank: int) -> bool:
    """Return whether a norm of a whole array is the root of the sum of squares."""
    if order is None:
        return True
    if rank == 2:
        return type(order) is str and order in ("fro", "f")
    return rank == 1 and type(order) in (int, float) and order == 2


def _vector_norm(x: Any, order: Any, axis: int, keepdims: bool) -> Any:
    if isinstance(order, str):
        raise ArgumentError(
            f"np.linalg.norm(ord={order!r}) is not a norm of a vector",
            do="use ord=None, a number, inf or -inf",
        )
    if isinstance(order, complex | np.complexfloating):
        raise ArgumentError(
            f"np.linalg.norm(ord={order!r}): the order is complex",
            do="use a real number, inf or -inf",
        )
    if isinstance(order, np.generic):
        order = float(order)  # the norm has the dtype of the array
    if order == 0:
        given = np.not_equal(x, 0).astype(np.real(x).dtype)
        return np.sum(given, axis=axis, keepdims=keepdims)
    if isinstance(order, int | float) and 1 < order < np.inf:
        return _power_norm.run(x, [axis], keepdims, float(order))
    size = np.absolute(x)
    if order == np.inf:
        return largest(size, axis, keepdims=keepdims)
    if order == -np.inf:
        return np.min(size, axis=axis, keepdims=keepdims)
    if order == 1:
        return np.sum(size, axis=axis, keepdims=keepdims)
    total = np.sum(size**order, axis=axis, keepdims=keepdims)
    # The root has no slope at zero, where only the vector of zeros leads.
    is_zero = np.equal(total, 0)
    return np.where(is_zero, 0.0, np.where(is_zero, 1.0, total) ** (1.0 / order))


def _at(s: Any, place: int) -> Any:
    """Return one singular value of each matrix, in an array of its own."""
    return s[place] if s.ndim == 1 else np.copy(s[..., place])


# Matrix norms of singular values, which are in descending order.
_SPECTRAL_NORMS: dict[float | str, Callable[[Any], Any]] = {
    2: lambda s: np.sum(s, axis=-1) if has_none(s.shape[-1:]) else _at(s, 0),
    -2: lambda s: _at(s, -1),
    "nuc": lambda s: np.sum(s, axis=-1),
}

# Matrix norms without singular values -> the axis that is summed, and the extreme.
_MATRIX_NORMS: dict[float, tuple[int, Callable[..., Any]]] = {
    1: (0, largest),
    -1: (0, np.min),
    np.inf: (1, largest),
    -np.inf: (1, np.min),
}


def _no_norm(order: Any, axes: Sequence[int]) -> ArgumentError:
    return ArgumentError(
        f"np.linalg.norm(ord={order!r}) has no operator for traced or fake arrays of"
        f" {len(axes)} axes",
        do="use ord=None, 'fro', 'nuc', 1, -1, 2, -2, inf or -inf",
    )


def _matrix_norm(x: Any, order: Any, axes: Any, keepdims: bool) -> Any:
    if order in ("fro", "f"):
        return norm(x, axes, keepdims)
    places = normalize_axis_tuple(axes, x.ndim)
    if order in _SPECTRAL_NORMS:
        is_last = places == (x.ndim - 2, x.ndim - 1)
        values = svdvals(x if is_last else np.moveaxis(x, places, (-2, -1)))
        found = _SPECTRAL_NORMS[order](values)
        return np.expand_dims(found, sorted(places)) if keepdims else found
    if order not in _MATRIX_NORMS:
        raise _no_norm(order, axes)
    summed, extreme = _MATRIX_NORMS[order]
    totals = np.sum(np.absolute(x), axis=places[summed], keepdims=True)
    found = extreme(totals, places[1 - summed], keepdims=True)
    return found if keepdims else np.squeeze(found, places)


@register_numpy_function(np.linalg.matrix_norm)
def _(x: Any, /, *, keepdims: Any = False, ord: Any = "fro") -> Any:  # noqa: A002  # NumPy's name
    return np.linalg.norm(x, ord, (-2, -1), keepdims)


@register_numpy_function(np.linalg.vector_norm)
def _(x: Any, /, *, axis: Any = None, keepdims: Any = False, ord: Any = 2) -> Any:  # noqa: A002  # NumPy's name
    rank = len(shape_of(x))
    axes = counted_axes(listed_axes(axis), rank)
    if ord in (2, None) and axes:
        floats = x if is_inexact(x) else x.astype(float)
        return norm(floats, axes, bool(keepdims))
    front = [i for i in range(rank) if i not in axes]
    moved = np.transpose(x, (*front, *axes))
    count = product(moved.shape[len(front) :])
    line = np.reshape(moved, (*moved.shape[: len(front)], count))
    found = np.linalg.norm(line, ord, -1)
    return np.expand_dims(found, axes) if keepdims else found


# ---- least squares: pinv, lstsq, and what singular values say: matrix_rank, cond ----
# Derivatives of ``pinv`` and ``lstsq`` are those at constant rank, where singular
# values that are cut off are zero. Where a nearby matrix has another rank, the
# functions jump and have no derivative. A cutoff that drops larger singular values
# raises GradientError, since the formulas would not hold. Source: Golub and Pereyra,
# "The differentiation of pseudo-inverses and nonlinear least squares problems whose
# variables separate", 1973.


_DROPPED = (
    (
        "{}: the gradient is not known where rcond drops singular values that are more than"
        " rounding"
    ),
    "use a smaller rcond, or the sum of u / s * vh over the singular values to keep",
)


def _whole(a: Any, rcond: Any, name: str) -> Any:
    """Return the matrices; raise if a cutoff drops more than what is nearly zero."""
    small = np.finfo(dtype_of(a)).eps ** 0.5
    if isinstance(rcond, float) and rcond <= small:
        return a
    hint = getattr(rcond, "hint", None)  # the usual cutoff follows from sizes
    if hint is not None and hint <= small:
        check(rcond <= small, f"{name}: the graph is for cutoffs of rounding errors")
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


@pinv.register_kernel("cuda")
def _(a: Any, rcond: Any, hermitian: bool = False) -> Any:
    if not hermitian:
        return np.linalg.pinv(a, rcond)
    # CuPy's has no parameter for it (14.2).
    values, vectors = np.linalg.eigh(a)
    sizes = np.absolute(values)
    share = rcond if isinstance(rcond, NUMBERS) else np.expand_dims(rcond, -1)
    is_large = sizes > share * np.max(sizes, axis=-1, keepdims=True)
    inverse = np.where(is_large, 1.0, 0.0) / np.where(is_large, values, 1.0)
    return np.matmul(vectors * np.expand_dims(inverse, -2), adjoint(vectors))


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
    """Return a number as a float; one made of symbolic sizes as it is."""
    return x if isinstance(x, SymFloat) else float(x)


@pinv.register_fake
def _(a: Any, rcond: Any, hermitian: bool) -> FakeArray:
    check_matrices("pinv", a.shape)
    m, n = a.shape[-2:]
    # NumPy 2.4 keeps the dtype of integers where there are no elements.
    dtype = a.dtype if has_none((m, n)) else linalg_dtype(a)
    if hermitian:  # the sorted eigenvalues are in C order
        return FakeArray((*a.shape[:-2], n, m), dtype, device=device_of(a))
    return stack_of(a, (n, m), dtype)


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


def _lstsq(a: Any, b: Any, rcond: float) -> tuple[Any, Any, Any, Any]:
    x, sums, rank, s = np.linalg.lstsq(a, b, rcond)
    if sums.shape[0] != _count_of_sums(b):
        sums = _squares(b - np.matmul(a, x), len(b.shape) == 1).astype(sums.dtype)
    return x, sums, rank, s


def _squares(rest: Any, is_vector: bool) -> Any:
    """Return the sums of squares of columns, or that of a vector."""
    return np.sum(np.real(conj(rest) * rest), axis=0, keepdims=is_vector)


def _count_of_sums(b: Any) -> Any:
    """Return the number of right-hand sides."""
    return b.shape[1] if len(b.shape) > 1 else 1


# It has residuals of all matrices; NumPy leaves those of low rank out.
lstsq: Operator[..., Any] = custom_op(
    "np::lstsq",
    _lstsq,
    mutates_args=(),
    schema="(Array a, Array b, float rcond)"
    " -> (Array x, Array residuals, Array rank, Array s)",
)


@lstsq.register_fake
def _(a: Any, b: Any, rcond: float) -> tuple[FakeArray, ...]:
    _check_equations(a.shape, b.shape)
    dtype = linalg_dtype(a, b)
    device = device_of(a)
    x = FakeArray((a.shape[1], *b.shape[1:]), dtype, device=device)
    s = FakeArray((smaller(*a.shape),), real_dtype(dtype), device=device)
    sums = FakeArray((_count_of_sums(b),), s.dtype, device=device)
    return x, sums, FakeArray((), np.dtype(np.intc), device=device), s


def _check_equations(a: Any, b: Any) -> None:
    if len(a) != 2 or len(b) not in (1, 2) or a[0] != b[0]:
        raise ShapeError(
            f"np.linalg.lstsq: shapes {tuple(a)} and {tuple(b)} do not fit",
            do="give a matrix, and a vector or a matrix with as many rows",
        )


def _note_lstsq(ctx: Any, inputs: Any, output: Any) -> None:
    a, b, ctx.rcond = inputs
    x, _, rank, _ = output
    ctx.mark_non_differentiable(rank)
    ctx.save_for_backward(a, b, x)
    ctx.set_materialize_grads(False)


def _lstsq_backward(ctx: Any, by_x: Any, by_sums: Any, by_rank: Any, by_s: Any) -> Any:
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
    if by_sums is not None:
        # The solution is where the residuals are least: their slope by it is 0.
        is_vector = len(b.shape) == 1
        y, side = (column(x), column(b)) if is_vector else (x, b)
        pulled = conj(side - np.matmul(a, y)) * (2 * by_sums)
        by_a = by_a - np.matmul(pulled, transposed(y))
        more = fit(pulled[..., 0] if is_vector else pulled, b)
        by_b = more if by_b is None else by_b + more
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
    x, sums, _, s = out
    p = pinv(a, rcond)
    moved = 0.0 if tb is None else np.matmul(p, tb)
    change = 0.0 if tb is None else tb
    if ta is not None:
        change = change - np.matmul(ta, x)
    by_sums = np.real(conj(b - np.matmul(a, x)) * change) * 2
    by_sums = fit(np.sum(by_sums, axis=0, keepdims=len(b.shape) == 1), sums)
    if ta is None:
        return out, (fit(moved, x), by_sums, None, None)
    whole = _whole(a, rcond, "np.linalg.lstsq")
    flat = adjoint(ta)
    rest = b - np.matmul(whole, x)
    back = np.matmul(flat, np.matmul(adjoint(p), x))
    moved = moved - np.matmul(p, np.matmul(ta, x))
    moved = moved + np.matmul(p, np.matmul(adjoint(p), np.matmul(flat, rest)))
    moved = moved + back - np.matmul(p, np.matmul(whole, back))
    u, _, vh = np.linalg.svd(a, full_matrices=False)
    by_s = np.real(np.sum(conj(u) * np.matmul(ta, adjoint(vh)), axis=0))
    return out, (fit(moved, x), by_sums, None, fit(by_s, s))


@lstsq.register_vmap
def _(info: Any, in_dims: Any, a: Any, b: Any, rcond: float) -> Any:
    dim_a, dim_b, _ = in_dims
    rows_a, rows_b = batch_first(a, dim_a), batch_first(b, dim_b)
    _check_equations(rows_a.shape[1:], rows_b.shape[1:])
    if dim_a is None and len(rows_b.shape) == 2:
        # One factorization serves all rows: they are the columns of one matrix.
        x, sums, rank, s = lstsq(a, np.moveaxis(b, dim_b, -1), rcond)
        return (x, np.expand_dims(sums, 1), rank, s), (1, 0, None, None)
    is_vector = len(rows_b.shape) == 2
    sides = column(rows_b) if is_vector else rows_b
    x = np.matmul(pinv(rows_a, rcond), sides)
    rest = sides - np.matmul(rows_a, x)
    s = svdvals(rows_a)
    rank = np.sum(_is_counted(s, rcond), axis=-1).astype(np.intc)
    sums = np.sum(np.real(conj(rest) * rest), axis=-2)
    x = _fit_to(x, a, b)
    s, sums = (_fit_to(y, *(np.real(v) for v in (a, b))) for y in (s, sums))
    found = (x[..., 0] if is_vector else x), sums, rank, s
    if dim_a is None:
        return (found[0], sums, rank[0], s[0]), (0, 0, None, None)
    return found, (0, 0, 0, 0)


def _fit_to(x: Any, *arrays: Any) -> Any:
    """Return a result in the dtype that NumPy gives it for some arrays."""
    dtype = linalg_dtype(*arrays)
    return x if dtype_of(x) == dtype else x.astype(dtype)


def _is_counted(s: Any, rcond: float) -> Any:
    """Return which singular values make the rank."""
    return np.greater(s, largest(s, -1, keepdims=True) * rcond)


@register_numpy_function(np.linalg.lstsq)
def _(a: Any, b: Any, rcond: Any = None) -> Any:
    a, b = as_array(a), as_array(b)
    _check_equations(a.shape, b.shape)
    m, n = a.shape
    if rcond is None:
        # NumPy computes in double precision.
        rcond = float(np.finfo(float).eps) * larger(m, n)
    x, sums, rank, s = lstsq(a, b, _number(rcond))
    if (m <= n) is True:
        return x, sums[:0], rank, s
    if (m > n) is not True:
        # There are none unless there are more rows than columns.
        sums = sums[: sums.shape[0] * smaller(larger(m - n, 0), 1)]
    if seen(rank).is_row:
        # Rows of a batch have one shape: residuals that NumPy leaves out are nan.
        return x, np.where(np.less(rank, n), np.nan, sums), rank, s
    is_full_rank = fact(
        # With no more rows than columns there are none, whatever the rank.
        np.greater_equal(rank, n * smaller(larger(m - n, 0), 1)),
        True,
        "np.linalg.lstsq: the number of residuals depends on whether the matrix has full"
        " rank",
        "compute np.sum(np.abs(b - a @ x) ** 2, axis=0), which has one for each column",
    )
    sums = is_full_rank.then(sums)
    return x, sums if is_full_rank.is_so else sums[:0], rank, s


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
    # In double precision, as in NumPy; the product is rounded to that of the matrix.
    inverse = inv(cast(x, np.result_type(dtype_of(x), np.float64)), True)
    size = np.linalg.norm(x, p, (-2, -1)) * np.linalg.norm(inverse, p, (-2, -1))
    return cast(size, real_dtype(linalg_dtype(x)))
