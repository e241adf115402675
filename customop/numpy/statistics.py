"""Variance, averages and counts, also of elements that are not nan; covariances."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
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
    as_dtype,
    as_scalar,
    cast,
    count_of,
    counted_axes,
    dtype_of,
    int_axes,
    is_inexact,
    is_known,
    is_set,
    keeps_axes,
    kept,
    larger,
    listed_axes,
    numpy_refuses,
    reduced_axes,
    refuse,
    same_shape,
    typical,
)
from customop.numpy.reductions import mask_like, max_, mean_, min_, reduction_of, sum_
from customop.numpy.rules import (
    fake_of_ufunc,
    fit,
    is_complex,
    numpy_operator,
    register_formulas,
    require,
    warn_unless,
)

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

    def sample(x: Any, axis: Any, keepdims: bool, ddof: float, dtype: Any) -> Any:
        return kernel(x, axis, keepdims, 0.0, dtype)  # two elements may be too few

    op = reduction_of(
        name, kernel, ", float ddof=0.0, dtype? dtype=None", sample=sample
    )
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
    """Return half the derivative of the variance by each element, times the count.

    The derivative of the mean cancels, since deviations sum to zero.
    """
    centered = x - mean_.run(x, axis, True)
    return np.conjugate(centered) if is_complex(x) else centered


def _as_given(ddof: float) -> float:
    """Return an int if it is whole; nan and inf are not."""
    return int(ddof) if float(ddof).is_integer() else ddof


def _freedom(x: Any, axis: Any, ddof: float) -> Any:
    """Return the degrees of freedom; nan if there are none, as NumPy divides 0 by 0."""
    count: Any = count_of(x.shape, axis)
    if type(count) is not int:
        return larger(count - _as_given(ddof), 0)
    count = float(count) - ddof
    return count if count > 0 else math.nan


def _divisor(y: Any) -> Any:
    """Return the deviations to divide by; 1 where all elements are equal.

    The slope is 0 there: right for one element, and for several the subgradient of
    torch 2.13.
    """
    return np.where(np.equal(y, 0), 1.0, y)


def _real(x: Any) -> Any:
    """Return the real part: dtype= can make real deviations complex."""
    return np.real(x) if is_complex(x) else x


def _deviation_backward(name: str, ctx: Any, g: Any) -> tuple[Any, ...]:
    x, y = ctx.saved_arrays
    axis, keepdims, ddof, _ = ctx.rest
    g = _real(g)
    free = _freedom(x, axis, ddof)
    # Half of a count is exact, so that symbolic sizes give the bits of numbers.
    share = g / (_divisor(y) * free if name == "std" else free * 0.5)
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
    """Return the square root; its derivative at 0 is 0, as that of np.std."""
    is_zero = np.equal(variance, 0)
    return np.where(is_zero, variance, np.sqrt(np.where(is_zero, 1, variance)))


def _selected(
    a: Any, axis: Any, dtype: Any, ddof: Any, keepdims: bool, where: Any, mean: Any
) -> Any:
    """Return the variance of some elements, about a given mean, or in any dtype.

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
                np.var([0.0], ddof=ddof, correction=correction)  # NumPy's error
            ddof = correction
        if op is std and dtype is not None and as_dtype(dtype).kind in "biu":
            refuse("std", dtype=dtype)
        if is_complex(as_array(ddof)):  # NumPy drops the imaginary part of the result
            raise ArgumentError(
                f"np.{op.name}: ddof={ddof!r} is complex", do="give a real number"
            )
        # In another dtype the deviations of complex numbers lose a part, or get one.
        own = dtype is None or (as_dtype(dtype).kind == "f" and not is_complex(a))
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
    average = _over_weight_sums(np.sum(weighted, axis=axis, keepdims=kept), total)
    return (average, np.broadcast_to(total, average.shape)) if returned else average


def _over_weights(x1: Any, x2: Any) -> Any:
    if np.any(x2 == 0.0):
        np.average([0.0], weights=[0.0])  # raises
    return x1 / x2


# A quotient that raises for a divisor of 0, which NumPy's average does, in each row too.
_over_weight_sums = numpy_operator(
    "over_weights", "(Array x1, Array x2) -> Array", _over_weights, tags=Tag.pointwise
)
_over_weight_sums.register_fake(fake_of_ufunc(np.divide))
register_formulas(
    _over_weight_sums,
    ("x1", "x2"),
    (lambda g, x2: g / x2, lambda g, x2, y: -g * y / x2),
)


def weights_like(a: Any, weights: Any, axis: Any) -> Any:
    """Return the weights, with axes of length 1 for those that they lack."""
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


# ---- reductions that leave out nan: sums, products, extremes, means, deviations ----


_EMPTY = "All-NaN slice encountered"


def _filled(a: Any, value: float) -> Any:
    """Return the array with a number for each nan."""
    if not is_inexact(a):
        return a
    return np.where(np.isnan(a), value, a)


def _keywords(
    keepdims: Any, initial: Any = NO_VALUE, where: Any = True
) -> dict[str, Any]:
    """Return the keywords of a reduction that are given."""
    given: dict[str, Any] = {"keepdims": keeps_axes(keepdims)}
    if initial is not NO_VALUE:
        given["initial"] = initial
    if where is not True and where is not NO_VALUE:
        given["where"] = where
    return given


# ---- sums and products ----


def _serve_total(function: Any, reduce: Callable[..., Any], start: float) -> None:
    def total(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        keepdims: Any = NO_VALUE,
        initial: Any = NO_VALUE,
        where: Any = NO_VALUE,
    ) -> Any:
        values = _filled(as_array(a), start)
        more = _keywords(keepdims, initial, where)
        return reduce(values, axis=axis, dtype=dtype, **more)

    register_numpy_function(function, total)


def _serve_running(function: Any, run: Callable[..., Any], start: float) -> None:
    def running(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Any:
        return run(_filled(as_array(a), start), axis=axis, dtype=dtype)

    register_numpy_function(function, running)


_serve_total(np.nansum, np.sum, 0)
_serve_total(np.nanprod, np.prod, 1)
_serve_running(np.nancumsum, np.cumsum, 0)
_serve_running(np.nancumprod, np.cumprod, 1)

# ---- extremes ----


def _serve_extreme(function: Any, ufunc: np.ufunc) -> None:
    def extreme(
        a: Any,
        axis: Any = None,
        out: None = None,
        keepdims: Any = NO_VALUE,
        initial: Any = NO_VALUE,
        where: Any = NO_VALUE,
    ) -> Any:
        more = _keywords(keepdims, initial, where)
        found = ufunc.reduce(as_array(a), axis=axis, **more)
        if is_inexact(found):
            warn_unless(np.logical_not(np.isnan(found)), _EMPTY)
        return found

    register_numpy_function(function, extreme)


def _serve_place(function: Any, place: Callable[..., Any], start: float) -> None:
    def of_extreme(
        a: Any, axis: Any = None, out: None = None, *, keepdims: Any = NO_VALUE
    ) -> Any:
        a = as_array(a)
        if is_inexact(a):
            require(np.any(np.logical_not(np.isnan(a)), axis=axis), _EMPTY)
        return place(_filled(a, start), axis=axis, keepdims=is_set(keepdims))

    register_numpy_function(function, of_extreme)


_serve_extreme(np.nanmax, np.fmax)
_serve_extreme(np.nanmin, np.fmin)
_serve_place(np.nanargmax, np.argmax, -np.inf)
_serve_place(np.nanargmin, np.argmin, np.inf)

# ---- means and deviations ----


def _present(a: Any, axis: Any, keepdims: bool, where: Any = True) -> Any:
    """Count the elements that are not nan, as integers."""
    present = np.logical_not(np.isnan(a))
    if where is not True and where is not NO_VALUE:
        present = np.logical_and(present, mask_like(where, tuple(a.shape)))
    return np.sum(present, axis=axis, dtype=np.intp, keepdims=keepdims)


def _quotient(total: Any, count: Any) -> Any:
    """Divide; return nan where the count is not positive, without a warning."""
    has_any = np.greater(count, 0)
    share = total / np.where(has_any, count, 1)
    return cast(np.where(has_any, share, np.nan), total.dtype)


def _check_dtype(name: str, a: Any, dtype: Any) -> None:
    if dtype is not None and as_dtype(dtype).kind not in "fc":
        raise ArgumentError(
            f"np.{name}: dtype={dtype!r} of an array of {a.dtype}: if a is inexact,"
            " then dtype must be inexact",
            do="leave dtype= away, or cast the result",
        )


@register_numpy_function(np.nanmean)
def _(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: Any = NO_VALUE,
    *,
    where: Any = NO_VALUE,
) -> Any:
    a, more = as_array(a), _keywords(keepdims, where=where)
    if not is_inexact(a):
        return np.mean(a, axis=axis, dtype=dtype, **more)
    _check_dtype("nanmean", a, dtype)
    count = _present(a, axis, keeps_axes(keepdims), where)
    total = np.sum(_filled(a, 0), axis=axis, dtype=dtype, **more)
    warn_unless(count > 0, "Mean of empty slice")
    return as_scalar(_quotient(total, count))


def _squares(x: Any) -> Any:
    return np.real(x * np.conjugate(x)) if is_complex(x) else x * x


def _nan_variance(
    name: str,
    a: Any,
    axis: Any,
    dtype: Any,
    keepdims: Any,
    where: Any,
    mean: Any,
    ddof: Any,
) -> Any:
    """Return the variance of the elements that are not nan."""
    _check_dtype(name, a, dtype)
    values, kept = _filled(a, 0), _keywords(True, where=where)
    count = _present(a, axis, True, where)
    if mean is NO_VALUE:
        mean = _quotient(np.sum(values, axis=axis, dtype=dtype, **kept), count)
    moved = cast(values - mean, dtype_of(values))
    centered = np.where(np.isnan(a), 0, moved)
    more = _keywords(keepdims, where=where)
    total = np.sum(_squares(centered), axis=axis, dtype=dtype, **more)
    if not keeps_axes(keepdims):
        count = np.squeeze(count, as_axis(reduced_axes(a, axis)))
    free = count - ddof
    warn_unless(free > 0, "Degrees of freedom <= 0 for slice.")
    return _quotient(total, free)


def _serve_nan_deviation(
    function: Any, plain: Any, finish: Callable[[Any], Any]
) -> None:
    def deviation(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        ddof: Any = 0,
        keepdims: Any = NO_VALUE,
        *,
        where: Any = NO_VALUE,
        mean: Any = NO_VALUE,
        correction: Any = NO_VALUE,
    ) -> Any:
        a = as_array(a)
        if correction is not NO_VALUE:
            if ddof != 0:
                np.var([0.0], ddof=ddof, correction=correction)  # NumPy's error
            ddof = correction
        if is_inexact(a):
            name = function.__name__
            found = _nan_variance(name, a, axis, dtype, keepdims, where, mean, ddof)
            return as_scalar(finish(found))
        if plain is np.std and dtype is not None and as_dtype(dtype).kind in "biu":
            refuse("nanstd", dtype=dtype)
        more = _keywords(keepdims, where=where)
        more = more if mean is NO_VALUE else {**more, "mean": mean}
        return plain(a, axis=axis, dtype=dtype, ddof=ddof, **more)

    register_numpy_function(function, deviation)


_serve_nan_deviation(np.nanvar, np.var, lambda variance: variance)
_serve_nan_deviation(np.nanstd, np.std, root)


# ---- covariances and correlations: cov, corrcoef ----


def _rows(x: Any, dtype: Any, transposed: bool) -> Any:
    """Return variables in rows, and observations in columns."""
    wide = np.atleast_2d(cast(x, dtype))
    return np.transpose(wide) if transposed else wide


def _frequencies(weights: Any, count: int) -> Any:
    weights = as_array(weights)
    _check_line("fweights", weights, count)
    if dtype_of(weights).kind == "f":
        require(np.equal(weights, np.around(weights)), "fweights must be integer")
    require(np.greater_equal(weights, 0), "fweights cannot be negative")
    return weights


def _importances(weights: Any, count: int) -> Any:
    weights = cast(as_array(weights), np.dtype(float))
    _check_line("aweights", weights, count)
    require(np.greater_equal(weights, 0), "aweights cannot be negative")
    return weights


def _check_line(name: str, weights: Any, count: int) -> None:
    if weights.ndim > 1 or weights.shape[0] != count:
        line = np.zeros(typical([count]))
        given: dict[str, Any] = {name: np.ones(typical(weights.shape), int)}
        numpy_refuses(np.cov, line, **given)


def _stacked(m: Any, y: Any, rowvar: bool, dtype: Any) -> Any:
    if m.ndim > 2 or (y is not None and y.ndim > 2):
        numpy_refuses(np.cov, m, y)
    if dtype is None:
        arrays = [dtype_of(v) for v in (m, y) if v is not None]
        dtype = np.result_type(*arrays, np.float64)
    x = _rows(m, dtype, not rowvar and m.ndim != 1)
    if y is None or is_known(x.shape[0], 0):
        return x
    other = _rows(y, dtype, transposed=False)
    if not rowvar and other.shape[0] != 1:
        other = np.transpose(other)
    return np.concatenate([x, other], axis=0)


@register_numpy_function(np.cov)
def _(
    m: Any,
    y: Any = None,
    rowvar: Any = True,
    bias: Any = False,
    ddof: Any = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Any:
    if ddof is not None and ddof != int(ddof):
        numpy_refuses(np.cov, [0.0], ddof=ddof)
    m, y = as_array(m), None if y is None else as_array(y)
    if dtype is not None and as_dtype(dtype).kind not in "fc":
        raise ArgumentError(
            f"np.cov: dtype={dtype!r} has no room for deviations", do="use dtype=float"
        )
    x = _stacked(m, y, bool(rowvar), dtype)
    count = x.shape[1]
    if is_known(x.shape[0], 0):
        return np.zeros_like(x, np.float64, shape=(0, 0))
    ddof = (1 if bias == 0 else 0) if ddof is None else operator.index(int(ddof))
    frequent = None if fweights is None else _frequencies(fweights, count)
    important = None if aweights is None else _importances(aweights, count)
    given = [w for w in (frequent, important) if w is not None]
    weights = given[0] * given[1] if len(given) == 2 else given[0] if given else None
    mean, total = np.average(x, axis=1, weights=weights, returned=True)
    free = _free_observations(count, total[0], weights, important, ddof)
    moved = x - np.expand_dims(mean, 1)
    weighted = moved if weights is None else moved * weights
    turned = np.transpose(weighted)
    # The conjugate of real numbers would be a copy, and BLAS adds up a product of an array
    # with itself in another order.
    products = np.matmul(moved, np.conjugate(turned) if is_complex(turned) else turned)
    is_open = isinstance(free, SymInt)
    shares = products * np.true_divide(1, as_array(free) if is_open else free)
    return np.squeeze(cast(shares, products.dtype))


def _free_observations(
    count: int, total: Any, weights: Any, important: Any, ddof: int
) -> Any:
    """Return the degrees of freedom; 0 instead of fewer, with NumPy's warning."""
    if weights is None and type(count) is not int:
        return larger(count - ddof, 0)
    if weights is None:
        free: Any = np.asarray(float(count - ddof))
    elif ddof == 0:
        free = total
    elif important is None:
        free = total - ddof
    else:
        free = total - ddof * np.sum(weights * important) / total
    warn_unless(np.greater(free, 0), "Degrees of freedom <= 0 for slice")
    return np.where(np.greater(free, 0), free, 0.0)


@register_numpy_function(np.corrcoef)
def _(x: Any, y: Any = None, rowvar: Any = True, *, dtype: Any = None) -> Any:
    products = np.cov(x, y, rowvar, dtype=dtype)
    if not products.ndim:
        return products / products
    sizes = np.sqrt(np.real(np.diagonal(products)))
    ratios = products / np.expand_dims(sizes, 1) / sizes
    if not is_complex(ratios):
        return np.clip(ratios, -1, 1)
    real, imag = np.clip(np.real(ratios), -1, 1), np.clip(np.imag(ratios), -1, 1)
    return cast(real + 1j * imag, ratios.dtype)
