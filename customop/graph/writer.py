"""Graphs as Python: one walk over the nodes for all dialects, and the dialect of fast code."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np

from customop.arrays.nested import flat, has_field, refill
from customop.core.table import RuleTable
from customop.frozen import cached
from customop.graph.code_parts import SizeLines
from customop.graph.graph import Graph
from customop.graph.guards import result_guards, result_line
from customop.graph.node import (
    CALL,
    CONSTANT,
    ITEM,
    OUTPUT,
    PLACEHOLDER,
    Node,
    gives_sizes,
    nodes_in,
)
from customop.progress import node_channel
from customop.shapes.sizes import Symbolic

# ---- the walk ----


class GraphWriter(ABC):
    """Writes a graph node by node; a dialect says how names, calls and lines look.

    Parameters
    ----------
    graph : Graph
    """

    def __init__(self, graph: Graph) -> None:
        self.graph: Graph = graph

    def write_nodes(self) -> None:
        """Write the lines of all nodes, in their order."""
        for node in self.graph.nodes:
            self.write(node, self.ending.get(node, []))

    @cached
    def steps(self) -> list[tuple[Node, Uses]]:
        """Return the nodes that have lines, and what these take and make."""
        pairs = ((node, self.uses(node)) for node in self.graph.nodes)
        return [(node, uses) for node, uses in pairs if uses is not None]

    @cached
    def ending(self) -> dict[Node, list[Node]]:
        """Node -> the values that nothing needs after its lines."""
        return _last_uses(self.steps)

    def uses(self, node: Node) -> Uses | None:
        """Return the values that the lines of a node take and make; None without lines."""
        return node.inputs, (node,)

    def write(self, node: Node, unused: list[Node]) -> None:
        """Write the lines of a node; `unused` are the values that nothing needs then."""
        if node.op == CALL:
            self.write_value(node, self.call(node), unused)
        elif node.op == ITEM:
            self.write_value(node, self.part(node), unused)
        elif node.op == OUTPUT:
            self.add(f"return {self.result(node)}")

    def call(self, node: Node) -> str:
        """Return the text of a call."""
        arguments = ", ".join(self.arguments(node))
        return f"{self.callee(node.target)}({arguments})"

    def part(self, node: Node) -> str:
        """Return the text of one part of a call's result."""
        whole, step = node.args
        text = f".{step}" if has_field(whole.val, step) else f"[{step!r}]"
        return f"{self.local(whole)}{text}"

    def locals_of(self, nodes: Sequence[Node]) -> str:
        """Return the variables of nodes, with commas between them."""
        return ", ".join([self.local(node) for node in nodes])

    # ---- what a dialect says ----

    @abstractmethod
    def add(self, line: str) -> None:
        """Add a line of the function."""

    @abstractmethod
    def local(self, node: Node) -> str:
        """Return the variable of a node."""

    @abstractmethod
    def callee(self, target: Any) -> str:
        """Return the text of what a call calls."""

    @abstractmethod
    def arguments(self, node: Node) -> list[str]:
        """Return the texts of the arguments of a call."""

    @abstractmethod
    def write_value(self, node: Node, text: str, unused: list[Node]) -> None:
        """Write the lines of a call or item, whose value has a text."""

    @abstractmethod
    def result(self, node: Node) -> str:
        """Return the text of what the function returns, from the output of the graph."""


# Values that lines take, and values that they make.
Uses = tuple[Sequence[Node], Sequence[Node]]


def _last_uses(steps: Sequence[tuple[Node, Uses]]) -> dict[Node, list[Node]]:
    """Return for each step the values that nothing needs after its lines."""
    found: dict[Node, list[Node]] = {}
    seen: set[Node] = set()
    for node, (used, made) in reversed(steps):
        ending = []
        for value in used:
            if value not in seen:
                seen.add(value)
                if value.op != CONSTANT:
                    ending.append(value)
        ending += [v for v in made if v not in seen and v.op in _WITH_VARIABLES]
        if ending:
            found[node] = ending
    return found


_WITH_VARIABLES = (CALL, ITEM, PLACEHOLDER)


# ---- the dialect of fast code ----
# One line for each node. Each value is freed in the line after its last use. `op.run` is
# called with the values of all parameters, which tracing has coerced.


class GraphLines(GraphWriter):
    """Source text of the function of a graph, and the names that it uses.

    Parameters
    ----------
    graph : Graph
    where : str
        File and line where the graph was traced, for messages of guards.

    Attributes
    ----------
    indent : str
        Stands before the lines of nodes.
    names : dict
        The globals of the function.
    nodes : dict
        Line -> the node that it runs.
    operators : dict
        Global name -> the operator that it calls.
    parts : list of str
        Names of the functions that a large graph has beside its own.
    starts : list of int
        The lines with which they begin, from 0.
    """

    def __init__(self, graph: Graph, where: str = "", indent: str = "    ") -> None:
        super().__init__(graph)
        self.where: str = where
        self.indent: str = indent
        self.names: dict[str, Any] = {"np": np}
        self.nodes: dict[int, Node] = {}
        self.parts: list[str] = []
        self.starts: list[int] = []
        # Value of one part that another one takes -> its place in a list.
        self._slots: dict[Node, int] = {}
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
        self.sizes: SizeLines | None = None
        if sizes is not None:
            self.sizes = SizeLines(sizes, where, self.bind)

    def text(self) -> str:
        """Return the whole text."""
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
        """Return the variable of a node, or the global name of a constant."""
        name = node.name
        return self._locals.get(name, name) if self._locals else name

    def bind(self, wanted: str, value: Any) -> str:
        """Return a global name for an object; the same one when it is asked for again."""
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = self._free(wanted)
            self.names[known] = value
            self._kept.append(value)
        return known

    def callee(self, target: Any) -> str:
        """Return the global name of an operator."""
        known = self._of_operator.get(target)
        if known is None:
            known = self.bind(name_of(target), target.run)
            self._of_operator[target] = known
            self.operators[known] = target
        return known

    # ---- lines ----

    def add(
        self, line: str, node: Node | None = None, indent: str | None = None
    ) -> None:
        """Add a line, and note the node that it runs."""
        self._lines.append(f"{self.indent if indent is None else indent}{line}")
        if node is not None:
            self.nodes[len(self._lines)] = node

    def write_sizes(self, named: Sequence[tuple[Node, str]]) -> None:
        """Write the lines for the sizes of inputs, each with its variable."""
        if self.sizes is not None:
            for line in self.sizes.of_inputs(named):
                self.add(line)

    def write(self, node: Node, unused: list[Node]) -> None:
        """Write the lines of a node; then free what is not used any more."""
        if node.op == CONSTANT:
            self.names[self.local(node)] = self.graph.constants[node.target]
        elif node.op == PLACEHOLDER:
            self.free(unused)
        else:
            super().write(node, unused)

    def write_value(self, node: Node, text: str, unused: list[Node]) -> None:
        """Write an assignment, and what is checked of the value."""
        if node.op == CALL and node in unused and not self._is_checked(node):
            unused.remove(node)
            self.add(text, node)
        else:
            self.add(f"{self.local(node)} = {text}", node)
        if node.is_checked:
            for guard in result_guards(node).values():
                check = self.bind("check", guard.check)
                self.add(result_line(self.local(node), guard, check, self.bind))
        if self.sizes is not None:
            for line in self.sizes.of_result(node, self.local(node)):
                self.add(line)
        self.free(unused)

    def free(self, unused: Sequence[Node]) -> None:
        """Write the line that frees values."""
        if unused:
            self.add(f"del {self.locals_of(unused)}")

    def _is_checked(self, node: Node) -> bool:
        """Return whether lines after a call may read its result, also if no node does."""
        has_sizes = self.sizes is not None and bool(gives_sizes(node.val))
        return node.is_checked or has_sizes

    def result(self, node: Node) -> str:
        """Return the text of the list of leaves."""
        return f"[{', '.join([self.value(leaf) for leaf in node.args[0]])}]"

    # ---- values ----

    def arguments(self, node: Node) -> list[str]:
        """Return the texts of the values of all parameters."""
        return [self.value(v) for v in node.values()]

    def value(self, value: Any) -> str:
        """Return the text of an argument."""
        cls = type(value)
        if cls is Node:
            return self.local(value)
        if cls in LITERALS or (cls is float and math.isfinite(value)):
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
        """Return the text of another object, which may hold nodes."""
        if not nodes_in([value]):
            return self.bind(name_of(value), value)
        fill = self.bind(f"{type(value).__name__}_of", _Fill(value))
        return f"{fill}({', '.join([self.value(v) for v in flat(value)])})"

    # ---- large graphs ----

    @property
    def is_large(self) -> bool:
        """Return whether a graph is too large for one function.

        Sizes are variables of one function.
        """
        sizes = self.graph.sizes
        return self.graph.count > LARGE and not (sizes is not None and sizes.sizes)

    def write_nodes(self) -> None:
        """Write the lines of all nodes, or calls of the parts that hold them."""
        if not self.parts:
            for node in self._each():
                self.write(node, self.ending.get(node, []))
            return
        for node in self.graph.nodes:
            if node.op in (PLACEHOLDER, CONSTANT):
                self.write(node, self.ending.get(node, []))
        given = [node for node in self._slots if node.op == PLACEHOLDER]
        count = len(self._slots) - len(given)
        texts = [self.local(node) for node in given]
        self.add(f"kept = [{', '.join([*texts, f'*[None] * {count}'])}]")
        self.free(given)
        for name in self.parts[:-1]:
            self.add(f"{name}(kept)")
        self.add(f"return {self.parts[-1]}(kept)")

    def write_parts(self) -> None:
        """Write functions for the parts of a large graph, before that of the graph.

        Python's compiler takes twice as long for a function of 20,000 lines as for twenty
        of them, and 5 KB of memory for each line. What one part makes and another takes is
        in a list, until its last use.
        """
        if not self.is_large:
            return
        steps = [s for s in self.steps if s[0].op not in (PLACEHOLDER, CONSTANT)]
        parts = [steps[i : i + _PART] for i in range(0, len(steps), _PART)]
        taken = _taken_by(parts)
        shared = dict.fromkeys(value for values in taken for value in values)
        inputs_first = sorted(shared, key=lambda value: value.op != PLACEHOLDER)
        self._slots = {value: slot for slot, value in enumerate(inputs_first)}
        end = {value: i for i, values in enumerate(taken) for value in values}
        each = iter(self._each([node for node, _ in steps]))
        indent, self.indent = self.indent, "    "
        for i, part in enumerate(parts):
            self.starts.append(len(self._lines))
            self.parts.append(self._free("part"))
            self.add(f"def {self.parts[-1]}(kept):", indent="")
            self._write_taken([*taken[i]], [v for v in taken[i] if end[v] == i])
            for node in islice(each, _PART):
                self.write(node, self.ending.get(node, []))
            made = dict.fromkeys(v for _, step in part for v in step[1])
            self._write_kept([v for v in made if v in self._slots])
        self.indent = indent
        self.starts.append(len(self._lines))

    def _each(self, nodes: Iterable[Node] | None = None) -> Iterable[Node]:
        """Go through nodes, and tell how far the writing is."""
        found = self.graph.nodes if nodes is None else nodes
        return node_channel.each(found, "writing code", self.graph.count)

    def _write_taken(self, values: Sequence[Node], ending: Sequence[Node]) -> None:
        """Write lines that take values of other parts; `ending` are taken out."""
        if values:
            places = ", ".join([f"kept[{self._slots[v]}]" for v in values])
            self.add(f"{self.locals_of(values)}, = {places},")
        if ending:
            places = " = ".join([f"kept[{self._slots[v]}]" for v in ending])
            self.add(f"{places} = None")

    def _write_kept(self, values: Sequence[Node]) -> None:
        """Write lines that keep values for other parts."""
        if values:
            places = ", ".join([f"kept[{self._slots[v]}]" for v in values])
            self.add(f"{places}, = {self.locals_of(values)},")


# Nodes from which on a graph has parts, and the steps of a part.
LARGE: Final = 2000
_PART: Final = 1000


def _taken_by(parts: Sequence[Sequence[tuple[Node, Uses]]]) -> list[dict[Node, None]]:
    """Return for each part the values that it takes from others, in order."""
    made_in: dict[Node, int] = {}
    taken: list[dict[Node, None]] = []
    for number, part in enumerate(parts):
        found: dict[Node, None] = {}
        for _, (used, made) in part:
            for value in used:
                if value.op != CONSTANT and made_in.get(value) != number:
                    found[value] = None
            made_in.update(dict.fromkeys(made, number))
        taken.append(found)
    return taken


LITERALS: Final = frozenset((int, bool, str, type(None)))
# Names in the texts of sizes, and of the generated functions.
_RESERVED: Final = frozenset(
    ("abs", "complex", "float", "given", "inputs", "int", "kept", "max", "min", "np")
)


class _Fill:
    """A dict or config object with nodes in it: makes one with values in their places."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __call__(self, *values: Any) -> Any:
        return refill(self._value, values)


def name_of(value: Any) -> str:
    """Return a readable name for an operator or another object."""
    name = getattr(value, "qualname", None) or type(value).__name__
    return "".join(c if c.isalnum() else "_" for c in str(name).replace("::", "_"))
