"""Singular values and vectors: svd, svdvals.

What is decided where the mathematics leaves a choice:

- Singular vectors of equal singular values have no derivative: gradients through them are
  nan. Values that differ by rounding only count as equal, unless their vectors are not
  used. Gradients of singular values alone are right for symmetric functions of equal ones,
  and else, also at zero, a subgradient.
- Complex singular vectors have arbitrary phases, and with ``full_matrices`` the columns
  that complete a basis an arbitrary rotation. A gradient that depends on these raises
  GradientError. Tangents of forward mode are those without such a turn.

Source: Giles, "Collected matrix derivative results", 2008, section 3.2; for complex
matrices Wan and Zhang, "Automatic differentiation for complex valued SVD", 2019.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from customop import FakeArray, custom_op, partials, register_numpy_function
from customop.numpy.matrices import (
    adjoint,
    batch_matrices,
    check_matrices,
    column,
    conj,
    diagonal,
    is_more,
    linalg_dtype,
    lower,
    off_diagonal,
    over_gaps,
    real_dtype,
    require,
    row,
    stack_of,
    steady,
    steps_of,
    transposed,
    upper,
)
from customop.numpy.rules import fit, is_complex
from customop.numpy.sizes import same_size, smaller

__all__ = ["svdvals"]

_PHASES = (
    (
        "np.linalg.svd: the gradient depends on the phases of complex singular vectors, which"
        " are arbitrary"
    ),
    "use functions that phases do not change, such as np.abs(u), or u @ vh with both",
)
_NO_COMPLETION = (
    (
        "np.linalg.svd(full_matrices=True): the gradient depends on the singular vectors after"
        " those of full_matrices=False, which are arbitrary"
    ),
    "use full_matrices=False, or functions that a rotation of these vectors does not change",
)


@custom_op(
    "np::svd",
    mutates_args=(),
    schema="(Array a, bool full_matrices=True) -> (Array U, Array S, Array Vh)",
)
def svd(a: Any, full_matrices: bool = True) -> Any:
    return tuple(np.linalg.svd(a, full_matrices))


@custom_op("np::svdvals", mutates_args=(), schema="(Array a) -> Array")
def svdvals(a: Any) -> Any:
    """Singular values of matrices, in descending order."""
    return np.linalg.svd(a, compute_uv=False)


_Svd = type(np.linalg.svd(np.eye(1)))


@register_numpy_function(np.linalg.svd)
def _(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
) -> Any:
    if hermitian:
        return _hermitian(a) if compute_uv else _hermitian_values(a)
    return _Svd(*svd(a, bool(full_matrices))) if compute_uv else svdvals(a)


register_numpy_function(np.linalg.svdvals, lambda x, /: svdvals(x))


def _hermitian(a: Any) -> Any:
    """From the eigenvalues, sorted by their absolute values; signs move to Vh."""
    w, v = np.linalg.eigh(a)
    order = np.flip(np.argsort(np.absolute(w)), -1)
    w = np.take_along_axis(w, order, axis=-1)
    u = np.take_along_axis(v, np.expand_dims(order, -2), axis=-1)
    sign = np.where(np.signbit(w), -1.0, 1.0).astype(w.dtype)
    return _Svd(u, np.absolute(w), adjoint(u * np.expand_dims(sign, -2)))


def _hermitian_values(a: Any) -> Any:
    return np.flip(np.sort(np.absolute(np.linalg.eigvalsh(a))), -1)


# ---- shapes and batches ----


@svd.register_fake
def _(a: Any, full_matrices: bool) -> tuple[FakeArray, ...]:
    check_matrices("svd", a.shape)
    m, n = a.shape[-2:]
    k = smaller(m, n)
    dtype = linalg_dtype(a)
    u = stack_of(a, (m, m if full_matrices else k), dtype)
    vh = stack_of(a, (n if full_matrices else k, n), dtype)
    return u, stack_of(a, (k,), real_dtype(dtype)), vh


@svdvals.register_fake
def _(a: Any) -> FakeArray:
    check_matrices("svdvals", a.shape)
    return stack_of(a, (smaller(*a.shape[-2:]),), real_dtype(linalg_dtype(a)))


svd.register_vmap(batch_matrices("svd", svd, 3))
for _check in ("test_jvp", "test_gradients"):
    svd.waive(
        _check,
        reason="complex singular vectors have arbitrary phases: a gradient that depends on"
        " them raises, and tangents do not turn them",
    )
svd.register_sample_inputs(
    lambda: [
        (np.array([[1.7]]),),
        (np.array([[2.3, 0.4], [0.6, -1.2]]),),
        (np.array([[2.3, 0.4, -0.9], [0.6, -1.2, 1.4]]), False),
        (np.array([[[1.9, 0.3], [0.2, 0.7]], [[-0.4, 1.1], [0.5, 1.6]]]), False),
    ]
)
svdvals.register_vmap(batch_matrices("svdvals", svdvals))

# ---- singular values alone ----


def _svdvals_pull(g: Any, a: Any) -> Any:
    u, _, vh = np.linalg.svd(a, full_matrices=False)
    return _by_values(g, u, vh)


def _by_values(g: Any, u: Any, vh: Any) -> Any:
    """The gradient of the matrices from that of their singular values."""
    return np.matmul(conj(u) * row(g), conj(vh))


svdvals.register_autograd(partials({"a": _svdvals_pull}))


@svdvals.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    u, s, vh = np.linalg.svd(primals[0], full_matrices=False)
    moved = np.matmul(tangents[0], adjoint(vh))
    return s, fit(np.real(np.sum(conj(u) * moved, axis=-2)), s)


# ---- with vectors ----
#
# The formulas are for gradients that pair by conjugation, so that u, v and their gradients
# are treated in the same way. A turn of the pairs (i, j) of u and v is split into its sum,
# over s[j] - s[i], and its difference, over s[j] + s[i].


def _sums_of(s: Any) -> Any:
    return row(s) + column(s)


def _turns(both: Any, apart: Any, s: Any) -> tuple[Any, Any]:
    """Half of each part over its gap."""
    near = off_diagonal(over_gaps(both, steps_of(s), s))
    return near * 0.5, _over_sums(apart, s) * 0.5


def _over_sums(x: Any, s: Any) -> Any:
    """With a zero diagonal for real numbers, where phases are signs."""
    found = over_gaps(x, _sums_of(s), s)
    return found if is_complex(x) else off_diagonal(found)


def _note_svd(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.like = inputs[0]
    ctx.save_for_backward(*output)
    ctx.set_materialize_grads(False)


def _svd_backward(ctx: Any, by_u: Any, by_s: Any, by_vh: Any) -> Any:
    u, s, vh = ctx.saved_arrays
    count = s.shape[-1]
    if by_u is None and by_vh is None:
        return fit(_by_values(by_s, u[..., :count], vh[..., :count, :]), ctx.like), None
    v = adjoint(vh)
    main_u, main_v = u[..., :count], v[..., :count]
    core = 0.0 if by_s is None else _on_diagonal(by_s, s)
    sides = []
    by_u = None if by_u is None else _main_part(u, conj(by_u), count)
    by_v = None if by_vh is None else _main_part(v, transposed(by_vh), count)
    core = core + _core(main_u, s, main_v, by_u, by_v)
    if by_u is not None and not same_size(u.shape[-2], count):
        outer = _outside(main_u, by_u, s)
        sides.append(np.matmul(outer, adjoint(main_v)))
    if by_v is not None and not same_size(v.shape[-2], count):
        outer = _outside(main_v, by_v, s)
        sides.append(np.matmul(main_u, adjoint(outer)))
    found = np.matmul(np.matmul(main_u, core), adjoint(main_v))
    for side in sides:
        found = found + side
    return fit(conj(found), ctx.like), None


def _on_diagonal(g: Any, s: Any) -> Any:
    """Diagonal matrices."""
    wide = np.broadcast_to(row(g), (*s.shape, s.shape[-1]))
    return lower(upper(wide))


def _main_part(u: Any, g: Any, count: int) -> Any:
    """The gradient by the first columns, to which the others are orthogonal."""
    if same_size(u.shape[-1], count):
        return g
    main, rest = u[..., :count], u[..., count:]
    return g[..., :count] + steady(main, rest, g[..., count:], *_NO_COMPLETION)


def _core(u: Any, s: Any, v: Any, by_u: Any, by_v: Any) -> Any:
    """The gradient by the matrix, seen from the singular vectors."""
    by_phase = 0.0
    skew = []
    for x, g in ((u, by_u), (v, by_v)):
        if g is None:
            skew.append(0.0)
            continue
        inner = np.matmul(adjoint(x), g)
        by_phase = by_phase + np.imag(diagonal(inner)) if is_complex(x) else 0.0
        skew.append(inner - adjoint(inner))
    first, second = skew
    both = first + second
    if is_complex(u):
        whole = np.concatenate([g for g in (by_u, by_v) if g is not None], -2)
        wrong = is_more(column(by_phase), whole)
        both = require(both, wrong, *_PHASES)
    near, far = _turns(both, first - second, s)
    return near + far


def _outside(x: Any, g: Any, s: Any) -> Any:
    """The part of the gradient that is orthogonal to the vectors, over the values."""
    part = g - np.matmul(x, np.matmul(adjoint(x), g))
    return _over_values(part, s)


def _over_values(x: Any, s: Any) -> Any:
    return over_gaps(x, row(s), s)


svd.register_autograd(_svd_backward, setup_context=_note_svd)


@svd.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    a, full = primals
    t = tangents[0]
    u, s, vh = svd(a, full)
    count = s.shape[-1]
    v = adjoint(vh)
    main_u, main_v = u[..., :count], v[..., :count]
    inner = np.matmul(np.matmul(adjoint(main_u), t), main_v)
    turned = adjoint(inner)
    near, far = _turns(inner + turned, inner - turned, s)
    moved_u = _moved(u, near + far, np.matmul(t, main_v), s)
    moved_v = _moved(v, near - far, np.matmul(adjoint(t), main_u), s)
    by_s = fit(np.real(diagonal(inner)), s)
    return (u, s, vh), (moved_u, by_s, adjoint(moved_v))


def _moved(u: Any, turn: Any, pushed: Any, s: Any) -> Any:
    """Change of singular vectors: their turn among each other, and out of their space."""
    count = s.shape[-1]
    main = u[..., :count]
    found = np.matmul(main, turn)
    if same_size(u.shape[-2], count):
        return found
    outer = _over_values(pushed - np.matmul(main, np.matmul(adjoint(main), pushed)), s)
    if same_size(u.shape[-1], count):
        return found + outer
    rest = u[..., count:]
    moved_rest = -np.matmul(main, np.matmul(adjoint(outer), rest))
    return np.concatenate([found + outer, moved_rest], -1)
