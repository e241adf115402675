"""Types without parts, such as int and dtype: what fits as it is, and what is converted."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from customop.arrays.bits import has_bits
from customop.arrays.kinds import is_array, normalize_device
from customop.errors import ArgumentError
from customop.frozen import Frozen
from customop.schema.fit import Mismatch
from customop.schema.types import GENERATOR, SCALAR, Base, ListOf, Maybe, SchemaType

__all__ = ["exact_class", "exact_test", "examples_of", "needs_guard", "number_letter"]


# Kind of dtype -> class of Python.
NUMBER_CLASSES: dict[str, type] = {
    "b": bool,
    "i": int,
    "u": int,
    "f": float,
    "c": complex,
}


def number_letter(value: Any) -> str:
    """The letter of a number in `NUMBER_CLASSES`, or nothing for other values."""
    if isinstance(value, np.generic | np.ndarray):
        letter = value.dtype.kind
        return letter if letter in NUMBER_CLASSES and value.ndim == 0 else ""
    found = [letter for letter, cls in NUMBER_CLASSES.items() if isinstance(value, cls)]
    return found[0] if found else ""


def _to_int(value: Any) -> int:
    if number_letter(value) == "b":
        return int(value)
    # Also objects with `__index__`. A traced value raises its own error.
    return operator.index(value)


def _to_float(value: Any) -> float:
    if number_letter(value) not in ("b", "i", "u", "f"):
        raise Mismatch
    return float(value)


def _to_complex(value: Any) -> complex:
    if not number_letter(value):
        raise Mismatch
    return complex(value)


def _to_bool(value: Any) -> bool:
    if number_letter(value) not in ("b", "i", "u") or value not in (0, 1):
        raise Mismatch
    return bool(value)


def to_str(value: Any) -> str:
    if not isinstance(value, str):
        raise Mismatch
    # The text itself, even if a subclass prints something else.
    return str.__str__(value)


def to_scalar(value: Any) -> Any:
    letter = number_letter(value)
    if not letter:
        raise Mismatch
    return NUMBER_CLASSES[letter](value)


def _to_dtype(value: Any) -> np.dtype[Any]:
    # NumPy reads None as float64, a number as a flag, and an array as its own dtype.
    if value is None or number_letter(value) or is_array(value):
        raise Mismatch
    try:
        found: np.dtype[Any] = np.dtype(value)
    except SyntaxError:  # NumPy raises it for some strings
        raise Mismatch from None
    except TypeError:  # a dtype of another library, known by its name
        found = np.dtype(str(value).rpartition(".")[2])
    return found


def _to_device(value: Any) -> str:
    try:
        return normalize_device(value)
    except ArgumentError as error:
        raise Mismatch(f"is an {error.what}") from None


def _to_generator(value: Any) -> Any:
    if not has_bits(value):
        raise Mismatch
    return value


class BaseType(Frozen):
    """A type without parts, which `Base` names.

    Attributes
    ----------
    exact : type
        The class whose values need no coercion.
    convert : callable
        The coercion. It also takes the text of a default, which is ``str(value)``.
    examples : tuple
        Values that `opcheck` and `customop.testing.strategies` try, the likeliest first.
    """

    exact: type
    convert: Callable[[Any], Any]
    examples: tuple[Any, ...]


_DTYPES = tuple(np.dtype(name) for name in ("f8", "f4", "i8", "c16", "?"))
BASE_TYPES: dict[str, BaseType] = {
    "int": BaseType(int, _to_int, (1, 2, 0, 3, -1, 4)),
    "float": BaseType(float, _to_float, (0.5, 2.0, -0.75, 1.0, 0.0, 3.0)),
    "bool": BaseType(bool, _to_bool, (False, True)),
    "complex": BaseType(complex, _to_complex, (0.5 + 0.25j, 2.0 + 0j)),
    "str": BaseType(str, to_str, ("a", "", "linear", "mean", "same")),
    "Scalar": BaseType(float, to_scalar, (2.0, 0.5, 1, 3)),
    "dtype": BaseType(np.dtype, _to_dtype, _DTYPES),
    "device": BaseType(str, _to_device, ("cpu",)),
    # `exact_class` has the class: naming it here would import numpy.random. `opcheck`
    # makes a new generator for each call, so there are no examples.
    "Generator": BaseType(object, _to_generator, ()),
}

# Types whose values fit by their exact class. A str may not be a device.
PROVEN_BY_CLASS = {"int", "float", "bool", "complex", "str", "Scalar"}


def exact_class(declared: Base) -> type:
    """The class whose values a parameter of this type takes as they are."""
    return (
        np.random.Generator
        if declared == GENERATOR
        else BASE_TYPES[declared.name].exact
    )


def examples_of(declared: Base) -> tuple[Any, ...]:
    """Values to try for a parameter of this type, the likeliest first."""
    return BASE_TYPES[declared.name].examples


def needs_guard(declared: SchemaType) -> bool:
    """Whether the exact class of a scalar says that it fits this type."""
    inner = declared.item if isinstance(declared, Maybe) else declared
    return isinstance(inner, Base) and inner.name in PROVEN_BY_CLASS


def exact_test(declared: SchemaType) -> Callable[[Any], bool] | None:
    """A quick test that a list of numbers fits as it is, or None.

    It passes only values that the coercion returns unchanged: 0.3 us for the key of a
    slice in place of 8 us.
    """
    if isinstance(declared, Maybe):
        declared = declared.item
    if not isinstance(declared, ListOf) or declared.length is not None:
        return None
    own = tuple if declared.is_tuple else list
    classes = _exact_classes(declared.item)
    if classes is not None:
        return lambda value: type(value) is own and classes.issuperset(map(type, value))
    inner = exact_test(declared.item)
    if inner is None or isinstance(declared.item, Maybe):
        return None
    return lambda value: type(value) is own and all(map(inner, value))


def _exact_classes(declared: SchemaType) -> set[type] | None:
    """The classes whose values fit a type as they are; None unless it is of numbers."""
    is_maybe = isinstance(declared, Maybe)
    inner = declared.item if isinstance(declared, Maybe) else declared
    if not isinstance(inner, Base) or inner.name not in PROVEN_BY_CLASS:
        return None
    classes = (
        set(NUMBER_CLASSES.values())
        if inner == SCALAR
        else {BASE_TYPES[inner.name].exact}
    )
    return classes | {type(None)} if is_maybe else classes
