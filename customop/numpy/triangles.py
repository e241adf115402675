"""Triangular factors: cholesky and qr.

``cholesky`` reads one triangle of its matrix, as NumPy does, so its gradient lies in that
triangle: it is the derivative by the numbers that are read. For the symmetric gradient
differentiate a function of ``(a + a.T) / 2``, as JAX and torch do inside.

``qr`` has derivatives where the first columns of the matrix are independent; elsewhere
NumPy raises LinAlgError in the gradient. Source: Walter and Lehmann, "Algorithmic
differentiation of linear algebra functions", 2012; for complex matrices Seeger et al.,
"Auto-differentiating linear algebra", 2017.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from customop import (
    ArgumentError,
    FakeArray,
    custom_op,
    fake_like,
    partials,
    register_numpy_function,
)
from customop.numpy.fakes import keep_order, view_of
from customop.numpy.matrices import (
    adjoint,
    batch_matrices,
    check_matrices,
    check_square,
    conj,
    from_triangle,
    half,
    linalg_dtype,
    stack_of,
    steady,
    to_triangle,
    transposed,
)
from customop.numpy.rules import fit, is_complex
from customop.numpy.sizes import same_size, smaller

__all__: list[str] = []

# ---- cholesky ----


@custom_op(
    "np::cholesky", mutates_args=(), schema="(Array a, bool upper=False) -> Array"
)
def cholesky(a: Any, upper: bool = False) -> Any:
    # Not by upper=False, which some versions of CuPy do not take.
    return np.linalg.cholesky(a, upper=True) if upper else np.linalg.cholesky(a)


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
        _check, reason="derivatives need columns that are independent, as errors say"
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
    """The gradient for at least as many rows as columns."""
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
