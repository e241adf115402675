"""Kernels of operators for dask arrays.

The gradient of a sum is one number, broadcast to the shape of the summed array. dask
would cut it into as many chunks as the other arrays have, with one task for each. So a
pointwise operator takes the number itself. If the number is known, such as the 1 that a
gradient begins with, no task is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

import dask.array as da
import numpy as np

from customop.arrays.kinds import DEFAULT, is_array
from customop.arrays.nested import flat, map_nested
from customop.core.derived_rules import find_fake
from customop.core.registry import find_operator
from customop.core.rule_kind import COMPOSITE
from customop.core.shape_rules import loop_name, result_types
from customop.core.table import RuleTable
from customop.errors import DataDependentError, MissingRuleError
from customop.interop.dask.chunks import (
    OURS,
    PLANS,
    Labels,
    Plan,
    by_rows,
    joined,
    summed,
    typed,
)
from customop.numpy.index_operators import ALL, key_of, layout
from customop.schema.tags import Tag
from customop.schema.types import holds_arrays

# ---- the choice of a kernel ----


def derive(op: RuleTable) -> Callable[..., Any] | None:
    """Return the kernel of an operator for dask arrays; None to use its default kernel."""
    takes_arrays = any(holds_arrays(p.type) for p in op.schema.parameters)
    if COMPOSITE in op.rows or not takes_arrays:
        return None
    if op.qualname in KERNELS:
        return KERNELS[op.qualname](op)
    if op.schema.written:
        return _refused(
            op, f" writes '{op.schema.written[0]}', and a dask array cannot"
        )
    if op.sees_seed:
        return _refused(op, " draws random numbers: each chunk would draw the same")
    plan = _plan_of(op)
    if plan is None:
        return None
    kernel = joined(op, plan)
    return on_sources(op, kernel) if Tag.pointwise in op.tags else kernel


def _plan_of(op: RuleTable) -> Plan | None:
    """Return the plan of an operator; None to leave its chunks to dask."""
    if op.qualname in PLANS:
        return PLANS[op.qualname]
    if Tag.pointwise in op.tags:
        return by_rows(0)
    if op.schema.has_shapes and result_types(op.schema):
        return _by_shapes
    if op.namespace not in OURS and (DEFAULT in op.rows or find_fake(op) is None):
        return None
    return by_rows(None)


def _by_shapes(
    op: RuleTable, values: Sequence[Any], arrays: Sequence[Any], fakes: Sequence[Any]
) -> tuple[Labels, list[tuple[int, ...]]]:
    """Return the labels for chunks of the axes that begin every shape (``...``, ``*batch``)."""
    name = loop_name(op.schema)
    core: list[int | None] = []
    for _, _, shape in typed(op, values):
        loop = shape.loop if shape is not None and shape.leads else None
        is_own = loop is not None and loop.name == name
        core.append(len(shape.after) if is_own and shape is not None else None)
    return by_rows(*core)(op, values, arrays, fakes)


def _refused(op: RuleTable, what: str) -> Callable[..., Any]:
    """Return a kernel that raises, with `what` as the reason."""

    def kernel(*args: Any, **keywords: Any) -> Any:
        raise op.error(
            MissingRuleError,
            what,
            do=f'@{op.name}.register_kernel("dask"), or pass x.compute()',
            kind="dask",
        )

    return kernel


# ---- kernels of NumPy operators ----
# These need more than a plan of their chunks.


def _plain(op: RuleTable) -> Callable[..., Any]:
    """Return the default kernel, which calls NumPy functions that dask implements."""
    kernel: Callable[..., Any] = op.rows["default"].fn
    return kernel


def _with_lengths(op: RuleTable) -> Callable[..., Any]:
    """Return the default kernel; raise for unknown lengths, which dask handles wrongly."""
    plain = _plain(op)

    def kernel(*args: Any, **keywords: Any) -> Any:
        for x in flat(list(args)):
            if isinstance(x, da.Array):
                _check_known(op, x, range(x.ndim))
        return plain(*args, **keywords)

    return kernel


def _check_known(op: RuleTable, x: Any, axes: Iterable[int]) -> None:
    """Raise if the length of an axis depends on values that are not computed yet."""
    for axis in axes:
        if np.isnan(x.shape[axis]):
            raise op.error(
                DataDependentError,
                f" needs the length of axis {axis}, which depends on data",
                do="call x.compute_chunk_sizes() first, which computes it",
                kind="dask",
            )


# ---- shapes ----


def _slice(op: RuleTable) -> Callable[..., Any]:
    """Return dask's own slicing; it raises if an axis of unknown length is cut."""
    plain = _plain(op)

    def kernel(x: Any, key: Sequence[Sequence[Any]]) -> Any:
        cut = [entry != ALL for entry in key if entry]
        _check_known(op, x, [axis for axis, is_cut in enumerate(cut) if is_cut])
        return plain(x, key)

    return kernel


def _unless_empty(op: RuleTable) -> Callable[..., Any]:
    """Return the default kernel; join empty arrays, for which dask sometimes fails."""
    plain, whole = _plain(op), joined(op, by_rows(None))

    def kernel(x: Any, *rest: Any) -> Any:
        _check_known(op, x, range(x.ndim))
        return plain(x, *rest) if 0 not in x.shape else whole(x, *rest)

    return kernel


def _reshape(op: RuleTable) -> Callable[..., Any]:
    """Return dask's own reshape if it merges or splits axes; otherwise join the array."""
    whole = joined(op, by_rows(None))

    def kernel(x: Any, shape: Sequence[int]) -> Any:
        if tuple(shape) == (-1,) or prod(x.shape):
            _check_known(op, x, [] if tuple(shape) == (-1,) else range(x.ndim))
            try:
                return da.reshape(x, tuple(shape))
            except NotImplementedError:  # axes are neither merged nor split
                pass
        size = int(prod(x.shape))
        lengths = [n if n >= 0 else size // -prod(shape) for n in shape]
        return whole(x, lengths)

    return kernel


def _expand_dims(op: RuleTable) -> Callable[..., Any]:
    """Return a kernel that adds axes by indexing.

    dask's own `expand_dims` reshapes, which takes one more task for each chunk.
    """

    def kernel(x: Any, axis: Sequence[int]) -> Any:
        rank = x.ndim + len(axis)
        new = {i % rank for i in axis}
        return x[tuple([None if i in new else slice(None) for i in range(rank)])]

    return kernel


def _ravel(op: RuleTable) -> Callable[..., Any]:
    reshape = _reshape(find_operator("np::reshape"))
    return lambda x: reshape(x, (-1,))


def _triangle(op: RuleTable) -> Callable[..., Any]:
    """Return a kernel that selects by a mask in the same chunks.

    NumPy makes a matrix of a vector, in one chunk. dask's own functions warn about
    complex arrays.
    """
    whole, is_lower = joined(op, by_rows(None)), op.name == "tril"

    def kernel(x: Any, k: int) -> Any:
        _check_known(op, x, range(x.ndim))
        if x.ndim < 2:
            return whole(x, k)
        shift = k if is_lower else k - 1
        below = da.tri(*x.shape[-2:], k=shift, dtype=bool, chunks=x.chunks[-2:])
        zero = np.zeros((), x.dtype)
        return da.where(below, x, zero) if is_lower else da.where(below, zero, x)

    return kernel


def _broadcast_to(op: RuleTable) -> Callable[..., Any]:
    """Return a kernel that makes one chunk along new axes and records the source."""

    def kernel(x: Any, shape: Sequence[int]) -> Any:
        _check_known(op, x, range(x.ndim))
        return broadcast(x, tuple(shape))

    return kernel


# ---- indices ----


def _labels(
    indices: Sequence[Any], rank: int
) -> tuple[list[int], list[int], list[int]]:
    """Return labels of the array, of the elements at the indices, and of the indices."""
    slots = [i for i, a in enumerate(indices) if a is not None]
    own = list(range(rank))
    places = list(range(rank, rank + max(indices[i].ndim for i in slots)))
    at = layout(indices)[1]
    kept = [i for i in own if i not in slots]
    return own, [*kept[:at], *places, *kept[at:]], places


def _even(indices: Sequence[Any]) -> list[Any]:
    """Broadcast index arrays to one shape."""
    slots = [i for i, a in enumerate(indices) if a is not None]
    if len(slots) == 1:
        return list(indices)
    lazy = any(isinstance(indices[i], da.Array) for i in slots)
    spread = (da if lazy else np).broadcast_arrays(*[indices[i] for i in slots])
    found = list(indices)
    for i, a in zip(slots, spread, strict=True):
        found[i] = a
    return found


def _index(op: RuleTable) -> Callable[..., Any]:
    """Return dask's own indexing; empty arrays or axes of unknown length are joined."""
    plain = _plain(op)

    def kernel(x: Any, indices: Sequence[Any], packed: bool) -> Any:
        given = [a for a in indices if a is not None]
        x = da.asarray(x)
        if all(prod(a.shape) > 0 for a in (x, *given)):
            return plain(x, indices, packed)
        indices = _even(indices)
        own, found, places = _labels(indices, x.ndim)
        labels = [own, *[places] * len(given)]
        return joined(op, _fixed(labels, [found]))(x, indices, packed)

    return kernel


def _of_chunk(values: list[Any]) -> list[Any]:
    """Return the arguments of `np::scatter_add` with the lengths of a chunk."""
    g, shape, indices = values
    slots = [i for i, a in enumerate(indices) if a is not None]
    at = layout(indices)[1]
    kept = [*g.shape[:at], *g.shape[at + indices[slots[0]].ndim :]]
    lengths = [shape[i] if i in slots else kept.pop(0) for i in range(len(shape))]
    return [g, lengths, indices]


def _scatter_add(op: RuleTable) -> Callable[..., Any]:
    """Return a kernel that sums the contributions of all chunks of the indices."""

    def kernel(g: Any, shape: Sequence[int], indices: Sequence[Any]) -> Any:
        indices = _even(indices)
        own, found, places = _labels(indices, len(shape))
        count = sum(a is not None for a in indices)
        kept = [label for label in own if label in found]
        values = [g, list(shape), indices]
        labels = Labels([tuple(found), *[tuple(places)] * count], tuple(found))
        return summed(
            op, values, labels, tuple(places), tuple(kept), tuple(own), _of_chunk
        )

    return kernel


def _index_set(op: RuleTable) -> Callable[..., Any]:
    def kernel(x: Any, v: Any, indices: Sequence[Any]) -> Any:
        indices = _even(indices)
        own, found, places = _labels(indices, x.ndim)
        lengths = dict(zip(own, x.shape, strict=True))
        first = next(a for a in indices if a is not None)
        lengths.update(zip(places, first.shape, strict=True))
        v = da.broadcast_to(v, tuple(lengths[label] for label in found))
        count = sum(a is not None for a in indices)
        out = [label if label in found else label + 1000 for label in own]
        labels = [own, found, *[places] * count]
        return joined(op, _fixed(labels, [out]))(x, v, indices)

    return kernel


def _fixed(labels: Sequence[Sequence[int]], outs: Sequence[Sequence[int]]) -> Any:
    """Return a plan with given labels; axes that no result has are joined."""
    loop = tuple({label for out in outs for label in out})
    found = Labels([tuple(own) for own in labels], loop)
    return lambda op, values, arrays, fakes: (found, [tuple(out) for out in outs])


def _slice_set(op: RuleTable) -> Callable[..., Any]:
    """Return dask's own assignment, extended by new axes."""

    def kernel(x: Any, v: Any, key: Sequence[Any]) -> Any:
        entries = key_of(key)
        axes = [e for e in entries if type(e) is not int]
        pick = tuple([0 if e is None else slice(None) for e in axes])
        _check_known(op, x, range(x.ndim))
        if 0 in v.shape:
            return x
        out = da.asarray(x).copy()
        out[tuple([e for e in entries if e is not None])] = v[pick]
        return out

    return kernel


def _unslice(op: RuleTable) -> Callable[..., Any]:
    """Return a kernel that pads with zeros and keeps the chunks.

    For slices with steps, dask assigns to an array of zeros.
    """
    plain = _plain(op)

    def kernel(g: Any, shape: Sequence[int], key: Sequence[Any]) -> Any:
        if 0 in g.shape:
            return da.zeros(tuple(shape), dtype=g.dtype)
        entries = key_of(key)
        if any(type(e) is slice and e.step not in (None, 1) for e in entries):
            return plain(g, shape, key)
        kept = [e for e in entries if type(e) is not int]
        at = iter([0 if e is None else slice(None) for e in kept])
        axes = [e for e in entries if e is not None]
        g = g[tuple([None if type(e) is int else next(at) for e in entries])]
        for axis, (entry, n) in enumerate(zip(axes, shape, strict=False)):
            start = entry % n if type(entry) is int else entry.indices(n)[0]
            g = _with_zeros(g, axis, start, n - start - g.shape[axis])
        return g

    return kernel


def _with_zeros(g: Any, axis: int, before: int, after: int) -> Any:
    """Pad an array with zeros along an axis; a few zeros are joined to the outer chunks."""
    widths = [0 if i != axis else before for i in range(g.ndim)]
    ends = [0 if i != axis else after for i in range(g.ndim)]
    if not before and not after:
        return g
    chunks, most = list(g.chunks[axis]), max(g.chunks[axis])
    out = da.pad(g, list(zip(widths, ends, strict=True)))
    if before >= most or after >= most:
        return out
    chunks[0] += before
    chunks[-1] += after
    return out.rechunk({axis: tuple(chunks)})


def _full_like(op: RuleTable) -> Callable[..., Any]:
    """Return dask's own kernel, with the number recorded as the source."""
    plain = _with_lengths(op)

    def kernel(x: Any, value: Any, dtype: Any, shape: Any) -> Any:
        out = plain(x, value, dtype, shape)
        is_number = isinstance(value, int | float | complex | np.generic)
        return filled(out, value) if is_number else out

    return kernel


# ---- products ----


def _matmul(op: RuleTable) -> Callable[..., Any]:
    """Return dask's own matmul for two matrices, and one layer of tasks for a vector.

    dask would make the vector a matrix by indexing, which takes a task for each chunk.
    """
    plain = _plain(op)

    def kernel(x1: Any, x2: Any) -> Any:
        rank = max(x1.ndim, x2.ndim)
        is_open = any(type(n) is float for n in (*x1.shape, *x2.shape))
        if min(x1.ndim, x2.ndim) != 1 or is_open:
            return plain(x1, x2)
        own = tuple(range(rank))
        along = own[-1] if x2.ndim == 1 else own[-2]
        labels = [own if x.ndim == rank else (along,) for x in (x1, x2)]
        kept = tuple([i for i in own if i != along])
        if all(_is_whole(x, -2 if x is x2 and x.ndim > 1 else -1) for x in (x1, x2)):
            return joined(op, _fixed(labels, [kept]))(x1, x2)
        return summed(op, (x1, x2), Labels(labels, kept), (along,), kept, kept)

    return kernel


def _is_whole(x: Any, axis: int) -> bool:
    """Return whether an axis is in one chunk."""
    return not isinstance(x, da.Array) or x.numblocks[axis] == 1


# ---- counts ----


def _counted(op: RuleTable) -> Callable[..., Any]:
    """Return a kernel that sums the counts of all chunks."""

    def kernel(*args: Any) -> Any:
        count = sum(hasattr(v, "ndim") for v in args)
        *rows, last = range(args[0].ndim)
        own = (*rows, last)
        labels = Labels([own] * count, own)
        return summed(op, args, labels, (last,), tuple(rows), (*rows, last + 1))

    return kernel


# Name of an operator -> a function that makes its kernel.
KERNELS: dict[str, Callable[[RuleTable], Callable[..., Any]]] = {
    **{
        f"np::{name}": _plain
        for name in (
            *("from_list", "sum", "mean", "max", "min", "any", "all", "prod", "var"),
            *("std", "norm", "cumsum", "cumprod", "einsum", "tensordot"),
            *("transpose", "squeeze", "concatenate"),
        )
    },
    **{
        f"np::{name}": _with_lengths
        for name in (*("flip", "roll", "argmax", "argmin", "diagonal", "stack"),)
    },
    "np::broadcast_to": _broadcast_to,
    "np::expand_dims": _expand_dims,
    "np::full_like": _full_like,
    "np::slice": _slice,
    "np::pad": _unless_empty,
    "np::matmul": _matmul,
    "np::reshape": _reshape,
    "np::ravel": _ravel,
    "np::tril": _triangle,
    "np::triu": _triangle,
    "np::index": _index,
    "np::scatter_add": _scatter_add,
    "np::index_set": _index_set,
    "np::slice_set": _slice_set,
    "np::unslice": _unslice,
    "np::bincount": _counted,
    "np::bin_sum": _counted,
}


# ---- arrays that remember their source ----
# The source is the smaller array that was broadcast, or a constant.


def on_sources(op: RuleTable, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel of a pointwise operator that runs on the sources of its arrays."""

    def run(*args: Any, **keywords: Any) -> Any:
        values = [*args, *keywords.values()]
        arrays = [v for value in values for v in flat(value) if is_array(v)]
        if all(source(v) is v for v in arrays) or _is_open(arrays):
            return kernel(*args, **keywords)
        shape = np.broadcast_shapes(*[tuple(v.shape) for v in arrays])
        given = [map_nested(v, _own_source) for v in args]
        named = {name: map_nested(v, _own_source) for name, v in keywords.items()}
        if not any(isinstance(source(v), da.Array) for v in arrays):
            found = op.invoke([*given, *named.values()])
            return map_nested(found, lambda y: _constant(y, shape))
        out = kernel(*given, **named)
        return map_nested(out, lambda x: x if x.shape == shape else broadcast(x, shape))

    return run


def _own_source(x: Any) -> Any:
    """Return the source of an array; a known number is returned as a scalar.

    A scalar becomes part of each task. An array would be a task of its own that every
    worker waits for.
    """
    found = source(x)
    return found[()] if isinstance(found, np.ndarray) else found


def source(x: Any) -> Any:
    """Return the source of an array; return other values unchanged."""
    name, found = getattr(x, _SOURCE, ("", x)) if isinstance(x, da.Array) else ("", x)
    # If the array was written to since, it has another name.
    return found if found is x or name == x.name else x


# The attribute of an array that holds its name and its source.
_SOURCE = "customop_source"


def _noted(out: Any, found: Any) -> Any:
    setattr(out, _SOURCE, (out.name, found))
    return out


def broadcast(x: Any, shape: tuple[int, ...]) -> Any:
    """Broadcast an array, and record it as the source of the result."""
    out = da.broadcast_to(x, shape)
    return out if out is x else _noted(out, source(x))


def filled(out: Any, value: Any) -> Any:
    """Record the number that all elements of an array are, as its source."""
    return _noted(out, np.asarray(value, out.dtype))


def _constant(value: Any, shape: tuple[int, ...]) -> Any:
    """Broadcast a NumPy constant to a dask array."""
    number = np.asarray(value)
    if number.ndim:
        return broadcast(da.from_array(number), shape)
    return broadcast(filled(da.asarray(number), number), shape)


def _is_open(arrays: list[Any]) -> bool:
    """Return whether the length of some axis is not known."""
    return any(type(n) is float for v in arrays for n in v.shape)
