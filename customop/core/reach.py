"""Walks from a function to all that its code can use without getting it as an argument."""

from __future__ import annotations

import builtins
import gc
import sys
from collections import ChainMap, UserDict, UserList, UserString, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import FrozenInstanceError
from enum import Enum, EnumType
from functools import cache, cached_property, cmp_to_key, partial, partialmethod
from operator import attrgetter, methodcaller
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, ClassVar, NamedTuple
from weakref import ProxyTypes, WeakKeyDictionary, WeakSet, WeakValueDictionary
from weakref import ref as weakref

import numpy as np

from customop.core.code_names import (
    ANY_BY_TEXT,
    BY_TEXT,
    CALLED,
    SELDOM,
    UNNOTED,
    CodeNames,
    all_names_in,
    is_generated,
    names_in,
)
from customop.core.table import RuleTable
from customop.errors import GENERATED, is_ours

CONTAINERS = (list, dict, set, tuple, frozenset, deque, MappingProxyType)

# ---- the walk ----


class Walk:
    """A walk from some values to all that code can reach from them.

    It goes through functions (closure, defaults, the globals and modules that their code
    names), methods, partials, callable objects, what was wrapped, and containers. Modules,
    classes and objects are looked at by the attributes that any of the code names.

    A user of the walk overrides the methods that it calls: `enters` for each value,
    `reads` for each name, and `holds` for each container.

    Attributes
    ----------
    seen : dict
        All values by identity; it keeps them alive, so that no other value gets theirs.
    functions : list of FunctionType
        Those whose code was looked at, in order.
    names : set of str
        Attributes that their code names.
    asked : set of str
        Those of them that may be missing without an error.
    takes_any : bool
        Whether code names attributes of objects by texts.
    computes_names : bool
        Whether it computes such texts, so that they may be any.
    catches : bool
        Whether code catches errors, so that any attribute may be missing.
    special : set of str
        Special methods that the code calls, of those that code seldom calls.
    """

    # Whether all attributes of an object are looked at, also those that no code names.
    takes_all = False

    def __init__(self) -> None:
        self.seen: dict[int, Any] = {}
        self.functions: list[FunctionType] = []
        self.names: set[str] = set()
        self.asked: set[str] = set()
        self.takes_any: bool = self.takes_all
        self.computes_names: bool = False
        self.catches: bool = False
        self.special: set[str] = set()
        self._objects: list[tuple[Any, str]] = []
        # Objects that were looked at, and how many names were known then.
        self._looked: dict[int, tuple[int, ...]] = {}
        self._known: set[tuple[int, str]] = set()
        self._members: dict[type, Mapping[str, Any]] = {}
        self._waiting: list[tuple[Any, str]] = []
        self._step_of: dict[type, Callable[[Any, Any, str], None]] = {**self._steps}

    def walk(self, items: Iterable[tuple[Any, str]]) -> None:
        """Walk from values with labels, such as ``model.layers``."""
        self._waiting += items
        while self._waiting:
            while self._waiting:
                value, label = self._waiting.pop()
                if type(value) in _LEAVES:
                    if type(value) in ProxyTypes:
                        self._proxy(value, label)
                elif id(value) not in self.seen:
                    self.seen[id(value)] = value
                    if self.enters(value, label):
                        self._enter(value, label)
            if self.has_enough(len(self._objects)):
                self._waiting.clear()
                return
            # An object is looked at by the attributes that any of the code names.
            now = (
                *(len(self.names), len(self.asked), len(self.special)),
                *(self.takes_any, self.computes_names, self.catches),
            )
            for item, label in self._objects:
                if self._looked.get(id(item)) != now:
                    self._looked[id(item)] = now
                    self._look_inside(item, label)

    # ---- what a user of the walk overrides ----

    def enters(self, value: Any, label: str) -> bool:
        """Take note of a value; return whether to look at what it holds."""
        return not isinstance(value, RuleTable)

    def has_enough(self, objects: int) -> bool:
        """Return whether to end the walk, which has met so many objects."""
        return False

    def reads(self, slot: HeldName) -> None:
        """Take note of a cell, global or attribute that code may read."""

    def lacks(self, slot: HeldName, found: Any) -> None:
        """Take note of a name that is missing where Python looks first.

        `found` is what code finds elsewhere in its place, or GONE.
        """

    def holds(self, container: Any, label: str) -> None:
        """Take note of a container whose items are reached."""

    def holds_names(self, names: Any, owner: Any, label: str) -> None:
        """Take note of a namespace of which code may read all names."""

    def holds_object(self, value: Any) -> None:
        """Take note of an object whose attributes are looked at."""

    def holds_class(self, cls: type, names: Mapping[str, Any]) -> None:
        """Take note of a class whose attributes are looked at."""

    def reads_anything(self, name: str) -> None:
        """Take note of a name by which code may read whatever there is."""

    def holds_keywords(self, keywords: dict[str, Any], label: str) -> None:
        """Take note of the keyword defaults of a function, or those of a partial."""
        self.holds(keywords, label)

    def is_foreign(self, module: str | None) -> bool:
        """Return whether the code of a module is not looked at."""
        return module is not None and is_installed(module)

    def is_foreign_class(self, cls: type) -> bool:
        """Return whether a class is not looked at."""
        module = module_of(cls)
        if module == "builtins" and cls.__flags__ & _MADE_BY_CODE:
            return False  # its module has no name
        return self.is_foreign(module)

    def names_in(self, code: CodeType) -> CodeNames:
        """Return the names in a code object."""
        return names_in(code)

    # ---- values ----

    def _enter(self, value: Any, label: str) -> None:
        step = self._step_of.get(type(value))
        if step is None:
            step = self._step_of_base(value)
        step(self, value, label)

    def _step_of_base(self, value: Any) -> Callable[[Any, Any, str], None]:
        """Return the step for a class that has none, and keep it for other instances.

        Instances of a class that defines `__class__` may pass for those of any class.
        """
        found = [step for base, step in self._steps.items() if isinstance(value, base)]
        step = found[0] if found else type(self).look_at_object
        cls: Any = type(value)
        if cls.__getattribute__ is object.__getattribute__ and not any(
            "__class__" in vars(base) for base in cls.__mro__[:-1]
        ):
            self._step_of[cls] = step
        return step

    def _container(self, value: Any, label: str) -> None:
        self.holds(value, label)
        if value is sys.modules:
            return  # all that the process has; code names the modules that it uses
        if isinstance(value, defaultdict):
            self._members_of(value, ("default_factory",), label)
        if type(value) not in CONTAINERS:
            self._objects.append((value, label))
        is_mapping = isinstance(value, dict | MappingProxyType)
        self.go_on([*value.values()] if is_mapping else [*value], label)

    def _namespace(self, value: Any, label: str) -> None:
        self._objects.append((value, label))
        if isinstance(value, EnumType):
            tables = ("_member_names_", "_member_map_", "_value2member_map_")
            self.go_on([vars(value)[name] for name in tables if name in vars(value)])

    def _partial(self, value: partial[Any], label: str) -> None:
        self._members_of(value, ("func", "args"), label)
        self._keywords(value.keywords, label)
        if value.__dict__:
            self._objects.append((value, label))

    def _builtin(self, value: Any, label: str) -> None:
        """Look at what a builtin method is bound to, such as ``table.get``."""
        self._called(value)
        self.go_on([value.__self__], label)

    def _proxy(self, value: Any, label: str) -> None:
        with suppress(ReferenceError):  # of an object that is gone
            self.go_on([value.__init__.__self__], label)

    def _called(self, fn: Any) -> None:
        """Note a function of Python that takes attributes by texts, under any name."""
        is_known = fn.__name__ in BY_TEXT and is_installed(fn.__module__ or "")
        if is_known and not self.takes_all:
            self.takes_any = self.computes_names = True

    def _variable(self, value: ContextVar[Any], _: str) -> None:
        members = Members(value)
        self._slot(members, value.name, members[value.name], f"'{value.name}'")

    def _getter(self, value: attrgetter[Any] | methodcaller, _: str) -> None:
        reduced: Any = value.__reduce__()
        made_by, texts = reduced[:2]
        if isinstance(value, methodcaller):  # with keywords it is made by a partial
            texts = (*getattr(made_by, "args", ()), *texts)[:1]
        found = {part for text in texts for part in text.split(".")}
        self.names |= found
        self.asked |= found

    def look_at_object(self, value: Any, label: str) -> None:
        """Look at the attributes of an object, and at what it wraps."""
        self._objects.append((value, label))
        own = getattr(value, "__dict__", None)
        if isinstance(own, dict) and "__wrapped__" in own:
            self._waiting.append((own["__wrapped__"], ""))
        if isinstance(value, Enum) and isinstance(own, dict):
            self._slot(own, "_value_", own["_value_"], str(value))
        if isinstance(value, BaseException):
            self._members_of(value, ("args",), label)
        if module_of(type(value)).startswith(("numpy.polynomial.", "configparser")):
            self.go_on([own])

    def go_on(self, values: Iterable[Any], label: str = "") -> None:
        """Look at further values."""
        self._waiting += [(value, label) for value in values]

    def _function(self, fn: FunctionType, _: str) -> None:
        if _only_refuses(fn):
            return
        is_foreign = self._is_foreign_function(fn)
        if is_foreign:
            self._called(fn)
        # A wrapper as that of `grad` has the module of what it wraps, and may have
        # attributes of the user; its code, defaults and cells stay as they are.
        is_ours = _is_wrapper_of_ours(fn)
        is_fixed = is_foreign or is_ours
        self.go_on(fn.__defaults__ or ())
        keywords = fn.__kwdefaults__ or {}
        if is_ours:
            self.go_on(keywords.values())
        else:
            self._keywords(keywords, fn.__name__)
        self.go_on(vars(fn).values())
        names = fn.__code__.co_freevars
        for name, cell in zip(names, fn.__closure__ or (), strict=True):
            if is_fixed:
                self._waiting.append((content(cell), name))
            else:
                label = f"'{name}' of the closure of {fn.__name__}"
                self._slot(cell, name, content(cell), label)
        if not (is_foreign or self.takes_all):  # else all its attributes are looked at
            self._objects.append((fn, fn.__name__))
        if not is_fixed:
            self.functions.append(fn)
            self._code(fn.__code__, fn.__globals__)

    def _is_foreign_function(self, fn: FunctionType) -> bool:
        module: str | None = fn.__module__
        if module is None:  # also of generated code
            return fn.__code__.co_filename.startswith(GENERATED)
        return self.is_foreign(module)

    def _code(self, code: CodeType, known: dict[str, Any]) -> None:
        """Look at the globals that code names; note other names for objects."""
        found = self.names_in(code)
        self.names |= found.attributes
        self.asked |= found.asked
        self.takes_any |= found.takes_any
        self.computes_names |= found.computes_names
        self.catches |= found.catches
        self.special |= found.special
        for name in found.modules & sys.modules.keys():
            self._slot(sys.modules, name, sys.modules[name], f"the module '{name}'")
        for name in found.globals:
            if name in known:
                self._slot(known, name, known[name], f"the global '{name}'")
            else:
                built_in = getattr(builtins, name, GONE)
                self._missing(known, name, f"the global '{name}'", built_in)
                if not isinstance(built_in, BuiltinFunctionType | type):
                    label = f"the builtin '{name}'"
                    self._slot(vars(builtins), name, built_in, label)
        for name in sorted(found.unbounded):
            if name not in known:
                self.reads_anything(name)

    def _keywords(self, given: dict[str, Any], label: str) -> None:
        if given:
            self.holds_keywords(given, label)
            self.go_on(given.values(), label)

    def _slot(self, owner: Any, key: str, value: Any, label: str) -> None:
        """Take note of a name, and look at what it holds."""
        if value is GONE:
            self._missing(owner, key, label, GONE)
        elif self._is_new(owner, key):
            self.reads(HeldName(owner, key, value, label))
            self._waiting.append((value, label))

    def _members_of(self, value: Any, keys: Iterable[str], label: str) -> None:
        """Take note of attributes that no namespace holds, as they are kept in C."""
        for key in keys:
            if self._is_new(value, key):
                members = Members(value)
                text = f"{label or type(value).__name__}.{key}"
                self._slot(members, key, members[key], text)

    def _missing(self, owner: Any, key: str, label: str, found: Any) -> None:
        if not isinstance(owner, CellType) and self._is_new(owner, key):
            self.lacks(HeldName(owner, key, GONE, label), found)

    def _is_new(self, owner: Any, key: str) -> bool:
        is_known = (id(owner), key) in self._known
        self._known.add((id(owner), key))
        return not is_known

    # ---- attributes ----

    def _look_inside(self, value: Any, label: str) -> None:
        """Look at the attributes of an object that code names, where it has them from."""
        label = label or type(value).__name__
        is_plain = not isinstance(value, type | ModuleType | FunctionType)
        is_of_user = is_plain and not self.is_foreign_class(type(value))
        self._look_at_itself(value, is_of_user)
        found: set[str] = set()
        before: list[tuple[Any, Any]] = []
        for names, owner in self._namespaces(value):
            is_foreign = owner is not value and self.is_foreign_class(owner)
            is_any = self.takes_any and is_plain and owner is value
            is_whole = not is_foreign and (is_any or self.computes_names)
            if is_whole:
                here = {*names} - _UNREAD
                self.holds_names(names, owner, label)
            else:
                here = {key for key in self.names if key in names}
            if is_foreign:
                if is_plain:
                    kept = [key for key in here - found if _is_kept(value, names, key)]
                    self._members_of(value, kept, label)
                for key in here - found if is_of_user else ():
                    self._shadows(before, key, names[key], label)
                found |= here
                continue
            if isinstance(owner, type):
                self.holds_class(owner, names)
                here |= self._called_of(names)
            elif isinstance(owner, ModuleType):
                here |= {"__getattr__"} & names.keys()
            for key in here:  # also what `super` may call
                self._attribute(value, names, owner, key, names.get(key, GONE), label)
            for key in here - found if before else ():
                self._shadows(before, key, names.get(key, GONE), label)
            found |= here
            # Any new name of a namespace that is read whole is seen already.
            before += [(names, owner)] * (not is_whole or isinstance(owner, type))
        missing = self.names if "__getattr__" in found or self.catches else self.asked
        self._look_for_missing(missing - found, before, label)

    def _look_for_missing(
        self, missing: set[str], before: list[tuple[Any, Any]], label: str
    ) -> None:
        """Take note of the namespaces where names that an object lacks would be found.

        Many of them are one note, any new name of the object, since objects may be many.
        """
        if len(missing) > _MOST_MISSING:
            for names, owner in before:
                if not isinstance(owner, type):
                    self.holds_names(names, owner, label)
            before = [pair for pair in before if isinstance(pair[1], type)]
        for key in missing if before else ():
            self._shadows(before, key, GONE, label)

    def _look_at_itself(self, value: Any, is_of_user: bool) -> None:
        """Take note of the class of an object, or of the name of a function or class."""
        if is_of_user or isinstance(value, ModuleType):
            self.holds_object(value)
        if isinstance(value, type | FunctionType):
            self._members_of(value, self.names & _OF_DEFINITIONS, value.__name__)
        if isinstance(value, FunctionType) and "__annotations__" in self.names:
            self._members_of(value, ("__annotations__",), value.__name__)

    def _called_of(self, names: Mapping[str, Any]) -> set[str]:
        """Return the methods of a class that run without being named."""
        found = {
            key
            for key, item in names.items()
            if key[:2] == key[-2:] == "__" and isinstance(item, _METHODS)
        }
        return found - (SELDOM - self.special) | (CALLED & names.keys())

    def _namespaces(self, value: Any) -> Iterator[tuple[Any, Any]]:
        """Yield where Python looks attributes of an object up: mappings, with owners."""
        own = getattr(value, "__dict__", None)
        classes: tuple[type, ...] = ()
        if isinstance(value, type):
            classes = value.__mro__
        elif isinstance(own, dict | MappingProxyType):
            self.seen[id(own)] = own
            yield own, value
        if not isinstance(value, ModuleType | FunctionType):
            kind: type = type(value)
            classes = (*classes, *kind.__mro__)
        for cls in classes:
            # Each call of `vars` makes another mapping.
            yield self._members.setdefault(cls, vars(cls)), cls

    def _attribute(
        self, value: Any, names: Any, owner: Any, key: str, item: Any, label: str
    ) -> None:
        """Take note of an attribute that an object has in one of its namespaces."""
        text = f"{label}.{key}"
        if isinstance(item, MemberDescriptorType) and owner is not value:
            self._members_of(value, (key,), label)
        elif key in UNNOTED and is_generated(item):
            self._waiting.append((item, ""))
        else:
            self._slot(names, key, item, text)

    def _shadows(
        self, before: Iterable[tuple[Any, Any]], key: str, item: Any, label: str
    ) -> None:
        """Take note of the namespaces where an attribute would be found first."""
        for names, owner in before:
            is_of_type = key in CALLED and not isinstance(owner, type)
            if not is_of_type:
                self._missing(names, key, f"{label}.{key}", item)

    # Class of values -> how to go on from one; also from those of subclasses.
    _steps: ClassVar[dict[Any, Callable[[Any, Any, str], None]]] = {
        FunctionType: _function,
        **dict.fromkeys(CONTAINERS, _container),
        **dict.fromkeys((ModuleType, type), _namespace),
        MethodType: lambda walk, v, at: walk.go_on((v.__func__, v.__self__), at),
        partial: _partial,
        BuiltinFunctionType: _builtin,
        **dict.fromkeys(
            (classmethod, staticmethod),
            lambda walk, v, at: walk.go_on([v.__func__], at),
        ),
        partialmethod: lambda walk, v, at: walk.go_on([v.func, v.args, v.keywords], at),
        property: lambda walk, v, at: walk.go_on([v.fget], at),
        cached_property: lambda walk, v, at: walk.go_on([v.func], at),
        **dict.fromkeys(
            (
                *(UserDict, UserList, UserString, ChainMap),
                *(WeakKeyDictionary, WeakValueDictionary, WeakSet),
                *(np.poly1d, np.vectorize),
            ),
            lambda walk, v, at: walk.go_on([vars(v)], at),
        ),
        **dict.fromkeys(  # written in C
            (type(cmp_to_key(lambda a, b: 0)), np.ufunc),
            lambda walk, v, at: walk.go_on(gc.get_referents(v), at),
        ),
        **dict.fromkeys(
            (type({}.keys()), type({}.values()), type({}.items())),
            lambda walk, v, at: walk.go_on([v.mapping], at),
        ),
        weakref: lambda walk, v, at: walk.go_on([v()], at),
        ContextVar: _variable,
        **dict.fromkeys((attrgetter, methodcaller), _getter),
    }


def _is_kept(value: Any, names: Mapping[str, Any], key: str) -> bool:
    """Return whether an object written in C keeps an attribute, which it may change."""
    if key in _UNREAD or "__slots__" in names or not isinstance(names[key], _OF_C):
        return False  # other libraries keep what they like in slots
    found = names[key].__get__(value) if hasattr(value, key) else GONE
    return type(found) in _LEAVES or found is getattr(value, key, GONE)


_OF_C = (MemberDescriptorType, GetSetDescriptorType)
# What Python itself puts into the namespace of a class.
_UNREAD = frozenset(("__module__", "__dict__", "__weakref__", "__doc__", "__class__"))
# Names that may be missing, from which a namespace is watched for any new name.
_MOST_MISSING = 16
# Attributes of functions and classes that no namespace of theirs holds.
_OF_DEFINITIONS = frozenset(("__name__", "__qualname__", "__doc__", "__module__"))
# Flag of classes that a class statement has made.
_MADE_BY_CODE = 1 << 9
# Classes of values that hold nothing.
# To ask a weak proxy of an object that is gone raises.
_LEAVES = frozenset((int, float, complex, bool, str, bytes, type(None), *ProxyTypes))
_METHODS = (FunctionType, classmethod, staticmethod)


# ---- the walk to all values of a kind ----


class ValueSearch(Walk):
    """A walk to the wanted values, also through all attributes of objects.

    Attributes
    ----------
    found : list
    is_fixed : bool
        Whether only names were read, so that `is_same` can tell whether it still holds.
    reads_texts : bool
        Whether code takes globals or modules by texts, so that it may reach any value.
    """

    takes_all = True

    def __init__(
        self, is_wanted: Callable[[Any], bool], values: Iterable[Any] = ()
    ) -> None:
        super().__init__()
        self.found: list[Any] = []
        self.is_fixed: bool = True
        self.reads_texts: bool = False
        self._slots: list[HeldName] = []
        self._is_wanted = is_wanted
        self.walk((value, "") for value in values)

    def enters(self, value: Any, label: str) -> bool:
        """Keep a wanted value; return whether others may be found inside."""
        if self._is_wanted(value):
            self.found.append(value)
            return False
        if isinstance(value, type):
            return not self.is_foreign_class(value)
        if isinstance(value, FunctionType):
            self._slots += [
                HeldName(Members(value), key, getattr(value, key), "")
                for key in ("__code__", "__defaults__")
            ]
        if isinstance(value, np.ndarray) and value.dtype.hasobject:
            self.is_fixed = False
            self.go_on(value.ravel().tolist())
        return not isinstance(value, _CLOSED)

    def reads(self, slot: HeldName) -> None:
        """Keep a name."""
        self._slots.append(slot)

    def lacks(self, slot: HeldName, found: Any) -> None:
        """Keep a name that is missing."""
        self._slots.append(slot)

    def holds(self, container: Any, label: str) -> None:
        """Note that items may change."""
        self.is_fixed = self.is_fixed and isinstance(container, tuple)

    def holds_keywords(self, keywords: dict[str, Any], label: str) -> None:
        """Keep the names."""
        self._slots += [
            HeldName(keywords, key, keywords[key], label) for key in keywords
        ]

    def is_same(self) -> bool:
        """Return whether another walk would find the same."""
        return self.is_fixed and all(slot.now() is slot.value for slot in self._slots)

    def look_at_object(self, value: Any, label: str) -> None:
        """Look at what an object holds, also one that is written in C."""
        self.is_fixed = False
        root = module_of(type(value)).partition(".")[0]
        if root == "customop":
            self.go_on(_functions_of(value))
        elif root not in _LASTING:
            self._objects.append((value, label))
            self.go_on(gc.get_referents(value))

    def names_in(self, code: CodeType) -> CodeNames:
        """Return all names in a code object, as any kind of name: that is quick."""
        _, all_names, imports = all_names_in(code)
        names = frozenset(all_names)
        if not ANY_BY_TEXT.isdisjoint(names):
            self.reads_texts, self.is_fixed = True, False
        return CodeNames(names, names, names if imports else _NONE, _NONE, False, False)


def _functions_of(value: Any) -> list[Any]:
    """List the functions that an object of this package holds: it has others for itself."""
    own = getattr(value, "__dict__", {})
    if "__wrapped__" in own:
        return [own["__wrapped__"]]
    return [item for item in own.values() if isinstance(item, _CALLS)]


_NONE: frozenset[str] = frozenset()
_CALLS = (FunctionType, MethodType, partial)
# Values in which no others are looked for.
_CLOSED = (np.ndarray, np.generic, RuleTable, CodeType, FrameType)
# Objects of these modules lead to all of the program, and hold no values for functions.
_LASTING = frozenset(
    (
        *("numpy", "logging", "threading", "asyncio", "multiprocessing", "concurrent"),
        *("importlib", "_frozen_importlib", "_frozen_importlib_external"),
        *("io", "_io", "unittest", "inspect"),
    )
)


# ---- names, and what they hold ----


class _Gone:
    """The content of a name that is not there."""

    def __repr__(self) -> str:
        return "nothing"


GONE: _Gone = _Gone()


class HeldName(NamedTuple):
    """A cell, or a name in a namespace, and the value in it.

    Attributes
    ----------
    owner : cell or mapping
    key : str
        The name in a mapping.
    value : object
        What it holds; GONE for a name that is not there.
    label : str
        For messages, such as ``the global 'rate'``.
    """

    owner: Any
    key: str
    value: Any
    label: str

    def now(self) -> Any:
        """Return the present content."""
        if isinstance(self.owner, CellType):
            return content(self.owner)
        return self.owner.get(self.key, GONE)


class Members:
    """Values that are not in a dict, as a mapping: of `__slots__`, C or a ContextVar.

    Attributes
    ----------
    owner : object
        It has the values as attributes, or is the ContextVar.
    """

    __slots__ = ("owner",)

    def __init__(self, owner: Any) -> None:
        self.owner: Any = owner

    def get(self, key: str, default: Any) -> Any:
        """Return the value, or another one if there is none."""
        if isinstance(self.owner, ContextVar):
            try:
                return self.owner.get()  # its own default before this one
            except LookupError:
                return default
        return getattr(self.owner, key, default)

    def __getitem__(self, key: str) -> Any:
        return self.get(key, GONE)

    def __contains__(self, key: str) -> bool:
        return self[key] is not GONE

    def __setitem__(self, key: str, value: Any) -> None:
        if isinstance(self.owner, ContextVar):
            self.owner.set(value)
        else:
            with suppress(AttributeError, TypeError):  # only C can set it
                setattr(self.owner, key, value)


def content(cell: CellType) -> Any:
    """Return the content of a cell."""
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return GONE


# ---- what belongs to Python or to an installed package ----


@cache
def is_installed(name: str) -> bool:
    """Return whether a module belongs to Python or to an installed package."""
    root = name.partition(".")[0]
    if root in ("customop", "numpy") or root in sys.stdlib_module_names:
        return root != "__main__"
    file = getattr(sys.modules.get(root), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def _is_wrapper_of_ours(fn: FunctionType) -> bool:
    """Return whether the code of a function is in a module of this package."""
    names = fn.__globals__
    return "__name__" in names and is_ours(names)


def _only_refuses(fn: FunctionType) -> bool:
    """Return whether a function is what a frozen dataclass has for assignments."""
    return is_generated(fn) and any(
        content(cell) is FrozenInstanceError for cell in fn.__closure__ or ()
    )


def module_of(cls: type) -> str:
    """Return the name of the module of a class; a class of ctypes may have none."""
    module = getattr(cls, "__module__", "")
    return module if isinstance(module, str) else ""


def is_opaque(value: Any) -> bool:
    """Return whether a value is an array of another library, such as a table of pandas."""
    cls = type(value)
    module = module_of(cls)
    if module.partition(".")[0] in _OPEN:
        return False
    is_like = hasattr(cls, "shape") and hasattr(value, "dtype")
    return (is_like or hasattr(cls, "__array__")) and is_installed(module)


_OPEN = sys.stdlib_module_names | {"numpy", "customop"}
