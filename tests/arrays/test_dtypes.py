"""Classes of elements and their dtypes."""

from __future__ import annotations

import numpy as np
import pytest

from customop.arrays.array import (
    ELEMENTS,
    as_element,
    element_of_names,
    element_of_scalar,
    is_element,
)

FAMILIES = [name for name, row in ELEMENTS.items() if row.kinds]


@pytest.mark.parametrize("element", FAMILIES)
def test_the_dtypes_of_a_class_are_those_that_numpy_counts(element: str) -> None:
    """A dtype is in a class of elements as `np.isdtype` and `issubdtype` say."""
    scalar = ELEMENTS[element].scalar or (np.integer, np.floating)
    for code in np.typecodes["All"]:
        dtype = np.dtype(code)
        if dtype.kind in "biufc":
            assert is_element(element, dtype) is issubclass(dtype.type, scalar)


@pytest.mark.parametrize("element", [e for e in FAMILIES if ELEMENTS[e].scalar])
def test_a_class_is_found_by_its_scalar_class(element: str) -> None:
    """`NDArray[np.floating]` is an array of floats."""
    assert element_of_scalar(ELEMENTS[element].scalar) == element


@pytest.mark.parametrize(
    ("names", "element"),
    [
        (["float32"], "float32"),
        (["int8", "int16", "int32", "int64"], "int"),
        (["float16", "float32", "float64", "bfloat16"], "float"),
        (["complex64", "complex128"], "complex"),
        (["float16", "float32", "float64", "complex64", "complex128"], "inexact"),
        (["float32", "float64"], None),
        (["float32", "str"], None),
        (["object"], None),
    ],
)
def test_a_class_is_found_by_its_dtypes(names: list[str], element: str | None) -> None:
    """Names of dtypes that are all of a class are that class."""
    assert element_of_names(names) == element


@pytest.mark.parametrize(
    ("element", "dtype", "found"),
    [
        ("float", "f4", "f4"),
        ("float", "i4", "f8"),
        ("float", "c8", "f4"),
        ("complex", "f4", "c8"),
        ("complex", "f8", "c16"),
        ("real", "c16", "f8"),
        ("integer", "f8", "i8"),
        ("Array", "M8[s]", "M8[s]"),
    ],
)
def test_dtypes_go_to_the_nearest_of_a_class(
    element: str, dtype: str, found: str
) -> None:
    """A dtype outside of a class becomes what NumPy makes of it, or the default."""
    assert as_element(element, np.dtype(dtype)) == np.dtype(found)
