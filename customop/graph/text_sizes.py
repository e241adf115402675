"""Symbolic sizes in the text of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from customop.arrays.kinds import is_array
from customop.graph.node import Node
from customop.graph.size_uses import sizes_in, solved
from customop.shapes.conditions import names_in_side, side_value
from customop.shapes.guards import Guard, Size
from customop.shapes.size_context import SizeContext
from customop.shapes.symbolic import as_side
from customop.shapes.symbols import Symbolic

__all__ = ["SizesInText", "length_then"]


class SizesInText:
    """The lines for the sizes of a graph: where they come from, and what must hold."""

    def __init__(self, sizes: SizeContext | None, *, tells_fixed: bool) -> None:
        self._known: set[str] = set()
        # A second capture takes every length of its examples for a symbolic size.
        self._tells_fixed: bool = tells_fixed
        self._waiting: list[Guard] = [*sizes.guards, *sizes.checks] if sizes else []

    def of_inputs(self, inputs: Sequence[tuple[Node, str]]) -> Iterator[str]:
        """The lines for inputs, with their names."""
        rest: list[tuple[str, Any]] = []
        for node, name in inputs:
            for path, size in _sizes_of(node.val):
                line = self._named(f"{name}{path}", size)
                if line:
                    yield line
                elif is_array(node.val):
                    rest.append((f"{name}{path}", size))
            if self._tells_fixed:
                rest += [(f"{name}{path}", n) for path, n in _fixed_of(node.val)]
        yield from self._same(rest)
        yield from self._ready()

    def _same(self, lengths: Sequence[tuple[str, Any]]) -> Iterator[str]:
        """How lengths are related: who captures the text again, learns it from this."""
        rest: list[tuple[str, Any]] = []
        for length, size in lengths:
            found = None if type(size) is int else solved(size, self._known)
            if found is not None:
                self._known.add(found.name)
                yield f"{found.name} = {found.text(length)}"
            if found is None or found.factor != 1:
                rest.append((length, size))
        groups: dict[str, list[str]] = {}
        for length, size in rest:
            known = sizes_in([size]) <= self._known
            same = groups.setdefault(str(size), [str(size)] if known else [])
            same.insert(0, length)
        for same in groups.values():
            if len(same) > 1:
                yield f"assert {' == '.join(same)}"

    def of_result(self, node: Node, name: str) -> Iterator[str]:
        """The lines for the sizes that a call brings."""
        lines = [self._named(f"{name}{path}", n) for path, n in _sizes_of(node.val)]
        if any(lines):
            yield from filter(None, lines)
            yield from self._ready()

    def _named(self, length: str, size: Any) -> str:
        """The line that gives a size its name, where the length is a whole new size."""
        text = str(size)
        if not text.isidentifier() or text in self._known:
            return ""
        self._known.add(text)
        return f"{text} = {length}"

    def _ready(self) -> Iterator[str]:
        ready = [guard for guard in self._waiting if guard.names <= self._known]
        self._waiting = [g for g in self._waiting if not g.names <= self._known]
        for guard in ready:
            yield f"assert {guard.text}  # {guard.place}"


def _sizes_of(val: Any) -> list[tuple[str, Any]]:
    """The symbolic sizes of a value, with the text that leads to each."""
    if isinstance(val, Symbolic):
        return [("", val)]
    if is_array(val):
        sizes = [(f".shape[{i}]", size) for i, size in enumerate(val.shape)]
        return [(path, size) for path, size in sizes if isinstance(size, Symbolic)]
    if isinstance(val, list | tuple):
        parts = [(f"[{i}]", part) for i, part in enumerate(val)]
        return [(f"{a}{b}", size) for a, part in parts for b, size in _sizes_of(part)]
    return []


def _fixed_of(val: Any) -> list[tuple[str, int]]:
    """The lengths of an array that are the same for all sizes."""
    shape = enumerate(val.shape if is_array(val) else ())
    return [(f".shape[{i}]", n) for i, n in shape if not isinstance(n, Symbolic)]


def length_then(size: Any) -> int:
    """The length that an axis had; a size that depends on data is at least 2 there."""
    if not isinstance(size, Symbolic):
        return int(size)
    side = as_side(size)
    assert side is not None
    sizes = size.context.sizes
    lengths = {name: _usual(sizes[name]) for name in names_in_side(side)}
    return int(side_value(side, lengths))


def _usual(size: Size) -> int:
    return max(2, size.bounds[0]) if size.hint is None else size.hint
