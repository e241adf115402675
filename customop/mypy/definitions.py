"""Definitions of operators, checked as `custom_op` and `define` check them."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

from mypy.errorcodes import ErrorCode
from mypy.nodes import Context, Expression, FuncDef
from mypy.types import Type

from customop.arrays.array import Array
from customop.core.define import check_names
from customop.core.definition import check_factory
from customop.errors import CustomOpError, SchemaError
from customop.library.define import parsed, read_definition
from customop.mypy import codes
from customop.mypy.calls import Call
from customop.mypy.constants import constant, constant_or
from customop.mypy.functions import Function, stand_in
from customop.mypy.hints import Unfamiliar, annotation_of, device_of, plain_class
from customop.mypy.kinds import registered_kinds
from customop.mypy.notes import noted
from customop.mypy.overloads import wrong_overloads
from customop.mypy.records import Record, plain
from customop.mypy.rules import check_kinds
from customop.mypy.trees import Survey
from customop.schema.agreement import check_agrees
from customop.schema.parameters import MISSING, Parameter
from customop.schema.schema import Schema
from customop.schema.shape_check import check_definition, number_names
from customop.schema.signatures import computes_later
from customop.schema.tags import BY_DATA, Tag, apply_tags, check_shapes_of_tags
from customop.schema.types import Base, ClassOf, parts, shapes_in
from customop.shapes.solve import unknown_names, why_unknown

if TYPE_CHECKING:
    from mypy.checker import TypeChecker

__all__ = ["Draft", "schema_of"]

# A class in a schema string: only the running program can find it.
_CLASS = re.compile(r"[^\W\d]\w*\.[^\W\d]")
_UNKNOWN = object()
# Functions that give a class a schema type, or may call one that does.
_GIVING_TYPES = ("register_array_type", "register_config_type", "register_pytree_node")
# Attributes that give a function other annotations than the source shows.
_ANNOTATING = ("__annotations__", "__signature__", "__wrapped__")


class _Unread:
    """A default whose value the source does not show."""

    def __repr__(self) -> str:
        return "..."


class _WithUnread(Parameter):
    """A parameter with such a default."""

    __slots__ = ()

    def __str__(self) -> str:
        required = Parameter(self.name, self.type, MISSING, self.kind, self.alias)
        return f"{required}=..."


class Draft:
    """A call of `custom_op` that is checked before the program runs.

    Parameters
    ----------
    api : TypeChecker
    survey : Survey
        Of the module.
    name : str
        Qualified name of the operator.
    call : Call
    function : Function
    context : Context
        Where messages stand that are not about a part of the call.
    """

    def __init__(
        self,
        api: TypeChecker,
        survey: Survey,
        name: str,
        call: Call,
        function: Function,
        context: Context,
    ) -> None:
        self._api = api
        self._survey = survey
        self._name = name
        self._call = call
        self._function = function
        self._context = context
        self._unsure: list[str] = []
        # Whether a shape may be written where it cannot be read.
        self._is_vague = False
        self._code = codes.SCHEMA
        self._at: Context | None = None

    def record(self, **known: Any) -> Record:
        """Report what registration would refuse; else the record has the schema."""
        try:
            schema = self._checked()
        except CustomOpError as error:
            if not self._is_annotated_later():
                self._report(error)
        except (Unfamiliar, RecursionError):
            pass
        else:
            self._check_overloads(schema)
            shown = schema.replaced(
                parameters=tuple(map(self._shown, schema.parameters))
            )
            kinds = registered_kinds(self._survey, self._function.node, self._name)
            known |= {
                "plain": plain(schema),
                "shown": str(shown),
                "kinds": tuple(kinds),
            }
        return Record(self._name, unsure=tuple(self._unsure), **known)

    def _check_overloads(self, schema: Schema) -> None:
        for error, overload in wrong_overloads(self._api, self._function, schema):
            if error.parameter in self._unsure or self._unsure.count("return"):
                continue
            error.what = f"{self._name}: {error.what}"
            at = overload.place(error.parameter, overload.node or self._context)
            codes.report(self._api, error, at, codes.SCHEMA)

    def _shown(self, p: Parameter) -> Parameter:
        return p.replaced(type=Base("...")) if p.name in self._unsure else p

    def _checked(self) -> Schema:
        node = self._function.node
        if node is not None and (node.is_coroutine or node.is_generator):
            is_generator = not node.is_coroutine
            raise computes_later(self._name, "function", is_generator=is_generator)
        schema = self._schema()
        self._check_kinds(schema)
        self._now(codes.SCHEMA)
        check_names(self._name, schema)
        return self._tagged(schema)

    # ---- what is reported ----

    def _now(self, code: ErrorCode, argument: str = "") -> None:
        """Set the code of the next error, and the argument where it is reported."""
        self._code = code
        self._at = self._call.expression(argument) if argument else None

    def _report(self, error: CustomOpError) -> None:
        if not error.what.startswith(self._name):
            error.what = f"{self._name}: {error.what}"
        at = self._at or self._function.place(error.parameter, self._context)
        codes.report(self._api, error, at, self._code)

    def _is_annotated_later(self) -> bool:
        node = self._function.node
        return isinstance(node, FuncDef) and self._survey.sets_attribute(
            node, *_ANNOTATING
        )

    # ---- the schema ----

    def _schema(self) -> Schema:
        given = self._call.expression("schema")
        text = None if given is None else constant(given)
        names = self._call.constant("mutates_args", _UNKNOWN)
        if names is _UNKNOWN:
            self._unsure.append("mutates_args")
        try:
            return self._read(text, names)
        except SchemaError as error:
            if "mutates_args" in error.what:
                self._now(codes.MUTATES, "mutates_args")
            else:
                is_of_shapes = self._is_right_without_shapes(text, names)
                code = codes.SHAPE if is_of_shapes else codes.SCHEMA
                self._now(code, "schema" if text else "")
            raise

    def _is_right_without_shapes(self, text: Any, names: Any) -> bool:
        try:
            self._read(text, names, with_shapes=False)
        except SchemaError:
            return False
        return True

    def _read(self, text: Any, names: Any, *, with_shapes: bool = True) -> Schema:
        given, result = self._annotated(with_shapes=with_shapes)
        vague = set(self._unsure)
        if text is None:
            return self._inferred(given, result, () if names is _UNKNOWN else names)
        self._unsure = [name for name in self._unsure if name == "mutates_args"]
        if not isinstance(text, str) or _CLASS.search(text):
            raise Unfamiliar
        schema = Schema.parse(text)
        defaults = {p.name: p.default for p in schema.parameters}
        given = [
            p.replace(default=self._default(i, defaults.get(p.name, MISSING)))
            if p.default is not p.empty
            else p
            for i, p in enumerate(given)
        ]
        empty = inspect.Parameter.empty
        given = [p.replace(annotation=empty) if p.name in vague else p for p in given]
        result = empty if "return" in vague else result
        fn = stand_in(self._function.name, given, result)
        check_agrees(fn, schema, schema.written if names is _UNKNOWN else names)
        return schema

    def _default(self, index: int, otherwise: Any) -> Any:
        """A default of the function; that of the schema if its value is not known."""
        try:
            return self._function.default(index)
        except Unfamiliar:
            return _Unread() if otherwise is MISSING else otherwise

    def _inferred(
        self, given: list[inspect.Parameter], result: Any, names: Any
    ) -> Schema:
        bare = [p.replace(default=p.empty) for p in given]
        fn = stand_in(self._function.name, bare, result)
        schema = Schema.infer(fn, names)
        parameters = [
            found if p.default is p.empty else self._with_default(index, p, found)
            for index, (p, found) in enumerate(
                zip(given, schema.parameters, strict=True)
            )
        ]
        return schema.replaced(parameters=tuple(parameters))

    def _with_default(
        self, index: int, given: inspect.Parameter, found: Parameter
    ) -> Parameter:
        try:
            value = self._function.default(index)
        except Unfamiliar:
            value = _UNKNOWN
        if value is _UNKNOWN or found.name in self._unsure:
            return _WithUnread(
                found.name, found.type, _Unread(), found.kind, found.alias
            )
        alone = [given.replace(default=value)]
        checked = Schema.infer(stand_in(self._function.name, alone, None))
        return found.replaced(default=checked.parameters[0].default)

    # ---- annotations ----

    def _annotated(self, *, with_shapes: bool) -> tuple[list[inspect.Parameter], Any]:
        """Parameters and result with the annotations that they have at run time."""
        fn, given = self._function, []
        for index, p in enumerate(fn.parameters):
            hint, spelled = fn.hint(index), fn.spelled(index)
            found = self._annotation(p.name, hint, spelled, with_shapes=with_shapes)
            given.append(p.replace(annotation=found))
        hint, spelled = fn.result, fn.spelled(-1)
        result = self._annotation("return", hint, spelled, with_shapes=with_shapes)
        return given, result

    def _annotation(
        self, name: str, hint: Type | None, spelled: Type | None, *, with_shapes: bool
    ) -> Any:
        if hint is None:
            return inspect.Parameter.empty
        try:
            device = device_of(spelled, hint, self._api.tree.names)
            found = device or annotation_of(hint, self._api.tree.fullname)
        except (Unfamiliar, RecursionError):
            found = self._plain_class(hint)
            if found is not None:
                return found
            self._unsure.append(name)
            return Array
        if not with_shapes:
            return found
        try:
            return noted(found, spelled, self._api, self._survey)
        except (Unfamiliar, RecursionError):
            self._is_vague = True
            return found

    def _plain_class(self, hint: Type) -> Any:
        """A class without a schema type, if the module cannot give it one."""
        if self._survey.mentions(*_GIVING_TYPES):
            return None
        return plain_class(hint, self._api.tree.fullname)

    # ---- other arguments of the call ----

    def _check_kinds(self, schema: Schema) -> None:
        kinds = self._call.texts("device_types")
        if kinds:
            at = self._call.expression("device_types") or self._context
            check_kinds(self._api, self._name, kinds, at)
            self._now(codes.DEVICE)
            check_factory(self._name, schema, kinds)

    def _tagged(self, schema: Schema) -> Schema:
        given = self._call.expression("tags")
        found = () if given is None else constant_or(given, _UNKNOWN)
        tags = found if isinstance(found, list | tuple | set) else [found]
        if self._unsure or not all(isinstance(tag, Tag) for tag in tags):
            if given is not None:
                self._unsure.append("mutates_args")
            return schema
        known = frozenset(tags)
        self._check_shapes(schema, known)
        self._now(codes.SCHEMA, "tags")
        return apply_tags(self._name, schema, known) if known else schema

    def _check_shapes(self, schema: Schema, tags: frozenset[Tag]) -> None:
        """Raise if shapes cannot be checked, or nothing gives a length of a result."""
        types = [part for p in schema.parameters for part in parts(p.type)]
        if self._is_vague or any(isinstance(part, ClassOf) for part in types):
            return
        self._now(codes.SHAPE)
        check_definition(self._name, schema)
        self._now(codes.SHAPE, "tags")
        check_shapes_of_tags(self._name, schema, tags)
        self._now(codes.SHAPE)
        if tags.intersection(BY_DATA) or not schema.has_shapes:
            return
        results = [shape for r in schema.returns for shape in shapes_in(r.type)]
        given = [shape for p in schema.parameters for shape in shapes_in(p.type)]
        names = unknown_names(given, results, number_names(schema))
        if names and not self._survey.may_have_fake(self._function.node):
            raise SchemaError(
                f"{self._name}: {why_unknown(names[0])}",
                do="name an axis of an argument, write '_' for a length that only the"
                " kernel knows, or register a fake kernel",
            )


def schema_of(
    api: TypeChecker, given: Expression | None, *, name: str = "", namespace: str = ""
) -> Schema | None:
    """The schema of a definition without a function; report one that is refused.

    The text of `Library.define` begins with a name in `namespace`; that of `define` has
    the parameters and results of `name` alone.
    """
    text = constant_or(given, None)
    if given is None or not isinstance(text, str):
        return None
    if _CLASS.search(text.partition("(")[2]):
        return None
    code = codes.SCHEMA
    try:
        name, schema = (
            read_definition(text, namespace) if namespace else parsed(name, text)
        )
        check_names(name, schema)
        code = codes.SHAPE
        check_definition(name, schema)
    except CustomOpError as error:
        codes.report(api, error, given, code)
        return None
    return schema
