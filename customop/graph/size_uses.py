"""Symbolic sizes among the arguments and values of nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from customop.arrays.kinds import is_array
from customop.arrays.nested import flat
from customop.graph.node import CALL, Node
from customop.shapes.conditions import names_in_side
from customop.shapes.expressions import Number, affine_in, names_of
from customop.shapes.sym_bool import SymBool
from customop.shapes.symbolic import as_side
from customop.shapes.symbols import Symbolic

__all__ = [
    "Solved",
    "gives_sizes",
    "has_sizes",
    "makes_sizes",
    "missing_sizes",
    "sizes_in",
    "solved",
]


class Solved(NamedTuple):
    """A size that a length ``factor * name + rest`` gives."""

    name: str
    factor: int
    rest: int

    def text(self, length: str) -> str:
        """The size as Python code, from that of the length."""
        if self.rest:
            length += f" {'-' if self.rest > 0 else '+'} {abs(self.rest)}"
        return length if self.factor == 1 else f"({length}) // {self.factor}"

    def value(self, length: int) -> int:
        """The size, from the length."""
        return (length - self.rest) // self.factor


def solved(size: Any, known: Collection[str]) -> Solved | None:
    """How a length gives the one size in it; None if that is known, or it does not."""
    expr: Number = size.expr
    names = names_of(expr)
    if len(names) != 1 or not names.isdisjoint(known):
        return None
    (name,) = names
    factor, rest = affine_in(expr, name, {}) or (0, 0)
    return Solved(name, factor, rest) if factor else None


def sizes_in(values: Iterable[Any]) -> frozenset[str]:
    """Names of the symbolic sizes in nested values and in the shapes of arrays."""
    found: frozenset[str] = frozenset()
    for value in values:
        for leaf in flat(value):
            if is_array(leaf):
                found = found.union(*map(_names, leaf.shape))
            else:
                found |= _names(leaf)
    return found


def _names(value: Any) -> frozenset[str]:
    if not isinstance(value, Symbolic):
        return frozenset()
    if isinstance(value, SymBool):
        return value.condition.names
    side = as_side(value)
    return frozenset() if side is None else names_in_side(side)


def has_sizes(values: Iterable[Any]) -> bool:
    """Whether there are symbolic sizes in nested values."""
    return bool(sizes_in(values))


def gives_sizes(value: Any) -> frozenset[str]:
    """Names of the sizes that can be read off a value: whole lengths of its axes."""
    if isinstance(value, Symbolic):
        return frozenset({str(value)}) & _names(value)
    leaves = value.shape if is_array(value) else flat(value)
    if not is_array(value) and len(leaves) == 1 and leaves[0] is value:
        return frozenset()
    return frozenset().union(*map(gives_sizes, leaves))


def missing_sizes(nodes: Iterable[Node]) -> set[str]:
    """Names of the sizes that nodes use and that none before them gives."""
    known: set[str] = set()
    missing: set[str] = set()
    for node in nodes:
        used = sizes_in((*node.args, *node.kwargs.values()))
        missing |= used - known
        known |= gives_sizes(node.val) | used
    return missing


def makes_sizes(node: Node) -> frozenset[str]:
    """Names of the sizes of its value that the arguments of a call do not have."""
    own = sizes_in([node.val]) if node.op == CALL else frozenset()
    if not own:
        return own
    given = [source.val for source in node.inputs]
    return own - sizes_in([*given, *node.args, *node.kwargs.values()])
