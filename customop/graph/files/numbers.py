"""Numbers as JSON: what JSON has no exact form for becomes an object with one text."""

from __future__ import annotations

import math
import struct
from typing import Any

from customop.errors import GraphFileError, shown

__all__ = ["read_float", "read_int", "written_number"]

# JSON numbers above it are rounded by programs that read them as floats.
_LARGEST = 2**53
# Digits of the longest number that is read: 20 bytes of it take as long as one node.
_MOST_DIGITS = 10_000
_NAN = struct.pack(">d", math.nan)


def written_number(value: Any) -> Any:
    """The JSON of an int or float."""
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": _float_text(value)}
    return value if abs(value) < _LARGEST else {"int": hex(value)}


def _float_text(value: float) -> str:
    """``"inf"``, ``"-inf"``, ``"nan"``, or the bits of another nan."""
    bits = struct.pack(">d", value)
    return str(value) if math.isinf(value) or bits == _NAN else bits.hex()


def read_int(written: Any) -> int:
    """A whole number."""
    if type(written) is int:
        return written
    if isinstance(written, dict) and written.keys() == {"int"}:
        text = written["int"]
        if isinstance(text, str) and len(text) <= _MOST_DIGITS:
            try:
                return int(text, 16)
            except ValueError:
                pass
    raise GraphFileError(f"{shown(written)} is not a whole number")


def read_float(written: Any) -> float:
    """A float, from a JSON number with a point or an object."""
    if type(written) is float:
        return written
    if isinstance(written, dict) and written.keys() == {"float"}:
        text = written["float"]
        if text in ("inf", "-inf", "nan"):
            return float(text)
        if isinstance(text, str) and len(text) == 16:
            try:
                return float(struct.unpack(">d", bytes.fromhex(text))[0])
            except ValueError:
                pass
    raise GraphFileError(f"{shown(written)} is not a float")
