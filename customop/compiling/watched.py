"""Values that a function reads beside its arguments, and checks that they are the same."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterable, MutableMapping
from contextvars import ContextVar
from functools import cache
from operator import attrgetter, is_
from types import CellType, FunctionType, MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.kinds import is_array
from customop.compiling.leaf_guards import Bind, number_test

__all__ = [
    "CONTAINERS",
    "GONE",
    "Members",
    "WatchedArray",
    "WatchedBuffer",
    "WatchedContainer",
    "WatchedName",
    "codes_test",
    "content",
    "is_installed",
    "items_of",
]

CONTAINERS = (list, dict, set, tuple, frozenset, deque, MappingProxyType)


class _Gone:
    """The content of a slot that was deleted."""

    def __repr__(self) -> str:
        return "nothing"


GONE: _Gone = _Gone()


class WatchedName(NamedTuple):
    """A cell, or a name in a namespace, and the value in it.

    Attributes
    ----------
    owner : cell or mapping
    key : str
        The name in a mapping.
    value : object
        What it holds; GONE for a name that is not there.
    label : str
        For reports, such as ``global 'rate'``.
    """

    owner: Any
    key: str
    value: Any
    label: str

    def now(self) -> Any:
        """The present content."""
        if isinstance(self.owner, CellType):
            return content(self.owner)
        return self.owner.get(self.key, GONE)

    def is_as(self, now: Any) -> bool:
        """Whether it held this object before; the text of a variable is new each time."""
        if type(now) is str and type(self.value) is str:
            return now == self.value
        return now is self.value

    def restore(self) -> None:
        """Put the value back."""
        if isinstance(self.owner, CellType):
            self.owner.cell_contents = self.value
        elif self.value is GONE:
            del self.owner[self.key]
        elif isinstance(self.owner, MutableMapping | Members):
            self.owner[self.key] = self.value

    def test(self, bind: Bind) -> str:
        """A condition for it to hold the same; KeyError or ValueError if it is gone."""
        if self.owner is os.environ:  # one look-up takes 0.6 us
            now = f"{bind('environ', self.owner)}.get({self.key!r})"
            return f"{now} == {None if self.value is GONE else self.value!r}"
        if isinstance(self.owner, CellType):
            place = f"{bind('cell', self.owner)}.cell_contents"
        elif self.value is GONE:
            return f"{self.key!r} not in {bind('names', self.owner)}"
        else:
            place = f"{bind('names', self.owner)}[{self.key!r}]"
        if is_array(self.value) and not isinstance(self.value, np.generic):
            return f"{place} is {bind('array', self.value)}"
        return number_test(place, self.value, bind)


class WatchedContainer(NamedTuple):
    """A list, dict or set, and what was in it.

    Attributes
    ----------
    owner : list, dict or set
    items : list
        What was in it; of a dict the keys, then the values.
    label : str
    """

    owner: Any
    items: list[Any]
    label: str

    def test(self, bind: Bind) -> str:
        """A condition for it to hold the same objects."""
        name = bind("container", self.owner)
        length = f"len({name}) == {len(self.owner)}"
        if not isinstance(self.owner, dict | MappingProxyType):
            return f"{length} and {_all_are(name, self.items, bind)}"
        half = len(self.owner)
        keys, values = self.items[:half], self.items[half:]
        return (
            f"{length} and {_all_are(f'{name}.values()', values, bind)}"
            f" and {_all_are(name, keys, bind)}"
        )

    @property
    def is_same(self) -> bool:
        """Whether it holds the same objects."""
        now = items_of(self.owner)
        return len(now) == len(self.items) and all(map(is_, now, self.items))

    @property
    def has_fewer(self) -> bool:
        """Whether something was taken out of it."""
        return len(items_of(self.owner)) < len(self.items)

    def restore(self) -> None:
        """Put back what was taken out."""
        if isinstance(self.owner, dict):
            half = len(self.items) // 2
            items: Any = zip(self.items[:half], self.items[half:], strict=True)
        else:
            items = self.items
        self.owner.clear()
        (
            self.owner.extend
            if isinstance(self.owner, list | deque)
            else self.owner.update
        )(items)


class WatchedBuffer(NamedTuple):
    """A bytearray or another object of bytes, which are compared.

    Attributes
    ----------
    owner : object
    content : bytes
    label : str
    """

    owner: Any
    content: bytes
    label: str

    def test(self, bind: Bind) -> str:
        """A condition for it to hold the same bytes."""
        name, kept = bind("buffer", self.owner), bind("bytes", self.content)
        if type(self.owner) is bytearray:
            return f"{name} == {kept}"
        return f"{bind('bytes_of', bytes)}({name}) == {kept}"

    @property
    def is_same(self) -> bool:
        """Whether it holds the same bytes."""
        return bytes(self.owner) == self.content


class WatchedArray(NamedTuple):
    """An array that NumPy alone may have read, and its bytes.

    Attributes
    ----------
    owner : numpy.ndarray
    copy : numpy.ndarray
    label : str
    """

    owner: Any
    copy: Any
    label: str

    def test(self, bind: Bind) -> str:
        """A condition for it to hold the same."""
        name = bind("array", self.owner)
        return f"{name}.tobytes() == {bind('bytes', self.copy.tobytes())}"

    @property
    def is_same(self) -> bool:
        """Whether it holds the same."""
        return bool(self.owner.tobytes() == self.copy.tobytes())


class Members:
    """Values that are not in a dict, as a mapping: of `__slots__` or a ContextVar."""

    __slots__ = ("_owner",)

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def get(self, key: str, default: Any) -> Any:
        """The value, or another one if there is none."""
        if isinstance(self._owner, ContextVar):
            try:
                return self._owner.get()  # its own default before this one
            except LookupError:
                return default
        return getattr(self._owner, key, default)

    def __getitem__(self, key: str) -> Any:
        return self.get(key, GONE)

    def __setitem__(self, key: str, value: Any) -> None:
        if isinstance(self._owner, ContextVar):
            self._owner.set(value)
        else:
            setattr(self._owner, key, value)


def items_of(owner: Any) -> list[Any]:
    """Return the items of a container; of a mapping the keys, then the values."""
    if isinstance(owner, dict | MappingProxyType):
        return [*owner, *owner.values()]
    return [*owner]


def _all_are(place: str, values: list[Any], bind: Bind) -> str:
    kept, same = bind("contents", values), bind("is_", is_)
    return f"all(map({same}, {place}, {kept}))"


_code_of = attrgetter("__code__")


def codes_test(functions: Iterable[FunctionType], bind: Bind) -> str:
    """A condition for functions to have the same code: who reloads a module changes it."""
    kept = [*functions]
    names, codes = bind("functions", kept), bind("codes", [*map(_code_of, kept)])
    same, code_of = bind("is_", is_), bind("code_of", _code_of)
    return f"all(map({same}, map({code_of}, {names}), {codes}))"


def content(cell: CellType) -> Any:
    """Return the content of a cell."""
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return GONE


@cache
def is_installed(name: str) -> bool:
    """Whether a module belongs to Python or to an installed package."""
    root = name.partition(".")[0]
    if root in ("customop", "numpy") or root in sys.stdlib_module_names:
        return root != "__main__"
    file = getattr(sys.modules.get(root), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file
