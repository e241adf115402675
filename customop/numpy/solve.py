"""Linear equations: determinants, solve, inv, cholesky, qr.

The gradient of a determinant is the matrix of cofactors, also where the matrix is
singular. That of ``slogdet`` is the inverse, so there NumPy raises LinAlgError. Source:
Magnus and Neudecker, "Matrix differential calculus", 3rd ed., sections 8.3 and 8.6.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from customop import (
    ArgumentError,
    FakeArray,
    Operator,
    ShapeError,
    custom_op,
    fake_like,
    jvp,
    partials,
    register_numpy_function,
    vjp,
)
from customop.numpy.arguments import (
    OF_NUMPY,
    as_array,
    broadcast,
    dtype_of,
    is_known,
    product,
    same_size,
    shape_of,
    smaller,
)
from customop.numpy.create import eye
from customop.numpy.matrices import (
    adjoint,
    batch_matrices,
    check_matrices,
    check_square,
    column,
    conj,
    diagonal,
    from_triangle,
    half,
    linalg_dtype,
    real_dtype,
    stack_of,
    steady,
    to_triangle,
    transposed,
)
from customop.numpy.rules import (
    batch_first,
    device_of,
    fit,
    in_c_order,
    in_order_of,
    is_complex,
    keep_order,
    numpy_operator,
    padded_rows,
    stack_strides,
    view_of,
)

# ---- det ----


@custom_op("np::det", mutates_args=(), schema="(Array a) -> Array")
def det(a: Any) -> Any:
    return np.linalg.det(a)


register_numpy_function(np.linalg.det, det)


@det.register_fake
def _(a: Any) -> FakeArray:
    check_square("det", a.shape)
    return stack_of(a, (), linalg_dtype(a))


det.register_vmap(batch_matrices("det", det))


def _det_pull(g: Any, a: Any, out: Any) -> Any:
    is_plain = type(a) is np.ndarray and isinstance(g, OF_NUMPY)
    if is_plain and a.dtype.char in "dD" and a.shape[-1] > 2:
        inverse = _regular(a)
        if inverse is not None:  # as below, without the determinant once more
            return _wide(g) * (_wide(out) * transposed(inverse).copy())
    return _wide(g) * cofactors(a)


det.register_autograd(partials({"a": _det_pull}))


@det.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    (a,), (t,) = primals, tangents
    return det(a), np.sum(cofactors(a) * t, axis=(-2, -1))


# ---- slogdet ----


@custom_op(
    "np::slogdet",
    mutates_args=(),
    schema="(Array a) -> (Array sign, Array logabsdet)",
)
def slogdet(a: Any) -> Any:
    return tuple(np.linalg.slogdet(a))


_Slogdet = type(np.linalg.slogdet(np.eye(1)))
register_numpy_function(np.linalg.slogdet, lambda a: _Slogdet(*slogdet(a)))


@slogdet.register_fake
def _(a: Any) -> tuple[FakeArray, FakeArray]:
    check_square("slogdet", a.shape)
    dtype = linalg_dtype(a)
    return stack_of(a, (), dtype), stack_of(a, (), real_dtype(dtype))


slogdet.register_vmap(batch_matrices("slogdet", slogdet, 2))


def _note_slogdet(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0], output[0])
    ctx.set_materialize_grads(False)


def _slogdet_backward(ctx: Any, by_sign: Any, by_log: Any) -> Any:
    """With u = sum(inv(a).T * t), log|det| moves by Re u, the sign by i Im(u) sign."""
    a, sign = ctx.saved_arrays
    factor = 0.0 if by_log is None else _wide(by_log)
    if by_sign is not None and is_complex(sign):
        factor = factor + 1j * _wide(np.imag(by_sign * sign))
    return fit(factor * transposed(np.linalg.inv(a)), a)


slogdet.register_autograd(_slogdet_backward, setup_context=_note_slogdet)


@slogdet.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    (a,), (t,) = primals, tangents
    sign, size = slogdet(a)
    moved = np.sum(diagonal(np.linalg.solve(a, t)), -1)
    if not is_complex(sign):
        return (sign, size), (None, fit(moved, size))
    return (sign, size), (fit(1j * np.imag(moved) * sign, sign), np.real(moved))


# ``cholesky`` reads one triangle of its matrix, as NumPy does, so its gradient lies in
# that triangle: it is the derivative by the numbers that are read. For the symmetric
# gradient differentiate a function of ``(a + a.T) / 2``, as JAX and torch do inside.
#
# ``qr`` has derivatives where the first columns of the matrix are independent;
# elsewhere NumPy raises LinAlgError in the gradient. Source: Walter and Lehmann,
# "Algorithmic differentiation of linear algebra functions", 2012; for complex matrices
# Seeger et al., "Auto-differentiating linear algebra", 2017.


# ---- cofactors: the gradient of a determinant ----


def _regular(a: Any) -> Any:
    """Return the inverses; None if a matrix is nearly singular."""
    try:
        inverse = np.linalg.inv(a)
    except np.linalg.LinAlgError:
        return None
    size = _size(a) * _size(inverse)
    # The error of the inverse relative to its size, 1e-8 for double precision.
    return inverse if (size < _LARGEST[inverse.dtype.char]).all() else None


def _size(x: Any) -> Any:
    return np.add.reduce(np.absolute(x), (-2, -1))


_LARGEST = {char: np.finfo(char).eps ** -0.5 for char in "fdFD"}


def _wide(x: Any) -> Any:
    """Return numbers with two more axes, to multiply matrices with."""
    if isinstance(x, np.generic):
        return x
    if type(x) is np.ndarray:
        return x[..., None, None]
    return np.expand_dims(x, (-2, -1))


def _others(s: Any) -> Any:
    """Return for each element of a vector the product of all others."""
    one = np.ones_like(s[..., :1])
    before = np.cumprod(np.concatenate([one, s[..., :-1]], -1), -1)
    after = np.cumprod(np.concatenate([one, s[..., :0:-1]], -1), -1)
    return before * after[..., ::-1]


def _turns(u: Any, vh: Any) -> Any:
    return _wide(np.linalg.det(u) * np.linalg.det(vh))


def _factors(a: Any) -> Any:
    """Return the singular value decomposition; nan for matrices that are not finite."""
    is_finite = np.isfinite(a).all((-2, -1))
    if is_finite.all():
        return np.linalg.svd(a)
    u, s, vh = np.linalg.svd(np.where(_wide(is_finite), a, 0))
    return u, np.where(is_finite[..., None], s, np.nan), vh


def _in_double(x: Any) -> Any:
    """Cast to double precision: products of many numbers leave the single range."""
    return x.astype(np.result_type(x.dtype, np.float64), copy=False)


def _turned(a: Any, dtype: Any) -> Any:
    """Return the cofactors of matrices of two rows, which are their elements."""
    found = np.empty(a.shape, dtype)
    found[..., 0, 0] = a[..., 1, 1]
    found[..., 1, 1] = a[..., 0, 0]
    # With `out=` steps of 16 bytes give wrong numbers of single precision (NumPy 2.4.6).
    found[..., 0, 1] = -a[..., 1, 0]
    found[..., 1, 0] = -a[..., 0, 1]
    return found


def _cofactors_kernel(a: Any) -> Any:
    dtype = linalg_dtype(a)
    if not a.shape[-1]:
        return a.astype(dtype)
    if type(a) is np.ndarray and a.shape[-2:] == (2, 2):
        return _turned(_in_double(a), dtype)
    a = _in_double(a)
    inverse = _regular(a)
    if inverse is not None:
        found = _wide(np.linalg.det(a)) * transposed(inverse).copy()
        return found.astype(dtype, order="C", copy=False)
    # The adjugate of a product is the product of the adjugates.
    u, s, vh = _factors(a)
    found = np.matmul(u.conj() * _others(s)[..., None, :], vh.conj())
    return (_turns(u, vh) * found).astype(dtype, order="C", copy=False)


def _check_equal(a: Any, t: Any) -> None:
    if tuple(a.shape) != tuple(t.shape):
        raise ShapeError(
            f"np::moved_cofactors: a has the shape {tuple(a.shape)}, t"
            f" {tuple(t.shape)}",
            do="give a direction of the shape of the matrices",
        )


def _moved_kernel(a: Any, t: Any) -> Any:
    _check_equal(a, t)
    dtype = linalg_dtype(a, t)
    if not a.shape[-1]:
        return a.astype(dtype)
    if type(t) is np.ndarray and t.shape[-2:] == (2, 2):
        return _turned(_in_double(t), dtype)  # they are linear
    a, t = _in_double(a), _in_double(t)
    inverse = _regular(a)
    if inverse is not None:
        return _moved(np.linalg.det(a), inverse, t).astype(dtype, order="C")
    u, s, vh = _factors(a)
    inner = np.matmul(np.matmul(adjoint(u), t), adjoint(vh))
    # Element (i, j): the product of all singular values but those two.
    count = s.shape[-1]
    is_one = np.eye(count, dtype=bool)
    pairs = _others(np.where(is_one, 1.0, s[..., None, :]).astype(s.dtype))
    pairs = np.where(is_one, 0.0, pairs).astype(s.dtype)
    core = np.where(is_one, np.matmul(pairs, column(diagonal(inner))), -pairs * inner)
    found = np.matmul(np.matmul(adjoint(vh), core), adjoint(u))
    return transposed(_turns(u, vh) * found).astype(dtype, order="C")


def _moved(size: Any, inverse: Any, t: Any) -> Any:
    """Return the change of the cofactors of regular matrices."""
    turned = np.matmul(inverse, t)
    total = _wide(np.sum(diagonal(turned), -1))
    change = total * inverse - np.matmul(turned, inverse)
    return transposed(_wide(size) * change)


def _moved_regular(a: Any, t: Any) -> Any:
    return _moved(np.linalg.det(a), np.linalg.inv(a), t)


cofactors: Operator[..., Any] = numpy_operator(
    "cofactors", "(Array a) -> Array", _cofactors_kernel
)
# The derivative of the cofactors of a in the direction t. It is symmetric: with a third
# matrix g, sum(g * moved(a, t)) == sum(t * moved(a, g)).
moved_cofactors: Operator[..., Any] = numpy_operator(
    "moved_cofactors", "(Array a, Array t) -> Array", _moved_kernel
)

cofactors.register_fake(
    lambda a: FakeArray(a.shape, linalg_dtype(a), device=device_of(a))
)
cofactors.register_vmap(batch_matrices("det", cofactors))
cofactors.register_autograd(partials({"a": lambda g, a: moved_cofactors(a, g)}))


@cofactors.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    (a,), (t,) = primals, tangents
    return cofactors(a), moved_cofactors(a, t)


@moved_cofactors.register_fake
def _(a: Any, t: Any) -> FakeArray:
    _check_equal(a, t)
    return stack_of(a, a.shape[-2:], linalg_dtype(a, t))


@moved_cofactors.register_vmap
def _(info: Any, in_dims: Any, a: Any, t: Any) -> Any:
    rows_a, rows_t = (
        batch_first(x, dim, info.batch_size)
        for x, dim in zip((a, t), in_dims, strict=True)
    )
    return moved_cofactors(rows_a, rows_t), 0


def _by_matrix(g: Any, a: Any, t: Any) -> Any:
    _, pullback = vjp(lambda x: _moved_regular(x, t), a)
    return pullback(g)[0]


moved_cofactors.register_autograd(
    partials({"a": _by_matrix, "t": lambda g, a: moved_cofactors(a, g)})
)

for _check in ("test_jvp", "test_gradients"):
    moved_cofactors.waive(
        _check, reason="third derivatives of det need matrices that are not singular"
    )


@moved_cofactors.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    (a, t), (ta, tt) = primals, tangents
    parts = [] if tt is None else [moved_cofactors(a, tt)]
    if ta is not None:
        parts.append(jvp(lambda x: _moved_regular(x, t), (a,), (ta,))[1])
    return moved_cofactors(a, t), sum(parts[1:], parts[0])


# ---- cholesky ----


@custom_op(
    "np::cholesky", mutates_args=(), schema="(Array a, bool upper=False) -> Array"
)
def cholesky(a: Any, upper: bool = False) -> Any:
    # Not by upper=False, which some versions of CuPy do not take.
    return np.linalg.cholesky(a, upper=True) if upper else np.linalg.cholesky(a)


@cholesky.register_kernel("cuda")
def _(a: Any, upper: bool = False) -> Any:
    # CuPy's reads the lower triangle alone (14.2).
    if not upper:
        return np.linalg.cholesky(a)
    return in_c_order(adjoint(np.linalg.cholesky(adjoint(a))))


@register_numpy_function(np.linalg.cholesky)
def _(a: Any, /, *, upper: bool = False) -> Any:
    return cholesky(a, bool(upper))


@cholesky.register_fake
def _(a: Any, upper: bool) -> FakeArray:
    check_square("cholesky", a.shape)
    return stack_of(a, a.shape[-2:], linalg_dtype(a))


cholesky.register_vmap(batch_matrices("cholesky", cholesky))


def _cholesky_pull(g: Any, upper: bool, out: Any) -> Any:
    lower, given = (adjoint(out), adjoint(g)) if upper else (out, g)
    inverse = np.linalg.inv(lower)
    inner = half(np.matmul(transposed(lower), given))
    found = np.matmul(np.matmul(transposed(inverse), inner), conj(inverse))
    return to_triangle(found, upper)


cholesky.register_autograd(partials({"a": _cholesky_pull}))


@cholesky.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    a, upper = primals
    y = cholesky(a, upper)
    lower = adjoint(y) if upper else y
    inverse = np.linalg.inv(lower)
    moved = from_triangle(tangents[0], upper)
    inner = np.matmul(np.matmul(inverse, moved), adjoint(inverse))
    found = np.matmul(lower, half(inner))
    return y, adjoint(found) if upper else found


# ---- qr ----


@custom_op(
    "np::qr",
    mutates_args=(),
    schema="(Array a, bool complete=False) -> (Array Q, Array R)",
)
def qr(a: Any, complete: bool = False) -> Any:
    return tuple(np.linalg.qr(a, "complete" if complete else "reduced"))


_Qr = type(np.linalg.qr(np.eye(1)))


@register_numpy_function(np.linalg.qr)
def _(a: Any, mode: str = "reduced") -> Any:
    if mode not in ("reduced", "complete", "r"):
        why = " has no derivative: it is LAPACK's form of the factors"
        raise ArgumentError(
            f"np.linalg.qr(mode={mode!r}){why if mode == 'raw' else ' is not a mode'}",
            do="use mode='reduced', 'complete' or 'r'",
        )
    found = qr(a, mode == "complete")
    return found[1] if mode == "r" else _Qr(*found)


@qr.register_fake
def _(a: Any, complete: bool) -> tuple[FakeArray, FakeArray]:
    check_matrices("qr", a.shape)
    rows, columns = a.shape[-2:]
    inner = rows if complete else smaller(rows, columns)
    dtype = linalg_dtype(a)
    # NumPy works on a copy; R is np.where of its rows and a mask.
    copied = fake_like(a, dtype=dtype)
    part = view_of(copied, (*a.shape[:-2], inner, columns), copied.strides)
    mask = FakeArray((inner, columns), np.dtype(bool), device=copied.device)
    return stack_of(copied, (rows, inner), dtype), keep_order([mask, part], dtype)


qr.register_vmap(batch_matrices("qr", qr, 2))
for _check in ("test_jvp", "test_gradients"):
    qr.waive(
        _check,
        reason="derivatives need columns that are independent, as errors say",
    )


def _note_qr(ctx: Any, inputs: Any, output: Any) -> None:
    a, _ = inputs
    ctx.save_for_backward(a, *output)


def _qr_backward(ctx: Any, by_q: Any, by_r: Any) -> Any:
    a, q, r = ctx.saved_arrays
    rows, columns = a.shape[-2:]
    count = smaller(rows, columns)
    # The formulas are for gradients that pair by conjugation.
    by_q, by_r = conj(by_q), conj(by_r)
    if not same_size(q.shape[-1], count):
        main, rest = q[..., :count], q[..., count:]
        by_main, by_rest = by_q[..., :count], by_q[..., count:]
        by_q = by_main + steady(main, rest, by_rest, *_NO_COMPLETION)
        q, r, by_r = main, r[..., :count, :], by_r[..., :count, :]
    if same_size(columns, count):
        return fit(conj(_qr_pull(q, r, by_q, by_r)), a), None
    # The first columns make the square case; the others follow: R2 = Q^H A2.
    by_q = by_q + np.matmul(a[..., count:], adjoint(by_r[..., count:]))
    first = _qr_pull(q, r[..., :count], by_q, by_r[..., :count])
    found = np.concatenate([first, np.matmul(q, by_r[..., count:])], -1)
    return fit(conj(found), a), None


_NO_COMPLETION = (
    (
        "np.linalg.qr(mode='complete'): the gradient depends on the columns of Q after those"
        " of mode='reduced', which are arbitrary"
    ),
    "use mode='reduced', or functions that a rotation of these columns does not change",
)


def _qr_pull(q: Any, r: Any, by_q: Any, by_r: Any) -> Any:
    """Return the gradient for at least as many rows as columns."""
    upper = np.triu(np.matmul(by_r, adjoint(r)) - np.matmul(adjoint(q), by_q))
    inner = half(upper, is_upper=True)
    found = by_q + np.matmul(q, inner + adjoint(inner))
    return adjoint(np.linalg.solve(r, adjoint(found)))


qr.register_autograd(_qr_backward, setup_context=_note_qr)


@qr.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    (a, complete), t = primals, tangents[0]
    q, r = qr(a, complete)
    rows, columns = a.shape[-2:]
    count = smaller(rows, columns)
    main, square = q[..., :count], r[..., :count, :count]
    left = adjoint(np.linalg.solve(adjoint(square), adjoint(t[..., :count])))
    inner = np.matmul(adjoint(main), left)
    turn = np.tril(inner, -1)
    turn = turn - adjoint(turn)
    if is_complex(inner):
        turn = turn + (np.tril(np.triu(inner)) - adjoint(np.tril(np.triu(inner)))) * 0.5
    side = left - np.matmul(main, inner)
    moved_q = side + np.matmul(main, turn)
    moved_r = np.matmul(adjoint(main), t) - np.matmul(turn, r[..., :count, :])
    if not same_size(q.shape[-1], count):
        rest = q[..., count:]
        moved_rest = -np.matmul(main, np.matmul(adjoint(side), rest))
        moved_q = np.concatenate([moved_q, moved_rest], -1)
        zeros = np.zeros_like(r[..., count:, :])
        moved_r = np.concatenate([np.triu(moved_r), zeros], -2)
    return (q, r), (moved_q, np.triu(moved_r))


# A singular matrix raises NumPy's LinAlgError. Source of the derivatives: Giles,
# "Collected matrix derivative results for forward and reverse mode algorithmic
# differentiation", 2008.


# ---- inv ----


@custom_op(
    "np::inv", mutates_args=(), schema="(Array a, bool nan_if_singular=False) -> Array"
)
def inv(a: Any, nan_if_singular: bool = False) -> Any:
    """Invert matrices; a singular one gives nan, or NumPy's LinAlgError."""
    try:
        return np.linalg.inv(a)
    except np.linalg.LinAlgError:
        if not nan_if_singular:
            raise
    is_singular = np.zeros(a.shape[:-2], bool)
    for at in np.ndindex(is_singular.shape):
        is_singular[at] = _is_singular(a[at])
    regular = a.copy("K")  # the order of its axes is that of the result
    regular[is_singular] = np.eye(a.shape[-1])
    found = np.linalg.inv(regular)
    found[is_singular] = np.nan
    return found


def _is_singular(a: Any) -> bool:
    try:
        np.linalg.inv(a)
    except np.linalg.LinAlgError:
        return True
    return False


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
    """Multiply by repeated squares, as NumPy does."""
    check_square("matrix_power", a.shape)
    count = operator.index(n)
    if count == 0:
        return _identities(a)
    square = np.linalg.inv(a) if count < 0 else a
    result = None
    count = abs(count)
    if count == 3:
        return np.matmul(np.matmul(square, square), square)
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
