"""Comparison of values that may hold nan."""

from __future__ import annotations

from typing import Any


def same_value(one: Any, two: Any) -> bool:
    """Whether two values are equal in class and text, nan too."""
    return type(one) is type(two) and repr(one) == repr(two)
