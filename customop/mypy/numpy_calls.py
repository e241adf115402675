"""Results of NumPy's functions and operators that NumPy's stubs do not know.

The stubs give an ndarray or Any for an argument of any class. At run time the class of the
arguments decides, by NumPy's protocols (NEP 13 and 18). Several overloads fit an ndarray
whose elements are not known; mypy then has Any as the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from mypy.nodes import ListExpr, TupleExpr
from mypy.plugin import FunctionContext, MethodContext
from mypy.types import (
    AnyType,
    Instance,
    TupleType,
    Type,
    TypeOfAny,
    TypeVarType,
    UnionType,
    get_proper_type,
)

from customop.mypy.calls import checker
from customop.mypy.hints import SEQUENCES, is_array

__all__ = [
    "is_arithmetic",
    "is_numpy_function",
    "is_ufunc_call",
    "result_of_arithmetic",
    "result_of_function",
    "result_of_ufunc",
]

_NDARRAY = "numpy.ndarray"
# Functions that make an ndarray of whatever they get, or refuse it.
_CONVERTING = ("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray")
_ARITHMETIC = {
    f"{_NDARRAY}.__{name}__"
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
}
_Call: TypeAlias = FunctionContext | MethodContext


def is_ufunc_call(fullname: str) -> bool:
    """Whether a method is the call of a class of ufuncs in NumPy's stubs."""
    return fullname.startswith("numpy._typing._ufunc.") and fullname.endswith(
        ".__call__"
    )


def is_numpy_function(fullname: str) -> bool:
    """Whether a function is NumPy's, and answers with the class of its arguments."""
    is_numpy = fullname.startswith("numpy.")
    return is_numpy and fullname.rpartition(".")[2] not in _CONVERTING


def is_arithmetic(fullname: str) -> bool:
    """Whether a method is an operator that computes with the elements of ndarrays."""
    return fullname in _ARITHMETIC


def result_of_arithmetic(context: MethodContext) -> Type:
    """The result of an operator: an ndarray for two ndarrays."""
    default, array = context.default_return_type, get_proper_type(context.type)
    if not _is_any(default) or not isinstance(array, Instance):
        return default
    if not any(_is_ndarray(found) for found in _arrays(context)):
        return default
    unknown = AnyType(TypeOfAny.special_form)
    return array.copy_modified(args=[unknown] * len(array.args))


def result_of_ufunc(context: _Call) -> Type:
    """The result of a ufunc: an ndarray for ndarrays, else the class of an argument."""
    found = _arrays(context)
    others = [array for array in found if not _is_ndarray(array)]
    default = context.default_return_type
    if others:
        return _of_class(others[0], default)
    return found[0] if found and _may_be_any(default) else default


def result_of_function(context: _Call) -> Type:
    """The result of a function, of the class of an argument that is not an ndarray."""
    others = [array for array in _arrays(context) if not _is_ndarray(array)]
    default = context.default_return_type
    return _of_class(others[0], default) if others else default


def _of_class(array: Type, default: Type) -> Type:
    proper = get_proper_type(default)
    items = proper.items if isinstance(proper, UnionType) else [default]
    return (
        array if all(_is_any(item) or _is_ndarray(item) for item in items) else default
    )


def _is_any(mypy_type: Type) -> bool:
    return isinstance(get_proper_type(mypy_type), AnyType)


def _may_be_any(mypy_type: Type) -> bool:
    proper = get_proper_type(mypy_type)
    items = proper.items if isinstance(proper, UnionType) else [proper]
    return any(_is_any(item) for item in items)


def _is_ndarray(mypy_type: Type) -> bool:
    proper = get_proper_type(mypy_type)
    return isinstance(proper, Instance) and proper.type.fullname == _NDARRAY


def _arrays(context: _Call) -> list[Type]:
    return [array for found in _given(context) for array in _arrays_in(found)]


def _given(context: _Call) -> Iterator[Type]:
    """Types of the arguments, and of the items of a list that is written out.

    mypy gives such a list the type that the stubs take.
    """
    api = checker(context)
    for types, expressions in zip(context.arg_types, context.args, strict=True):
        for given, expression in zip(types, expressions, strict=True):
            if isinstance(expression, ListExpr | TupleExpr):
                yield from (api.lookup_type(item) for item in expression.items)
            else:
                yield given


def _arrays_in(given: Type) -> Iterator[Type]:
    """The array of a type, or those within a list or tuple of them."""
    proper = get_proper_type(given)
    bound = proper.upper_bound if isinstance(proper, TypeVarType) else proper
    found = get_proper_type(bound)
    if isinstance(found, Instance) and is_array(found.type):
        yield proper
    elif isinstance(proper, TupleType):
        for item in proper.items:
            yield from _arrays_in(item)
    elif isinstance(proper, Instance) and proper.type.fullname in SEQUENCES:
        for item in proper.args:
            yield from _arrays_in(item)
