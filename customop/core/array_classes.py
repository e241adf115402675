"""Rules for classes of arrays, such as masked arrays, and of objects that hold arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from customop.arrays.kinds import is_array
from customop.arrays.wrappers import handler_of
from customop.core.definition import Row
from customop.core.interpreter import nested_leaves
from customop.core.kinds import ARRAY_CLASS
from customop.core.table import RuleTable
from customop.frozen import Frozen

__all__ = ["Wrapper", "find_array_rule", "find_wrapper"]


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


class Wrapper(Frozen):
    """Who calls an operator on an object that holds arrays.

    Attributes
    ----------
    cls : type
        The class of the object.
    handle : callable
    """

    cls: type
    handle: Callable[[RuleTable, Any], Any]


def find_wrapper(op: RuleTable, args: Sequence[Any]) -> Wrapper | None:
    """Who handles a call with an object that holds arrays; None without such an object.

    A rule of the operator for its class comes first.
    """
    for leaf in [*[args[slot] for slot in op.array_slots], *nested_leaves(op, args)]:
        if is_array(leaf):
            continue
        handle = handler_of(type(leaf))
        if handle is not None:
            has_rule = find_array_rule(op, args) is not None
            return None if has_rule else Wrapper(type(leaf), handle)
    return None
