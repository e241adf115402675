"""Error codes of the plugin, and how it says something under one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mypy.errorcodes import ErrorCode
from mypy.nodes import Context

from customop.errors import CustomOpError

if TYPE_CHECKING:
    from mypy.checker import TypeChecker

__all__ = [
    "AUTOGRAD",
    "DEVICE",
    "DUPLICATE",
    "FAKE",
    "JVP",
    "KERNEL",
    "MIXED",
    "MUTATES",
    "NAME",
    "RULE",
    "SCHEMA",
    "SHAPE",
    "VMAP",
    "has_failed",
    "say",
    "tell",
]

_CATEGORY = "customop"


def _code(name: str, description: str) -> ErrorCode:
    return ErrorCode(f"customop-{name}", description, _CATEGORY)


NAME = _code("name", "Check that names of operators are namespace::name")
SCHEMA = _code("schema", "Check that a schema can be made of a definition")
SHAPE = _code("shape", "Check the shapes that annotations and schemas say")
MUTATES = _code("mutates", "Check that mutates_args names array parameters")
KERNEL = _code("kernel", "Check kernels against the operator")
FAKE = _code("fake", "Check fake kernels against the operator")
AUTOGRAD = _code("autograd", "Check backward formulas against the operator")
VMAP = _code("vmap", "Check batching rules against the operator")
JVP = _code("jvp", "Check forward-mode rules against the operator")
RULE = _code("rule", "Check rules of other kinds against the operator")
DUPLICATE = _code("duplicate", "Check that no two operators have one name")
MIXED = _code("mixed", "Check that the arrays of a call are of one kind")
DEVICE = _code("device", "Check that something tells the kind of array of a kernel")


def tell(
    api: TypeChecker, error: CustomOpError, context: Context, code: ErrorCode
) -> None:
    """Say what the error would say at run time, and what to do."""
    say(api, error.what, error.do, context, code)


def say(
    api: TypeChecker, what: str, do: str, context: Context, code: ErrorCode
) -> None:
    """Report an error, also from within the call of an overloaded function.

    mypy tries the overloads of a function with all errors held back, and takes one
    that has any for one that does not fit.
    """
    watchers: list[Any] = api.errors._watchers
    held = watchers[:]
    watchers.clear()
    try:
        api.fail(what, context, code=code)
        if do:
            api.note(f"do: {do}", context, code=code)
    finally:
        watchers[:] = held


def has_failed(api: TypeChecker) -> bool:
    """Whether mypy has found that the overload in hand does not fit."""
    watchers: list[Any] = api.errors._watchers
    return bool(watchers) and bool(watchers[-1].has_new_errors())
