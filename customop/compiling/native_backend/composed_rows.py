"""Rows of operators that are several loops one after the other, as NumPy makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from customop.compiling.native_backend.iteration import result_strides
from customop.compiling.native_backend.memory import address_of
from customop.compiling.native_backend.planning import AnyArray, TablePlan
from customop.compiling.native_backend.reduction_rows import reduced
from customop.compiling.native_backend.ufunc_loops import (
    NotNative,
    WholeGraph,
    loop_for,
)
from customop.graph.node import Node

# The ufunc of `np.clip`; NumPy has no public name for it.
_CLIP: Final[np.ufunc] = np._core.umath.clip  # type: ignore[attr-defined]  # noqa: SLF001


# Powers of ten up to this one are exact.
_TENS: Final = 22

# ---- elementwise ----


def clipped(plan: TablePlan, node: Node, a: AnyArray, low: Any, high: Any) -> None:
    """Emit the row of the ufunc behind `clip`."""
    plan.ufunc(node, _CLIP, [a, low, high])


def rounded(plan: TablePlan, node: Node, x: AnyArray, decimals: int) -> None:
    """Emit the rows of `round`: a product or quotient, whole numbers, and back."""
    if x.dtype.char not in "fd" or abs(decimals) > _TENS:
        raise NotNative(f"rounding of {x.dtype}")
    if decimals == 0:
        plan.ufunc(node, np.rint, [x])
        return
    if not x.flags.c_contiguous:
        raise NotNative("rounding of an array that is not in C order")
    steps: list[np.ufunc] = [np.multiply, np.divide]
    there, back = steps if decimals > 0 else steps[::-1]
    factor = plan.number(10.0 ** abs(decimals), x.dtype)
    plan.ufunc(node, there, [x, factor])
    found = plan.arrays[node]
    plan.loop(loop_for(np.rint, (x.dtype,)), [found, found])
    plan.loop(loop_for(back, (x.dtype, x.dtype)), [found, factor, found])


def differences(plan: TablePlan, node: Node, x: AnyArray, axis: int, n: int) -> None:
    """Emit the row that subtracts neighbors."""
    if n != 1 or x.dtype == np.bool_:
        raise NotNative("differences of differences, or of bools")
    lines = np.moveaxis(x, axis, 0)
    first, second = (np.moveaxis(part, 0, axis) for part in (lines[1:], lines[:-1]))
    plan.ufunc(node, np.subtract, [first, second])


# ---- sums ----


def trace(
    plan: TablePlan, node: Node, x: AnyArray, offset: int, axis1: int, axis2: int
) -> None:
    """Emit the sum of a diagonal."""
    diagonal = np.diagonal(x, offset, axis1, axis2)
    plan.take_new(node, *reduced(plan, np.add, diagonal, [-1], False, 0.0))


def norm(
    plan: TablePlan, node: Node, x: AnyArray, axis: Any = None, keepdims: bool = False
) -> None:
    """Emit the root of the sum of squares: of a whole array, it is a product of BLAS."""
    if x.dtype.char not in "fd" or not x.size:
        raise NotNative(f"a norm of {x.dtype}, or of no items")
    root = loop_for(np.sqrt, (x.dtype,))
    if axis is not None:
        squares = plan.temporary(
            x.shape, x.dtype, result_strides(x.shape, x.itemsize, [x])
        )
        plan.loop(loop_for(np.multiply, (x.dtype, x.dtype)), [x, x, squares])
        total, block = reduced(plan, np.add, squares, axis, keepdims, 0.0)
        plan.loop(root, [total, total])
        plan.take_new(node, total, block)
        return
    line = x.ravel(order="K")
    if x.size > 1 and not np.may_share_memory(line, x):
        raise NotNative("a norm of items with gaps between them")
    loop = loop_for(np.matmul, (x.dtype, x.dtype))
    total, block = plan.new((1,) * x.ndim if keepdims else (), x.dtype)
    at = address_of(line)
    step = line.strides[0] if line.size > 1 else x.itemsize
    steps = [0, 0, 0, 0, step, step, 0, 0, 0]
    plan.table.emit(loop, [at, at, address_of(total)], [1, 1, line.size, 1], steps)
    plan.loop(root, [total, total])
    plan.take_new(node, total, block)


def deviation(
    plan: TablePlan,
    node: Node,
    x: AnyArray,
    axis: Any,
    keepdims: bool,
    ddof: float,
    dtype: Any,
) -> None:
    """Emit the mean of the squares of the distances from the mean, or its root."""
    axes = [*range(x.ndim)] if axis is None else [i % x.ndim for i in axis]
    count = prod([x.shape[i] for i in axes])
    if count <= ddof:
        raise WholeGraph("a variance of too few items, which warns")
    free = count - ddof
    if x.dtype.char not in "fd" or dtype is not None or count >= 1 << 24:
        raise NotNative(f"a variance of {x.dtype}")
    if float(x.dtype.type(free)) != free:
        raise NotNative("degrees of freedom that are rounded")
    divide = loop_for(np.divide, (x.dtype, x.dtype))
    middle, block = reduced(plan, np.add, x, axes, True, 0.0)
    block.uses += 1
    plan.release_after(block)
    plan.loop(divide, [middle, plan.number(count, x.dtype), middle])
    strides = result_strides(x.shape, x.itemsize, [x, middle])
    apart = plan.temporary(x.shape, x.dtype, strides)
    plan.loop(loop_for(np.subtract, (x.dtype, x.dtype)), [x, middle, apart])
    plan.loop(loop_for(np.multiply, (x.dtype, x.dtype)), [apart, apart, apart])
    total, block = reduced(plan, np.add, apart, axes, keepdims, 0.0)
    plan.loop(divide, [total, plan.number(free, x.dtype), total])
    if node.target.name == "std":
        plan.loop(loop_for(np.sqrt, (x.dtype,)), [total, total])
    plan.take_new(node, total, block)


# ---- places ----


def rolled(
    plan: TablePlan, node: Node, x: AnyArray, shift: Sequence[int], axis: Sequence[int]
) -> None:
    """Emit the copies of the parts that move together."""
    moves = [0] * x.ndim
    for by, at in zip(shift, axis, strict=True):
        moves[at % x.ndim] += by
    found = plan.result(node, x.shape, x.dtype, [np.empty_like(x)])
    if not x.size:
        return
    axes = [i for i, (by, n) in enumerate(zip(moves, x.shape, strict=True)) if by % n]
    if len(axes) == 1 and x.flags.c_contiguous:
        _rolled_along(plan, x, found, moves[axes[0]] % x.shape[axes[0]], axes[0])
        return
    pairs = []
    for by, n in zip(moves, x.shape, strict=True):
        k = by % n
        halves = [(slice(None, n - k), slice(k, None)), (slice(n - k, None), slice(k))]
        pairs.append(halves if k else halves[:1])
    for parts in product(*pairs):
        given, place = zip(*parts, strict=True) if parts else ((), ())
        plan.copy(x[given], found[place])


def _rolled_along(
    plan: TablePlan, x: AnyArray, found: AnyArray, k: int, axis: int
) -> None:
    """Emit one copy of all items, moved in memory, and one of those that come around."""
    rest = x.shape[axis] - k
    far = min(k, rest) * prod(x.shape[axis + 1 :])
    ahead, behind = slice(far, None), slice(-far)
    given, place = (behind, ahead) if k <= rest else (ahead, behind)
    plan.copy(x.reshape(-1)[given], found.reshape(-1)[place])
    whole = (slice(None),) * axis
    if k <= rest:
        plan.copy(x[(*whole, slice(rest, None))], found[(*whole, slice(k))])
    else:
        plan.copy(x[(*whole, slice(rest))], found[(*whole, slice(k, None))])


def padded(
    plan: TablePlan,
    node: Node,
    x: AnyArray,
    pad_width: Sequence[Sequence[int]],
    value: Any = 0,
) -> None:
    """Emit the number everywhere, and the array inside."""
    if isinstance(value, np.ndarray) or not pad_width or x.dtype.kind not in "fc":
        raise NotNative("padding of integers, or by an array")
    if x.flags.fnc:
        raise NotNative("padding of an array in Fortran's order")
    found = plan.result(node, plan.shape_of(node), x.dtype)
    plan.fill(found, value)
    inside: list[Any] = [
        slice(b, b + n) for n, (b, _) in zip(x.shape, pad_width, strict=True)
    ]
    plan.copy(x, found[(*inside, ...)])


def tiled(plan: TablePlan, node: Node, x: AnyArray, reps: Sequence[int]) -> None:
    """Emit one copy, in which the array comes again and again."""
    found = plan.result(node, plan.shape_of(node), x.dtype)
    if found.size:
        pairs = [n for both in zip(reps, x.shape, strict=True) for n in both]
        single = [n for length in x.shape for n in (1, length)]
        whole = found.reshape(pairs)
        plan.copy(np.broadcast_to(x.reshape(single), pairs), whole)


def repeated(plan: TablePlan, node: Node, x: AnyArray, count: int, axis: int) -> None:
    """Emit one copy, in which each item comes again and again."""
    found = plan.result(node, plan.shape_of(node), x.dtype)
    if found.size:
        axis %= x.ndim
        shape = [*x.shape[: axis + 1], count, *x.shape[axis + 1 :]]
        wide = np.broadcast_to(np.expand_dims(x, axis + 1), shape)
        plan.copy(wide, found.reshape(shape))


RULES_OF_STEPS: Mapping[str, Callable[..., None]] = MappingProxyType(
    {
        "np::clip": clipped,
        "np::diff": differences,
        "np::norm": norm,
        "np::pad": padded,
        "np::repeat": repeated,
        "np::roll": rolled,
        "np::round": rounded,
        "np::std": deviation,
        "np::tile": tiled,
        "np::trace": trace,
        "np::var": deviation,
    }
)
