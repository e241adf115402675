"""Classes of config objects: their fields, and dataclasses that transforms look into."""

from __future__ import annotations

import enum
import inspect
import sys
import typing
from collections.abc import Callable, Hashable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar, overload

from customop.arrays.nested import register_node
from customop.errors import RegistrationError, did_you_mean, shown
from customop.frozen import Frozen, cached
from customop.later import later

dataclasses: ModuleType = later(import_module, "dataclasses")
# Only fields of a TypedDict need it.
typing_extensions: ModuleType = later(import_module, "typing_extensions")


# ---- classes of config objects, and their fields ----


class ClassFields(Frozen, compare=()):
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

    @cached
    def is_dict(self) -> bool:
        """Return whether objects are plain dicts: those of a TypedDict."""
        return _is_typed_dict(self.cls)

    def steps(self, value: Any) -> Sequence[Hashable]:
        """Return the names of the fields."""
        return list(self.hints)

    def items(self, value: Any) -> list[Any]:
        """Return the values of the fields."""
        return [getattr(value, name) for name in self.hints]

    def like(self, value: Any, items: list[Any]) -> Any:
        """Make an object with other values in its fields.

        The constructor is called if `value` is None or keeps more than its fields.
        Otherwise it is not: its checks have passed, and need not hold for a batch.
        """
        if self.by_call is None or (value is not None and not self.keeps_more(value)):
            return self.outline(value, items)
        given = dict(zip(self.hints, items, strict=True))
        made = self.cls(**{name: given.pop(name) for name in self.by_call})
        for name, item in given.items():  # fields that the constructor does not take
            object.__setattr__(made, name, item)
        return made

    def keeps_more(self, value: Any) -> bool:
        """Return whether an object has attributes in addition to its fields."""
        own = [*getattr(value, "__dict__", ()), *_slots(self.cls)]
        return any(name not in self.hints and hasattr(value, name) for name in own)

    def outline(self, value: Any, items: list[Any]) -> Any:
        """Make an object with anything in its fields, without its constructor."""
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


def register_pytree(fields: ClassFields, moving: Sequence[str]) -> bool:
    """Make a class of config objects a pytree; the `moving` fields hold its leaves.

    NamedTuples and dicts are pytrees already, with all their fields as leaves; members
    of an Enum are leaves. Returns whether the class was new.
    """
    cls: Any = fields.cls
    if issubclass(cls, tuple) or fields.is_dict or not fields.hints:
        return False
    fixed = [name for name in fields.hints if name not in moving]

    def take_apart(value: Any) -> tuple[list[Any], Any, tuple[str, ...]]:
        rest = tuple(getattr(value, name) for name in fixed)
        found = [getattr(value, name) for name in moving]
        return found, (fields.keeps_more(value), rest), tuple(moving)

    def make(constant: Any, found: Any) -> Any:
        keeps_more, rest = constant
        given = dict(zip((*fixed, *moving), (*rest, *found), strict=True))
        items = [given[name] for name in fields.hints]
        return fields.like(None, items) if keeps_more else fields.outline(None, items)

    return register_node(cls, take_apart, make)


# ---- fields of classes ----


# Classes that `register_config_type` was given.
_declared: set[type] = set()


def declare(cls: type) -> None:
    """Allow objects of a class as arguments, even if they can change."""
    _declared.add(cls)


def withdraw(cls: type) -> None:
    """Undo `declare` for a class that cannot be taken apart."""
    _declared.discard(cls)


def is_config_class(annotation: object) -> bool:
    """Return whether an annotation is a class whose objects may be arguments."""
    if not isinstance(annotation, type) or typing.get_origin(annotation) is not None:
        return False
    return (
        annotation in _declared
        or issubclass(annotation, enum.Enum)
        or _is_typed_dict(annotation)
        or is_frozen_dataclass(annotation)
        or (issubclass(annotation, tuple) and hasattr(annotation, "_fields"))
    )


def _is_typed_dict(cls: type) -> bool:
    """Return whether a class is a TypedDict, of typing or of typing_extensions."""
    return issubclass(cls, dict) and hasattr(cls, "__required_keys__")


def is_frozen_dataclass(cls: type) -> bool:
    """Return whether a class is a dataclass whose objects never change."""
    own = "__dataclass_params__" in vars(cls)
    return own and bool(vars(cls)["__dataclass_params__"].frozen)


def fields_of(cls: type, names: Mapping[str, Any]) -> ClassFields:
    """Return the fields of a class of config objects.

    Their annotations may use `names` in addition to those of the module.

    Raises
    ------
    NameError
        If an annotation uses a name that is not defined.
    TypeError
        If the objects cannot be made of their fields; the text says why.
    """
    if issubclass(cls, enum.Enum):
        return ClassFields(cls, {}, frozenset())
    if _is_typed_dict(cls):
        return _of_typed_dict(cls, names)
    if issubclass(cls, tuple):
        return _of_named_tuple(cls, names)
    if dataclasses.is_dataclass(cls):
        return _of_dataclass(cls, names)
    return _of_constructor(cls, names)


def _hints(holder: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    return typing.get_type_hints(holder, localns=dict(names), include_extras=True)


def _of_typed_dict(cls: Any, names: Mapping[str, Any]) -> ClassFields:
    extensions = typing_extensions
    marks = (extensions.Required, extensions.NotRequired, extensions.ReadOnly)
    required = set(cls.__required_keys__)
    hints = {}
    for name, written in _hints(cls, names).items():
        hint = written
        while (mark := typing.get_origin(hint)) in marks:
            # `__required_keys__` does not read annotations that are strings.
            if mark == extensions.NotRequired:
                required.discard(name)
            elif mark == extensions.Required:
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
    """Return fields with the names of the constructor's parameters."""
    parameters = inspect.signature(cls).parameters.values()
    found = _hints(cls.__init__, names)  # type: ignore[misc]  # of this class
    hints = {}
    for p in parameters:
        if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            raise TypeError(f"its constructor cannot take '{p.name}' by name")
        if p.name not in found:
            raise TypeError(
                f"parameter '{p.name}' of its constructor has no annotation"
            )
        if isinstance(inspect.getattr_static(cls, p.name, None), property):
            raise TypeError(f"'{p.name}' is a property, must be a plain attribute")
        hints[p.name] = found[p.name]
    return ClassFields(cls, hints, frozenset(hints), tuple(hints), is_frozen=False)


# ---- dataclasses as pytrees ----


ClassT = TypeVar("ClassT", bound=type)


@overload
def register_dataclass(cls: ClassT, /, *, static: Sequence[str] = ()) -> ClassT: ...
@overload
def register_dataclass(
    cls: None = None, /, *, static: Sequence[str] = ()
) -> Callable[[ClassT], ClassT]: ...
def register_dataclass(
    cls: ClassT | None = None, /, *, static: Sequence[str] = ()
) -> ClassT | Callable[[ClassT], ClassT]:
    """Let transforms see the arrays in the fields of a dataclass.

    Parameters
    ----------
    cls : type, optional
        A dataclass. Its objects become pytrees: the fields are their parts. Without it,
        a decorator is returned.
    static : sequence of str
        Names of fields that are constants: numbers of steps, names, functions. Two
        objects have one structure if their static fields are equal. A field made by
        ``dataclasses.field(metadata={"static": True})`` is one too.

    Returns
    -------
    type or callable
        The class itself, or a decorator that returns its class.

    Raises
    ------
    RegistrationError
        If `cls` is not a dataclass, a name in `static` is not one of its fields, its
        objects cannot be made of their fields, or it is a pytree already.

    Examples
    --------
    >>> import dataclasses, numpy as np, customop as co
    >>> @co.register_dataclass(static=["power"])
    ... @dataclasses.dataclass
    ... class Model:
    ...     w: np.ndarray
    ...     power: int = 2
    >>> co.grad(lambda model: (model.w ** model.power).sum())(Model(np.ones(2)))
    Model(w=array([2., 2.]), power=2)
    """
    names = sys._getframe(1).f_locals
    if cls is not None:
        return _registered(cls, static, names)

    def decorator(given: ClassT) -> ClassT:
        return _registered(given, static, names)

    return decorator


def _registered(cls: ClassT, static: Sequence[str], names: dict[str, Any]) -> ClassT:
    given: Any = cls
    if not isinstance(given, type) or not dataclasses.is_dataclass(given):
        raise _refused(f"{shown(cls)} is not a dataclass", "write @dataclass below it")
    fields = {f.name: f for f in dataclasses.fields(given)}
    for name in static:
        if name not in fields:
            near = did_you_mean(name, fields)
            what = f"'{name}' is not a field of {cls.__name__}{near}"
            raise _refused(what, "name its fields")
    moving = [
        name
        for name, field in fields.items()
        if name not in static and not field.metadata.get("static")
    ]
    try:
        known = fields_of(cls, names)
    except (TypeError, NameError) as error:
        what = f"objects of {cls.__name__} cannot be made of their fields: {error}"
        raise _refused(what, "correct the annotations of its fields") from error
    if not register_pytree(known, moving):
        raise _refused(
            f"{cls.__name__} is a pytree already",
            "register it once, before an operator names it in its schema",
        )
    return cls


def _refused(what: str, do: str) -> RegistrationError:
    return RegistrationError(f"register_dataclass: {what}", do=do)
