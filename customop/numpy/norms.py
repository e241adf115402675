"""Norms of vectors and matrices.

At zero, where a norm has a kink, its gradient is the subgradient 0, as that of
``np.absolute``; so does torch 2.13, while JAX 0.10 gives nan. The norms 'nuc', 2 and -2 of
a matrix are those of its singular values, with the gradients of ``np.linalg.svdvals``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from customop import ArgumentError, Operator, partials, register_numpy_function
from customop.numpy.arguments import (
    as_axis,
    as_scalar,
    counted_axes,
    int_axes,
    is_inexact,
    kept,
    listed_axes,
    shape_of,
)
from customop.numpy.matrices import largest
from customop.numpy.reduce import reduction_of
from customop.numpy.rules import fit, is_complex
from customop.numpy.singular import svdvals
from customop.numpy.sizes import has_none, product

__all__: list[str] = []


def _norm_kernel(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    x = x if x.dtype.kind in "fc" else x.astype(float)  # short integers wrap around
    squares = (x * x.conj()).real if x.dtype.kind == "c" else x * x
    return np.sqrt(squares.sum(axis=as_axis(axis), keepdims=keepdims))


norm: Operator[..., Any] = reduction_of("norm", _norm_kernel)


def _norm_pull(g: Any, x: Any, axis: Any, keepdims: bool, out: Any) -> Any:
    """Each element over the norm; 0 where the norm is zero."""
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


power_norm: Operator[..., Any] = reduction_of(
    "power_norm", _power_kernel, ", float order=3.0"
)
power_norm.register_kernel(
    "cpu",
    lambda x, axis, keepdims, order: (
        (np.absolute(x) ** order).sum(axis=as_axis(axis), keepdims=keepdims)
        ** (1.0 / order)
    ),
)
power_norm.register_sample_inputs(
    lambda: [
        (np.array([0.3, -1.2, 2.0]),),
        (np.array([[0.3, -1.2, 2.0], [0.7, 0.4, -0.9]]), [1], False, 2.5),
        (np.array([[0.3, -1.2, 2.0], [0.7, 0.4, -0.9]]), [0], True, 1.5),
    ]
)


def _power_pull(
    g: Any, x: Any, axis: Any, keepdims: bool, order: float, out: Any
) -> Any:
    """Sign of each element times its share to the power order - 1; 0 at the norm 0."""
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


power_norm.register_autograd(partials({"x": _power_pull}))


@power_norm.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    x, axis, keepdims, order = primals
    y = power_norm(x, axis, keepdims, order)
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
        return power_norm.run(x, None, bool(keepdims), float(ord))
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
    """Whether the norm of a whole array is the root of the sum of its squares."""
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
        return power_norm.run(x, [axis], keepdims, float(order))
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
    """One singular value of each matrix, in an array of its own."""
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
