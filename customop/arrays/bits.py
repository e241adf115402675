"""The bits behind random generators of NumPy and CuPy."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["bits_of", "has_bits"]


def has_bits(value: Any) -> bool:
    """Whether a value is a generator of NumPy, of CuPy, or of a subclass."""
    # The class comes first: a generator of a capture refuses the attribute.
    return hasattr(type(value), "bit_generator") or hasattr(value, "bit_generator")


def bits_of(source: Any) -> Any:
    """The bits that a generator draws from, also that of a capture; other values as they are."""
    module: Any = sys.modules.get("numpy.random")  # imported by whoever has one
    if module is not None and isinstance(source, module.Generator):
        return module.Generator.bit_generator.__get__(source)
    return getattr(source, "bit_generator", source)
