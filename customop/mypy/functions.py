"""Functions in the source: their parameters, defaults and annotations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mypy.nodes import (
    ARG_NAMED,
    ARG_NAMED_OPT,
    ARG_OPT,
    ARG_POS,
    ARG_STAR,
    ARG_STAR2,
    ArgKind,
    Context,
    Decorator,
    Expression,
    FuncDef,
    FuncItem,
    LambdaExpr,
    OverloadedFuncDef,
    RefExpr,
)
from mypy.types import (
    AnyType,
    CallableType,
    Overloaded,
    Type,
    TypeOfAny,
    get_proper_type,
)

from customop.mypy.constants import constant
from customop.mypy.hints import Unfamiliar
from customop.mypy.names import HIDDEN

if TYPE_CHECKING:
    from mypy.checker import TypeChecker

__all__ = [
    "Function",
    "function_of",
    "implementation_of",
    "innermost_decorator",
    "stand_in",
]

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
    """A function that defines an operator, or that is registered for one.

    Attributes
    ----------
    type : CallableType
    node : FuncItem or None
        Its source, if that is known and nothing decorates it there.
    overloads : tuple of Function
        Those above it.
    """

    type: CallableType
    node: FuncItem | None
    overloads: tuple[Function, ...] = ()

    @property
    def name(self) -> str:
        """Its name at run time."""
        if isinstance(self.node, LambdaExpr):
            return "<lambda>"
        name = str(self.type.name or "fn") if self.node is None else self.node.name
        return name.removesuffix(HIDDEN)

    @cached_property
    def parameters(self) -> list[inspect.Parameter]:
        """Its parameters, without annotations; True in place of each default."""
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
        """Value of the default of a parameter."""
        found = (
            self.node.arguments[index].initializer if self.node is not None else None
        )
        if found is None:
            raise Unfamiliar
        return constant(found)

    def spelled(self, index: int) -> Type | None:
        """Annotation of a parameter as it is written; of the result for index -1."""
        given = self.node.unanalyzed_type if self.node is not None else None
        if not isinstance(given, CallableType):
            return None
        return given.ret_type if index < 0 else given.arg_types[index]

    def hint(self, index: int) -> Type | None:
        """Annotation of a parameter, None where it has none."""
        argument = self.node.arguments[index] if self.node is not None else None
        if argument is not None and argument.variable.is_self:
            # mypy infers the type of `self` without an annotation.
            return argument.type_annotation
        return self._written(self.type.arg_types[index])

    @property
    def result(self) -> Type | None:
        """Annotation of the result, None where it has none."""
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
        """Where a message about a parameter is shown."""
        for argument in self.node.arguments if self.node is not None else ():
            if argument.variable.name == name and argument.line > 0:
                return argument
        return otherwise

    def stand_in(self) -> Callable[..., Any]:
        """A function of these parameters, for the checks of the run time."""
        return stand_in(self.name, self.parameters)


def stand_in(
    name: str,
    parameters: list[inspect.Parameter],
    result: Any = inspect.Signature.empty,
) -> Callable[..., Any]:
    """A function that has a signature and does nothing."""

    def made() -> None:
        """Never called."""

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
    """The function that is passed, or None if it is not known.

    Of a function in another module only the type is used, since mypy may have taken the
    module from its cache, without the source.
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
    # A function within another one has a full name without dots.
    return "." not in node.fullname or node.fullname.startswith(f"{module}.")


def implementation_of(
    api: TypeChecker, overloaded: Overloaded, expression: Expression | None
) -> Function | None:
    """The function below the overloads that are passed, if the module has it."""
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
    """The function under a decorator, unless another one stands between."""
    is_first = decorated.original_decorators[-1] is call
    return decorated.func if is_first else None
