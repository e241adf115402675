"""Arguments: what a call may pass, and what the kernel gets."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from customop.arrays.describe import show
from customop.arrays.kinds import has_device, is_array, is_traced
from customop.errors import ArgumentError, did_you_mean
from customop.schema.base_types import (
    BASE_TYPES,
    NUMBER_CLASSES,
    PROVEN_BY_CLASS,
    exact_test,
    to_str,
)
from customop.schema.fit import Mismatch, NestedType, Visitor
from customop.schema.types import (
    DEVICE,
    DTYPE,
    Base,
    Choice,
    ClassOf,
    DictOf,
    ListOf,
    Maybe,
    SchemaType,
    TupleOf,
    holds_arrays,
)
from customop.shapes.sizes import number_class
from customop.shapes.symbols import Symbolic

__all__ = ["coerce", "coercion", "remedy"]

if TYPE_CHECKING:
    from customop.schema.parameters import Parameter
    from customop.schema.schema import Schema


def _fits_symbolic(value: Symbolic, name: str) -> bool:
    """Whether a parameter of a type takes a symbolic number as it is.

    A kernel of real arrays never gets one.
    """
    if number_class(value) is bool:
        return name in ("bool", "Scalar")
    if isinstance(value, numbers.Integral):
        return name in ("int", "float", "complex", "Scalar")
    return isinstance(value, numbers.Real) and name in ("float", "complex", "Scalar")


def _as_declared(value: Any, name: str) -> Any:
    """A symbolic number in the class of Python that a kernel gets."""
    own = number_class(value)
    cls = _SYMBOLIC_CLASSES.get(name)
    if cls is None:  # any number
        letter = np.dtype(own).kind
        cls = own if own.__module__ == "builtins" else NUMBER_CLASSES[letter]
    return value if cls is own else value.context.as_class(value, cls)


_SYMBOLIC_CLASSES: dict[str, type] = {"int": int, "float": float, "complex": complex}


class _Coercion(Visitor):
    """Turns an argument into what a kernel gets. A value that fits stays the same.

    Arrays are checked later, when a kernel is picked, and by their shapes.
    """

    def base(self, value: Any, declared: Base) -> Any:
        plain = BASE_TYPES[declared.name]
        if type(value) is plain.exact and declared.name in PROVEN_BY_CLASS:
            return value
        if isinstance(value, Symbolic) and _fits_symbolic(value, declared.name):
            return _as_declared(value, declared.name)
        try:
            return plain.convert(value)
        except OverflowError:
            reason = f"expects {declared}, got a number out of its range"
            raise Mismatch(reason) from None
        except (Mismatch, ValueError) as error:
            reason = str(error) if isinstance(error, Mismatch) else ""
            raise Mismatch(reason or _expects(declared, value)) from None
        except TypeError as error:
            if is_traced(value):  # its own error says what to do
                raise
            raise Mismatch(_expects(declared, value)) from error

    def choice(self, value: Any, declared: Choice) -> Any:
        try:
            found = self.base(value, Base(declared.name))
        except Mismatch:
            found = None
        if found not in declared.options:
            raise Mismatch(_expects(declared, value) + _near(value, declared.options))
        return found

    def member(self, value: Any, declared: ClassOf) -> Any:
        cls: Any = declared.cls
        if isinstance(value, cls):
            return value
        if not has_device(value):  # an array may equal anything
            try:
                found = cls(value)
            except (ValueError, TypeError):
                found = None
            if found is not None and _is_bool(found.value) == _is_bool(value):
                return found
        raise Mismatch(_expects(declared, value) + _near(value, [m.value for m in cls]))

    def open(self, value: Any, declared: NestedType) -> Any:
        if isinstance(declared, ListOf):
            return _as_list(value, declared)
        if isinstance(declared, TupleOf):
            _check_tuple(value, declared)
        elif isinstance(declared, DictOf) or declared.fields.is_dict:
            _check_dict(value, declared)
        else:
            _check_object(value, declared)
        return value

    def close(self, value: Any, declared: NestedType, items: list[Any]) -> Any:
        if isinstance(declared, ClassOf) and not declared.fields.is_dict:
            same = all(map(operator.is_, declared.fields.items(value), items))
            return value if same else declared.fields.like(value, items)
        if isinstance(declared, ListOf | TupleOf):
            is_list = isinstance(declared, ListOf) and not declared.is_tuple
            wanted = list if is_list else tuple
            same = type(value) is wanted and all(map(operator.is_, value, items))
            return value if same else wanted(items)
        same = type(value) is dict and all(map(operator.is_, value.values(), items))
        pairs = zip(value, items, strict=True)
        return value if same else {to_str(key): item for key, item in pairs}


coerce: Callable[[Any, SchemaType], Any] = _Coercion().visit


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def _expects(declared: SchemaType, value: Any, what: str = "") -> str:
    return f"expects {declared}{what}, got {show(value)}"


def _near(value: Any, known: Sequence[Any]) -> str:
    """A known text that is like the one given, as a question."""
    texts = [name for name in known if isinstance(name, str)]
    return did_you_mean(value, texts) if isinstance(value, str) else ""


def _as_list(value: Any, declared: ListOf) -> Any:
    if declared.length is not None and isinstance(value, int | float | bool):
        return [value] * declared.length
    if isinstance(value, np.ndarray) and value.ndim == 1 and not holds_arrays(declared):
        value = value.tolist()
    if not isinstance(value, list | tuple) and (
        isinstance(value, str | bytes) or not isinstance(value, Sequence)
    ):
        raise Mismatch(_expects(declared, value, ", a list"))
    if declared.length is not None and len(value) != declared.length:
        raise Mismatch(f"expects {declared}, got {len(value)} items")
    return value


def _check_tuple(value: Any, declared: TupleOf) -> None:
    if not isinstance(value, tuple | list):
        raise Mismatch(_expects(declared, value, ", a tuple"))
    if len(value) != len(declared.items):
        raise Mismatch(f"expects {declared}, got {len(value)} items")


def _check_dict(value: Any, declared: DictOf | ClassOf) -> None:
    if not isinstance(value, Mapping):
        raise Mismatch(_expects(declared, value, ", a dict"))
    known = declared.items if isinstance(declared, ClassOf) else None
    for key in value:
        if not isinstance(key, str) or (known is not None and key not in known):
            near = _near(key, list(known or ()))
            raise Mismatch(f"expects {declared}, got the key {show(key)}{near}")
    if isinstance(declared, ClassOf):
        required = declared.fields.required
        missing = [n for n in declared.items if n in required and n not in value]
        if missing:
            raise Mismatch(f"expects {declared}, got no key '{missing[0]}'")


def _check_object(value: Any, declared: ClassOf) -> None:
    if type(value) is not declared.cls:
        raise Mismatch(_expects(declared, value) + _other_class(value, declared))
    lacking = [name for name in declared.items if not hasattr(value, name)]
    if lacking:
        raise Mismatch(f"expects {declared}, got an object without '{lacking[0]}'")


def _other_class(value: Any, declared: ClassOf) -> str:
    """Why an object has the wrong class, if it looks right."""
    if isinstance(value, declared.cls):
        return ", of a derived class, whose other fields transforms would not see"
    same = type(value).__qualname__ == declared.cls.__qualname__
    return ", whose class has since been defined again" if same else ""


# Type -> what to pass for it.
_PASS: dict[SchemaType, str] = {
    DEVICE: "pass the name of a known device, such as 'cpu'",
    DTYPE: "pass a dtype, such as np.float32",
}


def remedy(declared: SchemaType, value: Any, name: str) -> str:
    """How a user can fix an argument that does not fit."""
    inner = declared.item if isinstance(declared, Maybe) else declared
    if value is None:
        return f"pass a value, or annotate {name} with '... | None'"
    if inner == Base("int") and isinstance(value, float):
        return (
            f"pass int({value!r})"
            if value.is_integer()
            else f"pass an int, or declare {name}: float"
        )
    if isinstance(inner, Base) and is_array(value):
        return f"pass a Python number, or declare {name}: Array"
    return _PASS.get(inner) or _fitting(inner)


def _fitting(declared: SchemaType) -> str:
    """How to write a value of a type."""
    if isinstance(declared, ListOf):
        return f"pass a list of {declared.item}"
    if isinstance(declared, DictOf):
        return f'pass a dict such as {{"name": {declared.item}}}'
    if isinstance(declared, Choice):
        return f"pass one of {', '.join(map(repr, declared.options))}"
    if isinstance(declared, ClassOf):
        return _remedy_for_object(declared)
    return f"pass a value of type {declared}"


def _remedy_for_object(declared: ClassOf) -> str:
    name = declared.cls.__name__
    if declared.is_enum:
        members: Any = list(declared.cls)  # type: ignore[call-overload]  # an Enum
        return f"pass {' or '.join(f'{name}.{m.name}' for m in members[:5])}"
    if declared.fields.is_dict:
        keys = ", ".join(f'"{key}": {item}' for key, item in declared.items.items())
        return f"pass {{{keys}}}"
    given = ", ".join(f"{key}: {item}" for key, item in declared.items.items())
    return f"pass {name}({given})"


def coercion(
    qualname: str, schema: Schema, parameter: Parameter
) -> Callable[[Any], Any]:
    """A function that coerces one argument and names it in errors."""
    declared, name = parameter.type, parameter.name
    fits = exact_test(declared) or (lambda value: False)

    def coerce_argument(value: Any) -> Any:
        if fits(value):
            return value
        try:
            return coerce(value, declared)
        except Mismatch as error:
            raise schema.error(
                ArgumentError,
                qualname,
                f"argument '{name}' {error}",
                do=remedy(declared, value, name),
                parameter=name,
            ) from None

    return coerce_argument
