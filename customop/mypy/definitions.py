"""Definitions of operators: what `custom_op` would say of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mypy.errorcodes import ErrorCode
from mypy.nodes import Context, Expression, FuncDef
from mypy.types import Type

from customop.arrays.array import Array
from customop.arrays.kinds import DEFAULT
from customop.core.checks import check_factory, check_names
from customop.errors import CustomOpError, SchemaError
from customop.library.functions import _without_name
from customop.library.library import parsed, read_definition
from customop.mypy import codes
from customop.mypy.constants import constant, constant_or
from customop.mypy.functions import Function, stand_in
from customop.mypy.hints import Unfamiliar, annotation_of, device_of
from customop.mypy.notes import noted
from customop.mypy.records import Outline, outline_of
from customop.mypy.trees import attributes_set, may_have_fake
from customop.schema.infer import _infer_default, _Source, infer
from customop.schema.parameters import MISSING, Parameter
from customop.schema.schema import Schema, _check_same_shapes, check_agrees
from customop.schema.shape_check import check_definition, number_names
from customop.schema.tags import BY_DATA, Tag, apply_tags, check_shapes_of_tags
from customop.schema.types import Base, ClassOf, SchemaType, parts, shapes_in
from customop.shapes.solve import untold, why_untold

if TYPE_CHECKING:
    from mypy.checker import TypeChecker

__all__ = ["Draft", "Said", "check_schema"]

# A class in a schema string, which only the running program can find.
_CLASS = re.compile(r"[^\W\d]\w*\.[^\W\d]")
_UNKNOWN = object()
# Attributes by which a function tells other annotations than it is written with.
_SAYING = ("__annotations__", "__signature__", "__wrapped__")


class _Unread:
    """A default whose value only the running program has."""

    def __repr__(self) -> str:
        return "..."


class _WithUnread(Parameter):
    """A parameter with such a default."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{_required(self)}=..."


def _required(p: Parameter) -> Parameter:
    """A parameter without its default."""
    return Parameter(p.name, p.type, MISSING, p.kind, p.alias)


def _unread(p: Parameter) -> Parameter:
    return _WithUnread(p.name, p.type, _Unread(), p.kind, p.alias)


@dataclass(frozen=True)
class Said:
    """What the call of `custom_op` says, as far as its source tells.

    Attributes
    ----------
    qualname : str
    mutates_args, device_types, schema, tags : Expression or None
        The arguments of those names.
    """

    qualname: str
    mutates_args: Expression | None
    device_types: Expression | None
    schema: Expression | None
    tags: Expression | None


class Draft:
    """A definition that is checked before the program runs.

    Attributes
    ----------
    outline : Outline or None
        The schema, once `check` has found nothing that it could not be made of.
    unsure : list of str
        What of it is not known.
    """

    def __init__(
        self, api: TypeChecker, said: Said, function: Function, context: Context
    ) -> None:
        self._api = api
        self._said = said
        self._function = function
        self._context = context
        self._code = codes.SCHEMA
        self._at: Context | None = None
        # Whether shapes are read, and whether there may be some that cannot be.
        self._reads_shapes = True
        self._is_vague = False
        self.unsure: list[str] = []
        self.outline: Outline | None = None

    def check(self) -> None:
        """Report what the definition would be refused for."""
        try:
            schema = self._schema()
            self._check_kinds(schema)
            self._step(codes.SCHEMA)
            check_names(self._said.qualname, schema)
            self.outline = self._outline(self._tagged(schema))
        except CustomOpError as error:
            if not self._is_annotated_later():
                self._tell(error)
        except (Unfamiliar, RecursionError):
            return

    def _is_annotated_later(self) -> bool:
        """Whether a function may be given other annotations as an attribute."""
        node = self._function.node
        return isinstance(node, FuncDef) and any(
            name in _SAYING for name in attributes_set(self._api.tree, node)
        )

    def _step(self, code: ErrorCode, at: Context | None = None) -> None:
        """Say what the next error is of, and where it stands."""
        self._code, self._at = code, at

    def _tell(self, error: CustomOpError) -> None:
        if not error.what.startswith(self._said.qualname):
            error.what = f"{self._said.qualname}: {error.what}"
        at = self._at or self._function.place(error.parameter, self._context)
        codes.tell(self._api, error, at, self._code)

    def _schema(self) -> Schema:
        given = self._said.schema
        text = None if given is None else constant(given)
        return self._inferred() if text is None else self._parsed(text)

    # ---- a schema from annotations ----

    def _inferred(self) -> Schema:
        fn = self._annotated()
        schema = Schema(*self._inferred_parts(fn))
        schema = replace(schema, parameters=self._with_defaults(fn, schema))
        names = constant_or(self._said.mutates_args, _UNKNOWN)
        if names is _UNKNOWN:
            self.unsure.append("mutates_args")
            return schema
        self._step(codes.MUTATES, self._said.mutates_args)
        written = infer(fn, names)[0]
        return replace(
            schema,
            parameters=tuple(
                replace(p, alias=other.alias)
                for p, other in zip(schema.parameters, written, strict=True)
            ),
        )

    def _inferred_parts(self, fn: Any) -> Any:
        try:
            return infer(fn, ())
        except SchemaError:
            if self._is_right_without_shapes():
                self._step(codes.SHAPE)
            raise

    def _is_right_without_shapes(self) -> bool:
        plain = Draft(self._api, self._said, self._function, self._context)
        plain._reads_shapes = False
        try:
            infer(plain._annotated(), ())
        except SchemaError:
            return False
        return True

    def _annotated(self) -> Any:
        """The function for the run time to infer from, without its defaults."""
        given = []
        for index, p in enumerate(self._function.parameters):
            spelled = self._function.spelled(index)
            hint = self._annotation(p.name, self._function.hint(index), spelled)
            given.append(p.replace(annotation=hint, default=p.empty))
        spelled = self._function.spelled(-1)
        result = self._annotation("return", self._function.result, spelled)
        return stand_in(self._function.name, given, result)

    def _annotation(self, name: str, kind: Type | None, spelled: Type | None) -> Any:
        if kind is None:
            return inspect.Parameter.empty
        try:
            device = device_of(spelled, kind, self._api.tree.names)
            found = device or annotation_of(kind, self._api.tree.fullname)
        except (Unfamiliar, RecursionError):
            self.unsure.append(name)
            return Array
        try:
            return noted(found, spelled, self._api) if self._reads_shapes else found
        except (Unfamiliar, RecursionError):
            self._is_vague = True
            return found

    def _with_defaults(self, fn: Any, schema: Schema) -> tuple[Parameter, ...]:
        source = _Source(fn, inspect.signature(fn))
        given = self._function.parameters
        found = list(schema.parameters)
        for index, p in enumerate(given):
            if p.default is not p.empty:
                hinted = source.signature.parameters[p.name]
                found[index] = self._with_default(source, index, hinted, found[index])
        return tuple(found)

    def _with_default(
        self, source: _Source, index: int, hinted: inspect.Parameter, p: Parameter
    ) -> Parameter:
        try:
            value = self._function.default(index)
        except Unfamiliar:
            return _unread(p)
        if p.name in self.unsure:
            return _unread(p)
        hinted = hinted.replace(default=value)
        return replace(p, default=_infer_default(source, hinted, p.type))

    # ---- a schema that is given ----

    def _parsed(self, text: Any) -> Schema:
        if not isinstance(text, str) or _CLASS.search(text):
            raise Unfamiliar
        self._step(codes.SCHEMA, self._said.schema)
        schema = Schema.parse(text)
        names = constant_or(self._said.mutates_args, _UNKNOWN)
        if names is _UNKNOWN:
            self.unsure.append("mutates_args")
            names = schema.written
        with self._of_mutates_args():
            check_agrees(self._with_schema(schema), schema, names)
        if schema.has_shapes:
            self._step(codes.SHAPE, self._said.schema)
            unsure = self.unsure[:]
            _check_same_shapes(self._annotated(), schema)
            self.unsure = unsure
        return schema

    @contextmanager
    def _of_mutates_args(self) -> Iterator[None]:
        try:
            yield
        except SchemaError as error:
            if error.what.startswith("mutates_args"):
                self._step(codes.MUTATES, self._said.mutates_args)
            raise

    def _with_schema(self, schema: Schema) -> Any:
        """The function with its defaults, those of the schema where they are unknown."""
        theirs = {p.name: p.default for p in schema.parameters}
        given = []
        for index, p in enumerate(self._function.parameters):
            if p.default is not p.empty:
                given.append(
                    p.replace(default=self._own_default(index, theirs, p.name))
                )
            else:
                given.append(p)
        return stand_in(self._function.name, given)

    def _own_default(self, index: int, theirs: dict[str, Any], name: str) -> Any:
        try:
            return self._function.default(index)
        except Unfamiliar:
            other = theirs.get(name, MISSING)
            return _Unread() if other is MISSING else other

    # ---- what is said beside the schema ----

    def _check_kinds(self, schema: Schema) -> None:
        kinds = constant_or(self._said.device_types, _UNKNOWN)
        if self._said.device_types is None or kinds is _UNKNOWN or kinds is None:
            return
        self._step(codes.DEVICE)
        names = (kinds,) if isinstance(kinds, str) else tuple(kinds)
        check_factory(self._said.qualname, schema, names or (DEFAULT,))

    def _tagged(self, schema: Schema) -> Schema:
        given = constant_or(self._said.tags, _UNKNOWN if self._said.tags else ())
        found = given if isinstance(given, list | tuple | set) else [given]
        if self.unsure or not all(isinstance(tag, Tag) for tag in found):
            if self._said.tags is not None:
                self.unsure.append("mutates_args")
            return schema
        tags = frozenset(found)
        self._check_shapes(schema, tags)
        self._step(codes.SCHEMA, self._said.tags)
        return apply_tags(self._said.qualname, schema, tags) if tags else schema

    def _check_shapes(self, schema: Schema, tags: frozenset[Tag]) -> None:
        """Raise where the shapes cannot be checked, or a result's is told by nothing."""
        if self._is_vague or any(isinstance(k, ClassOf) for k in _all_parts(schema)):
            return
        self._step(codes.SHAPE)
        check_definition(self._said.qualname, schema)
        self._step(codes.SHAPE, self._said.tags)
        check_shapes_of_tags(self._said.qualname, schema, tags)
        self._step(codes.SHAPE)
        if tags.intersection(BY_DATA) or not schema.has_shapes:
            return
        results = [shape for r in schema.returns for shape in shapes_in(r.type)]
        given = [shape for p in schema.parameters for shape in shapes_in(p.type)]
        names = untold(given, results, number_names(schema))
        if names and not may_have_fake(self._api.tree, self._function.node):
            raise SchemaError(
                f"{self._said.qualname}: {why_untold(names[0])}",
                do="name an axis of an argument, write '_' for a length that only the"
                " kernel knows, or register a fake kernel",
            )

    def _outline(self, schema: Schema) -> Outline:
        shown = [self._shown(p) for p in schema.parameters]
        text = str(replace(schema, parameters=tuple(shown)))
        return outline_of(schema, text)

    def _shown(self, p: Parameter) -> Parameter:
        return replace(p, type=Base("...")) if p.name in self.unsure else p


def _all_parts(schema: Schema) -> Iterator[SchemaType]:
    for p in schema.parameters:
        yield from parts(p.type)


def check_schema(
    api: TypeChecker, name: str, given: Expression, *, is_whole: bool
) -> Outline | None:
    """The schema of a definition without a function; report one that cannot be.

    Where `name` is not the whole of it but a namespace, the rest stands before it.
    """
    text = constant_or(given, None)
    if not isinstance(text, str) or _CLASS.search(text.partition("(")[2]):
        return None
    code = codes.SCHEMA
    try:
        name, schema = (
            parsed(name, _without_name(name, text))
            if is_whole
            else read_definition(text, name)
        )
        check_names(name, schema)
        check_factory(name, schema, (DEFAULT,))
        code = codes.SHAPE
        check_definition(name, schema)
    except CustomOpError as error:
        codes.tell(api, error, given, code)
        return None
    return outline_of(schema, str(schema))
