"""The table between annotations of Python and types of a schema."""

from __future__ import annotations

import collections.abc
import numbers
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, Final, TypeAlias, TypeVar, Union

import numpy as np

from customop.arrays.array import Array, element_of_names, element_of_scalar
from customop.arrays.kinds import is_array_class
from customop.arrays.nested import nests
from customop.errors import RegistrationError, SchemaError, shown, warn_caller
from customop.frozen import Frozen
from customop.later import later
from customop.schema.config_classes import (
    ClassFields,
    declare,
    fields_of,
    is_config_class,
    register_pytree,
    withdraw,
)
from customop.schema.types import (
    ARRAY,
    DEVICE,
    DTYPE,
    GENERATOR,
    OPERAND,
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
    classes,
    holds_arrays,
)
from customop.shapes.notation import Shape, parse_shape

dataclasses: ModuleType = later(import_module, "dataclasses")


# ---- the table between annotations of Python and types of a schema ----


ConfigT = TypeVar("ConfigT")
Scalar: TypeAlias = int | float | bool | complex


class Meaning(Frozen):
    """A mark in our aliases, such as `DType`, that says which schema type they mean."""

    name: str

    def __repr__(self) -> str:
        return self.name


Device: TypeAlias = Annotated[str, Meaning("device")]


# ---- annotation -> schema type: one row, one line ----
_ANNOTATIONS: dict[Any, SchemaType] = {
    Array: ARRAY,
    np.ndarray: ARRAY,
    int: Base("int"),
    float: Base("float"),
    bool: Base("bool"),
    complex: Base("complex"),
    str: Base("str"),
    np.dtype: DTYPE,
    Device: DEVICE,
}

# Name in a schema string -> schema type; torch's names are here too.
NAMES: dict[str, SchemaType] = {
    "Array": ARRAY,
    "Tensor": ARRAY,
    "Array|Scalar": OPERAND,
    "int": Base("int"),
    "SymInt": Base("int"),
    "float": Base("float"),
    "bool": Base("bool"),
    "complex": Base("complex"),
    "str": Base("str"),
    "Scalar": SCALAR,
    "dtype": DTYPE,
    "ScalarType": DTYPE,
    "device": DEVICE,
    "Device": DEVICE,
    "Generator": GENERATOR,
}

_FIXED = frozenset(known for known in _ANNOTATIONS if isinstance(known, type))
# Classes of users may have others, which compare as they like.
_METACLASSES = frozenset(map(type, _FIXED))


def is_fixed(annotation: Any) -> bool:
    """Return whether an annotation means the same type whatever is registered."""
    return type(annotation) in _METACLASSES and annotation in _FIXED


_LISTS = (list, collections.abc.Sequence)
_NUMBERS = (int, float, bool, complex)


def schema_type(annotation: Any) -> SchemaType:
    """Return the schema type of an annotation.

    Raises
    ------
    SchemaError
        If it has none; the text says what to use instead.
    """
    known = _lookup(annotation)
    if known is not None:
        return known
    if _is_hint_of_numpy(annotation, "ArrayLike"):
        raise no_type("ArrayLike", "write Array, and let the caller convert")
    if isinstance(annotation, TypeVar | typing.TypeVar):
        return _of_type_variable(annotation)
    if is_jaxtyped(annotation):
        inner = annotation.array_type
        return of_jaxtyped(annotation, ARRAY if inner is Any else schema_type(inner))
    if is_config_class(annotation):
        return class_type(annotation)
    return _of_form(annotation, typing.get_origin(annotation))


def _of_form(annotation: Any, origin: Any) -> SchemaType:
    """Return the schema type of an alias, a union, a generic or the like."""
    items = typing.get_args(annotation)
    for attribute in ("__supertype__", "__value__"):  # a NewType, a type alias
        if origin is None and hasattr(annotation, attribute):
            return schema_type(getattr(annotation, attribute))
    if origin is Annotated:
        return _of_annotated(*items)
    if origin is Union or isinstance(annotation, types.UnionType):
        return _of_union(items)
    if origin is typing.Literal:
        return _of_literal(annotation, items)
    if origin is not None:
        return _of_generic(annotation, origin, items)
    raise no_type(annotation)


def _is_hint_of_numpy(annotation: Any, name: str) -> bool:
    # Hints of a module that is not imported cannot occur; its import takes 0.4 ms.
    hint = getattr(sys.modules.get("numpy.typing"), name, None)
    return type(annotation) is type(hint) and bool(annotation == hint)


def _lookup(annotation: Any) -> SchemaType | None:
    try:
        known = _ANNOTATIONS.get(annotation)
    except TypeError:  # an unhashable annotation, such as Annotated[int, []]
        return None
    if known is not None:
        return known
    if _is_hint_of_numpy(annotation, "DTypeLike"):
        return DTYPE
    if _is_generator(annotation):
        return GENERATOR
    if is_array_class(annotation) and not issubclass(annotation, np.generic):
        return ARRAY  # a NumPy scalar can be passed, but is not a class of arrays
    return None


def _is_generator(annotation: Any) -> bool:
    # By name, since naming the class imports numpy.random, which takes 9 ms.
    module = str(getattr(annotation, "__module__", ""))
    name = getattr(annotation, "__name__", "")
    return name == "Generator" and module.startswith(("numpy.random", "cupy.random"))


def _of_annotated(inner: Any, *notes: Any) -> SchemaType:
    # Python flattens Annotated[DType, "note"], so the mark of DType is a note too.
    meanings = [note for note in notes if isinstance(note, Meaning)]
    if meanings:
        return NAMES[meanings[0].name]
    return with_notes(schema_type(inner), inner, notes)


def _of_type_variable(variable: Any) -> SchemaType:
    bound = evaluated(variable.__bound__, variable)
    if bound is not None:
        return schema_type(bound)
    options = [evaluated(option, variable) for option in variable.__constraints__]
    found = {schema_type(option) for option in options}
    if len(found) == 1:
        return found.pop()
    name = variable.__name__
    raise no_type(variable, f'give it a bound: TypeVar("{name}", bound=Array)')


def evaluated(hint: Any, variable: Any) -> Any:
    """Evaluate a bound that is text where the type variable was made."""
    if not isinstance(hint, typing.ForwardRef | str):
        return hint
    names = vars(sys.modules[variable.__module__])
    holder = types.SimpleNamespace(__annotations__={"bound": hint})
    try:
        return typing.get_type_hints(holder, names)["bound"]
    except NameError as error:
        missing = (
            f"define {error.name} in {variable.__module__}, or give a class as bound"
        )
        raise no_type(variable, missing) from None


def _of_union(options: tuple[Any, ...]) -> SchemaType:
    rest = [option for option in options if option is not type(None)]
    found = _of_options(rest)
    is_optional = len(rest) < len(options) and not isinstance(found, Maybe)
    return Maybe(found) if is_optional else found


def _of_options(rest: list[Any]) -> SchemaType:
    if len(rest) == 1:
        return schema_type(rest[0])
    numbers = [option for option in rest if option in _NUMBERS]
    others = [option for option in rest if option not in _NUMBERS]
    if not others:
        return SCALAR
    found = {schema_type(option) for option in others}
    if len(found) == 1:
        (declared,) = found
        if not numbers:
            return declared
        if isinstance(declared, ArrayType) and not declared.or_number:
            return declared.replaced(or_number=True)
    shown = " | ".join(show_annotation(option) for option in rest)
    raise no_type(shown, "make an operator for each type")


def _of_generic(annotation: Any, origin: Any, items: tuple[Any, ...]) -> SchemaType:
    if origin in _LISTS and items:
        return ListOf(schema_type(items[0]))
    if origin is tuple and items and items != ((),):
        return _of_tuple(items)
    if origin is dict and items and items[0] is str:
        return DictOf(schema_type(items[1]))
    if hasattr(origin, "__value__"):
        return schema_type(substituted(origin, items))
    if _lookup(origin) is not None or is_config_class(origin):
        return schema_type(origin)
    raise no_type(annotation, instead_of(origin))


def _of_tuple(items: tuple[Any, ...]) -> SchemaType:
    if len(items) == 2 and items[1] is Ellipsis:
        return ListOf(schema_type(items[0]), is_tuple=True)
    return TupleOf(tuple(schema_type(item) for item in items))


# Class of the values of a Literal -> name of their type.
_LITERALS: dict[type, str] = {str: "str", int: "int", bool: "bool"}


def _of_literal(annotation: Any, values: tuple[Any, ...]) -> SchemaType:
    rest = tuple(value for value in values if value is not None)
    found = {_LITERALS.get(type(value)) for value in rest}
    (name,) = found if len(found) == 1 else (None,)
    if name is None:
        raise no_type(annotation, "give values that are all str, all int or all bool")
    if name == "int" and any(abs(value) > sys.maxsize for value in rest):
        raise no_type("Literal", "give numbers of at most 64 bits")
    declared = Choice(name, rest)
    return declared if len(rest) == len(values) else Maybe(declared)


# ---- classes of config objects ----

# Gives the names that an annotation may use, once they are needed.
_Names: TypeAlias = Callable[[], Mapping[str, Any]]


def class_type(
    cls: type, names: _Names = dict, within: tuple[type, ...] = ()
) -> ClassOf:
    """Return the schema type of a class of config objects, and note its name.

    `names` gives names that annotations of its fields may use in addition to those of
    the module; `within` are the classes that it is a field of.

    Raises
    ------
    SchemaError
        If a field has no schema type, or the class cannot be found by its name.
    """
    name = f"{cls.__module__}.{cls.__qualname__}"
    known = classes.get(name)
    if known is not None and known.cls is cls:
        return known
    if not CLASS_NAME.fullmatch(name):
        raise no_type(cls, f"define it where it can be found by name: {name!r} cannot")
    if cls in within:
        raise no_type(cls, "remove the field that holds an object of the class itself")
    fields = _fields(cls, names, (*within, cls))
    types = {n: _field_type(cls, n, h) for n, h in fields.hints.items()}
    found = classes[name] = ClassOf(name, fields, types)
    if holds_arrays(found) and not fields.is_dict:
        nests[cls] = fields
    moving = [n for n, declared in types.items() if holds_arrays(declared)]
    register_pytree(fields, moving)
    return found


def find_class(name: str) -> ClassOf | None:
    """Return the type of a class by its qualified name, if its module is imported."""
    module, _, rest = name.rpartition(".")
    while module and module not in sys.modules:
        module, _, outer = module.rpartition(".")
        rest = f"{outer}.{rest}"
    found: Any = sys.modules.get(module)
    for part in rest.split("."):
        found = getattr(found, part, None)
    return class_type(found) if is_config_class(found) else classes.get(name)


# A qualified name in a schema string.
CLASS_NAME = later(re.compile, r"[^\W\d]\w*(\.(\w+|<locals>))+")


def _fields(cls: type, names: _Names, within: tuple[type, ...]) -> ClassFields:
    try:
        found = _fields_within(cls, names)
        for hint in found.hints.values():
            _look_into(hint, names, within)
    except NameError as error:
        missing = f"define {error.name} in {cls.__module__} before the operator"
        raise no_type(cls, missing) from None
    except (TypeError, ValueError) as error:
        if isinstance(error, SchemaError):
            raise
        raise no_type(cls, f"change the class: {error}") from None
    return found


def _fields_within(cls: type, names: _Names) -> ClassFields:
    try:
        return fields_of(cls, {})
    except NameError:  # names around a function are rarely needed, and slow to find
        return fields_of(cls, names())


def _look_into(hint: Any, names: _Names, within: tuple[type, ...]) -> None:
    """Register the classes in an annotation while the names around them are known."""
    if type(hint) is type and hint in _ANNOTATIONS:
        return
    if is_config_class(hint):
        class_type(hint, names, within)
    for item in typing.get_args(hint):
        if item is not hint:
            _look_into(item, names, within)


def _field_type(cls: type, name: str, hint: Any) -> SchemaType:
    try:
        return schema_type(hint)
    except SchemaError as error:
        error.where = (f"in field '{name}' of {show_annotation(cls)}", *error.where)
        raise


def meet_classes(hint: Any, names: _Names) -> None:
    """Register the classes in an annotation, with the names around a function."""
    try:
        _look_into(hint, names, ())
    except SchemaError:
        # `schema_type` raises it again, where the parameter is known.
        return


def register_config_type(cls: type[ConfigT]) -> type[ConfigT]:
    """Allow objects of a class as arguments of operators, as config objects.

    Enums, frozen dataclasses, NamedTuples and TypedDicts need no registration. The
    fields of any other class are the annotated parameters of its constructor; each must
    be kept as an attribute of the same name. Do not change an object after it was
    passed to an operator, which would not notice.

    Parameters
    ----------
    cls : type
        A class that can be imported by name, such as a mutable dataclass. Its fields
        have schema types; every transform sees the arrays among them.

    Returns
    -------
    type
        The class, so that this can be used as a decorator.

    Raises
    ------
    RegistrationError
        If `cls` is not a class, is built into Python, or is a class of arrays.
    SchemaError
        If a field has no schema type, or objects cannot be made of their fields.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.register_config_type
    ... class Window:
    ...     def __init__(self, taps: np.ndarray, shift: int = 0):
    ...         self.taps, self.shift = taps, shift
    >>> @co.custom_op("doc::smooth", mutates_args=())
    ... def smooth(x: np.ndarray, window: Window) -> np.ndarray:
    ...     return np.roll(np.convolve(x, window.taps, "same"), window.shift)
    >>> smooth(np.array([0.0, 2.0, 0.0]), Window(np.array([0.5, 0.5])))
    array([0., 1., 1.])
    """
    if not isinstance(cls, type) or cls.__module__ == "builtins" or is_array_class(cls):
        raise RegistrationError(
            f"register_config_type: {show_annotation(cls)} is not a class of config objects",
            do="pass a class of your own, with annotated fields",
        )
    scope = sys._getframe(1)
    declare(cls)
    try:
        class_type(cls, lambda: scope.f_locals)
    except SchemaError:
        withdraw(cls)
        raise
    return cls


# ---- Annotated ----


def with_notes(
    declared: SchemaType, annotation: Any, notes: Sequence[Any]
) -> SchemaType:
    """Return the type of ``Annotated[annotation, *notes]`` from that of its first part.

    A text after an array, or after an optional array, is its shape. Other notes are
    ignored.

    Raises
    ------
    SchemaError
        If the text is not a shape, or the array already has one.
    """
    texts = [note for note in notes if isinstance(note, str)]
    array = declared.item if isinstance(declared, Maybe) else declared
    if not texts or not isinstance(array, ArrayType):
        return declared
    if len(texts) > 1 or array.shape is not None:
        first = array.shape.text if array.shape is not None else texts[0]
        raise SchemaError(
            f"an annotation with two shapes, {first!r} and {texts[-1]!r}",
            do="keep one: a text after an array is its shape",
        )
    element = elements_of(annotation) if array.element == "Array" else array.element
    shaped = array.replaced(element=element, shape=_read(texts[0]))
    return Maybe(shaped) if isinstance(declared, Maybe) else shaped


def _read(text: str) -> Shape:
    try:
        shape = parse_shape(text)
    except SchemaError as error:
        error.what = f"an annotation with {error.what}"
        raise
    axes = text.split()
    if _is_product(axes):
        warn_caller(
            f"an annotation with the shape {text!r}: it has {len(axes)} axes, since 'x'"
            f" is the name of an axis\n  do: write {' '.join(axes[::2])!r}, or give the"
            " axis another name"
        )
    return shape


def _is_product(axes: Sequence[str]) -> bool:
    """Return whether axes are written as in "m x k"; "y x c" names coordinates."""
    others = axes[::2]
    return 1 < len(others) != len(axes[1::2]) and (
        {*axes[1::2]} == {"x"} and {"x", "y", "z"}.isdisjoint(others)
    )


def substituted(alias: Any, items: tuple[Any, ...]) -> Any:
    """Return the value of a generic type alias with its type parameters filled in."""
    given = dict(zip(alias.__type_params__, items, strict=True))
    value = alias.__value__
    order = getattr(value, "__parameters__", ())
    return value[tuple(given[variable] for variable in order)] if order else value


def elements_of(annotation: Any) -> str:
    """Return the class of elements in an annotation such as ``NDArray[np.float32]``."""
    origin, items = typing.get_origin(annotation), typing.get_args(annotation)
    if hasattr(origin, "__value__"):  # NDArray itself, from Python 3.12 on
        return elements_of(substituted(origin, items))
    if hasattr(annotation, "__value__"):
        return elements_of(annotation.__value__)
    if origin is not np.ndarray:
        found = [elements_of(item) for item in items if item is not type(None)]
        return found[0] if len(set(found)) == 1 else "Array"
    inside = typing.get_args(items[1]) if len(items) == 2 else ()
    return element_of_scalar(inside[0] if inside else None)


# ---- annotations with a shape or a class of elements ----
# ``Annotated[Array, "m k"]``, and jaxtyping's ``Float[np.ndarray, "m k"]``. The latter
# is recognized by its attributes, so that jaxtyping is not imported.


_JAXTYPED: Final = ("array_type", "dim_str", "dtypes", "dtype")


def is_jaxtyped(annotation: object) -> bool:
    """Return whether an annotation is one of jaxtyping's, by its attributes."""
    return isinstance(annotation, type) and all(
        hasattr(annotation, name) for name in _JAXTYPED
    )


def of_jaxtyped(annotation: Any, inner: SchemaType) -> SchemaType:
    """Return the type of a jaxtyping annotation for arrays of the type `inner`.

    Raises
    ------
    SchemaError
        If its dtypes are not a class of elements, or its shape is not supported.
    """
    element = _element_of(annotation.dtypes)
    if element is None or not isinstance(inner, ArrayType):
        raise SchemaError(
            f"annotation {annotation.__name__}, whose dtypes are not a class of elements",
            do="use Shaped, Bool, Int, UInt, Integer, Float, Complex, Inexact, Real, Num,"
            " or a single dtype such as Float32",
        )
    return ArrayType(element, _read(annotation.dim_str))


def _element_of(dtypes: Any) -> str | None:
    """Return the class of elements of jaxtyping's dtypes; None where there is none."""
    if not isinstance(dtypes, Sequence):  # any dtype
        return "Array"
    return element_of_names(str(name).removesuffix("_") for name in dtypes)


# ---- annotations and names without a schema type ----
# The error, and what to write instead.


_SUPPORTED = (
    "Array (or a class of arrays), bool, int, float, complex, str, Scalar, DType,"
    " Device, np.random.Generator, Literal, Enum, frozen dataclasses, NamedTuple,"
    " TypedDict, and Optional, list, Sequence, tuple and dict[str, ...] of these"
)

_SPLIT = "pass each value as a separate parameter"
_LIST = "write list[T], such as list[int]"
_DICT = "write dict[str, T], such as dict[str, float]"
_TUPLE = "write tuple[T, ...] or tuple[A, B]"
_TYPE = "write DType, or pass a name as str"
_NAME_TYPE = "name the type: Array, or one of the others"

# Annotation -> what to use instead.
INSTEAD: dict[Any, str] = {
    Any: _NAME_TYPE,
    object: _NAME_TYPE,
    list: _LIST,
    set: _LIST,
    frozenset: _LIST,
    tuple: _TUPLE,
    dict: _DICT,
    collections.abc.Mapping: _DICT,
    collections.abc.Sequence: _LIST,
    collections.abc.Iterable: "write Sequence[T]",
    collections.abc.Iterator: "write Sequence[T]",
    collections.abc.Callable: "make an operator for each function",
    bytes: "write str, or Array of the dtype uint8",
    type: _TYPE,
    slice: "pass start, stop and step as int parameters",
    range: "write list[int]: a range fits it",
    numbers.Number: "write Scalar",
    numbers.Real: "write float",
    numbers.Integral: "write int",
}

# Name in a schema string that is not a type -> what to write.
FOREIGN: dict[str, str] = {
    "double": "write float",
    "int64_t": "write int",
    "ndarray": "write Array",
    "string": "write str",
    "list": "write T[], such as int[]",
    "List": "write T[], such as int[]",
    "tuple": "write (A, B)",
    "Optional": "write T?, such as float?",
    "Dict": "write Dict(str, T), such as Dict(str, Array)",
    "dict": "write Dict(str, T), such as Dict(str, Array)",
    "Literal": 'write str{"a", "b"}, or int{1, 2}',
    "Any": "name the type",
}


# Classes for which the tables have a schema type or a remedy.
CLASSES: tuple[type, ...] = tuple(
    known for known in (*_ANNOTATIONS, *INSTEAD) if isinstance(known, type)
)


def no_type(annotation: Any, instead: str = "") -> SchemaError:
    """Make the error for an annotation; `instead` says what to write."""
    return SchemaError(
        f"annotation {show_annotation(annotation)}, which has no schema type",
        f"supported: {_SUPPORTED}",
        do=instead or instead_of(annotation) or f"use a supported type, or {_SPLIT}",
    )


def instead_of(annotation: Any) -> str:
    """Return the remedy for an annotation without a schema type, or nothing."""
    if isinstance(annotation, type):
        return _instead_of_class(annotation)
    try:
        return INSTEAD.get(annotation, "")
    except TypeError:  # an unhashable annotation
        return ""


def _instead_of_class(cls: type) -> str:
    if cls in INSTEAD:
        return INSTEAD[cls]
    if issubclass(cls, np.generic):
        return "write Array, which takes NumPy scalars too, or float, int or Scalar"
    if issubclass(cls, tuple):
        return _TUPLE
    if dataclasses.is_dataclass(cls):
        name = show_annotation(cls)
        return f"make it @dataclass(frozen=True), or call register_config_type({name})"
    return _DICT if issubclass(cls, dict) else ""


def show_annotation(annotation: Any) -> str:
    """Write an annotation as a user would."""
    if isinstance(annotation, str):
        return annotation.strip("'\"")
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__qualname__.rpartition("<locals>.")[2]
    text = shown(annotation, 400).replace("typing.", "").replace("collections.abc.", "")
    return re.sub(r"[\w.]*<locals>\.", "", text)
