"""The places of elements that are not zero: their number depends on data."""

from __future__ import annotations

from typing import Any

import numpy as np

from customop import (
    DataDependentError,
    FakeArray,
    Tag,
    get_ctx,
    register_numpy_function,
)
from customop.numpy.arguments import copied
from customop.numpy.fakes import device_of
from customop.numpy.rules import no_gradient, numpy_operator
from customop.numpy.sizes import is_known, product

__all__: list[str] = []

_nonzero = numpy_operator(
    "nonzero",
    "(Array x) -> Array[]",
    # NumPy returns columns of one array, and results must not share memory.
    lambda x: [copied(places) for places in np.nonzero(x)],
    tags=Tag.dynamic_output_shape,
)


@_nonzero.register_fake
def _(x: Any) -> list[FakeArray]:
    if not x.shape:
        np.nonzero(np.zeros((), x.dtype))  # raises as NumPy does
    count, device = _count_of(x), device_of(x)
    return [FakeArray((count,), np.intp, device=device) for _ in x.shape]


def _count_of(x: Any) -> Any:
    """How many elements are not zero: a size that depends on data.

    An array has one such size until it is written, so that ``x[mask] += 1`` fits.
    """
    size = product(x.shape)
    if is_known(size, 0):
        return 0
    if getattr(x, "nonzero_count", None) is None:
        x.nonzero_count = get_ctx().new_dynamic_size(max=size)
    return x.nonzero_count


@_nonzero.register_vmap
def _(info: Any, in_dims: Any, x: Any) -> Any:
    raise DataDependentError(
        f"np.nonzero, or a mask as an index, under vmap of {info.batch_size} rows: the"
        " shape of the result depends on data",
        do="use np.where(mask, x, 0), which keeps the shape; or map(f, rows), which runs f"
        " once for each row",
    )


no_gradient(_nonzero)


@register_numpy_function(np.nonzero)
def _(a: Any) -> Any:
    return tuple(_nonzero(a))


register_numpy_function(np.flatnonzero, lambda a: _nonzero(np.ravel(a))[0])


@register_numpy_function(np.argwhere)
def _(a: Any) -> Any:
    places = np.stack(_nonzero(np.atleast_1d(a)), 1)
    return places if a.ndim else places[:, :0]
