"""Annotations with a shape or a class of elements.

``Annotated[Array, "m k"]``, and jaxtyping's ``Float[np.ndarray, "m k"]``. The latter is
recognized by its attributes, so that jaxtyping is not imported.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from customop.arrays.dtypes import element_of_names, element_of_scalar
from customop.errors import SchemaError, warn_caller
from customop.schema.types import ArrayType, Maybe, SchemaType
from customop.shapes.notation import Shape, parse_shape

__all__ = ["elements_of", "is_jaxtyped", "of_jaxtyped", "substituted", "with_notes"]

_JAXTYPED: Final = ("array_type", "dim_str", "dtypes", "dtype")


def is_jaxtyped(annotation: object) -> bool:
    """Whether an annotation is one of jaxtyping's, by its attributes."""
    return isinstance(annotation, type) and all(
        hasattr(annotation, name) for name in _JAXTYPED
    )


def of_jaxtyped(annotation: Any, inner: SchemaType) -> SchemaType:
    """The type of one of jaxtyping's annotations of arrays of the type `inner`.

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
    """The class of elements of jaxtyping's dtypes; None where there is none."""
    if not isinstance(dtypes, Sequence):  # any dtype
        return "Array"
    return element_of_names(str(name).removesuffix("_") for name in dtypes)


# ---- Annotated ----


def with_notes(
    declared: SchemaType, annotation: Any, notes: Sequence[Any]
) -> SchemaType:
    """The type of ``Annotated[annotation, *notes]``, whose first part has a type.

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
    """Whether axes are written as in "m x k". Those of "y x c" are coordinates."""
    others = axes[::2]
    return 1 < len(others) != len(axes[1::2]) and (
        {*axes[1::2]} == {"x"} and {"x", "y", "z"}.isdisjoint(others)
    )


def substituted(alias: Any, items: tuple[Any, ...]) -> Any:
    """The value of a generic type alias with its type parameters filled in."""
    given = dict(zip(alias.__type_params__, items, strict=True))
    value = alias.__value__
    order = getattr(value, "__parameters__", ())
    return value[tuple(given[variable] for variable in order)] if order else value


def elements_of(annotation: Any) -> str:
    """The class of elements in an annotation such as ``NDArray[np.float32]``."""
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
