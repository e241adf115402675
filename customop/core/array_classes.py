"""What one operator does with arrays of a class of their own: masks, units, labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from customop.arrays.kinds import FAKE_ARRAY, TRACED, kind_of
from customop.core.definition import Row, same_place
from customop.core.dispatch import nested_leaves
from customop.core.kinds import ARRAY_CLASS
from customop.core.table import RuleTable
from customop.errors import RegistrationError, place
from customop.schema.signatures import check_callable, check_parameters

__all__ = ["find_array_rule", "with_rule"]


def with_rule(
    op: RuleTable, array_class: Any, fn: Any, override: bool
) -> Mapping[type, Row]:
    """A rule by its class, checked, to be entered beside those of other classes.

    Raises
    ------
    RegistrationError
        If `array_class` is no class that a call can tell from plain arrays, `fn` does
        not take (op, args, kwargs), or the class has a rule from another place.
    """
    _check_class(op, array_class)
    check_callable(op.qualname, "array rule", fn, kind=ARRAY_CLASS.name)
    check_parameters(
        f"{op.qualname}: the array rule",
        fn,
        ["op", "args", "kwargs"],
        [],
        free=3,
        do="write def rule(op, args, kwargs): ...",
    )
    row = op.rows.get(ARRAY_CLASS)
    rules: dict[type, Row] = {} if row is None else row.fn
    known = rules.get(array_class)
    where = place(fn)
    if known is not None and not override and not same_place(known.place, where):
        raise RegistrationError(
            f"{op.qualname} has a rule for {_named(array_class)} already, from"
            f" {known.place}",
            f"the second is at {where}",
            do="remove one of them, or register with override=True",
            op=op.qualname,
            kind=ARRAY_CLASS.name,
        )
    return {array_class: Row(fn, where)}


def _named(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _check_class(op: RuleTable, cls: Any) -> None:
    if not isinstance(cls, type):
        what = f"{cls!r} is no class"
        do = "pass the class of the arrays: np.ma.MaskedArray"
    elif issubclass(np.ndarray, cls):
        what = f"{_named(cls)} is the class of plain arrays, or above it"
        do = f'use @{op.name}.register_kernel("cpu")'
    elif kind_of[cls] in (TRACED, FAKE_ARRAY):
        what = f"{_named(cls)} is no class of arrays with data"
        do = "register a rule for the transform, or register_fake"
    elif issubclass(cls, np.generic) or cls.__module__ == "builtins":
        what = f"{_named(cls)} is no class of arrays"
        do = "pass the class of the arrays: np.ma.MaskedArray"
    else:
        return
    raise RegistrationError(
        f"{op.qualname}: register_array_dispatch: {what}",
        do=do,
        op=op.qualname,
        kind=ARRAY_CLASS.name,
    )


def find_array_rule(op: RuleTable, args: Sequence[Any]) -> Callable[..., Any] | None:
    """The rule for the classes of a call, or None.

    The exact class counts first, then its bases. Of several arrays with a rule the
    first one says, but for an array of a subclass of its class, which goes before it.
    """
    row = op.rows.get(ARRAY_CLASS)
    if row is None:
        return None
    rules: Mapping[type, Row] = row.fn
    chosen: type | None = None
    for leaf in [*[args[slot] for slot in op.array_slots], *nested_leaves(op, args)]:
        cls = type(leaf)
        if _match(rules, cls) is None:
            continue
        if chosen is None or (issubclass(cls, chosen) and cls is not chosen):
            chosen = cls
    return None if chosen is None else _match(rules, chosen)


def _match(rules: Mapping[type, Row], cls: type) -> Callable[..., Any] | None:
    if cls is np.ndarray:
        return None
    return next((rules[base].fn for base in cls.__mro__ if base in rules), None)
