"""Reductions, running reductions and sorting.

A result's axes lie in memory in the order of the input's, as NumPy 2.4 has it for
ufunc reductions; argmax, argmin and argsort give C order.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from customop import (
    ArgumentError,
    FakeArray,
    Operator,
    custom_op,
    fake_like,
    jvp,
    register_numpy_function,
    vjp,
)
from customop.numpy.rules import fit, is_complex, no_gradient

__all__ = [
    "NO_VALUE",
    "counted_axes",
    "is_set",
    "listed_axes",
    "note_input_and_output",
    "reduction_of",
    "refuse",
    "spread",
]

_REDUCTION = "(Array x, int[]? axis=None, bool keepdims=False) -> Array"

# ---- axes ----


def counted_axes(axis: Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Axes counted from the front; all of them for None."""
    return tuple(range(ndim)) if axis is None else normalize_axis_tuple(axis, ndim)


def listed_axes(axis: Any) -> list[int] | None:
    """An axis argument of NumPy as a list."""
    if axis is None:
        return None
    if isinstance(axis, list | tuple):
        return [operator.index(item) for item in axis]
    return [operator.index(axis)]


def _kept_shape(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def spread(
    value: Any, shape: tuple[int, ...], axis: Sequence[int] | None, keepdims: bool
) -> Any:
    """A reduced value, broadcast over the axes that were reduced."""
    if axis is not None and not keepdims:
        value = np.reshape(value, _kept_shape(shape, counted_axes(axis, len(shape))))
    return np.broadcast_to(value, shape)


def _count(shape: Sequence[int], axis: Sequence[int] | None) -> int:
    """Number of elements that make one element of the result."""
    if axis is None:
        return math.prod(shape)
    return math.prod(shape[i] for i in counted_axes(axis, len(shape)))


# ---- fake kernels and batching of reductions ----


@lru_cache(maxsize=1024)
def _reduced_dtype(kernel: Callable[..., Any], dtype: Any) -> Any:
    return kernel(np.ones(1, dtype)).dtype


def _reduced(
    x: Any, axis: Sequence[int] | None, keepdims: bool, dtype: Any
) -> FakeArray:
    """The fake array of a reduction, its axes in memory in the order of those of `x`."""
    ndim = len(x.shape)
    axes = counted_axes(axis, ndim)
    if axis is None and not keepdims:
        return FakeArray((), dtype, (), device=x.device)
    order = sorted(range(ndim), key=lambda i: -abs(x.strides[i]))
    shape = _kept_shape(x.shape, axes)
    if not keepdims:
        order = [i for i in order if i not in axes]
    kept = sorted(order)
    return FakeArray(
        [shape[i] for i in kept],
        dtype,
        device=x.device,
        order=[kept.index(i) for i in order],
    )


def _batched_axes(axis: Sequence[int] | None, dim: int, ndim: int) -> list[int]:
    """Axes of a row, as axes of the batch."""
    return [i + (i >= dim) for i in counted_axes(axis, ndim - 1)]


def _batched_dim(axes: Sequence[int], dim: int, keepdims: bool) -> int:
    """Where the axis of the batch is once `axes` are reduced."""
    return dim if keepdims else dim - sum(i < dim for i in axes)


def reduction_of(name: str, kernel: Callable[..., Any]) -> Operator[..., Any]:
    """The operator of a reduction, with fake kernel and batching."""
    op: Operator[..., Any] = custom_op(
        f"np::{name}", kernel, mutates_args=(), schema=_REDUCTION
    )

    def fake(x: Any, axis: Any, keepdims: Any) -> FakeArray:
        return _reduced(x, axis, keepdims, _reduced_dtype(kernel, x.dtype))

    def batch(info: Any, in_dims: Any, x: Any, axis: Any, keepdims: Any) -> Any:
        axes = _batched_axes(axis, in_dims[0], x.ndim)
        return op(x, axes, keepdims), _batched_dim(axes, in_dims[0], keepdims)

    op.register_fake(fake)
    op.register_vmap(batch)
    return op


def _method(name: str) -> Callable[..., Any]:
    """The kernel that calls a method of the array: NumPy's and CuPy's are alike."""

    def kernel(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        axes = None if axis is None else tuple(axis)
        return getattr(x, name)(axis=axes, keepdims=keepdims)

    kernel.__name__ = kernel.__qualname__ = name
    return kernel


# ---- what users pass to NumPy's functions ----

NO_VALUE = np._NoValue  # NumPy's own default of keepdims


def refuse(name: str, **given: Any) -> None:
    """Raise for arguments of a NumPy function that the operator does not have."""
    for key, value in given.items():
        if value is not None and value is not NO_VALUE and value is not True:
            raise ArgumentError(
                f"np.{name}({key}={_short(value)}) has no operator for traced or fake"
                " arrays",
                do=_INSTEAD.get(key, f"leave {key}= away").replace("NAME", name),
            )


_INSTEAD = {
    "out": "use the result: y = np.NAME(x)",
    "where": "select with np.where(mask, x, value) first",
    "initial": "combine afterwards: np.NAME(x) with the value",
}


def _short(value: Any) -> str:
    """A value as a message quotes it."""
    shape = getattr(value, "shape", None)
    return f"{type(value).__name__} of shape {shape}" if shape else repr(value)


def _cast(x: Any, dtype: Any) -> Any:
    return x if dtype is None else x.astype(dtype)


def is_set(keepdims: Any) -> bool:
    """Whether keepdims is given and true."""
    return keepdims is not NO_VALUE and bool(keepdims)


def _serve(function: Any, op: Operator[..., Any]) -> None:
    """Register a reduction for a NumPy function that takes no dtype."""

    def reduction(
        a: Any,
        axis: Any = None,
        out: Any = None,
        keepdims: Any = False,
        initial: Any = NO_VALUE,
        where: Any = True,
    ) -> Any:
        if out is not None or initial is not NO_VALUE or where is not True:
            refuse(op.name, out=out, initial=initial, where=where)
        return op(a, listed_axes(axis), is_set(keepdims))

    register_numpy_function(function, reduction)


def _serve_cast(function: Any, op: Operator[..., Any]) -> None:
    """Register a reduction for a NumPy function that takes a dtype."""

    def reduction(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: Any = False,
        initial: Any = NO_VALUE,
        where: Any = True,
    ) -> Any:
        if out is not None or initial is not NO_VALUE or where is not True:
            refuse(op.name, out=out, initial=initial, where=where)
        if dtype is not None:
            a = a.astype(dtype)
        axes = axis if axis is None else listed_axes(axis)
        return op.call(a, axes, keepdims if keepdims is False else is_set(keepdims))

    register_numpy_function(function, reduction)


def _serve_ufunc(ufunc: Any, op: Operator[..., Any]) -> None:
    """Register a reduction for ``ufunc.reduce``, whose default axis is 0."""

    def reduce(
        array: Any,
        axis: Any = 0,
        dtype: Any = None,
        out: Any = None,
        keepdims: Any = False,
        initial: Any = NO_VALUE,
        where: Any = True,
    ) -> Any:
        refuse(f"{ufunc.__name__}.reduce", out=out, initial=initial, where=where)
        return op(_cast(array, dtype), listed_axes(axis), is_set(keepdims))

    register_numpy_function((ufunc, "reduce"), reduce)


# ---- sum and mean ----


def _sum_kernel(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return x.sum(None if axis is None else tuple(axis), None, None, keepdims)


sum_: Operator[..., Any] = reduction_of("sum", _sum_kernel)
mean: Operator[..., Any] = reduction_of("mean", _method("mean"))


def _note_shape(ctx: Any, inputs: Any, output: Any) -> None:
    x, ctx.axis, ctx.keepdims = inputs
    ctx.shape = x.shape


def _sum_backward(ctx: Any, g: Any) -> tuple[Any, None, None]:
    # For a small array np.full takes a quarter of the time of np.broadcast_to, and
    # what it makes owns its memory (0.6 us and 2.4 us, NumPy 2.4).
    if isinstance(g, np.generic) and math.prod(ctx.shape) < 1024:
        return np.full(ctx.shape, g), None, None
    return spread(g, ctx.shape, ctx.axis, ctx.keepdims), None, None


def _mean_backward(ctx: Any, g: Any) -> tuple[Any, None, None]:
    share = g / max(_count(ctx.shape, ctx.axis), 1)
    return spread(share, ctx.shape, ctx.axis, ctx.keepdims), None, None


def _linear_jvp(op: Operator[..., Any]) -> Callable[..., Any]:
    """The forward rule of a linear operator of one array."""

    def rule(primals: Any, tangents: Any) -> Any:
        rest = primals[1:]
        return op(*primals), op(tangents[0], *rest)

    return rule


sum_.register_autograd(_sum_backward, setup_context=_note_shape)
sum_.register_jvp(_linear_jvp(sum_))
mean.register_autograd(_mean_backward, setup_context=_note_shape)
mean.register_jvp(_linear_jvp(mean))
_serve_cast(np.sum, sum_)
_serve_cast(np.mean, mean)
_serve_ufunc(np.add, sum_)

# ---- max and min ----


def note_input_and_output(ctx: Any, inputs: Any, output: Any) -> None:
    """Save what the formulas of reductions ask for."""
    x, ctx.axis, ctx.keepdims = inputs
    ctx.save_for_backward(x, output)


def _shares(x: Any, y: Any, axis: Any, keepdims: bool) -> Any:
    """What each element has in the extreme value: ties share it evenly.

    As JAX 0.10 and HIPS autograd 1.8 have it.
    """
    mask = np.equal(x, spread(y, x.shape, axis, keepdims)).astype(y.dtype)
    axes = None if axis is None else tuple(axis)
    return mask / np.sum(mask, axis=axes, keepdims=True)


def _extreme(name: str) -> Operator[..., Any]:
    op = reduction_of(name, _method(name))

    def backward(ctx: Any, g: Any) -> tuple[Any, None, None]:
        x, y = ctx.saved_arrays
        wide = spread(g, x.shape, ctx.axis, ctx.keepdims)
        return wide * _shares(x, y, ctx.axis, ctx.keepdims), None, None

    def forward(primals: Any, tangents: Any) -> Any:
        x, axis, keepdims = primals
        y = op(x, axis, keepdims)
        part = tangents[0] * _shares(x, y, axis, keepdims)
        axes = None if axis is None else tuple(axis)
        return y, np.sum(part, axis=axes, keepdims=keepdims)

    op.register_autograd(backward, setup_context=note_input_and_output)
    op.register_jvp(forward)
    return op


max_: Operator[..., Any] = _extreme("max")
min_: Operator[..., Any] = _extreme("min")
for _function, _op in (
    (np.max, max_),
    (np.amax, max_),
    (np.min, min_),
    (np.amin, min_),
):
    _serve(_function, _op)
_serve_ufunc(np.maximum, max_)
_serve_ufunc(np.minimum, min_)

# ---- any and all ----


def _truth(name: str) -> Operator[..., Any]:
    return no_gradient(reduction_of(name, _method(name)))


any_: Operator[..., Any] = _truth("any")
all_: Operator[..., Any] = _truth("all")
_serve(np.any, any_)
_serve(np.all, all_)
_serve_ufunc(np.logical_or, any_)
_serve_ufunc(np.logical_and, all_)


# ---- products ----


def _lined(x: Any, axes: Sequence[int]) -> Any:
    """An array with some axes made one, the last."""
    rest = [i for i in range(x.ndim) if i not in axes]
    moved = np.transpose(x, (*rest, *axes))
    count = _count(x.shape, axes)
    return np.reshape(moved, (*[x.shape[i] for i in rest], count))


def _tree_product(x: Any, axes: Sequence[int]) -> Any:
    """Product along axes by pairs, in as many steps as the count has bits.

    Made of multiplications alone, so that its derivatives of every order are right
    where elements are zero.
    """
    line = _lined(x, axes)
    if not line.shape[-1]:
        return np.ones_like(line, shape=line.shape[:-1])
    while line.shape[-1] > 1:
        half = line.shape[-1] // 2
        pairs = line[..., :half] * line[..., half : 2 * half]
        line = np.concatenate([pairs, line[..., 2 * half :]], axis=-1)
    return np.squeeze(line, -1)


prod: Operator[..., Any] = reduction_of("prod", _method("prod"))


def _note_input(ctx: Any, inputs: Any, output: Any) -> None:
    x, *ctx.rest = inputs
    ctx.save_for_backward(x)


def _products(axis: Sequence[int] | None, keepdims: bool) -> Callable[[Any], Any]:
    """The product as a function of the array, made of multiplications."""

    def products(x: Any) -> Any:
        axes = counted_axes(axis, x.ndim)
        y = _tree_product(x, axes)
        return np.reshape(y, _kept_shape(x.shape, axes)) if keepdims else y

    return products


def _prod_backward(ctx: Any, g: Any) -> tuple[Any, None, None]:
    (x,) = ctx.saved_arrays
    _, pullback = vjp(_products(*ctx.rest), x)
    return pullback(g)[0], None, None


prod.register_autograd(_prod_backward, setup_context=_note_input)


@prod.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    x, axis, keepdims = primals
    _, tangent = jvp(_products(axis, keepdims), (x,), (tangents[0],))
    return prod(x, axis, keepdims), tangent


_serve_cast(np.prod, prod)
_serve_ufunc(np.multiply, prod)

# ---- variance and standard deviation ----

_SPREAD = "(Array x, int[]? axis=None, bool keepdims=False, float ddof=0.0) -> Array"


def _deviation(name: str) -> Operator[..., Any]:
    """The operator of np.var or np.std; their results are real."""

    def kernel(
        x: Any, axis: Any = None, keepdims: bool = False, ddof: float = 0.0
    ) -> Any:
        axes = None if axis is None else tuple(axis)
        return getattr(x, name)(axis=axes, ddof=ddof, keepdims=keepdims)

    op: Operator[..., Any] = custom_op(
        f"np::{name}", kernel, mutates_args=(), schema=_SPREAD
    )

    def fake(x: Any, axis: Any, keepdims: Any, ddof: Any) -> FakeArray:
        return _reduced(x, axis, keepdims, _reduced_dtype(kernel, x.dtype))

    def batch(
        info: Any, in_dims: Any, x: Any, axis: Any, keepdims: Any, ddof: Any
    ) -> Any:
        axes = _batched_axes(axis, in_dims[0], x.ndim)
        return op(x, axes, keepdims, ddof), _batched_dim(axes, in_dims[0], keepdims)

    op.register_fake(fake)
    op.register_vmap(batch)
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

    That of the mean inside cancels, since deviations sum to zero.
    """
    axes = None if axis is None else tuple(axis)
    centred = x - np.mean(x, axis=axes, keepdims=True)
    return np.conjugate(centred) if is_complex(x) else centred


def _freedom(x: Any, axis: Any, ddof: float) -> float:
    """Degrees of freedom; not a number where there are none, as NumPy divides 0 by 0."""
    count = float(_count(x.shape, axis)) - ddof
    return count if count > 0 else math.nan


def _divisor(y: Any) -> Any:
    """Deviations to divide by, 1 for those of equal elements.

    There the slope is 0, which is right for one element and the subgradient that
    torch 2.13 has for several.
    """
    return np.where(np.equal(y, 0), 1.0, y)


def _deviation_backward(name: str, ctx: Any, g: Any) -> tuple[Any, ...]:
    x, y = ctx.saved_arrays
    axis, keepdims, ddof = ctx.rest
    share = (
        g * (2.0 / _freedom(x, axis, ddof))
        if name == "var"
        else (g / (_divisor(y) * _freedom(x, axis, ddof)))
    )
    wide = spread(share, x.shape, axis, keepdims)
    return wide * _slope(x, axis), None, None, None


def _deviation_jvp(op: Operator[..., Any], primals: Any, tangents: Any) -> Any:
    x, axis, keepdims, ddof = primals
    y = op(x, axis, keepdims, ddof)
    moved = fit(_slope(x, axis) * tangents[0], y)
    axes = None if axis is None else tuple(axis)
    total = np.sum(moved, axis=axes, keepdims=keepdims) / _freedom(x, axis, ddof)
    return y, total * 2.0 if op.name == "var" else total / _divisor(y)


var: Operator[..., Any] = _deviation("var")
std: Operator[..., Any] = _deviation("std")


def _serve_deviation(function: Any, op: Operator[..., Any]) -> None:
    def deviation(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        ddof: Any = 0,
        keepdims: Any = False,
        *,
        where: Any = True,
        mean: Any = NO_VALUE,
        correction: Any = NO_VALUE,
    ) -> Any:
        refuse(op.name, out=out, where=where, mean=mean)
        free = ddof if correction is NO_VALUE else correction
        return op(_cast(a, dtype), listed_axes(axis), is_set(keepdims), float(free))

    register_numpy_function(function, deviation)


_serve_deviation(np.var, var)
_serve_deviation(np.std, std)

# ---- places of the extremes ----


def _place(name: str, function: Any) -> Operator[..., Any]:
    def kernel(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return getattr(x, name)(axis=axis, keepdims=keepdims)

    op: Operator[..., Any] = custom_op(
        f"np::{name}",
        kernel,
        mutates_args=(),
        schema="(Array x, int? axis=None, bool keepdims=False) -> Array",
    )

    def fake(x: Any, axis: Any, keepdims: Any) -> FakeArray:
        listed = listed_axes(axis)
        like = FakeArray(x.shape, x.dtype, device=x.device)
        return _reduced(like, listed, keepdims, np.dtype(np.intp))

    def batch(info: Any, in_dims: Any, x: Any, axis: Any, keepdims: Any) -> Any:
        rows = np.moveaxis(x, in_dims[0], 0)
        ndim = rows.ndim - 1
        if axis is not None:
            return op(rows, normalize_axis_index(axis, ndim) + 1, keepdims), 0
        found = op(np.reshape(rows, (rows.shape[0], -1)), 1, keepdims)
        return (np.reshape(found, (-1, *(1,) * ndim)) if keepdims else found), 0

    def place(
        a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False
    ) -> Any:
        refuse(name, out=out)
        return op(a, axis, is_set(keepdims))

    op.register_fake(fake)
    op.register_vmap(batch)
    register_numpy_function(function, place)
    return no_gradient(op)


argmax: Operator[..., Any] = _place("argmax", np.argmax)
argmin: Operator[..., Any] = _place("argmin", np.argmin)

# ---- running sums and products ----

_RUNNING = "(Array x, int axis) -> Array"


def _running(name: str) -> Operator[..., Any]:
    """The operator of np.cumsum or np.cumprod along one axis."""

    def kernel(x: Any, axis: int) -> Any:
        return getattr(x, name)(axis=axis)

    op: Operator[..., Any] = custom_op(
        f"np::{name}", kernel, mutates_args=(), schema=_RUNNING
    )

    def fake(x: Any, axis: Any) -> FakeArray:
        normalize_axis_index(axis, len(x.shape))
        return fake_like(x, dtype=np.ones(1, x.dtype).cumsum().dtype)

    def running(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        refuse(name, out=out)
        line = np.reshape(a, (-1,)) if axis is None else a
        return op(_cast(line, dtype), 0 if axis is None else operator.index(axis))

    op.register_fake(fake)
    op.register_vmap(_along_axis(op))
    register_numpy_function(getattr(np, name), running)
    return op


def _along_axis(op: Operator[..., Any]) -> Callable[..., Any]:
    """The batching rule of an operator ``op(x, axis, ...)`` that keeps the shape."""

    def batch(info: Any, in_dims: Any, x: Any, axis: Any, *rest: Any) -> Any:
        (row_axis,) = _batched_axes([axis], in_dims[0], x.ndim)
        return op(x, row_axis, *rest), in_dims[0]

    return batch


cumsum: Operator[..., Any] = _running("cumsum")
cumprod: Operator[..., Any] = _running("cumprod")


def _note_axis(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.axis = inputs[1]


def _cumsum_backward(ctx: Any, g: Any) -> tuple[Any, None]:
    back = np.cumsum(np.flip(g, ctx.axis), axis=ctx.axis)
    return np.flip(back, ctx.axis), None


cumsum.register_autograd(_cumsum_backward, setup_context=_note_axis)
cumsum.register_jvp(_linear_jvp(cumsum))


def _scan_product(axis: int) -> Callable[[Any], Any]:
    """Running products made of multiplications, in as many steps as the length has bits.

    Source: Hillis and Steele, "Data parallel algorithms", 1986. Its derivatives of
    every order are right where elements are zero.
    """

    def products(x: Any) -> Any:
        line = np.moveaxis(x, axis, -1)
        step = 1
        while step < line.shape[-1]:
            pairs = line[..., step:] * line[..., :-step]
            line = np.concatenate([line[..., :step], pairs], axis=-1)
            step *= 2
        return np.moveaxis(line, -1, axis)

    return products


def _cumprod_backward(ctx: Any, g: Any) -> tuple[Any, None]:
    (x,) = ctx.saved_arrays
    _, pullback = vjp(_scan_product(*ctx.rest), x)
    return pullback(g)[0], None


cumprod.register_autograd(_cumprod_backward, setup_context=_note_input)


@cumprod.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    x, axis = primals
    _, tangent = jvp(_scan_product(axis), (x,), (tangents[0],))
    return cumprod(x, axis), tangent


# ---- sorting ----


@custom_op(
    "np::argsort",
    mutates_args=(),
    schema="(Array x, int axis=-1, bool stable=False) -> Array",
)
def argsort(x: Any, axis: int = -1, stable: bool = False) -> Any:
    return np.argsort(x, axis=axis, kind="stable" if stable else None)


@argsort.register_fake
def _(x: Any, axis: Any, stable: Any) -> FakeArray:
    normalize_axis_index(axis, len(x.shape))
    return FakeArray(x.shape, np.dtype(np.intp), device=x.device)


argsort.register_vmap(_along_axis(argsort))
no_gradient(argsort)


@custom_op("np::sort", mutates_args=(), schema="(Array x, int axis=-1) -> Array")
def sort(x: Any, axis: int = -1) -> Any:
    return np.sort(x, axis=axis)


@sort.register_fake
def _(x: Any, axis: Any) -> FakeArray:
    normalize_axis_index(axis, len(x.shape))
    return fake_like(x)


sort.register_vmap(_along_axis(sort))


def _note_sorting(ctx: Any, inputs: Any, output: Any) -> None:
    x, ctx.axis = inputs
    ctx.save_for_backward(x)


def _sort_backward(ctx: Any, g: Any) -> tuple[Any, None]:
    order = argsort(ctx.saved_arrays[0], ctx.axis, True)
    return np.take_along_axis(g, argsort(order, ctx.axis), ctx.axis), None


sort.register_autograd(_sort_backward, setup_context=_note_sorting)


@sort.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    x, axis = primals
    order = argsort(x, axis, True)
    return sort(x, axis), np.take_along_axis(tangents[0], order, axis)


# Names of NumPy's algorithms -> whether equal elements keep their order.
_STABLE = {None: False, "quicksort": False, "stable": True, "mergesort": True}


def _sorting(name: str, kind: Any, order: Any, stable: Any) -> bool:
    """Whether a stable order is asked for; raise for what no operator does."""
    refuse(name, order=order)
    if kind not in _STABLE:
        raise ArgumentError(
            f"np.{name}(kind={kind!r}) has no operator for traced or fake arrays",
            do="leave kind out, or use kind='stable'",
        )
    return bool(stable) if stable is not None else _STABLE[kind]


@register_numpy_function(np.sort)
def _(
    a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None
) -> Any:
    _sorting("sort", kind, order, stable)
    return sort(np.reshape(a, (-1,)), 0) if axis is None else sort(a, axis)


@register_numpy_function(np.argsort)
def _(
    a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None
) -> Any:
    is_stable = _sorting("argsort", kind, order, stable)
    if axis is None:
        return argsort(np.reshape(a, (-1,)), 0, is_stable)
    return argsort(a, axis, is_stable)


# ---- made of the above ----


@register_numpy_function(np.count_nonzero)
def _(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    return sum_(np.not_equal(a, 0), listed_axes(axis), is_set(keepdims))


@register_numpy_function(np.ptp)
def _(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    refuse("ptp", out=out)
    listed, kept = listed_axes(axis), is_set(keepdims)
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
    kept = is_set(keepdims)
    if weights is None:
        average = np.mean(a, axis=axis, keepdims=kept)
        count = np.full_like(average, float(_count(a.shape, listed_axes(axis))))
        return (average, count) if returned else average
    wide = _weights(a, weights, axis)
    total = np.sum(wide * np.ones_like(a), axis=axis, keepdims=kept)
    average = np.sum(a * wide, axis=axis, keepdims=kept) / total
    return (average, total) if returned else average


def _weights(a: Any, weights: Any, axis: Any) -> Any:
    """Weights with axes of length 1 where they have none of the array's."""
    shape = tuple(np.shape(weights))
    axes = counted_axes(listed_axes(axis), a.ndim)
    if shape == tuple(a.shape):
        return weights
    if axis is None or shape != tuple(a.shape[i] for i in axes):
        raise ArgumentError(
            f"np.average: weights of shape {shape} do not fit an array of shape"
            f" {tuple(a.shape)} along axis {axis}",
            do="give weights of the shape of the array, or of the axes averaged over",
        )
    by_place = np.transpose(weights, np.argsort(axes).tolist())
    return np.reshape(by_place, [n if i in axes else 1 for i, n in enumerate(a.shape)])


@register_numpy_function(np.median)
def _(
    a: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    keepdims: Any = False,
) -> Any:
    refuse("median", out=out)
    axes = counted_axes(listed_axes(axis), a.ndim)
    line = sort(_lined(a, axes), -1)
    count = line.shape[-1]
    middle = np.mean(line[..., (count - 1) // 2 : count // 2 + 1], axis=-1)
    return (
        np.reshape(middle, _kept_shape(a.shape, axes)) if is_set(keepdims) else middle
    )


def _present(a: Any) -> tuple[Any, Any]:
    """An array with 0 for each nan, and where there was none."""
    absent = np.isnan(a)
    return np.where(absent, 0, a), np.logical_not(absent)


@register_numpy_function(np.nansum)
def _(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = NO_VALUE,
    where: Any = True,
) -> Any:
    refuse("nansum", out=out, initial=initial, where=where)
    return sum_(_cast(_present(a)[0], dtype), listed_axes(axis), is_set(keepdims))


@register_numpy_function(np.nanmean)
def _(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    *,
    where: Any = True,
) -> Any:
    refuse("nanmean", out=out, where=where)
    values, present = _present(_cast(a, dtype))
    listed, kept = listed_axes(axis), is_set(keepdims)
    counts = sum_(present, listed, kept).astype(a.dtype if dtype is None else dtype)
    return sum_(values, listed, kept) / counts
