"""The values that an operator's functions can reach, and whether they are the same."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import partial
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MethodType,
    ModuleType,
)
from typing import Any, Final, TypeAlias

import numpy as np

from customop.core.grad_rules import GradRule
from customop.core.operator import Operator
from customop.transforms.reach import codes_in

__all__ = ["Reach", "reach_of"]

# Values that are looked at, at most.
_MOST = 400
# Packages whose functions and values stay as they are.
_LASTING: Final = sys.stdlib_module_names | {"numpy", "customop", "builtins"}
_CONSTANTS: Final = frozenset(
    (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), CodeType)
)


class Reach:
    """The values that functions find by name, each with how to read it again."""

    __slots__ = ("_reads",)

    def __init__(self, reads: list[tuple[Callable[[], Any], Any]]) -> None:
        self._reads = reads

    def is_same(self) -> bool:
        """Whether every name has the value that it had."""
        return all(read() is value for read, value in self._reads)


def reach_of(op: Operator[..., Any]) -> Reach | None:
    """All that the functions of an operator can reach; None if some of it has state.

    Names of globals, of closures and of what modules hold may get other values, which
    `Reach.is_same` sees. Lists, arrays, objects and what is written in C may change in
    ways that cannot be seen from here.
    """
    walk = _Walk()
    return Reach(walk.reads) if walk.understands(op) else None


class _Walk:
    """A walk through functions and what they read."""

    def __init__(self) -> None:
        self.reads: list[tuple[Callable[[], Any], Any]] = []
        self.seen: set[int] = set()

    def understands(self, value: Any) -> bool:
        """Whether a value, and all that it can reach, has no state of its own."""
        if type(value) in _CONSTANTS or id(value) in self.seen:
            return True
        if len(self.seen) > _MOST:
            return False
        self.seen.add(id(value))
        inside = _inside(value)
        if inside is None:
            return False
        return all(map(self._follows, inside))

    def _follows(self, read: Callable[[], Any]) -> bool:
        value = read()
        self.reads.append((read, value))
        return self.understands(value)


_Reads: TypeAlias = Iterator[Callable[[], Any]]


def _inside(value: Any) -> _Reads | None:
    """How to read what a value reaches; None for a value that may have state."""
    for classes, reads in _READS:
        if isinstance(value, classes):
            return reads(value)
    return iter(()) if _is_lasting(value) else None


def _of_attributes(value: Any, *names: str) -> _Reads:
    return (partial(getattr, value, name) for name in names)


def _of_items(values: Iterable[Any]) -> _Reads:
    return (partial(_same, item) for item in values)


def _same(value: Any) -> Any:
    return value


def _lasts(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in _LASTING


def _is_lasting(value: Any) -> bool:
    """Whether a value is a module, or a function in C of one that stays as it is."""
    if isinstance(value, ModuleType):  # functions read its names one by one
        return True
    if isinstance(value, np.ufunc):
        return getattr(np, value.__name__, None) is value
    kind = type(value)
    is_function = kind is BuiltinFunctionType or kind.__module__ == "numpy"
    return is_function and callable(value) and _lasts(value.__module__)


def _of_operator(op: Operator[..., Any]) -> _Reads:
    # Its table is compared as a whole.
    return _of_items(row.fn for row in op.rows.values() if op.namespace != "np")


def _of_rule(rule: GradRule) -> _Reads:
    """The functions of an autograd rule, one by one or by the names of arguments."""
    slots = [getattr(cls, "__slots__", ()) for cls in type(rule).__mro__]
    names = [*vars(rule)] if hasattr(rule, "__dict__") else []
    for name in (*names, *(n for found in slots for n in found)):
        value = getattr(rule, name, None)
        if isinstance(value, dict):
            yield from (partial(value.get, key) for key in value)
        else:
            yield partial(getattr, rule, name, None)


def _of_partial(value: partial[Any]) -> _Reads:
    return _of_items((value.func, *value.args, *value.keywords.values()))


def _of_class(cls: type) -> _Reads:
    if not _lasts(cls.__module__) and not issubclass(cls, Enum):
        yield partial(getattr, cls, "__bases__")
        yield from (partial(cls.__dict__.get, name) for name in _written_in(cls))


def _written_in(cls: type) -> Iterator[str]:
    """The names in the body of a class."""
    for name, value in vars(cls).items():
        is_own = isinstance(value, FunctionType | staticmethod | classmethod | property)
        if is_own or not name.startswith("__"):
            yield name


def _of_function(fn: FunctionType) -> _Reads:
    """Code, defaults, closure, attributes, and the globals that the code names."""
    yield from _of_attributes(fn, "__code__", "__defaults__")
    yield from (partial(_content, cell) for cell in fn.__closure__ or ())
    for items in (fn.__dict__, fn.__kwdefaults__ or {}):
        yield from (partial(items.get, name) for name in items)
    if not _lasts(fn.__module__):
        names = {n for code in codes_in(fn.__code__) for n in code.co_names}
        yield from _of_names(fn.__globals__, names)


def _of_names(known: dict[str, Any], names: set[str]) -> _Reads:
    """Globals, and what the modules among them hold under any of the names."""
    for name in names:
        yield partial(known.get, name)
        value = known.get(name)
        if isinstance(value, ModuleType):
            if not _lasts(value.__name__):
                yield from (partial(vars(value).get, inner) for inner in names)
            elif "ops" in names:  # operators are found by any names there
                yield partial(vars(value).get, "ops")


_EMPTY: Final = object()


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name without a value yet
        return _EMPTY


# Classes of values, and what they reach.
_READS: Final[tuple[tuple[Any, Callable[[Any], _Reads]], ...]] = (
    (FunctionType, _of_function),
    (type, _of_class),
    (Operator, _of_operator),
    (GradRule, _of_rule),
    (partial, _of_partial),
    (tuple | frozenset, _of_items),
    (MethodType, lambda value: _of_attributes(value, "__func__", "__self__")),
    (staticmethod | classmethod, lambda value: _of_attributes(value, "__func__")),
    (property, lambda value: _of_attributes(value, "fget")),
    (np.dtype | np.generic | Enum, lambda value: iter(())),
)
