"""Values that a function uses beside its arguments, and conditions that they are the same."""

from __future__ import annotations

import io
import math
import os
import sys
from abc import ABCMeta, get_cache_token
from collections import deque
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextvars import ContextVar
from dataclasses import is_dataclass
from enum import Enum
from functools import partial
from itertools import chain
from operator import attrgetter, is_
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    MappingProxyType,
    ModuleType,
)
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.array import dtype_of
from customop.arrays.kinds import device_of, is_array, is_fake, is_traced
from customop.compiling.outside_reads import (
    ANYTHING,
    ASKING,
    ITERATORS,
    OF_LOCKS,
    READING,
    draws_from_system,
    lines_of_names,
    may_read,
    name_of_answer,
    reads_settings_before,
    setting_asked_by,
)
from customop.core.code_names import BY_TEXT, names_in
from customop.core.contract import owner
from customop.core.reach import GONE, HeldName, Members, Walk, is_opaque, module_of
from customop.core.table import RuleTable
from customop.graph.passes import frozen_key
from customop.transforms.generators import is_generator

# ---- conditions in generated code: whether an argument is as it was captured ----


Bind = Callable[[str, Any], str]
_EXACT = (int, str, bytes)
_COMPARED = (*_EXACT, float, complex)
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
    """Return whether equal objects mean the same, and are never changed."""
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
    """Yield conditions for one argument; some need those before them.

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
    """Return a condition for a value that is not an array."""
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
    """Compares numbers to the last bit: -0.0 is not 0.0, and nan is nan."""

    def __init__(self, value: Any) -> None:
        self._key = frozen_key(value)

    def __call__(self, value: Any) -> bool:
        return frozen_key(value) == self._key


# ---- watched ----
# Values that a function reads beside its arguments, and checks that they are the same.


class WatchedName(HeldName):
    """A cell, or a name in a namespace, and the value that it must have."""

    __slots__ = ()

    def is_as(self, now: Any) -> bool:
        """Return whether this is the same object; numbers and texts may be new each time."""
        if now is self.value:
            return True
        cls = type(now)
        is_compared = cls is type(self.value) and cls in _COMPARED
        return is_compared and frozen_key(now) == frozen_key(self.value)

    def restore(self) -> None:
        """Put the value back."""
        if isinstance(self.owner, CellType):
            self.owner.cell_contents = self.value
        elif self.value is GONE:
            del self.owner[self.key]
        elif isinstance(self.owner, MutableMapping | Members):
            self.owner[self.key] = self.value

    def test(self, bind: Bind) -> str:
        """Return a condition for it to hold the same; it raises KeyError for a missing name."""
        if self.owner is os.environ:  # one look-up takes 0.6 us
            now = f"{bind('environ', self.owner)}.get({self.key!r})"
            return f"{now} == {None if self.value is GONE else self.value!r}"
        if isinstance(self.owner, CellType):
            place = f"{bind('cell', self.owner)}.cell_contents"
        elif isinstance(self.owner, Members) and not isinstance(
            self.owner.owner, ContextVar
        ):  # as its `get`, in half the time
            given = f"{bind('object', self.owner.owner)}, {self.key!r}"
            place = f"{bind('getattr', getattr)}({given}, {bind('gone', GONE)})"
        else:
            place = f"{bind('names', self.owner)}[{self.key!r}]"
        if is_array(self.value) and not isinstance(self.value, np.generic):
            return f"{place} is {bind('array', self.value)}"
        return number_test(place, self.value, bind)


class WatchedNames(NamedTuple):
    """A namespace of which all names are read, and which there were.

    Attributes
    ----------
    owner : dict
    names : list of str
    label : str
    """

    owner: Any
    names: list[str]
    label: str

    def test(self, bind: Bind) -> str:
        """Return a condition for it to have the same names."""
        return f"[*{bind('space', self.owner)}] == {bind('names_there', self.names)}"


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
        """Return a condition for it to hold the same objects."""
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
        """Return whether it holds the same objects."""
        now = items_of(self.owner)
        return len(now) == len(self.items) and all(map(is_, now, self.items))

    @property
    def has_fewer(self) -> bool:
        """Return whether something was taken out of it."""
        return len(items_of(self.owner)) < len(self.items)

    @property
    def is_replaced(self) -> bool:
        """Return whether other items, which no transform made, are where these were."""
        now, count = items_of(self.owner), len(self.items)
        if isinstance(self.owner, dict | MappingProxyType):  # the keys come first
            half = count // 2
            pairs = zip(self.items[:half], self.items[half:], strict=True)
            return any(_differ(v, self.owner.get(k, v)) for k, v in pairs)
        is_ordered = isinstance(self.owner, list | deque)
        return is_ordered and len(now) >= count and any(map(_differ, self.items, now))

    def restore(self) -> None:
        """Put back what was taken out or replaced."""
        if isinstance(self.owner, dict):
            half = len(self.items) // 2
            items: Any = zip(self.items[:half], self.items[half:], strict=True)
        else:
            items = self.items
        if isinstance(self.owner, MappingProxyType):
            return  # nobody but its maker can
        self.owner.clear()
        (
            self.owner.extend
            if isinstance(self.owner, list | deque)
            else self.owner.update
        )(items)


class WatchedStart(NamedTuple):
    """A container to which the function has added: others may add to it, too.

    Attributes
    ----------
    owner : list, dict, set or deque
    items : dict, list or frozenset
        What was in it.
    label : str
    """

    owner: Any
    items: Any
    label: str

    def test(self, bind: Bind) -> str:
        """Return a condition for it to begin with the same objects."""
        name, same = bind("container", self.owner), bind("is_", is_)
        if isinstance(self.items, frozenset):
            return f"{bind('contents', self.items)} <= {name}"
        if isinstance(self.items, dict):
            keys = bind("keys", [*self.items])
            values = bind("contents", [*self.items.values()])
            return f"all(map({same}, map({name}.get, {keys}), {values}))"
        kept = bind("contents", self.items)
        return f"len({name}) >= {len(self.items)} and all(map({same}, {name}, {kept}))"

    @property
    def is_same(self) -> bool:
        """Return whether it begins with the same objects."""
        items = self.items
        if isinstance(items, frozenset):
            return items <= self.owner  # type: ignore[no-any-return]  # sets
        if isinstance(items, dict):
            return all(
                self.owner.get(key, GONE) is value for key, value in items.items()
            )
        return len(self.owner) >= len(items) and all(map(is_, self.owner, items))


def start_of(contents: WatchedContainer | WatchedStart) -> WatchedStart | None:
    """Return what a container that has grown holds now; None if items were replaced."""
    owner, label = contents.owner, contents.label
    if any(map(is_traced, items_of(owner))):
        return None
    if isinstance(contents, WatchedStart):
        return None
    if isinstance(owner, set):
        return WatchedStart(owner, frozenset(owner), label)
    if isinstance(owner, dict):
        half = len(contents.items) // 2
        pairs = zip(contents.items[:half], contents.items[half:], strict=True)
        before = dict(pairs)
        kept = {k: v for k, v in owner.items() if before.get(k, v) is v}
        return WatchedStart(owner, kept, label)
    is_longer = all(map(is_, contents.items, owner))
    return WatchedStart(owner, [*owner], label) if is_longer else None


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
        """Return a condition for it to hold the same bytes."""
        name, kept = bind("buffer", self.owner), bind("bytes", self.content)
        if type(self.owner) is bytearray:
            return f"{name} == {kept}"
        return f"{bind('bytes_of', bytes)}({name}) == {kept}"

    @property
    def is_same(self) -> bool:
        """Return whether it holds the same bytes."""
        return bytes(self.owner) == self.content

    def restore(self) -> None:
        """Put the bytes back."""
        with memoryview(self.owner) as view, view.cast("B") as flat:
            flat[:] = self.content


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
        """Return a condition for it to hold the same."""
        name, dtype = bind("array", self.owner), bind("dtype", self.copy.dtype)
        form = f"{name}.shape == {self.copy.shape} and {name}.dtype == {dtype}"
        return f"{form} and {name}.tobytes() == {bind('bytes', self.copy.tobytes())}"

    @property
    def is_same(self) -> bool:
        """Return whether it holds the same."""
        return bool(self.owner.tobytes() == self.copy.tobytes())


def _differ(before: Any, now: Any) -> bool:
    """Return whether there is another object, which is not a value of a transform."""
    if now is before or is_traced(now):
        return False
    return type(now) is not type(before) or is_array(now) or bool(now != before)


def items_of(owner: Any) -> list[Any]:
    """Return the items of a container; of a mapping the keys, then the values."""
    if isinstance(owner, dict | MappingProxyType):
        return [*owner, *owner.values()]
    return [*owner]


def _containers_test(watched: Sequence[WatchedContainer], bind: Bind) -> str:
    """Return a condition for containers to hold the same objects, all in one test."""
    if len(watched) == 1:
        return watched[0].test(bind)
    places: list[Any] = []
    for contents in watched:
        places.append(contents.owner)
        if isinstance(contents.owner, dict):
            places.append(contents.owner.values())  # it shows later changes
    name = bind("containers", places)
    lengths = bind("lengths", [*map(len, places)])
    items = [item for contents in watched for item in contents.items]
    together = f"{bind('from_each', chain.from_iterable)}({name})"
    return f"[*map(len, {name})] == {lengths} and {_all_are(together, items, bind)}"


def _all_are(place: str, values: list[Any], bind: Bind) -> str:
    kept, same = bind("contents", values), bind("is_", is_)
    return f"all(map({same}, {place}, {kept}))"


def _absence_test(owner: Any, names: list[str], bind: Bind) -> str:
    """Return a condition for names to be missing."""
    place = bind("names", owner)
    if len(names) > _FEW:
        return f"{bind('missing', frozenset(names))}.isdisjoint({place}.keys())"
    return " and ".join(f"{name!r} not in {place}" for name in names)


# So many tests of one name each take no longer than one of all names.
_FEW = 3
_PLAIN = (list, dict, set, deque)


def codes_tests(functions: Iterable[FunctionType], bind: Bind) -> Iterator[str]:
    """Yield conditions for functions to have the same code and defaults."""
    for fn in functions:
        name = bind("function", fn)
        yield f"{name}.__code__ is {bind('code', fn.__code__)}"
        if fn.__defaults__:
            yield f"{name}.__defaults__ is {bind('defaults', fn.__defaults__)}"
        if fn.__kwdefaults__:  # a container of its own
            yield f"{name}.__kwdefaults__ is {bind('defaults', fn.__kwdefaults__)}"


# ---- surroundings ----
# Values that a function uses and does not take as arguments, and whether they changed.
#
# Cells, globals, attributes, lists and dicts that the function can reach are slots.
# What they hold when the function is captured is a constant of its graph, so each call
# looks whether they hold it still.


class Surroundings(Walk):
    """The values that a function can reach.

    Parameters
    ----------
    items : iterable of pairs
        The function, and what else it is given that may hold functions, with labels.

    Attributes
    ----------
    slots : list of WatchedName
    missing : list of WatchedName
        Names that are not there, where Python looks first.
    contents : list of WatchedContainer
    arrays : list of WatchedArray
        Those that no call of an operator takes, so that NumPy alone may have read them.
    buffers : list of WatchedBuffer
    hidden : list of pairs
        Values that cannot be watched, and their labels: iterators of Python, which the
        function would use up, arrays of other libraries, and what may read any name.
    objects : list
        Those whose attributes are read, so that their classes count.
    classes : dict
        Classes whose attributes are read -> their namespaces, and how many names are
        there: names that are added may be found first, or run without being named.
    spaces : list of WatchedNames
        Namespaces of which all names are read.
    may_open_files, may_ask_files : bool
        Whether code names what opens files, or asks whether they exist.
    is_plain : bool
        False if a value of a running transform, or a fake array, is among them.
    """

    def __init__(self, items: Iterable[tuple[Any, str]]) -> None:
        super().__init__()
        self.slots: list[WatchedName] = []
        self.missing: list[WatchedName] = []
        self.contents: list[WatchedContainer | WatchedStart] = []
        self.arrays: list[WatchedArray] = []
        self.buffers: list[WatchedBuffer] = []
        self.hidden: list[tuple[Any, str]] = []
        self.objects: dict[int, Any] = {}
        self.classes: dict[type, tuple[Mapping[str, Any], int]] = {}
        self.spaces: dict[int, WatchedNames] = {}
        self.asks_classes: bool = False
        self.may_open_files: bool = False
        self.may_ask_files: bool = False
        self._libraries: dict[int, ModuleType] = {}
        self._files: list[tuple[Any, str]] = []
        self.is_plain: bool = True
        # Arrays as they were before the function ran.
        self._copies: list[WatchedArray] = []
        # Identity of the array that owns the memory of an array -> a label.
        self._owners: dict[int, str] = {}
        # The function itself comes first.
        self._items: list[tuple[Any, str]] = [*items]
        self.walk(self._items)
        for key in self.names & {"flags", "strides"}:
            self._watch_layouts(key)
        self._watch_libraries()
        self._watch_uses()

    def enters(self, value: Any, label: str) -> bool:
        """Watch an array or bytes; return whether to look at what the value holds."""
        if is_array(value) or is_generator(value):
            is_running = is_traced(value) and value.interpreter.alive
            self.is_plain = self.is_plain and not is_running and not is_fake(value)
            self._watch_array(value, label)
            if getattr(value, "__dict__", None):  # of a subclass
                super().look_at_object(value, label)
            return False
        if is_opaque(value):
            self.hidden.append((value, label))
            return False
        self._watch_setting(value, label)
        if isinstance(value, ModuleType):
            is_foreign = self.is_foreign(value.__name__)
            if is_foreign:
                self._libraries[id(value)] = value
            return not is_foreign
        if isinstance(value, io.IOBase):
            self._files.append((value, label))
            return False
        if isinstance(value, type):
            return not self.is_foreign_class(value)
        return not isinstance(value, RuleTable)

    def _watch_array(self, value: Any, label: str) -> None:
        """Keep what an array holds, and whose memory it has."""
        if isinstance(value, _IN_MEMORY) and value.nbytes <= _MOST_BYTES:
            self._copies.append(WatchedArray(value, value.copy(), label))
        if isinstance(value, np.ndarray):
            self._owners[id(owner(value))] = label
            if value.dtype.hasobject:
                self.go_on(value.ravel().tolist(), label)

    def _watch_layouts(self, key: str) -> None:
        """Watch how arrays lie in memory, or their flags."""
        for value in [*self.seen.values()]:
            if isinstance(value, np.ndarray):
                ask = partial(getattr, value, key)
                self.add_names([name_of_answer(ask, f"{key} of an array")])

    def _watch_libraries(self) -> None:
        """Watch what code asks libraries for: settings, lists, and what files hold."""
        for module in self._libraries.values():
            held = vars(module)
            for key in self.names & held.keys():
                value, label = held[key], f"{module.__name__}.{key}"
                if type(value) in (list, dict) and value is not sys.modules:
                    self.holds(value, label)
                else:
                    self._watch_setting(value, label)

    def _watch_uses(self) -> None:
        """Watch what code does with files and locks, and refuse what it does with settings."""
        codes = [names_in(fn.__code__) for fn in self.functions]
        used = self.names.union(*(code.globals for code in codes))
        called = {v.__name__ for v in self.seen.values() if isinstance(v, _FUNCTIONS)}
        self.may_open_files = not READING.isdisjoint(used | called)
        self.may_ask_files = not ASKING.isdisjoint(used | called)
        if "seterr" in used:
            read = [f for f in self.functions if reads_settings_before(f.__code__)]
            self.hidden += [(np.seterr, "np.seterr()") for _ in read[:1]]
        for key in used & OF_LOCKS.keys():
            self.add_names(
                name_of_answer(getattr(value, key), f"{key}()")
                for value in [*self.seen.values()]
                if module_of(type(value)) in OF_LOCKS[key] and hasattr(value, key)
            )
        for file, label in self._files:
            if not may_read(file, used):
                continue
            if isinstance(file, io.StringIO | io.BytesIO):
                ask = partial(_text_and_place, file)
                self.add_names([name_of_answer(ask, label)])
            else:
                self.hidden.append((file, label))

    def _watch_setting(self, value: Any, label: str) -> None:
        """Watch a setting of Python or NumPy that a function asks for."""
        if value is np.geterr or value is np.geterrcall or draws_from_system(value):
            self.hidden.append((value, label))
        elif (ask := setting_asked_by(value)) is not None:
            self.add_names([name_of_answer(ask, label or "a setting")])

    def look_at_object(self, value: Any, label: str) -> None:
        """Watch bytes, or the attributes of an object."""
        size = _size_of_buffer(value)
        is_iterator = isinstance(value, Iterator) or hasattr(type(value), "get_nowait")
        is_used_up = is_iterator and module_of(type(value)) in ITERATORS
        if is_used_up:
            self.hidden.append((value, label))
        elif size is None:
            super().look_at_object(value, label)
        elif size <= _MOST_COMPARED:
            self.buffers.append(WatchedBuffer(value, bytes(value), label))

    def reads(self, slot: HeldName) -> None:
        """Watch a name."""
        self.slots.append(WatchedName(*slot))

    def lacks(self, slot: HeldName, found: Any) -> None:
        """Watch for a name that is not there yet."""
        self.asks_classes |= found is isinstance or found is issubclass
        is_own = isinstance(slot.owner, dict)
        is_default = is_own and found is not GONE and not _is_called(found)
        (self.slots if is_default else self.missing).append(WatchedName(*slot))

    def has_enough(self, objects: int) -> bool:
        """Return whether code may read any attribute of too many objects to watch them."""
        if not self.computes_names or objects <= _MOST_OBJECTS:
            return False
        used = {name for fn in self.functions for name in fn.__code__.co_names}
        known = {"getattr"} & used or used & BY_TEXT
        self.reads_anything(min(known, default="getattr"))
        return True

    def reads_anything(self, name: str) -> None:
        """Note what cannot be watched."""
        self.hidden.append((ANYTHING, name))

    def holds_object(self, value: Any) -> None:
        """Watch the class of an object."""
        self.objects[id(value)] = value

    def holds_class(self, cls: type, names: Mapping[str, Any]) -> None:
        """Watch for names that are added to a class."""
        self.classes.setdefault(cls, (names, len(names)))

    def holds_names(self, names: Any, owner: Any, label: str) -> None:
        """Watch for other names in a namespace."""
        if not isinstance(owner, type):  # those are watched for further names
            self.spaces.setdefault(id(names), WatchedNames(names, [*names], label))

    def holds(self, container: Any, label: str) -> None:
        """Watch a container that can change."""
        if not isinstance(container, tuple | frozenset):
            self.contents.append(
                WatchedContainer(container, items_of(container), label)
            )

    def add_names(self, names: Iterable[HeldName]) -> None:
        """Watch other names, too."""
        for name in names:
            if not any(name.owner is s.owner and name.key == s.key for s in self.slots):
                self.slots.append(WatchedName(*name))

    def differing(self) -> list[tuple[WatchedName, Any]]:
        """List the names that hold something else than they did, with what they hold."""
        pairs = [(slot, slot.now()) for slot in self.missing]
        return self.changed() + [pair for pair in pairs if pair[1] is not GONE]

    def changed(self) -> list[tuple[WatchedName, Any]]:
        """List the slots that hold something else than they did, with what they hold now."""
        pairs = [(slot, slot.now()) for slot in self.slots]
        return [(slot, now) for slot, now in pairs if not slot.is_as(now)]

    def has_memory_of(self, array: Any) -> bool:
        """Return whether an array lies in the memory of one that the function can reach."""
        return any(
            isinstance(value, np.ndarray) and np.may_share_memory(array, value)
            for value in self.seen.values()
        )

    def written(self) -> list[str]:
        """Labels of arrays and bytes that hold something else than they did."""
        kept: list[WatchedArray | WatchedBuffer] = [*self.arrays, *self.buffers]
        return [item.label for item in kept if not item.is_same]

    @property
    def has_arrays(self) -> bool:
        """Return whether there are arrays that plain NumPy code could write."""
        return bool(self._owners)

    def label_of(self, array: np.ndarray) -> str | None:
        """Return the label of an array from outside that has memory of an array, or None."""
        return self._owners.get(id(owner(array)))

    def contents_of_arrays(self) -> list[tuple[str, Any, Any]]:
        """List label, array and copy, for arrays that plain NumPy code could write."""
        return [(label, array, before) for array, before, label in self._copies]

    def leave_out_constants(self, constants: Iterable[Any]) -> None:
        """Watch only the arrays that no call of an operator takes."""
        taken = [value for value in constants if isinstance(value, np.ndarray)]
        self.arrays = [
            kept
            for kept in self._copies
            if kept.copy.nbytes <= _MOST_COMPARED
            and not any(np.may_share_memory(kept.owner, value) for value in taken)
        ]
        self._copies = []

    def line_of(self, value: Any) -> str:
        """Return file and line where code first names a value, or an argument."""
        names = {slot.key for slot in self.slots if slot.value is value}
        names |= {label for found, label in self.hidden if found is value}
        codes = [fn.__code__ for fn in self.functions]
        lines = (line for code in codes for line in lines_of_names(code, names))
        return next(lines, "")

    def emptied(self) -> list[WatchedContainer]:
        """List the containers from which something was taken, or in which it was replaced."""
        contents = [
            kept for kept in self.contents if isinstance(kept, WatchedContainer)
        ]
        return [kept for kept in contents if kept.has_fewer or kept.is_replaced]

    def note_written(self) -> None:
        """Watch only the start of a container to which the function has added itself."""
        kept: list[WatchedContainer | WatchedStart] = []
        for contents in self.contents:
            if contents.is_same:
                kept.append(contents)
            elif (start := start_of(contents)) is not None:
                kept.append(start)
        self.contents = kept

    def tests(self, bind: Bind) -> Iterator[str]:
        """Yield the conditions for all of them."""
        yield from self._class_tests(bind)
        empty = [space.owner for space in self.spaces.values() if not space.names]
        if empty:
            yield f"not any({bind('empty', empty)})"
        yield from (space.test(bind) for space in self.spaces.values() if space.names)
        gone: dict[int, tuple[Any, list[str]]] = {}
        for slot in (*self.slots, *self.missing):
            if isinstance(slot.owner, MappingProxyType) and slot.value is GONE:
                continue  # the number of names of the class counts
            if slot.value is GONE and slot.owner is not os.environ:
                gone.setdefault(id(slot.owner), (slot.owner, []))[1].append(slot.key)
            else:
                yield slot.test(bind)
        yield from (_absence_test(*pair, bind) for pair in gone.values())
        plain: list[WatchedContainer] = []
        for contents in self.contents:
            if (
                isinstance(contents, WatchedContainer)
                and type(contents.owner) in _PLAIN
            ):
                plain.append(contents)
            else:
                yield contents.test(bind)
        if plain:
            yield _containers_test(plain, bind)
        yield from (array.test(bind) for array in self.arrays)
        yield from (buffer.test(bind) for buffer in self.buffers)
        others = [fn for fn in self.functions if fn is not self._items[0][0]]
        yield from codes_tests(others, bind)

    def _class_tests(self, bind: Bind) -> Iterator[str]:
        """Yield conditions for objects to have their classes, and these their bases."""
        if self.objects:
            objects = [*self.objects.values()]
            kinds = bind("kinds", [*map(type, objects)])
            yield f"[*map(type, {bind('objects', objects)})] == {kinds}"
        if self.classes:
            spaces, counts = map(list, zip(*self.classes.values(), strict=True))
            orders = [*map(_ORDER, self.classes)]
            yield f"[*map(len, {bind('spaces', spaces)})] == {bind('counts', counts)}"
            yield (
                f"[*map({bind('order_of', _ORDER)}, {bind('classes', [*self.classes])})]"
                f" == {bind('orders', orders)}"
            )
        if self.asks_classes and any(isinstance(c, ABCMeta) for c in self.classes):
            token = bind("token", get_cache_token)
            yield f"{token}() == {get_cache_token()}"


def _text_and_place(file: io.StringIO | io.BytesIO) -> Any:
    return (file.closed or file.getvalue()), (file.closed or file.tell())


# The bases of a class, in order; assigning `__bases__` changes it.
_ORDER = attrgetter("__mro__")
_FUNCTIONS = (FunctionType, BuiltinFunctionType)
# Arrays, and scalars that are written in place.
_IN_MEMORY = (np.ndarray, np.void)
# Larger arrays are not compared: a copy of 16 MB takes 3 ms.
_MOST_BYTES = 1 << 24
# Objects any of whose attributes code may read: to watch more takes seconds.
_MOST_OBJECTS = 5000
# Those whose bytes each call compares: 16 kB take 0.5 us.
_MOST_COMPARED = 1 << 14


def _size_of_buffer(value: Any) -> int | None:
    """Return the number of bytes of a bytearray or other buffer; None for others."""
    try:
        with memoryview(value) as view:
            return view.nbytes
    except (TypeError, ValueError, BufferError):
        return None


def _is_called(value: Any) -> bool:
    """Return whether an attribute of a class is a method or another descriptor."""
    return isinstance(value, FunctionType) or hasattr(type(value), "__get__")
