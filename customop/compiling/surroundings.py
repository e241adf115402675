"""What a function uses without getting it as an argument, and whether it is the same still.

Cells, globals, attributes, lists and dicts that the function can reach are slots. What
they hold when the function is captured is a constant of its graph, so each call looks
whether they hold it still.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterable, Iterator
from functools import cache, partial
from operator import is_
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.kinds import is_array, is_fake, is_traced
from customop.compiling.leaf_guards import Bind, number_test
from customop.transforms.trace.generators import is_generator

__all__ = ["Surroundings", "WatchedContainer", "WatchedName"]


class _Gone:
    """What a slot holds after it was deleted."""

    def __repr__(self) -> str:
        return "nothing"


GONE = _Gone()


class WatchedName(NamedTuple):
    """A cell, or a name in a namespace, and the value in it.

    Attributes
    ----------
    owner : cell or mapping
    key : str
        The name in a mapping.
    value : object
    label : str
        For reports, such as ``global 'rate'``.
    """

    owner: Any
    key: str
    value: Any
    label: str

    def now(self) -> Any:
        """What it holds now."""
        if isinstance(self.owner, CellType):
            return _content(self.owner)
        return self.owner.get(self.key, GONE)

    def restore(self) -> None:
        """Put the value back."""
        if isinstance(self.owner, CellType):
            self.owner.cell_contents = self.value
        elif isinstance(self.owner, dict):
            self.owner[self.key] = self.value

    def test(self, bind: Bind) -> str:
        """A condition for it to hold the same; KeyError or ValueError if it is gone."""
        if isinstance(self.owner, CellType):
            place = f"{bind('cell', self.owner)}.cell_contents"
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
        if not isinstance(self.owner, dict):
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
        now = _items(self.owner)
        return len(now) == len(self.items) and all(map(is_, now, self.items))


def _items(owner: Any) -> list[Any]:
    return [*owner, *owner.values()] if isinstance(owner, dict) else [*owner]


def _all_are(place: str, values: list[Any], bind: Bind) -> str:
    kept, same = bind("contents", values), bind("is_", is_)
    return f"all(map({same}, {place}, {kept}))"


class Surroundings:
    """What a function can reach.

    Parameters
    ----------
    items : iterable of pairs
        The function, and what else it is given that may hold functions, with labels.

    Attributes
    ----------
    slots : list of WatchedName
    contents : list of WatchedContainer
    is_plain : bool
        False if a value of a running transform, or a fake array, is among them.
    """

    def __init__(self, items: Iterable[tuple[Any, str]]) -> None:
        self.slots: list[WatchedName] = []
        self.contents: list[WatchedContainer] = []
        self.is_plain: bool = True
        self._attributes: set[str] = set()
        self._objects: list[tuple[Any, str]] = []
        self._seen: dict[int, Any] = {}
        self._known: set[tuple[int, str]] = set()
        self._waiting: list[tuple[Any, str]] = [*items]
        while self._waiting:
            while self._waiting:
                self._look_at(*self._waiting.pop())
            # An object is looked at by the attributes that any of the code names.
            for item, label in self._objects:
                self._look_inside(item, label)

    def _look_at(self, value: Any, label: str) -> None:
        if id(value) in self._seen or type(value) in _LEAVES:
            return
        self._seen[id(value)] = value
        if is_array(value) or is_generator(value):
            is_running = is_traced(value) and value.interpreter.alive
            self.is_plain = self.is_plain and not is_running and not is_fake(value)
        elif isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, MethodType):
            self._waiting += [(value.__func__, ""), (value.__self__, label)]
        elif isinstance(value, partial):
            inner = [value.func, *value.args, *value.keywords.values()]
            self._waiting += [(item, label) for item in inner]
        elif isinstance(value, list | dict | set | tuple | frozenset):
            self._container(value, label)
        elif isinstance(value, ModuleType | type):
            if not _is_foreign(getattr(value, "__module__", value.__name__), value):
                self._objects.append((value, label))
        elif not isinstance(value, BuiltinFunctionType):
            self._objects.append((value, label))

    def _function(self, fn: FunctionType) -> None:
        self._waiting += [(value, "") for value in vars(fn).values()]
        self._waiting += [(v, "") for v in (fn.__defaults__ or ())]
        self._waiting += [(v, "") for v in (fn.__kwdefaults__ or {}).values()]
        is_foreign = _is_foreign(fn.__module__, fn)
        for name, cell in zip(
            fn.__code__.co_freevars, fn.__closure__ or (), strict=True
        ):
            value = _content(cell)
            if is_foreign:
                self._waiting.append((value, name))
            else:
                self._slot(
                    cell, name, value, f"'{name}' of the closure of {fn.__name__}"
                )
        if is_foreign:
            return
        names, attributes = _names_in(fn.__code__)
        self._attributes |= attributes
        for name in names:
            if name in fn.__globals__:
                value = fn.__globals__[name]
                self._slot(fn.__globals__, name, value, f"the global '{name}'")

    def _slot(self, owner: Any, key: str, value: Any, label: str) -> None:
        """Note what a cell or namespace holds, and look at it."""
        if (id(owner), key) in self._known:
            return
        self._known.add((id(owner), key))
        if value is GONE:
            return
        if not isinstance(value, ModuleType | type | BuiltinFunctionType | np.ufunc):
            self.slots.append(WatchedName(owner, key, value, label))
        self._waiting.append((value, label))

    def _container(self, value: Any, label: str) -> None:
        if not isinstance(value, tuple | frozenset):
            self.contents.append(WatchedContainer(value, _items(value), label))
        inner = value.values() if isinstance(value, dict) else value
        self._waiting += [(item, label) for item in inner]

    def _look_inside(self, value: Any, label: str) -> None:
        """Look at the attributes of an object that the code names."""
        for names, owner in _namespaces(value):
            for key in [*names]:
                if key in self._attributes or key in _CALLED:
                    self._attribute(names, key, owner, label)

    def _attribute(self, names: Any, key: str, owner: Any, label: str) -> None:
        value = names.get(key, GONE)
        if (id(owner), key) in self._known:
            return
        self._known.add((id(owner), key))
        if isinstance(value, property):
            self._waiting.append((value.fget, ""))
        elif isinstance(value, classmethod | staticmethod):
            self._waiting.append((value.__func__, ""))
        elif isinstance(value, FunctionType) and isinstance(owner, type):
            self._waiting.append((value, ""))  # a method
        elif value is not GONE:
            self._known.discard((id(owner), key))
            text = f"{label or type(owner).__name__}.{key}"
            self._slot(names, key, value, text)
            self._known.add((id(owner), key))

    def changed(self) -> list[tuple[WatchedName, Any]]:
        """The slots that hold something else than they did, with what they hold now."""
        pairs = [(slot, slot.now()) for slot in self.slots]
        return [(slot, now) for slot, now in pairs if now is not slot.value]

    def contents_of_arrays(self) -> list[tuple[str, Any, Any]]:
        """Label, array and a copy of it, for arrays that plain NumPy code could write."""
        values = [(slot.label, slot.value) for slot in self.slots]
        values += [(c.label, v) for c in self.contents for v in c.items]
        return [
            (label, value, value.copy())
            for label, value in values
            if isinstance(value, np.ndarray) and value.nbytes <= _MOST_BYTES
        ]

    def leave_out_written(self) -> None:
        """Do not look at containers that the function has changed itself."""
        self.contents = [contents for contents in self.contents if contents.is_same]

    def tests(self, bind: Bind) -> Iterator[str]:
        """Conditions for all of them."""
        yield from (slot.test(bind) for slot in self.slots)
        yield from (contents.test(bind) for contents in self.contents)


# Larger arrays are not compared: a copy of 16 MB takes 3 ms.
_MOST_BYTES = 1 << 24
# Classes of values that hold nothing.
_LEAVES = frozenset((int, float, complex, bool, str, bytes, type(None), np.ufunc))
# Methods that run without being named.
_CALLED = frozenset(("__call__", "__init__", "__post_init__", "__enter__", "__exit__"))


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return GONE


@cache
def _names_in(code: CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Globals and attributes that a code object names, and the functions inside it."""
    names: set[str] = set()
    attributes: set[str] = set()
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names.add(step.argval)
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
            attributes.add(step.argval)
    for value in code.co_consts:
        if isinstance(value, CodeType):
            inner, others = _names_in(value)
            names |= inner
            attributes |= others
    return frozenset(names), frozenset(attributes)


def _namespaces(value: Any) -> Iterator[tuple[Any, Any]]:
    """Mappings of the attributes of an object, each with what they are attributes of."""
    own = getattr(value, "__dict__", None)
    if isinstance(own, dict | MappingProxyType):
        yield own, value
    for cls in type(value).__mro__ if not isinstance(value, type | ModuleType) else ():
        if not _is_foreign(cls.__module__, cls):
            yield vars(cls), cls


def _is_foreign(module: str | None, value: Any) -> bool:
    """Whether something belongs to Python or to an installed package."""
    if isinstance(value, ModuleType):
        return _is_installed(value.__name__)
    return module is None or _is_installed(module)


@cache
def _is_installed(name: str) -> bool:
    root = name.partition(".")[0]
    if root in ("customop", "numpy") or root in sys.stdlib_module_names:
        return root != "__main__"
    file = getattr(sys.modules.get(root), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file
