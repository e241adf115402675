"""What the plugin knows about operators and calls, and its error codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from mypy.errorcodes import ErrorCode
from mypy.nodes import Context, Expression, TempNode
from mypy.plugin import (
    AttributeContext,
    FunctionContext,
    FunctionSigContext,
    MethodContext,
    MethodSigContext,
)
from mypy.types import (
    Instance,
    LiteralType,
    TupleType,
    Type,
    UnionType,
    UnpackType,
    get_proper_type,
)

from customop.core.call_arguments import different_kinds
from customop.core.rule_kind import Definition
from customop.errors import CustomOpError, DeviceMismatchError, ShapeError
from customop.mypy.hints import DEVICES, SEQUENCES, constant_or
from customop.mypy.source import stand_in
from customop.schema.schema import Schema
from customop.schema.types import (
    ARRAY,
    MISSING,
    ArrayType,
    Base,
    ClassOf,
    Maybe,
    Parameter,
    SchemaType,
    holds_arrays,
    parts,
)
from customop.shapes.lengths import AxisFault, check_rank
from customop.shapes.notation import Shape

if TYPE_CHECKING:
    from mypy.checker import TypeChecker


# ---- the plugin's error codes, and how it reports an error ----


def _code(name: str, description: str) -> ErrorCode:
    return ErrorCode(f"customop-{name}", description, "customop")


NAME = _code("name", "Check that names of operators are namespace::name")
SCHEMA = _code("schema", "Check that a definition has a schema")
SHAPE = _code("shape", "Check the shapes in annotations and schemas")
MUTATES = _code("mutates", "Check that mutates_args names array parameters")
KERNEL = _code("kernel", "Check kernels against the operator")
FAKE = _code("fake", "Check fake kernels against the operator")
AUTOGRAD = _code("autograd", "Check backward formulas against the operator")
VMAP = _code("vmap", "Check batching rules against the operator")
JVP = _code("jvp", "Check forward-mode rules against the operator")
RULE = _code("rule", "Check rules of other kinds against the operator")
DUPLICATE = _code("duplicate", "Check that each operator has a name of its own")
TRANSFORM = _code("transform", "Check the arguments of grad, vmap and the like")
MIXED = _code("mixed", "Check that the arrays of a call are of one kind")
DEVICE = _code("device", "Check that an argument selects the kernel")


def report(
    api: TypeChecker, error: CustomOpError, context: Context, code: ErrorCode
) -> None:
    """Report the text of a run-time error and its remedy.

    For a call of an overloaded function, mypy tries the overloads one by one. It
    collects errors in watchers and rejects an overload that has one. Reports bypass the
    watchers.
    """
    watchers: list[Any] = api.errors._watchers
    held = watchers[:]
    watchers.clear()
    try:
        api.fail(error.what, context, code=code)
        if error.do:
            api.note(f"do: {error.do}", context, code=code)
    finally:
        watchers[:] = held


def has_failed(api: TypeChecker) -> bool:
    """Return whether mypy has rejected the overload that it is trying."""
    watchers: list[Any] = api.errors._watchers
    return bool(watchers) and bool(watchers[-1].has_new_errors())


# ---- records ----
# Records of operators, libraries and rule kinds, kept in their types.
#
# A record is the value of an attribute whose name no program uses. So it follows the
# type through assignments, imports and mypy's cache.


_ATTRIBUTE = "__customop__"


@dataclass(frozen=True)
class Record:
    """What is known about an operator, a library or a rule kind.

    Attributes
    ----------
    name : str
        The qualified name of an operator, the namespace of a library, or the name of a
        rule kind.
    plain : str
        Schema of an operator, without classes and the values of defaults; else empty.
    shown : str
        The schema as messages show it.
    unsure : tuple of str
        Parts of the schema that are not known: names of parameters, ``"return"``, and
        ``"mutates_args"`` for the parameters that are written.
    origin : str
        Module of the definition, ``#``, and its number among the module's definitions
        of that name. The number is negative if the name is not a literal.
    is_sure : bool
        Whether importing the module always runs the definition.
    takes : str
        Parameters that rules of a rule kind take; else empty.
    key : str
        Default dispatch key of a library.
    kinds : tuple of str
        Kinds of arrays for which the module of an operator registers kernels.
    is_declared : bool
        Whether the schema was written without a function, so that `plain` is all of it.
    """

    name: str
    plain: str = ""
    shown: str = ""
    unsure: tuple[str, ...] = ()
    origin: str = ""
    is_sure: bool = False
    takes: str = ""
    key: str = ""
    kinds: tuple[str, ...] = ()
    is_declared: bool = False

    @property
    def has_schema(self) -> bool:
        """Whether this is the record of an operator with a known schema."""
        return bool(self.plain)

    @cached_property
    def definition(self) -> Definition:
        """The definition of an operator, for use in checks of the runtime."""
        schema = _Shown(Schema.parse(self.plain), self.shown)
        fn = stand_in(self.name, [])
        return Definition(self.name, fn, schema, frozenset(), "", "")

    @property
    def schema(self) -> Schema:
        """The schema of an operator."""
        return self.definition.schema

    @cached_property
    def arrays(self) -> frozenset[str]:
        """Names of the operator's parameters that are or contain arrays."""
        return frozenset(p.name for p in self.schema.parameters if holds_arrays(p.type))


class _Shown(Schema):
    """A schema that prints another text."""

    text: str = ""

    def __init__(self, schema: Schema, text: str) -> None:
        super().__init__(schema.parameters, schema.returns, schema.is_tuple)
        vars(self)["text"] = text

    def __str__(self) -> str:
        return self.text


def plain(schema: Schema) -> str:
    """Return a schema as text that can be read again, without classes and defaults."""
    parameters = [_plain_parameter(p) for p in schema.parameters]
    returns = [r.replaced(type=_plain_type(r.type)) for r in schema.returns]
    return str(Schema(tuple(parameters), tuple(returns), schema.is_tuple))


def _plain_parameter(p: Parameter) -> Parameter:
    declared = _plain_type(p.type)
    if p.default is MISSING:
        return Parameter(p.name, declared, MISSING, p.kind, p.alias)
    optional = declared if isinstance(declared, Maybe) else Maybe(declared)
    return Parameter(p.name, optional, None, p.kind, p.alias)


def _plain_type(declared: SchemaType) -> SchemaType:
    if not any(isinstance(part, ClassOf) for part in parts(declared)):
        return declared
    return ARRAY if holds_arrays(declared) else Base("str")


def array_shape(declared: SchemaType | None) -> Shape | None:
    """Return the declared shape of a type that is an array, or an array or None."""
    array = declared.item if isinstance(declared, Maybe) else declared
    return array.shape if isinstance(array, ArrayType) else None


@lru_cache(maxsize=4096)
def _read(text: str) -> Record:
    found: dict[str, Any] = json.loads(text)
    return Record(
        **{**found, "unsure": tuple(found["unsure"]), "kinds": tuple(found["kinds"])}
    )


def recall(mypy_type: Type | None) -> Record | None:
    """Return the record in a type, or None."""
    proper = get_proper_type(mypy_type)
    if not isinstance(proper, Instance) or proper.extra_attrs is None:
        return None
    kept = get_proper_type(proper.extra_attrs.attrs.get(_ATTRIBUTE))
    if not isinstance(kept, LiteralType) or not isinstance(kept.value, str):
        return None
    return _read(kept.value)


def remember(api: TypeChecker, mypy_type: Type, record: Record) -> Type:
    """Return a type with a record in it; only types of objects can hold one."""
    proper = get_proper_type(mypy_type)
    if not isinstance(proper, Instance):
        return mypy_type
    text = json.dumps(asdict(record))
    kept = LiteralType(text, api.named_type("builtins.str"))
    return proper.copy_with_extra_attr(_ATTRIBUTE, kept)


def copied(source: Type, target: Type) -> Type:
    """Return the target type with the record of the source, if that has one."""
    given, made = get_proper_type(source), get_proper_type(target)
    if not isinstance(given, Instance) or not isinstance(made, Instance):
        return target
    if given.extra_attrs is None or _ATTRIBUTE not in given.extra_attrs.attrs:
        return target
    return made.copy_with_extra_attr(_ATTRIBUTE, given.extra_attrs.attrs[_ATTRIBUTE])


# ---- calls ----
# The arguments of a call, and checks of arguments passed to an operator.


AnyContext: TypeAlias = FunctionContext | MethodContext


def checker(
    context: AnyContext | AttributeContext | FunctionSigContext | MethodSigContext,
) -> TypeChecker:
    """Return the type checker; hooks only get a part of its interface."""
    return cast("TypeChecker", context.api)


class Argument(NamedTuple):
    """An argument: its type, and its expression unless mypy made the argument up."""

    type: Type
    expression: Expression | None


class Call:
    """The arguments of a call."""

    def __init__(self, context: AnyContext) -> None:
        self._context = context

    def get(self, parameter: int | str) -> Argument | None:
        """Return the argument for a parameter by position or name, or None."""
        if isinstance(parameter, str):
            names = self._context.callee_arg_names
            return self.get(names.index(parameter)) if parameter in names else None
        types, given = self._context.arg_types, self._context.args
        if parameter >= len(types) or len(types[parameter]) != 1:
            return None
        expression = given[parameter][0]
        is_made_up = isinstance(expression, TempNode)
        return Argument(types[parameter][0], None if is_made_up else expression)

    def expression(self, parameter: int | str) -> Expression | None:
        """Return the expression of an argument, or None."""
        found = self.get(parameter)
        return None if found is None else found.expression

    def constant(self, parameter: int | str, otherwise: Any) -> Any:
        """Return the value of an argument, or `otherwise` if it is not visible."""
        return constant_or(self.expression(parameter), otherwise)

    def text(self, parameter: int | str) -> str | None:
        """Return the string that is passed, or None if the source does not show it."""
        found = self.constant(parameter, None)
        return found if isinstance(found, str) else None

    def texts(self, parameter: int | str) -> tuple[str, ...] | None:
        """Return the string or strings that are passed as a tuple; None if unknown."""
        found = self.constant(parameter, None)
        found = (found,) if isinstance(found, str) else found
        is_several = isinstance(found, list | tuple | set)
        if is_several and all(isinstance(text, str) for text in found):
            return tuple(found)
        return None

    def by_parameter(self, record: Record) -> Iterator[tuple[str, Argument]]:
        """Yield the parameters of an operator, by name, with their arguments."""
        names = [p.name for p in record.schema.positional]
        for index, name in enumerate(self._context.callee_arg_names):
            given = self.get(index)
            if given is not None:
                yield name or "".join(names[index : index + 1]), given


def mixed(call: Call, record: Record) -> DeviceMismatchError | None:
    """Return the error if arguments mix arrays of NumPy and of CuPy."""
    arrays = record.arrays
    if len(arrays) < 2:
        return None
    seen = [
        (name, _device(given.type))
        for name, given in call.by_parameter(record)
        if name in arrays
    ]
    known = [(name, device) for name, device in seen if device]
    several = len({device for _, device in known}) > 1
    if not several:
        return None
    return different_kinds(record.definition, known)


def _device(mypy_type: Type) -> str:
    """Return the kind of array of a type or of all items of a list; "" if unknown."""
    proper = get_proper_type(mypy_type)
    if isinstance(proper, Instance):
        found = {DEVICES.get(base.fullname, "") for base in proper.type.mro} - {""}
        if not found and proper.type.fullname in SEQUENCES:
            return _device(proper.args[0])
        return found.pop() if len(found) == 1 else ""
    if isinstance(proper, TupleType | UnionType):
        items = {_device(item) for item in proper.items}
        return items.pop() if len(items) == 1 else ""
    return ""


def misshapen(call: Call, record: Record) -> Iterator[tuple[ShapeError, Argument]]:
    """Yield an error for each argument whose number of axes cannot fit."""
    if not record.schema.has_shapes:
        return
    shapes = {p.name: array_shape(p.type) for p in record.schema.parameters}
    for name, given in call.by_parameter(record):
        shape, rank = shapes.get(name), _rank(given.type)
        try:
            if rank is not None and shape is not None:
                check_rank(f"'{name}'", shape, rank)
        except AxisFault as fault:
            what = f"{record.name}: argument {fault.who} {fault.reason}"
            yield ShapeError(what, do=fault.do), given


def _rank(mypy_type: Type) -> int | None:
    """Return the number of axes of an array type, or None if unknown."""
    proper = get_proper_type(mypy_type)
    if not isinstance(proper, Instance) or proper.type.fullname != "numpy.ndarray":
        return None
    lengths = get_proper_type(proper.args[0]) if proper.args else None
    if not isinstance(lengths, TupleType):
        return None
    if any(isinstance(item, UnpackType) for item in lengths.items):
        return None
    return len(lengths.items)
