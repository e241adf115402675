"""Rows of what is written: parts of arrays that are replaced, and arguments at the end.

A graph writes its arguments at its end alone. Those rows are in a table of their own, which
runs when it is known that the call does not have to run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from customop.compiling.native_backend.memory import Block, address_of
from customop.compiling.native_backend.operator_rows import (
    basic_key,
    index_arrays,
    index_steps,
)
from customop.compiling.native_backend.own_loops import put_loop
from customop.compiling.native_backend.planning import AnyArray, TablePlan
from customop.compiling.native_backend.ufunc_loops import NotNative, WholeGraph
from customop.graph.node import CALL, PLACEHOLDER, Node
from customop.transforms.trace.graph_tracer import assign

# Bytes of an argument from which a copy of it takes longer than calls of Python.
_LARGE: Final = 1 << 17


def written_inputs(nodes: Iterable[Node]) -> set[Node]:
    """Return the inputs that a graph writes at its end."""
    return {n.args[0] for n in nodes if n.op == CALL and n.target is assign}


def writes_input(node: Node) -> bool:
    """Return whether a call does nothing but write an input."""
    return node.target is assign and node.args[0].op == PLACEHOLDER


# ---- arguments ----


def assigned(plan: TablePlan, node: Node, target: AnyArray, value: AnyArray) -> None:
    """Emit the rows that write the new value of an argument."""
    del target
    source, given = node.args
    for part, key in plan.parts.pop(given, [(value, None)]):
        place = plan.arrays[source]
        if key is not None:
            place = place[(*basic_key(key), ...)]
        elif place.nbytes > _LARGE:
            raise WholeGraph(
                "a large argument is written, which NumPy's code does in it"
            )
        _write_last(plan, given, part, place)
    plan.arrays[node] = None


def _write_last(plan: TablePlan, given: Node, value: AnyArray, place: AnyArray) -> None:
    if value.dtype != place.dtype:
        new, block = plan.new(value.shape, place.dtype)
        block.uses += 1
        try:
            plan.copy(value, new)
        except NotNative as reason:
            raise WholeGraph(str(reason)) from None
        value = new
    elif isinstance(plan.blocks.get(given), Block):
        plan.blocks[given].uses += 1  # nothing else may lie there
    with plan.at_the_end():
        if np.may_share_memory(value, place):
            new, block = plan.new(value.shape, value.dtype)
            block.uses += 1
            plan.copy(value, new)
            value = new
        plan.copy(value, place)


def laid_out(plan: TablePlan, node: Node, x: AnyArray, strides: Sequence[int]) -> None:
    """Emit the copy that lies as an array that was written."""
    if not x.size or min(strides, default=1) <= 0:
        # In negative steps, some loops of NumPy give other bits than for a new array.
        raise WholeGraph("an array without items, or one that goes backward")
    last = sum((n - 1) * step for n, step in zip(x.shape, strides, strict=True))
    block = plan.memory.take(last + x.itemsize)
    found = block.array(x.shape, x.dtype, tuple(strides))
    plan.arrays[node] = found
    plan.hold(node, block)
    plan.copy(x, found)


# ---- parts ----


def replaced(
    plan: TablePlan, node: Node, x: AnyArray, v: AnyArray, key: Sequence[Any]
) -> None:
    """Emit a copy of `x` with `v` at a slice.

    If nothing reads `x` any more, `v` goes to its memory. If it is an argument that becomes
    the result and nothing else, only the slice is written, at the end.
    """
    source, given = node.args[:2]
    if _is_for_argument(node, source, plan):
        if any(np.may_share_memory(v, plan.arrays[n]) for n in plan.written):
            new, block = plan.new(v.shape, v.dtype)  # it is read after some are written
            block.uses += 1
            plan.copy(v, new)
            v = new
        elif isinstance(plan.blocks.get(given), Block):
            plan.blocks[given].uses += 1  # nothing else may lie there
        plan.parts[node] = [*plan.parts.get(source, ()), (v, key)]
        plan.arrays[node] = x
        return
    if source in plan.written and x.nbytes > _LARGE and v.size * 4 < x.size:
        raise WholeGraph("a small part of a large argument is written")
    found = taken_over(plan, node, x)
    plan.copy(v, found[(*basic_key(key), ...)])


def _is_for_argument(node: Node, source: Node, plan: TablePlan) -> bool:
    """Return whether the value of a node is the next one of an argument, and no more."""
    if source not in plan.parts and source not in plan.written:
        return False
    first = source
    while first.op == CALL:
        first = first.args[0]
    while len(node.users) == 1:
        (user,) = node.users
        if user.target is assign:
            return user.args[0] is first and user.args[1] is node
        if getattr(user.target, "qualname", "") != "np::slice_set":
            return False
        if user.args[0] is not node or user.args[1] is node:
            return False
        node = user
    return False


def taken_over(plan: TablePlan, node: Node, x: AnyArray) -> AnyArray:
    """Return memory for the value of a node that has the items of its first argument.

    It is that of the argument where nothing else reads it.
    """
    source = node.args[0]
    block = plan.blocks.get(source)
    dense = np.empty_like(x)
    if (
        source.op == CALL
        and isinstance(block, Block)
        and block.uses == 1
        and plan.ends_here(source)
        and source not in plan.fixed
        and source not in plan.classes
        and dense.strides == x.strides
    ):
        plan.arrays[node] = x
        plan.hold(node, block)
        return x
    found = plan.result(node, x.shape, x.dtype, [dense])
    plan.copy(x, found)
    return found


def put(
    plan: TablePlan, node: Node, x: AnyArray, v: AnyArray, indices: Sequence[Any]
) -> None:
    """Emit a copy of `x` with the items of `v` at index arrays for the first axes."""
    places = index_arrays(plan, indices)
    count = len(places)
    at = np.broadcast_shapes(*[i.shape for i in places])
    if not v.size or v.dtype != x.dtype:
        raise NotNative("values of another dtype, or none")
    line = np.empty_like(x)[(0,) * count] if x.size else x
    if not x.size or not np.asarray(line).flags.c_contiguous:
        raise NotNative("places in what is not contiguous")
    found = taken_over(plan, node, x)
    if not v.flags.c_contiguous:
        new = plan.temporary(v.shape, v.dtype)
        plan.copy(v, new)
        v = new
    lines, steps = index_steps(plan, places, at)
    row = v.itemsize * prod(x.shape[count:])
    lengths = [n for j in range(count) for n in (x.shape[j], found.strides[j])]
    plan.table.emit(
        put_loop(count, row),
        [*map(address_of, lines), address_of(found), address_of(v)],
        [prod(at), *lengths, row],
        [*steps, 0, row],
    )


RULES_OF_WRITES: Mapping[str, Callable[..., None]] = MappingProxyType(
    {
        "customop::assign": assigned,
        "customop::lay_out": laid_out,
        "np::index_set": put,
        "np::slice_set": replaced,
    }
)
