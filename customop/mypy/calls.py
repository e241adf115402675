"""Arguments of a call, and the checks of arguments that an operator is called with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from mypy.nodes import Expression, TempNode
from mypy.plugin import (
    AttributeContext,
    FunctionContext,
    MethodContext,
    MethodSigContext,
)
from mypy.types import (
    Instance,
    TupleType,
    Type,
    UnionType,
    UnpackType,
    get_proper_type,
)

from customop.core.arguments import different_kinds
from customop.errors import DeviceMismatchError, ShapeError
from customop.mypy.constants import constant_or
from customop.mypy.hints import DEVICES, SEQUENCES
from customop.mypy.records import Record, array_shape
from customop.shapes.solve import AxisFault, check_rank

if TYPE_CHECKING:
    from mypy.checker import TypeChecker

__all__ = ["AnyContext", "Argument", "Call", "checker", "misshapen", "mixed"]

AnyContext: TypeAlias = FunctionContext | MethodContext


def checker(context: AnyContext | AttributeContext | MethodSigContext) -> TypeChecker:
    """The type checker; the interface that hooks get has a part of it alone."""
    return cast("TypeChecker", context.api)


class Argument(NamedTuple):
    """An argument: its type, and its expression unless mypy made it up."""

    type: Type
    expression: Expression | None


class Call:
    """The arguments of a call."""

    def __init__(self, context: AnyContext) -> None:
        self._context = context

    def get(self, parameter: int | str) -> Argument | None:
        """The argument for a parameter by position or name; None if it is left out."""
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
        """The expression of an argument; None if it is left out or made up."""
        found = self.get(parameter)
        return None if found is None else found.expression

    def constant(self, parameter: int | str, otherwise: Any) -> Any:
        """The value of an argument, or `otherwise` if the source does not show it."""
        return constant_or(self.expression(parameter), otherwise)

    def text(self, parameter: int | str) -> str | None:
        """The string that is passed, None if the source does not show one."""
        found = self.constant(parameter, None)
        return found if isinstance(found, str) else None

    def texts(self, parameter: int | str) -> tuple[str, ...] | None:
        """The strings that are passed, one or several; None if they are not known."""
        found = self.constant(parameter, None)
        found = (found,) if isinstance(found, str) else found
        is_several = isinstance(found, list | tuple | set)
        if is_several and all(isinstance(text, str) for text in found):
            return tuple(found)
        return None

    def by_parameter(self, record: Record) -> Iterator[tuple[str, Argument]]:
        """Parameters of an operator that this is a call of, with their arguments."""
        names = [p.name for p in record.schema.positional]
        for index, name in enumerate(self._context.callee_arg_names):
            given = self.get(index)
            if given is not None:
                yield name or "".join(names[index : index + 1]), given


def mixed(call: Call, record: Record) -> DeviceMismatchError | None:
    """The error for arguments that are arrays of NumPy and of CuPy."""
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
    """Kind of array of a type, or of all items of a list; empty where it is not known."""
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
    """Arguments whose number of axes cannot fit, and the errors of the call."""
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
    """Number of axes of the arrays of a type, if it is known."""
    proper = get_proper_type(mypy_type)
    if not isinstance(proper, Instance) or proper.type.fullname != "numpy.ndarray":
        return None
    lengths = get_proper_type(proper.args[0]) if proper.args else None
    if not isinstance(lengths, TupleType):
        return None
    if any(isinstance(item, UnpackType) for item in lengths.items):
        return None
    return len(lengths.items)
