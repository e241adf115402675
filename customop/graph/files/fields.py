"""Checks of what JSON holds: each gives the value, or raises with the name of the field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from customop.errors import GraphFileError, shown

__all__ = [
    "as_entries",
    "as_integer",
    "as_line",
    "as_list",
    "as_object",
    "as_text",
    "entry_of",
]


def as_list(value: Any, what: str, length: int | None = None) -> list[Any]:
    """A list, of a given length."""
    if not isinstance(value, list):
        raise GraphFileError(f"{what} is {shown(value)}, must be a list")
    if length is not None and len(value) != length:
        raise GraphFileError(f"{what} has {len(value)} items, must have {length}")
    return value


def as_text(value: Any, what: str) -> str:
    """A string."""
    if not isinstance(value, str):
        raise GraphFileError(f"{what} is {shown(value)}, must be a string")
    return value


def as_line(value: Any, what: str) -> str:
    """A string of one line, which may stand in a comment of generated code."""
    text = as_text(value, what)
    if text != one_line(text):
        raise GraphFileError(f"{what} is {shown(text)}, must be one line")
    return text


def one_line(text: str) -> str:
    """A text without ends of lines."""
    return " ".join(text.splitlines())


def as_integer(value: Any, what: str, below: int = 2**63, least: int = 0) -> int:
    """A whole number from `least` up to the one before `below`."""
    if type(value) is not int:
        raise GraphFileError(f"{what} is {shown(value)}, must be a whole number")
    if not least <= value < below:
        raise GraphFileError(
            f"{what} is {shown(value)}, must be from {least} to {below - 1}"
        )
    return value


def as_object(value: Any, what: str) -> dict[str, Any]:
    """An object of JSON, with any entries."""
    if not isinstance(value, dict):
        raise GraphFileError(f"{what} is {shown(value)}, must be an object of JSON")
    return value


def as_entries(value: Any, what: str, needed: str, allowed: str = "") -> dict[str, Any]:
    """An object of JSON with all entries `needed`, and no others than those `allowed`."""
    as_object(value, what)
    names = needed.split()
    for name in names:
        if name not in value:
            raise GraphFileError(f"{what} has no entry '{name}'")
    for name in value:
        if name not in names and name not in allowed.split():
            raise GraphFileError(f"{what} has an unknown entry {shown(name)}")
    found: dict[str, Any] = value
    return found


def entry_of(table: Sequence[Any], index: Any, what: str) -> Any:
    """The entry of a table that a number of the file names."""
    if type(index) is not int or not 0 <= index < len(table):
        raise GraphFileError(f"there is no {what} {shown(index)}")
    return table[index]
