"""Which runs of transformed functions are watched, and what makes two functions one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType
from typing import Any
from weakref import ProxyTypes

import numpy as np

from customop.config import config
from customop.core.code_names import all_names_in
from customop.core.kernel_proof import with_sampling
from customop.core.table import RuleTable
from customop.errors import CustomOpError, is_ours, warn_caller
from customop.library.ops import OperatorPacket

# ---- which runs of transformed functions are watched ----
# Under grad for arrays that are overwritten, under vmap for random numbers. It takes
# time, so with ``config.checks = "first"`` only the first run is watched that reaches
# its end.


class Subject:
    """A transformed function, or the calls between `variable` and `backward`.

    Attributes
    ----------
    is_bare : bool
        Whether its runs need no look at the settings: they are not watched.
    was_watched : bool
        Whether a watched run has reached its end.
    constants : int
        How many watched runs had a value that depends on no argument, so that no
        backward showed anything.
    reaches : bool
        Whether a watched run could reach a generator of random numbers, or wrote an array
        from outside. Another run may draw where that one did not: all runs are watched.
    """

    __slots__ = ("constants", "is_bare", "parts", "reaches", "was_watched")

    def __init__(self, parts: Sequence[Any]) -> None:
        # They must live as long as their identities are in use.
        self.parts: Sequence[Any] = parts
        self.is_bare: bool = False
        self.was_watched: bool = False
        self.reaches: bool = False
        self.constants: int = 0

    @property
    def is_known(self) -> bool:
        """Return whether further runs would show nothing that no watched run has shown."""
        return self.was_watched and not self.reaches

    @property
    def is_sampled(self) -> bool:
        """Return whether only some of its runs are watched now, chosen at random."""
        return self.is_known and config.checks == "first"

    def note_watched(self) -> None:
        """Note that a watched run has reached its end."""
        self.was_watched = True
        self.is_bare = self.is_sampled and not config.sample_checks

    def note_constant(self) -> None:
        """Note that a watched run had a constant value."""
        self.constants += 1
        if self.constants >= _CONSTANTS:
            self.note_watched()


# What it is watched for, identities of its parts, texts or numbers of lines -> the
# subject. Code objects of different functions may be equal.
_subjects: dict[tuple[Any, ...], Subject] = {}

# It may be forgotten: then a run is watched that need not be.
_MOST_SUBJECTS = 4096

# Runs with a constant value that are watched. The value of a function may be constant until
# a branch is taken; that of a gradient of a linear function always is.
_CONSTANTS = 8
_FRAMES = 3


def _look_again() -> None:
    """Let the subjects look at the settings, which have changed."""
    for subject in list(_subjects.values()):
        subject.is_bare = False


config.on_change(_look_again)


def is_watched(subject: Subject) -> bool:
    """Return whether to watch a run of a subject."""
    if subject.is_sampled:
        return bool(config.sample_checks) and config.draws()
    return config.checks != "never"


def report(fault: CustomOpError, *, is_sampled: bool) -> None:
    """Raise a fault; in a run chosen at random, do what `config.on_failure` says."""
    if not is_sampled:
        raise fault
    fault = with_sampling(fault)
    if config.on_failure == "error":
        raise fault
    warn_caller(str(fault))


def _subject(key: tuple[Any, ...], parts: Sequence[Any]) -> Subject:
    found = _subjects.get(key)
    if found is not None:
        return found
    if len(_subjects) > _MOST_SUBJECTS:
        _look_again()  # whoever holds one still is not told of changes any more
        _subjects.clear()
    # Another thread may have made it since.
    return _subjects.setdefault(key, Subject(parts))


# ---- what makes two functions one subject ----


def subject_of(fn: Callable[..., Any], watched_for: str = "writes") -> Subject:
    """Return the subject that a function is; another one for each thing to watch for.

    Functions are one subject if they have the same code, and hold the same functions,
    classes of objects and texts: a lambda that is made again in a loop is the same.
    """
    key: list[Any]
    parts: list[Any]
    if type(fn) is not FunctionType:
        key, parts = [watched_for], []
        _add(key, parts, [fn])
        return _subject(tuple(key), parts)
    code = fn.__code__
    held: list[Any] = []
    if "watched_as" not in fn.__dict__:  # else its globals are the package's
        # Not what inner functions name, which would take long.
        found = map(fn.__globals__.get, all_names_in(code)[1])
        held = [value for value in found if type(value) not in _QUIET]
    if fn.__closure__ is not None or fn.__defaults__ or fn.__kwdefaults__:
        held += _held(fn)
    if not held:  # the usual case
        return _subject((watched_for, id(code)), (code,))
    key, parts = [watched_for, id(code)], [code]
    _add(key, parts, held)
    return _subject(tuple(key), parts)


def _add(key: list[Any], parts: list[Any], waiting: list[Any]) -> None:
    """Add what tells functions apart to a key, and what must live as long to the parts."""
    seen: set[int] = set()
    while waiting and len(seen) < _MOST_PARTS:
        item = waiting.pop()
        kind = type(item)
        if kind in _TEXTS:
            key.append(item)
            continue
        if kind in _NUMBERS or id(item) in seen:
            continue
        seen.add(id(item))
        if kind is FunctionType:
            if item.__closure__ is None and is_ours(item.__globals__):
                continue  # the package's own, which holds nothing of users
            part: Any = item.__code__
            waiting += _held(item)
        elif kind is MethodType:
            part = kind
            waiting += (item.__self__, item.__func__)
        elif kind in _ITSELF or issubclass(kind, OperatorPacket):
            part = item
        elif kind in _CONTAINERS:  # a list may grow from call to call
            waiting += _inside_container(item)
            continue
        elif (wrapped := _wrapped(item)) is not None:
            # It may run the function in another way. Its class may be made anew.
            key.append(kind.__qualname__)
            waiting.append(wrapped)
            continue
        else:
            part = kind
            waiting += _inside(item)
        parts.append(part)
        key.append(id(part))


def _held(fn: FunctionType) -> list[Any]:
    """List what a function holds: its closure, but for numbers, and its defaults."""
    if "watched_as" in fn.__dict__:
        return [fn.__dict__["watched_as"]]  # of the user: all else is the package's
    found = []
    for cell in fn.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
        if type(value) not in _NUMBERS and value is not fn:
            found.append(value)
    if fn.__defaults__ is not None:
        found += fn.__defaults__
    if fn.__kwdefaults__ is not None:
        found += fn.__kwdefaults__.values()
    return found


def _inside(item: Any) -> Sequence[Any]:
    """List what a partial holds, and the objects in a container or an object."""
    if isinstance(item, partial):
        return (item.func, *item.args, *item.keywords.values())
    found = [*_inside_container(item)] if isinstance(item, _SOME_CONTAINER) else []
    own = getattr(item, "__dict__", None)
    return [*found, *_inside_container(own)] if isinstance(own, dict) else found


def _inside_container(item: Any) -> Sequence[Any]:
    """List the objects in a container: a generator in one may be None in another."""
    values = [*item.values()] if isinstance(item, dict) else item
    if not values or (type(values[0]) in _NUMBERS and values is item):
        return ()  # a list of numbers may be long
    return [v for v in values if type(v) not in _PLAIN]


def _wrapped(item: Any) -> Any:
    """Return the function of an operator or of a compiled function; None for others."""
    if isinstance(item, RuleTable):
        return item.definition.fn
    own = getattr(item, "__dict__", None)
    return own.get("__wrapped__") if isinstance(own, dict) else None


# Classes of values that are known by what they are; of those that tell no functions apart;
# and of objects that are one subject only with themselves.
_TEXTS = frozenset((str, bool, type(None)))
_NUMBERS = frozenset(
    (int, float, complex, bytes, np.ndarray, np.float64, type(sys), *ProxyTypes)
)
# Values in containers that tell no functions apart.
_PLAIN = _NUMBERS | _TEXTS
# Globals that tell no functions apart; None is one that is missing.
_QUIET = _NUMBERS | {type(None)}
_ITSELF = frozenset((BuiltinFunctionType, np.ufunc, type))
_SOME_CONTAINER = (list, tuple, dict)
_CONTAINERS = frozenset(_SOME_CONTAINER)
# Parts of a function that are looked at: a model may hold much more.
_MOST_PARTS = 64


def subject_of_caller() -> Subject:
    """Return the subject around a call of the package, known by the frames outside."""
    codes: list[CodeType] = []
    lines: list[int] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(codes) < _FRAMES:
        if not is_ours(frame.f_globals):
            codes.append(frame.f_code)
            lines.append(frame.f_lineno)
        frame = frame.f_back
    return _subject(("writes", *map(id, codes), *lines), codes)
