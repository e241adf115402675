"""Shapes in annotations, which mypy drops from its types.

They are read from the source of the module that is checked; mypy does not keep the source
of others. An annotation whose shape may be written elsewhere is not judged.
"""

from __future__ import annotations

import importlib.util
import typing
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np
from mypy import nodes
from mypy.nodes import (
    EllipsisExpr,
    Expression,
    ImportFrom,
    IndexExpr,
    MemberExpr,
    MypyFile,
    NameExpr,
    OpExpr,
    StrExpr,
    TupleExpr,
    TypeInfo,
    TypeVarExpr,
    Var,
)
from mypy.types import (
    EllipsisType,
    Instance,
    RawExpressionType,
    Type,
    UnboundType,
    UnionType,
    get_proper_type,
)

from customop.arrays.kinds import is_array_class
from customop.errors import SchemaError
from customop.mypy.functions import Function
from customop.mypy.hints import Unfamiliar, annotation_of
from customop.mypy.names import is_ours
from customop.mypy.trees import Survey
from customop.schema.annotations import schema_type
from customop.schema.types import SchemaType

if TYPE_CHECKING:
    from mypy.checker import TypeChecker

__all__ = ["noted", "types_of"]

_ANNOTATED = ("typing.Annotated", "typing_extensions.Annotated")
_UNIONS = ("typing.Optional", "typing.Union")
_LITERALS = ("typing.Literal", "typing_extensions.Literal")
# Packages whose aliases have no shapes.
_PLAIN = ("customop", "numpy", "cupy", "typing", "builtins", "collections")
# Modules that define forms of annotations, such as Literal.
_FORMS = ("typing", "typing_extensions", "collections")
# Values within an annotation that are not strings.
_NO_TEXTS = ("builtins.int", "builtins.bool", "builtins.bytes", "builtins.float")


def noted(
    annotation: Any, spelled: Type | None, api: TypeChecker, survey: Survey
) -> Any:
    """An annotation with the shapes that the module writes in it.

    Raises
    ------
    Unfamiliar
        If it may have shapes that the module does not show.
    """
    if spelled is None:
        raise Unfamiliar
    return _marked(_Annotations(api, survey).marking(spelled), annotation)


def types_of(
    function: Function, api: TypeChecker, survey: Survey
) -> dict[str, SchemaType]:
    """Name of a parameter, or ``"return"`` -> its schema type, if that is known."""
    found = {}
    given = [(p.name, function.hint(i)) for i, p in enumerate(function.parameters)]
    hints = [*given, ("return", function.result)]
    for index, (name, hint) in enumerate(hints):
        if hint is None:
            continue
        try:
            annotation = annotation_of(hint, api.tree.fullname)
            spelled = function.spelled(index if name != "return" else -1)
            found[name] = schema_type(noted(annotation, spelled, api, survey))
        except (Unfamiliar, RecursionError, SchemaError):
            continue  # the running program does not read annotations of kernels
    return found


# Puts shapes into an annotation.
_Marking: TypeAlias = Callable[[Any], Any]


class _Annotations:
    """Reads annotations as the module writes them."""

    def __init__(self, api: TypeChecker, survey: Survey) -> None:
        self._tree = api.tree
        self._survey = survey
        self._builtins = api.modules.get("builtins")

    def marking(self, spelled: Type) -> _Marking | None:
        """The shapes of an annotation, None if it has none; raise if that is not known."""
        if isinstance(spelled, UnionType):
            return self._of_union(spelled.items)
        if not isinstance(spelled, UnboundType):
            return None
        if self._jaxtyped(spelled.name):
            form = spelled.name.rpartition(".")[2]
            return partial(_jaxtyped, form, self._texts(spelled))
        return self._of_name(spelled)

    def _of_name(self, spelled: UnboundType) -> _Marking | None:
        name, node = self._symbol(spelled.name)
        if name in _ANNOTATED:
            inner, texts = self.marking(spelled.args[0]), self._texts(spelled)
            return partial(_annotated, inner, texts) if texts else inner
        if name in _LITERALS or spelled.name == "None":
            return None
        if name in _UNIONS:
            return self._of_union(spelled.args)
        items = [self.marking(item) for item in spelled.args]
        if isinstance(node, nodes.TypeAlias):
            return self._of_alias(node, items)
        is_form = isinstance(node, TypeInfo) or name.partition(".")[0] in _FORMS
        if not is_form:
            self._check_variable(node)
        return partial(_with_items, items) if any(items) else None

    def _of_union(self, spelled: Sequence[Type]) -> _Marking | None:
        items = [self.marking(item) for item in spelled if not _is_none(item)]
        return partial(_with_options, items) if any(items) else None

    def _of_alias(
        self, alias: nodes.TypeAlias, items: list[_Marking | None]
    ) -> _Marking | None:
        is_plain = alias.fullname.partition(".")[0] in _PLAIN
        found = None if is_plain else self.marking(self._value(alias))
        if items and (found or any(items)):
            raise Unfamiliar
        return found

    def _check_variable(self, variable: Any) -> None:
        """Raise unless a node is a type variable that has no shape."""
        if not isinstance(variable, TypeVarExpr):
            raise Unfamiliar
        if is_ours(variable.fullname):
            return
        bound = get_proper_type(variable.upper_bound)
        is_class = isinstance(bound, Instance) and not variable.values
        if not is_class or self._module_of(variable.fullname) != self._tree.fullname:
            raise Unfamiliar
        for call in self._survey.assigned(variable.name):
            if any(self.marking(_as_type(given)) for given in _annotations_in(call)):
                raise Unfamiliar

    # ---- texts ----

    def _texts(self, spelled: UnboundType) -> list[str]:
        return [t for item in spelled.args[1:] for t in self._text(item)]

    def _text(self, note: Type) -> list[str]:
        """The text of a note, if it is a string."""
        if isinstance(note, UnboundType | UnionType) and note.original_str_expr:
            return [note.original_str_expr]
        if isinstance(note, RawExpressionType):
            if note.base_type_name == "builtins.str":
                return [str(note.literal_value)]
            if note.base_type_name in _NO_TEXTS:
                return []
        if isinstance(note, UnboundType):
            node = self._node(note.name)
            proper = get_proper_type(node.type) if isinstance(node, Var) else None
            is_object = isinstance(proper, Instance) and proper.type.fullname not in (
                "builtins.str",
                "builtins.object",
            )
            if isinstance(node, TypeInfo) or is_object:
                return []
        raise Unfamiliar

    # ---- names ----

    def _symbol(self, word: str) -> tuple[str, Any]:
        first, *rest = word.split(".")
        symbol = self._tree.names.get(first)
        if symbol is None and self._builtins is not None:
            symbol = self._builtins.names.get(first)
        for part in rest:
            node = None if symbol is None else symbol.node
            symbol = node.names.get(part) if isinstance(node, MypyFile) else None
        return ("", None) if symbol is None else (symbol.fullname or "", symbol.node)

    def _node(self, word: str) -> Any:
        return self._symbol(word)[1]

    def _jaxtyped(self, word: str) -> bool:
        """Whether a name is jaxtyping's; for mypy it is a name of `Annotated`."""
        module, _, name = word.rpartition(".")
        if module:
            found = self._node(module)
            return isinstance(found, MypyFile) and found.fullname == "jaxtyping"
        return any(
            (alias or given) == name
            for node in self._tree.imports
            if isinstance(node, ImportFrom) and node.id == "jaxtyping"
            for given, alias in node.names
        )

    @staticmethod
    def _module_of(fullname: str) -> str:
        return fullname.rpartition(".")[0]

    def _value(self, alias: nodes.TypeAlias) -> Type:
        """The value of an alias of the module, as it is written."""
        name = alias.fullname.rpartition(".")[2]
        is_here = self._module_of(alias.fullname) == self._tree.fullname
        found = self._survey.assigned(name) if is_here else []
        if len(found) != 1:
            raise Unfamiliar
        return _as_type(found[0])


# ---- shapes into annotations ----


def _marked(marking: _Marking | None, annotation: Any) -> Any:
    return annotation if marking is None else marking(annotation)


def _annotated(inner: _Marking | None, texts: list[str], annotation: Any) -> Any:
    return Annotated[(_marked(inner, annotation), *texts)]


def _with_options(options: list[_Marking | None], annotation: Any) -> Any:
    is_union = typing.get_origin(annotation) is typing.Union
    items = typing.get_args(annotation) if is_union else (annotation,)
    others = [item for item in items if item is not type(None)]
    if len(others) != len(options):
        raise Unfamiliar
    made = [_marked(*pair) for pair in zip(options, others, strict=True)]
    nones = [None] * (len(items) - len(others))
    return typing.Union[(*made, *nones)]


def _with_items(items: list[_Marking | None], annotation: Any) -> Any:
    origin, given = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is None or len(given) != len(items):
        raise Unfamiliar
    return origin[tuple(_marked(*pair) for pair in zip(items, given, strict=True))]


def _jaxtyped(form: str, texts: list[str], annotation: Any) -> Any:
    inner = typing.get_origin(annotation) or annotation
    if isinstance(inner, typing.TypeVar):
        inner = inner.__bound__
    is_there = importlib.util.find_spec("jaxtyping") is not None
    if not is_there or len(texts) != 1 or not is_array_class(inner):
        raise Unfamiliar
    import jaxtyping  # noqa: PLC0415  # optional, and slow to import

    try:
        return getattr(jaxtyping, form)[np.ndarray, texts[0]]
    except (ValueError, TypeError):  # jaxtyping refuses it, in its own words
        raise Unfamiliar from None


# ---- annotations as they are written ----


def _is_none(spelled: Type) -> bool:
    return isinstance(spelled, UnboundType) and spelled.name == "None"


def _annotations_in(expression: Expression) -> list[Expression]:
    """Arguments of a call that can be annotations."""
    given = getattr(expression, "args", [])
    return [item for item in given if not isinstance(item, StrExpr)]


def _as_type(expression: Expression | None) -> Type:
    """The annotation that an expression writes."""
    if isinstance(expression, NameExpr | MemberExpr):
        return UnboundType(_dotted(expression))
    if isinstance(expression, StrExpr):
        return RawExpressionType(expression.value, "builtins.str")
    if isinstance(expression, EllipsisExpr):
        return EllipsisType()
    if isinstance(expression, OpExpr) and expression.op == "|":
        return UnionType([_as_type(expression.left), _as_type(expression.right)])
    if isinstance(expression, IndexExpr):
        index = expression.index
        items = index.items if isinstance(index, TupleExpr) else [index]
        return UnboundType(_dotted(expression.base), [_as_type(i) for i in items])
    raise Unfamiliar


def _dotted(expression: Expression) -> str:
    if isinstance(expression, NameExpr):
        return expression.name
    if isinstance(expression, MemberExpr):
        return f"{_dotted(expression.expr)}.{expression.name}"
    raise Unfamiliar
