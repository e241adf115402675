"""Eigenvalues and singular values, with their vectors.

What is decided where the mathematics leaves a choice:

- ``eigh`` reads one triangle of its matrix, as NumPy does, so its gradient lies in that
  triangle. For the symmetric gradient differentiate a function of ``(a + a.T) / 2``.
- Eigenvectors of equal eigenvalues have no derivative: gradients through them are nan.
  Eigenvalues that differ by rounding only count as equal, unless their eigenvectors are
  not used. Gradients of eigenvalues alone are right for symmetric functions of equal
  ones, such as their sum, and else a subgradient.
- A complex eigenvector has an arbitrary phase. A gradient that depends on it raises
  GradientError. Tangents of forward mode are those without a turn of the phase.
- ``eig`` of a real array gives real results, as in NumPy before 2.5, where no eigenvalue
  is complex; under vmap, where none of all rows is. A graph is made for one of both, see
  `guesses`. For fake arrays outside of graphs, and since NumPy 2.5, results are complex.

Source: Giles, "Collected matrix derivative results", 2008, section 3.1; for the phases
and lengths of eigenvectors, Boeddeker et al., "On the computation of complex-valued
gradients", 2017.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from customop import (
    ArgumentError,
    FakeArray,
    custom_op,
    partials,
    register_numpy_function,
)
from customop.numpy.arguments import SINCE_2_5, dtype_of, same_size, smaller
from customop.numpy.guesses import real_values
from customop.numpy.matrices import (
    adjoint,
    batch_matrices,
    check_matrices,
    check_square,
    column,
    conj,
    diagonal,
    from_triangle,
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
    to_triangle,
    transposed,
    upper,
)
from customop.numpy.rules import fit, is_complex

# ---- eigenvalues and eigenvectors: eigh, eigvalsh, eig, eigvals ----


_PHASES = (
    (
        "np.linalg.{}: the gradient depends on the phases of complex eigenvectors, which are"
        " arbitrary"
    ),
    "use functions that phases do not change, such as np.abs(v) or v @ v.conj().T",
)


def _columns(v: Any, w: Any) -> Any:
    """Multiply the columns of matrices by numbers."""
    return v * row(w)


def _steady_phases(name: str, inner: Any, g: Any, of: Any) -> Any:
    """Multiply eigenvectors and gradients; raise where the phases `of` matter."""
    turn = column(np.imag(diagonal(inner)) * of)
    what, do = _PHASES
    return require(inner, is_more(turn, g), what.format(name), do)


# ---- Hermitian matrices ----


def _is_upper(uplo: Any) -> bool:
    """Return whether UPLO names the upper triangle."""
    if not isinstance(uplo, str) or uplo.upper() not in ("L", "U"):
        raise ArgumentError(
            f"UPLO must be 'L' or 'U', got {uplo!r}", do="name the triangle to read"
        )
    return uplo.upper() == "U"


@custom_op(
    "np::eigh",
    mutates_args=(),
    schema="(Array a, bool upper=False) -> (Array eigenvalues, Array eigenvectors)",
)
def eigh(a: Any, upper: bool = False) -> Any:
    return tuple(np.linalg.eigh(a, "U" if upper else "L"))


_Eigh = type(np.linalg.eigh(np.eye(1)))


@register_numpy_function(np.linalg.eigh)
def _(a: Any, UPLO: str = "L") -> Any:  # noqa: N803  # NumPy's name
    return _Eigh(*eigh(a, _is_upper(UPLO)))


def _values_like(name: str, a: Any, dtype: Any) -> FakeArray:
    check_square(name, a.shape)
    return stack_of(a, a.shape[-1:], dtype)


@eigh.register_fake
def _(a: Any, upper: bool) -> tuple[FakeArray, FakeArray]:
    dtype = linalg_dtype(a)
    values = _values_like("eigh", a, real_dtype(dtype))
    return values, stack_of(a, a.shape[-2:], dtype)


eigh.register_vmap(batch_matrices("eigh", eigh, 2))
_ARBITRARY = (
    "complex eigenvectors have arbitrary phases: a gradient that depends on them raises,"
    " and tangents do not turn them"
)
eigh.waive("test_gradients", reason=_ARBITRARY).waive("test_jvp", reason=_ARBITRARY)


def _note_eigh(ctx: Any, inputs: Any, output: Any) -> None:
    a, ctx.upper = inputs
    ctx.like = a
    ctx.save_for_backward(*output)
    ctx.set_materialize_grads(False)


def _eigh_backward(ctx: Any, by_w: Any, by_v: Any) -> Any:
    w, v = ctx.saved_arrays
    core = conj(v) if by_w is None else _columns(conj(v), by_w)
    if by_v is None:
        found = np.matmul(core, transposed(v))
        return fit(to_triangle(found, ctx.upper), ctx.like), None
    inner = np.matmul(transposed(v), by_v)
    if is_complex(v):
        inner = _steady_phases("eigh", inner, by_v, 1.0)
    # The gradient is Hermitian, so only this part of the product counts.
    turned = over_gaps((inner - adjoint(inner)) * 0.5, steps_of(w), w)
    side = np.matmul(conj(v), off_diagonal(turned))
    whole = side if by_w is None else core + side
    return fit(to_triangle(np.matmul(whole, transposed(v)), ctx.upper), ctx.like), None


eigh.register_autograd(_eigh_backward, setup_context=_note_eigh)


@eigh.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    a, upper = primals
    w, v = eigh(a, upper)
    moved = from_triangle(tangents[0], upper)
    inner = np.matmul(np.matmul(adjoint(v), moved), v)
    turned = off_diagonal(over_gaps(inner, steps_of(w), w))
    by_w = fit(np.real(diagonal(inner)), w)
    return (w, v), (by_w, np.matmul(v, turned))


@custom_op(
    "np::eigvalsh", mutates_args=(), schema="(Array a, bool upper=False) -> Array"
)
def eigvalsh(a: Any, upper: bool = False) -> Any:
    return np.linalg.eigvalsh(a, "U" if upper else "L")


@register_numpy_function(np.linalg.eigvalsh)
def _(a: Any, UPLO: str = "L") -> Any:  # noqa: N803  # NumPy's name
    return eigvalsh(a, _is_upper(UPLO))


@eigvalsh.register_fake
def _(a: Any, upper: bool) -> FakeArray:
    return _values_like("eigvalsh", a, real_dtype(linalg_dtype(a)))


eigvalsh.register_vmap(batch_matrices("eigvalsh", eigvalsh))


def _eigvalsh_pull(g: Any, a: Any, upper: bool) -> Any:
    v = np.linalg.eigh(a, "U" if upper else "L")[1]
    return to_triangle(np.matmul(_columns(conj(v), g), transposed(v)), upper)


eigvalsh.register_autograd(partials({"a": _eigvalsh_pull}))


@eigvalsh.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    a, upper = primals
    w, v = np.linalg.eigh(a, "U" if upper else "L")
    moved = np.matmul(from_triangle(tangents[0], upper), v)
    return w, fit(np.real(np.sum(conj(v) * moved, axis=-2)), w)


# ---- other square matrices ----


def _complex_dtype(a: Any) -> Any:
    return np.result_type(linalg_dtype(a), np.complex64)


@custom_op(
    "np::eig",
    mutates_args=(),
    schema="(Array a) -> (Array eigenvalues, Array eigenvectors)",
)
def eig(a: Any) -> Any:
    w, v = np.linalg.eig(a)
    dtype = _complex_dtype(a)
    return w.astype(dtype, copy=False), v.astype(dtype, copy=False)


def _as_numpy(name: str, a: Any, w: Any, *more: Any) -> tuple[Any, ...]:
    """Return complex results; real ones if a real matrix has real eigenvalues."""
    if SINCE_2_5 or is_complex(a):
        return (w, *more)
    are_real = real_values(f"np.linalg.{name}", w, f"np.linalg.{name}(a + 0j)")
    found = tuple(are_real.then(x) for x in (w, *more))
    if not are_real.is_so:
        return found
    parts = tuple(np.real(x) for x in found)
    # NumPy casts what is not in double precision, and so copies it.
    is_cast = dtype_of(w) != np.complex128
    return tuple(np.copy(x) for x in parts) if is_cast else parts


_Eig = type(np.linalg.eig(np.eye(1)))
register_numpy_function(np.linalg.eig, lambda a: _Eig(*_as_numpy("eig", a, *eig(a))))


@eig.register_fake
def _(a: Any) -> tuple[FakeArray, FakeArray]:
    dtype = _complex_dtype(a)
    return _values_like("eig", a, dtype), stack_of(a, a.shape[-2:], dtype)


eig.register_vmap(batch_matrices("eig", eig, 2))
eig.waive("test_gradients", reason=_ARBITRARY).waive("test_jvp", reason=_ARBITRARY)
# Their eigenvalues are real, so that their eigenvectors have no phases.
eig.register_sample_inputs(
    lambda: [
        (np.array([[1.7]]),),
        (np.array([[2.3, 0.4], [0.6, -1.2]]),),
        (np.array([[[1.9, 0.3], [0.2, 0.7]], [[-0.4, 1.1], [0.5, 1.6]]]),),
    ]
)


def _note_factors(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.like = inputs[0]
    ctx.save_for_backward(*output)
    ctx.set_materialize_grads(False)


def _eig_backward(ctx: Any, by_w: Any, by_v: Any) -> Any:
    w, v = ctx.saved_arrays
    flat = transposed(v)
    core = 0.0 if by_w is None else _columns_of_diagonal(v, by_w)
    if by_v is not None:
        inner = np.matmul(flat, by_v)
        free = 1.0 if is_complex(ctx.like) else np.not_equal(np.imag(w), 0)
        inner = _steady_phases("eig", inner, by_v, free)
        # The columns have length 1, which takes away a part along each of them.
        along = _columns(np.matmul(flat, conj(v)), np.real(diagonal(inner)))
        turned = over_gaps(inner - along, steps_of(w), w)
        core = core + np.matmul(off_diagonal(turned), flat)
    return fit(np.linalg.solve(flat, core), ctx.like)


def _columns_of_diagonal(v: Any, w: Any) -> Any:
    """Multiply a diagonal matrix by transposed eigenvectors."""
    return column(w) * transposed(v)


eig.register_autograd(_eig_backward, setup_context=_note_factors)


@eig.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    w, v = eig(*primals)
    inner = np.linalg.solve(v, np.matmul(tangents[0], v))
    moved = np.matmul(v, off_diagonal(over_gaps(inner, steps_of(w), w)))
    # Without the part along each column, which changes its length and turns its phase.
    along = np.sum(conj(v) * moved, axis=-2)
    return (w, v), (diagonal(inner), moved - _columns(v, along))


@custom_op("np::eigvals", mutates_args=(), schema="(Array a) -> Array")
def eigvals(a: Any) -> Any:
    return np.linalg.eigvals(a).astype(_complex_dtype(a), copy=False)


register_numpy_function(
    np.linalg.eigvals, lambda a: _as_numpy("eigvals", a, eigvals(a))[0]
)


@eigvals.register_fake
def _(a: Any) -> FakeArray:
    return _values_like("eigvals", a, _complex_dtype(a))


eigvals.register_vmap(batch_matrices("eigvals", eigvals))


def _eigvals_pull(g: Any, a: Any) -> Any:
    flat = transposed(eig(a)[1])
    return np.linalg.solve(flat, column(g) * flat)


eigvals.register_autograd(partials({"a": _eigvals_pull}))


@eigvals.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    w, v = eig(*primals)
    inner = np.linalg.solve(v, np.matmul(tangents[0], v))
    return w, diagonal(inner)


# ---- singular values and vectors: svd, svdvals ----
# What is decided where the mathematics leaves a choice:
#
# - Singular vectors of equal singular values have no derivative: gradients through them
# are nan. Values that differ by rounding only count as equal, unless their vectors are
# not used. Gradients of singular values alone are right for symmetric functions of
# equal ones, and else, also at zero, a subgradient. - Complex singular vectors have
# arbitrary phases, and with ``full_matrices`` the columns that complete a basis an
# arbitrary rotation. A gradient that depends on these raises GradientError. Tangents of
# forward mode are those without such a turn.
#
# Source: Giles, "Collected matrix derivative results", 2008, section 3.2; for complex
# matrices Wan and Zhang, "Automatic differentiation for complex valued SVD", 2019.


_PHASES_OF_BOTH = (
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
    """Return singular values of matrices, in descending order."""
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
    """Return the decomposition by sorted absolute eigenvalues; signs move to Vh."""
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
    """Return the gradient of the matrices from that of their singular values."""
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
    """Divide half of each part by its gap."""
    near = off_diagonal(over_gaps(both, steps_of(s), s))
    return near * 0.5, _over_sums(apart, s) * 0.5


def _over_sums(x: Any, s: Any) -> Any:
    """Divide by the sums; the diagonal is 0 for real numbers, whose phases are signs.

    The diagonal is 0 for real numbers, whose phases are signs.
    """
    found = over_gaps(x, _sums_of(s), s)
    return found if is_complex(x) else off_diagonal(found)


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
    """Make diagonal matrices."""
    wide = np.broadcast_to(row(g), (*s.shape, s.shape[-1]))
    return lower(upper(wide))


def _main_part(u: Any, g: Any, count: int) -> Any:
    """Return the gradient by the first columns, to which the others are orthogonal."""
    if same_size(u.shape[-1], count):
        return g
    main, rest = u[..., :count], u[..., count:]
    return g[..., :count] + steady(main, rest, g[..., count:], *_NO_COMPLETION)


def _core(u: Any, s: Any, v: Any, by_u: Any, by_v: Any) -> Any:
    """Return the gradient by the matrix, seen from the singular vectors."""
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
        both = require(both, wrong, *_PHASES_OF_BOTH)
    near, far = _turns(both, first - second, s)
    return near + far


def _outside(x: Any, g: Any, s: Any) -> Any:
    """Return the part of the gradient orthogonal to the vectors, over the values."""
    part = g - np.matmul(x, np.matmul(adjoint(x), g))
    return _over_values(part, s)


def _over_values(x: Any, s: Any) -> Any:
    return over_gaps(x, row(s), s)


svd.register_autograd(_svd_backward, setup_context=_note_factors)


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
    """Return the change of singular vectors, within their space and out of it."""
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
