"""The rules of an operator: registered ones, derived ones and fallbacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from customop.arrays.kinds import FAKE
from customop.core.definition import Row
from customop.core.derived.find import find_fake
from customop.core.kinds import (
    ARRAY_CLASS,
    AUTOCAST,
    AUTOGRAD,
    COMPOSITE,
    JVP,
    SAMPLE_INPUTS,
    VMAP,
)
from customop.core.operator import Operator
from customop.core.registry import all_operators
from customop.core.rule_kind import MergedKind, RuleKind, rule_kind
from customop.core.table import fallbacks
from customop.errors import place

__all__ = ["ORIGINS", "Rule", "hidden_rules", "rules_of"]

# Where rules come from.
ORIGINS = {
    "own": "registered for the operator",
    "tags": "derived from the tags or the schema",
    "autograd": "derived by transposing the backward formula",
    "body": "derived from the operators of the composite body",
    "derived": "derived by its kind",
    "fallback": "registered for all operators without their own",
    "loop": "missing: a loop over the rows, with a warning",
    "hidden": "replaced by a newer registration",
    "disabled": "disabled by set_kernel_enabled",
}
_TRANSFORMS = (AUTOGRAD, JVP, VMAP)
_FIRST = (
    "kernel",
    COMPOSITE.name,
    FAKE,
    *(k.name for k in (*_TRANSFORMS, AUTOCAST, ARRAY_CLASS)),
)


class Rule(NamedTuple):
    """A kernel or rule of an operator.

    Attributes
    ----------
    name : str
        "kernel", "fake", "autograd", "jvp", "vmap", "composite", "autocast",
        "array_class", or the name of the user's rule kind.
    target : str
        The kind of array of a kernel, that and the dtype of "autocast", the class of
        "array_class"; else empty.
    origin : str
        One of `ORIGINS`.
    places : tuple of str
        File and line of its functions; empty for a derived rule.
    """

    name: str
    target: str
    origin: str
    places: tuple[str, ...] = ()


def rules_of(op: Operator[..., Any]) -> list[Rule]:
    """Return all rules of an operator: kernels, fake, transforms, others."""
    found = [rule for key, row in op.rows.items() for rule in _registered(op, key, row)]
    kernels = [kind for kind in fallbacks if isinstance(kind, str) and kind != FAKE]
    others: list[str | RuleKind] = [*kernels, FAKE, *_TRANSFORMS, *_user_kinds()]
    for key in others:
        if key not in op.rows:
            found += _unregistered(op, key)
    return sorted(found, key=_rank)


def hidden_rules(op: Operator[..., Any]) -> list[Rule]:
    """Return the registrations that newer ones replaced."""
    return [
        Rule(*_title(key), "hidden", (row.place,))
        for key, rows in op.stacks.items()
        if not isinstance(key, MergedKind)
        for row in rows[:-1]
    ]


def _user_kinds() -> list[RuleKind]:
    known = (*_TRANSFORMS, AUTOCAST, ARRAY_CLASS, COMPOSITE, SAMPLE_INPUTS)
    seen = {kind for op in all_operators().values() for kind in op.rows} | set(
        fallbacks
    )
    return [k for k in seen if isinstance(k, RuleKind) and k not in known]


def _title(key: str | RuleKind) -> tuple[str, str]:
    """Name and target of a rule."""
    if isinstance(key, RuleKind):
        return key.name, ""
    return (FAKE, "") if key == FAKE else ("kernel", key)


def _rank(rule: Rule) -> tuple[int, str]:
    """Kernels stay in the order of their registration, other kinds come by name."""
    is_first = rule.name in _FIRST
    return (_FIRST.index(rule.name), "") if is_first else (len(_FIRST), rule.name)


# ---- registered rules ----


def _registered(
    op: Operator[..., Any], key: str | RuleKind, row: Row
) -> Iterator[Rule]:
    origin = "disabled" if key in op.disabled else "own"
    name, target = _title(key)
    for entry, places in rule_kind(key).entries(row):
        yield Rule(name, entry or target, origin, places)


# ---- other rules ----


def _unregistered(op: Operator[..., Any], key: str | RuleKind) -> list[Rule]:
    origin = next((word for word, is_here in _origins(op, key) if is_here), None)
    if origin is None:
        return []
    fallback = op.fallback_for(key) if origin == "fallback" else None
    return [Rule(*_title(key), origin, () if fallback is None else (place(fallback),))]


def _origins(op: Operator[..., Any], key: str | RuleKind) -> Iterator[tuple[str, bool]]:
    """Each origin in the order in which a call tries them, and whether it applies."""
    has_body = COMPOSITE in op.rows
    kind = rule_kind(key)
    derived = None if kind.derive is None else kind.derive(op)
    yield "tags", key == FAKE and not has_body and find_fake(op) is not None
    yield ("tags" if key in _TRANSFORMS else "derived"), derived is not None
    other = kind.instead
    yield "autograd", other in op.rows
    yield "body", has_body and key in (FAKE, *_TRANSFORMS)
    yield "fallback", op.fallback_for(key) is not None
    yield "autograd", other is not None and op.fallback_for(other) is not None
    yield "loop", bool(kind.last_resort)
