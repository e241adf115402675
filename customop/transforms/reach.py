"""The objects that a function can use without getting them as arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import BuiltinMethodType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

__all__ = ["codes_in", "within_reach"]

# Functions that are looked through.
_FUNCTIONS = 16


def within_reach(items: Iterable[Any], is_wanted: Callable[[Any], bool]) -> list[Any]:
    """The wanted values among some values, and in what the functions among them hold."""
    found: dict[int, Any] = {}
    waiting: list[Any] = list(items)
    looked_at: set[int] = set()
    while waiting and len(looked_at) < _FUNCTIONS:
        item = waiting.pop()
        if is_wanted(item):
            found[id(item)] = item
        elif isinstance(item, MethodType):
            own = item.__self__
            if is_wanted(own):
                found[id(own)] = own
            waiting += [item.__func__, *getattr(own, "__dict__", {}).values()]
        elif isinstance(item, BuiltinMethodType):  # such as rng.normal
            if is_wanted(item.__self__):
                found[id(item.__self__)] = item.__self__
        elif isinstance(item, partial):
            waiting += [item.func, *item.args, *item.keywords.values()]
        elif isinstance(item, FunctionType) and id(item) not in looked_at:
            looked_at.add(id(item))
            waiting += _held(item)
    return list(found.values())


def _held(fn: FunctionType) -> Iterator[Any]:
    """The objects that a function holds: defaults, cells and the globals that its code names."""
    yield from fn.__defaults__ or ()
    yield from (fn.__kwdefaults__ or {}).values()
    for cell in fn.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for code in codes_in(fn.__code__):
        for name in code.co_names:
            value = fn.__globals__.get(name)
            yield np.random if value is np and "random" in code.co_names else value


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """A code object, and those of the functions inside it."""
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from codes_in(value)
