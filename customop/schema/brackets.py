"""Schema strings as text: brackets, quotes, and parts between commas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

__all__ = [
    "Part",
    "SyntaxFault",
    "closing",
    "outside",
    "split",
    "split_items",
    "stripped",
]

_OPEN, _CLOSE = "([{", ")]}"

# A part of the text, and where it begins.
Part: TypeAlias = tuple[str, int]


class SyntaxFault(Exception):
    """An error in the text: the reason, and its place."""

    def __init__(self, reason: str, at: int, width: int = 1) -> None:
        super().__init__(reason)
        self.reason: str = reason
        self.at: int = at
        self.width: int = width


def outside(text: str) -> Iterator[tuple[int, int, str]]:
    """Place, depth of brackets and character, for all characters outside of quotes."""
    depth, quote, escaped = 0, "", False
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote and not escaped else quote
            escaped = c == "\\" and not escaped
            continue
        depth -= c in _CLOSE
        yield i, depth, c
        depth += c in _OPEN
        quote = c if c in "\"'" else ""


def closing(text: str, at: int) -> int:
    """Place of the bracket that closes the first character."""
    for i, depth, c in outside(text):
        if not depth and c in _CLOSE:
            return i
    raise SyntaxFault(f"'{text[0]}' is never closed", at)


def stripped(text: str, at: int) -> Part:
    """A part without the spaces around it."""
    return text.strip(), at + len(text) - len(text.lstrip())


def split(text: str, at: int) -> list[Part]:
    """Parts between commas outside brackets and quotes; none of an empty text."""
    commas = [i for i, depth, c in outside(text) if c == "," and not depth]
    starts, ends = [0, *(i + 1 for i in commas)], [*commas, len(text)]
    parts = [stripped(text[a:b], at + a) for a, b in zip(starts, ends, strict=True)]
    return parts if len(parts) > 1 or parts[0][0] else []


def split_items(text: str, at: int) -> list[Part]:
    """Parts as `split`, where a comma may end the last."""
    found = split(text, at)
    if len(found) > 1 and not found[-1][0]:
        found.pop()
    for part, place in found:
        if not part:
            raise SyntaxFault("an item is missing here", place)
    return found
