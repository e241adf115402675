"""Which runs of transformed functions are watched, and the objects that they reach."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import BuiltinMethodType, CodeType, FrameType, FunctionType, MethodType
from typing import Any

import numpy as np

from customop.config import config
from customop.core.kernel_proof import with_sampling
from customop.errors import CustomOpError, is_ours, warn_caller

# ---- the objects that a function can use without getting them as arguments ----


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


# ---- which runs of transformed functions are watched ----
# Under grad for arrays that are overwritten, under vmap for random numbers. It takes
# time, so with ``config.checks = "first"`` only the first run is watched that reaches
# its end.


class Subject:
    """A transformed function, or the calls between `variable` and `backward`.

    A function is known by its code and that of the functions in its closure, so a lambda
    that is made again in a loop stays the same subject.

    Attributes
    ----------
    is_bare : bool
        Whether its runs need no look at the settings: they are not watched.
    was_watched : bool
        Whether a watched run has reached its end.
    constants : int
        How many watched runs had a value that depends on no argument, so that no
        backward showed anything.
    """

    __slots__ = ("codes", "constants", "is_bare", "was_watched")

    def __init__(self, codes: Sequence[Any]) -> None:
        # They must live as long as their identities are in use.
        self.codes: Sequence[Any] = codes
        self.is_bare: bool = False
        self.was_watched: bool = False
        self.constants: int = 0

    @property
    def is_sampled(self) -> bool:
        """Whether only some of its runs are watched from now on, chosen at random."""
        return self.was_watched and config.checks == "first"

    def note_watched(self) -> None:
        """Note that a watched run has reached its end."""
        self.was_watched = True
        self.is_bare = config.checks == "first" and not config.sample_checks

    def note_constant(self) -> None:
        """Note that a watched run had a constant value."""
        self.constants += 1
        if self.constants >= _CONSTANTS:
            self.note_watched()


# What it is watched for, identities of its codes, and numbers of lines -> the subject.
# Code objects of different functions may be equal.
_subjects: dict[tuple[str | int, ...], Subject] = {}

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
    """Whether a run of a subject is watched."""
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


def _subject(
    codes: Sequence[Any], lines: Sequence[int] = (), watched_for: str = "writes"
) -> Subject:
    key: tuple[str | int, ...] = (watched_for, *map(id, codes), *lines)
    found = _subjects.get(key)
    # Another thread may have made it since.
    return _subjects.setdefault(key, Subject(codes)) if found is None else found


def subject_of(fn: Callable[..., Any], watched_for: str = "writes") -> Subject:
    """The subject that a function is; another one for each thing it is watched for."""
    if type(fn) is FunctionType and fn.__closure__ is fn.__defaults__ is None:
        # The usual case: a third of the time.
        return _subject((fn.__code__,), (), watched_for)
    found: list[Any] = []
    waiting: list[Any] = [fn]
    while waiting and len(found) < _FUNCTIONS:
        item = waiting.pop()
        if type(item) is FunctionType:
            found.append(item.__code__)
            waiting += _held_runs(item)
        elif type(item) is MethodType:
            waiting.append(item.__func__)
        elif isinstance(item, partial):
            waiting += [item.func, *filter(_is_function, item.args)]
        elif isinstance(getattr(item, "__code__", None), CodeType):
            found.append(item.__code__)
        elif hasattr(item, "__wrapped__"):  # an operator, say
            waiting.append(item.__wrapped__)
        elif isinstance(type(item).__call__, FunctionType):
            waiting.append(type(item).__call__)
        else:
            found.append(item)  # a ufunc, say
    return _subject(found, (), watched_for)


def _held_runs(fn: FunctionType) -> list[Any]:
    """Functions in the closure and in the defaults of a function."""
    found = []
    for cell in fn.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
        # Functions that transforms make hold themselves.
        if isinstance(value, _FUNCTIONS_OF_PYTHON) and value is not fn:
            found.append(value)
    if fn.__defaults__ is not None:
        found += filter(_is_function, fn.__defaults__)
    return found


# A union would be made again in each call.
_FUNCTIONS_OF_PYTHON = (FunctionType, MethodType, partial)


def _is_function(value: Any) -> bool:
    return isinstance(value, _FUNCTIONS_OF_PYTHON)


def subject_of_caller() -> Subject:
    """The subject around a call of the package, known by the frames outside of it."""
    codes: list[CodeType] = []
    lines: list[int] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(codes) < _FRAMES:
        if not is_ours(frame.f_globals):
            codes.append(frame.f_code)
            lines.append(frame.f_lineno)
        frame = frame.f_back
    return _subject(codes, lines)
