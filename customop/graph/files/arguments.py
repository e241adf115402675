"""Arguments of calls that come from a file, against the schema of the operator.

A kernel in C may rely on the classes of its arguments, and the code of a graph does not
check them again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from customop.arrays.describe import show
from customop.core.table import RuleTable
from customop.errors import GraphFileError
from customop.graph.node import Node
from customop.schema.fit import Mismatch, NestedType, Visitor
from customop.schema.parameters import MISSING, Parameter
from customop.schema.types import (
    ArrayType,
    Base,
    Choice,
    ClassOf,
    DictOf,
    ListOf,
    SchemaType,
    TupleOf,
)
from customop.shapes.sym_bool import SymBool
from customop.shapes.symbolic import SymFloat, SymInt

__all__ = ["check_arguments"]

# Name of a type without parts -> the classes of its values in graphs.
_CLASSES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float,),
    "bool": (bool,),
    "complex": (complex,),
    "str": (str,),
    "Scalar": (int, float, bool, complex),
    "dtype": (np.dtype,),
    "device": (str,),
}
# Name of a type -> the symbolic numbers that fit it.
_SYMBOLIC: dict[str, tuple[type, ...]] = {
    "int": (SymInt,),
    "float": (SymInt, SymFloat),
    "complex": (SymInt, SymFloat),
    "Scalar": (SymInt, SymFloat, SymBool),
    "bool": (SymBool,),
}


def check_arguments(
    op: RuleTable, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Raise unless a call has values of the right types for all its parameters."""
    schema = op.schema
    if len(args) > len(schema.positional):
        raise GraphFileError(
            f"a call of {op.qualname} has {len(args)} arguments",
            schema.show(op.qualname),
            op=op.qualname,
        )
    given = dict(zip((p.name for p in schema.positional), args, strict=False))
    known = {p.name for p in schema.keyword_only}
    for name, value in kwargs.items():
        if name not in known:
            raise GraphFileError(
                f"a call of {op.qualname} has the keyword {name!r}",
                schema.show(op.qualname),
                op=op.qualname,
            )
        given[name] = value
    for p in schema.parameters:
        reason = _reason(p, given)
        if reason:
            raise GraphFileError(
                f"a call of {op.qualname} has a wrong '{p.name}': it {reason}",
                schema.show(op.qualname, p.name),
                op=op.qualname,
                parameter=p.name,
            )


def _reason(p: Parameter, given: Mapping[str, Any]) -> str:
    if p.name not in given:
        return "is missing" if p.default is MISSING else ""
    return _FITS.fault(given[p.name], p.type)


class _Fits(Visitor):
    """Checks values that are not coerced any more, with nodes in the places of arrays."""

    def base(self, value: Any, declared: Base) -> Any:
        classes = _CLASSES.get(declared.name)
        if type(value) is Node or classes is None:
            return value  # a generator, or a type of another part of the package
        if isinstance(value, np.dtype) and declared.name == "dtype":
            return value
        if type(value) not in (*classes, *_SYMBOLIC.get(declared.name, ())):
            raise Mismatch(f"expects {declared}, got {show(value)}")
        return value

    def array(self, value: Any, declared: ArrayType) -> Any:
        if type(value) is not Node and not isinstance(value, _NUMBERS):
            raise Mismatch(f"expects {declared}, got {show(value)}")
        return value

    def choice(self, value: Any, declared: Choice) -> Any:
        if value not in declared.options or type(value) not in _CLASSES[declared.name]:
            raise Mismatch(f"expects {declared}, got {show(value)}")
        return value

    def member(self, value: Any, declared: ClassOf) -> Any:
        if not isinstance(value, declared.cls):
            raise Mismatch(f"expects {declared}, got {show(value)}")
        return value

    def open(self, value: Any, declared: NestedType) -> Any:
        if not _is_open(value, declared):
            raise Mismatch(f"expects {declared}, got {show(value)}")
        return value


_FITS: Visitor = _Fits()
_NUMBERS = (int, float, complex, SymInt, SymFloat, SymBool)


def _is_open(value: Any, declared: SchemaType) -> bool:
    """Whether a value can be taken apart as its type says."""
    if isinstance(declared, ListOf):
        is_long = (
            declared.length not in (None, len(value)) if _is_sequence(value) else 0
        )
        return _is_sequence(value) and not is_long
    if isinstance(declared, TupleOf):
        return type(value) is tuple and len(value) == len(declared.items)
    if isinstance(declared, DictOf):
        return type(value) is dict and all(type(key) is str for key in value)
    assert isinstance(declared, ClassOf)
    if not declared.fields.is_dict:
        return isinstance(value, declared.cls)
    return (
        type(value) is dict
        and declared.items.keys() >= value.keys() >= declared.fields.required
    )


def _is_sequence(value: Any) -> bool:
    return type(value) in (list, tuple)
