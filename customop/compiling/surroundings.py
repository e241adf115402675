"""Values that a function uses beside its arguments, and conditions that they are the same."""

from __future__ import annotations

import dis
import math
import os
import sys
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import (
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    MutableMapping,
    Sequence,
)
from contextvars import ContextVar
from dataclasses import is_dataclass
from enum import Enum
from functools import cache, partial
from operator import attrgetter, is_
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple
from weakref import ref as weakref

import numpy as np

from customop.arrays.array import dtype_of
from customop.arrays.kinds import device_of, is_array, is_fake, is_traced
from customop.core.table import RuleTable
from customop.graph.passes import frozen_key
from customop.transforms.generators import is_generator

# ---- conditions in generated code: whether an argument is as it was captured ----


Bind = Callable[[str, Any], str]
_EXACT = (int, str, bytes)
# NumPy's scalars of these kinds have a class for each dtype.
_ONE_DTYPE = frozenset("biufc?")


def family_of(leaf: Any) -> Any:
    """Return a key that is equal for leaves that differ only in the lengths of axes."""
    if is_array(leaf):
        cls = type(leaf)
        return (cls, dtype_of(leaf), len(leaf.shape), device_of(leaf))
    if is_generator(leaf):
        return type(leaf)
    return _key(leaf)


def kind_of_leaf(leaf: Any) -> Any:
    """Return the same key, or the class of an int or float: its value does not count."""
    return type(leaf) if type(leaf) in (int, float) else family_of(leaf)


def _key(value: Any) -> Any:
    cls = type(value)
    if cls in (int, float, complex, bool, str, bytes) or _has_values(value):
        return frozen_key(value)
    return (cls, id(value))


def _has_values(value: Any) -> bool:
    """Whether objects that are equal mean the same, and are never changed."""
    if isinstance(value, np.dtype | Enum | slice | type):
        return not isinstance(value, slice)
    params = getattr(type(value), "__dataclass_params__", None)
    return is_dataclass(value) and params is not None and params.frozen


def leaf_tests(
    name: str,
    leaf: Any,
    bind: Bind,
    free: Collection[int] = (),
    *,
    is_free: bool = False,
) -> Iterator[str]:
    """Conditions for one argument; some hold only where those before them do.

    Parameters
    ----------
    name : str
        The variable that has the argument.
    leaf : object
        What it was when the function was captured.
    bind : callable
        Gives the global name of an object.
    free : collection of int
        Axes that may have another length.
    is_free : bool
        Whether an int or float may be another one.
    """
    if is_free:
        yield f"type({name}) is {type(leaf).__name__}"
    elif is_array(leaf):
        yield from _array_tests(name, leaf, bind, free)
    elif is_generator(leaf):
        yield f"type({name}) is {bind(type(leaf).__name__, type(leaf))}"
    else:
        yield number_test(name, leaf, bind)


def _array_tests(
    name: str, leaf: Any, bind: Bind, free: Collection[int]
) -> Iterator[str]:
    cls, dtype = type(leaf), dtype_of(leaf)
    yield f"type({name}) is {bind(cls.__name__, cls)}"
    if issubclass(cls, np.generic):
        if dtype.kind not in _ONE_DTYPE:
            yield f"{name}.dtype == {bind('dtype', dtype)}"
        return
    if cls is np.ndarray and dtype.isbuiltin == 1 and dtype.isnative:
        yield f"{name}.dtype is {bind('dtype', dtype)}"
    else:
        yield f"{name}.dtype == {bind('dtype', dtype)}"
    yield from _shape_tests(name, tuple(leaf.shape), free)
    if not isinstance(leaf, np.ndarray):
        yield f"{bind('device_of', device_of)}({name}) == {device_of(leaf)!r}"


def _shape_tests(
    name: str, shape: Sequence[int], free: Collection[int]
) -> Iterator[str]:
    if not free:
        yield f"{name}.shape == {shape}"
        return
    yield f"len({name}.shape) == {len(shape)}"
    for axis, length in enumerate(shape):
        if axis not in free:
            yield f"{name}.shape[{axis}] == {length}"


def number_test(name: str, value: Any, bind: Bind) -> str:
    """A condition for a value that is not an array."""
    cls = type(value)
    if value is None or cls is bool:
        return f"{name} is {value}"
    if cls in _EXACT:
        return f"type({name}) is {cls.__name__} and {name} == {bind('value', value)}"
    if cls is float and value == value and value != 0.0:  # noqa: PLR0124  # nan
        text = repr(value) if math.isfinite(value) else bind("value", value)
        return f"type({name}) is float and {name} == {text}"
    kept = bind("value", value)
    if cls in (float, complex) or isinstance(value, np.generic):
        same = bind("same", _Same(value))
        return f"({name} is {kept} or {same}({name}))"
    if _has_values(value):
        owner = bind(cls.__name__, cls)
        return f"({name} is {kept} or type({name}) is {owner} and {name} == {kept})"
    return f"{name} is {kept}"


class _Same:
    """Whether a number is the same to the last bit: -0.0 is not 0.0, and nan is nan."""

    def __init__(self, value: Any) -> None:
        self._key = frozen_key(value)

    def __call__(self, value: Any) -> bool:
        return frozen_key(value) == self._key


# ---- watched ----
# Values that a function reads beside its arguments, and checks that they are the same.


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


# ---- surroundings ----
# Values that a function uses and does not take as arguments, and whether they changed.
#
# Cells, globals, attributes, lists and dicts that the function can reach are slots.
# What they hold when the function is captured is a constant of its graph, so each call
# looks whether they hold it still.


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
