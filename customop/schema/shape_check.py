"""Checks of arguments and results against the shapes in a schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from customop.arrays.array import ELEMENTS, is_element
from customop.arrays.kinds import is_array
from customop.arrays.nested import abbreviated
from customop.errors import ArgumentError, CustomOpError, SchemaError, ShapeError
from customop.schema.coerce import typed_arrays
from customop.schema.schema import Schema
from customop.schema.types import (
    ArrayType,
    Base,
    Maybe,
    SchemaType,
    shapes_in,
)
from customop.shapes.lengths import AxisFault, Sizes, known_names
from customop.shapes.sizes import Symbolic

# ---- arguments ----


def argument_fault(
    qualname: str, schema: Schema, args: Sequence[Any]
) -> CustomOpError | None:
    """Explain why arguments do not fit the shapes of a schema, or return None."""
    for seen in _arguments(schema, args):
        if not _has_element(seen):
            return schema.error(
                ArgumentError,
                qualname,
                f"argument {seen.who} expects {seen.declared}, got an array of"
                f" {seen.value.dtype}",
                do=f"pass {seen.parameter}.astype({_example(seen.declared.element)})",
                parameter=seen.parameter,
            )
    try:
        sizes = sizes_of(qualname, schema, args)
    except ShapeError as error:
        return error
    why = sizes.negative(shape for r in schema.returns for shape in shapes_in(r.type))
    if not why:
        return None
    return schema.error(
        ShapeError,
        qualname,
        f"these arguments would give a result {why}",
        do="pass arguments for which no length of a result is negative",
    )


def _misshapen(
    qualname: str, schema: Schema, arrays: Sequence[Seen], fault: AxisFault
) -> ShapeError:
    (parameter,) = {seen.parameter for seen in arrays if seen.who == fault.who}
    shown = ", ".join(f"{seen.who} is {abbreviated(seen.value)}" for seen in arrays[:6])
    return schema.error(
        ShapeError,
        qualname,
        f"argument {fault.who} {fault.reason}",
        shown,
        do=fault.do,
        parameter=parameter,
    )


def _has_element(seen: Seen) -> bool:
    return is_element(seen.declared.element, seen.value.dtype)


def _example(element: str) -> str:
    """Write an example of a dtype of a class of elements."""
    row = ELEMENTS[element]
    name = row.dtypes[0].__name__ if row.kinds else f'"{element}"'
    return f"np.{name}" if row.kinds not in ("", "b") else name


# ---- results ----


def check_results(schema: Schema, args: Sequence[Any], values: Sequence[Any]) -> str:
    """Explain why results do not fit their shapes and the arguments, or nothing."""
    found = zip(schema.returns, values, strict=True)
    pairs = [(f"output {i}", v, r.type) for i, (r, v) in enumerate(found)]
    arrays = [seen for pair in pairs for seen in _seen(*pair, "")]
    for seen in arrays:
        if not _has_element(seen):
            return f"{seen.who} of {seen.value.dtype}, must be {seen.declared}"
    sizes = _bind(Sizes(_numbers(schema, args)), list(_arguments(schema, args)))
    try:
        _bind(sizes, arrays)
    except AxisFault as fault:
        return f"{fault.who} that {fault.reason}"
    return ""


# ---- definitions ----


def check_definition(qualname: str, schema: Schema) -> None:
    """Raise unless the shapes of a schema can be checked.

    Raises
    ------
    SchemaError
        If a sum has names whose lengths do not follow from other axes.
    """
    if not schema.has_shapes:
        return
    arrays = [(p.name, shape) for p in schema.parameters for shape in shapes_in(p.type)]
    _, waiting = known_names([shape for _, shape in arrays], number_names(schema))
    if waiting:
        index, axis = waiting[0]
        name = arrays[index][0]
        raise schema.error(
            SchemaError,
            qualname,
            f"the length '{axis}' of '{name}' has names that no other axis fixes",
            do="write each name as an axis too, or add an int parameter of that name",
            parameter=name,
        )


def number_names(schema: Schema) -> list[str]:
    """Return the names of the parameters that are lengths for shapes to name."""
    return [p.name for p in schema.parameters if is_number(p.type)]


# ---- arrays with a shape, and the lengths of its names ----


class Seen(NamedTuple):
    """An array among arguments or results: its name in messages, and its type."""

    who: str
    value: Any
    declared: ArrayType
    parameter: str


def _seen(who: str, value: Any, declared: SchemaType, parameter: str) -> Iterator[Seen]:
    """Return the arrays in a value that have a shape in their type."""
    for where, v, array_type in typed_arrays(value, declared):
        if array_type.shape is not None and is_array(v):
            yield Seen(f"{who}{where}", v, array_type, parameter)


def _arguments(schema: Schema, args: Sequence[Any]) -> Iterator[Seen]:
    for p, value in zip(schema.parameters, args, strict=True):
        yield from _seen(f"'{p.name}'", value, p.type, p.name)


def _numbers(schema: Schema, args: Sequence[Any]) -> dict[str, int]:
    """Return the whole numbers among the arguments, which shapes can name."""
    return {
        p.name: value
        for p, value in zip(schema.parameters, args, strict=True)
        if (type(value) is int or _is_size(value)) and is_number(p.type)
    }


def _is_size(value: Any) -> bool:
    return isinstance(value, Symbolic)  # the coercion to int has left only these


def is_number(declared: SchemaType) -> bool:
    """Return whether a parameter of this type is a length that shapes can name."""
    return (declared.item if isinstance(declared, Maybe) else declared) == Base("int")


def _bind(sizes: Sizes, arrays: Sequence[Seen]) -> Sizes:
    for seen in arrays:
        assert seen.declared.shape is not None
        sizes.add(seen.who, seen.declared.shape, tuple(seen.value.shape))
    sizes.settle()
    return sizes


def sizes_of(qualname: str, schema: Schema, args: Sequence[Any]) -> Sizes:
    """Return the lengths of the names in a schema, from the arguments of a call.

    Raises
    ------
    ShapeError
        If the arguments do not fit their shapes.
    """
    arrays = list(_arguments(schema, args))
    try:
        return _bind(Sizes(_numbers(schema, args)), arrays)
    except AxisFault as fault:
        raise _misshapen(qualname, schema, arrays, fault) from None
