"""Batching by the shapes in a schema: the batch is one more axis of the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.kinds import is_array
from customop.arrays.nested import flat
from customop.arrays.numpy_functions import call_numpy
from customop.core.derived.pointwise import align
from customop.core.derived.rows import pairs_of
from customop.core.derived.shape_fake import loop_name, result_types
from customop.core.rule_kind import COMPOSITE
from customop.core.table import RuleTable
from customop.schema.schema import Schema
from customop.schema.types import (
    ArrayType,
    ListOf,
    Maybe,
    SchemaType,
    item_shape,
    shapes_in,
)
from customop.shapes.notation import Shape
from customop.shapes.solve import broadcast

__all__ = ["derive_vmap"]


def derive_vmap(op: RuleTable) -> Callable[..., Any] | None:
    """The batching rule of an operator with a loop, or None for other operators."""
    if not op.schema.has_shapes or op.schema.written or op.sees_seed:
        return None
    # A body made of operators is batched by its operators.
    if COMPOSITE in op.rows:
        return None
    name = loop_name(op.schema)
    if name is None or _has_hidden_loop(op.schema, name):
        return None
    if op.nested_slots:
        return partial(_batch_nested, op, name)
    return partial(_batch, op, _Batches(op.schema, name))


def _has_hidden_loop(schema: Schema, name: str) -> bool:
    """Whether arrays in dicts, tuples or objects have the loop: these are not batched."""
    inside = [p.type for p in schema.parameters if item_shape(p.type) is None]
    shapes = [shape for t in inside for shape in shapes_in(t)]
    return any(shape.loop is not None and shape.loop.name == name for shape in shapes)


class _Step(NamedTuple):
    """How to batch an argument that has the loop."""

    slot: int
    dim: int | None
    # Number of its axes after the loop.
    behind: int
    # Whether its axes of the loop must equal those of the other arguments.
    is_same: bool


class _Batches:
    """The steps of an operator, remembered for each `in_dims`."""

    def __init__(self, schema: Schema, name: str) -> None:
        self.shapes = [item_shape(p.type) for p in schema.parameters]
        self.name = name
        results = result_types(schema) or ()
        self.behind = [len(t.shape.after) for t in results if t.shape is not None]
        self.out_dims = (0,) * len(schema.returns) if schema.is_tuple else 0
        self.known: dict[tuple[Any, ...], list[_Step] | None] = {}

    def steps(self, in_dims: tuple[Any, ...]) -> list[_Step] | None:
        """The steps for a batch; None where an array without the loop has one."""
        if in_dims not in self.known:
            self.known[in_dims] = self._plan(in_dims)
        return self.known[in_dims]

    def _plan(self, in_dims: tuple[Any, ...]) -> list[_Step] | None:
        dims = (*in_dims, *(None,) * (len(self.shapes) - len(in_dims)))
        steps = []
        for slot, (shape, dim) in enumerate(zip(self.shapes, dims, strict=True)):
            if shape is None or shape.loop is None or shape.loop.name != self.name:
                if dim is not None:
                    return None
                continue
            is_same = bool(self.name) and not shape.loop.is_broadcast
            steps.append(_Step(slot, dim, len(shape.after), is_same))
        return steps


def _batch(
    op: RuleTable,
    batches: _Batches,
    info: Any,
    in_dims: tuple[Any, ...],
    *args: Any,
    **keywords: Any,
) -> Any:
    """Make the batch the first axis of the loop, and call the operator once.

    It returns `NotImplemented` where the rows would give something else: an array
    without the loop has a batch, or a result does not have the axes of the loop.
    """
    values = [*args, *keywords.values()]
    steps = batches.steps(in_dims)
    if steps is None:
        return NotImplemented
    steps = [step for step in steps if is_array(values[step.slot])]
    loop = broadcast([_loop_of(values[step.slot], step) for step in steps])
    if loop is None:
        return NotImplemented
    wide = (info.batch_size, *loop)
    for step in steps:
        values[step.slot] = _widened(values[step.slot], step, wide)
    out = op.invoke(values)
    outs = out if type(out) is tuple else (out,)
    for value, behind in zip(outs, batches.behind, strict=True):
        shape = tuple(value.shape)
        if shape[: len(shape) - behind] != wide:
            return NotImplemented
    return out, batches.out_dims


def _loop_of(value: Any, step: _Step) -> tuple[int, ...]:
    """The axes of the loop in one row of an array."""
    shape = tuple(value.shape)
    dim = step.dim
    if dim is None:
        return shape[: len(shape) - step.behind]
    return (*shape[:dim], *shape[dim + 1 :])[: len(shape) - 1 - step.behind]


def _widened(value: Any, step: _Step, wide: tuple[int, ...]) -> Any:
    """An array with the batch in front of its loop."""
    rank = len(wide) + step.behind
    shape = tuple(value.shape)
    if step.dim != 0 or len(shape) != rank:
        value = align(value, step.dim, rank - 1)
        shape = tuple(value.shape)
    if not step.is_same or shape[: len(wide)] == wide:
        return value
    behind = shape[len(shape) - step.behind :]
    if type(value) is np.ndarray:  # 2 us, and 7 as an operator, CPython 3.11.7
        return np.broadcast_to(value, (*wide, *behind))
    return call_numpy(np.broadcast_to, value, (*wide, *behind))


def _batch_nested(
    op: RuleTable,
    name: str,
    info: Any,
    in_dims: Sequence[Any],
    *args: Any,
    **keywords: Any,
) -> Any:
    """The same as `_batch` for arguments that are lists of arrays."""
    types = [p.type for p in op.schema.parameters]
    rows = _NestedBatch(name, info.batch_size)
    pairs = pairs_of(in_dims, args, keywords)
    triples = [(*pair, t) for pair, t in zip(pairs, types, strict=True)]
    for triple in triples:
        _map_arrays(*triple, rows.note)
    loop = None if rows.differ else broadcast(rows.parts)
    if loop is None:
        return NotImplemented
    rows.loop = loop
    out = op.invoke([_map_arrays(*triple, rows.align) for triple in triples])
    if not rows.are_in(out, result_types(op.schema) or ()):
        return NotImplemented
    return out, (0,) * len(op.schema.returns) if op.schema.is_tuple else 0


def _map_arrays(
    value: Any,
    dim: Any,
    declared: SchemaType,
    fn: Callable[[Any, Any, Shape | None], Any],
) -> Any:
    """Apply `fn` to an argument, or to the items of a list, with their batch axes."""
    declared = declared.item if isinstance(declared, Maybe) else declared
    if isinstance(declared, ListOf) and value is not None:
        dims = dim if isinstance(dim, list | tuple) else (None,) * len(value)
        pairs = zip(value, dims, strict=True)
        return type(value)(_map_arrays(v, d, declared.item, fn) for v, d in pairs)
    return fn(value, dim, declared.shape if isinstance(declared, ArrayType) else None)


class _NestedBatch:
    """The arguments of a batched call, to be brought to one loop."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size
        # The axes of the loop in one row: of each array, and broadcast together.
        self.parts: list[tuple[int, ...]] = []
        self.loop: tuple[int, ...] = ()
        # Whether rows differ in an array without the loop.
        self.differ = False

    def note(self, value: Any, dim: Any, shape: Shape | None) -> None:
        """Note the axes of the loop of an array."""
        if shape is None or not is_array(value) or not self._has_loop(shape):
            self.differ = self.differ or any(d is not None for d in flat(dim))
            return
        lengths = [n for i, n in enumerate(value.shape) if i != dim]
        self.parts.append(tuple(lengths[: len(lengths) - len(shape.after)]))

    def _has_loop(self, shape: Shape) -> bool:
        return shape.loop is not None and shape.loop.name == self.name

    def align(self, value: Any, dim: Any, shape: Shape | None) -> Any:
        """An array with the batch in front of its loop; other values as they are."""
        if shape is None or not is_array(value) or not self._has_loop(shape):
            return value
        rank = len(self.loop) + len(shape.after)
        first = align(value, dim, rank)
        if not self.name or (shape.loop and shape.loop.is_broadcast):
            return first
        # Named axes are the same for all arrays, so the batch must be too.
        core = tuple(first.shape)[len(first.shape) - len(shape.after) :]
        wanted = (self.size, *self.loop, *core)
        if tuple(first.shape) == wanted:
            return first
        return call_numpy(np.broadcast_to, first, wanted)

    def are_in(self, out: Any, types: Sequence[ArrayType]) -> bool:
        """Whether all results have the batch and then the axes of the loop."""
        wanted = (self.size, *self.loop)
        outs = out if isinstance(out, tuple) else (out,)
        for value, declared in zip(outs, types, strict=True):
            assert declared.shape is not None
            count = len(value.shape) - len(declared.shape.after)
            if tuple(value.shape)[:count] != wanted:
                return False
        return True
