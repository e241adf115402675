"""Shapes in annotations, such as ``"m k"``, ``"... n"`` and ``"*batch n+1"``.

They are read, printed and evaluated here, without arrays or schemas. The grammar is
that of jaxtyping 0.3, as far as it concerns lengths of axes.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from itertools import chain
from types import ModuleType
from typing import Any, Final, TypeAlias

from customop.errors import SchemaError, shortened, shown
from customop.frozen import Frozen
from customop.later import later

division: ModuleType = later(import_module, "customop.shapes.expressions")
expressions: ModuleType = later(import_module, "customop.shapes.expressions")
unicodedata: ModuleType = later(import_module, "unicodedata")

# A length: a number, a name, or an operation on two lengths.
Length: TypeAlias = "int | str | tuple[str, Length, Length]"

_WRITE: Final = (
    'write axes with spaces between, such as "m k", "... n", "*batch 3", "n+1 _"'
)


class ShapeFault(Exception):
    """The reason why a text is not a shape, and the axis that is wrong."""

    def __init__(self, reason: str, index: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.index = index


class Axis(Frozen):
    """One axis.

    Attributes
    ----------
    length : int, str, tuple or None
        Its length; None for an axis of any length, ``_``.
    is_broadcast : bool
        Whether it may also have the length 1, ``#n``.
    """

    length: Length | None
    is_broadcast: bool = False

    def __str__(self) -> str:
        mark = "#" if self.is_broadcast else ""
        return "_" if self.length is None else f"{mark}{_show(self.length)}"


class Loop(Frozen):
    """Any number of axes: ``...``, or ``*batch`` by a name.

    Attributes
    ----------
    name : str
        Empty for ``...``.
    is_broadcast : bool
        Whether NumPy may broadcast the axes to the others of that name, ``*#batch``.
    """

    name: str = ""
    is_broadcast: bool = False

    def __str__(self) -> str:
        return f"*{'#' if self.is_broadcast else ''}{self.name}" if self.name else "..."


class Shape(Frozen):
    """The axes of an array.

    Attributes
    ----------
    before, after : tuple of Axis
        The axes before and after `loop`; without a `loop` all are in `after`.
    loop : Loop or None
        The entry for any number of axes.

    Examples
    --------
    >>> from customop.shapes.notation import parse_shape
    >>> shape = parse_shape("*batch n+1 3")
    >>> print(shape, shape.rank, shape.names)
    *batch,n+1,3 None ('n',)
    >>> shape.lengths({"n": 4}, {"batch": (2,)})
    (2, 5, 3)
    """

    after: tuple[Axis, ...]
    loop: Loop | None = None
    before: tuple[Axis, ...] = ()

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes that are written one by one."""
        return (*self.before, *self.after)

    @property
    def entries(self) -> tuple[Axis | Loop, ...]:
        """Axes and `loop` in order."""
        return (*self.before, *([self.loop] if self.loop else []), *self.after)

    @property
    def rank(self) -> int | None:
        """Number of axes; None if it is not fixed."""
        return None if self.loop else len(self.after)

    @property
    def names(self) -> tuple[str, ...]:
        """Names in the lengths of single axes, each once."""
        found = chain.from_iterable(names_in(axis.length) for axis in self.axes)
        return tuple(dict.fromkeys(found))

    @property
    def leads(self) -> bool:
        """Return whether it begins with any number of axes."""
        return self.loop is not None and not self.before

    def __str__(self) -> str:
        """Write it as between the brackets in a schema."""
        text = ",".join(map(str, self.entries)) or "()"
        # Only a number would be the length of a list.
        return f"{text}," if text.isdecimal() else text

    @property
    def text(self) -> str:
        """The text in an annotation."""
        return " ".join(map(str, self.entries))

    def lengths(
        self, sizes: Mapping[str, int], loops: Mapping[str, tuple[int, ...]]
    ) -> tuple[int, ...]:
        """Return the lengths of all axes from those of its names; 1 without a name.

        Raises
        ------
        KeyError
            If a name has no length; the name of ``...`` is ``""``.
        """
        middle = loops[self.loop.name] if self.loop else ()
        front = [_evaluate(axis.length, sizes) for axis in self.before]
        return (
            *front,
            *middle,
            *[_evaluate(axis.length, sizes) for axis in self.after],
        )


# ---- reading shapes ----


def parse_shape(text: str) -> Shape:
    """Read the shape that an annotation writes.

    Parameters
    ----------
    text : str
        Axes with spaces between. An axis is a name, a number, ``_`` for any length, or
        names and numbers joined by ``+``, ``-``, ``*`` and ``//``. After ``#`` the
        length may also be 1, for broadcasting. One entry may be ``...`` or ``*name``,
        for any number of axes. An empty text is an array without axes.

    Returns
    -------
    Shape

    Raises
    ------
    SchemaError
        If the text cannot be read so.

    Examples
    --------
    >>> from customop.shapes.notation import parse_shape
    >>> parse_shape("... n 3").text
    '... n 3'
    """
    try:
        return read_axes(text.split())
    except ShapeFault as fault:
        raise SchemaError(
            f"the shape {shown(text)}: {fault.reason}", do=_WRITE
        ) from None


def as_name(text: str) -> str:
    """Return a name in the form in which Python reads it: `fi` for `ﬁ`."""
    return str(unicodedata.normalize("NFKC", text))


def read_axes(texts: Sequence[str]) -> Shape:
    """Return the shape of these axes.

    Raises
    ------
    ShapeFault
        If one of them cannot be read.
    """
    found = [_read_entry(text, i) for i, text in enumerate(texts)]
    places = [i for i, entry in enumerate(found) if isinstance(entry, Loop)]
    if len(places) > 1:
        first, second = (found[i] for i in places[:2])
        raise ShapeFault(
            f"'{first}' and '{second}' cannot both be any number of axes", places[1]
        )
    at = places[0] if places else 0
    before = [entry for entry in found[:at] if isinstance(entry, Axis)]
    after = [entry for entry in found[at:] if isinstance(entry, Axis)]
    loop = [entry for entry in found if isinstance(entry, Loop)]
    return Shape(tuple(after), loop[0] if loop else None, tuple(before))


def _read_entry(text: str, index: int) -> Axis | Loop:
    if text == "...":
        return Loop()
    marks = text[: len(text) - len(text.lstrip("#*"))]
    rest = text[len(marks) :]
    if len(set(marks)) < len(marks):
        raise ShapeFault(f"'{text}' has a mark twice", index)
    if "*" in marks:
        return _read_loop(text, rest, "#" in marks, index)
    if _is_unnamed(rest):
        if marks:
            raise ShapeFault(f"'{text}': an unnamed axis cannot broadcast", index)
        return Axis(None)
    return Axis(_read_length(rest, index), bool(marks))


def _is_unnamed(text: str) -> bool:
    # As in jaxtyping, the name in `_channels` is only for readers.
    return text == "_" or (text.startswith("_") and text[1:].isidentifier())


def _read_loop(text: str, name: str, is_broadcast: bool, index: int) -> Loop:
    if _is_unnamed(name) and not is_broadcast:
        return Loop()
    name = as_name(name)
    if not name.isidentifier() or name.startswith("_"):
        raise ShapeFault(f"'{text}': write a name after '*', such as *batch", index)
    return Loop(name, is_broadcast)


def _read_length(text: str, index: int) -> Length:
    label, equals, value = text.partition("=")
    if equals and label.isidentifier():  # `rows=3` means 3; the name is for readers
        text = value
    if text.isidentifier():
        return as_name(text)
    if text.startswith("?"):
        raise ShapeFault(
            f"'{text}': operators have no pytrees, so leave out the '?'", index
        )
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _unreadable(text, index) from None
    length = _read_node(node, text, index)
    if any(names_in(length)):
        return length
    return _checked(_evaluate(length, {}), text, index)


def _checked(length: int, text: str, index: int) -> int:
    """Return a number that an array can have as a length, or raise."""
    if length < 0:
        raise ShapeFault(f"'{text}' is a negative length", index)
    if length > sys.maxsize:
        raise ShapeFault(f"'{shortened(text, 80)}' is longer than any array", index)
    return length


def _read_node(node: ast.expr, text: str, index: int) -> Length:
    if isinstance(node, ast.Name) and not node.id.startswith("_"):
        return node.id
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return _checked(node.value, text, index)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        sign = _OPERATIONS[type(node.op)]
        left, right = (_read_node(n, text, index) for n in (node.left, node.right))
        if sign == "//" and not (isinstance(right, int) and right > 0):
            raise ShapeFault(f"'{text}' must divide by a positive number", index)
        return (sign, left, right)
    raise _unreadable(text, index)


def _unreadable(text: str, index: int) -> ShapeFault:
    if "," in text and "(" not in text:
        return ShapeFault(f"'{text}': write spaces between axes, not commas", index)
    return ShapeFault(
        f"'{shortened(text, 80)}' is not a length: a length is made of names and whole numbers with"
        " +, -, * and //",
        index,
    )


# ---- lengths and their texts ----

_OPERATIONS: Final[dict[type[ast.operator], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
}
_STRENGTH: Final = {"+": 1, "-": 1, "*": 2, "//": 2}


def _show(length: Length, outer: int = 0) -> str:
    if not isinstance(length, tuple):
        return str(length)
    sign, left, right = length
    strength = _STRENGTH[sign]
    # The right side keeps its parentheses, so that it is read back the same.
    text = f"{_show(left, strength - 1)}{sign}{_show(right, strength)}"
    return f"({text})" if strength <= outer else text


def names_in(length: Length | None) -> Iterator[str]:
    """Return the names in a length, with repetitions."""
    if isinstance(length, str):
        yield length
    elif isinstance(length, tuple):
        for part in length[1:]:
            yield from names_in(part)


@lru_cache(maxsize=4096)
def _expression(length: Length) -> Any:
    """Return a length as an expression, or the int that it is."""
    if isinstance(length, int):
        return length
    if isinstance(length, str):
        return expressions.symbol(length)
    sign, *parts = length
    return _APPLY[sign](*map(_expression, parts))


_APPLY: Final[dict[str, Callable[..., Any]]] = {
    "+": lambda a, b: expressions.add(a, b),
    "-": lambda a, b: expressions.subtract(a, b),
    "*": lambda a, b: expressions.multiply(a, b),
    "//": lambda a, b: division.floor_divide(a, b),
}


def _evaluate(length: Length | None, sizes: Mapping[str, int]) -> int:
    if length is None:
        return 1
    if isinstance(length, int):
        return length
    if isinstance(length, str):
        return sizes[length]
    return expressions.value_of(_expression(length), sizes)  # type: ignore[no-any-return]  # an int


def affine(
    length: Length, unknown: str, sizes: Mapping[str, int]
) -> tuple[int, int] | None:
    """Return `a` and `b` of a length ``a * unknown + b``; None for other forms.

    Raises
    ------
    KeyError
        If another name has no size.
    """
    if isinstance(length, int):
        return 0, length
    if isinstance(length, str):
        return (1, 0) if length == unknown else (0, sizes[length])
    return expressions.affine_in(_expression(length), unknown, sizes)  # type: ignore[no-any-return]  # a pair


def least_sizes(shapes: Iterable[Shape]) -> dict[str, int]:
    """Return for each name the least length that makes no sum of it negative."""
    lengths = [axis.length for shape in shapes for axis in shape.axes]
    found = {name: 0 for length in lengths for name in names_in(length)}
    for length in lengths:
        names = set(names_in(length))
        if length is None or len(names) != 1:
            continue
        (name,) = names
        factor, rest = affine(length, name, {}) or (0, 0)
        if factor > 0:
            found[name] = max(found[name], -(rest // factor))
    return found
