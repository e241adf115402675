"""Replay: the straight-line Python that runs a graph.

One line for each node. Each value is freed in the line after its last use. `op.run` is
called with the values of all parameters, which tracing has coerced.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from customop.arrays.nested import map_nested
from customop.core.codegen import generate
from customop.core.table import RuleTable
from customop.graph.graph import Graph
from customop.graph.guards import guard_lines
from customop.graph.node import (
    CALL,
    CONSTANT,
    ITEM,
    OUTPUT,
    PLACEHOLDER,
    Node,
    nodes_in,
)

__all__ = ["Replay", "compile_graph"]


class Replay:
    """The generated function of a graph.

    Attributes
    ----------
    run : callable
        Takes a list of the leaves of all inputs, which it empties so that they are freed
        early; returns a list of the leaves of the result.
    code : str
        Its source.
    nodes : dict
        Line -> the node that it runs.
    """

    __slots__ = ("_run", "code", "names", "nodes", "title")

    def __init__(
        self, title: str, code: str, names: dict[str, Any], nodes: dict[int, Node]
    ) -> None:
        self.title: str = title
        self.code: str = code
        self.names: dict[str, Any] = names
        self.nodes: dict[int, Node] = nodes
        self._run: Callable[[list[Any]], list[Any]] | None = None

    @property
    def run(self) -> Callable[[list[Any]], list[Any]]:
        """The function, compiled when it is first asked for: 10 us a node."""
        if self._run is None:
            self._run = generate(self.title, self.code, "forward", self.names)
        return self._run

    def note(self, error: BaseException) -> None:
        """Add the user's line to an error from inside the function."""
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_globals is self.names:
                node = self.nodes.get(trace.tb_lineno)
                if node is not None:
                    place = node.meta.get("place", "an unknown place")
                    error.add_note(f"in the node '{node.name}', traced at {place}")
            trace = trace.tb_next


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
    source = _Lines(graph)
    source.write_inputs(where)
    last = _last_uses(graph)
    for node in graph.nodes:
        source.write(node, last.get(node, ()))
    return Replay(title, source.text(), source.names, source.nodes)


def _last_uses(graph: Graph) -> dict[Node, list[str]]:
    """For each node, the names of the values that are not needed after it."""
    found: dict[Node, list[str]] = {}
    seen: set[Node] = set()
    for node in reversed(graph.nodes):
        for used in node.inputs:
            if used not in seen and used.op != CONSTANT:
                seen.add(used)
                found.setdefault(node, []).append(used.name)
        if node not in seen and node.op in (CALL, ITEM, PLACEHOLDER):
            found.setdefault(node, []).append(node.name)
    return found


class _Lines:
    """Source text under construction, and the names that it uses."""

    def __init__(self, graph: Graph) -> None:
        self.graph: Graph = graph
        self.names: dict[str, Any] = {}
        self.nodes: dict[int, Node] = {}
        self._lines: list[str] = ["def forward(inputs):"]
        self._taken = {node.name for node in graph.nodes} | {"forward", "inputs"}
        self._known: dict[int, str] = {}
        self._kept: list[Any] = []
        self._operators: dict[RuleTable, str] = {}

    def text(self) -> str:
        """The whole function."""
        return "\n".join([*self._lines, ""])

    def bind(self, wanted: str, value: Any) -> str:
        """A global name for an object; the same one when it is asked for again."""
        known = self._known.get(id(value))
        if known is not None:
            return known
        name, number = wanted, 0
        while name in self._taken or name in self.names:
            number += 1
            name = f"{wanted}_{number}"
        self.names[name] = value
        self._known[id(value)] = name
        self._kept.append(value)
        return name

    def operator(self, op: RuleTable) -> str:
        """The global name of an operator."""
        known = self._operators.get(op)
        if known is None:
            known = self._operators[op] = self.bind(_name_of(op), op.run)
        return known

    def add(self, line: str) -> None:
        """Add a line of the body."""
        self._lines.append(f"    {line}")

    def write_inputs(self, where: str) -> None:
        """Write the lines that take the inputs and check the guards."""
        inputs = [node for node in self.graph.nodes if node.op == PLACEHOLDER]
        if inputs:
            self.add(f"{', '.join(node.name for node in inputs)}, = inputs")
        self.add("inputs.clear()")
        for line in guard_lines(inputs, where, self.bind):
            self.add(line)

    def write(self, node: Node, unused: list[str] | tuple[str, ...]) -> None:
        """Write the lines of a node; then free what is not used any more."""
        if node.op == OUTPUT:
            leaves = [self.value(leaf) for leaf in node.args[0]]
            self.add(f"return [{', '.join(leaves)}]")
            return
        if node.op == CALL:
            self.nodes[len(self._lines) + 1] = node
            run = self.operator(node.target)
            values = ", ".join(self.value(v) for v in node.values())
            target = "" if node.name in unused and not node.users else f"{node.name} = "
            self.add(f"{target}{run}({values})")
        elif node.op == ITEM:
            parent, index = node.args
            self.add(f"{node.name} = {parent.name}[{index!r}]")
        elif node.op == CONSTANT:
            self.names[node.name] = self.graph.constants[node.target]
        dead = [n for n in unused if n != node.name or node.op != CALL or node.users]
        if dead:
            self.add(f"del {', '.join(dead)}")

    def value(self, value: Any) -> str:
        """The text of an argument."""
        cls = type(value)
        if cls is Node:
            return str(value.name)
        if cls in _LITERALS or (cls is float and math.isfinite(value)):
            return repr(value)
        if cls is list:
            return f"[{', '.join(map(self.value, value))}]"
        if cls is tuple:
            return f"({', '.join(map(self.value, value))}{',' * (len(value) == 1)})"
        nodes = nodes_in([value])
        if not nodes:
            return self.bind(_name_of(value), value)
        fill = self.bind(f"{cls.__name__}_of", _Fill(value))
        return f"{fill}({', '.join(self.value(v) for v in _leaves(value))})"


_LITERALS = frozenset((int, bool, str, type(None)))


class _Fill:
    """A dict or config object with nodes in it: makes one with values in their places."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __call__(self, *values: Any) -> Any:
        found: Iterator[Any] = iter(values)
        return map_nested(self._value, lambda leaf: next(found))


def _leaves(value: Any) -> list[Any]:
    found: list[Any] = []
    map_nested(value, found.append)
    return found


def _name_of(value: Any) -> str:
    """A readable name for an operator or another object."""
    name = getattr(value, "qualname", None) or type(value).__name__
    return "".join(c if c.isalnum() else "_" for c in str(name).replace("::", "_"))
