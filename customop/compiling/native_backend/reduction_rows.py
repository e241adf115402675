"""Rows of reductions: sums, products and extremes in the order in which NumPy takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from customop.compiling.native_backend.iteration import (
    BUFFER,
    LoopAxis,
    merged_axes,
    reduction_axes,
    result_strides,
)
from customop.compiling.native_backend.memory import Block, address_of
from customop.compiling.native_backend.own_loops import copy_loop, place_loop
from customop.compiling.native_backend.planning import AnyArray, TablePlan
from customop.compiling.native_backend.ufunc_loops import (
    NotNative,
    UfuncLoop,
    WholeGraph,
    loop_for,
)
from customop.graph.node import Node

# Dtypes whose running sums have the dtype of the operand.
_SUMMED: Final = "fdl"
_BOOL: Final = np.dtype(np.bool_)
_EXACT_BYTES: Final = 4


def reduction(ufunc: np.ufunc, start: float | None) -> Callable[..., None]:
    """Return the rule of a reduction; without `start` it begins with the first items."""

    def rule(
        plan: TablePlan,
        node: Node,
        x: AnyArray,
        axis: Any = None,
        keepdims: bool = False,
    ) -> None:
        _reduce(plan, node, ufunc, x, axis, keepdims, start)

    return rule


def truth(ufunc: np.ufunc) -> Callable[..., None]:
    """Return the rule of `any` or `all`: of numbers, it is that of which are not zero."""

    def rule(
        plan: TablePlan,
        node: Node,
        x: AnyArray,
        axis: Any = None,
        keepdims: bool = False,
    ) -> None:
        _reduce(plan, node, ufunc, plan.cast(x, _BOOL), axis, keepdims, None)

    return rule


def mean(
    plan: TablePlan, node: Node, x: AnyArray, axis: Any = None, keepdims: bool = False
) -> None:
    """Emit the sum, and the division by the number of items."""
    if not x.size:
        raise WholeGraph("a mean of no items, which warns")
    if x.dtype.kind in "biu" and x.itemsize <= _EXACT_BYTES:
        x = plan.cast(x, np.dtype(np.float64))  # sums are whole numbers below 2**53
    if x.dtype.char not in "fd" or x.size >= _MOST_ITEMS[x.dtype.char]:
        raise NotNative(f"a mean of {x.dtype}")
    _reduce(plan, node, np.add, x, axis, keepdims, 0.0)
    total = plan.arrays[node]
    count = plan.number(x.size / max(total.size, 1), x.dtype)
    loop = loop_for(np.divide, (x.dtype, x.dtype))
    plan.loop(loop, [total, count, total])
    last = len(plan.table.rows) - 1
    if last - 1 in plan.table.sums:
        plan.table.sums[last - 1] = last


# Numbers of items that the dtype can hold.
_MOST_ITEMS: Final = {"f": 1 << 21, "d": 1 << 50}


def _reduce(
    plan: TablePlan,
    node: Node,
    ufunc: np.ufunc,
    x: AnyArray,
    axis: Any,
    keepdims: bool,
    start: float | None,
) -> None:
    """Emit the rows of a reduction, whose result is the value of a node."""
    found, block = reduced(plan, ufunc, x, axis, keepdims, start)
    plan.take_new(node, found, block)


def reduced(
    plan: TablePlan,
    ufunc: np.ufunc,
    x: AnyArray,
    axis: Any,
    keepdims: bool,
    start: float | None,
) -> tuple[AnyArray, Block]:
    """Emit the rows of a reduction; return its result, and the new block of that.

    Integers are added and multiplied exactly in any order, and so are cast before.
    """
    if ufunc in (np.add, np.multiply) and x.dtype.kind in "biu":
        x = plan.cast(x, np.dtype(np.uint64 if x.dtype.kind == "u" else np.int64))
    elif x.dtype.char not in ("fdFD" if ufunc is np.add else "fd") and (
        x.dtype.kind not in "biu" or start is not None
    ):
        raise NotNative(f"{ufunc.__name__} over {x.dtype}")
    if not x.size:
        raise NotNative("a reduction of no items")
    loop = loop_for(ufunc, (x.dtype, x.dtype))
    if loop.dtypes != (x.dtype,) * 3:
        raise NotNative(f"{ufunc.__name__} over {x.dtype}")
    axes = range(x.ndim) if axis is None else [i % x.ndim for i in axis]
    stays = [i for i in range(x.ndim) if i not in axes]
    whole, found, block = _result(plan, x, stays, keepdims)
    before = len(plan.table.rows)
    if start is None:
        first = [slice(None) if i in stays else slice(0, 1) for i in range(x.ndim)]
        plan.copy(x[(*first, ...)], whole)
    else:
        plan.fill(whole, start)
    steps = [step if i in stays else 0 for i, step in enumerate(whole.strides)]
    order = reduction_axes(x.shape, x.strides, steps)
    if x.ndim and not stays and x.ndim > 1 and x.flags.c_contiguous:
        order = [LoopAxis(x.size, (0, x.itemsize))] if x.size > 1 else []
    _emit(plan, loop, x, address_of(whole), order, start)
    row = before + 1
    if (
        ufunc is np.add
        and x.dtype.char in "fd"
        and len(plan.table.rows) == row + 1
        and order == [LoopAxis(x.size, (0, x.itemsize))]
    ):
        plan.table.sums[row] = row
    return found, block


def _result(
    plan: TablePlan, x: AnyArray, stays: Sequence[int], keepdims: bool
) -> tuple[AnyArray, AnyArray, Block]:
    """Return the memory of the result with all axes, the result itself, and its block."""
    shape = tuple([x.shape[i] for i in stays])
    strides = None
    if len(stays) > 1:
        part = x[tuple([slice(None) if i in stays else 0 for i in range(x.ndim)])]
        strides = result_strides(shape, x.itemsize, [part])
    result, block = plan.new(shape, x.dtype, strides)
    steps = [0] * x.ndim
    for i, step in zip(stays, result.strides, strict=True):
        steps[i] = step
    lengths = tuple([n if i in stays else 1 for i, n in enumerate(x.shape)])
    whole = block.array(lengths, x.dtype, tuple(steps))
    if not keepdims:
        return whole, result, block
    result = block.array(lengths, x.dtype, _packed_as(x, lengths))
    return whole, result, block


def _packed_as(x: AnyArray, lengths: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a packed array of these lengths, in the order of another.

    Axes of length 1 have such strides in NumPy's results, too.
    """
    like = result_strides(x.shape, x.itemsize, [x])
    axes = [*range(x.ndim)][::-1]
    if like is not None:
        axes.sort(key=like.__getitem__)
    found, step = [0] * x.ndim, x.itemsize
    for axis in axes:
        found[axis] = step
        step *= lengths[axis]
    return tuple(found)


def _emit(
    plan: TablePlan,
    loop: UfuncLoop,
    x: AnyArray,
    result: int,
    order: list[LoopAxis],
    start: float | None,
) -> None:
    """Emit the rows that take the items of `x` into the result."""
    source = address_of(x)
    if not order:
        order = [LoopAxis(1, (0, x.itemsize))]
    runs = 0
    while runs < len(order) and order[runs].strides[0] == 0:
        runs += 1
    if (
        start is not None
        and runs > 1
        and order[0].length <= BUFFER
        and x.dtype.kind in "fc"
    ):
        _emit_chunks(plan, loop, x, result, order, runs)
        return
    if start is None:
        # NumPy starts with the first items and goes on with the second ones.
        reduced = [k for k, axis in enumerate(order) if axis.strides[0] == 0]
        if len(reduced) > 1:
            raise NotNative("extremes over axes that do not merge")
        if reduced:
            at = reduced[0]
            axis = order[at]
            if axis.length == 1:
                return
            order[at] = LoopAxis(axis.length - 1, axis.strides)
            source += axis.strides[1]
        else:
            return
    rows = [LoopAxis(n, (own, step, own)) for n, (own, step) in order]
    inner, *outer = rows
    plan.table.emit(
        loop, [result, source, result], [inner.length], [*inner.strides], outer
    )


def _emit_chunks(
    plan: TablePlan,
    loop: UfuncLoop,
    x: AnyArray,
    result: int,
    order: list[LoopAxis],
    runs: int,
) -> None:
    """Emit a sum over several axes that do not merge.

    NumPy copies such axes to a buffer of 8192 items, whole lines of the innermost axes at
    a time, and each buffer is one pairwise sum.
    """
    size, core, k = x.itemsize, 1, 0
    while k < runs and core * order[k].length <= BUFFER:
        core *= order[k].length
        k += 1
    # So many items are summed before the axes outside go on.
    count = core * order[k].length if k < runs else core
    chunk = BUFFER // core * core
    outside = order[k + 1 :] if k < runs else order[k:]
    lead = 1
    for axis in outside:
        lead *= axis.length
    buffer = plan.temporary((lead, count), x.dtype)
    at, copied = size, []
    for axis in order:
        copied.append(LoopAxis(axis.length, (axis.strides[1], at)))
        at *= axis.length
    copy = copy_loop(size)
    plan.table.emit(
        copy,
        [address_of(x), address_of(buffer)],
        [copied[0].length],
        [*copied[0].strides],
        copied[1:],
    )
    at, rows = count * size, []
    for axis in outside:
        rows.append(LoopAxis(axis.length, (axis.strides[0], at, axis.strides[0])))
        at *= axis.length
    start = address_of(buffer)
    if count <= chunk or all(axis.strides[0] for axis in rows):
        for i in range(0, count, chunk):
            pointers = [result, start + i * size, result]
            plan.table.emit(loop, pointers, [min(chunk, count - i)], [0, size, 0], rows)
        return
    if lead * (count // chunk + 1) > _MOST_CHUNKS:
        raise NotNative("many buffers within axes that are summed, too")
    for places in np.ndindex(*[axis.length for axis in reversed(rows)]):
        pairs = [*zip(reversed(places), rows, strict=True)]
        own = result + sum(i * axis.strides[0] for i, axis in pairs)
        part = start + sum(i * axis.strides[1] for i, axis in pairs)
        for i in range(0, count, chunk):
            pointers = [own, part + i * size, own]
            plan.table.emit(loop, pointers, [min(chunk, count - i)], [0, size, 0])


_MOST_CHUNKS: Final = 4096


def place_of_extreme(*, is_least: bool) -> Callable[..., None]:
    """Return the rule of `argmax` or `argmin`."""

    def rule(
        plan: TablePlan,
        node: Node,
        x: AnyArray,
        axis: int | None = None,
        keepdims: bool = False,
    ) -> None:
        loop = place_loop(x.dtype.char, is_least=is_least)
        if loop is None or not x.size or x.size > _MOST_COMPARED:
            raise NotNative(f"places of extremes of {x.size} items of {x.dtype}")
        if axis is None:
            line = plan.temporary(x.shape, x.dtype)
            plan.copy(x, line)
            lines, shape = line.reshape(-1), (1,) * x.ndim if keepdims else ()
        else:
            lines = np.moveaxis(x, axis, -1)
            shape = plan.shape_of(node)
        found, block = plan.new(shape, _PLACE)
        outer = merged_axes(
            lines.shape[:-1],
            [lines.strides[:-1], found.reshape(lines.shape[:-1]).strides],
        )
        plan.table.emit(
            loop,
            [address_of(lines), address_of(found)],
            [lines.shape[-1]],
            [lines.strides[-1], 0],
            outer,
        )
        plan.take_new(node, found, block)

    return rule


_PLACE: Final = np.dtype(np.int64)
# Items from which on the loops of NumPy, which compare several at once, are faster.
_MOST_COMPARED: Final = 1 << 14


def cumulative(ufunc: np.ufunc) -> Callable[..., None]:
    """Return the rule of a running sum or product along an axis."""

    def rule(plan: TablePlan, node: Node, x: AnyArray, axis: int) -> None:
        if x.dtype.char not in _SUMMED or not x.size:
            raise NotNative(f"a running {ufunc.__name__} of {x.dtype}")
        found = plan.result(node, x.shape, x.dtype, [x])
        plan.copy(x, found)
        lines, results = np.moveaxis(x, axis, 0), np.moveaxis(found, axis, 0)
        count = len(lines)
        if count < 2:
            return
        loop = loop_for(ufunc, (x.dtype, x.dtype))
        own, step = results.strides[0], lines.strides[0]
        outer = merged_axes(
            lines.shape[1:],
            [results.strides[1:], lines.strides[1:], results.strides[1:]],
        )
        start = address_of(results)
        pointers = [start, address_of(lines) + step, start + own]
        plan.table.emit(loop, pointers, [count - 1], [own, step, own], outer)

    return rule
