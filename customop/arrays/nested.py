"""Values that hold others: how they are taken apart, and made again of other values.

Lists, tuples and dicts are known from the start; classes of config objects whose
fields hold arrays become known when an operator first names them.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import typing
from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import is_
from typing import Any, Protocol

import typing_extensions

from customop.arrays.kinds import is_array

__all__ = [
    "ClassFields",
    "Nest",
    "aligned",
    "children",
    "declare",
    "fields_of",
    "flat",
    "is_config_class",
    "like",
    "map_beside",
    "map_nested",
    "map_outline",
    "map_result",
    "nests",
    "outline",
    "steps",
    "withdraw",
]


class Nest(Protocol):
    """How values of one class are taken apart and made again."""

    def steps(self, value: Any) -> Sequence[Hashable]:
        """What its parts are found by: names or keys."""
        ...

    def items(self, value: Any) -> list[Any]:
        """Its parts, in order."""
        ...

    def like(self, value: Any, items: list[Any]) -> Any:
        """A value of the same class that holds other values in their places."""
        ...

    def outline(self, value: Any, items: list[Any]) -> Any:
        """The same shape around what are no values: axes, gradients, None."""
        ...


class _DictNest:
    """Dicts: their keys stay."""

    def steps(self, value: Any) -> Sequence[Hashable]:
        return list(value)

    def items(self, value: Any) -> list[Any]:
        return list(value.values())

    def like(self, value: Any, items: list[Any]) -> Any:
        return dict(zip(value, items, strict=True))

    outline = like


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ClassFields:
    """The fields of a class of config objects, and how its objects are made.

    Attributes
    ----------
    cls : type
    hints : dict
        Name of a field -> its annotation.
    required : frozenset of str
        Names of the fields that an object must have: all but for a TypedDict.
    by_call : tuple of str or None
        Fields that the constructor takes; None where there is none to call.
    is_frozen : bool
        Whether objects never change.
    """

    cls: type
    hints: dict[str, Any]
    required: frozenset[str]
    by_call: tuple[str, ...] | None = None
    is_frozen: bool = True

    @property
    def is_dict(self) -> bool:
        """Whether objects are plain dicts: those of a TypedDict."""
        return typing_extensions.is_typeddict(self.cls)

    def steps(self, value: Any) -> Sequence[Hashable]:
        """Names of the fields."""
        return list(self.hints)

    def items(self, value: Any) -> list[Any]:
        """Values of the fields."""
        return [getattr(value, name) for name in self.hints]

    def like(self, value: Any, items: list[Any]) -> Any:
        """An object with other values in its fields.

        What keeps more than its fields is made by its constructor, as is what has no
        model, None. The checks of others have passed, and need not hold for a batch.
        """
        if self.by_call is None or (value is not None and not self.keeps_more(value)):
            return self.outline(value, items)
        given = dict(zip(self.hints, items, strict=True))
        made = self.cls(**{name: given.pop(name) for name in self.by_call})
        for name, item in given.items():  # what the constructor does not take
            object.__setattr__(made, name, item)
        return made

    def keeps_more(self, value: Any) -> bool:
        """Whether an object has attributes beside its fields, made of them."""
        own = [*getattr(value, "__dict__", ()), *_slots(self.cls)]
        return any(name not in self.hints and hasattr(value, name) for name in own)

    def outline(self, value: Any, items: list[Any]) -> Any:
        """An object with anything in its fields, past the constructor's checks."""
        if issubclass(self.cls, tuple):
            return tuple.__new__(self.cls, items)
        made = object.__new__(self.cls)
        for name, item in zip(self.hints, items, strict=True):
            object.__setattr__(made, name, item)
        return made


def _slots(cls: type) -> list[str]:
    found = [vars(base).get("__slots__", ()) for base in cls.__mro__]
    names = [n for slots in found for n in ([slots] if type(slots) is str else slots)]
    return [name for name in names if not name.startswith("__")]


# Class -> how its values are taken apart, beside list and tuple, which are asked for
# first wherever this is. A class of config objects is here if its fields hold arrays.
nests: dict[type, Nest] = {dict: _DictNest()}


def children(value: Any) -> Sequence[Any] | None:
    """The parts of a value that holds others, in order; None for any other value."""
    cls = type(value)
    if cls is list or cls is tuple:
        return value  # type: ignore[no-any-return]
    nest = nests.get(cls)
    return None if nest is None else nest.items(value)


def steps(value: Any) -> Sequence[Hashable]:
    """What the parts of a value are found by: positions, keys or names of fields."""
    nest = nests.get(type(value))
    return range(len(value)) if nest is None else nest.steps(value)


def like(value: Any, items: list[Any]) -> Any:
    """A value that holds `items` in the places of the parts of `value`."""
    cls = type(value)
    if cls is list:
        return items
    if cls is tuple:
        return tuple(items)
    nest = nests[cls]
    # An object that changes in nothing stays itself, and its constructor unasked.
    same = cls is not dict and all(map(is_, nest.items(value), items))
    return value if same else nest.like(value, items)


def outline(value: Any, items: list[Any]) -> Any:
    """As `like`, for items that are no values, such as axes."""
    cls = type(value)
    if cls is list or cls is tuple:
        return cls(items)
    return nests[cls].outline(value, items)


def flat(value: Any) -> list[Any]:
    """The leaves of a value, in order; None is a leaf."""
    cls = type(value)
    if cls is not list and cls is not tuple:
        nest = nests.get(cls)
        if nest is None:
            return [value]
        value = nest.items(value)
    return [leaf for item in value for leaf in flat(item)]


def map_nested(value: Any, fn: Callable[[Any], Any]) -> Any:
    """Apply `fn` to each leaf. The result must be a value too: see `map_outline`."""
    cls = type(value)
    if cls is list:
        return [map_nested(item, fn) for item in value]
    if cls is tuple:
        return tuple(map_nested(item, fn) for item in value)
    nest = nests.get(cls)
    if nest is None:
        return fn(value)
    return like(value, [map_nested(item, fn) for item in nest.items(value)])


def map_result(value: Any, fn: Callable[[Any], Any]) -> Any:
    """Apply `fn` to the arrays of a result; scalars and None stay."""
    return map_nested(value, lambda v: fn(v) if is_array(v) else v)


def map_outline(value: Any, fn: Callable[[Any], Any]) -> Any:
    """The nesting of a value with what `fn` makes of each leaf: axes, flags, None."""
    cls = type(value)
    if cls is list:
        return [map_outline(item, fn) for item in value]
    if cls is tuple:
        return tuple(map_outline(item, fn) for item in value)
    nest = nests.get(cls)
    if nest is None:
        return fn(value)
    return nest.outline(value, [map_outline(item, fn) for item in nest.items(value)])


def map_beside(value: Any, other: Any, fn: Callable[[Any, Any], Any]) -> Any:
    """Apply `fn` to each leaf and to what `other` has in its place, such as an axis.

    `other` is nested as `value` is, or None for all leaves.
    """
    found = children(value)
    if found is None:
        return fn(value, other)
    others = [None] * len(found) if other is None else children(other) or ()
    pairs = zip(found, others, strict=True)
    return like(value, [map_beside(v, o, fn) for v, o in pairs])


def aligned(value: Any, other: Any) -> Sequence[Any] | None:
    """The parts of `other` that stand for those of `value`; None if it fits not.

    What is nested as a config object is an object of its class, or a dict by the names
    of its fields; names that are left out have None.
    """
    if type(value) is list and type(other) is list and len(value) == len(other):
        return other  # most there are
    if type(value) in (list, tuple) or not isinstance(other, Mapping):
        return _by_place(value, other)
    names = steps(value)
    fits = all(name in names for name in other)
    return [other.get(name) for name in names] if fits else None


def _by_place(value: Any, other: Any) -> Sequence[Any] | None:
    if type(other) is type(value) and type(value) in nests:
        return nests[type(value)].items(other)
    is_sequence = isinstance(value, list | tuple) and isinstance(other, list | tuple)
    return other if is_sequence and len(other) == len(value) else None


# ---- fields of classes ----

_REQUIRED = (typing.Required, typing_extensions.Required)
_OPTIONAL = (typing.NotRequired, typing_extensions.NotRequired)
_MARKS = (*_REQUIRED, *_OPTIONAL, typing_extensions.ReadOnly)

# Classes that `register_config_type` was given.
_declared: set[type] = set()


def declare(cls: type) -> None:
    """Let objects of a class be arguments, though Python does not say they are fixed."""
    _declared.add(cls)


def withdraw(cls: type) -> None:
    """Take `declare` back for a class that cannot be taken apart."""
    _declared.discard(cls)


def is_config_class(annotation: object) -> bool:
    """Whether an annotation is a class whose objects may be arguments."""
    if not isinstance(annotation, type) or typing.get_origin(annotation) is not None:
        return False
    return (
        annotation in _declared
        or issubclass(annotation, enum.Enum)
        or typing_extensions.is_typeddict(annotation)
        or is_frozen_dataclass(annotation)
        or (issubclass(annotation, tuple) and hasattr(annotation, "_fields"))
    )


def is_frozen_dataclass(cls: type) -> bool:
    """Whether a class is a dataclass whose objects never change."""
    own = "__dataclass_params__" in vars(cls)
    return own and bool(vars(cls)["__dataclass_params__"].frozen)


def fields_of(cls: type, names: Mapping[str, Any]) -> ClassFields:
    """The fields of a class of config objects, `names` beside those of its module.

    Raises
    ------
    NameError
        If an annotation names what is not defined.
    TypeError
        If the objects cannot be made of their fields; the text says why.
    """
    if issubclass(cls, enum.Enum):
        return ClassFields(cls, {}, frozenset())
    if typing_extensions.is_typeddict(cls):
        return _of_typed_dict(cls, names)
    if issubclass(cls, tuple):
        return _of_named_tuple(cls, names)
    if dataclasses.is_dataclass(cls):
        return _of_dataclass(cls, names)
    return _of_constructor(cls, names)


def _hints(holder: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    return typing_extensions.get_type_hints(
        holder, localns=dict(names), include_extras=True
    )


def _of_typed_dict(cls: Any, names: Mapping[str, Any]) -> ClassFields:
    required = set(cls.__required_keys__)
    hints = {}
    for name, written in _hints(cls, names).items():
        hint = written
        while (mark := typing.get_origin(hint)) in _MARKS:
            # What is written as a string `__required_keys__` has not read.
            if mark in _OPTIONAL:
                required.discard(name)
            elif mark in _REQUIRED:
                required.add(name)
            (hint,) = typing.get_args(hint)
        hints[name] = hint
    return ClassFields(cls, hints, frozenset(required), is_frozen=False)


def _of_named_tuple(cls: Any, names: Mapping[str, Any]) -> ClassFields:
    hints = _hints(cls, names)
    plain = [name for name in cls._fields if name not in hints]
    if plain:
        raise TypeError(f"its field '{plain[0]}' has no type: use typing.NamedTuple")
    hints = {name: hints[name] for name in cls._fields}
    return ClassFields(cls, hints, frozenset(hints))


def _of_dataclass(cls: Any, names: Mapping[str, Any]) -> ClassFields:
    hints = _hints(cls, names)
    fields = dataclasses.fields(cls)
    hidden = set(cls.__dataclass_fields__) - {f.name for f in fields}
    passed = [n for n in hidden if isinstance(hints[n], dataclasses.InitVar)]
    if passed:
        raise TypeError(
            f"'{passed[0]}' is an InitVar, which objects do not keep: make it a field"
        )
    return ClassFields(
        cls,
        {f.name: hints[f.name] for f in fields},
        frozenset(f.name for f in fields),
        tuple(f.name for f in fields if f.init)
        if cls.__dataclass_params__.init
        else None,
        is_frozen_dataclass(cls),
    )


def _of_constructor(cls: type, names: Mapping[str, Any]) -> ClassFields:
    """Fields named as the parameters of the constructor are."""
    parameters = inspect.signature(cls).parameters.values()
    found = _hints(cls.__init__, names)  # type: ignore[misc]  # of this very class
    hints = {}
    for p in parameters:
        if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            raise TypeError(f"its constructor takes '{p.name}' not by name")
        if p.name not in found:
            raise TypeError(
                f"parameter '{p.name}' of its constructor has no annotation"
            )
        if isinstance(inspect.getattr_static(cls, p.name, None), property):
            raise TypeError(f"'{p.name}' is a property, must be a plain attribute")
        hints[p.name] = found[p.name]
    return ClassFields(cls, hints, frozenset(hints), tuple(hints), is_frozen=False)
