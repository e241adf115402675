"""Types of the parameters and the result of a kernel, against the operator's.

Arrays may be of any class, since a kernel is for one kind of them; all else must fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

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
from customop.mypy.hints import is_array

if TYPE_CHECKING:
    from mypy.checker import TypeChecker

__all__ = ["Types", "misfit"]

_ANY = AnyType(TypeOfAny.special_form)
_NUMBERS = ("int", "float", "bool", "complex", "str")
_PLAIN = tuple(f"builtins.{name}" for name in _NUMBERS)
# Aliases for what kernels get as one class, whatever the call was given.
_COERCED = ("DTypeLike", "DType")
_LISTS = ("builtins.list", "builtins.tuple", "typing.Sequence")


class Types:
    """Types as far as a kernel must have those of its operator."""

    def __init__(self, api: TypeChecker) -> None:
        self._api = api
        self._array = _class_of_arrays(api)

    def erased(self, kind: Type) -> Type:
        """A type with one class for all arrays, and Any for what may be one."""
        alias = kind.alias if isinstance(kind, TypeAliasType) else None
        if alias is not None and alias.name in _COERCED:
            return _ANY
        proper = get_proper_type(kind)
        if isinstance(proper, TypeVarType):
            return _ANY if proper.values else self.erased(proper.upper_bound)
        if isinstance(proper, UnionType):
            return UnionType.make_union([self.erased(item) for item in proper.items])
        if isinstance(proper, TupleType):
            return proper.copy_modified(items=[self.erased(i) for i in proper.items])
        if isinstance(proper, NoneType):
            return proper
        return self._erased_class(proper) if isinstance(proper, Instance) else _ANY

    def _erased_class(self, kind: Instance) -> Type:
        if is_array(kind.type):
            return self._array
        if kind.type.fullname in _PLAIN:
            return Instance(kind.type, [])
        if kind.type.fullname in _LISTS and kind.args:
            item = self.erased(kind.args[0])
            return self._api.named_generic_type("builtins.tuple", [item])
        return _ANY

    def fits(self, given: Type, taken: Type) -> bool:
        """Whether all of one type can stand where the other is taken."""
        return is_subtype(self.erased(given), self.erased(taken))


def _class_of_arrays(api: TypeChecker) -> Type:
    module = api.modules.get("customop")
    symbol = None if module is None else module.names.get("Array")
    node = None if symbol is None else symbol.node
    return Instance(node, []) if isinstance(node, TypeInfo) else _ANY


def misfit(api: TypeChecker, op: Type, what: str, function: Function, skip: int) -> str:
    """How a kernel's types differ from those of its operator, or nothing.

    The first `skip` parameters are none of the operator's.
    """
    taken = get_proper_type(op)
    if not isinstance(taken, Instance) or len(taken.args) != 2:
        return ""
    types = Types(api)
    theirs = get_proper_type(taken.args[0])
    if isinstance(theirs, Parameters) and not theirs.is_ellipsis_args:
        for name, given, hint in _pairs(theirs, function, skip):
            if not types.fits(given, hint):
                mine, other = _shown(api, hint), _shown(api, given)
                return f"{what} takes '{name}' as {mine}, the operator as {other}"
    result = function.result
    if skip or result is None or types.fits(result, taken.args[1]):
        return ""
    mine, other = _shown(api, result), _shown(api, taken.args[1])
    return f"{what} returns {mine}, the operator {other}"


def _pairs(
    theirs: Parameters, function: Function, skip: int
) -> Iterator[tuple[str, Type, Type]]:
    """Name of a parameter, its type and the type that a kernel gives it."""
    names = [p.name for p in function.parameters]
    for index, (kind, name) in enumerate(
        zip(theirs.arg_kinds, theirs.arg_names, strict=True)
    ):
        at = names.index(name) if kind.is_named() and name in names else index + skip
        if kind.is_star() or at >= len(names):
            continue
        if function.type.arg_kinds[at].is_positional() is kind.is_named():
            continue
        hint = function.hint(at)
        if hint is not None:
            yield names[at], theirs.arg_types[index], hint


def _shown(api: TypeChecker, kind: Type) -> str:
    return format_type(kind, api.options)
