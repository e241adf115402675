"""Replay: the straight-line Python that runs a graph.

One line for each node. Each value is freed in the line after its last use. `op.run` is
called with the values of all parameters, which tracing has coerced.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from customop.arrays.kinds import CPU, kind_of
from customop.config import config
from customop.core.changes import changing
from customop.core.codegen import generate
from customop.core.dispatch import find_kernel
from customop.core.kinds import ARRAY_CLASS, COMPOSITE
from customop.core.observe import open_modes
from customop.core.table import RuleTable
from customop.graph.graph import Graph
from customop.graph.lines import GraphLines, last_uses
from customop.graph.node import Node

__all__ = [
    "GivenCode",
    "Replay",
    "can_be_direct",
    "compile_graph",
    "is_plain",
    "kernel_of",
    "note_nodes",
]


class Replay:
    """The generated function of a graph.

    Attributes
    ----------
    code : str
        Its source: it takes a list of the leaves of all inputs, which it empties so that
        they are freed early, and returns a list of the leaves of the result.
    nodes : dict
        Line -> the node that it runs.
    """

    __slots__ = (
        "_direct",
        "_run",
        "_seen",
        "code",
        "names",
        "nodes",
        "operators",
        "title",
    )

    def __init__(
        self,
        title: str,
        code: str,
        names: dict[str, Any],
        operators: Mapping[str, RuleTable],
        nodes: dict[int, Node],
    ) -> None:
        self.title: str = title
        self.code: str = code
        self.names: dict[str, Any] = names
        # Global name -> the operator, for those whose kernels may be called directly.
        self.operators: Mapping[str, RuleTable] = operators
        self.nodes: dict[int, Node] = nodes
        self._run: Any = None
        self._direct: Any = None
        # The count of changes of tables for which `_direct` was made.
        self._seen: int = -1

    def run(self, leaves: list[Any]) -> list[Any]:
        """Run the graph."""
        run = self._run or self._compile()
        is_usual = self.operators and not open_modes and config.checks == "first"
        if is_usual and _all_plain(leaves):
            if self._seen != changing.count:
                self._look_up()
            run = self._direct
        found: list[Any] = run(leaves)
        return found

    def _compile(self) -> Any:
        """Compile the function, when it is first called: 10 us a node."""
        self._run = generate(self.title, self.code, "forward", self.names)
        return self._run

    def _look_up(self) -> None:
        """Make the same function with the kernels of NumPy in the place of its operators."""
        self._seen = changing.count
        kernels = {name: _quicker(op) or op.run for name, op in self.operators.items()}
        self._direct = FunctionType(self._run.__code__, {**self.names, **kernels})

    def note(self, error: BaseException) -> None:
        """Add the user's line to an error from inside the function."""
        if self._run is not None:
            note_nodes(error, self._run.__code__, self.nodes)


class GivenCode:
    """A function of the inputs of a graph, in the place of its replay.

    Parameters
    ----------
    fn : callable
        Takes the leaves of the inputs, and returns a list of those of the result.
    code : str
        Its source.
    """

    def __init__(self, fn: Callable[..., list[Any]], code: str = "") -> None:
        self._fn = fn
        self.code: str = code

    def run(self, leaves: list[Any]) -> list[Any]:
        """Run the function."""
        return self._fn(*leaves)

    def note(self, error: BaseException) -> None:
        """Do nothing: the function adds what it knows to an error."""


def note_nodes(error: BaseException, code: Any, nodes: Mapping[int, Node]) -> None:
    """Add the user's line to an error from inside generated code.

    Parameters
    ----------
    error : BaseException
    code : code object
    nodes : mapping
        Line of the code -> the node that it runs.
    """
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is code:
            node = nodes.get(trace.tb_lineno)
            if node is not None:
                place = node.meta.get("place", "an unknown place")
                error.add_note(f"in the node '{node.name}', traced at {place}")
        trace = trace.tb_next


# Classes seen that are NumPy's arrays or scalars, or not arrays at all.
_plain: set[type] = {np.ndarray}


def _all_plain(leaves: Sequence[Any]) -> bool:
    classes = [*map(type, leaves)]
    return _plain.issuperset(classes) or all(map(is_plain, classes))


def is_plain(cls: type) -> bool:
    """Whether a class is that of NumPy's arrays or scalars, or not one of arrays."""
    if cls in _plain:
        return True
    found = issubclass(cls, np.generic) or kind_of[cls] is None
    if found:
        _plain.add(cls)
    return found


def can_be_direct(op: object) -> bool:
    """Whether an operator is one of NumPy that only calls its kernel.

    Its kernels take NumPy's scalars as they are, for which the call of an operator takes
    some microseconds.
    """
    if not isinstance(op, RuleTable) or op.namespace != "np":  # a graph, say
        return False
    schema = op.schema
    others = schema.written or schema.has_shapes or schema.keyword_only
    return not (others or op.sees_seed or op.needs_contiguous or op.is_factory)


def kernel_of(op: RuleTable) -> Callable[..., Any] | None:
    """The kernel for NumPy's arrays; None where a call does more than to run it."""
    if COMPOSITE in op.rows or ARRAY_CLASS in op.rows or op.closed:
        return None
    return find_kernel(op, CPU.name)


def _quicker(op: RuleTable) -> Callable[..., Any] | None:
    kernel = kernel_of(op)
    return None if kernel is None else _QUICKER.get(kernel, kernel)


# Of scalars, Python's operators take a tenth of the time, with the same results.
_QUICKER: dict[Any, Callable[..., Any]] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.divide: operator.truediv,
}


def compile_graph(graph: Graph, title: str, where: str = "") -> Replay:
    """Generate the function of a graph.

    Parameters
    ----------
    graph : Graph
    title : str
        Of the generated file, for tracebacks.
    where : str
        File and line where the graph was traced, for messages of guards.
    """
    lines = GraphLines(graph, where)
    lines.write_inputs()
    last = last_uses(graph)
    for node in graph.nodes:
        lines.write(node, last.get(node, []))
    direct: Mapping[str, RuleTable] = {}
    if all(is_plain(type(v)) for v in graph.constants.values()):
        direct = {n: op for n, op in lines.operators.items() if can_be_direct(op)}
    return Replay(title, lines.text(), lines.names, direct, lines.nodes)
