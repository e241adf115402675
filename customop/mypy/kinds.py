"""Calls with arrays of the kinds that have a kernel, where the operator names ndarray."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy.nodes import (
    CallExpr,
    Decorator,
    FuncItem,
    MemberExpr,
    NameExpr,
    RefExpr,
    TypeInfo,
    Var,
)
from mypy.types import (
    AnyType,
    CallableType,
    Instance,
    TupleType,
    Type,
    TypeOfAny,
    TypeVarId,
    TypeVarType,
    UnionType,
    get_proper_type,
)

from customop.arrays.kinds import FAKE
from customop.mypy.constants import constant_or
from customop.mypy.names import own_name
from customop.mypy.trees import Survey, defined_by

if TYPE_CHECKING:
    from mypy.checker import TypeChecker

__all__ = ["registered_kinds", "with_kinds"]

# Kind of array -> the module and the name of its class.
_CLASSES = {"cuda": ("cupy", "ndarray"), FAKE: ("customop", "FakeArray")}


def registered_kinds(survey: Survey, fn: FuncItem | None, qualname: str) -> list[str]:
    """Kinds for which the module of an operator registers a kernel."""
    found = [
        kind
        for use in survey.registering_kernels
        if _is_for(use, survey, fn, qualname)
        for kind in _kinds_of(use)
    ]
    return sorted({kind for kind in found if kind in _CLASSES})


def _is_for(
    use: CallExpr | MemberExpr, survey: Survey, fn: FuncItem | None, qualname: str
) -> bool:
    callee = use.callee if isinstance(use, CallExpr) else use
    owner = callee.expr if isinstance(callee, MemberExpr) else None
    given = [owner, *use.args[:1]] if isinstance(use, CallExpr) else [owner]
    for expression in given:
        node = expression.node if isinstance(expression, RefExpr) else None
        if isinstance(node, Decorator) and node.func is fn:
            return True
        # The full name of a variable within a function has no dots.
        if isinstance(node, Var) and node.fullname != node.name:
            values = survey.assigned(node.name)
            if any(qualname in defined_by(value) for value in values):
                return True
    return len(given) > 1 and constant_or(given[1], None) == qualname


def _kinds_of(use: CallExpr | MemberExpr) -> list[str]:
    callee = use.callee if isinstance(use, CallExpr) else use
    if isinstance(callee, NameExpr | MemberExpr) and callee.name == "register_fake":
        return [FAKE]
    values = [constant_or(item, None) for item in getattr(use, "args", [])[:2]]
    names = [item for value in values for item in _listed(value)]
    return [name for name in names if isinstance(name, str)]


def _listed(value: object) -> list[object]:
    return [*value] if isinstance(value, list | tuple) else [value]


def with_kinds(
    api: TypeChecker, called: CallableType, kinds: tuple[str, ...]
) -> CallableType:
    """The type of a call that takes arrays of other kinds too, all of the same kind."""
    infos = [_class_of(api, kind) for kind in kinds]
    others = [
        Instance(info, [AnyType(TypeOfAny.special_form)] * len(info.type_vars))
        for info in infos
        if info is not None
    ]
    if not others:
        return called
    arrays = _Arrays(api, others)
    given = [arrays.replaced(item) for item in called.arg_types]
    result = arrays.replaced(called.ret_type)
    variables = [*called.variables, *arrays.variables.values()]
    return called.copy_modified(arg_types=given, ret_type=result, variables=variables)


def _class_of(api: TypeChecker, kind: str) -> TypeInfo | None:
    module, name = _CLASSES[kind]
    tree = api.modules.get(module)
    symbol = None if tree is None else tree.names.get(name)
    node = None if symbol is None else symbol.node
    return node if isinstance(node, TypeInfo) else None


class _Arrays:
    """A type variable for each type of ndarrays: that type, or one of other classes."""

    def __init__(self, api: TypeChecker, others: list[Instance]) -> None:
        self._api = api
        self._others = others
        self.variables: dict[str, TypeVarType] = {}

    def replaced(self, mypy_type: Type) -> Type:
        """A type with variables for the ndarrays in it."""
        proper = get_proper_type(mypy_type)
        if isinstance(proper, UnionType):
            return UnionType.make_union([self.replaced(item) for item in proper.items])
        if isinstance(proper, TupleType):
            return proper.copy_modified(items=[self.replaced(i) for i in proper.items])
        if not isinstance(proper, Instance):
            return mypy_type
        if proper.type.fullname == "numpy.ndarray":
            return self._variable(proper)
        if proper.args and not own_name(proper.type.fullname):
            return proper.copy_modified(args=[self.replaced(i) for i in proper.args])
        return mypy_type

    def _variable(self, array: Instance) -> TypeVarType:
        text = str(array)
        if text not in self.variables:
            number = len(self.variables) + 1
            self.variables[text] = TypeVarType(
                f"Arrays{number}",
                f"Arrays{number}",
                TypeVarId(-1000 - number),
                [array, *self._others],
                self._api.named_type("builtins.object"),
                AnyType(TypeOfAny.from_omitted_generics),
            )
        return self.variables[text]
