"""Operators behind `customop.scipy.linalg`: matrix equations, roots, and banded systems.

Source of the derivatives: each equation is differentiated, which gives an equation of the
same kind for the derivative.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import linalg as _linalg

from customop import Array, FakeArray, GradientError, ShapeError, custom_op
from customop.numpy.arguments import as_array, broadcast
from customop.numpy.matrices import transposed
from customop.numpy.rules import batch_first, columns_first, device_of, fit, padded_rows
from customop.scipy.linalg_operators import lapack_dtype
from customop.scipy.ufunc_rules import is_plain

# pyright infers types from SciPy's code and gets some of them wrong.
linalg: Any = _linalg


def _dtype(*arrays: Any) -> Any:
    """Return the dtype in which LAPACK computes; integers become double."""
    floats = [x for x in arrays if x.dtype.kind in "fc"]
    whole = [np.zeros(0)] * (len(floats) < len(arrays))
    return lapack_dtype(*floats, *whole)


def _stacked(core: Any, ranks: tuple[int, ...], *arrays: Any) -> Any:
    """Call a function of matrices for each place of the stacks of some arrays."""
    lead = np.broadcast_shapes(
        *[x.shape[: x.ndim - rank] for x, rank in zip(arrays, ranks, strict=True)]
    )
    wide = [
        np.broadcast_to(x, (*lead, *x.shape[x.ndim - rank :]))
        for x, rank in zip(arrays, ranks, strict=True)
    ]
    return [core(*[x[place] for x in wide]) for place in np.ndindex(lead)], lead


def _batched(in_dims: Any, *arrays: Any) -> list[Any]:
    """Return arrays with the batch first, and axes added so that they broadcast."""
    ranks = [x.ndim - (d is not None) for x, d in zip(arrays, in_dims, strict=False)]
    return [
        x if d is None else padded_rows(batch_first(x, d), max(ranks))
        for x, d in zip(arrays, in_dims, strict=False)
    ]


# ---- a x + x b = q ----


@custom_op(
    "scipy::solve_sylvester",
    mutates_args=(),
    schema="(Array a, Array b, Array q) -> Array",
    device_types="cpu",
)
def sylvester(a: Any, b: Any, q: Any) -> Any:
    """Solve the equations for matrices or stacks of them."""
    found, lead = _stacked(linalg.solve_sylvester, (2, 2, 2), a, b, q)
    whole = np.empty((*lead, *q.shape[-2:]), _dtype(a, b, q))
    for place, x in zip(np.ndindex(lead), found, strict=True):
        whole[place] = x
    return whole


@sylvester.register_fake
def _(a: Any, b: Any, q: Any) -> FakeArray:
    m, n = q.shape[-2:]
    if a.shape[-2:] != (m, m) or b.shape[-2:] != (n, n):
        raise ShapeError(
            f"scipy.linalg.solve_sylvester: shapes {tuple(a.shape)}, {tuple(b.shape)} and"
            f" {tuple(q.shape)} do not fit",
            do="give squares a (m, m) and b (n, n) with q (m, n)",
        )
    lead = broadcast(broadcast(a.shape[:-2], b.shape[:-2]), q.shape[:-2])
    return FakeArray((*lead, m, n), _dtype(a, b, q), device=device_of(a))


@sylvester.register_sample_inputs
def _() -> list[Any]:
    a = np.array([[2.0, 0.5], [-0.25, 3.0]])
    q = np.array([[1.0, 2.0, 3.0], [0.5, -1.0, 4.0]])
    return [(a, np.eye(3), q)]


def _keep_equation(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs, output)


def _equation_backward(ctx: Any, g: Any) -> Any:
    a, b, q, x = ctx.saved_arrays
    by_q = sylvester(transposed(a), transposed(b), g)
    by_a = -np.matmul(by_q, transposed(x))
    by_b = -np.matmul(transposed(x), by_q)
    return fit(by_a, a), fit(by_b, b), fit(by_q, q)


sylvester.register_autograd(_equation_backward, setup_context=_keep_equation)


@sylvester.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    a, b, _ = primals
    by_a, by_b, by_q = tangents
    x = sylvester(*primals)
    moved = np.zeros_like(x) if by_q is None else by_q
    if by_a is not None:
        moved = moved - np.matmul(by_a, x)
    if by_b is not None:
        moved = moved - np.matmul(x, by_b)
    return x, fit(sylvester(a, b, moved), x)


sylvester.register_vmap(
    lambda info, in_dims, *given: (sylvester(*_batched(in_dims, *given)), 0)
)


def solve_sylvester(a: Any, b: Any, q: Any) -> Array:
    """Solve ``a x + x b = q``, as `scipy.linalg.solve_sylvester` does.

    Parameters
    ----------
    a : array, shape (..., m, m)
    b : array, shape (..., n, n)
    q : array, shape (..., m, n)

    Returns
    -------
    array, shape (..., m, n)

    Raises
    ------
    ShapeError
        If the shapes of traced or fake arrays do not fit.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import linalg
    >>> a, b = 3.0 * np.eye(2), np.eye(2)
    >>> co.grad(lambda q: linalg.solve_sylvester(a, b, q).sum())(np.ones((2, 2)))
    array([[0.25, 0.25],
           [0.25, 0.25]])
    """
    if is_plain(a, b, q):
        return linalg.solve_sylvester(a, b, q)
    return sylvester(as_array(a), as_array(b), as_array(q))


# ---- roots of matrices ----


@custom_op(
    "scipy::sqrtm", mutates_args=(), schema="(Array a) -> Array", device_types="cpu"
)
def root(a: Any) -> Any:
    """Compute the principal roots of matrices, which must have the dtype of the matrices."""
    # SciPy 1.17 reads arrays at odd addresses as if they were aligned.
    found = np.asarray(linalg.sqrtm(np.require(a, requirements="A")))
    if found.dtype.kind == "c" and a.dtype.kind != "c":
        raise GradientError(
            "scipy.linalg.sqrtm: the root of this real matrix is complex",
            do="pass a.astype(complex)",
        )
    return np.ascontiguousarray(found, _dtype(a))


@root.register_fake
def _(a: Any) -> FakeArray:
    if len(a.shape) < 2 or a.shape[-1] != a.shape[-2]:
        raise ShapeError(
            f"scipy.linalg.sqrtm takes square matrices, got shape {tuple(a.shape)}",
            do="give an array whose last two axes have one length",
        )
    return FakeArray(tuple(a.shape), _dtype(a), device=device_of(a))


@root.register_sample_inputs
def _() -> list[Any]:
    return [(np.array([[2.0, 0.5], [0.25, 3.0]]),)]


def _root_backward(ctx: Any, g: Any) -> Any:
    turned = transposed(ctx.saved_arrays[0])
    return sylvester(turned, turned, g)


root.register_autograd(
    _root_backward,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output),
)


@root.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    y = root(*primals)
    return y, fit(sylvester(y, y, tangents[0]), y)


root.register_vmap(lambda info, in_dims, a: (root(batch_first(a, in_dims[0])), 0))


def sqrtm(A: Any) -> Array:  # noqa: N803  # SciPy's name
    """Compute the principal roots of matrices, as `scipy.linalg.sqrtm` does.

    Parameters
    ----------
    A : array, shape (..., n, n)
        If it is traced and real, its root must be real.

    Returns
    -------
    array

    Raises
    ------
    GradientError
        If the root of a traced real matrix is complex.
    ShapeError
        If the matrices of a traced or fake array are not square.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import linalg
    >>> co.grad(lambda a: linalg.sqrtm(a).trace())(4.0 * np.eye(2))
    array([[0.25, 0.  ],
           [0.  , 0.25]])
    """
    return linalg.sqrtm(A) if is_plain(A) else root(as_array(A))


# ---- banded systems ----


@custom_op(
    "scipy::solve_banded",
    mutates_args=(),
    schema="(Array ab, Array b, int lower, int upper) -> Array",
    device_types="cpu",
)
def banded(ab: Any, b: Any, lower: int, upper: int) -> Any:
    """Solve with the diagonals of a matrix, and matrices or stacks of right sides."""

    def core(ab: Any, b: Any) -> Any:
        return linalg.solve_banded((lower, upper), ab, b, check_finite=False)

    lead = np.broadcast_shapes(ab.shape[:-2], b.shape[:-2])
    whole = np.zeros((*lead, *b.shape[-2:]), _dtype(ab, b))
    if math.prod(whole.shape):
        found, _ = _stacked(core, (2, 2), ab, b)
        for place, x in zip(np.ndindex(lead), found, strict=True):
            whole[place] = x
    return whole


@banded.register_fake
def _(ab: Any, b: Any, lower: int, upper: int) -> FakeArray:
    if ab.shape[-2] != lower + upper + 1 or ab.shape[-1] != b.shape[-2]:
        raise ShapeError(
            f"scipy.linalg.solve_banded: shapes {tuple(ab.shape)} and {tuple(b.shape)}"
            f" do not fit {lower} lower and {upper} upper diagonals",
            do="give ab a row for each diagonal, and a column for each row of b",
        )
    lead = broadcast(ab.shape[:-2], b.shape[:-2])
    return FakeArray((*lead, *b.shape[-2:]), _dtype(ab, b), device=device_of(ab))


@banded.register_sample_inputs
def _() -> list[Any]:
    ab = np.array([[0.0, 1.0, 2.0], [4.0, 5.0, 6.0], [1.0, -1.0, 0.0]])
    return [(ab, np.array([[1.0], [2.0], [3.0]]), 1, 1)]


def _shifted(x: Any, by: int, axis: int) -> Any:
    """Return ``x[i + by]`` along an axis, with zeros for places outside."""
    if not by:
        return x
    shape = [*x.shape]
    shape[axis] = abs(by)
    edge = np.zeros_like(x, shape=tuple(shape))
    at = [slice(None)] * x.ndim
    at[axis] = slice(by, None) if by > 0 else slice(None, by)
    return np.concatenate([x, edge] if by > 0 else [edge, x], axis)[tuple(at)]


def _transposed_bands(ab: Any, lower: int, upper: int) -> Any:
    """Return the diagonals of the transposed matrix."""
    rows = [_shifted(ab[..., upper - k, :], k, -1) for k in range(-lower, upper + 1)]
    return np.stack(rows, -2)


def _keep_bands(ctx: Any, inputs: Any, output: Any) -> None:
    ab, ctx.like, ctx.lower, ctx.upper = inputs
    ctx.save_for_backward(ab, output)


def _bands_backward(ctx: Any, g: Any) -> Any:
    (ab, x), lower, upper = ctx.saved_arrays, ctx.lower, ctx.upper
    by_b = banded(_transposed_bands(ab, lower, upper), g, upper, lower)
    # ab[upper + i - j, j] is the element i, j.
    rows = [
        -np.sum(_shifted(by_b, r - upper, -2) * x, -1) for r in range(lower + upper + 1)
    ]
    return fit(np.stack(rows, -2), ab), fit(by_b, ctx.like), None, None


banded.register_autograd(_bands_backward, setup_context=_keep_bands)


def _times(ab: Any, x: Any, lower: int, upper: int) -> Any:
    """Multiply the matrix with these diagonals by matrices."""
    terms = [
        _shifted(ab[..., r, :, None] * x, upper - r, -2)
        for r in range(lower + upper + 1)
    ]
    return sum(terms[1:], terms[0])


@banded.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    ab, b, *bands = primals
    x = banded(ab, b, *bands)
    moved = np.zeros_like(x) if tangents[1] is None else tangents[1]
    if tangents[0] is not None:
        moved = moved - _times(tangents[0], x, *bands)
    return x, fit(banded(ab, moved, *bands), x)


@banded.register_vmap
def _(info: Any, in_dims: Any, ab: Any, b: Any, *bands: Any) -> Any:
    return banded(*_batched(in_dims[:2], ab, b), *bands), 0


def solve_banded(
    l_and_u: tuple[int, int],
    ab: Any,
    b: Any,
    overwrite_ab: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """Solve equations with a banded matrix, as `scipy.linalg.solve_banded` does.

    Parameters
    ----------
    l_and_u : tuple of int
        The numbers of diagonals below and above the main one.
    ab : array, shape (l + u + 1, n)
        The diagonals: ``ab[u + i - j, j]`` is the element i, j.
    b : array, shape (n,) or (n, k)
    overwrite_ab, overwrite_b, check_finite : bool
        For plain arrays only.

    Returns
    -------
    array

    Raises
    ------
    ShapeError
        If the shapes of traced or fake arrays do not fit.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import linalg
    >>> ab = np.array([[0.0, 1.0], [2.0, 4.0]])
    >>> co.grad(lambda b: linalg.solve_banded((0, 1), ab, b)[0])(np.ones(2))
    array([ 0.5  , -0.125])
    """
    if is_plain(ab, b):
        options = overwrite_ab, overwrite_b, check_finite
        return linalg.solve_banded(l_and_u, ab, b, *options)
    lower, upper = map(int, l_and_u)
    ab, b = as_array(ab), as_array(b)
    if b.ndim == 1:
        return banded(ab, b[:, None], lower, upper)[..., 0]
    return columns_first(banded(ab, b, lower, upper))
