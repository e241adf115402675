"""Fake kernels from the shapes in a schema.

A loop is any number of axes at the front, ``...`` or ``*batch``, followed by named axes.
As with a gufunc of NumPy, the kernel treats each row of the loop separately.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from customop.arrays.describe import abbreviated
from customop.arrays.dtypes import ELEMENTS, as_element, dtype_of
from customop.arrays.fake import FakeArray, fake_like, is_symbolic_call, make_fake
from customop.arrays.kinds import FAKE, device_of, is_array
from customop.arrays.nested import flat
from customop.arrays.strides import all_plain, strides_of
from customop.core.table import RuleTable
from customop.errors import MissingRuleError, ShapeError
from customop.later import later
from customop.schema.fit import typed_arrays
from customop.schema.schema import Schema
from customop.schema.shape_check import number_names, sizes_of
from customop.schema.types import (
    ArrayType,
    SchemaType,
    shapes_in,
)
from customop.shapes.notation import Shape
from customop.shapes.solve import Sizes, broadcast, unknown_names, why_unknown
from customop.shapes.symbols import made

sizes: ModuleType = later(import_module, "customop.shapes.sizes")

__all__ = ["derive_fake", "loop_name", "result_types", "why_no_fake"]


def _shapes(schema: Schema) -> list[Shape]:
    """Shapes of all arrays among the parameters."""
    return [shape for p in schema.parameters for shape in shapes_in(p.type)]


def result_types(schema: Schema) -> list[ArrayType] | None:
    """Types of the results if all are arrays with a shape, otherwise None."""
    types = [r.type for r in schema.returns]
    found = [t for t in types if isinstance(t, ArrayType) and t.shape is not None]
    return found if found and len(found) == len(types) else None


def loop_name(schema: Schema) -> str | None:
    """Name of the loop of an operator, empty for ``...``; None without a loop.

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
    """Why the shapes of a schema give no fake kernel; empty if they do."""
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


def derive_fake(op: RuleTable) -> Callable[..., Any] | None:
    """A fake kernel from the shapes of an operator, or None if they say too little."""
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
    """Fake results by the shapes of the arguments, remembered for the next such call."""
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
    """The properties of an argument that the results depend on."""
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
    """Whether an array certainly has a shape."""
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
    """The axes ``...`` of all arguments, broadcast together."""
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
    """Arrays of an argument that have a shape in their type."""
    found = typed_arrays(value, declared)
    return [(v, t.shape) for _, v, t in found if t.shape is not None and is_array(v)]


# ---- dtypes of the results ----


def _dtype(schema: Schema, element: str, values: Sequence[Any]) -> Any:
    """The dtype that NumPy gives a result of this class of elements.

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
