"""Operators of functions with overloads.

mypy drops what decorates the function below its overloads, so that the name has the
overloads and no methods of an operator. The plugin reads ::

    @overload
    def f(x: A) -> A: ...
    @overload
    def f(x: B) -> B: ...
    @custom_op("ns::f", mutates_args=())
    def f(x: A | B) -> A | B: ...

as functions under another name, and ``f = custom_op("ns::f", ..., mutates_args=())``. The
operator then has the parameters of the implementation, and keeps the overloads for calls.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from mypy.nodes import (
    ARG_POS,
    AssignmentStmt,
    Block,
    CallExpr,
    Context,
    Decorator,
    Expression,
    FuncDef,
    IfStmt,
    Import,
    ImportFrom,
    MemberExpr,
    MypyFile,
    NameExpr,
    OverloadedFuncDef,
    Statement,
    Var,
)
from mypy.types import (
    CallableType,
    Instance,
    Overloaded,
    Parameters,
    Type,
    get_proper_type,
)

from customop.core.operator import Operator
from customop.errors import SchemaError
from customop.mypy.functions import Function, stand_in
from customop.mypy.hints import Unfamiliar, annotation_of, device_of
from customop.mypy.names import HIDDEN, PACKAGE, is_ours, own_name
from customop.schema.overloads import check_overload
from customop.schema.schema import Schema

if TYPE_CHECKING:
    from mypy.checker import TypeChecker

__all__ = [
    "overloads_of",
    "plain_operator",
    "split_off",
    "typed_as",
    "with_overloads",
    "wrong_overloads",
]

_ContextT = TypeVar("_ContextT", bound=Context)
_ATTRIBUTE = "__customop_overloads__"
_TYPING = ("typing", "typing_extensions")
# Imports that let a module write `overload`.
_OVERLOADS = {*_TYPING, *(f"{module}.overload" for module in _TYPING)}


# ---- the tree of a module ----


def split_off(tree: MypyFile) -> None:
    """Give the overloads of operators in a module another name."""
    if not _may_have_overloads(tree):
        return
    names = {name for statement in tree.imports for name in _spellings(statement)}
    if names:
        _split_in(tree.defs, names)


def _may_have_overloads(tree: MypyFile) -> bool:
    for statement in tree.imports:
        if isinstance(statement, Import):
            names = [module for module, _ in statement.ids]
        elif isinstance(statement, ImportFrom) and statement.id in _TYPING:
            names = [f"{statement.id}.{name}" for name, _ in statement.names]
        else:
            continue
        if not _OVERLOADS.isdisjoint(names):
            return True
    return False


def _spellings(statement: Statement) -> Iterator[str]:
    """How a module can write `custom_op` after an import."""
    if isinstance(statement, Import):
        for module, name in statement.ids:
            if module == PACKAGE:
                yield f"{name or module}.custom_op"
    elif isinstance(statement, ImportFrom) and is_ours(statement.id):
        for imported, name in statement.names:
            if imported == "custom_op":
                yield name or imported


def _split_in(body: list[Statement], names: set[str]) -> None:
    for statement in [*body]:
        for inner in _blocks(statement):
            _split_in(inner.body, names)
        made = _made(statement, names)
        if made is not None:
            body.insert(body.index(statement) + 1, made)


def _blocks(statement: Statement) -> list[Block]:
    """Blocks in which operators may be defined."""
    function = statement.func if isinstance(statement, Decorator) else statement
    if isinstance(function, FuncDef):
        return [function.body]
    if isinstance(statement, IfStmt):
        return [
            *statement.body,
            *([statement.else_body] if statement.else_body else []),
        ]
    return []


def _made(statement: Statement, names: set[str]) -> AssignmentStmt | None:
    """The assignment of the operator that is decorated below overloads."""
    if not isinstance(statement, OverloadedFuncDef):
        return None
    decorated = [part for part in statement.items if isinstance(part, Decorator)]
    if not decorated or len(decorated) < len(statement.items):
        return None
    *stubs, last = decorated
    call = last.decorators[-1] if last.decorators else None
    if not isinstance(call, CallExpr) or _spelled(call.callee) not in names:
        return None
    hidden = f"{last.name}{HIDDEN}"
    parts: list[Decorator | FuncDef] = [_renamed_stub(stub, hidden) for stub in stubs]
    parts.append(_renamed(last.func, hidden))
    statement.items[:] = statement.unanalyzed_items[:] = parts
    return _assignment(last.name, hidden, call, last)


def _renamed_stub(stub: Decorator, name: str) -> Decorator:
    var = Var(name)
    var.is_ready = stub.var.is_ready
    made = Decorator(_renamed(stub.func, name), stub.decorators, _at(stub.var, var))
    made.func.is_decorated = True
    return _at(stub, made)


# Attributes of a function beside its parameters and body.
_FLAGS = (
    *("is_generator", "is_coroutine", "is_async_generator", "is_conditional"),
    *("is_mypy_only", "docstring", "type", "unanalyzed_type"),
)


def _renamed(fn: FuncDef, name: str) -> FuncDef:
    made = FuncDef(name, fn.arguments, fn.body, type_args=fn.type_args)
    for attribute in _FLAGS:
        setattr(made, attribute, getattr(fn, attribute))
    return _at(fn, made)


def _assignment(
    name: str, hidden: str, call: CallExpr, decorated: Decorator
) -> AssignmentStmt:
    call.args.insert(1, _at(call, NameExpr(hidden)))
    call.arg_kinds.insert(1, ARG_POS)
    call.arg_names.insert(1, None)
    value: Expression = call
    for outer in reversed(decorated.decorators[:-1]):
        value = _at(outer, CallExpr(outer, [value], [ARG_POS], [None]))
    target = _at(decorated.func, NameExpr(name))
    return _at(call, AssignmentStmt([target], value))


def _at(place: Context, made: _ContextT) -> _ContextT:
    made.set_line(place)
    return made


def _spelled(expression: Expression) -> str:
    if isinstance(expression, NameExpr):
        return expression.name
    if isinstance(expression, MemberExpr):
        return f"{_spelled(expression.expr)}.{expression.name}"
    return ""


# ---- types ----


def plain_operator(mypy_type: Type) -> Type:
    """The class of an operator, where `custom_op` returns one that is for pyright."""
    proper = get_proper_type(mypy_type)
    if isinstance(proper, Instance):
        for base in proper.type.mro[1:]:
            if own_name(base.fullname) == Operator.__name__:
                return Instance(base, proper.args[:2], proper.line, proper.column)
    return mypy_type


def typed_as(mypy_type: Type, function: Function | None) -> Type:
    """The type of an operator, or of a decorator, with the types of a function as written.

    Where mypy solves type variables, Any within a type counts as a type that is not known,
    and a function with overloads, such as `numpy.sum`, then returns Any.
    """
    made = get_proper_type(mypy_type)
    if isinstance(made, CallableType):
        return made.copy_modified(ret_type=typed_as(made.ret_type, function))
    if function is None or not isinstance(made, Instance) or len(made.args) != 2:
        return mypy_type
    fn = function.type
    if fn.variables:
        return mypy_type
    taken = Parameters(fn.arg_types, fn.arg_kinds, fn.arg_names)
    return made.copy_modified(args=[taken, fn.ret_type])


def with_overloads(mypy_type: Type, overloads: Type | None) -> Type:
    """The type of an operator of a function with these overloads."""
    made, proper = get_proper_type(mypy_type), get_proper_type(overloads)
    if not isinstance(made, Instance) or not isinstance(proper, Overloaded):
        return mypy_type
    items = [
        item.copy_modified(name=(item.name or "").removesuffix(HIDDEN), definition=None)
        for item in proper.items
    ]
    return made.copy_with_extra_attr(_ATTRIBUTE, Overloaded(items))


def overloads_of(mypy_type: Type | None) -> Overloaded | None:
    """The overloads of the function of an operator, if it has any."""
    proper = get_proper_type(mypy_type)
    if not isinstance(proper, Instance) or proper.extra_attrs is None:
        return None
    kept = get_proper_type(proper.extra_attrs.attrs.get(_ATTRIBUTE))
    return kept if isinstance(kept, Overloaded) else None


# ---- checks ----


def wrong_overloads(
    api: TypeChecker, function: Function, schema: Schema
) -> Iterator[tuple[SchemaError, Function]]:
    """The errors for overloads that do not fit a schema, and these overloads."""
    for number, overload in enumerate(function.overloads, 1):
        try:
            check_overload(_stand_in(api, overload), number, schema)
        except SchemaError as error:
            yield error, overload


def _stand_in(api: TypeChecker, overload: Function) -> Callable[..., Any]:
    """A function with the annotations of an overload that have a known meaning."""
    given = [
        p.replace(annotation=_annotation(api, overload, i))
        for i, p in enumerate(overload.parameters)
    ]
    return stand_in(overload.name, given, _annotation(api, overload, -1))


def _annotation(api: TypeChecker, overload: Function, index: int) -> Any:
    hint = overload.result if index < 0 else overload.hint(index)
    if hint is None:
        return inspect.Parameter.empty
    try:
        device = device_of(overload.spelled(index), hint, api.tree.names)
        return device or annotation_of(hint, api.tree.fullname)
    except (Unfamiliar, RecursionError):
        return inspect.Parameter.empty
