"""Arguments with a batch axis: row by row, or with the batch at the front."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from customop.arrays.array import all_plain, axis_order, strides_of
from customop.arrays.kinds import is_array, is_traced
from customop.arrays.nested import (
    abbreviated,
    children,
    like,
    map_beside,
    outline,
    show,
    steps,
)
from customop.arrays.numpy_functions import INDEXING, call_numpy
from customop.core.table import RuleTable
from customop.core.tracer import strides_of_box
from customop.errors import warn_caller

# ---- arguments and their batch axes ----


# Arguments, each with its batch axis: nested as the argument is, or None.
Pairs: TypeAlias = Sequence[tuple[Any, Any]]


def pairs_of(
    in_dims: Sequence[Any], args: Sequence[Any], keywords: Mapping[str, Any]
) -> list[tuple[Any, Any]]:
    """Pair all arguments of a batching rule, in order, with their batch axes.

    `in_dims` leaves keyword-only arguments out where none of them has a batch.
    """
    values = (*args, *keywords.values())
    dims = (*in_dims, *(None,) * (len(values) - len(in_dims)))
    return list(zip(values, dims, strict=True))


def rank_of_rows(pairs: Sequence[tuple[Any, int | None]]) -> int:
    """Return the number of axes of a row, given arrays and their batch axes."""
    ranks = [v.ndim - (d is not None) for v, d in pairs if is_array(v)]
    return max(ranks, default=0)


def align(value: Any, dim: int | None, rank: int) -> Any:
    """Return a view of the array: its batch axis, then `rank` others."""
    if dim is None:
        return value
    first = move_batch_first(value, dim)
    missing = rank - (first.ndim - 1)
    if not missing:
        return first
    shape = (first.shape[0], *(1,) * missing, *first.shape[1:])
    if type(first) is np.ndarray:
        return first.reshape(shape)
    return call_numpy(np.reshape, first, shape)


def move_batch_first(value: Any, dim: int) -> Any:
    """Move the batch axis of an array to the front."""
    return value if dim == 0 else call_numpy(np.moveaxis, value, dim, 0)


def outermost(value: Any, dim: int) -> Any:
    """Return the array with its batch axis as the slowest in memory, copied if need be.

    NumPy chooses how results lie in memory by how operands do. With the batch outermost it
    chooses for a batch what it would for a row, on which depends what is a view.
    """
    strides = strides_of_box(value) if is_traced(value) else strides_of(value)
    shape = tuple(value.shape)
    if not all_plain((*shape, *strides)):
        return value
    order = axis_order(shape, strides)
    if order[0] == dim or abs(strides[dim]) >= abs(strides[order[0]]):
        return value
    order.remove(dim)
    turned = call_numpy(np.transpose, value, (dim, *order))
    packed = call_numpy(np.copy, turned, order="C")
    back = [(dim, *order).index(axis) for axis in range(len(shape))]
    return call_numpy(np.transpose, packed, back)


# ---- row by row ----


def row(value: Any, dim: Any, index: int) -> Any:
    """Return one row of an argument, as a view that can be written."""
    if dim is None:
        return value

    def take(leaf: Any, axis: int | None) -> Any:
        if axis is None:
            return leaf
        key: tuple[Any, ...] = (*(slice(None),) * axis, index)
        if isinstance(leaf, np.ndarray):
            # The ellipsis makes a row without axes an array, which can be written.
            return leaf[(*key, Ellipsis)]
        return call_numpy(INDEXING, leaf, key)

    return map_beside(value, dim, take)


def run_rows(
    op: RuleTable,
    pairs: Pairs,
    size: int,
    before: Callable[[], object] | None = None,
) -> list[Any]:
    """Call an operator once for each row; `before` runs before each call."""
    warn_slow(op)
    results = []
    for i in range(size):
        if before is not None:
            before()
        results.append(op.invoke([row(value, dim, i) for value, dim in pairs]))
    return results


_warned: weakref.WeakSet[Any] = weakref.WeakSet()


def warn_slow(op: RuleTable) -> None:
    """Warn, once for each operator, that a batch runs row by row.

    Operators that draw random numbers give no warning, since they run in this loop.
    """
    if op.sees_seed or op in _warned:
        return
    _warned.add(op)
    warn_caller(
        f"{op.qualname} has no vmap rule: it runs once for each row, which is slow."
        f" Register one with @{op.name}.register_vmap",
    )


class Uneven(Exception):
    """The results of rows cannot be stacked; the text lists them."""


def stack_rows(rows: Sequence[Any]) -> tuple[Any, Any]:
    """Stack the results of all rows; also return the batch axis of each array.

    Raises
    ------
    Uneven
        If the rows differ in more than the elements of arrays.
    """
    nested = [children(r) for r in rows]
    if all(items is not None for items in nested):
        _check_nests(rows)
        pairs = [stack_rows(column) for column in zip(*nested, strict=True)]
        outs, dims = ([pair[i] for pair in pairs] for i in (0, 1))
        return like(rows[0], outs), outline(rows[0], dims)
    if all(is_array(r) for r in rows):
        if len({tuple(r.shape) for r in rows}) > 1:
            raise Uneven(f"arrays {_listed(map(abbreviated, rows))}")
        return _stacked(rows), 0
    if len({repr(r) for r in rows}) > 1:
        raise Uneven(f"the values {_listed(map(show, rows))}")
    return rows[0], None


def _stacked(rows: Sequence[Any]) -> Any:
    """Stack arrays so that the axes of a row lie in memory as those of the first array."""
    shape, strides = tuple(rows[0].shape), strides_of(rows[0])
    if not all_plain((*shape, *strides)):
        return call_numpy(np.stack, rows)
    order = axis_order(shape, strides)
    if order == [*range(len(shape))]:
        return call_numpy(np.stack, rows)
    back = [0, *(order.index(axis) + 1 for axis in range(len(order)))]
    packed = call_numpy(np.stack, [call_numpy(np.transpose, r, order) for r in rows])
    return call_numpy(np.transpose, packed, back)


def _check_nests(rows: Sequence[Any]) -> None:
    lengths = {len(steps(r)) for r in rows}
    if len(lengths) > 1:
        raise Uneven(f"lists of {sorted(lengths)} items")
    if len({(type(r), tuple(steps(r))) for r in rows}) > 1:
        raise Uneven(f"{show(rows[0])} and values with other keys")


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(sorted(set(texts))[:4])
