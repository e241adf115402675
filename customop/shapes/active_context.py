"""The context of code that runs now, and `check` of conditions on sizes."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from customop.errors import ArgumentError, ShapeError, caller_place
from customop.shapes.size_context import SizeContext
from customop.shapes.sym_bool import SymBool

__all__ = ["active_context", "captured_sizes", "check", "set_active"]


class _Active(threading.local):
    """The context of this thread, and that of calls outside of any capture."""

    context: SizeContext | None = None
    plain: weakref.ref[SizeContext] | None = None


_active = _Active()


def set_active(context: SizeContext | None) -> SizeContext | None:
    """Set the context of new sizes in this thread, and return the one before."""
    before = _active.context
    _active.context = context
    return before


def captured_sizes() -> SizeContext | None:
    """The sizes of the capture that runs in this thread, or None."""
    return _active.context


def active_context() -> SizeContext:
    """The context of new sizes.

    Outside of a capture it is one for all sizes of the thread that are still in use, so
    that their names differ.
    """
    if _active.context is not None:
        return _active.context
    found = None if _active.plain is None else _active.plain()
    if found is None:
        found = SizeContext()
        _active.plain = weakref.ref(found)
    return found


def check(condition: Any, message: str | None = None) -> None:
    """Require a condition on sizes.

    Parameters
    ----------
    condition : bool or SymBool
        Such as ``x.shape[0] > 0``.
    message : str, optional
        For the error.

    Raises
    ------
    ShapeError
        If it does not hold.
    ArgumentError
        If it is an array with axes.

    Notes
    -----
    Of symbolic sizes the condition is known from then on, so that questions about them
    can be answered. A captured graph checks it when it is called.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> x = co.FakeMode().from_array(np.zeros(5), sizes=("n",))
    >>> n = x.shape[0]
    >>> co.check(n >= 2)
    >>> n == 0, n + 1 > 2
    (False, True)
    """
    if isinstance(condition, SymBool):
        condition.context.require(condition.condition, message or "")
    elif getattr(condition, "ndim", 0):
        raise ArgumentError(
            f"check: the condition has the shape {condition.shape}, and must be one bool",
            do="write condition.all(), or condition.any()",
        )
    elif not condition:
        raise ShapeError(
            message or "check: the condition is False",
            f"at {caller_place()}",
            do="pass arrays of other sizes, or change the check",
        )
