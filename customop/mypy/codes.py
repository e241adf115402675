"""Error codes of the plugin, and how it reports an error under one of them."""

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
    "TRANSFORM",
    "VMAP",
    "has_failed",
    "report",
]


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

    For a call of an overloaded function, mypy tries the overloads while it collects
    errors in watchers, and rejects an overload that has one. Reports go past the watchers.
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
    """Whether mypy has rejected the overload that it is trying."""
    watchers: list[Any] = api.errors._watchers
    return bool(watchers) and bool(watchers[-1].has_new_errors())
