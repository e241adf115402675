"""Roots of polynomials, and polynomials of given roots or through given points.

NumPy gives real roots a real dtype. Under vmap and for fake arrays the values are not
known: there, roots are complex.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from customop import (
    FakeArray,
    Operator,
    ShapeError,
    partials,
    register_numpy_function,
)
from customop.numpy.arguments import (
    as_array,
    cast,
    dtype_of,
    value_of,
    warn_user,
)
from customop.numpy.fakes import device_of
from customop.numpy.polynomial import (
    coefficients,
    polyval,
    powers_of,
    slopes,
    zeros_at_start,
)
from customop.numpy.rules import (
    batch_first,
    fit,
    is_complex,
    numpy_operator,
)
from customop.numpy.sizes import (
    is_below,
    is_known,
    larger,
    size_of,
    whole,
)

__all__: list[str] = []


# ---- roots ----


def _roots(p: Any, skipped: int) -> Any:
    """The roots of polynomials along the last axis, as complex numbers."""
    shape = (*p.shape[:-1], p.shape[-1] - 1 - skipped)
    dtype = _root_dtype(p.dtype)
    if p.ndim == 1:
        return _counted(np.roots(p[skipped:]), shape[-1]).astype(dtype)
    found = np.zeros_like(p, shape=shape, dtype=dtype, order="C")
    for row in np.ndindex(p.shape[:-1]):
        found[row] = _counted(np.roots(p[row]), shape[-1])
    return found


def _counted(roots: Any, count: int) -> Any:
    """Raise for a row that has a root less than its length says."""
    if roots.shape[0] != count:
        raise ShapeError(
            f"np.roots: a polynomial has {roots.shape[0]} roots, not {count}, since it"
            " begins with zeros",
            do="leave out leading zeros: rows need as many roots each",
        )
    return roots


def _root_dtype(dtype: Any) -> Any:
    """The complex dtype of roots."""
    return np.result_type(dtype if dtype.kind in "fc" else np.float64, np.complex64)


roots: Operator[..., Any] = numpy_operator(
    "roots",
    "(Array p, int skipped) -> Array",
    _roots,
    device_types=("cpu", "cuda"),
)


@roots.register_fake
def _(p: Any, skipped: int) -> FakeArray:
    shape = (*p.shape[:-1], larger(p.shape[-1] - 1 - skipped, 0))
    return FakeArray(shape, _root_dtype(p.dtype), device=device_of(p))


@roots.register_vmap
def _(info: Any, in_dims: Any, p: Any, skipped: int) -> Any:
    return roots(batch_first(p, in_dims[0]), skipped), 0


roots.register_sample_inputs(
    lambda: [
        (np.array([1.4, -0.7]), 0),
        (np.array([0.8, 2.3, -0.6]), 0),
        (np.array([0.9, -0.4, 1.2, 1.9]), 0),
    ]
)


def _moved_by(t: Any, p: Any, y: Any) -> Any:
    """The value of `t` over the slope of `p` at the roots, with the sign of a root.

    A root moves by -t(y) / p'(y). A root that is met twice has no derivative: the slope
    is 0 there.
    """
    first, slope = (np.expand_dims(np.moveaxis(c, -1, 0), -1) for c in (t, p))
    return -polyval(first, y) / polyval(slopes(slope), y)


def _roots_pull(g: Any, p: Any, out: Any) -> Any:
    slope = np.expand_dims(np.moveaxis(p, -1, 0), -1)
    share = -g / polyval(slopes(slope), out)
    powers = np.expand_dims(out, -1) ** powers_of(p.shape[-1] - 1, out)
    return np.matmul(np.expand_dims(share, -2), powers)[..., 0, :]


roots.register_autograd(partials({"p": _roots_pull}))


@roots.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    y = roots(*primals)
    return y, fit(_moved_by(tangents[0], primals[0], y), y)


@register_numpy_function(np.roots)
def _(p: Any) -> Any:
    p = coefficients(p)
    if p.ndim != 1:
        raise ShapeError(
            "Input must be a rank-1 array.", do="use customop.vmap for rows"
        )
    value = value_of(p)
    if value is None:
        return roots(p, 0)
    length = int(p.shape[0])
    before = zeros_at_start(value, length)
    after = zeros_at_start(np.flip(value), length - before)
    if before + after >= length - 1:
        # Roots at 0 only, or none; NumPy makes them in double precision.
        count = 0 if before == length else after
        return np.zeros_like(p, shape=(count,), dtype=np.float64)
    found = roots(p, before)
    if is_complex(p) or np.any(np.not_equal(value_of(found).imag, 0)):
        return found
    return found.real


@register_numpy_function(np.poly)
def _(seq_of_zeros: Any) -> Any:
    zeros = coefficients(seq_of_zeros)
    shape = tuple(zeros.shape)
    if len(shape) == 2 and shape[0] == shape[1] and not is_known(shape[0], 0):
        zeros = np.linalg.eigvals(zeros)
    elif len(shape) != 1:
        raise ShapeError(
            "input must be 1d or non-empty square 2d array.",
            f"np.poly: an array of shape {shape}",
            do="give zeros, or a matrix",
        )
    else:
        zeros = cast(zeros, np.dtype(np.mintypecode(dtype_of(zeros).char)))
    if is_known(zeros.shape[0], 0):
        return 1.0
    found = np.ones_like(zeros[:1])
    for i in range(zeros.shape[0]):
        found = np.pad(found, (0, 1)) - zeros[i] * np.pad(found, (1, 0))
    value = value_of(zeros)
    if value is not None and is_complex(found) and _are_paired(value):
        return found.real
    return found


def _are_paired(zeros: Any) -> bool:
    """Whether complex numbers and their conjugates are the same: the product is real."""
    return bool(np.all(np.sort(zeros) == np.sort(np.conjugate(zeros))))


# ---- fits ----


@register_numpy_function(np.vander)
def _vander(x: Any, N: Any = None, increasing: bool = False) -> Any:  # noqa: N803  # NumPy's name
    x = as_array(x)
    if x.ndim != 1:
        raise ShapeError(
            "x must be a one-dimensional array or sequence.",
            f"np.vander: x has the shape {tuple(x.shape)}",
            do="use customop.vmap for rows",
        )
    count = x.shape[0] if N is None else whole(N)
    if is_below(count, 0):
        raise ShapeError(
            "negative dimensions are not allowed",
            f"np.vander: N is {count}",
            do="give a number of columns",
        )
    powers = powers_of(count - 1, x)
    wide = np.expand_dims(cast(x, np.promote_types(dtype_of(x), int)), 1)
    return wide ** (powers[::-1] if increasing else powers)


@register_numpy_function(np.polyfit)
def _(
    x: Any,
    y: Any,
    deg: Any,
    rcond: Any = None,
    full: bool = False,
    w: Any = None,
    cov: Any = False,
) -> Any:
    x, y = as_array(x) + 0.0, as_array(y) + 0.0
    count = size_of(deg) + 1
    _check_points(x, y, count)
    if rcond is None:
        rcond = x.shape[0] * float(np.finfo(dtype_of(x)).eps)
    columns, sides = _vander(x, count), y
    if w is not None:
        w = np.expand_dims(_checked_weights(w, y), 1)
        columns, sides = columns * w, sides * (w if y.ndim == 2 else w[:, 0])
    scale = np.sqrt(np.sum(columns * columns, 0))
    columns = columns / scale
    c, misses, rank, s = np.linalg.lstsq(columns, sides, rcond)
    c = (c.T / scale).T
    known = value_of(rank)
    if known is not None and known != count and not full:
        warn_user("Polyfit may be poorly conditioned", np.exceptions.RankWarning)
    if full:
        return c, misses, rank, s, rcond
    return (c, _covariance(columns, scale, misses, x, y, cov)) if cov else c


def _check_points(x: Any, y: Any, count: int) -> None:
    """Raise, in NumPy's words, for points that have no fit."""
    if is_below(count, 1):
        raise ShapeError("expected deg >= 0", do="give a degree of at least 0")
    if x.ndim != 1:
        raise TypeError("expected 1D vector for x")
    if is_known(x.shape[0], 0):
        raise TypeError("expected non-empty vector for x")
    if y.ndim not in (1, 2):
        raise TypeError("expected 1D or 2D array for y")
    if x.shape[0] != y.shape[0]:
        raise TypeError("expected x and y to have same length")


def _checked_weights(w: Any, y: Any) -> Any:
    w = as_array(w) + 0.0
    if w.ndim != 1:
        raise TypeError("expected a 1-d array for weights")
    if w.shape[0] != y.shape[0]:
        raise TypeError("expected w and y to have the same length")
    return w


def _covariance(columns: Any, scale: Any, misses: Any, x: Any, y: Any, cov: Any) -> Any:
    """The covariance of the coefficients."""
    count = scale.shape[0]
    base = np.linalg.inv(np.matmul(columns.T, columns)) / np.outer(scale, scale)
    factor: Any = 1
    if not (isinstance(cov, str) and cov == "unscaled"):
        if is_below(x.shape[0], count + 1):
            raise ShapeError(
                "the number of data points must exceed order to scale the covariance"
                " matrix",
                do='give more points, or cov="unscaled"',
            )
        factor = misses / (x.shape[0] - count)
    return base * factor if y.ndim == 1 else np.expand_dims(base, 2) * factor
