"""Searches the source of the module that mypy checks."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from mypy.nodes import (
    AssignmentStmt,
    CallExpr,
    ClassDef,
    Context,
    Decorator,
    Expression,
    ExpressionStmt,
    FuncDef,
    FuncItem,
    Import,
    ImportAll,
    ImportBase,
    ImportFrom,
    MemberExpr,
    MypyFile,
    NameExpr,
    Node,
    OverloadedFuncDef,
    RefExpr,
    ReturnStmt,
    Statement,
    StrExpr,
    SymbolNode,
    TypeAliasStmt,
)
from mypy.util import correct_relative_import

from customop.mypy.constants import constant_or
from customop.mypy.names import DEFINING, own_name

__all__ = [
    "SourceOfFunction",
    "Survey",
    "Surveys",
    "defined_by",
    "imported_names",
    "returned_by",
]

SourceOfFunction = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

# Functions and methods that register a fake kernel, or can.
_REGISTERING = ("register_fake", "impl")
_OF_KERNELS = ("register_kernel", "register_fake")
# Those that register a gradient, or can.
_WITH_GRADIENT = (
    *("register_autograd", "register_jvp", "register", "impl", "fallback"),
    *("register_numpy_function", "add", "import_module", "exec"),
)


# Attributes of statements and expressions that hold others.
_WITHIN = (
    *("body", "else_body", "handlers", "finally_body", "bodies", "defs", "func"),
    *("expr", "callee", "args", "base", "index", "items", "left", "right", "rvalue"),
    *("if_expr", "else_expr", "generator", "left_expr", "sequences", "value"),
    *("operands", "original_decorators"),
)
_INNER = (ClassDef, Decorator, FuncItem, OverloadedFuncDef)


@cache
def _attributes_of(cls: type) -> list[str]:
    return [name for name in _WITHIN if hasattr(cls, name)]


def _nodes(root: Any, leave_out: tuple[type, ...] = ()) -> Iterator[Node]:
    """Statements and expressions at any depth; mypy's visitors cannot be subclassed."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list | tuple):
            waiting.extend(node)
        elif isinstance(node, Node) and not isinstance(node, leave_out):
            yield node
            cls: Any = type(node)
            waiting += [getattr(node, name) for name in _attributes_of(cls)]


class Survey:
    """Decorators, assignments and definitions of operators of one module.

    Attributes
    ----------
    definitions : dict
        Qualified name -> the calls that define it whenever the module is imported.
    """

    def __init__(self, tree: MypyFile) -> None:
        self._statements = tree.defs
        self._path = tree.path
        self.definitions = _definitions(tree)
        self._decorated: dict[Expression, Decorator] = {}
        # Functions and the names of their attributes that are assigned.
        self._attributes: set[tuple[object, str]] = set()
        self._registering: list[NameExpr | MemberExpr] = []
        self._with_gradient: list[NameExpr | MemberExpr] = []
        self.registering_kernels: list[CallExpr | MemberExpr] = []
        self._defining: dict[str, list[CallExpr]] = defaultdict(list)
        for node in _nodes(tree.defs):
            self._note(node)

    def _note(self, node: Node) -> None:
        if isinstance(node, Decorator):
            self._decorated |= dict.fromkeys(node.original_decorators, node)
        elif isinstance(node, NameExpr | MemberExpr):
            self._note_name(node)
        elif isinstance(node, AssignmentStmt):
            for target in node.lvalues:
                if isinstance(target, MemberExpr) and isinstance(target.expr, RefExpr):
                    self._attributes.add((target.expr.node, target.name))
        elif isinstance(node, CallExpr):
            self._note_call(node)

    def _note_name(self, node: NameExpr | MemberExpr) -> None:
        if node.name in _REGISTERING:
            self._registering.append(node)
        if node.name in _WITH_GRADIENT:
            self._with_gradient.append(node)
        if isinstance(node, MemberExpr) and node.name == "register_fake":
            self.registering_kernels.append(node)

    def _note_call(self, node: CallExpr) -> None:
        callee = node.callee
        if _defines(node):
            self._defining[_defined_name(node)].append(node)
        elif isinstance(callee, NameExpr | MemberExpr) and callee.name in _OF_KERNELS:
            self.registering_kernels.append(node)

    @property
    def defined(self) -> list[str]:
        """Qualified names that the module defines anywhere, as far as they are known."""
        return [*self._defining]

    def number(self, name: str, call: Context) -> int:
        """Position of a definition among those that write the same name out.

        It is negative for a definition whose name is a constant.
        """
        calls = sorted(self._defining[name], key=lambda c: (c.line, c.column))
        written = [c for c in calls if isinstance(c.args[0], StrExpr)]
        others = [c for c in calls if c not in written]
        return written.index(call) if call in written else -1 - others.index(call)  # type: ignore[arg-type]  # a call

    def decorated_by(self, call: Expression) -> Decorator | None:
        """The function that stands under a decorator."""
        return self._decorated.get(call)

    def sets_attribute(self, fn: FuncDef, *names: str) -> bool:
        """Whether one of these attributes of a function is assigned."""
        return any((fn, name) in self._attributes for name in names)

    def assigned(self, name: str) -> list[Expression]:
        """Values that a global name is assigned."""
        return self._assigned.get(name, [])

    def mentions(self, *names: str) -> bool:
        """Whether the module uses one of these names, with or without a dot."""
        return any(
            getattr(node, "id", getattr(node, "attr", getattr(node, "name", None)))
            in names
            for node in ast.walk(self.source)
        )

    @cached_property
    def functions(self) -> dict[int, list[SourceOfFunction]]:
        """Functions of the module as Python reads them, by line."""
        found: dict[int, list[SourceOfFunction]] = defaultdict(list)
        for node in ast.walk(self.source):
            if isinstance(node, SourceOfFunction):
                found[node.lineno].append(node)
        return found

    @cached_property
    def source(self) -> ast.Module:
        """The module as Python reads it; empty if this Python cannot."""
        try:
            return ast.parse(Path(self._path).read_bytes())
        except (OSError, SyntaxError):
            return ast.Module([], [])

    @cached_property
    def _assigned(self) -> dict[str, list[Expression]]:
        found: dict[str, list[Expression]] = defaultdict(list)
        for node in _nodes(self._statements, _INNER):
            if isinstance(node, TypeAliasStmt):
                found[node.name.name].append(node.value.expr())
            elif isinstance(node, AssignmentStmt):
                for target in node.lvalues:
                    if isinstance(target, NameExpr):
                        found[target.name].append(node.rvalue)
        return found

    def may_have_gradient(self, fn: FuncItem) -> bool:
        """Whether the module may register a gradient for the operator of a function.

        Every name that is not the operator's alone counts, and `jvp` rules too.
        """
        return any(_may_be_of(use, fn) for use in self._with_gradient)

    def may_have_gradients(self) -> bool:
        """The same for an operator that is not a function of the module."""
        return any(not _is_decorated(use) for use in self._with_gradient)

    def may_have_fake(self, fn: FuncItem | None) -> bool:
        """Whether the module may register a fake kernel for the operator of a function.

        Every registration counts but those that name another function's operator.
        """
        return any(_may_be_of(use, fn) for use in self._registering)


class Surveys:
    """The survey of the module that was asked about last."""

    def __init__(self) -> None:
        self._statements: list[Statement] | None = None
        self._last: Survey | None = None

    def of(self, tree: MypyFile) -> Survey:
        """The survey of a module."""
        # A module that the daemon reads again stays the same object, with another list.
        if self._last is None or self._statements is not tree.defs:
            self._statements, self._last = tree.defs, Survey(tree)
        return self._last


def _may_be_of(use: NameExpr | MemberExpr, fn: FuncItem | None) -> bool:
    node = _owner(use)
    return not isinstance(node, Decorator) or fn is None or node.func is fn


def _is_decorated(use: NameExpr | MemberExpr) -> bool:
    """Whether a name is an attribute of a decorated function."""
    return isinstance(_owner(use), Decorator)


def _owner(use: NameExpr | MemberExpr) -> SymbolNode | None:
    op = use.expr if isinstance(use, MemberExpr) else None
    return op.node if isinstance(op, RefExpr) else None


# ---- definitions that every import runs ----


def _definitions(tree: MypyFile) -> dict[str, list[Expression]]:
    found: dict[str, list[Expression]] = defaultdict(list)
    for statement in tree.defs:
        for call in _calls(statement):
            if _defines(call):
                found[_defined_name(call)].append(call)
    return dict(found)


def _defines(call: CallExpr) -> bool:
    callee = call.callee
    if not isinstance(callee, RefExpr) or not call.args:
        return False
    return own_name(callee.fullname) in DEFINING


def _defined_name(call: CallExpr) -> str:
    return str(constant_or(call.args[0], None))


def _calls(statement: Statement) -> Iterator[CallExpr]:
    """Calls of a statement, also those on whose result a method is called."""
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


def defined_by(expression: Expression) -> list[str]:
    """Names of the operators that a chain of calls defines."""
    return [_defined_name(call) for call in _chained(expression) if _defines(call)]


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


def returned_by(fn: FuncItem) -> list[Expression]:
    """The expressions behind the `return` statements of a function."""
    found = [node for node in _nodes(fn.body, _INNER) if isinstance(node, ReturnStmt)]
    return [statement.expr for statement in found if statement.expr is not None]
