"""Variance, standard deviation, average, extent and counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from customop import (
    ArgumentError,
    Operator,
    ShapeError,
    SymInt,
    Tag,
    register_numpy_function,
)
from customop.numpy.arguments import (
    NO_VALUE,
    as_array,
    as_axis,
    as_scalar,
    cast,
    count_of,
    counted_axes,
    dtype_of,
    int_axes,
    keeps_axes,
    kept,
    listed_axes,
    reduced_axes,
    refuse,
)
from customop.numpy.checked import warn_unless
from customop.numpy.fakes import fake_of_ufunc
from customop.numpy.reduce import max_, mean_, min_, reduction_of, sum_
from customop.numpy.rules import fit, is_complex, numpy_operator, register_formulas
from customop.numpy.selected import mask_like
from customop.numpy.sizes import larger, same_shape

__all__ = ["root", "weights_like"]

# ---- variance and standard deviation ----


def _deviation(name: str) -> Operator[..., Any]:
    """Make np.var or np.std, whose results are real."""

    def kernel(
        x: Any,
        axis: Any = None,
        keepdims: bool = False,
        ddof: float = 0.0,
        dtype: Any = None,
    ) -> Any:
        deviation = getattr(x, name)
        # Of an empty array NumPy divides by 0 less this, and warns as their dtypes say.
        given = _as_given(ddof)
        return deviation(axis=as_axis(axis), dtype=dtype, ddof=given, keepdims=keepdims)

    op = reduction_of(name, kernel, ", float ddof=0.0, dtype? dtype=None")
    op.register_autograd(
        lambda ctx, g: _deviation_backward(name, ctx, g),
        setup_context=_note_deviation,
    )
    op.register_jvp(lambda primals, tangents: _deviation_jvp(op, primals, tangents))
    return op


def _note_deviation(ctx: Any, inputs: Any, output: Any) -> None:
    x, *ctx.rest = inputs
    ctx.save_for_backward(x, output)


def _slope(x: Any, axis: Any) -> Any:
    """Half the derivative of the variance by each element, times the count.

    The derivative of the mean cancels, since deviations sum to zero.
    """
    centered = x - mean_.run(x, axis, True)
    return np.conjugate(centered) if is_complex(x) else centered


def _as_given(ddof: float) -> float:
    """An int if it is whole; nan and inf are not."""
    return int(ddof) if float(ddof).is_integer() else ddof


def _freedom(x: Any, axis: Any, ddof: float) -> Any:
    """Degrees of freedom; nan if there are none, as NumPy divides 0 by 0."""
    count: Any = count_of(x.shape, axis)
    if type(count) is not int:
        return larger(count - _as_given(ddof), 0)
    count = float(count) - ddof
    return count if count > 0 else math.nan


def _divisor(y: Any) -> Any:
    """The deviations to divide by; 1 where all elements are equal.

    The slope is 0 there: right for one element, and for several the subgradient of
    torch 2.13.
    """
    return np.where(np.equal(y, 0), 1.0, y)


def _real(x: Any) -> Any:
    """The real part: deviations are real, also where dtype= makes them complex."""
    return np.real(x) if is_complex(x) else x


def _deviation_backward(name: str, ctx: Any, g: Any) -> tuple[Any, ...]:
    x, y = ctx.saved_arrays
    axis, keepdims, ddof, _ = ctx.rest
    g = _real(g)
    free = _freedom(x, axis, ddof)
    if name == "std":
        share = g / (_divisor(y) * free)
    else:  # an array divided by a symbolic 0 is inf, and a number an error
        share = g * (2.0 / free) if type(free) is float else g * 2.0 / free
    wide = kept(share, x.shape, axis, keepdims)
    return fit(wide * _slope(x, axis), x), None, None, None, None


def _deviation_jvp(op: Operator[..., Any], primals: Any, tangents: Any) -> Any:
    x, axis, keepdims, ddof, dtype = primals
    y = op(x, axis, keepdims, ddof, dtype)
    moved = fit(_real(_slope(x, axis) * tangents[0]), y)
    total = np.sum(moved, axis=as_axis(axis), keepdims=keepdims)
    total = total / _freedom(x, axis, ddof)
    return y, total * 2.0 if op.name == "var" else total / _divisor(y)


var: Operator[..., Any] = _deviation("var")
std: Operator[..., Any] = _deviation("std")


def root(variance: Any) -> Any:
    """The square root; its derivative at 0 is 0, as that of np.std."""
    is_zero = np.equal(variance, 0)
    return np.where(is_zero, variance, np.sqrt(np.where(is_zero, 1, variance)))


def _selected(
    a: Any, axis: Any, dtype: Any, ddof: Any, keepdims: bool, where: Any, mean: Any
) -> Any:
    """The variance of some elements, about a mean that is given, or in any dtype.

    As in NumPy, sums and quotients have the dtype, and deviations have not.
    """
    if dtype is None and dtype_of(a).kind in "biu":
        dtype = np.float64
    given: dict[str, Any] = {"axis": axis, "dtype": dtype, "keepdims": True}
    mask: Any = where
    count: Any
    if where is True:
        count = count_of(a.shape, int_axes(axis))
    else:
        mask = mask_like(where, tuple(a.shape))
        count = np.sum(mask, axis=axis, dtype=np.intp, keepdims=True)
    if not isinstance(count, SymInt):
        warn_unless(np.greater(count, ddof), "Degrees of freedom <= 0 for slice")
    if mean is NO_VALUE:
        total = np.sum(a, where=mask, **given)
        mean = cast(total / count, total.dtype)
    moved = a - as_array(mean)
    squares = np.real(moved * np.conjugate(moved)) if is_complex(a) else moved**2
    total = np.sum(squares, where=mask, **given)
    free = count - ddof
    free = np.maximum(free, 0) if hasattr(free, "shape") else larger(free, 0)
    found = cast(total / free, total.dtype)
    return found if keepdims else np.squeeze(found, as_axis(reduced_axes(a, axis)))


def _serve_deviation(function: Any, op: Operator[..., Any]) -> None:
    def deviation(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        ddof: Any = 0,
        keepdims: Any = False,
        *,
        where: Any = True,
        mean: Any = NO_VALUE,
        correction: Any = NO_VALUE,
    ) -> Any:
        # A list beside a traced mean or mask; NumPy asks for them, too.
        a, mean = as_array(a), NO_VALUE if mean is None else mean
        if correction is not NO_VALUE:
            if ddof != 0:
                raise ValueError(
                    "ddof and correction can't be provided simultaneously."
                )
            ddof = correction
        if op is std and dtype is not None and np.dtype(dtype).kind in "biu":
            refuse("std", dtype=dtype)
        if is_complex(as_array(ddof)):  # NumPy drops the imaginary part of the result
            raise ArgumentError(
                f"np.{op.name}: ddof={ddof!r} is complex", do="give a real number"
            )
        # In another dtype the deviations of complex numbers lose a part, or get one.
        own = dtype is None or (np.dtype(dtype).kind == "f" and not is_complex(a))
        if own and where is True and mean is NO_VALUE:
            axes = axis if axis is None else int_axes(axis)
            run = op.run if dtype is None else op
            return run(a, axes, keeps_axes(keepdims), float(ddof), dtype)
        variance = _selected(a, axis, dtype, ddof, keeps_axes(keepdims), where, mean)
        return as_scalar(variance if op is var else root(variance))

    register_numpy_function(function, deviation)


_serve_deviation(np.var, var)
_serve_deviation(np.std, std)

# ---- made of other operators ----


@register_numpy_function(np.count_nonzero)
def _(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    kept = keeps_axes(keepdims) if keepdims or axis is not None else False
    return sum_(np.not_equal(a, 0), reduced_axes(a, axis), kept)


@register_numpy_function(np.ptp)
def _(a: Any, axis: Any = None, out: None = None, keepdims: Any = False) -> Any:
    listed, kept = reduced_axes(a, axis), keeps_axes(keepdims)
    return max_(a, listed, kept) - min_(a, listed, kept)


@register_numpy_function(np.average)
def _(
    a: Any,
    axis: Any = None,
    weights: Any = None,
    returned: bool = False,
    *,
    keepdims: Any = False,
) -> Any:
    kept = keeps_axes(keepdims)
    axis = axis if type(axis) is int else as_axis(listed_axes(axis))
    if weights is None:
        average = np.mean(a, axis=axis, keepdims=kept)
        if not returned:
            return average
        count: Any = count_of(a.shape, listed_axes(axis))
        if type(count) is int:  # with NumPy's error where there are no averages
            count = a.size / average.size
        return average, as_scalar(np.full_like(average, count))
    a, wide = as_array(a), weights_like(as_array(a), as_array(weights), axis)
    dtype = np.result_type(
        a, wide, *([np.float64] if dtype_of(a).kind in "biu" else [])
    )
    total = np.sum(wide, axis=axis, dtype=dtype, keepdims=kept)
    weighted = np.multiply(cast(a, dtype), cast(wide, dtype))
    average = _over(np.sum(weighted, axis=axis, keepdims=kept), total)
    return (average, np.broadcast_to(total, average.shape)) if returned else average


def _over_weights(x1: Any, x2: Any) -> Any:
    if np.any(x2 == 0.0):
        raise ZeroDivisionError("Weights sum to zero, can't be normalized")
    return x1 / x2


# A quotient that raises for a divisor of 0, which NumPy's average does, in each row too.
_over = numpy_operator(
    "over_weights", "(Array x1, Array x2) -> Array", _over_weights, tags=Tag.pointwise
)
_over.register_fake(fake_of_ufunc(np.divide))
register_formulas(
    _over, ("x1", "x2"), (lambda g, x2: g / x2, lambda g, x2, y: -g * y / x2)
)


def weights_like(a: Any, weights: Any, axis: Any) -> Any:
    """The weights, with axes of length 1 for the axes of the array that they lack."""
    shape = tuple(np.shape(weights))
    axes = counted_axes(listed_axes(axis), a.ndim)
    if same_shape(shape, a.shape):
        return weights
    if len(shape) == a.ndim and shape == tuple(a.shape):
        return weights
    if axis is None or shape != tuple(a.shape[i] for i in axes):
        error = ArgumentError if axis is None else ShapeError
        raise error(
            f"np.average: weights of shape {shape} do not fit an array of shape"
            f" {tuple(a.shape)} along axis {axis}",
            do="give weights of the shape of the array, or of the axes averaged over",
        )
    by_place = np.transpose(weights, np.argsort(axes).tolist())
    return np.reshape(by_place, [n if i in axes else 1 for i, n in enumerate(a.shape)])
