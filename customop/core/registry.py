"""All operators by name, and what is registered for names."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from customop.arrays.on_demand import load_all, load_namespace, load_operator
from customop.core.changes import changing
from customop.core.registration import Registration, register
from customop.errors import MissingRuleError, RegistrationError, did_you_mean
from customop.plugins import OPERATORS, load

if TYPE_CHECKING:  # operators are pickled by name, so Operator imports this module
    from customop.core.operator import Operator

__all__ = [
    "add_registration",
    "all_operators",
    "check_registration",
    "find_operator",
    "forget_registrations",
    "in_namespace",
    "load_namespace_plugin",
    "namespaces",
    "operators",
    "operators_of",
    "registrations",
    "taken",
    "unknown",
]

# Without those of modules that are imported on demand, as the next one: look names up
# with the functions below.
operators: dict[str, Operator[..., Any]] = {}
# Namespace -> name -> overload -> operator: the same ones, as `ops` finds them.
namespaces: dict[str, dict[str, dict[str, Operator[..., Any]]]] = {}
# By name, in order: they enter the table of every definition of that name.
registrations: dict[str, list[Registration]] = {}


class AbsentOperator:
    """An operator of the main script in a process that does not run the script.

    An error while a task is read would end a worker process without a word. So this
    takes the place of the operator, and says at its first use what is missing.
    """

    __slots__ = ("_qualname",)

    def __init__(self, qualname: str) -> None:
        self._qualname = qualname

    def __reduce__(self) -> tuple[Any, ...]:
        return (find_operator, (self._qualname, "__main__"))

    def __repr__(self) -> str:
        return f"<AbsentOperator {self._qualname}>"

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise: there is no operator."""
        raise self._error()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._error()

    def _error(self) -> MissingRuleError:
        return MissingRuleError(
            f"{self._qualname} was defined in the main script, which this process does"
            " not run",
            f"in process {os.getpid()}",
            do="define the operator in a module, which every process can import",
            op=self._qualname,
        )


def find_operator(qualname: str, module: str = "") -> Operator[..., Any]:
    """The operator of a name; imports the module that defines it where needed.

    Raises
    ------
    MissingRuleError
        If no operator has that name.
    """
    load_operator(qualname)
    if qualname not in operators and module and module not in sys.modules:
        importlib.import_module(module)
    found = operators.get(qualname) or _known(qualname)
    if found is None and load_namespace_plugin(qualname.partition("::")[0]):
        found = operators.get(qualname)
    if found is None and module == "__main__":
        absent: Any = AbsentOperator(qualname)
        return absent  # type: ignore[no-any-return]  # it raises at its first use
    if found is None:
        raise unknown(qualname, operators, module)
    return found


def _known(qualname: str) -> Operator[..., Any] | None:
    """The operator of a name; imports the modules of its namespace where needed."""
    load_namespace(qualname.partition("::")[0])
    return operators.get(qualname)


def all_operators() -> dict[str, Operator[..., Any]]:
    """All operators by name; imports what is left to import on demand."""
    load_all()
    return operators


def in_namespace(namespace: str) -> dict[str, dict[str, Operator[..., Any]]]:
    """The operators of a namespace, as `namespaces` has them."""
    load_namespace(namespace)
    return namespaces.get(namespace, {})


def operators_of(
    namespace: str, name: str = ""
) -> dict[str, dict[str, Operator[..., Any]]]:
    """As `in_namespace`; loads the plug-in of the namespace if it lacks the name."""
    known = in_namespace(namespace)
    if not known or (name and name not in known and not name.startswith("__")):
        load_namespace_plugin(namespace)
        known = in_namespace(namespace)
    return known


def load_namespace_plugin(namespace: str) -> bool:
    """Load the plug-in for a namespace; return whether the namespace has operators."""
    return load(OPERATORS, namespace, lambda name: bool(namespaces.get(name)))


def unknown(qualname: str, known: Iterable[str], module: str = "") -> MissingRuleError:
    """The error for a name that no operator has; near ones are offered."""
    return MissingRuleError(
        f"no operator is named '{qualname}'{did_you_mean(qualname, known)}",
        do=f"import {module or 'the module that defines it'} first",
        op=qualname,
    )


def check_registration(registration: Registration, *, override: bool) -> None:
    """Raise where `add_registration` would, and change nothing."""
    op = _known(registration.qualname)
    registration.kind.check_given(registration.qualname, registration.fn)
    if op is not None:
        registration.check(op.definition)
        if not override:
            registration.kind.check_new(op, registration.row(op))


def add_registration(registration: Registration, *, override: bool = True) -> None:
    """Register for a name: at once, and for every definition of it to come."""
    name = registration.qualname
    load_namespace(name.partition("::")[0])  # before the lock is taken
    with changing:
        op = operators.get(name)
        if op is not None:
            register(op, registration, override=override)
        else:
            registration.kind.check_given(name, registration.fn)
        if op is None or registration.owner is not None:
            registrations.setdefault(name, []).append(registration)


def forget_registrations(qualname: str, owner: object) -> None:
    """Drop what an owner has registered for the definitions of a name to come."""
    left = [r for r in registrations.get(qualname, ()) if r.owner is not owner]
    if left:
        registrations[qualname] = left
    else:
        registrations.pop(qualname, None)


def taken(qualname: str, first: str, second: str) -> RegistrationError:
    """The error for two operators of one name, by the places of their definitions."""
    return RegistrationError(
        f"{qualname} is defined already, at {first}",
        f"the second definition is at {second}",
        do="give one of them another name",
        op=qualname,
    )
