"""Control warnings, floating-point errors and random states during checks."""

from __future__ import annotations

import ctypes
import os
import pickle
import random
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from customop.core.samples import Sample
from customop.errors import CustomOpWarning

# ---- warnings and floating-point errors ----

# Warnings that are not about the numbers.
_HARMLESS = (DeprecationWarning, FutureWarning, CustomOpWarning)


class _Strictness(type):
    """The metaclass of `_Noise`; while `is_on`, most warnings count as subclasses."""

    is_on = False

    def __subclasscheck__(cls, other: type) -> bool:
        return cls.is_on and not issubclass(other, _HARMLESS)


class _Noise(Warning, metaclass=_Strictness):
    """The category of a warning filter that stays in place and is switched on and off.

    Adding a filter and removing it takes 4 us, as long as eight calls.
    """


class strict_numbers:  # noqa: N801  # as np.errstate
    """Raise warnings and floating-point errors as errors inside the block."""

    __slots__ = ("_errors", "_filters", "_was_on")

    def __enter__(self) -> None:
        self._filters: warnings.catch_warnings | None = None
        if not _is_first():
            self._filters = warnings.catch_warnings()
            self._filters.__enter__()
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", _Noise)
        self._was_on = _Strictness.is_on
        _Strictness.is_on = True
        self._errors = np.errstate(all="raise", under="ignore")
        self._errors.__enter__()

    def __exit__(self, *exc: object) -> None:
        self._errors.__exit__(None, None, None)
        _Strictness.is_on = self._was_on
        if self._filters is not None:
            self._filters.__exit__(None, None, None)


def _is_first() -> bool:
    """Return whether our filter is still the first; a kernel may have added another."""
    return bool(warnings.filters) and warnings.filters[0][2] is _Noise


# ---- one thread at a time ----

_turn = threading.RLock()


@contextmanager
def quieted() -> Iterator[None]:
    """Silence warnings of kernels on odd inputs.

    Warning filters and random states belong to the whole process, and some checks
    compare them. So other threads wait.
    """
    with _turn, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", _Noise)
        yield


def _renew() -> None:
    """Make a new lock in a forked child, unless its only thread holds the lock."""
    if not _turn.acquire(blocking=False):
        globals()["_turn"] = threading.RLock()
    else:
        _turn.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


# ---- the global random state of NumPy, read and written in its memory ----
# `np.random.get_state` and `set_state` take 40 us each, as long as thirty calls.


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Restore the global random states of Python and NumPy, which kernels may use."""
    before, of_numpy = random.getstate(), numpy_state()
    try:
        yield
    finally:
        random.setstate(before)
        set_numpy_state(of_numpy)


# NumPy's functions with a global state. Kernels may use them.
_random: Any = np.random
# The state of a Mersenne Twister: 624 words of the key, and the position in it.
_Words: Any = ctypes.c_uint32 * 625


class NumpyState(NamedTuple):
    """The state of `np.random`.

    Attributes
    ----------
    bits : BitGenerator
    content : bytes
        The memory of `bits`, or a pickle of its state if its class is unknown.
    normal : float or None
        The second of a pair of normal numbers, which is drawn next.
    """

    bits: Any
    content: bytes
    normal: float | None


def numpy_state() -> NumpyState:
    """Read the random state. This draws the normal number that NumPy keeps, if any."""
    bits = _random.get_bit_generator()
    words = _words_of(bits)
    if words is None:
        state = _random.get_state(legacy=False)
        return NumpyState(bits, pickle.dumps(state), None)
    normal = _taken_normal(words)
    return NumpyState(bits, bytes(words), normal)


def set_numpy_state(state: NumpyState) -> None:
    """Restore the state that `numpy_state` read."""
    if _random.get_bit_generator() is not state.bits:
        _random.set_bit_generator(state.bits)
    words = _words_of(state.bits)
    if words is None:
        _random.set_state(pickle.loads(state.content))  # noqa: S301  # our own bytes
        return
    _taken_normal(words)
    ctypes.memmove(words, state.content, len(state.content))
    if state.normal is not None:
        found: Any = _random.get_state(legacy=False)
        _random.set_state({**found, "has_gauss": 1, "gauss": state.normal})


def _taken_normal(words: Any) -> float | None:
    """Draw the normal number that NumPy keeps for the next call, if there is one.

    NumPy reveals it only together with the whole state. If a number is kept, drawing it
    changes no words. If none is kept, NumPy makes a pair.
    """
    before = bytes(words)
    first: float = _random.standard_normal()
    if bytes(words) == before:
        return first
    _random.standard_normal()
    ctypes.memmove(words, before, len(before))
    return None


def _words_of(bits: Any) -> Any:
    """Return the memory of a generator, or None if its layout is unknown."""
    if type(bits) is not np.random.MT19937 or not _is_as_known():
        return None
    return _Words.from_address(bits.ctypes.state_address)


@cache
def _is_as_known() -> bool:
    """Return whether this NumPy keeps the state of a Mersenne Twister as expected."""
    bits = np.random.MT19937(1)
    state: Any = bits.state["state"]
    words = _Words.from_address(bits.ctypes.state_address)
    return [*words] == [*state["key"].tolist(), state["pos"]]


# ---- watch ----
# Lets others see which sample an operator is about to run on.

# Receives a function that makes the sample, since most watchers do not need it.
Watcher: TypeAlias = Callable[[Callable[[], Sample]], None]

_watchers: list[Watcher] = []


def about_to_run(sample: Callable[[], Sample]) -> None:
    """Announce the sample that the operator runs on next; it may crash the process."""
    for watcher in _watchers:
        watcher(sample)


def tick(now: float) -> None:
    """Tell the clocks among the watchers that the work goes on."""
    for watcher in _watchers:
        if isinstance(watcher, Clock):
            watcher.restart(now)


class Clock:
    """A watcher that calls `start` again and again while the work goes on.

    Parameters
    ----------
    start : callable
        ``start(seconds)`` lets the system end this process after some time.
    seconds : float
        How long a call may take. After a few calls it is a hundred times as long as the
        longest of them, but at least a twelfth of this, or more on a busy machine.
    """

    def __init__(self, start: Callable[[float], None], seconds: float) -> None:
        self._start = start
        self.seconds: float = seconds
        self._least = seconds / _SHORTER
        self._longest = 0.0
        self._left = _CALLS
        self._last: float | None = None
        self._renewed = float("-inf")

    def __call__(self, sample: Callable[[], Sample]) -> None:
        """Note that the operator is about to run."""
        self.restart(perf_counter())

    def restart(self, now: float) -> None:
        """Give the next call its time."""
        if self._left:  # the first calls, in some of which a compiler may run
            self._note_call(now)
        if now > self._renewed:  # asking the system takes 3 us
            self._renewed = now + 0.02 * self.seconds
            self._start(self.seconds)

    def _note_call(self, now: float) -> None:
        if self._last is not None:
            self._longest = max(self._longest, now - self._last)
            self._left -= 1
            if not self._left:
                ran, waited = _scheduled(threading.get_native_id())
                most = max(self._least * (1 + waited / ran), 100 * self._longest)
                self.seconds, self._renewed = min(self.seconds, most), float("-inf")
        self._last = now


_SHORTER = 12
# A compiler may run in each of the first calls.
_CALLS = 4


class OutOfTimeError(BaseException):
    """The time for a check is up. Checks must not take it for an error of the kernel."""


class Allowance:
    """A time for the work of this thread, in which waiting for a processor is free.

    Two runs then do the same, although the machine is busy during one of them.

    Parameters
    ----------
    seconds : float

    Attributes
    ----------
    was_over : bool
        Whether somebody was told that the time is over.
    """

    __slots__ = ("_end", "_look", "_thread", "_waited", "was_over")

    def __init__(self, seconds: float) -> None:
        start = perf_counter()
        self._end = start + seconds
        # Asking the system takes as long as many calls, so quick work never asks.
        self._look = start + seconds / 8
        self._thread = threading.get_native_id()
        self._waited: float | None = None
        self.was_over: bool = False

    def is_over(self, now: float) -> bool:
        """Return whether the time is over; other threads may ask, too."""
        if now <= self._look:
            return False
        _, waited = _scheduled(self._thread)
        if self._waited is not None:
            self._end += waited - self._waited
        self._waited, self._look = waited, self._end
        self.was_over = now > self._end
        return self.was_over

    def left(self) -> float:
        """Return how many seconds are left."""
        return self._end - perf_counter()


def _scheduled(thread: int) -> tuple[float, float]:
    """Return how many seconds a thread has run, and was ready but did not run."""
    path = f"/proc/self/task/{thread}/schedstat"
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123  # half the time of Path
            ran, waited, _ = map(int, file.read().split())
    except OSError:  # other systems than Linux do not say
        return 1.0, 0.0
    return max(ran, 1) * 1e-9, waited * 1e-9


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Call `watcher` before each sample inside the block."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)
