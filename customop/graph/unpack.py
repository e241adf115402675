"""Generated code that takes pytrees apart and builds them.

For one structure, which a graph knows, straight lines are ten times as fast as optree:
0.4 us for three dicts of two arrays. Dicts, lists, tuples and named tuples are taken
apart by lines; classes with functions of their own go to optree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from customop.arrays.pytree import (
    Structure,
    flatten,
    key_orders,
    leaf_classes,
    unflatten,
)
from customop.core.generated import generate

__all__ = ["Pack", "Unpack", "packer", "unpacker"]

Unpack = Callable[[tuple[Any, ...], dict[str, Any]], list[Any] | None]
Pack = Callable[[Sequence[Any]], Any]


def unpacker(
    structure: Structure,
    title: str,
    *,
    checks_leaves: bool = True,
    example: Any = None,
) -> Unpack:
    """Generate the function that takes the arguments of a call apart.

    Parameters
    ----------
    structure : Structure
        Of the pair of positional and keyword arguments.
    title : str
        Of the generated file, for tracebacks.
    checks_leaves : bool
        False where the caller checks that leaves are not lists and the like.
    example : object, optional
        The pair: other dicts must have their keys in its order. Without it, in any.

    Returns
    -------
    callable
        Takes the tuple of positional and the dict of keyword arguments. Returns a new
        list of the leaves, or None for arguments that may have another structure: for
        these ask `flatten`, which knows classes of leaves that this does not.

    Examples
    --------
    >>> from customop.arrays.pytree import flatten
    >>> unpack = unpacker(flatten((({"w": 1.0, "b": 2.0},), {}))[1], "an example")
    >>> unpack(({"w": 3.0, "b": 4.0},), {})
    [4.0, 3.0]
    >>> unpack(([3.0, 4.0],), {})
    """
    lines = _Unpacking()
    args, kwargs = structure.children()
    positional, named = (None, None) if example is None else example
    lines.sequence("args", args, positional)
    lines.mapping("kwargs", kwargs, named)
    text = lines.text(checks_leaves=checks_leaves)
    return generate(title, text, "unpack", lines.names)  # type: ignore[no-any-return]  # this function


def packer(structure: Structure, title: str) -> Pack:
    """Generate the function that builds a pytree.

    Parameters
    ----------
    structure : Structure
    title : str
        Of the generated file, for tracebacks.

    Returns
    -------
    callable
        Takes a list or tuple of as many leaves as the structure has.

    Examples
    --------
    >>> from customop.arrays.pytree import flatten
    >>> packer(flatten({"w": 1.0, "b": (2.0, None)})[1], "an example")([3.0, 4.0])
    {'w': 4.0, 'b': (3.0, None)}
    """
    lines = _Packing(structure.num_leaves)
    example = unflatten(structure, range(lines.count))
    text = lines.text(lines.value(structure, example))
    return generate(title, text, "pack", lines.names)  # type: ignore[no-any-return]  # this function


class _Bound:
    """Global names of the objects that generated code uses."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}

    def bind(self, value: Any, wanted: str) -> str:
        """A name for an object."""
        name = f"{wanted}_{len(self.names)}"
        self.names[name] = value
        return name

    def key(self, key: Any) -> str:
        """The text of a key of a dict."""
        if type(key) in (str, int, bool) or (type(key) is float and math.isfinite(key)):
            return repr(key)
        return self.bind(key, "key")


class _Unpacking(_Bound):
    """Lines that take values apart; the leaves they have found so far."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[str] = []
        self._leaves: list[str] = []
        self._count: int = 0
        self._depth: int = 0

    def text(self, *, checks_leaves: bool) -> str:
        """The whole function."""
        check = " if are_leaves(map(type, leaves)) else None" if checks_leaves else ""
        self.names["are_leaves"] = leaf_classes.issuperset
        return "\n".join(
            [
                "def unpack(args, kwargs):",
                "    try:",
                *[f"        {line}" for line in self._lines],
                "    except KeyError:",
                "        return None",
                f"    leaves = [{', '.join(self._leaves)}]",
                f"    return leaves{check}",
                "",
            ]
        )

    def _unless(self, condition: str) -> None:
        self._lines.append(f"if not ({condition}): return None")

    def _new(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def value(self, name: str, structure: Structure, example: Any = None) -> None:
        """Write the lines for the value of a variable."""
        cls = structure.type
        if cls is None:
            self._leaves.append(name)
        elif cls is type(None):
            self._unless(f"{name} is None")
        elif self._depth == _DEEPEST or not _has_lines(structure):
            self._other(name, structure, example)
        else:
            own = cls.__name__ if cls in _BUILTIN else self.bind(cls, "named")
            self._unless(f"type({name}) is {own}")
            write = self.mapping if cls is dict else self.sequence
            self._depth += 1
            write(name, structure, example)
            self._depth -= 1

    def sequence(self, name: str, structure: Structure, example: Any = None) -> None:
        """Write the lines for a tuple or list."""
        parts = structure.children()
        self._unless(f"len({name}) == {len(parts)}")
        if all(part.type is None for part in parts):
            self._leaves.append(f"*{name}")
            return
        names = [self._new() for _ in parts]
        self._lines.append(f"{', '.join(names)}, = {name}")
        items = [None] * len(parts) if example is None else example
        for own, part, item in zip(names, parts, items, strict=True):
            self.value(own, part, item)

    def mapping(self, name: str, structure: Structure, example: Any = None) -> None:
        """Write the lines for a dict: of this length, it has no other keys."""
        parts = structure.children()
        if example is None or len(parts) <= 1:
            self._unless(f"len({name}) == {len(parts)}")
        else:
            self._unless(f"[*{name}] == [{', '.join(map(self.key, example))}]")
        for key, part in zip(structure.entries(), parts, strict=True):
            own = self._new()
            self._lines.append(f"{own} = {name}[{self.key(key)}]")
            self.value(own, part, None if example is None else example[key])

    def _other(self, name: str, structure: Structure, example: Any) -> None:
        """Write the lines for a class that optree takes apart."""
        orders = None if example is None else key_orders(example)
        part = self.bind(_OtherTree(structure, orders).leaves, "leaves_of")
        own = self._new()
        self._lines.append(f"{own} = {part}({name})")
        self._unless(f"{own} is not None")
        self._leaves.append(f"*{own}")


class _Packing(_Bound):
    """Text of an expression that builds a value from leaves, which are taken in order."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count: int = count
        self._used: int = 0

    def text(self, value: str) -> str:
        """The whole function."""
        names = "".join(f"v{i}, " for i in range(self.count))
        taken = [f"    {names}= leaves"] if self.count else []
        return "\n".join(["def pack(leaves):", *taken, f"    return {value}", ""])

    def value(self, structure: Structure, example: Any, depth: int = 0) -> str:
        """The text of a value; the example has the keys of dicts in order."""
        cls = structure.type
        if cls is None:
            self._used += 1
            return f"v{self._used - 1}"
        if cls is type(None):
            return "None"
        if depth == _DEEPEST or not _has_lines(structure):
            return self._other(structure)
        if cls is dict:
            return self._dict(structure, example, depth + 1)
        pairs = zip(structure.children(), example, strict=True)
        parts = "".join([f"{self.value(*pair, depth + 1)}, " for pair in pairs])
        if cls is list:
            return f"[{parts}]"
        return f"({parts})" if cls is tuple else f"{self.bind(cls, 'named')}({parts})"

    def _dict(self, structure: Structure, example: dict[Any, Any], depth: int) -> str:
        # The leaves are in the order of the entries, the dict has its own.
        parts = zip(structure.entries(), structure.children(), strict=True)
        texts = {key: self.value(part, example[key], depth) for key, part in parts}
        return f"{{{', '.join([f'{self.key(k)}: {texts[k]}' for k in example])}}}"

    def _other(self, structure: Structure) -> str:
        """The text of a value of a class that optree builds."""
        first, self._used = self._used, self._used + structure.num_leaves
        leaves = "".join([f"v{i}, " for i in range(first, self._used)])
        return f"{self.bind(_OtherTree(structure).make, 'make')}(({leaves}))"


_BUILTIN = (dict, list, tuple)
# Python's parser takes 200 brackets in each other; deeper parts go to optree.
_DEEPEST = 50


def _has_lines(structure: Structure) -> bool:
    """Whether a pytree is taken apart and built by lines of code."""
    cls = structure.type
    is_plain = getattr(cls, "__iter__", None) is tuple.__iter__
    return cls in _BUILTIN or (structure.kind.name == "NAMEDTUPLE" and is_plain)


class _OtherTree:
    """A part of a pytree whose class optree takes apart."""

    def __init__(
        self, structure: Structure, orders: list[list[Any]] | None = None
    ) -> None:
        self._structure = structure
        self._orders = orders

    def leaves(self, value: Any) -> list[Any] | None:
        """Leaves of a value; None if it has another structure or dicts of another order."""
        leaves, structure = flatten(value)
        if structure != self._structure:
            return None
        return leaves if self._orders in (None, key_orders(value)) else None

    def make(self, leaves: Sequence[Any]) -> Any:
        """The part with these leaves."""
        return unflatten(self._structure, leaves)
