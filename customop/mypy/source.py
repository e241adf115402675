"""Read functions and other parts of the module that mypy checks."""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mypy.nodes import (
    ARG_NAMED,
    ARG_NAMED_OPT,
    ARG_OPT,
    ARG_POS,
    ARG_STAR,
    ARG_STAR2,
    ArgKind,
    AssignmentStmt,
    CallExpr,
    ClassDef,
    Context,
    Decorator,
    Expression,
    ExpressionStmt,
    FuncDef,
    FuncItem,
    IfStmt,
    Import,
    ImportAll,
    ImportBase,
    ImportFrom,
    LambdaExpr,
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
from mypy.types import (
    AnyType,
    CallableType,
    Overloaded,
    Type,
    TypeOfAny,
    get_proper_type,
)
from mypy.util import correct_relative_import

from customop.mypy.hints import (
    DEFINING,
    HIDDEN,
    Unfamiliar,
    annotation_of,
    constant,
    constant_or,
    device_of,
    own_name,
)

if TYPE_CHECKING:
    from mypy.checker import TypeChecker


# ---- search the source of the module that mypy checks ----


SourceOfFunction = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

# Functions and methods that register, or may register, a fake kernel.
_REGISTERING = ("register_fake", "impl")
_OF_KERNELS = ("register_kernel", "register_fake")
# Functions and methods that register, or may register, a gradient.
_WITH_GRADIENT = (
    *("register_autograd", "register_jvp", "register", "impl", "fallback"),
    *("register_numpy_function", "add", "import_module", "exec"),
)


# Attributes of statements and expressions that hold other ones.
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
    """Yield nodes at any depth; subclasses of mypy's visitors are not possible."""
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
    """The decorators, assignments and definitions of operators in one module.

    Attributes
    ----------
    definitions : dict
        Qualified name -> the calls that define it on every import of the module.
    """

    def __init__(self, tree: MypyFile) -> None:
        self._statements = tree.defs
        self._path = tree.path
        self.definitions = _definitions(tree)
        self._decorated: dict[Expression, Decorator] = {}
        # Pairs of a function and the name of an attribute that is assigned.
        self._attributes: set[tuple[object, str]] = set()
        self._registering: list[NameExpr | MemberExpr] = []
        self._with_gradient: list[NameExpr | MemberExpr] = []
        self.registering_kernels: list[CallExpr | MemberExpr] = []
        # Calls that may define an operator by a schema alone.
        self.declaring: list[CallExpr] = []
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
        if isinstance(callee, NameExpr | MemberExpr) and callee.name == "define":
            self.declaring += [node] if node.args else []
        if _defines(node):
            self._defining[_defined_name(node)].append(node)
        elif isinstance(callee, NameExpr | MemberExpr) and callee.name in _OF_KERNELS:
            self.registering_kernels.append(node)

    @cached_property
    def bases(self) -> frozenset[str]:
        """Names that the module defines anywhere, as far as known, without overloads."""
        return frozenset(name.partition(".")[0] for name in self._defining)

    def number(self, name: str, call: Context) -> int:
        """Return the position of a definition among those with the same literal name.

        The number is negative for a definition whose name is a constant.
        """
        calls = sorted(self._defining[name], key=lambda c: (c.line, c.column))
        written = [c for c in calls if isinstance(c.args[0], StrExpr)]
        others = [c for c in calls if c not in written]
        return written.index(call) if call in written else -1 - others.index(call)  # type: ignore[arg-type]  # a call

    def decorated_by(self, call: Expression) -> Decorator | None:
        """Return the decorated function, if a call is a decorator."""
        return self._decorated.get(call)

    def sets_attribute(self, fn: FuncDef, *names: str) -> bool:
        """Return whether any of these attributes of a function is assigned."""
        return any((fn, name) in self._attributes for name in names)

    def assigned(self, name: str) -> list[Expression]:
        """Return the values that are assigned to a global name."""
        return self._assigned.get(name, [])

    def mentions(self, *names: str) -> bool:
        """Return whether the module uses any of these names, with or without a dot."""
        return any(
            getattr(node, "id", getattr(node, "attr", getattr(node, "name", None)))
            in names
            for node in ast.walk(self.source)
        )

    @cached_property
    def functions(self) -> dict[int, list[SourceOfFunction]]:
        """The functions of the module in Python's syntax tree, by line."""
        found: dict[int, list[SourceOfFunction]] = defaultdict(list)
        for node in ast.walk(self.source):
            if isinstance(node, SourceOfFunction):
                found[node.lineno].append(node)
        return found

    @cached_property
    def source(self) -> ast.Module:
        """The module as Python's syntax tree, empty if this Python cannot read it."""
        try:
            return ast.parse(Path(self._path).read_bytes())
        except (OSError, SyntaxError):
            return ast.Module([], [])

    @cached_property
    def names_for_checkers(self) -> set[str]:
        """Names that the module binds under ``if TYPE_CHECKING`` and nowhere else."""
        if not any(isinstance(statement, IfStmt) for statement in self._statements):
            return set()
        guarded: list[ast.AST] = []
        waiting: list[ast.AST] = [self.source]
        elsewhere: set[str] = set()
        while waiting:
            node = waiting.pop()
            rest = [*ast.iter_child_nodes(node)]
            if isinstance(node, ast.If) and _is_for_checkers(node.test):
                guarded += node.body
                rest = [*node.orelse]
            elsewhere.update(_bound_by(node))
            waiting += rest
        within = [node for top in guarded for node in ast.walk(top)]
        inside = {name for node in within for name in _bound_by(node)}
        return set() if "*" in elsewhere else inside - elsewhere

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
        """Return whether the module may register a gradient for a function's operator.

        Every use of a registering name counts unless it belongs to another operator.
        `jvp` rules count too.
        """
        return any(_may_be_of(use, fn) for use in self._with_gradient)

    def may_have_gradients(self) -> bool:
        """Return the same for an operator that is not a function of the module."""
        return any(not _is_decorated(use) for use in self._with_gradient)

    def may_have_fake(self, fn: FuncItem | None) -> bool:
        """Return whether the module may register a fake kernel for an operator.

        Every registration counts, except those for another function's operator.
        """
        return any(_may_be_of(use, fn) for use in self._registering)


def _is_for_checkers(test: ast.expr) -> bool:
    """Return whether a condition is ``TYPE_CHECKING``."""
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return name == "TYPE_CHECKING"


def _bound_by(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement or a name alone binds, in any scope."""
    if isinstance(node, ast.alias):
        yield node.asname or node.name.partition(".")[0]
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Global | ast.Nonlocal):
        yield from node.names
    elif isinstance(node, ast.arg):
        yield node.arg


class Surveys:
    """Keeps the survey of the last module that was asked for."""

    def __init__(self) -> None:
        self._statements: list[Statement] | None = None
        self._last: Survey | None = None

    def of(self, tree: MypyFile) -> Survey:
        """Return the survey of a module."""
        # When the daemon reads a module again, the object stays but its list is new.
        if self._last is None or self._statements is not tree.defs:
            self._statements, self._last = tree.defs, Survey(tree)
        return self._last


def _may_be_of(use: NameExpr | MemberExpr, fn: FuncItem | None) -> bool:
    node = _owner(use)
    return not isinstance(node, Decorator) or fn is None or node.func is fn


def _is_decorated(use: NameExpr | MemberExpr) -> bool:
    """Return whether a name is an attribute of a decorated function."""
    return isinstance(_owner(use), Decorator)


def _owner(use: NameExpr | MemberExpr) -> SymbolNode | None:
    op = use.expr if isinstance(use, MemberExpr) else None
    return op.node if isinstance(op, RefExpr) else None


# ---- definitions that run on every import ----


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
    """Yield the calls in a statement, including those in a chain of method calls."""
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
    """Return the names of the operators that a chain of calls defines."""
    return [_defined_name(call) for call in _chained(expression) if _defines(call)]


def imported_names(tree: MypyFile, statement: ImportBase) -> list[str]:
    """Return the names of modules that an import statement may import."""
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
    """Return the expressions in the `return` statements of a function."""
    found = [node for node in _nodes(fn.body, _INNER) if isinstance(node, ReturnStmt)]
    return [statement.expr for statement in found if statement.expr is not None]


# ---- functions: their parameters, defaults and annotations ----


_KINDS: dict[ArgKind, Any] = {
    ARG_POS: inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ARG_OPT: inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ARG_STAR: inspect.Parameter.VAR_POSITIONAL,
    ARG_NAMED: inspect.Parameter.KEYWORD_ONLY,
    ARG_NAMED_OPT: inspect.Parameter.KEYWORD_ONLY,
    ARG_STAR2: inspect.Parameter.VAR_KEYWORD,
}


@dataclass(frozen=True)
class Function:
    """A function that defines an operator or is registered for one.

    Attributes
    ----------
    type : CallableType
    node : FuncItem or None
        Its source, if known and not changed by other decorators.
    overloads : tuple of Function
        The overloads above it.
    """

    type: CallableType
    node: FuncItem | None
    overloads: tuple[Function, ...] = ()

    @property
    def name(self) -> str:
        """Its name at runtime."""
        if isinstance(self.node, LambdaExpr):
            return "<lambda>"
        name = str(self.type.name or "fn") if self.node is None else self.node.name
        return name.removesuffix(HIDDEN)

    @cached_property
    def parameters(self) -> list[inspect.Parameter]:
        """Its parameters without annotations; each default is True."""
        return [self._parameter(i) for i in range(len(self.type.arg_types))]

    def _parameter(self, index: int) -> inspect.Parameter:
        parameter_kind = self.type.arg_kinds[index]
        name = self.type.arg_names[index]
        by_place = name is None and parameter_kind in (ARG_POS, ARG_OPT)
        if name is None and self.node is not None:
            name = self.node.arguments[index].variable.name
        return inspect.Parameter(
            name or f"_{index}",
            inspect.Parameter.POSITIONAL_ONLY if by_place else _KINDS[parameter_kind],
            default=True if parameter_kind.is_optional() else inspect.Parameter.empty,
        )

    def default(self, index: int) -> Any:
        """Return the value of a parameter's default."""
        found = (
            self.node.arguments[index].initializer if self.node is not None else None
        )
        if found is None:
            raise Unfamiliar
        return constant(found)

    def spelled(self, index: int) -> Type | None:
        """Return the annotation of a parameter as written; -1 means the result."""
        given = self.node.unanalyzed_type if self.node is not None else None
        if not isinstance(given, CallableType):
            return None
        return given.ret_type if index < 0 else given.arg_types[index]

    def hint(self, index: int) -> Type | None:
        """Return the annotation of a parameter, or None."""
        argument = self.node.arguments[index] if self.node is not None else None
        if argument is not None and argument.variable.is_self:
            # mypy infers the type of `self` without an annotation.
            return argument.type_annotation
        return self._written(self.type.arg_types[index])

    @property
    def result(self) -> Type | None:
        """Annotation of the result, or None."""
        is_lambda = isinstance(self.node, LambdaExpr)
        return None if is_lambda else self._written(self.type.ret_type)

    def _written(self, mypy_type: Type) -> Type | None:
        proper = get_proper_type(mypy_type)
        is_plain = self.type.implicit or isinstance(self.node, LambdaExpr)
        if is_plain or (
            isinstance(proper, AnyType) and proper.type_of_any == TypeOfAny.unannotated
        ):
            return None
        return mypy_type

    def place(self, name: str | None, otherwise: Context) -> Context:
        """Return where to show a message about a parameter."""
        for argument in self.node.arguments if self.node is not None else ():
            if argument.variable.name == name and argument.line > 0:
                return argument
        return otherwise

    def stand_in(self) -> Callable[..., Any]:
        """Return a function with these parameters, for use in checks of the runtime."""
        return stand_in(self.name, self.parameters)

    def annotated(self, api: TypeChecker) -> Callable[..., Any]:
        """Return such a function with those annotations that can be read."""
        given = [
            p.replace(annotation=self._annotation(api, i))
            for i, p in enumerate(self.parameters)
        ]
        return stand_in(self.name, given, self._annotation(api, -1))

    def _annotation(self, api: TypeChecker, index: int) -> Any:
        hint = self.result if index < 0 else self.hint(index)
        if hint is None:
            return inspect.Parameter.empty
        try:
            device = device_of(self.spelled(index), hint, api.tree.names)
            return device or annotation_of(hint, api.tree.fullname)
        except (Unfamiliar, RecursionError):
            return inspect.Parameter.empty


def stand_in(
    name: str,
    parameters: list[inspect.Parameter],
    result: Any = inspect.Signature.empty,
) -> Callable[..., Any]:
    """Return a function that has this signature and does nothing."""

    def made() -> None:
        """Do nothing; this is never called."""

    made.__name__ = made.__qualname__ = name
    signature = inspect.Signature(parameters, return_annotation=result)
    made.__signature__ = signature  # type: ignore[attr-defined]  # read by inspect
    hints = {p.name: p.annotation for p in parameters} | {"return": result}
    empty = inspect.Signature.empty
    made.__annotations__ = {n: hint for n, hint in hints.items() if hint is not empty}
    return made


def function_of(
    mypy_type: Type | None, expression: Expression | None, context: Context, module: str
) -> Function | None:
    """Return the function that is passed, or None if it is unknown.

    For a function in another module only the type is used, because mypy may have loaded
    the module from its cache, without the source.
    """
    proper = get_proper_type(mypy_type)
    if not isinstance(proper, CallableType) or proper.is_type_obj():
        return None
    if proper.is_ellipsis_args or proper.param_spec() is not None:
        return None
    node = _node(expression, context, module)
    if node is not None and len(node.arguments) != len(proper.arg_types):
        node = None  # a bound method
    return Function(proper, node)


def _node(
    expression: Expression | None, context: Context, module: str
) -> FuncItem | None:
    if isinstance(expression, LambdaExpr):
        return expression
    if isinstance(expression, RefExpr):
        return _of_name(expression, module)
    if isinstance(context, Decorator) and len(context.original_decorators) == 1:
        return context.func
    return None


def _of_name(expression: RefExpr, module: str) -> FuncItem | None:
    node = expression.node
    if not isinstance(node, FuncDef) or node.is_decorated:
        return None
    return node if _is_in(module, node) else None


def _is_in(module: str, node: FuncDef | OverloadedFuncDef) -> bool:
    # The full name of a function inside another one has no dots.
    return "." not in node.fullname or node.fullname.startswith(f"{module}.")


def implementation_of(
    api: TypeChecker, overloaded: Overloaded, expression: Expression | None
) -> Function | None:
    """Return the implementation below the overloads, if this module has it."""
    node = expression.node if isinstance(expression, RefExpr) else None
    if not isinstance(node, OverloadedFuncDef) or not _is_in(api.tree.fullname, node):
        return None
    if not isinstance(node.impl, FuncDef):
        return None
    proper = get_proper_type(api.function_type(node.impl))
    parts = [part.func if isinstance(part, Decorator) else part for part in node.items]
    overloads = tuple(map(Function, overloaded.items, parts))
    if not isinstance(proper, CallableType) or len(overloads) != len(overloaded.items):
        return None
    return Function(proper, node.impl, overloads)


def innermost_decorator(decorated: Decorator, call: Expression) -> FuncDef | None:
    """Return the function right under a decorator, or None if another comes between."""
    is_first = decorated.original_decorators[-1] is call
    return decorated.func if is_first else None
