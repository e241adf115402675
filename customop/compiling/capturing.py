"""From a function and its arguments to a graph that is ready for a back end."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.foreign import has_own_rules
from customop.compiling.quiet import keep_what_warns
from customop.compiling.settings import with_settings
from customop.errors import ArgumentError, CustomOpError, GraphError
from customop.graph.graph import Graph
from customop.graph.memory import OUTSIDE, Memory
from customop.graph.module import GraphModule
from customop.graph.new_constants import copy_new_constants
from customop.graph.node import CALL, PLACEHOLDER, Node
from customop.graph.passes.common import eliminate_common_subexpressions
from customop.graph.passes.dead import eliminate_dead_code
from customop.transforms.trace.make import capture
from customop.transforms.trace.operators import assign

__all__ = ["CapturedCall", "Finish", "captured", "cleaned"]

Axes = Mapping[int, Collection[int]]
# Makes a graph ready; it gets the calls that transforms inside of the function made.
Finish = Callable[[GraphModule, Collection[Node]], GraphModule]


class CapturedCall(NamedTuple):
    """A graph, and what its guards must look at.

    Attributes
    ----------
    module : GraphModule
    free : mapping
        Number of an input -> axes of symbolic size.
    same : mapping
        Number of an input -> number of the earlier one that is the same array.
    written : list of int
        Numbers of the inputs that it writes.
    has_strides : bool
        Whether the strides of the inputs have decided what is a view, and how what was
        written lies in memory.
    why_fixed : str
        Why sizes are not symbolic that differ between calls.
    numbers : collection of int
        Numbers of the inputs that are Python's ints and floats, and may be others.
    fixed : mapping
        Number of such an input that differs between calls and must be the same -> why.
    """

    module: GraphModule
    free: Axes
    same: Mapping[int, int]
    written: Sequence[int]
    has_strides: bool
    why_fixed: str
    numbers: Collection[int] = ()
    fixed: Mapping[int, str] = MappingProxyType({})


def captured(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    leaves: Sequence[Any],
    sizes: Mapping[str, Any] | None,
    free: Axes,
    numbers: Collection[int] = (),
    finish: Finish | None = None,
) -> CapturedCall:
    """Capture a function.

    Parameters
    ----------
    fn : callable
    args, kwargs
        Its arguments.
    leaves : sequence
        Their leaves.
    sizes : mapping or None
        Names for sizes, as for `make_fx`.
    free : mapping
        Number of a leaf -> axes whose lengths differ between calls.
    numbers : collection of int
        Numbers of leaves that are ints or floats, and differ between calls.
    finish : callable, optional
        Makes the graph ready for a back end. It takes the graph, and the calls that
        transforms inside of the function made.
    """
    _refuse_classes(leaves)
    found = _Capturing(fn, args, kwargs, leaves, sizes, free, numbers)
    return found.run(finish or _finished)


def _finished(module: GraphModule, derived: Collection[Node]) -> GraphModule:
    """The graph of a function that runs as a whole."""
    keep_what_warns(module.graph, derived)
    copy_new_constants(module.graph)
    return cleaned(module)


class _Capturing:
    """Captures a function, with fewer symbolic sizes and numbers until that is possible."""

    def __init__(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        leaves: Sequence[Any],
        sizes: Mapping[str, Any] | None,
        free: Axes,
        numbers: Collection[int],
    ) -> None:
        self._given: Any = (fn, args, kwargs)
        self._leaves: Sequence[Any] = leaves
        self._sizes: Mapping[str, Any] | None = sizes
        self._free: Axes = free
        self._same: Mapping[int, int] = {}
        self._why_fixed: str = ""
        self._numbers: Collection[int] = numbers
        self._fixed: dict[int, str] = {}

    def run(self, finish: Finish) -> CapturedCall:
        """Capture it."""
        found = None
        while found is None:
            found = self._try()
        module, has_writes, derived = found
        _refuse_iterators(module)
        written = _written(module.graph)
        module = finish(module, derived)
        same, free = self._same, self._free
        why, numbers, fixed = self._why_fixed, self._numbers, self._fixed
        return CapturedCall(
            module, free, same, written, has_writes, why, numbers, fixed
        )

    def _try(self) -> tuple[GraphModule, bool, set[Node]] | None:
        """Capture once; None if fewer sizes are symbolic from now on, to try again."""
        reads: dict[int, str] = {}
        try:
            module, has_writes, derived = self._capture(reads)
        except Exception as error:  # noqa: BLE001  # any of the function
            if not reads:
                self._leave_out(error)
            module, has_writes, derived = None, False, set()
        if reads:
            for i, why in reads.items():
                self._fix([i], f"its value is asked {why}")
        elif module is None:
            pass
        elif self._numbers and _has_graphs(module.graph):
            self._fix(self._numbers, "there are graphs of control flow")
        elif has_writes and not all(_is_packed(self._leaves[i]) for i in self._free):
            self._why_fixed, self._free = "strides decide what is a view", {}
        else:
            return module, has_writes, derived
        return None

    def _capture(self, reads: dict[int, str]) -> tuple[GraphModule, bool, set[Node]]:
        given: Any = {"sizes": self._sizes, "axes": self._free}
        given |= {"numbers": self._numbers, "reads": reads}
        try:
            return capture(*self._given, **given)
        except ArgumentError:
            self._same = _same(self._leaves)
            if not self._same:
                raise
            return capture(*self._given, same=self._same, **given)

    def _leave_out(self, error: Exception) -> None:
        """Leave out what may have been the reason of an error; else raise it."""
        why = str(error).partition("\n")[0]
        if self._numbers:
            self._fix(self._numbers, f"else capturing says: {why}")
        elif self._free and isinstance(error, CustomOpError):
            self._why_fixed, self._free = why, {}
        else:
            raise error

    def _fix(self, numbers: Collection[int], why: str) -> None:
        self._fixed |= dict.fromkeys(numbers, why)
        self._numbers = [i for i in self._numbers if i not in self._fixed]


def _has_graphs(graph: Graph) -> bool:
    """Whether there are graphs inside, which take arrays alone."""
    return any(node.op == CALL and node.subgraphs for node in graph.nodes)


def _refuse_classes(leaves: Sequence[Any]) -> None:
    """Raise for arrays whose results a graph cannot foresee."""
    for leaf in leaves:
        cls = type(leaf)
        if has_own_rules(cls):
            raise GraphError(
                f"compile: an argument is a {cls.__name__}, whose own arithmetic would"
                " be lost",
                do="pass plain arrays, such as np.asarray(x)",
            )
        if isinstance(leaf, np.ndarray) and leaf.dtype.hasobject:
            raise GraphError(
                "compile: an argument is an array of Python objects, of which NumPy"
                " makes results of any class",
                do="pass an array of numbers",
            )


def _refuse_iterators(module: GraphModule) -> None:
    """Raise if a result is an iterator, which one call would use up for all."""
    for value in module.graph.output_node.args[0]:
        if isinstance(value, Iterator | Coroutine):
            raise GraphError(
                f"compile: a result is a {type(value).__name__}, which runs after the call",
                do="return a list of its values",
            )


def _is_packed(leaf: Any) -> bool:
    """Whether an array lies in memory as symbolic sizes say."""
    return isinstance(leaf, np.ndarray) and leaf.flags.c_contiguous


def _same(leaves: Sequence[Any]) -> dict[int, int]:
    """The leaves that are an earlier one."""
    first: dict[int, int] = {}
    found: dict[int, int] = {}
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, np.ndarray) and first.setdefault(id(leaf), i) != i:
            found[i] = first[id(leaf)]
    return found


def _written(graph: Graph) -> list[int]:
    """Numbers of the inputs that a graph writes."""
    inputs = [node for node in graph.nodes if node.op == PLACEHOLDER]
    found: set[Node] = set()
    for node, places in Memory(graph).writes.items():
        if node.target is assign:
            found.add(node.args[0])
        elif OUTSIDE in places:
            found.update(inputs)
    return [i for i, node in enumerate(inputs) if node in found]


def cleaned(module: GraphModule) -> GraphModule:
    """Without dead code and what is computed twice; with the function's own settings."""
    module = eliminate_dead_code(with_settings(module))
    return eliminate_dead_code(eliminate_common_subexpressions(module))
