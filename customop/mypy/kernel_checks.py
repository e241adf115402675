"""Check kernels and their shapes, and type calls with arrays of their kinds.

Shapes are read from the source of the checked module; mypy does not keep the source of
others. If the shape may be written elsewhere, nothing is reported.
"""

from __future__ import annotations

import importlib.util
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import numpy as np
from mypy import nodes
from mypy.messages import format_type
from mypy.nodes import (
    CallExpr,
    Decorator,
    EllipsisExpr,
    Expression,
    FuncItem,
    ImportFrom,
    IndexExpr,
    MemberExpr,
    MypyFile,
    NameExpr,
    OpExpr,
    RefExpr,
    StrExpr,
    TupleExpr,
    TypeInfo,
    TypeVarExpr,
    Var,
)
from mypy.subtypes import is_subtype
from mypy.types import (
    AnyType,
    CallableType,
    EllipsisType,
    Instance,
    NoneType,
    Parameters,
    RawExpressionType,
    TupleType,
    Type,
    TypeAliasType,
    TypeOfAny,
    TypeVarId,
    TypeVarType,
    UnboundType,
    UnionType,
    get_proper_type,
)

from customop.arrays.kinds import FAKE, is_array_class
from customop.errors import SchemaError
from customop.mypy.hints import (
    SEQUENCES,
    Unfamiliar,
    annotation_of,
    constant_or,
    is_array,
    is_ours,
    own_name,
)
from customop.mypy.records import array_shape
from customop.mypy.source import Function, Survey, defined_by
from customop.schema.annotations import schema_type
from customop.schema.schema import Schema
from customop.schema.types import SchemaType
from customop.shapes.notation import Axis, Length, Loop, Shape, names_in

if TYPE_CHECKING:
    from mypy.checker import TypeChecker

# ---- types and shapes of kernels, compared with the operator's ----
# A kernel may name any array class, since it is for one kind of array. Its other types
# must accept what the operator accepts.

_ANY = AnyType(TypeOfAny.special_form)
_NOT_COERCED = tuple(
    f"builtins.{n}" for n in ("int", "float", "bool", "complex", "str")
)
# A kernel always gets values of these aliases as one class, whatever the call passes.
_COERCED = ("DTypeLike", "DType")


class _Types:
    """Compares types of a kernel with those of its operator, array classes aside."""

    def __init__(self, api: TypeChecker) -> None:
        self._api = api
        self._array = _class_of_arrays(api)

    def fits(self, given: Type, taken: Type) -> bool:
        """Return whether a value of the first type can be passed as the second."""
        return is_subtype(self._erased(given), self._erased(taken))

    def _erased(self, mypy_type: Type) -> Type:
        """Return a type with one class for arrays, and Any for what may be an array."""
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
        if proper.type.fullname in _NOT_COERCED:
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
    """Return how a function's types differ from its operator's, or "".

    The first `leading` parameters of the function do not belong to the operator.
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
    """Yield a parameter's name, its type in the operator, and in the function."""
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
    """A kernel's shape that differs from the operator's."""

    name: str
    mine: str
    its: str


def other_shape(schema: Schema, types: Mapping[str, SchemaType]) -> OtherShape | None:
    """Return the first shape of a kernel that differs from the operator's.

    A kernel may name axes freely, except those named after parameters, and may leave
    shapes out.
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
    """Maps a kernel's names of axes to the operator's names."""

    def __init__(self, parameters: set[str]) -> None:
        self._parameters = parameters
        self._known: dict[str, str] = {}

    def agree(self, mine: Shape, its: Shape) -> bool:
        """Return whether a kernel's shape accepts all that the operator's accepts."""
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


# ---- kinds ----
# Calls may pass arrays of all kinds with a kernel, where the operator says ndarray.


def registered_kinds(survey: Survey, fn: FuncItem | None, qualname: str) -> list[str]:
    """Return the kinds for which an operator's module registers kernels."""
    found = [
        kind
        for use in survey.registering_kernels
        if _is_for(use, survey, fn, qualname)
        for kind in _kinds_of(use)
    ]
    return sorted({kind for kind in found if kind in _CLASSES})


def with_kinds(
    api: TypeChecker, called: CallableType, kinds: tuple[str, ...]
) -> CallableType:
    """Return the type of a call that accepts other kinds of array, one per call."""
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


# Kind of array -> module and name of its class.
_CLASSES = {"cuda": ("cupy", "ndarray"), FAKE: ("customop", "FakeArray")}


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
        # The full name of a variable inside a function has no dots.
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


def _class_of(api: TypeChecker, kind: str) -> TypeInfo | None:
    module, name = _CLASSES[kind]
    tree = api.modules.get(module)
    symbol = None if tree is None else tree.names.get(name)
    node = None if symbol is None else symbol.node
    return node if isinstance(node, TypeInfo) else None


class _Arrays:
    """Makes a type variable for each ndarray type, which allows other classes too."""

    def __init__(self, api: TypeChecker, others: list[Instance]) -> None:
        self._api = api
        self._others = others
        self.variables: dict[str, TypeVarType] = {}

    def replaced(self, mypy_type: Type) -> Type:
        """Return a type with type variables in place of ndarrays."""
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


# ---- shapes in annotations, which mypy leaves out of its types ----


def noted(
    annotation: Any, spelled: Type | None, api: TypeChecker, survey: Survey
) -> Any:
    """Return an annotation with the shapes that the module writes in it.

    Raises
    ------
    Unfamiliar
        If it may contain shapes that the module does not show.
    """
    if spelled is None:
        raise Unfamiliar
    return _marked(_Annotations(api, survey).marking(spelled), annotation)


def types_of(
    function: Function, api: TypeChecker, survey: Survey
) -> dict[str, SchemaType]:
    """Return schema types by parameter name, and by ``"return"``, as far as known."""
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
            continue  # at runtime the annotations of kernels are not read
    return found


_ANNOTATED = ("typing.Annotated", "typing_extensions.Annotated")
_UNIONS = ("typing.Optional", "typing.Union")
_LITERALS = ("typing.Literal", "typing_extensions.Literal")
# Packages whose aliases contain no shapes.
_PLAIN = ("customop", "numpy", "cupy", "typing", "builtins", "collections")
# Modules that define annotation forms such as Literal.
_FORMS = ("typing", "typing_extensions", "collections")
# Values inside an annotation that are not strings.
_NO_TEXTS = ("builtins.int", "builtins.bool", "builtins.bytes", "builtins.float")

# A function that puts shapes into an annotation.
_Marking: TypeAlias = Callable[[Any], Any]


class _Annotations:
    """Reads annotations as they are written in the module."""

    def __init__(self, api: TypeChecker, survey: Survey) -> None:
        self._tree = api.tree
        self._survey = survey
        self._builtins = api.modules.get("builtins")

    def marking(self, spelled: Type) -> _Marking | None:
        """Return the function for an annotation's shapes, or None if there are none."""
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
        """Raise unless a node is a type variable without a shape."""
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
        """Return the text of a note as a list, empty if it is not a string."""
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
        """Return whether a name is from jaxtyping; mypy sees `Annotated` instead."""
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
        """Return the value of an alias, as written in the module."""
        name = alias.fullname.rpartition(".")[2]
        is_here = self._module_of(alias.fullname) == self._tree.fullname
        found = self._survey.assigned(name) if is_here else []
        if len(found) != 1:
            raise Unfamiliar
        return _as_type(found[0])


# ---- put shapes into annotations ----


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
    except (ValueError, TypeError):  # jaxtyping refuses it with its own error
        raise Unfamiliar from None


# ---- annotations as written ----


def _is_none(spelled: Type) -> bool:
    return isinstance(spelled, UnboundType) and spelled.name == "None"


def _annotations_in(expression: Expression) -> list[Expression]:
    """Return the arguments of a call that may be annotations."""
    given = getattr(expression, "args", [])
    return [item for item in given if not isinstance(item, StrExpr)]


def _as_type(expression: Expression | None) -> Type:
    """Convert an expression to the annotation that it is."""
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
