"""Eigenvalues and eigenvectors: eigh, eigvalsh, eig, eigvals.

What is decided where the mathematics leaves a choice:

- ``eigh`` reads one triangle of its matrix, as NumPy does, so its gradient lies in that
  triangle. For the symmetric gradient differentiate a function of ``(a + a.T) / 2``.
- Eigenvectors of equal eigenvalues have no derivative: gradients through them are nan.
  Eigenvalues that differ by rounding only count as equal, unless their eigenvectors are
  not used. Gradients of eigenvalues alone are right for symmetric functions of equal
  ones, such as their sum, and else a subgradient.
- A complex eigenvector has an arbitrary phase. A gradient that depends on it raises
  GradientError. Tangents of forward mode are those without a turn of the phase.
- ``eig`` of a real array gives real results, as in NumPy before 2.5, where values are
  known and no eigenvalue is complex. Under vmap, for fake arrays, and since NumPy 2.5
  results are complex.

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
from customop.numpy.arguments import SINCE_2_5
from customop.numpy.matrices import (
    adjoint,
    batch_matrices,
    check_square,
    column,
    conj,
    diagonal,
    from_triangle,
    is_known,
    is_more,
    linalg_dtype,
    off_diagonal,
    over_gaps,
    real_dtype,
    require,
    row,
    stack_of,
    steps_of,
    to_triangle,
    transposed,
)
from customop.numpy.rules import fit, is_complex

__all__: list[str] = []

_PHASES = (
    (
        "np.linalg.{}: the gradient depends on the phases of complex eigenvectors, which are"
        " arbitrary"
    ),
    "use functions that phases do not change, such as np.abs(v) or v @ v.conj().T",
)


def _columns(v: Any, w: Any) -> Any:
    """The columns of matrices times numbers."""
    return v * row(w)


def _steady_phases(name: str, inner: Any, g: Any, of: Any) -> Any:
    """The products of eigenvectors and gradients; raise where the phases `of` matter."""
    turn = column(np.imag(diagonal(inner)) * of)
    what, do = _PHASES
    return require(inner, is_more(turn, g), what.format(name), do)


# ---- Hermitian matrices ----


def _is_upper(uplo: Any) -> bool:
    """Whether UPLO names the upper triangle."""
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


def _as_numpy(a: Any, w: Any, *more: Any) -> tuple[Any, ...]:
    """Complex results; real ones for a real matrix whose eigenvalues are known as real."""
    if SINCE_2_5:
        return (w, *more)
    is_real = not is_complex(a) and is_known(w) and bool(np.all(np.imag(w) == 0))
    return tuple(np.real(x) for x in (w, *more)) if is_real else (w, *more)


_Eig = type(np.linalg.eig(np.eye(1)))
register_numpy_function(np.linalg.eig, lambda a: _Eig(*_as_numpy(a, *eig(a))))


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


def _note_eig(ctx: Any, inputs: Any, output: Any) -> None:
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
    """The product of a diagonal matrix and transposed eigenvectors."""
    return column(w) * transposed(v)


eig.register_autograd(_eig_backward, setup_context=_note_eig)


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


register_numpy_function(np.linalg.eigvals, lambda a: _as_numpy(a, eigvals(a))[0])


@eigvals.register_fake
def _(a: Any) -> FakeArray:
    return _values_like("eigvals", a, _complex_dtype(a))


eigvals.register_vmap(batch_matrices("eigvals", eigvals))
eigvals.waive(
    "test_jvp", reason="equal eigenvalues have no derivative each, only their sum has"
)


def _eigvals_pull(g: Any, a: Any) -> Any:
    flat = transposed(np.linalg.eig(a)[1])
    return np.linalg.solve(flat, column(g) * flat)


eigvals.register_autograd(partials({"a": _eigvals_pull}))


@eigvals.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    w, v = eig(*primals)
    inner = np.linalg.solve(v, np.matmul(tangents[0], v))
    return w, diagonal(inner)
