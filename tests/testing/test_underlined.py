"""Faults of vmap rules of several arrays underline the argument that the rule gets wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.errors import OpCheckError
from customop.testing import opcheck

_CALL = (np.arange(3.0), 2.0, np.arange(3.0) + 1.0)


def _rows(array: Any, dim: int | None, count: int) -> Any:
    """Return an array with its batch axis first, as a right rule needs it."""
    if dim is None:
        return np.broadcast_to(array, (count, *array.shape))
    return np.moveaxis(array, dim, 0)


def _all_right(n: int, dims: Any, x: Any, y: Any) -> tuple[Any, Any]:
    return _rows(x, dims[0], n), _rows(y, dims[2], n)


def _axis_of_x(n: int, dims: Any, x: Any, y: Any) -> tuple[Any, Any]:
    return _rows(x, None if dims[0] is None else 0, n), _rows(y, dims[2], n)


def _axis_of_y(n: int, dims: Any, x: Any, y: Any) -> tuple[Any, Any]:
    return _rows(x, dims[0], n), _rows(y, None if dims[2] is None else 0, n)


def _no_shared_y(n: int, dims: Any, x: Any, y: Any) -> tuple[Any, Any]:
    return _rows(x, dims[0], n), np.moveaxis(y, dims[2], 0)


def _first_row_of_x(n: int, dims: Any, x: Any, y: Any) -> tuple[Any, Any]:
    return _rows(_rows(x, dims[0], n)[0], None, n), _rows(y, dims[2], n)


def _other_rows(n: int, dims: Any, x: Any, y: Any) -> tuple[Any, Any]:
    return _rows(x, dims[0], n) + 1.0, _rows(y, dims[2], n)


def _underlined(choose: Callable[..., tuple[Any, Any]]) -> str:
    """Return what the fault of a rule underlines in its schema; check the schema too."""
    with co.Library("underlined", "DEF") as library:
        library.define("f(Array x, float k, Array y) -> Array")
        op = co.ops.underlined.f.default
        library.impl("f", lambda x, k, y: x * k + np.sin(y), "CPU")
        op.register_fake(lambda x, k, y: co.fake_like(x))

        @op.register_vmap
        def rule(info: Any, in_dims: Any, x: Any, k: float, y: Any) -> tuple[Any, int]:
            x, y = choose(info.batch_size, in_dims, x, y)
            return x * k + np.sin(y), 0

        found = opcheck(op, _CALL, test_utils="test_vmap", raise_exception=False)
    error = found["test_vmap"]
    if isinstance(error, str):
        return error
    assert isinstance(error, OpCheckError)
    _, schema, line = str(error).splitlines()[:3]
    return "".join(a for a, b in zip(schema, line, strict=False) if b == "^")


@pytest.mark.parametrize(
    ("choose", "expected"),
    [
        (_all_right, "SUCCESS"),
        (_axis_of_x, "Array x"),
        (_axis_of_y, "Array y"),
        (_no_shared_y, "Array y"),
        (_first_row_of_x, "Array x"),
        (_other_rows, ""),
    ],
)
def test_vmap_fault_underlines_the_array(
    choose: Callable[..., tuple[Any, Any]], expected: str
) -> None:
    """Only where one array is to blame; a wrong formula underlines nothing."""
    assert _underlined(choose) == expected
