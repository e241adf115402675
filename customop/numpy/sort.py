"""Sorting, and the places of the largest and smallest elements.

The results of argmax, argmin and argsort are in C order, as in NumPy 2.4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from customop import (
    ArgumentError,
    FakeArray,
    Operator,
    custom_op,
    fake_like,
    partials,
    register_numpy_function,
)
from customop.numpy.arguments import (
    NO_VALUE,
    below_of,
    is_set,
    lined,
    listed_axes,
    reduced_axes,
    refuse,
)
from customop.numpy.reduce import check_elements, reduced
from customop.numpy.rules import no_gradient, numpy_operator
from customop.numpy.running import along_axis
from customop.numpy.sizes import whole

__all__ = ["placed", "sort", "stable_order"]

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


def stable_order(x: Any, y: Any, axis: int) -> Any:
    """The stable order of an array of NumPy, with `y`, the sorted array.

    Where all elements differ, any order is the stable one, which takes five times as long
    to find (NumPy 2.4).
    """
    rest: Any = (slice(None),) * (axis % x.ndim)
    differ = y[(*rest, slice(1, None))] > y[(*rest, slice(None, -1))]
    return x.argsort(axis, None if differ.all() else "stable")


def placed(g: Any, order: Any, axis: int) -> Any:
    """An array of NumPy that has the elements of `g` at some places along an axis."""
    out = np.empty(order.shape, g.dtype)
    if order.ndim == 1:
        out[order] = g
    else:
        np.put_along_axis(out, order, g, axis)
    return out


def _unsorted(g: Any, x: Any, y: Any, axis: int, descending: bool) -> Any:
    known, line = below_of(x), below_of(y)
    if type(known) is type(line) is np.ndarray and not descending:
        order = stable_order(known, line, axis)
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
    """Whether the order is stable; raise for algorithms without an operator."""
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
