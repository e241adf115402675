"""Values and types side by side: what fits, what is converted, and default values."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from customop.arrays.array import read_dtype
from customop.arrays.kinds import has_device, is_array, is_traced, normalize_device
from customop.arrays.nested import show
from customop.arrays.refusals import has_bits
from customop.errors import ArgumentError, did_you_mean
from customop.frozen import Frozen
from customop.schema.types import (
    DEVICE,
    DTYPE,
    GENERATOR,
    SCALAR,
    ArrayType,
    Base,
    Choice,
    ClassOf,
    DictOf,
    ListOf,
    Maybe,
    SchemaType,
    TupleOf,
    holds_arrays,
    place_in,
    typed_items,
)
from customop.shapes.sizes import Symbolic, number_class

# ---- walks over a value and its type ----
# One walk over a value and its schema type side by side, which says if they fit.


NestedType: TypeAlias = ListOf | TupleOf | DictOf | ClassOf


class Mismatch(Exception):
    """A value does not fit a schema type; the text says why."""


class Visitor:
    """A walk over a value and its type; subclasses say what fits.

    A method raises `Mismatch` for a value that does not fit; otherwise it returns the
    result for that value. The methods of this class accept everything.
    """

    def visit(self, value: Any, declared: SchemaType) -> Any:
        """Walk over a value.

        Raises
        ------
        Mismatch
            If it does not fit the type.
        """
        if isinstance(declared, Base):
            return self.base(value, declared)
        if isinstance(declared, Maybe):
            return None if value is None else self.visit(value, declared.item)
        if isinstance(declared, ArrayType):
            return self.array(value, declared)
        if isinstance(declared, Choice):
            return self.choice(value, declared)
        if isinstance(declared, ClassOf) and declared.is_enum:
            return self.member(value, declared)
        opened = self.open(value, declared)
        parts = typed_items(opened, declared)
        items: list[Any] = []
        try:
            for _, item, item_type in parts:
                items.append(self.visit(item, item_type))
        except Mismatch as error:
            # Those that fit are in `items`, so the next one is at fault.
            place = place_in(declared, parts[len(items)][0])
            raise Mismatch(f"at {place} {error}") from None
        return self.close(opened, declared, items)

    def fault(self, value: Any, declared: SchemaType) -> str:
        """Explain why a value does not fit its type, or return nothing."""
        try:
            self.visit(value, declared)
        except Mismatch as error:
            return str(error)
        return ""

    def base(self, value: Any, declared: Base) -> Any:
        """Visit a number, string, dtype or the like."""
        return value

    def array(self, value: Any, declared: ArrayType) -> Any:
        """Visit an array, or a number in its place."""
        return value

    def choice(self, value: Any, declared: Choice) -> Any:
        """Visit one of several values."""
        return value

    def member(self, value: Any, declared: ClassOf) -> Any:
        """Visit a member of an Enum."""
        return value

    def open(self, value: Any, declared: NestedType) -> Any:
        """Return a nested value in the form that `typed_items` can take apart."""
        return value

    def close(self, value: Any, declared: NestedType, items: list[Any]) -> Any:
        """Return the result for a nested value from the results for its items."""
        return value


class _Arguments(Visitor):
    """Checks the arrays of arguments that were coerced."""

    def array(self, value: Any, declared: ArrayType) -> Any:
        if is_array(value) or (
            declared.or_number and isinstance(value, int | float | complex | Symbolic)
        ):
            return value
        raise Mismatch(f"expects {declared}, got {show(value)}")


ARGUMENTS: Visitor = _Arguments()


def typed_arrays(
    value: Any, declared: SchemaType, where: str = ""
) -> Iterator[tuple[str, Any, ArrayType]]:
    """Return each array of a value, or number in its place: place, value and type.

    Parts that do not fit their type are left out.
    """
    if isinstance(declared, Maybe):
        declared = declared.item
        if value is None:
            return
    if isinstance(declared, ArrayType):
        yield where, value, declared
    elif holds_arrays(declared):
        for step, item, item_type in _items_that_fit(value, declared):
            place = place_in(declared, step)
            yield from typed_arrays(item, item_type, f"{where} at {place}")


def _items_that_fit(
    value: Any, declared: SchemaType
) -> Sequence[tuple[Any, Any, SchemaType]]:
    try:
        return typed_items(value, declared)
    except (TypeError, AttributeError, ValueError, KeyError):
        return ()


# ---- arguments: what a call may pass, and what the kernel gets ----


def _fits_symbolic(value: Symbolic, name: str) -> bool:
    """Return whether a parameter of a type takes a symbolic number as it is.

    A kernel of real arrays never gets one.
    """
    if number_class(value) is bool:
        return name in ("bool", "Scalar")
    if isinstance(value, numbers.Integral):
        return name in ("int", "float", "complex", "Scalar")
    return isinstance(value, numbers.Real) and name in ("float", "complex", "Scalar")


def _as_declared(value: Any, name: str) -> Any:
    """Convert a symbolic number to the class of Python that a kernel gets."""
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
    """Suggest a known text that resembles the one given, as a question."""
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
    """Explain why an object of a class that looks right has the wrong class."""
    if isinstance(value, declared.cls):
        return ", of a derived class, whose other fields transforms would not see"
    same = type(value).__qualname__ == declared.cls.__qualname__
    return ", whose class has since been defined again" if same else ""


# Type -> what to pass for it.
_PASS: dict[SchemaType, str] = {
    DEVICE: "pass the name of a known device, such as 'cpu'",
    DTYPE: "pass a dtype, such as np.float32",
}
_NUMBERS = [Base(name) for name in ("bool", "int", "float", "complex")]


def remedy(declared: SchemaType, value: Any, name: str) -> str:
    """Say how a user can fix an argument that does not fit."""
    inner = declared.item if isinstance(declared, Maybe) else declared
    if value is None:
        return f"pass a value, or annotate {name} with '... | None'"
    if inner == Base("int") and isinstance(value, float):
        return (
            f"pass int({value!r})"
            if value.is_integer()
            else f"pass an int, or declare {name}: float"
        )
    if inner in _NUMBERS and is_array(value):
        return f"pass a Python number, or annotate {name}: np.ndarray | {inner}"
    return _PASS.get(inner) or _fitting(inner)


def _fitting(declared: SchemaType) -> str:
    """Say how to write a value of a type."""
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


# ---- default values: they fit their types, cannot change, and have a text ----


_MUTABLE = "a default must be immutable: write a tuple or a number"


def check_default(value: Any, declared: SchemaType) -> Any:
    """Return the default as the schema keeps it: it cannot change, and has a text.

    Raises
    ------
    Mismatch
        If it does not fit the type, could change, or has no text.
    """
    inner = declared.item if isinstance(declared, Maybe) else declared
    if value is None and inner is declared:
        raise Mismatch("only an Optional parameter has the default None")
    if isinstance(value, list | dict | set | bytearray | np.ndarray):
        raise Mismatch(_MUTABLE)
    if value is not None and inner == Base("bool") and number_letter(value) != "b":
        raise Mismatch(f"expects bool, got {show(value)}")
    return _DEFAULT.visit(coerce(value, declared), declared)


class _Default(Visitor):
    """Turns a coerced default into a value that cannot change."""

    def base(self, value: Any, declared: Base) -> Any:
        if declared == GENERATOR:
            raise Mismatch(
                "a Generator can only have the default None, since drawing changes it"
            )
        if declared == DTYPE and not _has_text(value):
            raise Mismatch("this dtype has no text in a schema")
        _check_digits(value)
        return value

    def choice(self, value: Any, declared: Choice) -> Any:
        _check_digits(value)
        return value

    def array(self, value: Any, declared: ArrayType) -> Any:
        if declared.or_number and number_letter(value):
            _check_digits(value)
            return to_scalar(value)
        raise Mismatch("an array can only have the default None")

    def open(self, value: Any, declared: NestedType) -> Any:
        if isinstance(declared, DictOf):
            raise Mismatch(_MUTABLE)
        if isinstance(declared, ClassOf) and not declared.fields.is_frozen:
            raise Mismatch(_MUTABLE)
        return value

    def close(self, value: Any, declared: NestedType, items: list[Any]) -> Any:
        if isinstance(declared, ClassOf):
            return declared.fields.like(value, items)
        return tuple(items)


_DEFAULT = _Default()


def _check_digits(value: Any) -> None:
    """Raise for an int that Python cannot print, and so a schema cannot show.

    Raises
    ------
    Mismatch
    """
    try:
        repr(value)
    except ValueError as error:
        raise Mismatch(f"a number in a schema must have a text: {error}") from None


def _has_text(dtype: np.dtype[Any]) -> bool:
    """Return whether the text of a dtype, or of its fields, can be read back."""
    describe, read = np.lib.format.dtype_to_descr, np.lib.format.descr_to_dtype
    text: Any = str(dtype) if dtype.names is None else describe(dtype)
    try:
        return bool(read(text) == dtype)
    except (TypeError, ValueError, SyntaxError):  # its text means another dtype
        return False


# ---- types without parts, such as int and dtype ----
# Most values fit as they are; a few are converted.


# Kind of dtype -> class of Python.
NUMBER_CLASSES: dict[str, type] = {
    "b": bool,
    "i": int,
    "u": int,
    "f": float,
    "c": complex,
}


def number_letter(value: Any) -> str:
    """Return the letter of a number in `NUMBER_CLASSES`; "" for other values."""
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
    """Return the text of a string, or raise Mismatch."""
    if not isinstance(value, str):
        raise Mismatch
    # The text itself, even if a subclass prints something else.
    return str.__str__(value)


def to_scalar(value: Any) -> Any:
    """Return Python's number of the same value, or raise Mismatch."""
    letter = number_letter(value)
    if not letter:
        raise Mismatch
    return NUMBER_CLASSES[letter](value)


def _to_dtype(value: Any) -> np.dtype[Any]:
    # NumPy reads None as float64, a number as a flag, and an array as its own dtype.
    if value is None or number_letter(value) or is_array(value):
        raise Mismatch
    try:
        found = read_dtype(value)
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
    """Return the class whose values a parameter of this type takes as they are."""
    return (
        np.random.Generator
        if declared == GENERATOR
        else BASE_TYPES[declared.name].exact
    )


def examples_of(declared: Base) -> tuple[Any, ...]:
    """Return values to try for a parameter of this type, the likeliest first."""
    return BASE_TYPES[declared.name].examples


def needs_guard(declared: SchemaType) -> bool:
    """Return whether a scalar of the exact class is proven to fit this type."""
    inner = declared.item if isinstance(declared, Maybe) else declared
    return isinstance(inner, Base) and inner.name in PROVEN_BY_CLASS


def exact_test(declared: SchemaType) -> Callable[[Any], bool] | None:
    """Write a quick test that a list of numbers fits as it is, or return None.

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
    """Return the classes of numbers whose values fit a type as they are, or None."""
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
