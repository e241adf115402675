"""Counts by place and by bin: bincount, digitize, histograms and their edges.

Counts have no derivative. Sums of weights are linear in the weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from customop import (
    DataDependentError,
    FakeArray,
    Operator,
    ShapeError,
    Tag,
    Tracer,
    get_ctx,
    getitem,
    partials,
    register_numpy_function,
    write_back,
)
from customop.numpy.arguments import (
    as_array,
    broadcast,
    cast,
    dtype_of,
    is_below,
    is_empty,
    is_known,
    need_elements,
    numpy_refuses,
    product,
    shape_of,
    size_of,
    typical,
    value_of,
    warn_user,
    whole,
)
from customop.numpy.create import array_like
from customop.numpy.guesses import fact, seen
from customop.numpy.rules import (
    aligned_rows,
    batch_first,
    device_of,
    is_complex,
    no_gradient,
    numpy_operator,
    register_linear_jvp,
    view_of,
)

# ---- counts and sums by place ----


def _binned(x: Any, weights: Any, length: int) -> Any:
    """Count or add up along the last axes; those before them are broadcast."""
    if x.ndim == 1 and (weights is None or weights.ndim == 1):
        found = _counts(x, weights, length)
        return _of_length(found, found.shape[0], length)
    outer = x.shape[:-1]
    if weights is not None:
        outer = np.broadcast_shapes(outer, weights.shape[:-1])
        weights = np.broadcast_to(weights, (*outer, weights.shape[-1])).ravel()
    count = math.prod(outer)
    flat = np.broadcast_to(x, (*outer, x.shape[-1])).reshape((count, -1))
    if flat.size:
        _of_length(flat, int(flat.max()) + 1, length)
        if flat.min() < 0:
            np.bincount([-1])  # NumPy's error
    starts = np.arange(0, count * length, length, like=flat) if length else 0
    rows = (flat.T + starts).T.ravel()
    return _counts(rows, weights, count * length).reshape((*outer, length))


def _counts(x: Any, weights: Any, length: int) -> Any:
    found = np.bincount(x, weights, length)
    # Also the sums of no weights are integers in NumPy.
    return found if weights is None else found.astype(np.float64, copy=False)


def _of_length(found: Any, needed: int, length: int) -> Any:
    """Raise for a place beyond the end."""
    if needed > length:
        raise ShapeError(
            f"np.bincount: the largest place is {needed - 1}, and the result has a length"
            f" of {length} in all rows",
            do=f"give minlength={needed}",
        )
    return found


bincount: Operator[..., Any] = numpy_operator(
    "bincount",
    "(Array x, int length) -> Array",
    lambda x, length: _binned(x, None, length),
    device_types=("cpu", "cuda"),
)
bin_sum: Operator[..., Any] = numpy_operator(
    "bin_sum",
    "(Array weights, Array x, int length) -> Array",
    lambda weights, x, length: _binned(x, weights, length),
    device_types=("cpu", "cuda"),
)
no_gradient(bincount)


@bincount.register_fake
def _(x: Any, length: int) -> FakeArray:
    return FakeArray((*x.shape[:-1], length), np.intp, device=device_of(x))


@bin_sum.register_fake
def _(weights: Any, x: Any, length: int) -> FakeArray:
    outer = broadcast(weights.shape[:-1], x.shape[:-1])
    return FakeArray((*outer, length), np.float64, device=device_of(x))


@bincount.register_vmap
def _(info: Any, in_dims: Any, x: Any, length: int) -> Any:
    return bincount(batch_first(x, in_dims[0]), length), 0


@bin_sum.register_vmap
def _(info: Any, in_dims: Any, weights: Any, x: Any, length: int) -> Any:
    return bin_sum(*aligned_rows(in_dims, weights, x), length), 0


def _bin_sum_pull(g: Any, x: Any) -> Any:
    """Return the gradient of the sum that each weight is added to."""
    if x.ndim == 1:
        return getitem(g, (..., x)) if g.ndim > 1 else getitem(g, x)
    outer = broadcast(g.shape[:-1], x.shape[:-1])
    sums = np.broadcast_to(g, (*outer, g.shape[-1]))
    return np.take_along_axis(sums, np.broadcast_to(x, (*outer, x.shape[-1])), -1)


bin_sum.register_autograd(partials({"weights": _bin_sum_pull, "x": None}))
register_linear_jvp(bin_sum)


# As many places as the largest one needs, which depends on data.
_bincount_all: Operator[..., Any] = numpy_operator(
    "bincount_all",
    "(Array x) -> Array",
    lambda x: np.bincount(x),
    device_types=("cpu", "cuda"),
    tags=Tag.dynamic_output_shape,
)
_bin_sum_all: Operator[..., Any] = numpy_operator(
    "bin_sum_all",
    "(Array weights, Array x) -> Array",
    lambda weights, x: np.bincount(x, weights).astype(np.float64, copy=False),
    device_types=("cpu", "cuda"),
    tags=Tag.dynamic_output_shape,
)
no_gradient(_bincount_all)
_bincount_all.register_sample_inputs(
    lambda: [(np.array([1, 0, 3]),), (np.array([2]),), (np.zeros(0, int),)]
)
_bin_sum_all.register_sample_inputs(
    lambda: [
        (np.array([0.5, -1.0, 2.0]), np.array([1, 0, 1])),
        (np.array([1.5]), np.array([2])),
        (np.array([0.2, 0.3]), np.array([0, 3])),
    ]
)


@_bincount_all.register_fake
def _(x: Any) -> FakeArray:
    return FakeArray((get_ctx().new_dynamic_size(),), np.intp, device=device_of(x))


@_bin_sum_all.register_fake
def _(weights: Any, x: Any) -> FakeArray:
    return FakeArray((get_ctx().new_dynamic_size(),), np.float64, device=device_of(x))


def _no_rows(info: Any) -> DataDependentError:
    return DataDependentError(
        f"np.bincount under vmap of {info.batch_size} rows: the length of the result"
        " depends on data",
        do="give minlength= above the largest element",
    )


@_bincount_all.register_vmap
def _(info: Any, in_dims: Any, x: Any) -> Any:
    raise _no_rows(info)


@_bin_sum_all.register_vmap
def _(info: Any, in_dims: Any, weights: Any, x: Any) -> Any:
    raise _no_rows(info)


_bin_sum_all.register_autograd(partials({"weights": _bin_sum_pull, "x": None}))


@_bin_sum_all.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    y = _bin_sum_all(*primals)
    t, x = tangents[0], primals[1]
    return y, None if t is None else bin_sum(t, x, y.shape[0])


@register_numpy_function(np.bincount)
def _(x: Any, /, weights: Any = None, minlength: Any = 0) -> Any:
    x = as_array(x)
    value, length = value_of(x), whole(minlength)
    if x.ndim != 1 or is_below(length, 0):
        numpy_refuses(
            np.bincount, np.zeros((1,) * x.ndim, int), minlength=length, do=_LINE
        )
    is_open = value is None and is_known(length, 0)
    if value is not None:
        length = np.bincount(value, minlength=length).shape[0]
    elif not is_open:
        x, length = _fitting(x, length)
    if weights is None:
        return _bincount_all(x) if is_open else bincount(x, length)
    weights = as_array(weights)
    if tuple(weights.shape) != tuple(x.shape):
        places = np.zeros(typical(x.shape), int)
        numpy_refuses(np.bincount, places, weights, do="give a weight for each element")
    if is_empty(x.shape):  # NumPy counts nothing, in integers
        return bincount(x, length)
    if getattr(x.shape[0], "hint", None) is not None:
        need_elements("np.bincount with weights", x.shape)
    if is_open:
        return _bin_sum_all(_real_weights(weights), x)
    return bin_sum(_real_weights(weights), x, length)


def _fitting(x: Any, length: Any) -> tuple[Any, Any]:
    """Return places, and the length of the result: `length`, or what the example needs."""
    known = seen(x)
    if known.is_row:
        return x, length
    found, flag = length, np.less(x, length)
    if known.example is not None:
        found = np.bincount(known.example, minlength=length).shape[0]
        flag = flag if found == length else np.equal(np.max(x), found - 1)
    what = f"np.bincount: the length of the result depends on whether it is {found}"
    do = "give minlength= above the largest place"
    return fact(flag, True, what, do, may_differ=False).then(x), found


def _real_weights(weights: Any) -> Any:
    """Return weights in double precision; refuse those that lose digits, as NumPy does."""
    if not np.can_cast(dtype_of(weights), np.float64):
        np.bincount([0], np.zeros(1, dtype_of(weights)))  # NumPy's error
    return cast(weights, np.dtype(np.float64))


_LINE = (
    "give integers in one axis, or use customop.vmap for rows; minlength of 0 or more"
)


# ---- digitize ----


def _check_rows(x: Sequence[Any], bins: Sequence[Any]) -> None:
    """Refuse shapes of edges without an axis, or with leading axes that x lacks."""
    if not 0 <= len(bins) - 1 <= len(x):
        raise ShapeError(
            f"np::digitize: x has shape {tuple(x)}, bins {tuple(bins)}",
            do="give bins of one axis, or with the leading axes of x before it",
        )


def _digitized(x: Any, bins: Any, right: bool) -> Any:
    _check_rows(x.shape, bins.shape)
    if bins.ndim == 1:
        return np.digitize(x, bins, right)
    wide = np.broadcast_to(x, (*bins.shape[:-1], *x.shape[bins.ndim - 1 :]))
    found = np.zeros_like(wide, dtype=np.intp, order="C")
    for row in np.ndindex(bins.shape[:-1]):
        found[row] = np.digitize(wide[row], bins[row], right)
    return found


# Leading axes of `bins` are the first ones of `x`.
digitize: Operator[..., Any] = numpy_operator(
    "digitize",
    "(Array x, Array bins, bool right) -> Array",
    _digitized,
    device_types=("cpu", "cuda"),
)
no_gradient(digitize)


@digitize.register_fake
def _(x: Any, bins: Any, right: bool) -> FakeArray:
    _check_rows(x.shape, bins.shape)
    shape = (*bins.shape[:-1], *x.shape[len(bins.shape) - 1 :])
    return FakeArray(shape, np.intp, device=device_of(x))


@digitize.register_vmap
def _(info: Any, in_dims: Any, x: Any, bins: Any, right: bool) -> Any:
    x = batch_first(x, in_dims[0], info.batch_size)
    if in_dims[1] is not None:
        bins = batch_first(bins, in_dims[1])
        _check_rows(x.shape[1:], bins.shape[1:])
    elif bins.ndim > 1:
        bins = batch_first(bins, None, info.batch_size)
    return digitize(x, bins, right), 0


@register_numpy_function(np.digitize)
def _(x: Any, bins: Any, right: bool = False) -> Any:
    x, bins = as_array(x), as_array(bins)
    if is_complex(x) or bins.ndim != 1:
        numpy_refuses(
            np.digitize, x, bins, do="give real numbers, and bins of one axis"
        )
    return digitize(x, bins, bool(right))


# Bin edges that NumPy finds are functions of the smallest and the largest element.


# ---- edges ----


def _checked(edges: Any, is_made: bool) -> Any:
    """Return the edges; raise where NumPy refuses them."""
    if is_made and not np.all(np.isfinite(edges)):
        numpy_refuses(np.histogram_bin_edges, [np.min(edges), np.max(edges)])
    before, after = edges[..., :-1], edges[..., 1:]
    if is_made and np.any(before >= after):
        # The floats beside this one are further away than half a bin.
        numpy_refuses(np.histogram_bin_edges, [1e20], edges.shape[-1] - 1)
    if np.any(before > after):
        numpy_refuses(np.histogram, [0.0], [1.0, 0.0])
    return edges.view()


# The identity, which raises for edges that are not in order: NumPy gives them back.
_checked_edges: Operator[..., Any] = numpy_operator(
    "checked_edges",
    "(Array(a) edges, bool is_made) -> Array(a)",
    _checked,
    device_types=("cpu", "cuda"),
)
_checked_edges.register_fake(
    lambda edges, is_made: view_of(edges, edges.shape, edges.strides)
)
_checked_edges.register(write_back, lambda new, edges, is_made: new)


@_checked_edges.register_vmap
def _(info: Any, in_dims: Any, edges: Any, is_made: bool) -> Any:
    return _checked_edges(batch_first(edges, in_dims[0]), is_made), 0


_checked_edges.register_autograd(partials({"edges": lambda g: g}))
# A tangent is not in order.
_checked_edges.register_jvp(lambda p, tangents: (_checked_edges(*p), tangents[0]))


def _in_order(bins: Any) -> Any:
    """Return the edges of the user; raise if they decrease, at once where known."""
    value = value_of(bins)
    if value is None:
        return _checked_edges(bins, False)
    if np.any(value[:-1] > value[1:]):
        numpy_refuses(np.histogram, [0.0], [1.0, 0.0])
    return bins


def _outer_edges(a: Any, given: Any) -> tuple[Any, Any]:
    """Return the first and the last edge, which differ."""
    if given is not None:
        first, last = given
        if value_of(first) is not None and value_of(last) is not None:
            _check_range(value_of(first), value_of(last))
    elif is_empty(a.shape):
        return 0, 1
    else:
        first, last = np.min(a), np.max(a)
    is_same = np.equal(first, last)
    if value_of(is_same) is None:
        first = np.where(is_same, first - 0.5, first)
        return first, np.where(is_same, last + 0.5, last)
    return (first - 0.5, last + 0.5) if is_same else (first, last)


def _check_range(first: Any, last: Any) -> None:
    if not (np.isfinite(first) and np.isfinite(last) and first <= last):
        numpy_refuses(np.histogram, [0.0], 1, (first, last))


def _count_of_bins(a: Any, bins: Any, given: Any, weights: Any) -> int:
    """Return the number of bins that a method of NumPy chooses by the data."""
    if weights is not None:
        numpy_refuses(np.histogram, [0.0], bins, weights=[0.0])
    value = value_of(a)
    if value is None:
        raise DataDependentError(
            f"np.histogram: the number of bins={bins!r} depends on data, which is not known"
            " under vmap and for fake arrays",
            do="give the number of bins",
        )
    return int(np.histogram_bin_edges(value, bins, given).shape[0]) - 1


def _edges(a: Any, bins: Any, given: Any, weights: Any) -> Any:
    """Return the edges of the bins of a line of numbers."""
    if isinstance(bins, str):
        bins = _count_of_bins(a, bins, given, weights)
    bins = as_array(bins) if isinstance(bins, list | tuple) else bins
    if len(shape_of(bins)) > 1:
        numpy_refuses(np.histogram, [0.0], bins, do="give edges in one axis")
    if shape_of(bins):
        return _in_order(bins)
    try:
        count = size_of(bins)
    except TypeError:
        raise TypeError("`bins` must be an integer, a string, or an array") from None
    if is_below(count, 1):
        numpy_refuses(np.histogram, [0.0], count, do="give at least one bin")
    first, last = _outer_edges(a, given)
    dtype = np.result_type(
        *(v if isinstance(v, int | float) else dtype_of(v) for v in (first, last, a))
    )
    dtype = dtype if dtype.kind in "fc" else np.result_type(dtype, float)
    return _even_edges(first, last, count, a, dtype, dtype)


def _even_edges(
    first: Any, last: Any, count: Any, a: Any, number: Any, dtype: Any = None
) -> Any:
    """Return edges of bins of one width; `number` is the dtype of ends that are traced."""
    ends = first, last
    is_plain = type(count) is int and all(isinstance(v, _PLAIN) for v in ends)
    if is_plain and _is_of_numpy(a):
        line = np.linspace(first, last, count + 1, dtype=dtype)
        return _checked_edges(line, True)
    start, end = (array_like(v, a, number) for v in ends)
    return _checked_edges(np.linspace(start, end, count + 1, dtype=dtype), True)


_PLAIN = (int, float, np.generic)


def _is_of_numpy(x: Any) -> bool:
    """Return whether an array, below all transforms, is NumPy's or a fake one."""
    while isinstance(x, Tracer):
        x = x.below
    return isinstance(x, np.ndarray | np.generic | FakeArray)


def _line(a: Any, weights: Any) -> tuple[Any, Any]:
    """Return the numbers and their weights in one axis each."""
    a = as_array(a)
    if dtype_of(a) == np.bool_:
        warn_user(
            "Converting input from bool to <class 'numpy.uint8'> for compatibility.",
            RuntimeWarning,
        )
        a = a.astype(np.uint8)
    if weights is not None:
        weights = as_array(weights)
        if tuple(weights.shape) != tuple(a.shape):
            numpy_refuses(
                np.histogram, a, weights=weights, do="give a weight for each element"
            )
        weights = np.ravel(weights)
    return np.ravel(a), weights


@register_numpy_function(np.histogram_bin_edges)
def _(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:  # noqa: A002  # NumPy's name
    a, weights = _line(a, weights)
    return _edges(a, bins, range, weights)


# ---- histograms ----


def _places(a: Any, edges: Any) -> Any:
    """Return the bin of each number; the number of bins for those outside.

    The last bin has its right edge, too.
    """
    count = edges.shape[0] - 1
    places = np.searchsorted(edges, a, side="right") - 1
    places = np.where(np.equal(a, edges[-1]), count - 1, places)
    return np.where(np.less(places, 0), count, places)


def _sums(places: Any, weights: Any, count: int) -> Any:
    """Return counts or sums of weights in bins, without those outside."""
    if weights is None:
        return bincount(places, count + 1)[:-1]
    dtype = dtype_of(weights)
    if is_complex(weights):
        parts = [_sums(places, part, count) for part in (weights.real, weights.imag)]
        return cast(parts[0] + 1j * parts[1], dtype)
    return cast(bin_sum(weights.astype(np.float64), places, count + 1)[:-1], dtype)


def _adds_in_turn(bins: Any, weights: Any) -> bool:
    """Return whether NumPy takes sums of weights from sums over all sorted numbers.

    That is so for bins by edges, and for long doubles; the last bits depend on it.
    """
    if weights is None or dtype_of(weights).kind not in "fc":
        return False
    is_by_edges = bool(shape_of(bins)) or isinstance(bins, list | tuple)
    return is_by_edges or dtype_of(weights).char in "gG"


def _running_sums(a: Any, weights: Any, edges: Any) -> Any:
    order = np.argsort(a)
    line, sums = getitem(a, order), np.cumsum(getitem(weights, order))
    sums = np.concatenate([np.zeros_like(sums, shape=(1,)), sums])
    before = np.searchsorted(line, edges[:-1], "left")
    last = np.searchsorted(line, edges[-1:], "right")
    return np.diff(getitem(sums, np.concatenate([before, last])))


@register_numpy_function(np.histogram)
def _(
    a: Any,
    bins: Any = 10,
    range: Any = None,  # noqa: A002  # NumPy's name
    density: Any = None,
    weights: Any = None,
) -> Any:
    a, weights = _line(a, weights)
    edges = _edges(a, bins, range, weights)
    if _adds_in_turn(bins, weights) and _is_of_numpy(a):
        found = _running_sums(a, weights, edges)
    else:
        found = _sums(_places(a, edges), weights, edges.shape[0] - 1)
    if density:
        found = found / np.diff(edges).astype(np.float64) / np.sum(found)
    return found, edges


@register_numpy_function(np.histogramdd)
def _histogramdd(
    sample: Any,
    bins: Any = 10,
    range: Any = None,  # noqa: A002  # NumPy's name
    density: Any = None,
    weights: Any = None,
) -> Any:
    columns = _columns(sample)
    wanted = _one_each(bins, len(columns))
    ranges = [None] * len(columns) if range is None else list(range)
    if len(ranges) != len(columns):
        points = np.zeros((1, len(columns)))
        numpy_refuses(np.histogramdd, points, range=[(0, 1)] * len(ranges))
    edges = [
        _edges_of_column(i, *given)
        for i, given in enumerate(zip(columns, wanted, ranges, strict=True))
    ]
    lengths = [e.shape[0] - 1 for e in edges]
    places = _joint_places(columns, edges, lengths)
    if weights is not None:
        weights = _real_weights(as_array(weights))
        if tuple(weights.shape) != tuple(places.shape):
            counts = np.zeros(typical(places.shape), int)
            numpy_refuses(
                np.bincount, counts, weights, do="give a weight for each point"
            )
    # With the bins outside of the edges, as NumPy: the sum of all has its order then.
    wide = [n + 2 for n in lengths]
    found = _sums(places, weights, product(wide)).astype(np.float64)
    found = np.reshape(found, wide)[(slice(1, -1),) * len(wide)]
    return (_density(found, edges) if density else found), edges


def _columns(sample: Any) -> list[Any]:
    """Return the coordinates of the points, one array for each axis."""
    if isinstance(sample, list | tuple):
        return [as_array(x) for x in sample]
    shape = shape_of(sample)
    if len(shape) == 2:
        return [sample[:, i] for i in range(shape[1])]
    if len(shape) > 2:
        raise ShapeError(
            f"np.histogramdd: sample has the shape {shape}",
            do="give an array of shape (points, axes), or a list of coordinates",
        )
    return [np.atleast_1d(sample)]


def _one_each(bins: Any, count: int) -> list[Any]:
    """Return the bins of each axis."""
    if not isinstance(bins, list | tuple) and not shape_of(bins):
        return [bins] * count
    if len(bins) != count:
        numpy_refuses(np.histogramdd, np.zeros((1, count)), bins)
    return list(bins)


def _edges_of_column(i: int, a: Any, bins: Any, given: Any) -> Any:
    bins = as_array(bins) if isinstance(bins, list | tuple) else bins
    points, first = np.zeros((1, i + 1)), [*[1] * i, bins]
    if len(shape_of(bins)) > 1:
        numpy_refuses(np.histogramdd, points, first, do="give edges in one axis")
    if shape_of(bins):
        return _in_order(bins)
    known = value_of(bins)
    if known is not None and is_below(known, 1):
        numpy_refuses(np.histogramdd, points, first, do="give at least one bin")
    try:
        count = size_of(bins)
    except TypeError:
        raise TypeError(f"`bins[{i}]` must be an integer, when a scalar") from None
    first, last = _outer_edges(a, given)
    return _even_edges(first, last, count, a, np.float64)


def _joint_places(columns: Sequence[Any], edges: Any, lengths: Sequence[int]) -> Any:
    """Return each point's bin in the flattened histogram, with bins outside."""
    joint = 0
    for a, e, count in zip(columns, edges, lengths, strict=True):
        joint = joint * (count + 2) + _places(a, e) + 1
    return joint


def _density(found: Any, edges: Sequence[Any]) -> Any:
    total = np.sum(found)
    for i, e in enumerate(edges):
        widths = np.diff(e)
        found = found / np.reshape(
            widths, [-1 if j == i else 1 for j in range(found.ndim)]
        )
    return found / total


@register_numpy_function(np.histogram2d)
def _(
    x: Any,
    y: Any,
    bins: Any = 10,
    range: Any = None,  # noqa: A002  # NumPy's name
    density: Any = None,
    weights: Any = None,
) -> Any:
    x, y = as_array(x), as_array(y)
    if x.shape[0] != y.shape[0]:
        numpy_refuses(np.histogram2d, x, y)
    count = len(bins) if isinstance(bins, list | tuple) or shape_of(bins) else 1
    pair = bins if count in (1, 2) else [bins, bins]
    found, edges = _histogramdd([x, y], pair, range, density, weights)
    return found, edges[0], edges[1]
