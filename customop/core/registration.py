"""Registration: the one way in which kernels and rules enter tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

from customop.core.changes import changing
from customop.core.definition import Definition, Row, fallthrough_kernel
from customop.core.gufuncs import as_kernel
from customop.core.rule_kind import RuleKind, rule_kind
from customop.core.table import RuleTable
from customop.errors import check_flag
from customop.later import later

__all__ = ["Registration", "chained", "register", "table_kernel"]

njit_kernels: ModuleType = later(import_module, "customop.core.njit_kernels")


class Registration:
    """A kernel or rule for the operator of a name, which may not be defined yet.

    Attributes
    ----------
    qualname : str
        Name of the operator.
    key : RuleKind or str
        A kind of rule, or the name of a kind of array.
    fn : object
        What is registered, as its kind takes it.
    owner : object
        Whose closing takes it back; None where it stays.
    with_below : bool
        Whether `fn` takes the function below as its first argument.
    kind : RuleKind
        The kind of rule.
    place : str
        File and line that messages name.
    """

    __slots__ = ("fn", "key", "kind", "owner", "place", "qualname", "with_below")

    def __init__(
        self,
        qualname: str,
        key: RuleKind | str,
        fn: Any,
        owner: object = None,
        *,
        with_below: bool = False,
    ) -> None:
        self.qualname: str = qualname
        self.key: RuleKind | str = key
        self.fn: Any = as_kernel(fn) if isinstance(key, str) else fn
        self.owner: object = owner
        self.with_below: bool = with_below
        self.kind: RuleKind = rule_kind(key)
        self.place: str = self.kind.place_of(fn)

    def check(self, definition: Definition) -> None:
        """Raise unless it fits a definition of the operator."""
        fn = self.fn
        if fn is fallthrough_kernel:
            return
        takes_below = self.with_below and callable(fn)
        self.kind.check(definition, partial(fn, None) if takes_below else fn)

    def row(self, op: RuleTable) -> Row:
        """The row that it makes in the table of an operator."""
        fn = table_kernel(op, self.fn) if isinstance(self.key, str) else self.fn
        rule = self.kind.accept(op, fn, with_below=self.with_below)
        return Row(rule, self.place, self.owner)

    def enter(self, op: RuleTable, *, override: bool = True) -> None:
        """Put it on top of the operator's rows of its kind."""
        row = self.row(op)
        op.enter(
            self.key,
            row,
            override=override,
            keeps_below=self.with_below or row.fn is fallthrough_kernel,
        )


def table_kernel(op: RuleTable, fn: Any) -> Any:
    """A kernel as the table holds it."""
    # A function of njit; numba is not imported to ask for its class.
    if hasattr(fn, "typeof_pyval") and hasattr(fn, "targetoptions"):
        return njit_kernels.in_native_order(op, fn)
    return fn


def register(op: RuleTable, registration: Registration, *, override: bool) -> None:
    """Check a registration against an operator, and put it into the table."""
    check_flag("override", override)
    with changing:
        registration.kind.check_given(op.qualname, registration.fn)
        registration.check(op.definition)
        registration.enter(op, override=override)


def chained(answer: object, fn: Any, enter: Callable[[Any], object]) -> Any:
    """Enter `fn` and return the answer; without `fn` return a decorator.

    `@op.register_fake` without brackets looks like a call with a function, so the
    decorated name becomes the operator.
    """
    if fn is not None:
        enter(fn)
        return answer

    def decorator(given: Any) -> Any:
        enter(given)
        return given

    return decorator
