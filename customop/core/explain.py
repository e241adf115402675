"""Why a call takes the kernel or rule that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from customop.arrays.describe import show_values
from customop.arrays.kinds import DEFAULT, FAKE, kind_name
from customop.core.arguments import kind_of_call
from customop.core.array_classes import find_array_rule, find_wrapper
from customop.core.definition import Row
from customop.core.derived.find import find_fake, source_of
from customop.core.dispatch import kernel_for
from customop.core.interpreter import Mode, leaked, nested_leaves, top_interpreter
from customop.core.kinds import ARRAY_CLASS, COMPOSITE
from customop.core.rule_kind import RuleKind, rule_kind
from customop.core.table import RuleTable
from customop.errors import CustomOpError, DataDependentError, MissingRuleError, place
from customop.later import later

__all__ = ["Candidate", "Explanation", "explain"]

page: ModuleType = later(import_module, "customop.core.page")


class Candidate(NamedTuple):
    """A kernel or rule that a call might have taken.

    Attributes
    ----------
    name : str
        Such as ``"kernel for 'cpu'"`` or ``"vmap rule"``.
    why : str
        Why it is taken, or not.
    place : str
        File and line of its registration; empty where it is derived or missing.
    fn : object
        The kernel or rule itself; None where it is missing.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> found = co.ops.np.sin.default.explain(co.FakeArray((3,)))
    >>> found.taken.name, found.taken.why
    ('fake kernel', "'x' is an array of the kind 'fake'")
    """

    name: str
    why: str
    place: str = ""
    fn: Any = None

    def __str__(self) -> str:
        where = f" from {self.place}" if self.place else ""
        return f"{self.name}{where}: {self.why}"


class Explanation(NamedTuple):
    """The kernel or rule that a call takes, and why not the others.

    Attributes
    ----------
    call : str
        The call, with its arrays in short.
    schema : str
        The operator's, with its name.
    taken : Candidate or None
        What runs; None where the call raises.
    error : CustomOpError or None
        What the call raises where nothing can run.
    others : tuple of Candidate
        What is registered and does not run.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_op("doc::explained", mutates_args=(), device_types="cpu")
    ... def explained(x: np.ndarray) -> np.ndarray:
    ...     return x + 1
    >>> print(explained.explain(np.zeros(3)))
    doc::explained(f64[3])
      doc::explained(Array x) -> Array
      takes the kernel for 'cpu' from ...: 'x' is an array of the kind 'cpu'
    """

    call: str
    schema: str
    taken: Candidate | None
    error: CustomOpError | None
    others: tuple[Candidate, ...]

    def __str__(self) -> str:
        lines = [self.call, self.schema]
        lines += [f"takes the {self.taken}"] if self.taken else []
        if self.error is not None:
            lines += [f"raises {line}" for line in str(self.error).splitlines()[:1]]
            lines += [f"  {line}" for line in str(self.error).splitlines()[1:]]
        lines += [f"not the {other}" for other in self.others]
        return "\n  ".join(lines)

    def _repr_html_(self) -> str:
        return str(page.explanation_html(self))


def explain(op: RuleTable, args: Sequence[Any]) -> Explanation:
    """Explain a call with these values of all parameters."""
    taken: Candidate | None = None
    error: CustomOpError | None = None
    try:
        taken = _taken(op, args)
    except (MissingRuleError, DataDependentError) as missing:
        error = missing
    used = None if taken is None else taken.fn
    top = top_interpreter(op, args)
    is_whole = top is not None or find_wrapper(op, args) is not None
    kind = None if is_whole else kind_of_call(op, args)[0]
    return Explanation(
        f"{op.qualname}({show_values(args)})",
        op.schema.show(op.qualname),
        taken,
        error,
        tuple(c for c in _others(op, top, kind) if c.fn is not used),
    )


def _taken(op: RuleTable, args: Sequence[Any]) -> Candidate:
    if op.closed:
        raise op.closed_error()
    wrapper = find_wrapper(op, args)
    if wrapper is not None:
        why = f"an object of the class {wrapper.cls.__name__} is among the arguments"
        handle = wrapper.handle
        return Candidate(
            "handler of objects that hold arrays", why, place(handle), handle
        )
    top = top_interpreter(op, args)
    if top is not None:
        return _by_interpreter(op, args, top)
    array_rule = find_array_rule(op, args)
    if array_rule is not None:
        why = "an array of its class is among the arguments"
        return Candidate(ARRAY_CLASS.title, why, place(array_rule), array_rule)
    kind, _ = kind_of_call(op, args)
    return _by_kind(op, args, kind)


def _by_interpreter(op: RuleTable, args: Sequence[Any], top: Any) -> Candidate:
    if not top.alive:
        raise leaked(op, top)
    kind: RuleKind = top.kind
    who = _who(op, args, top)
    row = op.rows.get(kind) or op.rows.get(kind.name)
    if row is not None:
        return _candidate(kind.title, who, row)
    other = kind.instead
    if other is not None and other in op.rows:
        return _candidate(other.title, f"{who}; {kind.how_instead}", op.rows[other])
    derived = None if kind.derive is None else kind.derive(op)
    if derived is not None:
        why = f"{who}; derived by its {source_of(derived)}"
        return Candidate(kind.title, why, "", derived)
    row = op.rows.get(COMPOSITE)
    if row is not None:
        why = f"{who}, which has no rule for the operator and so sees into its body"
        return _candidate(COMPOSITE.title, why, row)
    return _without_rule(op, top, who)


def _without_rule(op: RuleTable, top: Any, who: str) -> Candidate:
    kind = top.kind
    found = op.fallback_for(kind)
    if found is not None:
        return Candidate(f"fallback for '{kind.name}'", who, place(found), found)
    if kind.last_resort:
        return Candidate(kind.last_resort, f"{who}; there is no {kind.name} rule")
    if isinstance(top, Mode):
        return Candidate(f"{kind.name} mode", who)
    raise op.missing_rule(kind, who)


def _by_kind(op: RuleTable, args: Sequence[Any], kind: str) -> Candidate:
    kernel = kernel_for(op, kind)
    why = _why_kind(op, args, kind)
    if kind in op.disabled:
        why = f"{why}, whose kernel is disabled"
        return Candidate("function that the operator was made from", why, "", kernel)
    rows = op.rows
    title = rule_kind(kind).title
    if kind in rows:
        return _candidate(title, why, rows[kind])
    if kernel is op.derived_for(kind):
        return Candidate(title, f"{why}, which derives it", "", kernel)
    return _by_default(op, kind, kernel, why)


def _by_default(
    op: RuleTable, kind: str, kernel: Callable[..., Any], why: str
) -> Candidate:
    """A kernel that is not registered for the kind of array alone."""
    rows = op.rows
    if kind != FAKE and DEFAULT in rows:
        why = f"{why}, which does not have its own kernel"
        return _candidate(rule_kind(DEFAULT).title, why, rows[DEFAULT])
    if COMPOSITE in rows:
        return _candidate(
            COMPOSITE.title, f"{why}, which has no kernel", rows[COMPOSITE]
        )
    if kind == FAKE and kernel is find_fake(op):
        why = f"{why}; derived by its {source_of(kernel)}"
        return Candidate("fake kernel", why, "", kernel)
    return Candidate(f"fallback for '{kind}'", why, place(kernel), kernel)


def _candidate(name: str, why: str, row: Row) -> Candidate:
    return Candidate(name, why, row.place, row.fn)


def _who(op: RuleTable, args: Sequence[Any], top: Any) -> str:
    """Why an interpreter handles a call."""
    named = _named(op, args)
    mine = [n for n, v in named if getattr(v, "interpreter", None) is top]
    if mine:
        return f"'{mine[0]}' is a value of {top.describe()}"
    return f"{top.describe()} is open"


def _why_kind(op: RuleTable, args: Sequence[Any], kind: str) -> str:
    named = [(n, kind_name(v)) for n, v in _named(op, args)]
    mine = [name for name, k in named if k == kind]
    if mine:
        return f"'{mine[0]}' is an array of the kind '{kind}'"
    if op.schema.device_slot is not None and args[op.schema.device_slot] is not None:
        return f"'device' names the kind '{kind}'"
    return f"no array says another kind than '{kind}'"


def _named(op: RuleTable, args: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Arrays of a call, each with the name of its parameter."""
    for slot in op.array_slots:
        yield op.schema.parameters[slot].name, args[slot]
    for slot in op.nested_slots:
        alone = [v if i == slot else () for i, v in enumerate(args)]
        for leaf in nested_leaves(op, alone):
            yield op.schema.parameters[slot].name, leaf


def _others(op: RuleTable, top: Any, kind: str | None) -> Iterator[Candidate]:
    """All rows of an operator, and why a call does not take them."""
    for key, row in op.rows.items():
        asked = rule_kind(key)
        name = asked.title
        why = asked.why_not(kind) if top is None else f"{top.describe()} comes first"
        yield _candidate(name, why, row)
        hidden = len(op.stacks.get(key, ())) - 1
        for below in op.stacks[key][:hidden]:
            yield _candidate(name, f"hidden by the one at {row.place}", below)
