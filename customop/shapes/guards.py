"""Symbols of a capture, the guards of its graph, and what a size may be called."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from typing import Any

from customop.errors import ArgumentError, ShapeError, shown
from customop.frozen import Frozen
from customop.shapes.conditions import Condition

__all__ = ["Guard", "Size", "check_bounds", "check_name"]


class Size:
    """A symbol of a capture.

    Attributes
    ----------
    name : str
    kind : str
        ``"input"``, ``"named"``, ``"data"`` for a size that depends on the values of
        arrays, or ``"number"`` for an input that is a number.
    hint : int, float or None
        Its value in the call that was captured.
    sources : list of str
        Where an input gives it, such as ``x.shape[0]``.
    origin : str
        Where it comes from, in words.
    bounds : tuple
        The least and the largest value that were given; None without a largest one. Those
        of a number say nothing.
    """

    __slots__ = ("bounds", "hint", "kind", "name", "origin", "sources")

    def __init__(
        self,
        name: str,
        kind: str,
        hint: int | None,
        source: str,
        origin: str,
        bounds: tuple[int, int | None],
    ) -> None:
        self.name: str = name
        self.kind: str = kind
        self.hint: int | None = hint
        self.sources: list[str] = [source] if source else []
        self.origin: str = origin
        self.bounds: tuple[int, int | None] = bounds


class Guard(Frozen, compare=("condition", "text", "kind")):
    """A condition that the sizes of a call must meet for a graph to be right.

    Attributes
    ----------
    condition : Condition
    text : str
        The condition as Python code.
    place : str
        File and line of the user's code that asked.
    kind : str
        ``"guard"`` for a branch that was taken, ``"number"`` where a size was taken as a
        number, such as by ``range(n)``, ``"check"`` for what `check` says or an operation
        needs, such as a divisor that is not zero.
    message : str
        The message given to `check`.
    """

    condition: Condition
    text: str
    place: str
    kind: str = "guard"
    message: str = ""

    def __str__(self) -> str:
        return f"{self.text}  at {self.place}"

    @property
    def names(self) -> frozenset[str]:
        """Names of the sizes in it."""
        return self.condition.names

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it holds for these sizes."""
        return self.condition.holds(sizes)


def check_bounds(name: str, low: Any, high: Any) -> None:
    """Raise unless `low` and `high` can be the bounds of a size."""
    for what, value in (("min", low), ("max", high)):
        if type(value) is not int and not (what == "max" and value is None):
            raise ArgumentError(
                f"{name}: {what}={shown(value)} is not an int", do=f"write {what}=1"
            )
    if low < 0:
        raise ShapeError(
            f"{name}: min={low} is negative", do="leave it out: a size is at least 0"
        )
    if high is not None and high < low:
        raise ShapeError(
            f"{name}: max={high} is less than min={low}", do="give max >= min"
        )


_OWN_NAME = re.compile(r"[su]\d+")


def check_name(name: Any) -> None:
    """Raise unless a text can be the name of a size."""
    is_name = isinstance(name, str) and name.isidentifier()
    if not is_name or keyword.iskeyword(name):
        raise ArgumentError(
            f"{shown(name)} is not a name for a size", do='write a name such as "batch"'
        )
    if _OWN_NAME.fullmatch(name):
        raise ArgumentError(
            f"'{name}' is like the names of sizes without a name",
            do='write another name, such as "batch"',
        )
