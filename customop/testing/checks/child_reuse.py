"""A child that serves the next call of opcheck, while all values that it reaches stay."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final, TypeAlias

import numpy as np

from customop.core.builtin_kinds import GradRule
from customop.core.operator import Operator
from customop.core.redefine import releases
from customop.core.registry import operators
from customop.core.table import changing
from customop.testing.checks.session import KernelState, Session, program_state
from customop.testing.processes.child import Child
from customop.transforms.runs import codes_in

# ---- reach ----
# The values that an operator's functions can reach, and whether they are the same.


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


# ---- a child that is kept for the next call of opcheck, while all stays as it was ----
# To fork takes a millisecond, and a child copies each page of memory that it touches
# for the first time: five more. So a child that has found no fault waits for further
# work. It gets it only if nothing that the operator can reach has changed since the
# fork, and its word counts only for what is right: a fault is found again by a child
# that is new.


# Operators whose reach is looked at before a fork: a program checks several in turn.
_MOST_OPERATORS = 24


class World:
    """All that a child has copied which can change the results of its checks."""

    __slots__ = ("_block", "_program", "_reaches", "_tables")

    def __init__(self, op: Operator[..., Any]) -> None:
        self._block = _blocks[-1] if _blocks else None
        self._program = program_state()
        self._tables = changing.count
        self._reaches: dict[Operator[..., Any], Reach | None] = {}
        # A copy: other threads may define operators meanwhile.
        known = [*operators.values()]
        own = [other for other in known if other.namespace != "np"]
        for other in (op, *own[-_MOST_OPERATORS:]):
            self._reaches[other] = reach_of(other)

    def is_same_for(self, op: Operator[..., Any]) -> bool:
        """Whether nothing has changed that the operator can reach."""
        return (
            self._tables == changing.count
            and self._knows(op)
            and self._program == program_state()
        )

    def _knows(self, op: Operator[..., Any]) -> bool:
        if self._block is not None and _blocks and _blocks[-1] is self._block:
            return not KernelState(op).holds_any
        reach = self._reaches.get(op)
        return reach is not None and reach.is_same()


# ---- the child that is kept ----

_lock = threading.Lock()


def _renew() -> None:
    """A new lock in a child: another thread may have held the lock at the fork."""
    globals()["_lock"] = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)

# The child, what it has copied, and the process that has forked it.
_kept: list[tuple[Child, World, int]] = []


def taken(op: Operator[..., Any]) -> tuple[Child, World] | None:
    """The kept child, if it knows the operator as it is now; it is the caller's then."""
    with _lock:
        found = _kept.pop() if _kept else None
    if found is None:
        return None
    child, world, pid = found
    if pid != os.getpid():  # that of a parent of this process
        return None
    if child.is_waiting and world.is_same_for(op):
        return child, world
    child.close()
    return None


def give_back(child: Child, world: World) -> None:
    """Keep a child that has done its work, in place of the one before."""
    with _lock:
        before = _kept[:]
        _kept[:] = [(child, world, os.getpid())]
    _close(before)


def _close(found: list[tuple[Child, World, int]]) -> None:
    for child, _, pid in found:
        if pid == os.getpid():
            child.close()


@atexit.register
def close_kept() -> None:
    """End the kept child, if there is one."""
    with _lock:
        before = _kept[:]
        _kept.clear()
    _close(before)


# Whoever asks who holds an operator is about to change it.
releases.append(close_kept)


# ---- checks of several operators in a row ----

_blocks: list[object] = []


@contextmanager
def undisturbed() -> Iterator[None]:
    """A block that only checks operators: nothing else changes what they can reach.

    They share a child, also those whose kernels are written in C.
    """
    _blocks.append(object())
    try:
        yield
    finally:
        _blocks.pop()


# ---- what a child can be asked ----

_SIMPLE: frozenset[type] = frozenset((bool, int, float, complex, str, type(None)))
_NESTS = (list, tuple)


def may_be_kept(session: Session) -> bool:
    """Whether the samples of a session mean the same in a child that has not seen them.

    They do where they hold arrays and numbers only.
    """
    values = (v for s in session.samples for v in (*s.args, *s.kwargs.values()))
    return not session.op.waivers and all(map(_is_plain, values))


def _is_plain(value: Any) -> bool:
    if type(value) is np.ndarray:
        return not value.dtype.hasobject
    if type(value) in _NESTS:
        return all(map(_is_plain, value))
    return type(value) in _SIMPLE
