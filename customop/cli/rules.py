"""The rules of an operator: registered ones, derived ones and fallbacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from customop.arrays.kinds import FAKE
from customop.core.derived.find import find_fake
from customop.core.grad_rules import GradRule
from customop.core.kinds import (
    ARRAY_CLASS,
    AUTOCAST,
    AUTOGRAD,
    COMPOSITE,
    JVP,
    MERGED,
    SAMPLE_INPUTS,
    VMAP,
)
from customop.core.operator import Operator, operators
from customop.core.table import Row, RuleKind, fallbacks
from customop.errors import place

__all__ = ["ORIGINS", "Rule", "hidden_rules", "rules_of", "user_kinds"]

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
    return [
        *_kernels(op),
        *_fakes(op),
        *[rule for kind in _TRANSFORMS for rule in _transform(op, kind)],
        *_autocasts(op),
        *_classes(op),
        *[rule for kind in user_kinds() for rule in _transform(op, kind)],
        *_samples(op),
    ]


def user_kinds() -> list[RuleKind]:
    """Return the rule kinds of users, by name."""
    known = (*_TRANSFORMS, *MERGED, COMPOSITE, SAMPLE_INPUTS)
    seen = {kind for op in operators.values() for kind in op.rows}
    seen |= set(fallbacks)
    theirs = [k for k in seen if isinstance(k, RuleKind) and k not in known]
    return sorted(theirs, key=lambda kind: kind.name)


def hidden_rules(op: Operator[..., Any]) -> list[Rule]:
    """Return the registrations that newer ones replaced."""
    return [
        Rule(*_title(key), "hidden", (row.place,))
        for key, rows in op.stacks.items()
        if key not in MERGED
        for row in rows[:-1]
    ]


def _title(key: str | RuleKind) -> tuple[str, str]:
    if isinstance(key, RuleKind):
        return key.name, ""
    return (FAKE, "") if key == FAKE else ("kernel", key)


def _kernels(op: Operator[..., Any]) -> Iterator[Rule]:
    for key, row in op.rows.items():
        if isinstance(key, str) and key != FAKE:
            origin = "disabled" if key in op.disabled else "own"
            yield Rule("kernel", key, origin, (row.place,))
    body = op.rows.get(COMPOSITE)
    if body is not None:
        yield Rule("composite", "", "own", (body.place,))
    for kind in fallbacks:
        if isinstance(kind, str) and kind != FAKE and kind not in op.rows:
            found = op.fallback_for(kind)
            if found is not None:
                yield Rule("kernel", kind, "fallback", (place(found),))


def _fakes(op: Operator[..., Any]) -> Iterator[Rule]:
    row = op.rows.get(FAKE)
    if row is not None:
        yield Rule(FAKE, "", "own", (row.place,))
    elif COMPOSITE in op.rows:
        yield Rule(FAKE, "", "body")
    elif find_fake(op) is not None:
        yield Rule(FAKE, "", "tags")
    else:
        found = op.fallback_for(FAKE)
        if found is not None:
            yield Rule(FAKE, "", "fallback", (place(found),))


def _transform(op: Operator[..., Any], kind: RuleKind) -> Iterator[Rule]:
    """The rule of a kind that a call would take."""
    row = op.rows.get(kind)
    if row is not None:
        yield Rule(kind.name, "", "own", _places(row))
        return
    origin = _origin(op, kind)
    found = op.fallback_for(kind) if origin == "fallback" else None
    if origin:
        yield Rule(kind.name, "", origin, () if found is None else (place(found),))


def _origin(op: Operator[..., Any], kind: RuleKind) -> str:
    if kind.derive is not None and kind.derive(op) is not None:
        return "tags" if kind is VMAP else "derived"
    if kind is JVP and AUTOGRAD in op.rows:
        return "autograd"
    if kind in _TRANSFORMS and COMPOSITE in op.rows:
        return "body"
    if op.fallback_for(kind) is not None:
        return "fallback"
    if kind is JVP and op.fallback_for(AUTOGRAD) is not None:
        return "autograd"
    return "loop" if kind is VMAP else ""


def _places(row: Row) -> tuple[str, ...]:
    """File and line of the functions of a rule."""
    return row.fn.places if isinstance(row.fn, GradRule) else (row.place,)


def _autocasts(op: Operator[..., Any]) -> Iterator[Rule]:
    row = op.rows.get(AUTOCAST)
    for kind, dtype in () if row is None else row.fn.items():
        yield Rule("autocast", f"{kind}:{dtype}", "own", (row.place,) if row else ())


def _classes(op: Operator[..., Any]) -> Iterator[Rule]:
    row = op.rows.get(ARRAY_CLASS)
    for cls, rule in () if row is None else row.fn.items():
        name = f"{cls.__module__}.{cls.__qualname__}"
        yield Rule("array_class", name, "own", (rule.place,))


def _samples(op: Operator[..., Any]) -> Iterator[Rule]:
    row = op.rows.get(SAMPLE_INPUTS)
    if row is not None:
        yield Rule(SAMPLE_INPUTS.name, "", "own", (row.place,))
