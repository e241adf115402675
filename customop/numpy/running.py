"""Running sums and products along an axis."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from customop import FakeArray, Operator, fake_like, register_numpy_function
from customop.numpy.arguments import cast, lined
from customop.numpy.reduce import batched_axes, before_each
from customop.numpy.rules import numpy_operator, register_linear
from customop.numpy.shares import recurrence, reversed_recurrence
from customop.numpy.sizes import whole

__all__ = ["along_axis"]


def _running(name: str) -> Operator[..., Any]:
    """Make np.cumsum or np.cumprod."""

    def kernel(x: Any, axis: int) -> Any:
        return getattr(x, name)(axis=axis)

    op = numpy_operator(name, "(Array x, int axis) -> Array", kernel)

    def fake(x: Any, axis: Any) -> FakeArray:
        normalize_axis_index(axis, len(x.shape))
        return fake_like(x, dtype=np.ones(1, x.dtype).cumsum().dtype)

    def running(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Any:
        line = np.reshape(a, (-1,)) if axis is None else lined(a, axis)
        axis = 0 if axis is None else operator.index(axis)
        # Small integers become larger ones unless a dtype is given.
        return cast(op(cast(line, dtype), axis), dtype)

    op.register_fake(fake)
    op.register_vmap(along_axis(op))
    register_numpy_function(getattr(np, name), running)
    return op


def along_axis(op: Operator[..., Any]) -> Callable[..., Any]:
    """The vmap rule of an operator ``op(x, axis, ...)`` that keeps the shape."""

    def batch(info: Any, in_dims: Any, x: Any, axis: Any, *rest: Any) -> Any:
        (row_axis,) = batched_axes([axis], in_dims[0], x.ndim)
        return op(x, row_axis, *rest), in_dims[0]

    return batch


cumsum: Operator[..., Any] = _running("cumsum")
cumprod: Operator[..., Any] = _running("cumprod")


def _cumsum_pull(g: Any, shape: Any, axis: int) -> Any:
    if type(g) is np.ndarray:
        back: Any = (*(slice(None),) * (axis % g.ndim), slice(None, None, -1))
        return g[back].cumsum(axis)[back]
    return np.flip(np.cumsum(np.flip(g, axis), axis=axis), axis)


register_linear(cumsum, _cumsum_pull)


# The derivatives of y[k] = x[k] * y[k - 1] are right where elements are zero.


def _cumprod_backward(ctx: Any, g: Any) -> tuple[Any, None]:
    x, y = ctx.saved_arrays
    gains = reversed_recurrence(_last(x, ctx.axis), _last(g, ctx.axis))
    found = gains * before_each(_last(y, ctx.axis), 1)
    return np.moveaxis(found, -1, ctx.axis), None


def _last(x: Any, axis: int) -> Any:
    return np.moveaxis(x, axis, -1)


def _note_product(ctx: Any, inputs: Any, output: Any) -> None:
    x, ctx.axis = inputs
    ctx.save_for_backward(x, output)


cumprod.register_autograd(_cumprod_backward, setup_context=_note_product)


@cumprod.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    x, axis = primals
    y = cumprod(x, axis)
    steps = _last(tangents[0], axis) * before_each(_last(y, axis), 1)
    return y, np.moveaxis(recurrence(_last(x, axis), steps), -1, axis)


# ---- with the start ----


def _serve_with_start(function: Any, op: Operator[..., Any], start: int) -> None:
    name = function.__name__

    def running(
        x: Any,
        /,
        *,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        include_initial: bool = False,
    ) -> Any:
        line = np.atleast_1d(x)
        if axis is None:
            if line.ndim >= 2:
                raise ValueError(
                    f"np.{name}: for arrays which have more than one dimension, the axis"
                    " argument is required"
                )
            axis = 0
        (only,) = axis if isinstance(axis, tuple) else (axis,)
        at = normalize_axis_index(whole(only), line.ndim)
        found = cast(op(cast(line, dtype), at), dtype)
        if not include_initial:
            return found
        shape = [*found.shape]
        shape[at] = 1
        first = np.full_like(found, start, shape=shape)
        return np.concatenate([first, found], axis=at)

    register_numpy_function(function, running)


_serve_with_start(np.cumulative_sum, cumsum, 0)
_serve_with_start(np.cumulative_prod, cumprod, 1)
