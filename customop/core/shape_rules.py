"""Rules from the shapes in a schema: fake kernels, and batching.

A loop is any number of axes at the front, ``...`` or ``*batch``, followed by named axes.
As with a gufunc of NumPy, the kernel treats each row of the loop separately.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.array import ELEMENTS, all_plain, as_element, dtype_of, strides_of
from customop.arrays.fake import FakeArray, fake_like, is_symbolic_call, make_fake
from customop.arrays.kinds import FAKE, device_of, is_array
from customop.arrays.nested import abbreviated, flat
from customop.arrays.numpy_functions import call_numpy
from customop.core.batch_rows import (
    align,
    pairs_of,
)
from customop.core.rule_kind import COMPOSITE
from customop.core.table import RuleTable
from customop.errors import MissingRuleError, ShapeError
from customop.later import later
from customop.schema.coerce import typed_arrays
from customop.schema.schema import Schema
from customop.schema.shape_check import number_names, sizes_of
from customop.schema.types import (
    ArrayType,
    ListOf,
    Maybe,
    SchemaType,
    item_shape,
    shapes_in,
)
from customop.shapes.lengths import Sizes, broadcast, unknown_names, why_unknown
from customop.shapes.notation import Shape
from customop.shapes.sizes import made

sizes: ModuleType = later(import_module, "customop.shapes.sizes")


# ---- fake kernels from the shapes in a schema ----


def _shapes(schema: Schema) -> list[Shape]:
    """Return the shapes of all arrays among the parameters."""
    return [shape for p in schema.parameters for shape in shapes_in(p.type)]


def result_types(schema: Schema) -> list[ArrayType] | None:
    """Return the types of the results if all are arrays with a shape, otherwise None."""
    types = [r.type for r in schema.returns]
    found = [t for t in types if isinstance(t, ArrayType) and t.shape is not None]
    return found if found and len(found) == len(types) else None


def loop_name(schema: Schema) -> str | None:
    """Return the name of an operator's loop, empty for ``...``; None without a loop.

    Some array must have axes after the loop: ``...`` alone says nothing about an array.
    """
    results = result_types(schema) or []
    shapes = [t.shape for t in results if t.shape is not None]
    names = {shape.loop.name if shape.loop else None for shape in shapes}
    name = names.pop() if len(names) == 1 else None
    own = [s for s in (*_shapes(schema), *shapes) if s.loop and s.loop.name == name]
    at_front = all(shape.leads for shape in own)
    has_axes = any(s.axes for s in _shapes(schema) if s in own)
    return name if at_front and has_axes else None


# ---- shapes of the results ----


def why_no_fake(schema: Schema) -> str:
    """Say why the shapes of a schema give no fake kernel; empty if they do."""
    results = result_types(schema)
    if not all(isinstance(r.type, ArrayType) for r in schema.returns):
        return "not all its results are single arrays"
    if results is None:
        return "they do not say the shape of every result"
    shapes = [t.shape for t in results if t.shape is not None]
    for name in unknown_names(_shapes(schema), shapes, number_names(schema)):
        return why_unknown(name)
    if any(axis.length is None for shape in shapes for axis in shape.axes):
        return "an axis of its result has no name"
    if any(s.loop and not s.loop.name for s in shapes) and loop_name(schema) is None:
        return "'...' of its result is any shape"
    return ""


def fake_of_shapes(op: RuleTable) -> Callable[..., Any] | None:
    """Return a fake kernel from the shapes of an operator, or None if they say too little."""
    if not op.schema.has_shapes or why_no_fake(op.schema):
        return None
    return partial(_fake, op, {})


# Shape, dtype, strides and device of a fake array.
_Meta = tuple[tuple[int, ...], Any, tuple[int, ...], str]

# How many calls a fake kernel remembers.
_REMEMBERED = 256


def _fake(
    op: RuleTable, known: dict[Any, list[_Meta]], *args: Any, **keywords: Any
) -> Any:
    """Return fake results by the shapes of the arguments, and remember them."""
    values = (*args, *keywords.values())
    if made and is_symbolic_call(values):  # whose answers may be guards
        return _result(op, _metas(op, values))
    key = tuple([_mark(value) for value in values])
    metas = known.get(key)
    if metas is None:
        metas = _metas(op, values)
        if len(known) >= _REMEMBERED:
            known.clear()
        known[key] = metas
    return _result(op, metas)


def _result(op: RuleTable, metas: Sequence[_Meta]) -> Any:
    outs = [make_fake(*meta) for meta in metas]
    return tuple(outs) if op.schema.is_tuple else outs[0]


def _mark(value: Any) -> Any:
    """Return the properties of an argument on which the results depend."""
    if type(value) is FakeArray:
        return (value.shape, value.dtype, value.strides, value.device)
    if is_array(value):
        own = (tuple(value.shape), dtype_of(value))
        return (*own, tuple(strides_of(value)), device_of(value))
    if isinstance(value, int):
        return (type(value), value)
    leaves = flat(value)
    if len(leaves) == 1 and leaves[0] is value:
        return type(value)
    return tuple([_mark(leaf) for leaf in leaves])


def _metas(op: RuleTable, values: Sequence[Any]) -> list[_Meta]:
    sizes = sizes_of(op.qualname, op.schema, values)
    sizes.loops[""] = _joint_loop(op, values)
    # If all arrays broadcast along an axis, its length is 1.
    for name in _broadcast_names(op.schema):
        sizes.lengths.setdefault(name, 1)
    arrays = [leaf for value in values for leaf in flat(value) if is_array(leaf)]
    device = max(map(device_of, arrays), key=lambda name: ":" in name, default="cpu")
    return [
        _meta(op, declared, values, arrays, sizes, device)
        for declared in result_types(op.schema) or ()
    ]


def _meta(
    op: RuleTable,
    declared: ArrayType,
    values: Sequence[Any],
    arrays: Sequence[Any],
    sizes: Sizes,
    device: str,
) -> _Meta:
    assert declared.shape is not None
    try:
        shape = declared.shape.lengths(sizes.lengths, sizes.loops)
    except KeyError as error:
        raise _unknown(op, str(error.args[0])) from None
    dtype = _dtype(op.schema, declared.element, values)
    model = next((v for v in arrays if _has_shape(v, shape)), None)
    fake = (
        FakeArray(shape, dtype, device=device)
        if model is None
        else fake_like(model, dtype=dtype, device=device)
    )
    return fake.shape, fake.dtype, fake.strides, fake.device


def _has_shape(array: Any, shape: tuple[int, ...]) -> bool:
    """Return whether an array certainly has a shape."""
    own = tuple(array.shape)
    if not made or (all_plain(own) and all_plain(shape)):
        return own == shape
    return bool(sizes.same_shape(own, shape))


def _broadcast_names(schema: Schema) -> list[str]:
    axes = [axis for shape in _shapes(schema) for axis in shape.axes]
    return [a.length for a in axes if a.is_broadcast and isinstance(a.length, str)]


def _unknown(op: RuleTable, name: str) -> MissingRuleError:
    return op.error(
        MissingRuleError,
        f" has no fake kernel for a call in which no argument gives '{name}'",
        do=f"@{op.name}.register_fake, a function that returns fake_like(...)",
        kind=FAKE,
    )


def _joint_loop(op: RuleTable, values: Sequence[Any]) -> tuple[int, ...]:
    """Broadcast the axes ``...`` of all arguments together."""
    pairs = zip(op.schema.parameters, values, strict=True)
    arrays = [(v, s) for p, value in pairs for v, s in _with_shapes(value, p.type)]
    unnamed = [(v, s) for v, s in arrays if s.loop and not s.loop.name]
    parts = [tuple(v.shape)[: len(v.shape) - len(s.after)] for v, s in unnamed]
    found = broadcast(parts)
    if found is None:
        seen = ", ".join(abbreviated(v) for v, _ in unnamed)
        raise op.error(
            ShapeError,
            f"the axes '...' of {seen} do not fit together",
            do="pass arrays whose axes '...' NumPy can broadcast",
        )
    return found


def _with_shapes(value: Any, declared: SchemaType) -> list[tuple[Any, Shape]]:
    """Return the arrays of an argument whose type has a shape, and these shapes."""
    found = typed_arrays(value, declared)
    return [(v, t.shape) for _, v, t in found if t.shape is not None and is_array(v)]


# ---- dtypes of the results ----


def _dtype(schema: Schema, element: str, values: Sequence[Any]) -> Any:
    """Return the dtype that NumPy gives a result of this class of elements.

    Arguments of other classes, such as indices next to floats, do not count.
    """
    if element != "Array" and not ELEMENTS[element].kinds:
        return np.dtype(element)
    pairs = [
        (t.element, v)
        for p, value in zip(schema.parameters, values, strict=True)
        for _, v, t in typed_arrays(value, p.type)
    ]
    own = [v for e, v in pairs if e == element] or [v for _, v in pairs]
    numbers = [v for v in own if type(v) in (int, float, complex)]
    dtypes = [dtype_of(v) for v in own if is_array(v)]
    if not dtypes and not numbers:
        return np.dtype((*ELEMENTS[element].dtypes, np.float64)[0])
    return as_element(element, np.result_type(*dtypes, *numbers))


# ---- batching by the shapes in a schema: the batch is one more axis of the loop ----


def vmap_of_shapes(op: RuleTable) -> Callable[..., Any] | None:
    """Return the batching rule of an operator with a loop, or None for other operators."""
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
    """Return whether arrays in dicts, tuples or objects have the loop; these are not batched."""
    inside = [p.type for p in schema.parameters if item_shape(p.type) is None]
    shapes = [shape for t in inside for shape in shapes_in(t)]
    return any(shape.loop is not None and shape.loop.name == name for shape in shapes)


class _Step(NamedTuple):
    """The way to batch an argument that has the loop."""

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
        """Return the steps for a batch; None if an array without the loop has a batch."""
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
    """Return the axes of the loop in one row of an array."""
    shape = tuple(value.shape)
    dim = step.dim
    if dim is None:
        return shape[: len(shape) - step.behind]
    return (*shape[:dim], *shape[dim + 1 :])[: len(shape) - 1 - step.behind]


def _widened(value: Any, step: _Step, wide: tuple[int, ...]) -> Any:
    """Put the batch in front of the loop of an array."""
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
    """Batch a call with lists of arrays; see `_batch`."""
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
    """The arguments of a batched call while they are brought to one loop."""

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
        """Put the batch in front of the loop of an array; return other values unchanged."""
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
        """Return whether all results have the batch and then the axes of the loop."""
        wanted = (self.size, *self.loop)
        outs = out if isinstance(out, tuple) else (out,)
        for value, declared in zip(outs, types, strict=True):
            assert declared.shape is not None
            count = len(value.shape) - len(declared.shape.after)
            if tuple(value.shape)[:count] != wanted:
                return False
        return True
