"""Histograms: histogram, histogram2d, histogramdd, and their edges.

Bin edges that NumPy finds are functions of the smallest and the largest element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from customop import (
    DataDependentError,
    Operator,
    ShapeError,
    partials,
    register_numpy_function,
    write_back,
)
from customop.numpy.arguments import (
    as_array,
    cast,
    dtype_of,
    shape_of,
    value_of,
    warn_user,
)
from customop.numpy.bins import bin_sum, bincount, real_weights
from customop.numpy.create import array_like
from customop.numpy.fakes import view_of
from customop.numpy.rules import (
    batch_first,
    is_complex,
    numpy_operator,
)
from customop.numpy.sizes import (
    is_below,
    is_empty,
    product,
    size_of,
)

__all__: list[str] = []

# ---- edges ----


def _checked(edges: Any, is_made: bool) -> Any:
    """The edges; raise where NumPy refuses them."""
    if is_made and not np.all(np.isfinite(edges)):
        raise ValueError(
            f"autodetected range of [{np.min(edges)}, {np.max(edges)}] is not finite"
        )
    before, after = edges[..., :-1], edges[..., 1:]
    if is_made and np.any(before >= after):
        raise ValueError(
            "Too many bins for data range. Cannot create"
            f" {edges.shape[-1] - 1} finite-sized bins."
        )
    if np.any(before > after):
        raise ValueError("`bins` must increase monotonically, when an array")
    return edges.view()


# The identity, which raises for edges that are not in order: NumPy gives them back.
checked_edges: Operator[..., Any] = numpy_operator(
    "checked_edges",
    "(Array(a) edges, bool is_made) -> Array(a)",
    _checked,
    device_types=("cpu", "cuda"),
)
checked_edges.register_fake(
    lambda edges, is_made: view_of(edges, edges.shape, edges.strides)
)
checked_edges.register(write_back, lambda new, edges, is_made: new)


@checked_edges.register_vmap
def _(info: Any, in_dims: Any, edges: Any, is_made: bool) -> Any:
    return checked_edges(batch_first(edges, in_dims[0]), is_made), 0


checked_edges.register_autograd(partials({"edges": lambda g: g}))
for _check in ("test_jvp", "test_gradients"):
    checked_edges.waive(
        _check, reason="equal edges can only move in directions that keep their order"
    )
# A tangent is not in order.
checked_edges.register_jvp(lambda p, tangents: (checked_edges(*p), tangents[0]))


def _in_order(bins: Any) -> Any:
    """Edges that the user gives; raise, at once if they are known, if they decrease."""
    value = value_of(bins)
    if value is None:
        return checked_edges(bins, False)
    if np.any(value[:-1] > value[1:]):
        raise ValueError("`bins` must increase monotonically, when an array")
    return bins


def _outer_edges(a: Any, given: Any) -> tuple[Any, Any]:
    """The first and the last edge, which differ."""
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
    if first > last:
        raise ValueError("max must be larger than min in range parameter.")
    if not (np.isfinite(first) and np.isfinite(last)):
        raise ValueError(f"supplied range of [{first}, {last}] is not finite")


def _count_of_bins(a: Any, bins: Any, given: Any, weights: Any) -> int:
    """The number of bins that a method of NumPy chooses by the data."""
    if weights is not None:
        raise TypeError(
            "Automated estimation of the number of bins is not supported for weighted"
            " data"
        )
    value = value_of(a)
    if value is None:
        raise DataDependentError(
            f"np.histogram: the number of bins={bins!r} depends on data, which is not known"
            " under vmap and for fake arrays",
            do="give the number of bins",
        )
    return int(np.histogram_bin_edges(value, bins, given).shape[0]) - 1


def _edges(a: Any, bins: Any, given: Any, weights: Any) -> Any:
    """The edges of the bins of a line of numbers."""
    if isinstance(bins, str):
        bins = _count_of_bins(a, bins, given, weights)
    bins = as_array(bins) if isinstance(bins, list | tuple) else bins
    if len(shape_of(bins)) > 1:
        raise ShapeError(
            "`bins` must be 1d, when an array", do="give edges in one axis"
        )
    if shape_of(bins):
        return _in_order(bins)
    try:
        count = size_of(bins)
    except TypeError:
        raise TypeError("`bins` must be an integer, a string, or an array") from None
    if is_below(count, 1):
        raise ShapeError(
            "`bins` must be positive, when an integer", do="give at least one bin"
        )
    first, last = _outer_edges(a, given)
    dtype = np.result_type(
        *(v if isinstance(v, int | float) else dtype_of(v) for v in (first, last, a))
    )
    dtype = dtype if dtype.kind in "fc" else np.result_type(dtype, float)
    start, end = array_like(first, a, dtype), array_like(last, a, dtype)
    return checked_edges(np.linspace(start, end, count + 1, dtype=dtype), True)


def _line(a: Any, weights: Any) -> tuple[Any, Any]:
    """The numbers and their weights in one axis each."""
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
            raise ShapeError(
                "weights should have the same shape as a.",
                f"np.histogram: {tuple(weights.shape)} and {tuple(a.shape)}",
                do="give a weight for each element",
            )
        weights = np.ravel(weights)
    return np.ravel(a), weights


@register_numpy_function(np.histogram_bin_edges)
def _(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:  # noqa: A002  # NumPy's name
    a, weights = _line(a, weights)
    return _edges(a, bins, range, weights)


# ---- histograms ----


def _places(a: Any, edges: Any) -> Any:
    """The bin of each number; the number of bins for those outside.

    The last bin has its right edge, too.
    """
    count = edges.shape[0] - 1
    places = np.searchsorted(edges, a, side="right") - 1
    places = np.where(np.equal(a, edges[-1]), count - 1, places)
    return np.where(np.less(places, 0), count, places)


def _sums(places: Any, weights: Any, count: int) -> Any:
    """Counts or sums of weights in bins, without those outside."""
    if weights is None:
        return bincount(places, count + 1)[:-1]
    dtype = dtype_of(weights)
    if is_complex(weights):
        parts = [_sums(places, part, count) for part in (weights.real, weights.imag)]
        return cast(parts[0] + 1j * parts[1], dtype)
    return cast(bin_sum(weights.astype(np.float64), places, count + 1)[:-1], dtype)


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
    wanted = _one_each("bins", bins, len(columns))
    ranges = [None] * len(columns) if range is None else list(range)
    if len(ranges) != len(columns):
        raise ValueError("range argument must have one entry per dimension")
    edges = [
        _edges_of_column(i, *given)
        for i, given in enumerate(zip(columns, wanted, ranges, strict=True))
    ]
    lengths = [e.shape[0] - 1 for e in edges]
    places = _joint_places(columns, edges, lengths)
    if weights is not None:
        weights = real_weights(as_array(weights))
        if tuple(weights.shape) != tuple(places.shape):
            raise ShapeError(
                "The weights and list don't have the same length.",
                f"np.histogramdd: weights of shape {tuple(weights.shape)} for"
                f" {places.shape[0]} points",
                do="give a weight for each point",
            )
    # With the bins outside of the edges, as NumPy: the sum of all has its order then.
    wide = [n + 2 for n in lengths]
    found = _sums(places, weights, product(wide)).astype(np.float64)
    found = np.reshape(found, wide)[(slice(1, -1),) * len(wide)]
    return (_density(found, edges) if density else found), edges


def _columns(sample: Any) -> list[Any]:
    """The coordinates of the points, one array for each axis."""
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


def _one_each(name: str, bins: Any, count: int) -> list[Any]:
    """The bins of each axis."""
    if not isinstance(bins, list | tuple) and not shape_of(bins):
        return [bins] * count
    if len(bins) != count:
        raise ValueError(
            f"The dimension of {name} must be equal to the dimension of the sample x."
        )
    return list(bins)


def _edges_of_column(i: int, a: Any, bins: Any, given: Any) -> Any:
    bins = as_array(bins) if isinstance(bins, list | tuple) else bins
    if len(shape_of(bins)) > 1:
        raise ShapeError(
            f"`bins[{i}]` must be a scalar or 1d array", do="give edges in one axis"
        )
    if shape_of(bins):
        return _in_order(bins)
    known = value_of(bins)
    if known is not None and is_below(known, 1):
        raise ShapeError(
            f"`bins[{i}]` must be positive, when an integer", do="give at least one bin"
        )
    try:
        count = size_of(bins)
    except TypeError:
        raise TypeError(f"`bins[{i}]` must be an integer, when a scalar") from None
    first, last = (array_like(v, a, np.float64) for v in _outer_edges(a, given))
    return checked_edges(np.linspace(first, last, count + 1), True)


def _joint_places(columns: Sequence[Any], edges: Any, lengths: Sequence[int]) -> Any:
    """The bin of each point in the flattened histogram, with one before and one behind."""
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
        raise ValueError("x and y must have the same length.")
    count = len(bins) if isinstance(bins, list | tuple) or shape_of(bins) else 1
    pair = bins if count in (1, 2) else [bins, bins]
    found, edges = _histogramdd([x, y], pair, range, density, weights)
    return found, edges[0], edges[1]
