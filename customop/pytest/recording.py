"""Record operator calls with their arguments as they were before the call."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from customop.arrays.kinds import has_data, is_array
from customop.arrays.nested import children, flat
from customop.core.interpreter import Interpreter
from customop.core.kinds import COMPOSITE
from customop.core.observe import Observer
from customop.core.rule_kind import RuleKind
from customop.core.samples import Sample
from customop.core.table import RuleTable
from customop.errors import quoted
from customop.testing.inputs.memory import fresh

__all__ = ["RecordedCall", "Recorder"]


@dataclass(slots=True, eq=False)
class RecordedCall:
    """A call that returned, and the number of similar ones.

    Attributes
    ----------
    op : Operator
    sample : Sample
        A copy of the arguments.
    invoke : callable
        The `op.invoke` of this definition; it does not keep the kernel alive.
    rules : frozenset
        The kinds of kernels and rules that the operator had.
    count : int
        The number of calls with the same `signature`.
    """

    op: RuleTable
    sample: Sample
    invoke: Callable[..., Any]
    rules: frozenset[str | RuleKind]
    count: int = 0

    @property
    def gone(self) -> str:
        """Why the operator is not the one that was called, or an empty text."""
        if self.op.closed:
            return "taken back before the test ended"
        if self.op.invoke is not self.invoke:
            return "defined again after the call"
        lost = self.rules - self.op.rows.keys()
        if lost:
            names = sorted(k if isinstance(k, str) else k.name for k in lost)
            return f"left without its rule for {quoted(names)} before the test ended"
        return ""


class Recorder(Observer):
    """Record the kernels that a block of code runs, in all threads.

    Calls inside a kernel are not recorded. Calls inside a composite body are.

    Parameters
    ----------
    wants : callable
        ``wants(qualname)`` says whether to record the calls of an operator.

    Attributes
    ----------
    calls : dict
        One of each set of similar calls that returned.
    raised : int
        The number of calls whose kernel raised.
    without_values : int
        The number of calls with fake arrays.
    """

    def __init__(self, wants: Callable[[str], bool]) -> None:
        super().__init__(threads=True)
        self.calls: dict[Hashable, RecordedCall] = {}
        self.raised: int = 0
        self.without_values: int = 0
        self._wants = wants
        self._wanted: dict[str, bool] = {}
        self._depth = _Depth()
        self._lock = threading.Lock()

    def enter(
        self,
        op: RuleTable,
        by: str | Interpreter,
        fn: Callable[..., Any],
        args: Sequence[Any],
    ) -> _Entered | None:
        """Copy the arguments of a kernel."""
        if by != "kernel":
            return None
        body = op.rows.get(COMPOSITE)
        entered = _Entered(1 if body is None or body.fn is not fn else 0)
        if not self._depth.value and self._is_wanted(op.qualname):
            self._copy(entered, op, args)
        self._depth.value += entered.depth
        return entered

    def leave(self, entered: _Entered | None, out: Any) -> None:
        """Record the call."""
        if entered is None:
            return
        self._depth.value -= entered.depth
        if entered.call is not None:
            with self._lock:
                self.calls.setdefault(entered.key, entered.call).count += 1

    def fail(
        self, entered: _Entered | None, error: BaseException, *, again: bool
    ) -> None:
        """Count the error."""
        if entered is None:
            return
        self._depth.value -= entered.depth
        if entered.call is not None and not again:
            with self._lock:
                self.raised += 1

    def _is_wanted(self, name: str) -> bool:
        if name not in self._wanted:
            self._wanted[name] = self._wants(name)
        return self._wanted[name]

    def _copy(self, entered: _Entered, op: RuleTable, args: Sequence[Any]) -> None:
        if not all(has_data(leaf) for value in args for leaf in flat(value)):
            with self._lock:
                self.without_values += 1
            return
        entered.key = (op.qualname, id(op.invoke), *_signatures(args))
        entered.call = self.calls.get(entered.key)
        if entered.call is None:
            positional, keywords = op.schema.split(args)
            sample = fresh(Sample(tuple(positional), keywords))
            entered.call = RecordedCall(op, sample, op.invoke, frozenset(op.rows))


class _Depth(threading.local):
    """The number of kernels that run in this thread, composite bodies not counted."""

    value = 0


@dataclass(slots=True)
class _Entered:
    depth: int
    key: Hashable = None
    call: RecordedCall | None = None


# ---- signatures ----


def _signatures(values: Sequence[Any]) -> list[Hashable]:
    """The key of similar calls: without elements of arrays and values of floats."""
    seen: dict[int, int] = {}
    return [_signature(value, seen) for value in values]


def _signature(value: Any, seen: dict[int, int]) -> Hashable:
    items = children(value)
    if items is not None:
        return (type(value), *(_signature(item, seen) for item in items))
    if is_array(value):
        # Calls also differ by which arguments are the same array. They do not differ by
        # whether it is read-only: in the proof of a composite body all arrays are.
        place = seen.setdefault(id(value), len(seen))
        strides = getattr(value, "strides", None)
        shape = tuple(value.shape)
        dtype = value.dtype if isinstance(value.dtype, np.dtype) else str(value.dtype)
        return (type(value), shape, dtype, strides, place)
    if isinstance(value, float | complex):
        return (type(value), _sign(value))
    if isinstance(value, int) and abs(value) > _SMALL:
        return (type(value), value > 0, "large")
    return (type(value), value if isinstance(value, _COMPARED) else None)


# Integers up to here may be axes or lengths, and are compared by value.
_SMALL = 16
# Classes compared by value; of others, such as Generator, only the class counts.
_COMPARED = (int, str, bytes, Enum, np.dtype, type)


def _sign(value: complex) -> Hashable:
    parts = (value.real, value.imag)
    return tuple("nan" if math.isnan(x) else (x > 0) - (x < 0) for x in parts)
