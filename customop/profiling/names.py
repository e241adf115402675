"""Names of the kernels, rules and formulas that a profile has rows for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from customop.arrays.kinds import DEFAULT, FAKE
from customop.core.arguments import kind_of_call
from customop.core.array_classes import find_array_rule
from customop.core.derived.find import find_fake
from customop.core.interpreter import Interpreter, Mode
from customop.core.kinds import COMPOSITE, JVP, VMAP
from customop.core.rule_kind import RuleKind
from customop.core.table import RuleTable

__all__ = ["names_of"]

# The parts of a gradient that observers see, and the names of their rows.
_FORMULAS: dict[str, str] = {
    "setup_context": "setup_context",
    "backward": "autograd backward",
}
# Name of the way in which a transform runs an operator without a rule for it.
_WITHOUT_RULE: dict[RuleKind, str] = {VMAP: "vmap loop", JVP: "jvp by autograd"}


def names_of(
    op: RuleTable, by: str | Interpreter, fn: Callable[..., Any], args: Sequence[Any]
) -> tuple[str, str]:
    """Names of an operator and of what runs, from the arguments of `Observer.enter`."""
    if by == "kernel":
        return _kernel_names(op, fn, args)
    names = op.plans.rule_names
    key: Any = by if isinstance(by, str) else (type(by), by.kind)
    if key not in names:
        rule = _FORMULAS[by] if isinstance(by, str) else _rule_name(op, by, fn)
        names[key] = op.qualname, rule
    return names[key]


def _kernel_names(
    op: RuleTable, kernel: Callable[..., Any], args: Sequence[Any]
) -> tuple[str, str]:
    if op.disabled:
        return op.qualname, _kernel_name(op, kernel, args)
    names = op.plans.rule_names
    found = names.get(id(kernel))
    if found is None:
        found = op.qualname, _kernel_name(op, kernel, args)
        # A kernel in one row alone has the same name for all arguments.
        if sum(row.fn is kernel for row in op.rows.values()) == 1:
            names[id(kernel)] = found
    return found


def _kernel_name(op: RuleTable, kernel: Callable[..., Any], args: Sequence[Any]) -> str:
    if find_array_rule(op, args) is not None:
        return "array rule"
    kind = kind_of_call(op, args)[0]
    if kind in op.disabled:
        return "wrapped function"
    names = {
        kind: f"{kind} kernel",
        DEFAULT: "default kernel",
        COMPOSITE: "composite body",
    }
    rows = op.rows
    for key, name in names.items():
        if key in rows and rows[key].fn is kernel:
            return name
    is_derived = kind == FAKE and kernel is find_fake(op)
    return "fake kernel" if is_derived else f"{kind} fallback"


def _rule_name(op: RuleTable, interpreter: Interpreter, fn: Callable[..., Any]) -> str:
    body = op.rows.get(COMPOSITE)
    if body is not None and body.fn is fn:
        return "composite body"
    kind = interpreter.kind
    if isinstance(interpreter, Mode):
        return f"{kind.name} mode"
    if kind.call_title:
        return kind.call_title
    if op.find_rule(kind) is not None:
        return f"{kind.name} rule"
    return _WITHOUT_RULE.get(kind, f"{kind.name} interpreter")
