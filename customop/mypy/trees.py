"""Looking things up in the source of the module that mypy reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mypy.nodes import (
    AssignmentStmt,
    Block,
    CallExpr,
    ClassDef,
    Decorator,
    Expression,
    ExpressionStmt,
    ForStmt,
    FuncDef,
    FuncItem,
    IfStmt,
    Import,
    ImportAll,
    ImportBase,
    ImportFrom,
    MatchStmt,
    MemberExpr,
    MypyFile,
    NameExpr,
    Node,
    OverloadedFuncDef,
    RefExpr,
    Statement,
    TryStmt,
    WhileStmt,
    WithStmt,
)
from mypy.util import correct_relative_import

from customop.mypy.constants import constant_or
from customop.mypy.names import own_name

__all__ = [
    "Decorators",
    "attributes_set",
    "definitions",
    "imported_names",
    "may_have_fake",
    "statements",
]


def _blocks(statement: Statement) -> list[Block | None]:
    """The blocks that a statement is made of."""
    if isinstance(statement, Block):
        return [statement]
    if isinstance(statement, IfStmt):
        return [*statement.body, statement.else_body]
    if isinstance(statement, ForStmt | WhileStmt):
        return [statement.body, statement.else_body]
    if isinstance(statement, WithStmt):
        return [statement.body]
    if isinstance(statement, TryStmt):
        ends = [statement.else_body, statement.finally_body]
        return [statement.body, *statement.handlers, *ends]
    return list(statement.bodies) if isinstance(statement, MatchStmt) else []


def statements(block: list[Statement]) -> Iterator[Statement]:
    """All statements of a function or a module, not those of functions within."""
    for statement in block:
        yield statement
        for inner in _blocks(statement):
            if inner is not None:
                yield from statements(inner.body)


def _everywhere(block: list[Statement]) -> Iterator[Statement]:
    """All statements, those within functions and classes too."""
    for statement in statements(block):
        yield statement
        if isinstance(statement, Decorator):
            yield from _everywhere(statement.func.body.body)
        elif isinstance(statement, FuncDef):
            yield from _everywhere(statement.body.body)
        elif isinstance(statement, ClassDef):
            yield from _everywhere(statement.defs.body)
        elif isinstance(statement, OverloadedFuncDef):
            items: list[Any] = list(statement.items)
            yield from _everywhere(items)


def attributes_set(tree: MypyFile, fn: FuncDef) -> Iterator[str]:
    """Names of the attributes of a function that are assigned to."""
    for statement in _everywhere(tree.defs):
        if not isinstance(statement, AssignmentStmt):
            continue
        for target in statement.lvalues:
            if not isinstance(target, MemberExpr):
                continue
            if isinstance(target.expr, RefExpr) and target.expr.node is fn:
                yield target.name


class Decorators:
    """The decorated functions of the module that is read, by their decorators."""

    def __init__(self) -> None:
        self._tree: MypyFile | None = None
        self._known: dict[int, tuple[Expression, Decorator]] = {}

    def find(self, tree: MypyFile, call: Expression) -> Decorator | None:
        """The function that stands under a decorator."""
        found = self._known.get(id(call)) if tree is self._tree else None
        if found is None or found[0] is not call:
            self._read(tree)  # another module, or the daemon has read this one anew
            found = self._known.get(id(call))
        return None if found is None else found[1]

    def _read(self, tree: MypyFile) -> None:
        self._tree = tree
        self._known = {
            id(decorator): (decorator, decorated)
            for decorated in _everywhere(tree.defs)
            if isinstance(decorated, Decorator)
            for decorator in decorated.original_decorators
        }


# ---- definitions that nothing guards ----

_DEFINING = ("custom_op", "define")


def definitions(tree: MypyFile) -> dict[str, list[Expression]]:
    """Qualified name -> the calls that define it whenever the module is imported."""
    found: dict[str, list[Expression]] = {}
    for statement in tree.defs:
        for call in _calls(statement):
            if (
                isinstance(call.callee, RefExpr)
                and own_name(call.callee.fullname) in _DEFINING
            ):
                name = constant_or(call.args[0], None) if call.args else None
                found.setdefault(str(name), []).append(call)
    return found


def _calls(statement: Statement) -> Iterator[CallExpr]:
    """Calls of a statement, with those that chained ones begin with."""
    expressions: list[Expression] = []
    if isinstance(statement, Decorator):
        expressions = statement.original_decorators
    elif isinstance(statement, AssignmentStmt):
        expressions = [statement.rvalue]
    elif isinstance(statement, ExpressionStmt):
        expressions = [statement.expr]
    for expression in expressions:
        yield from _chained(expression)


def _chained(expression: Expression) -> Iterator[CallExpr]:
    while isinstance(expression, CallExpr | MemberExpr):
        if isinstance(expression, CallExpr):
            yield expression
            expression = expression.callee
        else:
            expression = expression.expr


def imported_names(tree: MypyFile, statement: ImportBase) -> list[str]:
    """Names of the modules that an import statement may import."""
    if isinstance(statement, Import):
        return [name for name, _ in statement.ids]
    if not isinstance(statement, ImportFrom | ImportAll):
        return []
    package, _ = correct_relative_import(
        tree.fullname, statement.relative, statement.id, tree.is_package_init_file()
    )
    names = statement.names if isinstance(statement, ImportFrom) else []
    return [package, *(f"{package}.{name}" for name, _ in names)]


# ---- fake kernels ----


# Names of what registers one, or may do so.
_REGISTERING = ("register_fake", "impl")


def may_have_fake(tree: MypyFile, fn: FuncItem | None) -> bool:
    """Whether a module may register a fake kernel for an operator made of a function.

    Only what is written as that of another function's operator is known to be none.
    """
    return any(_may_be_of(found, fn) for found in _named(tree, _REGISTERING))


# Attributes in which statements and expressions have expressions.
_WITHIN = (
    *("expr", "callee", "args", "base", "index", "items", "left", "right", "rvalue"),
    *("if_expr", "else_expr", "generator", "left_expr", "sequences"),
    "original_decorators",
)


def _named(tree: MypyFile, names: tuple[str, ...]) -> Iterator[NameExpr | MemberExpr]:
    """Uses of names, and of attributes of these names, anywhere in a module."""
    waiting: list[Any] = list(_everywhere(tree.defs))
    while waiting:
        node = waiting.pop()
        if isinstance(node, list | tuple):
            waiting.extend(node)
        elif isinstance(node, Node):
            if isinstance(node, NameExpr | MemberExpr) and node.name in names:
                yield node
            waiting += [getattr(node, within, None) for within in _WITHIN]


def _may_be_of(use: NameExpr | MemberExpr, fn: FuncItem | None) -> bool:
    op = use.expr if isinstance(use, MemberExpr) else None
    node = op.node if isinstance(op, RefExpr) else None
    return not isinstance(node, Decorator) or fn is None or node.func is fn
