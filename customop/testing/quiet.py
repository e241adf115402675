"""Warnings, floating-point errors and random states while operators are checked."""

from __future__ import annotations

import os
import random
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from customop.errors import CustomOpWarning
from customop.testing.numpy_random import numpy_state, set_numpy_state

__all__ = ["quieted", "random_state_kept", "strict_numbers"]

# Warnings that say nothing about the numbers.
_HARMLESS = (DeprecationWarning, FutureWarning, CustomOpWarning)


class _Strictness(type):
    """The class of `_Noise`, which holds all warnings while `is_on`."""

    is_on = False

    def __subclasscheck__(cls, other: type) -> bool:
        return cls.is_on and not issubclass(other, _HARMLESS)


class _Noise(Warning, metaclass=_Strictness):
    """The category of a filter that stays among the filters and is switched on and off.

    To put a filter there and take it away takes 4 us, as long as eight calls.
    """


class strict_numbers:  # noqa: N801  # as np.errstate
    """Raise warnings and floating-point errors as errors, for a while."""

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
    """Whether the filter for noise is the first: a kernel may have put another before."""
    return bool(warnings.filters) and warnings.filters[0][2] is _Noise


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Restore the global random states of Python and NumPy, which kernels may use."""
    before, of_numpy = random.getstate(), numpy_state()
    try:
        yield
    finally:
        random.setstate(before)
        set_numpy_state(of_numpy)


# ---- one thread at a time ----

_turn = threading.RLock()


@contextmanager
def quieted() -> Iterator[None]:
    """Silence warnings of kernels on odd inputs.

    Their filters belong to the whole process, like the random states, and some checks
    compare them: other threads wait.
    """
    with _turn, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", _Noise)
        yield


def _renew() -> None:
    """A new lock in a child, unless its only thread holds the lock."""
    if not _turn.acquire(blocking=False):
        globals()["_turn"] = threading.RLock()
    else:
        _turn.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
