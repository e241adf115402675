"""Kinds of array: which class of array is of which kind, and device names."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from customop.errors import ArgumentError, RegistrationError, did_you_mean, quoted

__all__ = [
    "Conversion",
    "conversion_of",
    "known_kinds",
    "normalize_device",
    "register_array_type",
]

# What a value among the arrays of a call can be besides an array of a kind.
TRACED = "traced"
# A NumPy scalar is a cpu array that may stand beside arrays of any kind.
NUMPY_SCALAR = "numpy scalar"
# Rows of an operator's table that are no kind of array.
DEFAULT = "default"
FAKE = "fake"

_RESERVED = (TRACED, NUMPY_SCALAR, DEFAULT)


class _Classes(dict[type, str | None]):
    """Class -> kind, resolved on a miss through base classes and named classes."""

    def __missing__(self, cls: type) -> str | None:
        kind = _resolve(cls)
        # Python's own classes are never arrays; others may be registered later.
        if kind is not None or cls.__module__ == "builtins":
            self[cls] = kind
        return kind


# Kind -> classes, given as a class or as "module.Class" not yet imported.
_registered: dict[str, tuple[type | str, ...]] = {}
# The look-up of the call path. Registering replaces its contents.
kind_of: _Classes = _Classes()


class Conversion(NamedTuple):
    """How arrays of a kind are made of NumPy's, and give their values back."""

    from_numpy: Callable[[Any], Any] | None
    to_numpy: Callable[[Any], Any] | None


# Kind -> its conversion, where one was registered.
_conversions: dict[str, Conversion] = {}


def register_array_type(
    kind: str,
    cls_or_path: type | str,
    *,
    from_numpy: Callable[[Any], Any] | None = None,
    to_numpy: Callable[[Any], Any] | None = None,
) -> None:
    """Make a class of arrays known, as a kind that kernels can be registered for.

    Parameters
    ----------
    kind : str
        Name of the kind: the `device_types` of its kernels. A kind may have
        several classes.
    cls_or_path : type or str
        The class, or ``"module.Class"``, which is looked up once that module has
        been imported by somebody else. Subclasses are of the same kind.
    from_numpy : callable, optional
        Makes an array of the kind of a NumPy array, of the same values, shape and
        dtype. With it, checks can run on arrays of the kind.
    to_numpy : callable, optional
        Gives the NumPy array of an array of the kind. It may be left out for classes
        that have ``__array__`` or ``__dlpack__``.

    Raises
    ------
    RegistrationError
        If the kind is no identifier, the class is none, or belongs to another kind,
        or a conversion is no function.

    Examples
    --------
    >>> import customop as co
    >>> class Column:
    ...     shape = (3,)
    >>> co.register_array_type("column", Column)
    """
    taken = (*_RESERVED, FAKE)
    if not isinstance(kind, str) or not kind.isidentifier() or kind in taken:
        raise RegistrationError(
            f"register_array_type: kind {kind!r} is no name for a kind of array",
            do="use an identifier, such as 'strict' or 'tpu'",
        )
    _check_class(kind, cls_or_path)
    for name, fn in (("from_numpy", from_numpy), ("to_numpy", to_numpy)):
        if fn is not None and not callable(fn):
            raise RegistrationError(
                f"register_array_type: {name}={fn!r} is no function",
                do=f"pass a function of one array: {name}=convert",
            )
    add_array_type(kind, cls_or_path)
    if from_numpy is not None or to_numpy is not None:
        known = conversion_of(kind)
        _conversions[kind] = Conversion(
            from_numpy or known.from_numpy, to_numpy or known.to_numpy
        )


def conversion_of(kind: str | None) -> Conversion:
    """The conversion registered for a kind of array; of functions that may be None."""
    return _conversions.get(kind or "", Conversion(None, None))


def _check_class(kind: str, cls_or_path: object) -> None:
    if isinstance(cls_or_path, str):
        parts = cls_or_path.split(".")
        if len(parts) < 2 or not all(part.isidentifier() for part in parts):
            raise RegistrationError(
                f"register_array_type: {cls_or_path!r} is no path of a class",
                do='write "module.Class"',
            )
        return
    if not isinstance(cls_or_path, type):
        raise RegistrationError(
            f"register_array_type: {cls_or_path!r} is neither a class nor a path",
            do='pass the class, or "module.Class"',
        )
    if issubclass(cls_or_path, np.generic) or cls_or_path.__module__ == "builtins":
        raise RegistrationError(
            f"register_array_type: {cls_or_path.__qualname__} is no class of arrays",
            do="pass the class that has shape and dtype",
        )
    known = _resolve(cls_or_path)
    if known is not None and known != kind:
        raise RegistrationError(
            f"register_array_type: {cls_or_path.__qualname__} is already of the kind"
            f" '{known}'",
            do=f"register kernels for '{known}', or a class of your own",
        )


def add_array_type(kind: str, cls_or_path: type | str) -> None:
    """Enter a class without the checks for users."""
    classes = _registered.get(kind, ())
    if cls_or_path not in classes:
        _registered[kind] = (*classes, cls_or_path)
    kind_of.clear()


def _resolve(cls: type) -> str | None:
    if issubclass(cls, np.generic):
        return NUMPY_SCALAR
    for base in cls.__mro__:
        for kind, classes in _registered.items():
            if any(base is (_find(known)) for known in classes):
                return kind
    return None


def _find(known: type | str) -> object:
    """The class itself; for a path, the class if its module is already imported."""
    if not isinstance(known, str):
        return known
    module, _, name = known.rpartition(".")
    return getattr(sys.modules.get(module), name, None)


def known_kinds() -> tuple[str, ...]:
    """Names of all kinds that a kernel can be registered for, 'fake' among them."""
    return tuple(kind for kind in _registered if kind not in _RESERVED)


def is_array(value: Any) -> bool:
    """Whether a value is an array of a known kind; tracers and NumPy scalars are."""
    return kind_of[type(value)] is not None


def is_array_class(annotation: object) -> bool:
    """Whether an annotation is a class of arrays of a known kind."""
    return isinstance(annotation, type) and kind_of[annotation] is not None


def normalize_device(device: Any) -> str:
    """Name of a device, such as ``"cpu"`` or ``"cuda:1"``.

    Parameters
    ----------
    device : str or device object
        A name, with a number behind a colon or without, or CuPy's device object.

    Returns
    -------
    str

    Raises
    ------
    ArgumentError
        If no kind of array has that name.
    """
    if not isinstance(device, str) and hasattr(device, "id"):
        device = f"cuda:{device.id}"
    kind, colon, number = str(device).partition(":")
    # A fake array has the device of the array that it stands for.
    known = [name for name in known_kinds() if name != FAKE]
    if kind not in known or (colon and not number.isdecimal()):
        near = "" if kind in known else did_you_mean(kind, known)
        raise ArgumentError(
            f"unknown device {device!r}{near}; known: {quoted(known)}",
            do="use a known one, or register_array_type first",
        )
    return str(device)


def device_kind(device: str) -> str:
    """Kind of array that lives on a device."""
    return device.partition(":")[0]


add_array_type("cpu", np.ndarray)
add_array_type("cuda", "cupy.ndarray")
