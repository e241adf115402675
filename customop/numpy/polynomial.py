"""Polynomials by their coefficients, the highest power first: polyval, polymul, polyint.

NumPy leaves out leading zeros of products and remainders. Under vmap and for fake arrays
the values are not known: there, products and remainders keep their zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from customop import (
    FakeArray,
    Operator,
    ShapeError,
    Tracer,
    getitem,
    partials,
    register_numpy_function,
)
from customop.numpy.arguments import (
    as_array,
    cast,
    dtype_of,
    shape_of,
    value_of,
)
from customop.numpy.fakes import keep_order, result_dtype
from customop.numpy.index import constant, numbers
from customop.numpy.rules import (
    batch_first,
    numpy_operator,
    padded_rows,
    sum_of,
)
from customop.numpy.signal import convolve
from customop.numpy.sizes import (
    is_below,
    is_known,
    is_one,
    is_symbolic,
    larger,
    smaller,
)

__all__ = ["coefficients", "polyval", "powers_of", "slopes", "zeros_at_start"]


def coefficients(p: Any) -> Any:
    """The coefficients of a polynomial as an array of one axis or more."""
    array = as_array(p.coeffs if isinstance(p, np.poly1d) else p)
    return np.reshape(array, (1,)) if array.ndim == 0 else array


def _wrapped(value: Any, *given: Any) -> Any:
    """A polynomial object where one was given, as in NumPy."""
    return np.poly1d(value) if any(isinstance(p, np.poly1d) for p in given) else value


def powers_of(highest: int, like: Any, lowest: int = 0) -> Any:
    """The numbers from `highest` down to `lowest`."""
    if type(highest) is int:
        return constant(np.arange(highest, lowest - 1, -1), like)
    return highest - numbers(0, highest - lowest + 1, like)


def _zeros_before(p: Any) -> int | None:
    """The number of leading zeros but the last one; None if it is not known."""
    value = value_of(p)
    if value is None:
        return None
    return zeros_at_start(value, p.shape[0] - 1)


def zeros_at_start(value: Any, most: int) -> int:
    """How many zeros an array begins with, up to a number."""
    found = 0
    while found < most and not np.not_equal(value[found], 0):
        found += 1
    return found


# ---- values ----


def _horner(p: Any, x: Any) -> Any:
    """The values of polynomials; axes of `p` behind the first one are broadcast."""
    y = np.zeros_like(x)
    for i in range(p.shape[0]):
        y = y * x + p[i]
    return y


polyval: Operator[..., Any] = numpy_operator(
    "polyval", "(Array p, Array x) -> Array", _horner
)

# Powers of larger numbers leave differences few digits.
polyval.register_sample_inputs(
    lambda: [
        (np.array([1.4]), np.array(0.6)),
        (np.array([0.8, 2.3, -0.6]), np.array([0.7, -0.3])),
        (np.array([[0.8, 2.3], [-0.6, 1.1]]), np.array([[0.7, -0.3]])),
    ]
)


@polyval.register_fake
def _(p: Any, x: Any) -> FakeArray:
    if is_known(p.shape[0], 0):
        return keep_order([x], x.dtype)
    each = FakeArray(p.shape[1:], p.dtype, p.strides[1:])
    power = result_dtype(np.multiply, (x.dtype, x.dtype))
    return keep_order([x, each], result_dtype(np.add, (power, p.dtype)))


def slopes(p: Any) -> Any:
    """The coefficients of the derivative."""
    turn = powers_of(p.shape[0] - 1, p, 1)
    return p[:-1] * np.reshape(turn, (-1, *(1,) * (p.ndim - 1)))


def _polyval_by_p(g: Any, shape: Sequence[int], x: Any) -> Any:
    count, inner = shape[0], len(shape) - 1
    wide = np.broadcast_to(x, g.shape)
    exponents = np.reshape(powers_of(count - 1, wide), (-1, *(1,) * wide.ndim))
    found = g * wide**exponents
    return np.sum(found, tuple(range(1, 1 + g.ndim - inner)))


polyval.register_autograd(
    partials(
        {
            "p": (_polyval_by_p, ["p_shape", "x"]),
            "x": lambda g, p, x: g * polyval(slopes(p), x),
        }
    )
)


@polyval.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    (p, x), (tp, tx) = primals, tangents
    y = polyval(p, x)
    parts = [] if tp is None else [np.broadcast_to(polyval(tp, x), y.shape)]
    if tx is not None:
        parts.append(np.broadcast_to(tx * polyval(slopes(p), x), y.shape))
    return y, sum_of(parts, y)


@polyval.register_vmap
def _(info: Any, in_dims: Any, p: Any, x: Any) -> Any:
    dim_p, dim_x = in_dims
    rank = max(p.ndim - 1 - (dim_p is not None), x.ndim - (dim_x is not None))
    if dim_x is not None:
        x = padded_rows(batch_first(x, dim_x), rank)
    if dim_p is not None:
        rows = np.moveaxis(p, dim_p, 1)
        ones = (1,) * (rank - (rows.ndim - 2))
        p = np.reshape(rows, (*rows.shape[:2], *ones, *rows.shape[2:]))
    if dim_x is None and dim_p is not None:
        x = np.broadcast_to(x, (info.batch_size, *(1,) * (rank - x.ndim), *x.shape))
    return polyval(p, x), 0


@register_numpy_function(np.polyval)
def _(p: Any, x: Any) -> Any:
    if not isinstance(x, np.poly1d):
        if not shape_of(p) and not isinstance(p, np.poly1d | list | tuple):
            raise TypeError("np.polyval: iteration over a 0-d array")
        return polyval(coefficients(p), as_array(x))
    y: Any = 0
    for each in coefficients(p):
        y = y * x + each
    return y


# ---- sums, products, quotients ----


def _aligned(a1: Any, a2: Any) -> tuple[Any, Any]:
    """Two polynomials with as many coefficients."""
    p, q = coefficients(a1), coefficients(a2)
    count = larger(p.shape[0], q.shape[0])
    return _lengthened(p, count), _lengthened(q, count)


def _lengthened(p: Any, count: int) -> Any:
    """A polynomial with zeros before it, to so many coefficients."""
    missing = count - p.shape[0]
    return p if is_known(missing, 0) else np.pad(p, (missing, 0))


@register_numpy_function(np.polyadd)
def _(a1: Any, a2: Any) -> Any:
    p, q = _aligned(a1, a2)
    return _wrapped(p + q, a1, a2)


@register_numpy_function(np.polysub)
def _(a1: Any, a2: Any) -> Any:
    p, q = _aligned(a1, a2)
    return _wrapped(p - q, a1, a2)


@register_numpy_function(np.polymul)
def _(a1: Any, a2: Any) -> Any:
    p, q = coefficients(a1), coefficients(a2)
    zeros = (_zeros_before(p) or 0) + (_zeros_before(q) or 0)
    # Cut from the product: what is left has a derivative by leading zeros, too.
    return _wrapped(convolve(p, q, "full")[zeros:], a1, a2)


@register_numpy_function(np.polydiv)
def _(u: Any, v: Any) -> Any:
    p, q = coefficients(u) + 0.0, coefficients(v) + 0.0
    if is_symbolic((p.shape[0], q.shape[0])):
        return _divided(p, q)
    dtype = np.result_type(dtype_of(p), dtype_of(q))
    rest, scale = cast(p, dtype), 1.0 / q[0]
    count = q.shape[0]
    factors, left = [], []
    for _ in range(p.shape[0] - count + 1):
        factor = scale * rest[0]
        taken = rest[:count] - factor * q
        factors.append(factor)
        left.append(taken[:1])
        rest = np.concatenate([taken[1:], rest[count:]])
    quotient = np.stack(factors) if factors else np.zeros_like(rest[:1])
    whole = np.concatenate([*left, rest])
    length = _remainder_length(u, v, p, q)
    rest = whole[whole.shape[0] - length :]
    return _wrapped(quotient, u, v), _wrapped(rest, u, v)


def _divided(p: Any, q: Any) -> tuple[Any, Any]:
    """Quotient and remainder for all sizes: the first coefficients are a linear system."""
    count, degree = p.shape[0], q.shape[0] - 1
    steps = larger(count - degree, 0)
    place = _counted_up(0, steps, p, q)
    shift = place[:, None] - place
    is_met = (shift >= 0) & (shift <= degree)
    matrix = np.where(is_met, getitem(q, np.where(is_met, shift, 0)), 0.0)
    first = np.linalg.solve(matrix, getitem(p, place))
    # The quotient of a polynomial of smaller degree is [0].
    quotient = np.pad(first, (0, larger(1 - steps, 0)))
    taken = convolve(quotient, q, "full")
    before = taken.shape[0] - count
    rest = p - getitem(taken, _counted_up(before, before + count, p, q))
    kept = smaller(count, larger(degree, 1))
    return quotient, getitem(rest, _counted_up(count - kept, count, p, q))


def _counted_up(start: Any, stop: Any, p: Any, q: Any) -> Any:
    """The numbers of a range, traced as one of two polynomials is."""
    return numbers(start, stop, p if isinstance(p, Tracer | FakeArray) else q)


def _remainder_length(u: Any, v: Any, p: Any, q: Any) -> int:
    """How many coefficients of the remainder NumPy keeps; all that can be nonzero."""
    known = value_of(p), value_of(q)
    if all(isinstance(value, np.ndarray) for value in known):
        return int(np.polydiv(*known)[1].shape[0])
    if p.shape[0] < q.shape[0]:
        return int(p.shape[0])
    return max(int(q.shape[0]) - 1, 1)


# ---- derivatives and integrals ----


@register_numpy_function(np.polyder)
def _(p: Any, m: Any = 1) -> Any:
    m = int(m)
    if m < 0:
        raise ShapeError(
            "Order of derivative must be positive (see polyint)",
            do="call np.polyint(p, m) for integrals",
        )
    found = coefficients(p)
    for _ in range(m):
        found = slopes(found)
    return _wrapped(found, p)


@register_numpy_function(np.polyint)
def _(p: Any, m: Any = 1, k: Any = None) -> Any:
    m = int(m)
    if m < 0:
        raise ShapeError(
            "Order of integral must be positive (see polyder)",
            do="call np.polyder(p, m) for derivatives",
        )
    found = coefficients(p)
    constants = _constants(k, m, found)
    for i in range(m):
        powers = powers_of(found.shape[0], found, 1)
        found = np.concatenate([found / powers, constants[i, None]])
    return _wrapped(found, p)


def _constants(k: Any, m: int, like: Any) -> Any:
    """The constant of each integration."""
    if k is None:
        return constant(np.zeros(m, int), like).astype(np.float64)
    given = np.reshape(as_array(k), (-1,))
    if is_one(given.shape[0]):
        return np.broadcast_to(given, (max(m, 1),))
    if is_below(given.shape[0], m):
        raise ShapeError(
            "k must be a scalar or a rank-1 array of length 1 or >m.",
            f"np.polyint: {given.shape[0]} constants for {m} integrations",
            do="give a constant for each integration",
        )
    return given
