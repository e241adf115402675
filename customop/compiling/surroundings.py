"""Values that a function uses and does not take as arguments, and whether they changed.

Cells, globals, attributes, lists and dicts that the function can reach are slots. What
they hold when the function is captured is a constant of its graph, so each call looks
whether they hold it still.
"""

from __future__ import annotations

import dis
import sys
from collections import ChainMap, UserDict, UserList
from collections.abc import Container, Iterable, Iterator
from contextvars import ContextVar
from functools import cache, partial
from operator import attrgetter
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any
from weakref import ref as weakref

import numpy as np

from customop.arrays.kinds import is_array, is_fake, is_traced
from customop.compiling.leaf_guards import Bind
from customop.compiling.watched import (
    CONTAINERS,
    GONE,
    Members,
    WatchedArray,
    WatchedBuffer,
    WatchedContainer,
    WatchedName,
    codes_test,
    content,
    is_installed,
    items_of,
)
from customop.core.table import RuleTable
from customop.transforms.generators import is_generator

__all__ = ["Surroundings", "WatchedName"]


class Surroundings:
    """The values that a function can reach.

    Parameters
    ----------
    items : iterable of pairs
        The function, and what else it is given that may hold functions, with labels.

    Attributes
    ----------
    slots : list of WatchedName
    contents : list of WatchedContainer
    arrays : list of WatchedArray
        Those that no call of an operator takes, so that NumPy alone may have read them.
    buffers : list of WatchedBuffer
    iterators : list of pairs
        Iterators of Python, which the function would use up, with their labels.
    is_plain : bool
        False if a value of a running transform, or a fake array, is among them.
    """

    def __init__(self, items: Iterable[tuple[Any, str]]) -> None:
        self.slots: list[WatchedName] = []
        self.contents: list[WatchedContainer] = []
        self.arrays: list[WatchedArray] = []
        self.buffers: list[WatchedBuffer] = []
        self.iterators: list[tuple[Any, str]] = []
        self.is_plain: bool = True
        self._functions: list[FunctionType] = []
        self._attributes: set[str] = set()
        # Whether code names attributes of objects by texts.
        self._takes_any: bool = False
        self._copies: list[WatchedArray] = []
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
            if isinstance(value, np.ndarray) and value.nbytes <= _MOST_BYTES:
                self._copies.append(WatchedArray(value, value.copy(), label))
        elif isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, MethodType):
            self._waiting += [(value.__func__, ""), (value.__self__, label)]
        elif isinstance(value, partial):
            inner = [value.func, *value.args, value.keywords]
            self._waiting += [(item, label) for item in inner]
        elif isinstance(value, CONTAINERS):
            self._container(value, label)
        elif isinstance(value, ModuleType | type):
            if not _is_foreign(getattr(value, "__module__", value.__name__), value):
                self._objects.append((value, label))
        else:
            self._object(value, label)

    def _object(self, value: Any, label: str) -> None:
        if isinstance(value, ContextVar):
            variable = Members(value)
            now = variable.get(value.name, GONE)
            self._slot(variable, value.name, now, f"'{value.name}'")
        elif isinstance(value, attrgetter):
            names = value.__reduce__()[1]
            self._attributes |= {part for name in names for part in name.split(".")}
        elif isinstance(value, UserDict | UserList | ChainMap):
            self._waiting.append((vars(value), label))
        elif isinstance(value, weakref):
            self._waiting.append((value(), label))
        elif isinstance(value, Iterator) and type(value).__module__ in _ITERATORS:
            self.iterators.append((value, label))
        elif (size := _size_of_buffer(value)) is not None:
            if size <= _MOST_COMPARED:
                self.buffers.append(WatchedBuffer(value, bytes(value), label))
        elif not isinstance(value, BuiltinFunctionType | RuleTable):
            self._objects.append((value, label))
            own = getattr(value, "__dict__", None)
            if isinstance(own, dict) and "__wrapped__" in own:
                self._waiting.append((own["__wrapped__"], ""))

    def _function(self, fn: FunctionType) -> None:
        self._waiting += [(value, "") for value in vars(fn).values()]
        self._waiting += [(v, "") for v in (fn.__defaults__ or ())]
        self._waiting += [(v, "") for v in (fn.__kwdefaults__ or {}).values()]
        is_foreign = _is_foreign(fn.__module__, fn)
        for name, cell in zip(
            fn.__code__.co_freevars, fn.__closure__ or (), strict=True
        ):
            value = content(cell)
            if is_foreign:
                self._waiting.append((value, name))
            else:
                self._slot(
                    cell, name, value, f"'{name}' of the closure of {fn.__name__}"
                )
        if is_foreign:
            return
        self._functions.append(fn)
        names, attributes, modules = _names_in(fn.__code__)
        self._attributes |= attributes
        self._takes_any |= not _BY_TEXT.isdisjoint(names | attributes)
        self._waiting += [(sys.modules.get(name), name) for name in modules]
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
            self.contents.append(WatchedContainer(value, items_of(value), label))
        is_mapping = isinstance(value, dict | MappingProxyType)
        inner = value.values() if is_mapping else value
        self._waiting += [(item, label) for item in inner]

    def _look_inside(self, value: Any, label: str) -> None:
        """Look at the attributes of an object that the code names."""
        is_object = not isinstance(value, type | ModuleType)
        for names, owner in _namespaces(value):
            self._seen[id(names)] = names  # so that no other has its id
            is_own = is_object and owner is value
            for key in [*names]:
                is_any = is_own and self._takes_any
                if is_any or key in self._attributes or key in _CALLED:
                    self._attribute(names, key, owner, label)
                    if is_object and not is_own:
                        self._of_class(value, key, names.get(key, GONE), label)

    def _attribute(self, names: Any, key: str, owner: Any, label: str) -> None:
        value = names.get(key, GONE)
        if (id(owner), key) in self._known:
            return
        self._known.add((id(owner), key))
        if isinstance(value, property):
            self._waiting.append((value.fget, ""))
        elif isinstance(value, classmethod | staticmethod):
            self._waiting.append((value.__func__, ""))
        if isinstance(value, FunctionType) and key in _CALLED:
            self._waiting.append((value, ""))
        elif value is not GONE:
            text = f"{label or type(owner).__name__}.{key}"
            self._slot(names, key, value, text)

    def _of_class(self, value: Any, key: str, found: Any, label: str) -> None:
        """Note an attribute that an object has from its class, and may get itself."""
        if (id(value), key) in self._known:
            return
        self._known.add((id(value), key))
        text = f"{label or type(value).__name__}.{key}"
        own = getattr(value, "__dict__", None)
        if isinstance(found, MemberDescriptorType):
            self._slot(Members(value), key, getattr(value, key, GONE), text)
        elif isinstance(own, dict) and key not in own and not _is_called(found):
            self.slots.append(WatchedName(own, key, GONE, text))

    def add_names(self, names: Iterable[WatchedName]) -> None:
        """Watch other names, too."""
        for name in names:
            if (id(name.owner), name.key) not in self._known:
                self._known.add((id(name.owner), name.key))
                self.slots.append(name)

    def changed(self) -> list[tuple[WatchedName, Any]]:
        """The slots that hold something else than they did, with what they hold now."""
        pairs = [(slot, slot.now()) for slot in self.slots]
        return [(slot, now) for slot, now in pairs if not slot.is_as(now)]

    def holds(self, array: Any) -> bool:
        """Whether an array lies in the memory of one that the function can reach."""
        return any(
            isinstance(value, np.ndarray) and np.may_share_memory(array, value)
            for value in self._seen.values()
        )

    def written(self) -> list[str]:
        """Labels of arrays and bytes that hold something else than they did."""
        kept: list[WatchedArray | WatchedBuffer] = [*self.arrays, *self.buffers]
        return [item.label for item in kept if not item.is_same]

    def contents_of_arrays(self) -> list[tuple[str, Any, Any]]:
        """Label, array and a copy of it, for arrays that plain NumPy code could write."""
        return [(label, array, before) for array, before, label in self._copies]

    def leave_out_constants(self, constants: Iterable[Any]) -> None:
        """Note which arrays are looked at: not those that calls of operators take."""
        taken = [value for value in constants if isinstance(value, np.ndarray)]
        self.arrays = [
            kept
            for kept in self._copies
            if kept.copy.nbytes <= _MOST_COMPARED
            and not any(np.may_share_memory(kept.owner, value) for value in taken)
        ]
        self._copies = []

    def line_of(self, value: Any) -> str:
        """File and line where code first names a slot with this value, or an argument."""
        names = {slot.key for slot in self.slots if slot.value is value}
        names |= {label for found, label in self.iterators if found is value}
        codes = [fn.__code__ for fn in self._functions]
        lines = (line for code in codes for line in lines_of_names(code, names))
        return next(lines, "")

    def emptied(self) -> list[WatchedContainer]:
        """The containers from which something was taken."""
        return [contents for contents in self.contents if contents.has_fewer]

    def leave_out_written(self) -> None:
        """Do not look at containers that the function has changed itself."""
        self.contents = [contents for contents in self.contents if contents.is_same]
        self.buffers = [buffer for buffer in self.buffers if buffer.is_same]

    def tests(self, bind: Bind) -> Iterator[str]:
        """Conditions for all of them."""
        yield from (slot.test(bind) for slot in self.slots)
        yield from (contents.test(bind) for contents in self.contents)
        yield from (array.test(bind) for array in self.arrays)
        yield from (buffer.test(bind) for buffer in self.buffers)
        if len(self._functions) > 1:  # without the function itself
            yield codes_test(self._functions[1:], bind)


# Larger arrays are not compared: a copy of 16 MB takes 3 ms.
_MOST_BYTES = 1 << 24
# Those whose bytes each call compares: 16 kB take 0.5 us.
_MOST_COMPARED = 1 << 14
# Names of what takes attributes by texts.
_BY_TEXT = frozenset(("getattr", "hasattr", "vars", "__dict__"))
# Modules of the iterators that a function can only use up.
_ITERATORS = ("builtins", "itertools", "_collections", "_csv")
# Classes of values that hold nothing.
_LEAVES = frozenset((int, float, complex, bool, str, bytes, type(None), np.ufunc))
# Methods that run without being named.
_OPERATORS = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift"
_CALLED = frozenset(
    [
        f"__{name}__"
        for name in [
            "call",
            "init",
            "post_init",
            "enter",
            "exit",
            "get",
            "getattr",
            "getattribute",
            "getitem",
            "len",
            "iter",
            "next",
            "contains",
            "bool",
            "int",
            "float",
            "index",
            "array",
            "neg",
            "pos",
            "abs",
            "invert",
            "lt",
            "le",
            "gt",
            "ge",
            "eq",
            "ne",
        ]
    ]
    + [f"__{kind}{name}__" for name in _OPERATORS.split() for kind in ("", "r", "i")]
)


def _size_of_buffer(value: Any) -> int | None:
    """How many bytes a bytearray, array.array or other buffer has; None for others."""
    try:
        with memoryview(value) as view:
            return view.nbytes
    except (TypeError, ValueError, BufferError):
        return None


def _is_called(value: Any) -> bool:
    """Whether an attribute of a class is a method, or decides about itself."""
    return isinstance(value, FunctionType) or hasattr(type(value), "__get__")


@cache
def _names_in(
    code: CodeType,
) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Globals, attributes and modules that a code object names, with those inside it."""
    names: set[str] = set()
    attributes: set[str] = set()
    modules: set[str] = set()
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names.add(step.argval)
        elif step.opname in _ATTRIBUTES:
            attributes.add(step.argval)
        elif step.opname == "IMPORT_NAME":
            modules.add(step.argval)
    if not _BY_TEXT.isdisjoint(names):
        attributes |= {v for v in code.co_consts if isinstance(v, str)}
    for value in code.co_consts:
        if isinstance(value, CodeType):
            inner, others, imported = _names_in(value)
            names |= inner
            attributes |= others
            modules |= imported
    return frozenset(names), frozenset(attributes), frozenset(modules)


def lines_of_names(code: CodeType, names: Container[str]) -> Iterator[str]:
    """Files and lines where a code object, or one inside it, loads one of these names."""
    for step in dis.get_instructions(code):
        is_name = step.opname.startswith("LOAD_") and step.opname != "LOAD_CONST"
        if is_name and step.argval in names:
            line = step.positions.lineno if step.positions else None
            yield f"{code.co_filename}:{line or code.co_firstlineno}"
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from lines_of_names(value, names)


_ATTRIBUTES = frozenset(("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM"))


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
        return is_installed(value.__name__)
    return module is None or is_installed(module)
