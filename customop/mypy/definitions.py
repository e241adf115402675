"""Check definitions of operators, also with overloads, as at runtime.

mypy drops the decorators of the function below its overloads. The name would then have
the overloads, but not the methods of an operator. The plugin reads ::

    @overload
    def f(x: A) -> A: ...
    @overload
    def f(x: B) -> B: ...
    @custom_op("ns::f", mutates_args=())
    def f(x: A | B) -> A | B: ...

as functions under another name, and ``f = custom_op("ns::f", ..., mutates_args=())``. The
operator then has the parameters of the implementation and keeps the overloads for calls.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from mypy.errorcodes import ErrorCode
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
    RefExpr,
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

from customop.arrays.array import Array
from customop.core.operator import Operator
from customop.core.registry import check_names
from customop.core.rule_kind import check_factory
from customop.errors import CustomOpError, SchemaError
from customop.library.define import parsed, read_definition
from customop.mypy import records
from customop.mypy.hints import (
    HIDDEN,
    PACKAGE,
    Unfamiliar,
    annotation_of,
    constant,
    constant_or,
    device_of,
    is_ours,
    own_name,
    plain_class,
    words_of,
)
from customop.mypy.kernel_checks import noted, registered_kinds
from customop.mypy.records import Call, Record, plain, recall
from customop.mypy.rule_checks import check_kinds
from customop.mypy.source import Function, Survey, stand_in
from customop.schema.agreement import check_agrees, check_overload, computes_later
from customop.schema.infer import undefined
from customop.schema.schema import Schema
from customop.schema.shape_check import check_definition, number_names
from customop.schema.tags import BY_DATA, Tag, apply_tags, check_shapes_of_tags
from customop.schema.types import MISSING, Base, ClassOf, Parameter, parts, shapes_in
from customop.shapes.lengths import unknown_names, why_unknown

if TYPE_CHECKING:
    from mypy.checker import TypeChecker

# ---- definitions, checked as `custom_op` and `define` check them ----

# A class in a schema string; only the running program can find it.
_CLASS = re.compile(r"[^\W\d]\w*\.[^\W\d]")
_UNKNOWN = object()
# Functions that give a class a schema type, or may do so in a call.
_GIVING_TYPES = ("register_array_type", "register_config_type", "register_pytree_node")
# Attributes that can give a function other annotations than its source shows.
_ANNOTATING = ("__annotations__", "__signature__", "__wrapped__")


class _Unread:
    """A default whose value is not visible in the source."""

    def __repr__(self) -> str:
        return "..."


class _WithUnread(Parameter):
    """A parameter whose default is not visible in the source."""

    __slots__ = ()

    def __str__(self) -> str:
        required = Parameter(self.name, self.type, MISSING, self.kind, self.alias)
        return f"{required}=..."


class Draft:
    """A call of `custom_op`, checked before the program runs.

    Parameters
    ----------
    api : TypeChecker
    survey : Survey
        The survey of the module.
    name : str
        Qualified name of the operator.
    call : Call
    function : Function
    context : Context
        Where to show messages that are not about one argument.
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
        # Whether a shape may be written where the plugin cannot read it.
        self._is_vague = False
        self._code = records.SCHEMA
        self._at: Context | None = None

    def record(self, **known: Any) -> Record:
        """Report what registration would refuse, and return the record."""
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
            records.report(self._api, error, at, records.SCHEMA)

    def _shown(self, p: Parameter) -> Parameter:
        return p.replaced(type=Base("...")) if p.name in self._unsure else p

    def _checked(self) -> Schema:
        node = self._function.node
        if node is not None and (node.is_coroutine or node.is_generator):
            is_generator = not node.is_coroutine
            raise computes_later(self._name, "function", is_generator=is_generator)
        schema = self._schema()
        self._check_kinds(schema)
        self._now(records.SCHEMA)
        check_names(self._name, schema)
        return self._tagged(schema)

    # ---- what is reported ----

    def _now(self, code: ErrorCode, argument: str = "") -> None:
        """Set the code of the next error, and the argument at which it is shown."""
        self._code = code
        self._at = self._call.expression(argument) if argument else None

    def _report(self, error: CustomOpError) -> None:
        if not error.what.startswith(self._name):
            error.what = f"{self._name}: {error.what}"
        at = self._at or self._function.place(error.parameter, self._context)
        records.report(self._api, error, at, self._code)

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
                self._now(records.MUTATES, "mutates_args")
            else:
                is_of_shapes = self._is_right_without_shapes(text, names)
                code = records.SHAPE if is_of_shapes else records.SCHEMA
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
        """Return the function's default, or the schema's if its value is unknown."""
        try:
            return self._function.default(index)
        except Unfamiliar:
            return _Unread() if otherwise is MISSING else otherwise

    def _inferred(
        self, given: list[inspect.Parameter], result: Any, names: Any
    ) -> Schema:
        self._check_names()
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

    def _check_names(self) -> None:
        """Raise for an annotation with a name that only type checkers have."""
        fn = self._function
        for index, name in enumerate([*(p.name for p in fn.parameters), ""]):
            spelled = fn.spelled(index if name else -1)
            words = [] if spelled is None else [*words_of(spelled)]
            for word in {word.partition(".")[0] for word in words}:
                if word in self._survey.names_for_checkers:
                    what, do = undefined(word)
                    raise SchemaError(f"{fn.name}: {what}", do=do, parameter=name)

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
        """Return parameters and result with their annotations at runtime."""
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
        """Return a class without a schema type, unless the module may give it one."""
        if self._survey.mentions(*_GIVING_TYPES):
            return None
        return plain_class(hint, self._api.tree.fullname)

    # ---- other arguments of the call ----

    def _check_kinds(self, schema: Schema) -> None:
        kinds = self._call.texts("device_types")
        if kinds:
            at = self._call.expression("device_types") or self._context
            check_kinds(self._api, self._name, kinds, at)
            self._now(records.DEVICE)
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
        self._now(records.SCHEMA, "tags")
        return apply_tags(self._name, schema, known) if known else schema

    def _check_shapes(self, schema: Schema, tags: frozenset[Tag]) -> None:
        """Raise if shapes cannot be checked, or the length of a result is unknown."""
        types = [part for p in schema.parameters for part in parts(p.type)]
        if self._is_vague or any(isinstance(part, ClassOf) for part in types):
            return
        self._now(records.SHAPE)
        check_definition(self._name, schema)
        self._now(records.SHAPE, "tags")
        check_shapes_of_tags(self._name, schema, tags)
        self._now(records.SHAPE)
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
    """Return the schema of a definition without a function; report a wrong schema.

    The text of `Library.define` begins with a name in `namespace`. The text of `define`
    has only the parameters and results of `name`.
    """
    text = constant_or(given, None)
    if given is None or not isinstance(text, str):
        return None
    if _CLASS.search(text.partition("(")[2]):
        return None
    code = records.SCHEMA
    try:
        name, schema = (
            read_definition(text, namespace) if namespace else parsed(name, text)
        )
        check_names(name, schema)
        code = records.SHAPE
        check_definition(name, schema)
    except CustomOpError as error:
        records.report(api, error, given, code)
        return None
    return schema


def declared(api: TypeChecker, survey: Survey, qualname: str) -> Record | None:
    """Return the record of an operator that the module defines by a schema alone."""
    schemas = [
        schema
        for call in survey.declaring
        for name, schema in _declared_by(call)
        if name == qualname
    ]
    if len(schemas) != 1:
        return None
    return declared_record(qualname, schemas[0])


def declared_record(qualname: str, schema: Schema, **known: Any) -> Record:
    """Return the record of an operator without a function."""
    text = str(schema)
    return Record(qualname, plain=text, shown=text, is_declared=True, **known)


def _declared_by(call: CallExpr) -> Iterator[tuple[str, Schema]]:
    """Yield the name and the schema in a call of `define` or `Library.define`."""
    callee, texts = call.callee, [constant_or(item, None) for item in call.args[:2]]
    if not isinstance(callee, RefExpr) or call.arg_kinds[0] != ARG_POS:
        return
    is_function = own_name(callee.fullname) == "define"
    owner = callee.expr if isinstance(callee, MemberExpr) else None
    node = owner.node if isinstance(owner, RefExpr) else None
    library = recall(node.type) if isinstance(node, Var) else None
    if not all(isinstance(text, str) for text in texts) or _CLASS.search(texts[-1]):
        return
    try:
        if is_function and len(texts) == 2:
            yield parsed(*texts)
        elif library is not None:
            yield read_definition(texts[0], library.name)
    except CustomOpError:
        return  # reported where it is written


# ---- operators of functions with overloads ----

_ContextT = TypeVar("_ContextT", bound=Context)
_ATTRIBUTE = "__customop_overloads__"
_TYPING = ("typing", "typing_extensions")
# Imports that give a module the name `overload`.
_OVERLOADS = {*_TYPING, *(f"{module}.overload" for module in _TYPING)}


# ---- the tree of a module ----


def split_off(tree: MypyFile) -> None:
    """Rename the overloads of operators in a module, and assign the operators."""
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
    """Yield the names that `custom_op` has after an import."""
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
    """Return the inner blocks of a statement that may define operators."""
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
    """Return the assignment of an operator decorated below overloads, or None."""
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


# Attributes of a function other than its parameters and body.
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
    """Return the type `Operator` for a subclass of it that exists only for pyright."""
    proper = get_proper_type(mypy_type)
    if isinstance(proper, Instance):
        for base in proper.type.mro[1:]:
            if own_name(base.fullname) == Operator.__name__:
                return Instance(base, proper.args[:2], proper.line, proper.column)
    return mypy_type


def typed_as(mypy_type: Type, function: Function | None) -> Type:
    """Return the type of an operator or decorator, with a function's types as written.

    When mypy solves type variables, Any inside a type counts as unknown. A function
    with overloads, such as `numpy.sum`, would then return Any.
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
    """Return the type of an operator whose function has these overloads."""
    made, proper = get_proper_type(mypy_type), get_proper_type(overloads)
    if not isinstance(made, Instance) or not isinstance(proper, Overloaded):
        return mypy_type
    items = [
        item.copy_modified(name=(item.name or "").removesuffix(HIDDEN), definition=None)
        for item in proper.items
    ]
    return made.copy_with_extra_attr(_ATTRIBUTE, Overloaded(items))


def overloads_of(mypy_type: Type | None) -> Overloaded | None:
    """Return the overloads of an operator's function, or None."""
    proper = get_proper_type(mypy_type)
    if not isinstance(proper, Instance) or proper.extra_attrs is None:
        return None
    kept = get_proper_type(proper.extra_attrs.attrs.get(_ATTRIBUTE))
    return kept if isinstance(kept, Overloaded) else None


# ---- checks ----


def wrong_overloads(
    api: TypeChecker, function: Function, schema: Schema
) -> Iterator[tuple[SchemaError, Function]]:
    """Yield an error for each overload that does not fit the schema."""
    for number, overload in enumerate(function.overloads, 1):
        try:
            check_overload(overload.annotated(api), number, schema)
        except SchemaError as error:
            yield error, overload
