"""Symbolic sizes in generated code: where they come from, and what is checked of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from customop.arrays.fake import FakeArray
from customop.errors import GuardError, ShapeError
from customop.graph.node import Node
from customop.shapes.guards import Guard
from customop.shapes.size_context import SizeContext
from customop.shapes.symbolic import SymInt

__all__ = ["SizeLines"]

Bind = Callable[[str, Any], str]


class SizeLines:
    """Writes the lines for the sizes of a graph.

    Parameters
    ----------
    sizes : SizeContext
    place : str
        Where the graph was traced.
    bind : callable
        Gives the global name of an object.
    """

    def __init__(self, sizes: SizeContext, place: str, bind: Bind) -> None:
        self._sizes: SizeContext = sizes
        self._place: str = place
        self._bind: Bind = bind
        # Names of sizes with lines that have given them values.
        self._known: set[str] = set()
        self._waiting: list[Guard] = [*sizes.guards, *sizes.checks]

    def of_inputs(self, inputs: Sequence[tuple[Node, str]]) -> Iterator[str]:
        """Lines for the inputs, each with the name of its variable; then the guards."""
        rest: list[tuple[Node, str, int, SymInt]] = []
        for node, name, axis, size in _axes(inputs):
            symbol = _symbol(size)
            if symbol is None or symbol in self._known:
                rest.append((node, name, axis, size))
            else:
                self._known.add(symbol)
                yield f"{symbol} = {name}.shape[{axis}]"
        for node, name, axis, size in rest:
            source = f"{node.meta.get('source', node.name)}.shape[{axis}]"
            fail = self._bind("wrong_size", _WrongSize(self._place))
            yield (
                f"if {name}.shape[{axis}] != {size}:"
                f" {fail}({source!r}, {name}.shape[{axis}], {str(size)!r}, {size})"
            )
        yield from self._ready()

    def of_result(self, node: Node, name: str) -> Iterator[str]:
        """Lines for the sizes that a call brings, after which checks are possible."""
        if not self._has_new():
            return
        found = False
        for path, size in _sizes_in(node.val):
            symbol = _symbol(size)
            if symbol is not None and symbol not in self._known:
                self._known.add(symbol)
                found = True
                yield f"{symbol} = {name}{path}"
                yield from self._bounds(symbol)
        if found:
            yield from self._ready()

    def _has_new(self) -> bool:
        return len(self._known) < len(self._sizes.sizes)

    def _bounds(self, symbol: str) -> Iterator[str]:
        low, high = self._sizes.sizes[symbol].bounds
        tests = [f"{symbol} < {low}"] if low else []
        tests += [f"{symbol} > {high}"] if high is not None else []
        if tests:
            origin = self._sizes.sizes[symbol].origin
            fail = self._bind("outside", _OutOfBounds(symbol, low, high, origin))
            yield f"if {' or '.join(tests)}: {fail}({symbol})"

    def _ready(self) -> Iterator[str]:
        """Lines of the guards whose sizes are known by now."""
        ready = [g for g in self._waiting if g.names <= self._known]
        self._waiting = [g for g in self._waiting if not g.names <= self._known]
        for guard in ready:
            names = sorted(guard.names)
            sources = {name: self._source(name) for name in names}
            fail = self._bind("guard", _BrokenGuard(guard, sources, self._place))
            yield f"if not ({guard.text}): {fail}({', '.join(names)})"

    def _source(self, name: str) -> str:
        size = self._sizes.sizes[name]
        return size.sources[0] if size.sources else size.origin


def _symbol(size: Any) -> str | None:
    """The name of a size that is a single symbol."""
    names: frozenset[str] = size.expr.names
    if len(names) == 1 and str(size) in names:
        return str(size)
    return None


def _axes(inputs: Sequence[tuple[Node, str]]) -> Iterator[tuple[Node, str, int, Any]]:
    """The symbolic sizes of inputs."""
    for node, name in inputs:
        if isinstance(node.val, FakeArray):
            shape: Sequence[Any] = node.val.shape
            for axis, size in enumerate(shape):
                if isinstance(size, SymInt):
                    yield node, name, axis, size


def _sizes_in(value: Any) -> list[tuple[str, Any]]:
    """The symbolic sizes of a result, with the text that leads to each."""
    if isinstance(value, SymInt):
        return [("", value)]
    if isinstance(value, FakeArray):
        shape: Sequence[Any] = value.shape
        return [
            (f".shape[{i}]", n) for i, n in enumerate(shape) if isinstance(n, SymInt)
        ]
    if isinstance(value, list | tuple):
        return [
            (f"[{i}]{path}", size)
            for i, part in enumerate(value)
            for path, size in _sizes_in(part)
        ]
    return []


# ---- errors ----


class _WrongSize:
    """Raises for a size that does not fit another one."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __call__(self, source: str, size: Any, text: str, expected: Any) -> None:
        raise GuardError(
            f"the graph is called with sizes that do not fit together: {source} is"
            f" {size}, must be {text}, which is {expected}",
            *_traced(self._place),
            do="pass arrays whose sizes agree as those that were traced",
        )


class _OutOfBounds:
    """Raises for a size of a result that is not within its bounds."""

    def __init__(self, name: str, low: int, high: int | None, origin: str) -> None:
        self._name, self._low, self._high, self._origin = name, low, high, origin

    def __call__(self, size: Any) -> None:
        most = "" if self._high is None else f" and at most {self._high}"
        raise ShapeError(
            f"the size {self._name} is {size}, and the fake kernel says at least"
            f" {self._low}{most}",
            *([f"it is of {self._origin}"] if self._origin else []),
            do="correct the bounds in the fake kernel",
        )


class _BrokenGuard:
    """Raises for sizes that do not meet a guard."""

    def __init__(self, guard: Guard, sources: dict[str, str], place: str) -> None:
        self._guard, self._sources, self._place = guard, sources, place

    def __call__(self, *values: Any) -> None:
        guard = self._guard
        pairs = zip(self._sources.items(), values, strict=True)
        now = ", ".join(f"{n} = {s or 'a size'} is {v}" for (n, s), v in pairs)
        if guard.kind == "check":
            raise ShapeError(
                guard.message or f"check({guard.text}) fails in the graph: {now}",
                f"checked at {guard.place}",
                do="pass arrays of other sizes, or change the check",
            )
        raise GuardError(
            f"the graph holds only where {guard.text}: {now}",
            f"asked at {guard.place}",
            *_traced(self._place),
            do="trace the function again for such sizes",
        )


def _traced(place: str) -> list[str]:
    return [f"traced at {place}"] if place else []
