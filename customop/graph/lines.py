"""The lines of a graph: the source text of the straight-line Python that runs it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from customop.arrays.nested import flat, map_nested
from customop.core.table import RuleTable
from customop.graph.graph import Graph
from customop.graph.guards import (
    InputGuard,
    apart_guard,
    guard_line,
    guards_of,
    result_guard,
)
from customop.graph.node import (
    CALL,
    CONSTANT,
    ITEM,
    OUTPUT,
    PLACEHOLDER,
    Node,
    nodes_in,
)
from customop.graph.size_uses import gives_sizes
from customop.graph.sizes import SizeLines
from customop.shapes.symbols import Symbolic

__all__ = ["GraphLines", "last_uses", "name_of"]

# The operator that writes an input at the end of a graph.
_ASSIGN = "customop::assign"


def last_uses(graph: Graph) -> dict[Node, list[Node]]:
    """For each node, those whose values are not needed after it."""
    found: dict[Node, list[Node]] = {}
    seen: set[Node] = set()
    for node in reversed(graph.nodes):
        for used in node.inputs:
            if used not in seen and used.op != CONSTANT:
                seen.add(used)
                found.setdefault(node, []).append(used)
        if node not in seen and node.op in (CALL, ITEM, PLACEHOLDER):
            found.setdefault(node, []).append(node)
    return found


class GraphLines:
    """Source text of the function of a graph, and the names that it uses.

    Parameters
    ----------
    graph : Graph
    where : str
        File and line where the graph was traced, for messages of guards.

    Attributes
    ----------
    names : dict
        The globals of the function.
    nodes : dict
        Line -> the node that it runs.
    operators : dict
        Global name -> the operator that it calls.
    guards : dict
        Global name of a check -> the guard of an input; empty if an input has none.
    """

    def __init__(self, graph: Graph, where: str = "") -> None:
        self.graph: Graph = graph
        self.where: str = where
        self.names: dict[str, Any] = {"np": np}
        self.nodes: dict[int, Node] = {}
        self._lines: list[str] = []
        sizes = graph.sizes
        names = [node.name for node in graph.nodes]
        # What the text of a size may name: variables of these names get others.
        reserved = _RESERVED if sizes is None else {*_RESERVED, *sizes.sizes}
        self._taken: set[str] = {*names, *reserved}
        # Wished name -> the number of the last one: names are never free again.
        self._last: dict[str, int] = {}
        self._locals: dict[str, str] = {}
        for name in names:
            if name in reserved:
                self._locals[name] = self._free(f"{name}_")
        self._known: dict[int, str] = {}
        self._kept: list[Any] = []
        self._of_operator: dict[RuleTable, str] = {}
        self.operators: dict[str, RuleTable] = {}
        self.guards: dict[str, InputGuard] = {}
        self.sizes: SizeLines | None = None
        if sizes is not None:
            self.sizes = SizeLines(sizes, where, self.bind)

    def text(self) -> str:
        """The whole function."""
        return "\n".join([*self._lines, ""])

    # ---- names ----

    def _free(self, wanted: str) -> str:
        number = self._last.get(wanted, 0)
        name = f"{wanted}_{number}" if number else wanted
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        self._last[wanted] = number
        return name

    def local(self, node: Node) -> str:
        """The variable of a node, or the global name of a constant."""
        return self._locals.get(node.name, node.name)

    def bind(self, wanted: str, value: Any) -> str:
        """A global name for an object; the same one when it is asked for again."""
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = self._free(wanted)
            self.names[known] = value
            self._kept.append(value)
        return known

    def operator(self, op: RuleTable) -> str:
        """The global name of an operator."""
        known = self._of_operator.get(op)
        if known is None:
            known = self._of_operator[op] = self.bind(name_of(op), op.run)
            self.operators[known] = op
        return known

    # ---- lines ----

    def add(self, line: str, node: Node | None = None, indent: str = "    ") -> None:
        """Add a line, and note the node that it runs."""
        self._lines.append(f"{indent}{line}")
        if node is not None:
            self.nodes[len(self._lines)] = node

    def write_inputs(self) -> None:
        """Write the lines that take the inputs and check the guards."""
        self.add("def forward(inputs):", indent="")
        inputs = [node for node in self.graph.nodes if node.op == PLACEHOLDER]
        named = [(node, self.local(node)) for node in inputs]
        if inputs:
            self.add(f"{', '.join(name for _, name in named)}, = inputs")
        guards = guards_of(inputs, self.where)
        for (_, name), guard in zip(named, guards, strict=True):
            if guard.expected is not None:
                check = self.bind(f"check_{name}", guard.check)
                self.guards[check] = guard
                self.add(guard_line(name, guard, check, self.bind))
        if len(self.guards) < len(inputs):
            self.guards.clear()
        self._write_apart(named)
        self.add("inputs.clear()")
        self.write_sizes(named)

    def _write_apart(self, named: Sequence[tuple[Node, str]]) -> None:
        """Write the line that looks whether written inputs share memory with others."""
        written = [
            node.args[0]
            for node in self.graph.nodes
            if node.op == CALL and getattr(node.target, "qualname", "") == _ASSIGN
        ]
        found = apart_guard([node for node, _ in named], written, self.where)
        if found is not None:
            nodes, guard = found
            names = dict(named)
            check = self.bind("check_apart", guard.check)
            self.add(f"{check}({', '.join(names[node] for node in nodes)})")

    def write_sizes(self, named: Sequence[tuple[Node, str]]) -> None:
        """Write the lines for the sizes of inputs, each with its variable."""
        if self.sizes is not None:
            for line in self.sizes.of_inputs(named):
                self.add(line)

    def write(self, node: Node, unused: list[Node]) -> None:
        """Write the lines of a node; then free what is not used any more."""
        if node.op == OUTPUT:
            leaves = [self.value(leaf) for leaf in node.args[0]]
            self.add(f"return [{', '.join(leaves)}]")
            return
        if node.op == CONSTANT:
            self.names[self.local(node)] = self.graph.constants[node.target]
        elif node.op == CALL:
            call = self.call(node)
            if node in unused and not self._is_checked(node):
                unused.remove(node)
                self.add(call, node)
            else:
                self.add(f"{self.local(node)} = {call}", node)
        elif node.op == ITEM:
            parent, index = node.args
            self.add(f"{self.local(node)} = {self.local(parent)}[{index!r}]")
        if node.op in (CALL, ITEM):
            self._write_checks(node)
        if unused:
            self.add(f"del {', '.join([self.local(n) for n in unused])}")

    def call(self, node: Node) -> str:
        """The text of a call."""
        values = ", ".join([self.value(v) for v in node.values()])
        return f"{self.operator(node.target)}({values})"

    def _is_checked(self, node: Node) -> bool:
        """Whether lines after a call may read its result, also if no node does."""
        has_sizes = self.sizes is not None and bool(gives_sizes(node.val))
        return node.has_fixed_result or has_sizes

    def _write_checks(self, node: Node) -> None:
        """Write what is checked of a result."""
        guard = result_guard(node)
        if guard is not None:
            check = self.bind("check", guard.check)
            self.add(f"{check}({self.local(node)})")
        if self.sizes is not None:
            for line in self.sizes.of_result(node, self.local(node)):
                self.add(line)

    def value(self, value: Any) -> str:
        """The text of an argument."""
        cls = type(value)
        if cls is Node:
            return self.local(value)
        if cls in _LITERALS or (cls is float and math.isfinite(value)):
            return repr(value)
        if cls is list:
            return f"[{', '.join([self.value(v) for v in value])}]"
        if cls is tuple:
            texts = [self.value(v) for v in value]
            return f"({', '.join(texts)}{',' * (len(value) == 1)})"
        if isinstance(value, Symbolic) and value.context is self.graph.sizes:
            return f"({value})" if " " in str(value) else str(value)
        return self._object(value)

    def _object(self, value: Any) -> str:
        """The text of another object, which may hold nodes."""
        if not nodes_in([value]):
            return self.bind(name_of(value), value)
        fill = self.bind(f"{type(value).__name__}_of", _Fill(value))
        return f"{fill}({', '.join([self.value(v) for v in flat(value)])})"


_LITERALS = frozenset((int, bool, str, type(None)))
# Names in the texts of sizes, and of the generated function.
_RESERVED = frozenset(("abs", "complex", "float", "inputs", "int", "max", "min", "np"))


class _Fill:
    """A dict or config object with nodes in it: makes one with values in their places."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __call__(self, *values: Any) -> Any:
        found: Iterator[Any] = iter(values)
        return map_nested(self._value, lambda leaf: next(found))


def name_of(value: Any) -> str:
    """A readable name for an operator or another object."""
    name = getattr(value, "qualname", None) or type(value).__name__
    return "".join(c if c.isalnum() else "_" for c in str(name).replace("::", "_"))
