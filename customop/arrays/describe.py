"""How values read in messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from customop.arrays.kinds import is_array
from customop.arrays.nested import map_outline
from customop.errors import shown

__all__ = ["abbreviated", "describe", "show", "show_values"]

_LETTERS = frozenset("fiuc")
# Of the repr of one value in a call.
_LONGEST = 1000


def abbreviated(value: Any) -> str:
    """Dtype and shape of an array, such as ``f64[3, 2]``."""
    dtype = value.dtype
    letter = getattr(dtype, "kind", "")
    if letter == "b":
        name = "bool"
    else:
        name = f"{letter}{8 * dtype.itemsize}" if letter in _LETTERS else str(dtype)
    return f"{name}[{', '.join(str(length) for length in value.shape)}]"


def describe(value: Any) -> str:
    """Class, dtype and shape of an array, such as ``GradTracer f64[3, 2]``."""
    return f"{type(value).__name__} {abbreviated(value)}"


def show(value: Any) -> str:
    """The type of a value, and the value itself if that is short."""
    if value is None:
        return "None"
    name = type(value).__name__
    if not isinstance(value, type) and hasattr(value, "shape"):
        return f"{name} of shape {value.shape}"
    text = shown(value)
    return f"{name} {text}" if len(text) <= 60 else name


def show_values(values: Sequence[Any]) -> str:
    """The arguments of a call, with dtype and shape in place of each array."""
    return ", ".join(repr(map_outline(v, _InShort)) for v in values)


class _InShort:
    """A leaf whose repr is short if it is an array."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        value = self.value
        return abbreviated(value) if is_array(value) else shown(value, _LONGEST)
