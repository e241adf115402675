"""The calls that a piece of code makes, with their arguments as they were."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from customop.arrays.kinds import has_data, is_array
from customop.arrays.nested import children, map_nested
from customop.core.array_classes import find_array_rule
from customop.core.dispatch import Mode
from customop.core.kernels import (
    find_kernel,
    has_own_rule,
    kind_of_call,
    top_interpreter,
)
from customop.core.kinds import COMPOSITE
from customop.core.samples import Sample
from customop.core.table import RuleKind
from customop.errors import CustomOpError, quoted
from customop.testing.inputs.memory import fresh
from customop.transforms.autograd.interpreter import GradTracer

__all__ = ["Call", "Log", "is_named", "recording"]


@dataclass(slots=True, eq=False)
class Call:
    """A call that returned, and how many others were like it.

    Attributes
    ----------
    op : Operator
    sample : Sample
        The arguments, in memory of their own.
    made_by : object
        What only this definition of the operator has; it keeps no kernel alive.
    rules : frozenset
        Kinds of the kernels and rules that it had then.
    count : int
        Calls with arguments of these shapes, dtypes and strides.
    """

    op: Any
    sample: Sample
    made_by: Any
    rules: frozenset[str | RuleKind]
    count: int = 0

    @property
    def gone(self) -> str:
        """Why the operator is no longer the one that was called, or nothing."""
        if self.op.closed:
            return "taken back before the test ended"
        if self.op.invoke is not self.made_by:
            return "defined anew after the call"
        lost = self.rules - self.op.rows.keys()
        if lost:
            names = sorted(k if isinstance(k, str) else k.name for k in lost)
            return f"left without its rule for {quoted(names)} before the test ended"
        return ""


class Log:
    """What a `recording` has seen.

    Parameters
    ----------
    wants : callable
        Whether the calls of an operator, by name, are of interest.

    Attributes
    ----------
    calls : dict
        The calls that returned, one of those that are alike.
    raised : int
        How many calls raised.
    without_values : int
        How many calls had arrays that hold no values of their own: fake ones, and
        those of a transform around the recording.
    """

    def __init__(self, wants: Callable[[str], bool]) -> None:
        self.calls: dict[Hashable, Call] = {}
        self.raised: int = 0
        self.without_values: int = 0
        self.is_open = True
        self._wants = wants
        self._wanted: dict[str, bool] = {}
        self._lock = threading.Lock()

    def wants(self, op: Any) -> bool:
        """Whether a call of an operator is to be noted now."""
        name = op.qualname
        if name not in self._wanted:
            self._wanted[name] = self._wants(name)
        return self.is_open and self._wanted[name]

    def observe(self, op: Any, args: Sequence[Any], run: Callable[[], Any]) -> Any:
        """Run a call, and note it with its arguments as they are before."""
        __tracebackhide__ = True
        values = [map_nested(value, _primal) for value in args]
        if not all(map(_has_values, values)):
            with self._lock:
                self.without_values += 1
            return run()
        key = (op.qualname, id(op.invoke), *_signatures(values))
        known = self.calls.get(key)
        call = known or _new_call(op, values)
        try:
            out = run()
        except Exception:
            with self._lock:
                self.raised += 1
            raise
        with self._lock:
            self.calls.setdefault(key, call).count += 1
        return out


class _Recorder(Mode):
    """Notes the calls that reach it, and passes them on.

    It was opened before the transforms of the code under it, so that those handle a
    call first: what it sees is what they call on values.
    """

    # With a rule, derived, for every operator it sees those with a body too.
    kind = RuleKind("recording", derive=lambda op: op)

    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log = log

    def process(self, op: Any, args: Sequence[Any]) -> Any:
        __tracebackhide__ = True

        def run() -> Any:
            __tracebackhide__ = True
            if not _takes_its_body(op, args):
                return op.invoke(args)
            with _Inside(self.log, op):
                return op.invoke(args)

        return self.log.observe(op, args, run) if self.log.wants(op) else run()

    def end(self) -> None:
        """Go on to pass calls: a context copied in the block may be used after it."""


class _Inside(_Recorder):
    """The recorder of what the body of one operator calls."""

    def __init__(self, log: Log, op: Any) -> None:
        super().__init__(log)
        self.kind = RuleKind(  # type: ignore[misc]  # which body is open differs
            "recording", derive=lambda other: None if other is op else other
        )


@contextmanager
def recording(log: Log) -> Iterator[Log]:
    """Note the calls of a block, and of the threads that it starts.

    What an operator calls in its kernel is part of it, and is not noted.

    Parameters
    ----------
    log : Log

    Yields
    ------
    Log
    """
    try:
        with _in_new_threads(log), _Recorder(log):
            yield log
    finally:
        log.is_open = False


@contextmanager
def _in_new_threads(log: Log) -> Iterator[None]:
    """Open a recorder in every thread that is started: a mode is of one thread."""
    before = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        run = thread.run

        def recorded() -> None:
            with _Recorder(log):
                run()

        thread.run = recorded  # type: ignore[method-assign]  # of this one object
        before(thread)

    threading.Thread.start = start  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        threading.Thread.start = before  # type: ignore[method-assign]


def _takes_its_body(op: Any, args: Sequence[Any]) -> bool:
    """Whether a call outside of the recorder goes through the body of an operator.

    Only then may it be opened to a mode: kernels and rules of its own come first.
    """
    row = op.rows.get(COMPOSITE)
    if row is None:
        return False
    top = top_interpreter(op, args)
    if top is not None:
        return top.alive and not has_own_rule(op, top.kind)
    if find_array_rule(op, args) is not None:
        return False
    try:
        kind, _ = kind_of_call(op, args)
    except CustomOpError:  # the call itself raises it again
        return False
    return find_kernel(op, kind) is row.fn


# ---- values ----


def _primal(value: Any) -> Any:
    """The array that a variable stands for; all else as it is."""
    while isinstance(value, GradTracer):
        value = value.value
    return value


def _has_values(value: Any) -> bool:
    items = children(value)
    if items is not None:
        return all(map(_has_values, items))
    return has_data(value)


def _new_call(op: Any, values: Sequence[Any]) -> Call:
    sample = fresh(_as_sample(op, values))
    return Call(op, sample, op.invoke, frozenset(op.rows))


def _as_sample(op: Any, values: Sequence[Any]) -> Sample:
    positional, keywords = op.schema.split(values)
    return Sample(tuple(positional), keywords)


def _signatures(values: Sequence[Any]) -> list[Hashable]:
    """What makes two calls differ: not the elements of arrays, nor sizes of floats."""
    seen: dict[int, int] = {}
    return [_signature(value, seen) for value in values]


def _signature(value: Any, seen: dict[int, int]) -> Hashable:
    items = children(value)
    if items is not None:
        return (type(value), *(_signature(item, seen) for item in items))
    if is_array(value):
        # Which places hold the same array is of interest too.
        place = seen.setdefault(id(value), len(seen))
        strides = getattr(value, "strides", None)
        flags = getattr(value, "flags", None)
        can_write = getattr(flags, "writeable", None)
        shape = tuple(value.shape)
        dtype = value.dtype if isinstance(value.dtype, np.dtype) else str(value.dtype)
        return (type(value), shape, dtype, strides, can_write, place)
    if isinstance(value, float | complex):
        return (type(value), _sort_of_number(value))
    if isinstance(value, int) and abs(value) > _SMALL:
        return (type(value), value > 0, "large")
    return (type(value), value if isinstance(value, _TOLD_APART) else None)


# Numbers of axes and of elements to a side; above, one number is like another.
_SMALL = 16
# Classes of which one value is not like another; a Generator is like any other.
_TOLD_APART = (int, str, bytes, Enum, np.dtype, type)


def _sort_of_number(value: complex) -> Hashable:
    parts = (value.real, value.imag)
    return tuple("nan" if math.isnan(x) else (x > 0) - (x < 0) for x in parts)


# ---- names ----


def is_named(qualname: str, pattern: str) -> bool:
    """Whether a pattern names an operator.

    Parameters
    ----------
    qualname : str
        ``"ns::name"`` or ``"ns::name.overload"``.
    pattern : str
        ``"ns"``, ``"ns::name"`` for all overloads, ``"ns::name.overload"``, any of
        them with ``*`` and ``?``; ``"ALL"`` for all but NumPy's own functions.

    Returns
    -------
    bool

    Examples
    --------
    >>> is_named("mylib::f", "mylib"), is_named("mylib::f.out", "mylib::g*")
    (True, False)
    """
    namespace, _, full = qualname.partition("::")
    if pattern == "ALL":
        return namespace not in _BUILT_IN
    wanted, colons, name = pattern.partition("::")
    if not fnmatchcase(namespace, wanted):
        return False
    short = full.partition(".")[0]
    overload = full if "." in full else f"{full}.default"
    return not colons or fnmatchcase(short, name) or fnmatchcase(overload, name)


# What the package defines is checked by the tests of the package.
_BUILT_IN = ("np", "customop")
