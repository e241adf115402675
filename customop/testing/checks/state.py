"""The state that a kernel keeps between calls, and that of the program around it."""

from __future__ import annotations

import functools
import os
import random
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FunctionType, MethodType
from typing import Any, TypeAlias

import numpy as np

from customop.core.dispatch import find_kernel
from customop.core.operator import Operator
from customop.errors import innermost
from customop.testing.numpy_random import numpy_state

__all__ = ["KernelState", "is_program_as_noted", "note_program", "program_state"]

_Restore: TypeAlias = Callable[[], object]

# ---- what a kernel keeps ----

_SEED = 21
# Functions and objects deep, from the kernel on.
_DEPTH = 3
# Bytes of an array up to which it may be scratch memory or a table to restore.
_MOST_BYTES = 1 << 16


class KernelState:
    """The state that a kernel can change and read again, as it is now.

    These are dicts, lists, sets, small arrays, random generators and objects of its own
    module, in its closure, among its globals and its defaults, and in those of functions
    that it calls. State in C is not seen.
    """

    __slots__ = ("_holders", "_program", "_saved", "_seeds")

    def __init__(self, op: Operator[..., Any]) -> None:
        kernel = find_kernel(op, "cpu")
        found = [] if kernel is None else _reached(kernel)
        drawn = [v for v in found if isinstance(v, _GENERATORS)]
        self._holders: list[Any] = [v for v in found if not isinstance(v, _GENERATORS)]
        self._saved: list[_Restore] = self._save()
        self._seeds: list[_Restore] = [*map(_saved, drawn)]
        self._program: dict[str, Any] = program_state()

    def _save(self) -> list[_Restore]:
        return [_saved(value) for value in self._holders]

    @property
    def holds_any(self) -> bool:
        """Whether the kernel keeps anything between calls."""
        return bool(self._holders or self._seeds)

    def reseed(self) -> None:
        """Put the random generators of the kernel back to where they were."""
        for restore in self._seeds:
            restore()

    @contextmanager
    def rewound(self) -> Iterator[bool]:
        """Put all state back to where it was, for a while; False where there is none."""
        now = self._save()
        for restore in self._saved:
            restore()
        try:
            yield bool(now)
        finally:
            for restore in now:
                restore()

    def effects_of(self, call: Callable[[], object], *, may_draw: bool) -> list[str]:
        """List what a call, or one before it, changes in the state of the program."""
        known = _SETTINGS if may_draw else {**_SETTINGS, **_RANDOM}
        with warnings.catch_warnings(), np.errstate(all="call", call=_nothing):
            # Settings that nobody else makes, so that every change shows.
            warnings.filterwarnings("ignore", message="(?s).*")
            random.seed(_SEED)
            np.random.seed(_SEED)  # noqa: NPY002  # what kernels may use
            before = {name: read() for name, read in known.items()}
            call()
            now = {name: read() for name, read in {**known, **_LASTING}.items()}
        before |= self._program
        return [name for name, value in now.items() if value != before[name]]


_GENERATORS = (
    np.random.Generator,
    np.random.RandomState,
    np.random.BitGenerator,
    random.Random,
)
_CONTAINERS = (dict, list, set, bytearray)
_CACHE = type(functools.cache(len))


def _reached(kernel: Any) -> list[Any]:
    """The values with state that a kernel can reach, each once."""
    module = getattr(innermost(kernel), "__module__", None)
    seen: dict[int, Any] = {}
    left: list[Any] = [kernel]
    for _ in range(_DEPTH):
        new = [v for value in left for v in _inside(value)]
        left = [v for v in new if id(v) not in seen and _has_state(v, module)]
        seen.update((id(v), v) for v in left)
    return [v for v in seen.values() if not isinstance(v, FunctionType)]


def _has_state(value: Any, module: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.nbytes <= _MOST_BYTES and value.flags.writeable
    if isinstance(value, FunctionType):
        return value.__module__ == module
    if isinstance(value, (*_GENERATORS, *_CONTAINERS)):
        return True
    is_own = getattr(type(value), "__module__", None) == module
    return isinstance(value, _CACHE) or (is_own and hasattr(value, "__dict__"))


def _inside(value: Any) -> Iterable[Any]:
    """The values that a function or an object reads."""
    if isinstance(value, MethodType):
        return [value.__self__, *_inside(value.__func__)]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, FunctionType):
        return _read_by(value)
    if isinstance(value, (*_GENERATORS, *_CONTAINERS, np.ndarray, _CACHE)):
        return []
    return getattr(value, "__dict__", {}).values()


def _read_by(fn: FunctionType) -> Iterator[Any]:
    """The values in the closure, the defaults, the attributes and the globals."""
    for cell in fn.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a name that is not bound yet
            continue
    yield from fn.__defaults__ or ()
    yield from (fn.__kwdefaults__ or {}).values()
    yield from vars(fn).values()
    for name in fn.__code__.co_names:
        if name in fn.__globals__:
            yield fn.__globals__[name]


def _saved(value: Any) -> _Restore:
    """A function that puts a value back to what it is now."""
    if isinstance(value, _GENERATORS):
        return _saved_seed(value)
    if isinstance(value, _CACHE):
        return value.cache_clear  # results that are computed again
    if isinstance(value, np.ndarray):
        return functools.partial(np.copyto, value, value.copy())
    if isinstance(value, list | bytearray):
        return functools.partial(value.__setitem__, slice(None), value[:])
    items = value if isinstance(value, dict | set) else value.__dict__
    return functools.partial(_refill, items, items.copy())


def _saved_seed(value: Any) -> _Restore:
    if isinstance(value, np.random.Generator):
        return _saved_seed(value.bit_generator)
    if isinstance(value, np.random.BitGenerator):
        bits: Any = value
        return functools.partial(setattr, bits, "state", bits.state)
    if isinstance(value, np.random.RandomState):
        return functools.partial(value.set_state, value.get_state())
    return functools.partial(value.setstate, value.getstate())


def _refill(items: Any, before: Any) -> None:
    items.clear()
    items.update(before)


# ---- what a program has ----


def _nothing(kind: str, flag: int) -> None:
    """Take note of a floating-point error, and do nothing."""


def _environment() -> Any:
    """Return the content of `os.environ` as it keeps it: to decode it takes 15 us."""
    kept = [v.copy() for v in vars(os.environ).values() if isinstance(v, dict)]
    return kept or dict(os.environ)


# What a call may leave behind, and how to read it: first what is compared with the time
# before all calls, as the second call changes it no more.
_LASTING: dict[str, Callable[[], Any]] = {
    "np.get_printoptions()": np.get_printoptions,
    "os.environ": _environment,
    "os.getcwd()": os.getcwd,
}
_SETTINGS: dict[str, Callable[[], Any]] = {
    "np.geterr()": lambda: (np.geterr(), np.geterrcall()),
    "warnings.filters": lambda: list(warnings.filters),
}
_RANDOM: dict[str, Callable[[], Any]] = {
    "np.random.get_state()": numpy_state,
    "random.getstate()": random.getstate,
}


def program_state() -> dict[str, Any]:
    """The state of the program that lasts, as it is now."""
    return {name: read() for name, read in _LASTING.items()}


# The state of the program as this process, a child, began.
_first: list[dict[str, Any]] = []


def note_program() -> None:
    """Note the state of the program, as a child begins with its work."""
    if not _first:
        _first.append(program_state())


def is_program_as_noted() -> bool:
    """Whether nothing that ran in this child has changed the state of the program."""
    return _first == [program_state()]
