"""Shares: how much each element of a reduction adds to the derivative of its result.

The derivative of ``y = f(f(x0, x1), x2)`` is ``sum(share * dx)``. Some ufuncs have a
formula for the share; the chain rule along the axis serves all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from customop import FakeArray, Operator, partials, vjp
from customop.numpy.arguments import cast, copied, dtype_of, in_c_order
from customop.numpy.fakes import device_of
from customop.numpy.reduce import before_each
from customop.numpy.rules import batch_first, fit, numpy_operator, padded_rows
from customop.numpy.sizes import broadcast, with_size

__all__ = ["prefix_slopes", "recurrence", "reversed_recurrence", "shares_of", "solved"]


def solved(a: Any, b: Any) -> Any:
    """Solve ``t[k] = a[k] * t[k - 1] + b[k]`` along the last axis; a[0] is not used.

    The number of steps is the logarithm of the length. Source: Blelloch, "Prefix sums
    and their applications", 1990, section 1.4.
    """
    a, b = np.broadcast_arrays(a, b)
    dtype = np.result_type(dtype_of(a), dtype_of(b))
    a, b = cast(a, dtype), cast(b, dtype)
    step = 1
    while step < b.shape[-1]:
        b = _joined(b[..., :step], b[..., step:] + a[..., step:] * b[..., :-step])
        a = _joined(a[..., :step], a[..., step:] * a[..., :-step])
        step *= 2
    return in_c_order(b) if step > 1 else copied(b, "C")


# It is an operator since the number of steps depends on the length, which may be symbolic.
recurrence: Operator[..., Any] = numpy_operator(
    "recurrence", "(Array a, Array b) -> Array", solved
)


@recurrence.register_fake
def _(a: Any, b: Any) -> FakeArray:
    dtype = np.result_type(a.dtype, b.dtype)
    return FakeArray(broadcast(a.shape, b.shape), dtype, device=device_of(b))


def reversed_recurrence(a: Any, b: Any) -> Any:
    """Solve ``t[k] = a[k + 1] * t[k + 1] + b[k]`` along the last axis."""
    ahead = np.roll(np.flip(a, -1), 1, -1)
    return np.flip(recurrence(ahead, np.flip(b, -1)), -1)


recurrence.register_autograd(
    partials(
        {
            "a": lambda g, a, out: reversed_recurrence(a, g) * before_each(out, 0),
            "b": lambda g, a: reversed_recurrence(a, g),
        }
    )
)


@recurrence.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    (a, b), (ta, tb) = primals, tangents
    t = recurrence(a, b)
    parts = [] if ta is None else [ta * before_each(t, 0)]
    parts += [] if tb is None else [tb]
    steps = parts[0] if len(parts) == 1 else parts[0] + parts[1]
    return t, fit(recurrence(a, steps), t)


@recurrence.register_vmap
def _(info: Any, in_dims: Any, a: Any, b: Any) -> Any:
    pairs = ((a, in_dims[0]), (b, in_dims[1]))
    rank = max(x.ndim - (d is not None) for x, d in pairs)
    rows = [x if d is None else padded_rows(batch_first(x, d), rank) for x, d in pairs]
    return recurrence(*rows), 0


def _joined(*parts: Any) -> Any:
    return np.concatenate(parts, axis=-1)


def prefix_slopes(ufunc: np.ufunc, x: Any, y: Any) -> tuple[Any, Any]:
    """Derivatives of ``y[k] = f(y[k - 1], x[k])`` along the last axis by both arguments.

    The first result is x[0] itself.
    """
    one = np.ones_like(x[..., :1])
    _, pullback = vjp(ufunc, y[..., :-1], x[..., 1:])
    by_last, by_x = pullback(np.ones_like(y[..., 1:]))
    parts = _joined(0 * one, by_last), _joined(one, by_x)
    return with_size(parts[0], x), with_size(parts[1], x)


def _chained(ufunc: np.ufunc, x: Any, runs: Sequence[slice]) -> Any:
    """The shares by the chain rule; the runs follow each other."""
    parts = []
    for run in runs:
        line = x[..., run]
        by_last, by_x = prefix_slopes(ufunc, line, ufunc.accumulate(line, axis=-1))
        end = _joined(np.zeros_like(by_x[..., 1:]), np.ones_like(by_x[..., :1]))
        # What the result of the run gains with each result before it.
        gains = reversed_recurrence(by_last, with_size(end, by_x))
        parts.append(by_x * gains)
    return _joined(*parts) if len(parts) > 1 else parts[0] if parts else x


def _even(x: Any, y: Any, total: Callable[[Any], Any]) -> Any:
    """Equal extremes share evenly, as in np.max; where all are nan none has a share."""
    mask = np.equal(x, y).astype(y.dtype)
    return mask / np.maximum(total(mask), 1)


# Ufunc -> shares of elements `x` in results `y`, both along the last axis; `total` gives
# each element the sum over the run that it is in.
_FORMULAS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y, total: np.ones_like(x),
    "maximum": _even,
    "minimum": _even,
    "fmax": _even,
    "fmin": _even,
    "logaddexp": lambda x, y, total: np.exp(x - y),
    "logaddexp2": lambda x, y, total: np.exp2(x - y),
    # As for np.std of a constant, the derivative at 0 is 0.
    "hypot": lambda x, y, total: x / np.where(np.equal(y, 0), 1, y),
}


def shares_of(
    ufunc: np.ufunc,
    x: Any,
    y: Any,
    runs: Sequence[slice],
    total: Callable[[Any], Any],
) -> Any:
    """The share of each element in the result of its run.

    Parameters
    ----------
    ufunc : ufunc
    x, y : array
        The elements along the last axis, and for each the result of its run.
    runs : sequence of slice
        Runs that follow each other along the last axis.
    total : callable
        Gives each element the sum over the run that it is in.

    Returns
    -------
    array
        Of the shape of `x`.
    """
    formula = _FORMULAS.get(ufunc.__name__)
    return formula(x, y, total) if formula else _chained(ufunc, x, runs)
