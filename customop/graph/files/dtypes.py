"""Dtypes as JSON: NumPy's own text for them, and none that holds Python objects."""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np

from customop.errors import GraphFileError, shown
from customop.graph.files.fields import as_list, as_text

__all__ = ["read_dtype", "stored_dtype", "written_dtype"]

# Byte order, kind, size, and the unit of times: "<f8", "|b1", "<M8[25s]".
_SIMPLE = re.compile(r"[<>|][biufcmMSUV]\d{1,9}(\[\d{0,9}[a-zA-Zμ]{1,7}(/\d{1,9})?\])?")
# Structures inside structures; deeper ones are refused.
_DEEPEST = 16
# The package whose dtypes NumPy knows only once it is imported: bfloat16, float8_e4m3fn.
_EXTENSION = "ml_dtypes"


def written_dtype(dtype: np.dtype[Any]) -> Any:
    """The JSON of a dtype.

    Raises
    ------
    ValueError
        If files have no form for it; the text says why.
    """
    if dtype.hasobject:
        raise ValueError(f"its dtype {dtype} holds Python objects")
    if dtype.itemsize == 0 or dtype.kind == "T":
        raise ValueError(f"its dtype {dtype} has no elements of a fixed size")
    if type(dtype).__module__ == _EXTENSION or dtype.type.__module__ == _EXTENSION:
        return {"name": f"{_EXTENSION}.{dtype.name}"}
    try:
        written = _as_lists(np.lib.format.dtype_to_descr(_bare(dtype)))
        if read_dtype(written) == dtype:
            return written
    except ValueError:  # fields that overlap
        pass
    raise ValueError(f"files have no form for its dtype {shown(dtype)}")


def _bare(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A dtype without notes of users, about which NumPy would warn."""
    return np.lib.format.drop_metadata(dtype)


def _as_lists(described: Any) -> Any:
    if isinstance(described, tuple | list):
        return [_as_lists(item) for item in described]
    return described


def stored_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that the npy of an array has."""
    if dtype.type.__module__ == _EXTENSION:
        return np.dtype(f"<u{dtype.itemsize}")
    return _bare(dtype)


def read_dtype(written: Any) -> np.dtype[Any]:
    """The dtype of its JSON."""
    if isinstance(written, dict):
        return _extension(written)
    try:
        found = np.lib.format.descr_to_dtype(_described(written, 0))
    except (TypeError, ValueError, OverflowError, KeyError) as error:
        raise _unknown(written) from error
    if found.hasobject or found.itemsize == 0:
        raise _unknown(written)
    return found


def _described(written: Any, depth: int) -> Any:
    """A description of a dtype for NumPy, if it is only names, sizes and byte orders."""
    if isinstance(written, str):
        if _SIMPLE.fullmatch(written) is None:
            raise _unknown(written)
        return written
    if depth > _DEEPEST or not as_list(written, "a dtype"):
        raise _unknown(written)
    return [_field(field, depth) for field in written]


def _field(written: Any, depth: int) -> tuple[Any, ...]:
    field = as_list(written, "a field of a dtype")
    if len(field) not in (2, 3):
        raise _unknown(written)
    name = field[0]
    if isinstance(name, list):  # with a title
        name = tuple(as_text(part, "a name of a field") for part in name)
    else:
        as_text(name, "a name of a field")
    inner = _described(field[1], depth + 1)
    if len(field) == 2:
        return (name, inner)
    shape = as_list(field[2], "the shape of a field")
    if not all(type(n) is int and 0 <= n < 2**31 for n in shape):
        raise _unknown(written)
    return (name, inner, tuple(shape))


def _extension(written: dict[Any, Any]) -> np.dtype[Any]:
    package, _, name = as_text(written.get("name"), "the name of a dtype").partition(
        "."
    )
    if package != _EXTENSION or len(written) != 1:
        raise _unknown(written)
    if package not in sys.modules:
        raise GraphFileError(
            f"the dtype {name} is one of {package}, which is not imported",
            do=f"import {package} first",
        )
    try:
        return np.dtype(vars(sys.modules[package]).get(name))
    except TypeError:
        raise _unknown(written) from None


def _unknown(written: Any) -> GraphFileError:
    return GraphFileError(f"{shown(written)} is not a dtype that files have")
