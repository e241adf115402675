"""Sets: unique and its relatives, intersect1d, union1d, setdiff1d, setxor1d, isin.

The places of unique elements come from one operator; the elements are taken from the array,
so gradients go to the element that comes first among equal ones. How many there are depends
on data: a size of its own for fake arrays, and an error for rows of vmap.
"""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from customop import (
    DataDependentError,
    FakeArray,
    Operator,
    Tag,
    get_ctx,
    getitem,
    register_numpy_function,
)
from customop.numpy.arguments import as_array, dtype_of
from customop.numpy.fakes import device_of
from customop.numpy.partition import bisected
from customop.numpy.rules import batch_first, no_gradient, numpy_operator
from customop.numpy.sizes import is_known, product

__all__: list[str] = []


# ---- unique ----


def _unique_kernel(x: Any, axis: Any, equal_nan: bool, is_sorted: bool) -> Any:
    """Places of the first of equal elements, the number of each element, and counts."""
    values, index, inverse, counts = np.unique(
        x,
        return_index=True,
        return_inverse=True,
        return_counts=True,
        axis=axis,
        equal_nan=equal_nan,
    )
    if not is_sorted and axis is None:
        own: Any = np.unique(x, equal_nan=equal_nan, sorted=False)
        if own.shape == values.shape:
            ranks = np.argsort(np.argsort(own, kind="stable"))
            index = index[ranks]
    return index, inverse, counts


_unique: Operator[..., Any] = numpy_operator(
    "unique",
    "(Array x, int? axis, bool equal_nan, bool is_sorted)"
    " -> (Array index, Array inverse, Array counts)",
    _unique_kernel,
    tags=Tag.dynamic_output_shape,
)
no_gradient(_unique)


# NumPy 2.0 has other shapes of the inverse.
_SHAPES = {
    axis: np.unique(np.zeros((1, 2)), axis=axis, return_inverse=True)[1].shape
    for axis in (None, 1)
}


@_unique.register_fake
def _(x: Any, axis: Any, equal_nan: Any, is_sorted: Any) -> Any:
    whole = product(x.shape)
    length = whole if axis is None else x.shape[normalize_axis_index(axis, x.ndim)]
    least = min(length, 1) if type(length) is int else 0
    count = get_ctx().new_dynamic_size(min=least, max=length)
    if axis is None:
        inverse = x.shape if _SHAPES[None] == (1, 2) else (whole,)
    else:
        inverse = (length,)
    device = device_of(x)
    parts = ((count,), inverse, (count,))
    return tuple([FakeArray(shape, np.intp, device=device) for shape in parts])


@_unique.register_vmap
def _(
    info: Any, in_dims: Any, x: Any, axis: Any, equal_nan: Any, is_sorted: Any
) -> Any:
    raise DataDependentError(
        f"np.unique, or a function of sets, under vmap of {info.batch_size} rows: the shape"
        " of the result depends on data",
        do="keep the shape: s = np.sort(x), and s[1:] != s[:-1] marks the new elements;"
        " or map(f, rows), which runs f once for each row",
    )


class _Unique(NamedTuple):
    values: Any
    index: Any
    inverse: Any
    counts: Any


def _unique_of(
    ar: Any, axis: Any = None, *, equal_nan: bool = True, is_sorted: bool = True
) -> _Unique:
    x = as_array(ar)
    index, inverse, counts = _unique(x, axis, equal_nan, is_sorted)
    line = np.ravel(x) if axis is None else np.moveaxis(x, axis, 0)
    values = getitem(line, index)
    values = np.moveaxis(values, 0, axis) if axis else values
    return _Unique(values, index, inverse, counts)


@register_numpy_function(np.unique)
def _(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: Any = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,  # noqa: A002  # NumPy's name
) -> Any:
    is_sorted = sorted or return_index or return_inverse or return_counts
    found = _unique_of(ar, axis, equal_nan=equal_nan, is_sorted=is_sorted)
    wanted = (True, return_index, return_inverse, return_counts)
    parts = [part for part, w in zip(found, wanted, strict=True) if w]
    return tuple(parts) if len(parts) > 1 else parts[0]


@register_numpy_function(np.unique_all)
def _(x: Any) -> Any:
    values, index, inverse, counts = _unique_of(x, equal_nan=False)
    return _class_of(np.unique_all)(values, index, inverse, counts)


@register_numpy_function(np.unique_counts)
def _(x: Any) -> Any:
    found = _unique_of(x, equal_nan=False)
    return _class_of(np.unique_counts)(found.values, found.counts)


@register_numpy_function(np.unique_inverse)
def _(x: Any) -> Any:
    found = _unique_of(x, equal_nan=False)
    return _class_of(np.unique_inverse)(found.values, found.inverse)


def _class_of(function: Any) -> Any:
    """The class of NumPy's result, such as ``UniqueAllResult``."""
    return type(function(np.zeros(1)))


# From NumPy 2.3 on its values come in the order of a hash table.
_SORTS = "sorted" not in inspect.signature(np.unique).parameters


@register_numpy_function(np.unique_values)
def _(x: Any) -> Any:
    return _unique_of(x, equal_nan=False, is_sorted=_SORTS).values


# ---- sets ----


@register_numpy_function(np.union1d)
def _(ar1: Any, ar2: Any) -> Any:
    return np.unique(np.concatenate((ar1, ar2), axis=None))


@register_numpy_function(np.intersect1d)
def _(
    ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False
) -> Any:
    given = [_Unique(np.ravel(as_array(a)), None, None, None) for a in (ar1, ar2)]
    if not assume_unique:
        given = [_unique_of(one.values) for one in given]
    first, second = given
    both = np.concatenate((first.values, second.values))
    order = np.argsort(both, kind="stable")
    both = both[order]
    twice = np.flatnonzero(both[1:] == both[:-1])
    common = both[twice]
    if not return_indices:
        return common
    places = [order[twice], order[twice + 1] - first.values.size]
    pairs = zip(given, places, strict=True)
    return (common, *[p if o.index is None else getitem(o.index, p) for o, p in pairs])


@register_numpy_function(np.setxor1d)
def _(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    parts = [as_array(a) if assume_unique else np.unique(a) for a in (ar1, ar2)]
    both = np.concatenate(parts, axis=None)
    if is_known(both.size, 0):
        return both
    both = np.sort(both)
    differs = np.not_equal(both[1:], both[:-1])
    end = np.ones_like(both[:1], dtype=np.bool_)
    apart = np.concatenate((end, differs)) & np.concatenate((differs, end))
    return both[np.flatnonzero(apart)]


@register_numpy_function(np.setdiff1d)
def _(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    if assume_unique:
        first, second = np.ravel(as_array(ar1)), as_array(ar2)
    else:
        first, second = np.unique(ar1), np.unique(ar2)
    apart = np.isin(first, second, assume_unique=True, invert=True)
    return getitem(first, np.flatnonzero(apart))


# ---- membership ----

_isin: Operator[..., Any] = numpy_operator(
    "isin",
    "(Array element, Array test, bool assume_unique, bool invert, str? method) -> Array",
    lambda element, test, assume_unique, invert, method: np.asarray(
        np.isin(element, test, assume_unique, invert, kind=method)
    ),
)
no_gradient(_isin)


@_isin.register_fake
def _(
    element: Any, test: Any, assume_unique: Any, invert: Any, method: Any
) -> FakeArray:
    if method == "table" and not {element.dtype.kind, test.dtype.kind} <= set("biu"):
        raise ValueError(
            "The 'table' method is only supported for boolean or integer arrays. Please"
            " select 'sort' or None for kind."
        )
    return FakeArray(element.shape, np.bool_, device=device_of(element))


@_isin.register_vmap
def _(
    info: Any,
    in_dims: Any,
    element: Any,
    test: Any,
    assume_unique: bool,
    invert: bool,
    method: Any,
) -> Any:
    if in_dims[1] is None:
        # The rows together may hold an element twice.
        return _isin(element, test, False, invert, method), in_dims[0]
    size = info.batch_size
    values = batch_first(element, in_dims[0], size)
    rows = batch_first(test, in_dims[1])
    lines = [np.reshape(x, (size, product(x.shape[1:]))) for x in (values, rows)]
    found = _among(*lines)
    found = np.reshape(found, values.shape)
    return np.logical_not(found) if invert else found, 0


def _among(values: Any, rows: Any) -> Any:
    """Whether each value of a row equals an element of the other array's row."""
    if is_known(rows.shape[1], 0):
        return np.zeros_like(values, dtype=np.bool_)
    dtype = np.result_type(dtype_of(values), dtype_of(rows))
    known, wanted = np.sort(rows.astype(dtype), axis=1), values.astype(dtype)
    places = bisected(known, wanted, is_right=False)
    nearest = np.minimum(places, known.shape[1] - 1)
    return np.equal(np.take_along_axis(known, nearest, 1), wanted)


@register_numpy_function(np.isin)
def _(
    element: Any,
    test_elements: Any,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    kind: str | None = None,
) -> Any:
    if kind not in (None, "sort", "table"):
        raise ValueError(f"Invalid kind: {kind!r}. Please use None, 'sort' or 'table'.")
    return _isin(
        as_array(element), as_array(test_elements), assume_unique, invert, kind
    )
