"""Classes of other libraries beside arrays of ours: which side decides an operation."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from customop.arrays.kinds import registered_base
from customop.errors import ArgumentError, CustomOpError
from customop.shapes.sizes import SymShape
from customop.shapes.symbols import Symbolic

__all__ = [
    "PLAIN",
    "UNDECIDED",
    "answer",
    "any_foreign",
    "at_home",
    "check_own_rules",
    "decides_ufuncs",
    "has_own_rules",
    "joined",
    "others_decide",
    "refuse_own_rules",
]

_MISSING = object()


class _AtHome(dict[type, bool]):
    """Class -> whether its values are for operators: arrays of known kinds and numbers.

    Other classes are not kept: they may be registered later, or die.
    """

    def __missing__(self, cls: type) -> bool:
        if issubclass(cls, Symbolic | SymShape):
            return True
        if issubclass(cls, list | tuple):
            return False  # they are joined first
        is_known = registered_base(cls) is not None or cls.__module__ == "builtins"
        found = is_known and not _decides(cls, "__array_ufunc__")
        found = found and not has_own_rules(cls)
        if found:
            self[cls] = True
        return found


# Every binary operator on a traced array looks up here.
at_home: _AtHome = _AtHome()


def _decides(cls: type, protocol: str) -> bool:
    """Whether a class has a protocol that is neither NumPy's nor of a known kind."""
    mine = getattr(cls, protocol, _MISSING)
    return mine is not _MISSING and mine is not getattr(
        registered_base(cls) or np.ndarray, protocol, _MISSING
    )


def joined(value: Any, like: Any) -> Any:
    """A list that is an operand of a ufunc as an array, as NumPy makes one of it."""
    return np.asarray(value, like=like) if isinstance(value, list | tuple) else value


def others_decide(inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a value of another library takes part in the call of a ufunc."""
    given = inputs
    if kwargs:
        given = (*inputs, *(kwargs.get("out") or ()), kwargs.get("where"))
    for value in given:  # 0.3 us less than any()
        cls = type(value)
        if not at_home[cls] and (_decides(cls, "__array_ufunc__") or _is_refused(cls)):
            return True
    return False


def any_foreign(classes: Iterable[type], protocol: str) -> bool:
    """Whether a value of another library takes part, which then decides.

    Source: NEP 13 and NEP 18: an implementation that does not know all the classes
    returns NotImplemented.
    """
    for cls in classes:  # any() takes 0.3 us more
        if not at_home[cls] and (_decides(cls, protocol) or _is_refused(cls)):
            return True
    return False


# ---- subclasses of NumPy's arrays with arithmetic of their own ----


def has_own_rules(cls: type) -> bool:
    """Whether a class of NumPy arrays means something else by ``x * y`` than NumPy's.

    np.matrix and masked arrays do.
    """
    if cls is np.ndarray:
        return False
    return issubclass(cls, np.ndarray) and cls.__mul__ is not np.ndarray.__mul__


def decides_ufuncs(cls: type) -> bool:
    """Whether a class of NumPy arrays has ufuncs of its own; registered classes have not."""
    return issubclass(cls, np.ndarray) and _decides(cls, "__array_ufunc__")


def check_own_rules(value: Any, what: str, error: type[CustomOpError]) -> None:
    """Raise if the class of a value, which messages call `what`, has its own arithmetic.

    A result would be right for its elements, and wrong for a matrix or a mask.
    """
    if has_own_rules(type(value)):
        raise error(
            f"{what} is a {type(value).__name__}, whose own arithmetic would be lost",
            do=PLAIN,
        )


def _is_refused(cls: type) -> bool:
    """False; raise for a class with arithmetic of its own, which would be lost."""
    if has_own_rules(cls):
        raise ArgumentError(
            f"a {cls.__name__} beside a traced or fake array: its own arithmetic would"
            " be lost",
            do=PLAIN,
        )
    return False


def refuse_own_rules(values: Iterable[Any]) -> None:
    """Raise if the class of a value has arithmetic of its own."""
    for value in values:
        if not at_home[type(value)]:
            _is_refused(type(value))


PLAIN_OF_CLASS = "pass np.asarray(x), and make the class of the results again"
PLAIN = (
    "pass np.asarray(x); of a masked array x.filled(0), with the mask as an array beside"
    " it"
)

# The answer of a class without a say: the operator raises, and says what it takes.
UNDECIDED = object()


def answer(ufunc: np.ufunc, method: str, other: Any, x: Any, y: Any) -> Any:
    """The answer of another library to ``x op y``, where `other` is one of the two.

    Parameters
    ----------
    ufunc : ufunc
    method : str
        The method of `other` that Python has not tried yet, such as ``"__radd__"``;
        empty if it has tried all.
    other, x, y : object

    Returns
    -------
    object
        The result, NotImplemented to leave it to that method, or `UNDECIDED`.
    """
    cls: Any = type(other)
    if _decides(cls, "__array_ufunc__"):
        ask = cls.__array_ufunc__
        # None means: my own methods alone. Source: NEP 13.
        return NotImplemented if ask is None else ask(other, ufunc, "__call__", x, y)
    _is_refused(cls)
    if cls.__module__ == "builtins" or isinstance(other, numbers.Number):
        return UNDECIDED
    return NotImplemented if method and hasattr(cls, method) else UNDECIDED
