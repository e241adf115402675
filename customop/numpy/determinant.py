"""Determinants: det, slogdet.

The gradient of a determinant is the matrix of cofactors, also where the matrix is
singular. That of ``slogdet`` is the inverse, so there NumPy raises LinAlgError. Source:
Magnus and Neudecker, "Matrix differential calculus", 3rd ed., sections 8.3 and 8.6.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from customop import (
    FakeArray,
    Operator,
    ShapeError,
    custom_op,
    jvp,
    partials,
    register_numpy_function,
    vjp,
)
from customop.numpy.arguments import OF_NUMPY
from customop.numpy.matrices import (
    adjoint,
    batch_matrices,
    check_square,
    column,
    diagonal,
    linalg_dtype,
    real_dtype,
    stack_of,
    transposed,
)
from customop.numpy.rules import batch_first, fit, is_complex, numpy_operator

__all__: list[str] = []

# ---- cofactors: the gradient of a determinant ----


def _regular(a: Any) -> Any:
    """The inverses, or None if one of the matrices is too near to a singular one."""
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
    """Numbers of each matrix, to multiply the matrices with."""
    if isinstance(x, np.generic):
        return x
    if type(x) is np.ndarray:
        return x[..., None, None]
    return np.expand_dims(x, (-2, -1))


def _others(s: Any) -> Any:
    """For each element of a vector the product of all others."""
    one = np.ones_like(s[..., :1])
    before = np.cumprod(np.concatenate([one, s[..., :-1]], -1), -1)
    after = np.cumprod(np.concatenate([one, s[..., :0:-1]], -1), -1)
    return before * after[..., ::-1]


def _turns(u: Any, vh: Any) -> Any:
    return _wide(np.linalg.det(u) * np.linalg.det(vh))


def _in_double(x: Any) -> Any:
    """In double precision: products of many numbers leave the range of single precision."""
    return x.astype(np.result_type(x.dtype, np.float64), copy=False)


def _turned(a: Any, dtype: Any) -> Any:
    """The cofactors of matrices of two rows, which are their elements."""
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
        return found.astype(dtype, copy=False)
    # The adjugate of a product is the product of the adjugates.
    u, s, vh = np.linalg.svd(a)
    found = np.matmul(u.conj() * _others(s)[..., None, :], vh.conj())
    return (_turns(u, vh) * found).astype(dtype, copy=False)


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
    u, s, vh = np.linalg.svd(a)
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
    """Change of the cofactors of regular matrices, for their determinants and inverses."""
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

cofactors.register_fake(lambda a: stack_of(a, a.shape[-2:], linalg_dtype(a)))
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
    """With u = sum(inv(a).T * t): log|det| moves by Re u, the sign by i Im(u) sign."""
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
