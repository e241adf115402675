"""The carry of a loop: it keeps its structure, shapes and dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from customop.arrays.describe import show
from customop.arrays.kinds import has_memory, is_array
from customop.arrays.pytree import flatten, outline, unflatten
from customop.control.leaf_types import (
    fits,
    is_number,
    leaf_type,
    named,
    path_of,
)
from customop.core.boxes import frozen
from customop.errors import ArgumentError, CustomOpError, place
from customop.shapes.sizes import same_shape

__all__ = [
    "NOT_PLAIN",
    "Kept",
    "checked_carry",
    "is_same",
    "own_carry",
    "pair_of",
    "plain_copy",
]


def own_carry(init: Any) -> Any:
    """A carry that a body may write in place, without changing the caller's arrays."""
    carry = plain_copy(init)
    if carry is not NOT_PLAIN:
        return carry
    found, structure = flatten(init)
    return unflatten(structure, [_own(leaf) for leaf in found])


_NUMBERS = frozenset((float, int, bool, np.float64, np.int64, np.bool_, type(None)))


class _NotPlain:
    """Marks a carry that `plain_copy` does not copy."""


NOT_PLAIN = _NotPlain()


def plain_copy(init: Any) -> Any:
    """As `own_carry`, for arrays of NumPy and numbers, and tuples of them."""
    cls = type(init)
    if cls is np.ndarray:
        return init.copy("K")
    if cls in _NUMBERS:
        return init
    if cls is not tuple:
        return NOT_PLAIN
    found = []
    for item in init:
        cls = type(item)
        if cls is np.ndarray:
            item = item.copy("K")  # noqa: PLW2901  # a third of the time
        elif cls not in _NUMBERS:
            item = plain_copy(item)  # noqa: PLW2901  # the same item
            if item is NOT_PLAIN:
                return NOT_PLAIN
        found.append(item)
    return tuple(found)


def _own(leaf: Any) -> Any:
    if type(leaf) is np.ndarray:
        return leaf.copy(order="K")
    return leaf.copy() if has_memory(leaf) else frozen(leaf)


class Kept:
    """Checks that the steps of a loop keep the carry.

    Checking each step would take as long as a small body. So the first step is checked,
    and the carry at the end of the loop, whether it ends by an error or not.

    Parameters
    ----------
    name : str
        The function that loops, for messages.
    body : callable
        The steps.
    first : pytree, optional
        The carry after the first step, if that was checked.

    Attributes
    ----------
    started : bool
        Whether there was a first step.
    """

    __slots__ = ("_first", "_name", "body", "started")

    def __init__(
        self, name: str, body: Callable[..., Any], first: Any = NOT_PLAIN
    ) -> None:
        self._name = name
        self._first: Any = first
        self.body: Callable[..., Any] = body
        self.started: bool = first is not NOT_PLAIN

    def first(self, old: Any, new: Any) -> Any:
        """The carry after a step that is checked; raise if the step does not keep it."""
        new = checked_carry(self._name, self.body, old, new)
        if not self.started:
            self._first, self.started = new, True
        return new

    def result(self, carry: Any) -> Any:
        """The carry after the last step; raise if the steps did not keep it."""
        if not self.started or carry is self._first:
            return carry
        return checked_carry(self._name, self.body, self._first, carry)

    def explain(self, error: Exception, carry: Any) -> None:
        """Raise if a step failed on a carry that was not kept."""
        is_own = not self.started or isinstance(error, CustomOpError)
        fault = "" if is_own else _compared(self._first, carry)[1]
        if fault:
            raise _changed_carry(self._name, self.body, fault) from error


def checked_carry(name: str, body: Callable[..., Any], old: Any, new: Any) -> Any:
    """The new carry, with numbers as arrays where the old one has arrays.

    Raises
    ------
    ArgumentError
        If it has another structure, shape or dtype than the old one.
    """
    found, fault = _compared(old, new)
    if fault:
        raise _changed_carry(name, body, fault)
    return found


def pair_of(f: Callable[..., Any], out: Any) -> tuple[Any, Any]:
    """The carry and the result that a step of a scan returned; raise for anything else."""
    if type(out) is tuple and len(out) == 2:
        return out
    raise ArgumentError(
        f"scan: f returned {show(out)}, must be a pair",
        f"f is at {place(f)}",
        do="return (carry, y), with y None where a step has no result",
    )


def _changed_carry(name: str, body: Callable[..., Any], fault: str) -> ArgumentError:
    return ArgumentError(
        f"{name}: {fault}",
        f"the body is at {place(body)}",
        do="return a carry of the structure, shapes and dtypes of the one that came in",
    )


def _compared(old: Any, new: Any) -> tuple[Any, str]:
    """The new carry, and what differs, or an empty text."""
    if is_same(old, new):
        return new, ""
    before, structure = flatten(old)
    after, other = flatten(new)
    if structure != other:
        text = f"{outline(structure)}, and comes out as {outline(other)}"
        return new, f"the carry goes in as {text}"
    found = []
    for i, (a, b) in enumerate(zip(before, after, strict=True)):
        if not _keeps(a, b):
            text = f"goes in as {named(a)}, and comes out as {named(b)}"
            return new, f"{path_of(structure, i, 'carry')} {text}"
        found.append(np.asarray(b, a.dtype)[()] if is_array(a) and is_number(b) else b)
    return unflatten(other, found), ""


def is_same(old: Any, new: Any) -> bool:
    """Whether a carry is kept for certain: a quick answer for most carries."""
    cls = type(new)
    if new is old or cls is not type(old):
        return new is old
    if cls is np.ndarray:
        return new.dtype is old.dtype and new.shape == old.shape
    if cls is tuple or cls is list:
        if len(old) != len(new):
            return False
        for a, b in zip(old, new, strict=True):  # a third of the time of all(map())
            if a is not b and not is_same(a, b):
                return False
        return True
    return cls in (int, float, np.float64, np.int64)


def _keeps(old: Any, new: Any) -> bool:
    """Whether a leaf may follow another one in its place."""
    if old is new:
        return True
    a, b = leaf_type(old), leaf_type(new)
    if a is None or b is None:
        return a is b and bool(old == new)
    return same_shape(a.shape, b.shape) and fits(a, b)
