"""Orders of elements: sorting, places of extremes, partition, searchsorted; sets.

The results of argmax, argmin and argsort are in C order, as in NumPy 2.4.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from operator import index as as_int
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from customop import (
    ArgumentError,
    DataDependentError,
    FakeArray,
    Operator,
    ShapeError,
    Tag,
    custom_op,
    fake_like,
    get_ctx,
    getitem,
    partials,
    register_numpy_function,
)
from customop.numpy.arguments import (
    NO_VALUE,
    are_equal,
    as_array,
    below_of,
    dtype_of,
    is_below,
    is_known,
    is_set,
    lined,
    listed_axes,
    numpy_refuses,
    only,
    product,
    reduced_axes,
    refuse,
    size_of,
    typical,
    whole,
)
from customop.numpy.create import array_like
from customop.numpy.reductions import check_elements, reduced
from customop.numpy.rules import (
    along_axis,
    batch_first,
    device_of,
    is_complex,
    no_gradient,
    numpy_operator,
)

# ---- places of the extremes ----


def _place(name: str, function: Any) -> Operator[..., Any]:
    """Make np.argmax or np.argmin."""

    def kernel(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return getattr(x, name)(axis=axis, keepdims=keepdims)

    schema = "(Array x, int? axis=None, bool keepdims=False) -> Array"
    op = numpy_operator(name, schema, kernel)

    def fake(x: Any, axis: Any, keepdims: Any) -> FakeArray:
        listed = listed_axes(axis)
        check_elements(name, x.shape, listed)
        like = FakeArray(x.shape, x.dtype, device=x.device)
        return reduced(like, listed, keepdims, np.dtype(np.intp))

    def batch(info: Any, in_dims: Any, x: Any, axis: Any, keepdims: Any) -> Any:
        rows = np.moveaxis(x, in_dims[0], 0)
        ndim = rows.ndim - 1
        if axis is not None:
            return op(rows, normalize_axis_index(axis, ndim) + 1, keepdims), 0
        found = op(np.reshape(rows, (rows.shape[0], -1)), 1, keepdims)
        return (np.reshape(found, (-1, *(1,) * ndim)) if keepdims else found), 0

    def place(
        a: Any, axis: Any = None, out: None = None, *, keepdims: Any = False
    ) -> Any:
        if reduced_axes(a, axis) is None:
            axis = None
        return op(a, axis, is_set(keepdims))

    op.register_fake(fake)
    op.register_vmap(batch)
    register_numpy_function(function, place)
    return no_gradient(op)


argmax: Operator[..., Any] = _place("argmax", np.argmax)
argmin: Operator[..., Any] = _place("argmin", np.argmin)

# ---- sorting ----


def _in_order(function: Any, x: Any, axis: int, stable: bool, descending: bool) -> Any:
    """Call np.sort or np.argsort; NumPy knows `descending` since 2.5."""
    if descending:
        return function(x, axis=axis, stable=stable, descending=True)
    return function(x, axis=axis, kind="stable" if stable else None)


@custom_op(
    "np::argsort",
    mutates_args=(),
    schema="(Array x, int axis=-1, bool stable=False, bool descending=False) -> Array",
)
def argsort(
    x: Any, axis: int = -1, stable: bool = False, descending: bool = False
) -> Any:
    return _in_order(np.argsort, x, axis, stable, descending)


@argsort.register_fake
def _(x: Any, axis: Any, stable: Any, descending: Any) -> FakeArray:
    normalize_axis_index(axis, len(x.shape))
    return FakeArray(x.shape, np.dtype(np.intp), device=x.device)


argsort.register_vmap(along_axis(argsort))
no_gradient(argsort)


@custom_op(
    "np::sort",
    mutates_args=(),
    schema="(Array x, int axis=-1, bool descending=False) -> Array",
)
def sort(x: Any, axis: int = -1, descending: bool = False) -> Any:
    """Sort along an axis."""
    return _in_order(np.sort, x, axis, False, descending)


@sort.register_fake
def _(x: Any, axis: Any, descending: Any) -> FakeArray:
    normalize_axis_index(axis, len(x.shape))
    return fake_like(x)


sort.register_vmap(along_axis(sort))


def _stable_order(x: Any, y: Any, axis: int) -> Any:
    """Return the stable order of an array of NumPy, with `y` the sorted array.

    Where all elements differ, any order is the stable one, which takes five times as long
    to find (NumPy 2.4).
    """
    rest: Any = (slice(None),) * (axis % x.ndim)
    differ = y[(*rest, slice(1, None))] > y[(*rest, slice(None, -1))]
    return x.argsort(axis, None if differ.all() else "stable")


def placed(g: Any, order: Any, axis: int) -> Any:
    """Put the elements of `g` at some places along an axis of a new array of NumPy."""
    out = np.empty(order.shape, g.dtype)
    if order.ndim == 1:
        out[order] = g
    else:
        np.put_along_axis(out, order, g, axis)
    return out


def _unsorted(g: Any, x: Any, y: Any, axis: int, descending: bool) -> Any:
    known, line = below_of(x), below_of(y)
    if type(known) is type(line) is np.ndarray and not descending:
        order = _stable_order(known, line, axis)
        if type(g) is np.ndarray:
            return placed(g, order, axis)
        return np.take_along_axis(g, order.argsort(axis), axis)
    order = argsort(x, axis, True, descending)
    return np.take_along_axis(g, argsort(order, axis), axis)


sort.register_autograd(partials({"x": _unsorted}, result="y"))


@sort.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    x, axis, descending = primals
    order = argsort(x, axis, True, descending)
    found = np.take_along_axis(tangents[0], order, axis)
    return sort(x, axis, descending), found


# Name of the algorithm -> whether equal elements keep their order.
_STABLE = {None: False, "quicksort": False, "stable": True, "mergesort": True}


def _sorting(name: str, kind: Any, order: Any, stable: Any, descending: Any) -> bool:
    """Return whether the order is stable; raise for algorithms without an operator."""
    refuse(name, order=order)
    if kind not in _STABLE:
        raise ArgumentError(
            f"np.{name}(kind={kind!r}) has no operator for traced or fake arrays",
            do="leave kind out, or use kind='stable'",
        )
    own = {} if descending is NO_VALUE else {"descending": descending}
    if own or (kind is not None and stable is not None):
        # NumPy before 2.5 raises for `descending`; any one does for both kinds.
        getattr(np, name)(np.zeros(1), kind=kind, stable=stable, **own)
    return bool(stable) if stable is not None else _STABLE[kind]


@register_numpy_function(np.sort)
def _(
    a: Any,
    axis: Any = -1,
    kind: Any = None,
    order: Any = None,
    *,
    stable: Any = None,
    descending: Any = NO_VALUE,
) -> Any:
    _sorting("sort", kind, order, stable, descending)
    if axis is None:
        return sort(np.reshape(a, (-1,)), 0, is_set(descending))
    return sort(a, axis, is_set(descending))


@register_numpy_function(np.argsort)
def _(
    a: Any,
    axis: Any = -1,
    kind: Any = None,
    order: Any = None,
    *,
    stable: Any = None,
    descending: Any = NO_VALUE,
) -> Any:
    is_stable = _sorting("argsort", kind, order, stable, descending)
    if axis is None:
        return argsort(np.reshape(a, (-1,)), 0, is_stable, is_set(descending))
    return argsort(lined(a, axis), whole(axis), is_stable, is_set(descending))


# ---- partition ----


def _check_places(kth: Sequence[Any], shape: Sequence[Any], axis: int) -> None:
    length = shape[normalize_axis_index(axis, len(shape))]
    if any(n == 0 if type(n) is int else n.hint == 0 for n in shape):
        return  # NumPy does not look at the places
    for place in kth:
        if is_below(place, -length) or is_below(length - 1, place):
            raise ShapeError(
                f"kth(={place}) out of bounds ({length})",
                f"np.partition along axis {axis} of an array of shape {tuple(shape)}",
                do="give places that the axis has",
            )


def _kernel(name: str) -> Any:
    return lambda x, axis, kth: getattr(np, name)(x, tuple(kth), axis)


_SCHEMA = "(Array x, int axis, int[] kth) -> Array"
_partition: Operator[..., Any] = numpy_operator(
    "partition", _SCHEMA, _kernel("partition")
)
_argpartition: Operator[..., Any] = numpy_operator(
    "argpartition", _SCHEMA, _kernel("argpartition")
)


@_partition.register_fake
def _(x: Any, axis: Any, kth: Any) -> FakeArray:
    _check_places(kth, x.shape, axis)
    return fake_like(x)


@_argpartition.register_fake
def _(x: Any, axis: Any, kth: Any) -> FakeArray:
    _check_places(kth, x.shape, axis)
    return FakeArray(x.shape, np.intp, device=device_of(x))


_partition.register_vmap(along_axis(_partition))
_argpartition.register_vmap(along_axis(_argpartition))
no_gradient(_argpartition)
_argpartition.waive(
    "test_dtypes", reason="NumPy chooses the order of the elements on either side"
)


def _ranks(x: Any, axis: int) -> Any:
    """Return the place of each element after sorting.

    Equal elements keep their order.
    """
    return np.argsort(np.argsort(x, axis, kind="stable"), axis)


def _moves(x: Any, y: Any, axis: int) -> Any:
    """Return where `y`, the elements of `x` in another order, has them from."""
    return np.take_along_axis(np.argsort(x, axis, kind="stable"), _ranks(y, axis), axis)


def _unparted(g: Any, x: Any, y: Any, axis: int) -> Any:
    known, parted = below_of(x), below_of(y)
    if type(known) is type(parted) is np.ndarray and known.size:
        line = np.sort(known, axis)
        there, own = (_stable_order(v, line, axis) for v in (parted, known))
        moves = placed(there, own, axis)
        if type(g) is np.ndarray and g.ndim == 1:
            return g[moves]
        return np.take_along_axis(g, moves, axis)
    return np.take_along_axis(g, _moves(y, x, axis), axis)


_partition.register_autograd(partials({"x": _unparted}, result="y"))


@_partition.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    x, axis, kth = primals
    y = _partition(x, axis, kth)
    return y, np.take_along_axis(tangents[0], _moves(x, y, axis), axis)


def _plain_place(k: Any) -> Any:
    if isinstance(k, bool | np.bool_):
        np.partition([0], True)  # NumPy's error
    return size_of(k)


def _register_partition(name: str, op: Operator[..., Any]) -> None:
    def partition(
        a: Any, kth: Any, axis: Any = -1, kind: Any = "introselect", order: Any = None
    ) -> Any:
        refuse(name, order=order)
        only(f"np.{name}", kind=(kind, "introselect"))
        places = [_plain_place(k) for k in (kth if np.iterable(kth) else (kth,))]
        if axis is None:
            return op(np.ravel(a), 0, places)
        if op is _argpartition:
            return op(lined(a, axis), whole(axis), places)
        return op(a, axis, places)

    register_numpy_function(getattr(np, name), partition)


_register_partition("partition", _partition)
_register_partition("argpartition", _argpartition)


# ---- sorting by several keys ----


@register_numpy_function(np.lexsort)
def _(keys: Any, axis: int = -1) -> Any:
    given = [as_array(key) for key in keys]
    shapes = [key.shape for key in given]
    if len({*map(len, shapes)}) != 1 or not are_equal(shapes):
        numpy_refuses(np.lexsort, given, do="pass keys, broadcast to one shape")
    axis = as_int(axis)
    order = np.argsort(given[0], axis, kind="stable")
    if not given[0].shape:
        return np.reshape(order, ())
    for key in given[1:]:
        turn = np.argsort(np.take_along_axis(key, order, axis), axis, kind="stable")
        order = np.take_along_axis(order, turn, axis)
    return order


@register_numpy_function(np.sort_complex)
def _(a: Any) -> Any:
    ordered = np.sort(a)
    if is_complex(a):
        return ordered
    kind = dtype_of(a).char
    return ordered.astype("F" if kind in "bhBH" else "G" if kind == "g" else "D")


# ---- places in sorted arrays ----

_searchsorted = numpy_operator(
    "searchsorted",
    "(Array a, Array v, bool right=False, Array? sorter=None) -> Array",
    lambda a, v, right, sorter: np.searchsorted(
        a, v, "right" if right else "left", sorter
    ),
)
# Of a number NumPy gives an int.
_searchsorted.register_kernel(
    "cpu",
    lambda a, v, right, sorter: np.asarray(
        np.searchsorted(a, v, "right" if right else "left", sorter)
    )[()],
)
no_gradient(_searchsorted)
_searchsorted.waive(
    "test_vmap", reason="rows have to be sorted; NumPy finds other places in others"
)


@_searchsorted.register_sample_inputs
def _() -> list[tuple[Any, ...]]:
    a, v = np.array([-1.2, 0.3, 0.9, 2.1]), np.array([[0.4, -2.0], [0.9, 3.0]])
    return [
        (a[:2], np.array(0.4)),
        (a, v[0], True),
        (a[::-1].copy(), v, False, np.array([3, 2, 1, 0])),
    ]


@_searchsorted.register_fake
def _(a: Any, v: Any, right: bool, sorter: Any) -> FakeArray:
    if len(a.shape) != 1:
        numpy_refuses(np.searchsorted, a, v, do="give an array of one axis")
    if sorter is not None and tuple(sorter.shape) != tuple(a.shape):
        places = np.zeros(typical(sorter.shape), int)
        numpy_refuses(np.searchsorted, a, v, sorter=places, do="use np.argsort(a)")
    return FakeArray(v.shape, np.intp, device=device_of(v))


@_searchsorted.register_vmap
def _(info: Any, in_dims: Any, a: Any, v: Any, right: bool, sorter: Any) -> Any:
    if in_dims[0] is None and in_dims[3] is None:
        return _searchsorted(a, v, right, sorter), in_dims[1]
    size = info.batch_size
    rows = batch_first(a, in_dims[0], size)
    if sorter is not None:
        rows = np.take_along_axis(rows, batch_first(sorter, in_dims[3], size), 1)
    values = batch_first(v, in_dims[1], size)
    flat = np.reshape(values, (size, product(values.shape[1:])))
    return np.reshape(_bisected(rows, flat, is_right=right), values.shape), 0


def _bisected(rows: Any, values: Any, *, is_right: bool) -> Any:
    """Count for each value of a row the elements of the sorted row before it."""
    dtype = np.result_type(dtype_of(rows), dtype_of(values))
    rows, values = rows.astype(dtype), values.astype(dtype)
    length = rows.shape[1]
    if type(length) is int:
        return _searched(rows, values, length, is_right=is_right)
    return _merged(rows, values, is_right=is_right)


def _merged(rows: Any, values: Any, *, is_right: bool) -> Any:
    """Return the counts by sorting both together, in steps that fit all lengths."""
    parts = (rows, values) if is_right else (values, rows)
    order = np.argsort(np.concatenate(parts, 1), 1, kind="stable")
    places = np.argsort(order, 1)
    count = values.shape[1]
    own = places[:, rows.shape[1] :] if is_right else places[:, :count]
    among = np.argsort(np.argsort(values, 1, kind="stable"), 1)
    return own - among


def _searched(rows: Any, values: Any, length: int, *, is_right: bool) -> Any:
    """Return the counts by a binary search: bit by bit, from the highest one."""
    count = np.zeros_like(values, dtype=np.intp)
    step = 1 << length.bit_length() >> 1
    while step:
        more = count + step
        known = np.take_along_axis(rows, np.minimum(more, length) - 1, 1)
        comes_before = (
            np.logical_not(_is_less(values, known))
            if is_right
            else _is_less(known, values)
        )
        count = np.where(comes_before & (more <= length), more, count)
        step >>= 1
    return count


def _is_less(a: Any, b: Any) -> Any:
    """Return whether `a` comes before `b` in sorted arrays, where nan is last."""
    if dtype_of(a).kind not in "fc":
        return np.less(a, b)
    if not is_complex(a):
        return np.less(a, b) | (np.isnan(b) & _is_number(a))
    # Real parts, then imaginary parts; a NaN in either one puts a number last.
    # Source: the order of numpy.sort, NumPy 2.4.
    ar, ai, br, bi = np.real(a), np.imag(a), np.real(b), np.imag(b)
    first = (np.less(ar, br) & (_is_number(ai) | np.isnan(bi))) | (
        np.greater(ar, br) & np.isnan(bi) & _is_number(ai)
    )
    is_tie = np.equal(ar, br) | (np.isnan(ar) & np.isnan(br))
    second = is_tie & (np.less(ai, bi) | (np.isnan(bi) & _is_number(ai)))
    return first | second | (np.isnan(br) & _is_number(ar))


def _is_number(x: Any) -> Any:
    return np.logical_not(np.isnan(x))


@register_numpy_function(np.searchsorted)
def _(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    np.searchsorted(np.zeros(1), 0.0, side=side)  # type: ignore[call-overload]  # raises for unknown sides
    order = None if sorter is None else as_array(sorter)
    array = as_array(a)
    return _searchsorted(array, array_like(v, array), side[0] in "rR", order)


# The places of unique elements come from one operator; the elements are taken from the
# array, so gradients go to the element that comes first among equal ones. How many
# there are depends on data: a size of its own for fake arrays, and an error for rows of
# vmap.


# ---- unique ----


def _unique_kernel(x: Any, axis: Any, equal_nan: bool, is_sorted: bool) -> Any:
    """Return first places of equal elements, the number of each element, and counts."""
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
_unique.register_kernel(
    "cuda",  # CuPy sorts always (14.2)
    lambda x, axis, equal_nan, is_sorted: _unique_kernel(x, axis, equal_nan, True),
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
    """Return the class of NumPy's result, such as ``UniqueAllResult``."""
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
    lambda element, test, assume_unique, invert, method: np.isin(
        element, test, assume_unique, invert
    ),
)
_isin.register_kernel(
    "cpu",
    lambda element, test, assume_unique, invert, method: np.asarray(
        np.isin(element, test, assume_unique, invert, kind=method)
    ),
)
no_gradient(_isin)


@_isin.register_fake
def _(
    element: Any, test: Any, assume_unique: Any, invert: Any, method: Any
) -> FakeArray:
    _check_method(element, test, method)
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
    _check_method(element, test, method)
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


def _check_method(element: Any, test: Any, method: Any) -> None:
    kinds = {dtype_of(element).kind, dtype_of(test).kind}
    if method == "table" and not kinds <= set("biu"):
        numpy_refuses(np.isin, element, test, kind=method)


def _among(values: Any, rows: Any) -> Any:
    """Return whether each value of a row equals an element of the other array's row."""
    if is_known(rows.shape[1], 0):
        return np.zeros_like(values, dtype=np.bool_)
    dtype = np.result_type(dtype_of(values), dtype_of(rows))
    known, wanted = np.sort(rows.astype(dtype), axis=1), values.astype(dtype)
    places = _bisected(known, wanted, is_right=False)
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
        numpy_refuses(np.isin, [0], [0], kind=kind)
    return _isin(
        as_array(element), as_array(test_elements), assume_unique, invert, kind
    )
