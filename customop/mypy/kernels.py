"""Types and shapes of a kernel's parameters and result, against the operator's.

A kernel may name any class of arrays, since it is for one kind of them. The other types
must take what the operator takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from mypy.messages import format_type
from mypy.nodes import TypeInfo
from mypy.subtypes import is_subtype
from mypy.types import (
    AnyType,
    Instance,
    NoneType,
    Parameters,
    TupleType,
    Type,
    TypeAliasType,
    TypeOfAny,
    TypeVarType,
    UnionType,
    get_proper_type,
)

from customop.mypy.functions import Function
from customop.mypy.hints import SEQUENCES, is_array
from customop.mypy.records import array_shape
from customop.schema.schema import Schema
from customop.schema.types import SchemaType
from customop.shapes.notation import Axis, Length, Loop, Shape, names_in

if TYPE_CHECKING:
    from mypy.checker import TypeChecker

__all__ = ["OtherShape", "other_shape", "other_type"]

_ANY = AnyType(TypeOfAny.special_form)
_PLAIN = tuple(f"builtins.{n}" for n in ("int", "float", "bool", "complex", "str"))
# A kernel gets the values of these aliases as one class, whatever the call passes.
_COERCED = ("DTypeLike", "DType")


class _Types:
    """Types as far as a kernel must have those of its operator."""

    def __init__(self, api: TypeChecker) -> None:
        self._api = api
        self._array = _class_of_arrays(api)

    def fits(self, given: Type, taken: Type) -> bool:
        """Whether a value of one type can be passed where the other is taken."""
        return is_subtype(self._erased(given), self._erased(taken))

    def _erased(self, mypy_type: Type) -> Type:
        """A type with one class for all arrays, and Any for a type that may be one."""
        alias = mypy_type.alias if isinstance(mypy_type, TypeAliasType) else None
        if alias is not None and alias.name in _COERCED:
            return _ANY
        proper = get_proper_type(mypy_type)
        if isinstance(proper, TypeVarType):
            return _ANY if proper.values else self._erased(proper.upper_bound)
        if isinstance(proper, UnionType):
            return UnionType.make_union([self._erased(item) for item in proper.items])
        if isinstance(proper, TupleType):
            return proper.copy_modified(items=[self._erased(i) for i in proper.items])
        if isinstance(proper, NoneType):
            return proper
        return self._erased_class(proper) if isinstance(proper, Instance) else _ANY

    def _erased_class(self, proper: Instance) -> Type:
        if is_array(proper.type):
            return self._array
        if proper.type.fullname in _PLAIN:
            return Instance(proper.type, [])
        if proper.type.fullname in SEQUENCES and proper.args:
            item = self._erased(proper.args[0])
            return self._api.named_generic_type("builtins.tuple", [item])
        return _ANY


def _class_of_arrays(api: TypeChecker) -> Type:
    package = api.modules.get("customop")
    symbol = None if package is None else package.names.get("Array")
    node = None if symbol is None else symbol.node
    return Instance(node, []) if isinstance(node, TypeInfo) else _ANY


def other_type(
    api: TypeChecker, op: Type | None, function: Function, leading: int
) -> str:
    """How a function's types differ from those of its operator, or nothing.

    The first `leading` parameters are not among the operator's.
    """
    proper = get_proper_type(op)
    if not isinstance(proper, Instance) or len(proper.args) != 2:
        return ""
    types = _Types(api)
    taken, gives = get_proper_type(proper.args[0]), proper.args[1]
    if isinstance(taken, Parameters) and not taken.is_ellipsis_args:
        for name, given, hint in _pairs(taken, function, leading):
            if not types.fits(given, hint):
                mine, its = (
                    format_type(hint, api.options),
                    format_type(given, api.options),
                )
                return f"takes '{name}' as {mine}, the operator as {its}"
    result = function.result
    if leading or result is None or types.fits(result, gives):
        return ""
    mine, its = format_type(result, api.options), format_type(gives, api.options)
    return f"returns {mine}, the operator {its}"


def _pairs(
    taken: Parameters, function: Function, leading: int
) -> Iterator[tuple[str, Type, Type]]:
    """Name of a parameter, its type, and the type that the function gives it."""
    names = [p.name for p in function.parameters]
    for index, (parameter_kind, name) in enumerate(
        zip(taken.arg_kinds, taken.arg_names, strict=True)
    ):
        is_named = parameter_kind.is_named() and name in names
        at = names.index(name) if is_named else index + leading  # type: ignore[arg-type]  # a str
        if parameter_kind.is_star() or at >= len(names):
            continue
        if function.type.arg_kinds[at].is_positional() is parameter_kind.is_named():
            continue
        hint = function.hint(at)
        if hint is not None:
            yield names[at], taken.arg_types[index], hint


# ---- shapes ----


class OtherShape(NamedTuple):
    """A shape of a kernel that differs from the operator's."""

    name: str
    mine: str
    its: str


def other_shape(schema: Schema, types: Mapping[str, SchemaType]) -> OtherShape | None:
    """The first shape of a kernel's annotations that differs from the operator's.

    A kernel may choose the names of axes, except those of parameters, and leave shapes
    out.
    """
    declared = {p.name: p.type for p in schema.parameters}
    axes = _Axes({*declared})
    if len(schema.returns) == 1:
        declared["return"] = schema.returns[0].type
    for name, its_type in declared.items():
        mine, its = array_shape(types.get(name)), array_shape(its_type)
        if mine is not None and its is not None and not axes.agree(mine, its):
            return OtherShape(name, mine.text, its.text)
    return None


class _Axes:
    """Names of axes in a kernel, and the operator's names of the same axes."""

    def __init__(self, parameters: set[str]) -> None:
        self._parameters = parameters
        self._known: dict[str, str] = {}

    def agree(self, mine: Shape, its: Shape) -> bool:
        """Whether a kernel's shape takes everything that the operator's does."""
        if mine.loop is not None and not mine.axes:
            return True
        pairs = zip(mine.entries, its.entries, strict=False)
        same = len(mine.entries) == len(its.entries)
        return same and all(self._agree_on(*pair) for pair in pairs)

    def _agree_on(self, mine: Axis | Loop, its: Axis | Loop) -> bool:
        if isinstance(mine, Loop) or isinstance(its, Loop):
            return isinstance(mine, Loop) and isinstance(its, Loop)
        if mine.length is None or its.length is None:
            return mine.length is None
        if mine.is_broadcast is not its.is_broadcast:
            return False
        return self._same(mine.length, its.length)

    def _same(self, mine: Length, its: Length) -> bool:
        if isinstance(mine, str) and isinstance(its, str):
            if {mine, its} & self._parameters:
                return mine == its
            is_new = mine not in self._known and its not in self._known.values()
            if is_new:
                self._known[mine] = its
            return self._known.get(mine) == its
        if isinstance(mine, tuple) and isinstance(its, tuple):
            # A sum may be written in any order, so only the names are compared.
            return len({*names_in(mine)}) == len({*names_in(its)})
        return mine == its
