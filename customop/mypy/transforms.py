"""Calls of transforms: positions of arguments, entries of `in_dims`, missing gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mypy.nodes import (
    Context,
    Decorator,
    Expression,
    ListExpr,
    RefExpr,
    StarExpr,
    TupleExpr,
    Var,
)
from mypy.subtypes import find_member
from mypy.types import (
    AnyType,
    CallableType,
    Instance,
    Overloaded,
    Type,
    TypeOfAny,
    get_proper_type,
)

from customop.errors import CustomOpError, MissingRuleError
from customop.mypy import codes
from customop.mypy.calls import Call
from customop.mypy.overloads import overloads_of
from customop.mypy.program import is_operator, signature_of
from customop.mypy.records import Record, recall
from customop.mypy.trees import Survey, defined_by
from customop.transforms.values import chosen
from customop.transforms.vmap import other_length

if TYPE_CHECKING:
    from mypy.checker import TypeChecker

__all__ = [
    "TRANSFORMS",
    "check_positions",
    "check_rule",
    "check_vmap",
    "result_of_transform",
]

# Functions with an argument `argnums`, and whether they need a gradient.
TRANSFORMS = {
    "grad": True,
    "value_and_grad": True,
    "jacrev": True,
    "jacfwd": False,
    "hessian": True,
}
# At run time these call another one, which words the errors.
_SPOKEN = {"value_and_grad": "grad", "hessian": "jacrev"}


def result_of_transform(call: Call, transform: str, default: Type) -> Type:
    """The function that a transform returns, with all overloads of the one it is given.

    mypy has the first overload alone. That of a ufunc takes no arrays.
    """
    given, made = call.get(0), get_proper_type(default)
    overloads = None if given is None else _overloads(given.type)
    if overloads is None or not isinstance(made, CallableType):
        return default
    items = [_transformed(item, transform) for item in overloads.items]
    return Overloaded(items)


def _overloads(mypy_type: Type) -> Overloaded | None:
    proper = get_proper_type(mypy_type)
    kept = overloads_of(proper)
    if kept is None and isinstance(proper, Instance):
        call = find_member("__call__", proper, proper)
        return None if call is None else _overloads(call)
    return proper if isinstance(proper, Overloaded) else kept


def _transformed(item: CallableType, transform: str) -> CallableType:
    """The type of `vmap` of a function, or of another transform whose result is Any."""
    is_same = transform == "vmap"
    result = item.ret_type if is_same else AnyType(TypeOfAny.special_form)
    return item.copy_modified(ret_type=result, name=None, definition=None)


def check_positions(api: TypeChecker, call: Call, transform: str) -> None:
    """Report an `argnums` beyond the positional parameters of the function."""
    limits, given = _limits(call), call.expression("argnums")
    wanted = call.constant("argnums", None)
    wanted = (wanted,) if isinstance(wanted, int) else wanted
    if limits is None or given is None or not _are_ints(wanted):
        return
    what = f"{_SPOKEN.get(transform, transform)} of {_name(call)}"
    try:
        chosen(what, tuple(wanted), limits[1])
    except CustomOpError as error:
        codes.report(api, error, given, codes.TRANSFORM)


def _are_ints(value: Any) -> bool:
    return isinstance(value, tuple | list) and all(type(item) is int for item in value)


def check_vmap(api: TypeChecker, call: Call) -> None:
    """Report `in_dims` with more or fewer entries than the function can have."""
    limits, given = _limits(call), call.expression("in_dims")
    count = _length(given)
    if limits is None or given is None or count is None:
        return
    fewest, most = limits
    if not fewest <= count <= most:
        error = other_length(_name(call), count, most if count > most else fewest)
        codes.report(api, error, given, codes.TRANSFORM)


def _length(given: Expression | None) -> int | None:
    """Number of entries of a tuple or list that is written out."""
    if not isinstance(given, TupleExpr | ListExpr):
        return None
    is_open = any(isinstance(item, StarExpr) for item in given.items)
    return None if is_open else len(given.items)


def _name(call: Call) -> str:
    """The name of the function, as messages have it at run time."""
    given = call.get(0)
    record = None if given is None else recall(given.type)
    if record is not None:
        return record.name.partition("::")[2].replace(".", "_")
    proper = get_proper_type(given.type) if given is not None else None
    name = proper.name if isinstance(proper, CallableType) else None
    return (name or "<lambda>").partition(" of ")[0]


def _limits(call: Call) -> tuple[int, int] | None:
    """The fewest and most positional arguments of the function, if they are known."""
    given = call.get(0)
    proper = get_proper_type(given.type) if given is not None else None
    if isinstance(proper, Instance) and is_operator(proper):
        proper = signature_of(proper)
    if not isinstance(proper, CallableType) or proper.is_type_obj():
        return None
    if proper.is_ellipsis_args or proper.param_spec() is not None:
        return None
    if any(found.is_star() for found in proper.arg_kinds):
        return None
    positional = [found for found in proper.arg_kinds if found.is_positional()]
    required = [found for found in positional if found.is_required()]
    return len(required), len(positional)


def check_rule(api: TypeChecker, survey: Survey, call: Call, context: Context) -> None:
    """Report an operator of this module whose gradient nothing in it registers.

    The operator must be called by its own name: a function around it may be enough for
    another module to register first.
    """
    given, expression = call.get(0), call.expression(0)
    record = None if given is None else recall(given.type)
    node = expression.node if isinstance(expression, RefExpr) else None
    if record is None or not record.has_schema:
        return
    is_here = record.origin.rpartition("#")[0] == api.tree.fullname
    if not is_here or not isinstance(node, Decorator | Var):
        return
    if _may_have_gradient(survey, node, record):
        return
    error = MissingRuleError(
        f"{record.name} has no 'autograd' rule", do=f"@{node.name}.register_autograd"
    )
    codes.report(api, error, expression or context, codes.AUTOGRAD)


def _may_have_gradient(survey: Survey, node: Decorator | Var, record: Record) -> bool:
    if isinstance(node, Decorator):
        return survey.may_have_gradient(node.func)
    # The full name of a variable within a function has no dots.
    values = survey.assigned(node.name) if "." in node.fullname else []
    is_here = any(record.name in defined_by(value) for value in values)
    return not is_here or survey.may_have_gradients()
