"""Operators on dask arrays: lazily, chunk by chunk, on any scheduler of dask.

Importing it registers ``dask.array.Array`` as the kind of array ``"dask"``. dask is
imported when the first such array is used.

NumPy code, its gradients, tangents and batches stay lazy: nothing is computed while
they are built. Your own operator runs on each chunk

- if it has ``tags=Tag.pointwise``;
- if its schema has the shapes of its arrays: on each chunk of the axes ``...`` or ``*batch``.
  The other axes must not be chunked;
- if it has a fake kernel and no default kernel: then no axis may be chunked;
- if `register_chunks` says how far its kernel reaches beyond a chunk, or how the results
  of chunks are combined.

The fake kernel gives the shape and dtype of the result before anything is computed. Any
other operator with a default kernel gets the dask arrays themselves. A kernel that is
registered with ``register_kernel("dask")`` is used before all of these.

Functions of a script that workers get bring along what proves that the operators of
modules that they call, as ``module.op``, are the same there. If not, they raise.

Examples
--------
>>> import numpy as np, dask.array as da, customop as co
>>> import customop.interop.dask
>>> x = da.arange(6.0, chunks=2)
>>> slope = co.grad(lambda x: np.sum(np.sin(x) * x))(x)  # nothing is computed
>>> np.round(slope.compute(), 1)
array([ 0. ,  1.4,  0.1, -2.8, -3.4,  0.5])
"""

# Start reading with `derive` in `dask_kernels`, which decides how an operator runs; `chunks`
# builds the graph.

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from customop import register_array_type
from customop.core.recipes import compare_functions
from customop.core.table import RuleTable
from customop.interop.dask.chunk_rules import register_chunks

__all__ = ["register_chunks"]


def _derive(op: RuleTable) -> Callable[..., Any] | None:
    kernels = import_module("customop.interop.dask.dask_kernels")  # it imports dask
    return kernels.derive(op)  # type: ignore[no-any-return]  # a kernel or None


register_array_type(
    "dask",
    "dask.array.Array",
    from_numpy=lambda x: import_module("dask.array").from_array(x),
    to_numpy=lambda x: x.compute(),
    accepts=("cpu",),
    immutable=True,
    lazy=True,
    derive=_derive,
)

compare_functions()
