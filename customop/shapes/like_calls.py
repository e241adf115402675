"""Calls such as ``np.zeros(n, like=x)``, in which NumPy asks for numbers that nobody reads.

NumPy turns the shape into numbers before it hands the call to the array `like`, which
gets the shape as it was given. So the number needs no guard, and may be any.
"""

from __future__ import annotations

import dis
from collections.abc import Sequence
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, Final

import numpy as np

__all__ = ["is_handed_over"]

# Functions in C that convert the shape first; the others leave it alone.
_MAKERS: Final = ("zeros", "empty")


def is_handed_over(frame: FrameType) -> bool:
    """Whether a frame calls a function of NumPy that hands its shape to `like`.

    Only a variable is looked at, and only one that is not NumPy's: for anything else the
    answer is no, and the number becomes a guard.
    """
    name = _variable_of_like(frame.f_code, frame.f_lasti)
    if name is None:
        return False
    values = frame.f_locals
    value = values[name] if name in values else frame.f_globals.get(name)
    handler = getattr(type(value), "__array_function__", None)
    return handler is not None and handler is not np.ndarray.__array_function__


@lru_cache(maxsize=1024)
def _variable_of_like(code: CodeType, at: int) -> str | None:
    """The variable that is the last keyword argument `like` of the call at a place."""
    before = [i for i in dis.get_instructions(code) if i.offset <= at]
    names, rest = _keywords(code, before)
    if not names or names[-1] != "like" or not rest:
        return None
    if not any(i.argval in _MAKERS for i in rest[-_FAR:]):
        return None
    load = rest[-1]
    is_plain = load.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_NAME"))
    if not is_plain and load.opname != "LOAD_GLOBAL":
        return None
    # Python 3.13 loads two variables at once.
    found = load.argval[-1] if isinstance(load.argval, tuple) else load.argval
    return found if isinstance(found, str) else None


# Instructions in which the name of the function must be.
_FAR: Final = 60


def _keywords(
    code: CodeType, before: Sequence[dis.Instruction]
) -> tuple[Sequence[Any], Sequence[dis.Instruction]]:
    """Names of the keyword arguments of the last call, and what comes before them."""
    for i in range(len(before) - 1, max(len(before) - 4, -1), -1):
        found = before[i]
        names = code.co_consts[found.arg or 0] if found.opname in _NAMES else None
        if type(names) is tuple:
            return names, before[:i]
    return (), ()


# Up to Python 3.12, and from 3.13 on.
_NAMES: Final = ("KW_NAMES", "LOAD_CONST")
