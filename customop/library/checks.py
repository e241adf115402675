"""Checks of the arguments of libraries."""

from __future__ import annotations

from typing import Any

from customop.core.define import check_name
from customop.core.operator import Operator
from customop.core.registry import operators
from customop.errors import RegistrationError, did_you_mean, quoted, shown

__all__ = ["check_alias_analysis", "check_arguments", "check_undefined", "qualified_in"]

_ALIAS_ANALYSES = ("", "FROM_SCHEMA", "CONSERVATIVE")
_KINDS = ("DEF", "IMPL", "FRAGMENT")
_OWN_NAMESPACE = "np"


def check_arguments(ns: object, kind: object) -> None:
    """Raise unless a library can have this namespace and kind."""
    if not isinstance(kind, str) or kind not in _KINDS:
        near = did_you_mean(kind.upper(), _KINDS) if isinstance(kind, str) else ""
        raise RegistrationError(
            f"Library: unknown kind {shown(kind)}{near}",
            do=f"use one of {quoted(_KINDS)}",
        )
    if not isinstance(ns, str) or not ns.isidentifier() or not ns.isascii():
        raise RegistrationError(
            f"Library: {shown(ns)} cannot be a namespace",
            do="use ASCII letters, digits and underscores: the name of your package",
        )
    if ns == _OWN_NAMESPACE and kind == "DEF":
        raise RegistrationError(
            f"the namespace '{ns}' belongs to customop",
            do=f'Library("{ns}", "IMPL") registers for its operators',
        )


def check_alias_analysis(ns: str, given: object) -> None:
    """Raise unless a definition can have this argument."""
    if not isinstance(given, str) or given not in _ALIAS_ANALYSES:
        known = _ALIAS_ANALYSES[1:]
        near = did_you_mean(given.upper(), known) if isinstance(given, str) else ""
        raise RegistrationError(
            f"library '{ns}': alias_analysis={shown(given)} is unknown{near}",
            do=f"use one of {quoted(_ALIAS_ANALYSES)}; the schema says which"
            " arrays share memory: Array(a)",
        )


def check_undefined(qualname: str, where: str) -> None:
    """Raise if an operator has this name."""
    known = operators.get(qualname)
    if known is not None:
        raise RegistrationError(
            f"{qualname} is defined already, at {known.definition.place}",
            f"the second definition is at {where}",
            do="give one of them another name, or an overload: name.other(...)",
            op=qualname,
        )


def qualified_in(name: Any, ns: str) -> str:
    """Return the qualified name of an operator in the namespace."""
    qualname = name.qualname if isinstance(name, Operator) else name
    if isinstance(qualname, str) and "::" not in qualname:
        qualname = f"{ns}::{qualname}"
    check_name("impl", qualname)
    if qualname.partition("::")[0] != ns:
        raise RegistrationError(
            f"library '{ns}' cannot register for '{qualname}'",
            do=f'make Library("{qualname.partition("::")[0]}", "IMPL")',
            op=qualname,
        )
    return str(qualname)
