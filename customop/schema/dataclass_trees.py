"""Dataclasses as trees: their fields are seen by transforms, or are constants."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from customop.errors import RegistrationError, did_you_mean, shown
from customop.schema.types import fields_of, register_pytree

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
