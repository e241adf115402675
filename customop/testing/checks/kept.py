"""A child that is kept for the next call of opcheck, while all stays as it was.

To fork takes a millisecond, and a child copies each page of memory that it touches for
the first time: five more. So a child that has found no fault waits for further work. It
gets it only if nothing that the operator can reach has changed since the fork, and its
word counts only for what is right: a fault is found again by a child that is new.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from customop.core.changes import changing
from customop.core.holders import releases
from customop.core.operator import Operator
from customop.core.registry import operators
from customop.testing.apart.child import Child
from customop.testing.checks.reach import Reach, reach_of
from customop.testing.checks.session import Session
from customop.testing.checks.state import KernelState, program_state

__all__ = ["World", "give_back", "may_be_kept", "taken", "undisturbed"]

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
