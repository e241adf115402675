"""Reuse the child process of opcheck while nothing that it can reach has changed."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from types import BuiltinFunctionType, CodeType
from typing import Any, Final

import numpy as np

from customop.core.builtin_kinds import GradRule
from customop.core.operator import Operator
from customop.core.reach import ValueSearch
from customop.core.redefine import releases
from customop.core.registry import operators
from customop.core.table import changing
from customop.forks import free_after_fork
from customop.testing.checks.session import KernelState, Session, program_state
from customop.testing.processes.child import Child

# ---- the child that is kept ----
# To fork takes a millisecond, and a child copies each page of memory that it touches
# for the first time: five more. So a child that has found no fault waits for further
# work. It gets it only if nothing that the operator can reach has changed since the
# fork, and its word counts only for what is right: a fault is found again by a child
# that is new.

_lock = free_after_fork(threading.RLock())

# The child, what it has copied, and the process that has forked it.
_kept: list[tuple[Child, World, int]] = []


def taken(op: Operator[..., Any]) -> tuple[Child, World] | None:
    """Return the kept child if it knows the operator as it is now; None else."""
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


def give_back(child: Child, world: World) -> bool:
    """Keep a child that waits, in place of the one before; end one that does not."""
    if not child.is_waiting:
        child.close()
        return False
    with _lock:
        before = _kept[:]
        _kept[:] = [(child, world, os.getpid())]
    _close(before)
    return True


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
    """Open a block that only checks operators: nothing else changes what they reach.

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
    """Return whether samples mean the same in a child that has not seen them.

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


# ---- whether all is as it was when the child began ----


class World:
    """All that a child has copied which can change the results of its checks."""

    __slots__ = ("_block", "_program", "_reaches", "_tables")

    def __init__(self, op: Operator[..., Any]) -> None:
        self._block = _blocks[-1] if _blocks else None
        self._program = program_state()
        self._tables = changing.count
        self._reaches: dict[Operator[..., Any], Reach] = {}
        # A copy: other threads may define operators meanwhile.
        known = [*operators.values()]
        own = [other for other in known if other.namespace != "np"]
        for other in (op, *own[-_MOST_OPERATORS:]):
            self._reaches[other] = Reach(other)

    def is_same_for(self, op: Operator[..., Any]) -> bool:
        """Return whether nothing has changed that the operator can reach."""
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


# Operators whose reach is looked at before a fork: a program checks several in turn.
_MOST_OPERATORS = 24


# ---- whether all that an operator's functions can reach is the same ----


class Reach(ValueSearch):
    """The names that the functions of an operator read; `is_fixed` if none has state.

    Names of globals, of closures and of what modules hold may get other values, which
    `is_same` sees. Lists, arrays, objects and what is written in C may change in ways that
    cannot be seen from here.
    """

    takes_all = False

    def __init__(self, op: Operator[..., Any]) -> None:
        super().__init__(_is_stateful, [op])

    def enters(self, value: Any, label: str) -> bool:
        """Return whether to look at what a value holds; note a value that has state."""
        if not self.is_fixed or len(self.seen) > _MOST:
            self.is_fixed = False
            return False
        if isinstance(value, Operator):  # its table is compared as a whole
            rows = () if value.namespace == "np" else value.rows.values()
            self.go_on([row.fn for row in rows])
            return False
        if isinstance(value, GradRule):
            self.go_on(_functions_of(value))
            return False
        if isinstance(value, _CONSTANTS) or _is_lasting(value):
            return False
        return super().enters(value, label)

    def holds(self, container: Any, label: str) -> None:
        """Note a container that can change."""
        is_constant = isinstance(container, tuple | frozenset)
        self.is_fixed: bool = self.is_fixed and is_constant

    def look_at_object(self, value: Any, label: str) -> None:
        """Note that an object may have state."""
        self.is_fixed = False

    def is_foreign(self, module: str | None) -> bool:
        """Return whether what a module holds stays as it is."""
        return _lasts(module)


# Values that are looked at, at most.
_MOST = 400
# Packages whose functions and values stay as they are.
_LASTING: Final = sys.stdlib_module_names | {"numpy", "customop", "builtins"}
_CONSTANTS: Final = (
    *(bool, int, float, complex, str, bytes, type(None), type(Ellipsis), CodeType),
    *(np.dtype, np.generic, Enum),
)


def _is_stateful(value: Any) -> bool:
    return False


def _lasts(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in _LASTING


def _is_lasting(value: Any) -> bool:
    """Return whether a value is a function in C of a package that stays as it is."""
    if isinstance(value, np.ufunc):
        return getattr(np, value.__name__, None) is value
    kind = type(value)
    is_function = kind is BuiltinFunctionType or kind.__module__ == "numpy"
    return is_function and callable(value) and _lasts(value.__module__)


def _functions_of(rule: GradRule) -> list[Any]:
    """List the functions of an autograd rule."""
    slots = [getattr(cls, "__slots__", ()) for cls in type(rule).__mro__]
    names = [*vars(rule)] if hasattr(rule, "__dict__") else []
    found = [
        getattr(rule, name, None) for name in names + [n for s in slots for n in s]
    ]
    named = [v for value in found if isinstance(value, dict) for v in value.values()]
    return [value for value in found if not isinstance(value, dict)] + named
