"""Replay: the straight-line Python that runs a graph.

One line for each node. Each value is freed in the line after its last use. `op.run` is
called with the values of all parameters, which tracing has coerced.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from customop.arrays.kinds import CPU, kind_of
from customop.arrays.nested import flat, map_nested
from customop.config import config
from customop.core.changes import changing
from customop.core.codegen import generate
from customop.core.dispatch import find_kernel
from customop.core.kinds import ARRAY_CLASS, COMPOSITE
from customop.core.observe import open_modes
from customop.core.table import RuleTable
from customop.graph.graph import Graph
from customop.graph.guards import guard_lines, result_guard
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

__all__ = ["Replay", "compile_graph"]


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
        kernels = {name: _kernel(op) or op.run for name, op in self.operators.items()}
        self._direct = FunctionType(self._run.__code__, {**self.names, **kernels})

    def note(self, error: BaseException) -> None:
        """Add the user's line to an error from inside the function."""
        trace = error.__traceback__
        code = None if self._run is None else self._run.__code__
        while trace is not None:
            if trace.tb_frame.f_code is code:
                node = self.nodes.get(trace.tb_lineno)
                if node is not None:
                    place = node.meta.get("place", "an unknown place")
                    error.add_note(f"in the node '{node.name}', traced at {place}")
            trace = trace.tb_next


# Classes seen that are NumPy's arrays or scalars, or not arrays at all.
_plain: set[type] = {np.ndarray}


def _all_plain(leaves: Sequence[Any]) -> bool:
    classes = [*map(type, leaves)]
    return _plain.issuperset(classes) or all(map(_is_plain, classes))


def _is_plain(cls: type) -> bool:
    if cls in _plain:
        return True
    is_plain = issubclass(cls, np.generic) or kind_of[cls] is None
    if is_plain:
        _plain.add(cls)
    return is_plain


def _can_be_direct(op: object) -> bool:
    """Whether an operator is one of NumPy that only calls its kernel.

    Its kernels take NumPy's scalars as they are, for which the call of an operator takes
    some microseconds.
    """
    if not isinstance(op, RuleTable) or op.namespace != "np":  # a graph, say
        return False
    schema = op.schema
    others = schema.written or schema.has_shapes or schema.keyword_only
    return not (others or op.sees_seed or op.needs_contiguous or op.is_factory)


def _kernel(op: RuleTable) -> Callable[..., Any] | None:
    """The kernel for NumPy's arrays; None where a call does more than to run it."""
    if COMPOSITE in op.rows or ARRAY_CLASS in op.rows or op.closed:
        return None
    kernel = find_kernel(op, CPU.name)
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
    lines = _Lines(graph, where)
    lines.write_inputs()
    last = _last_uses(graph)
    for node in graph.nodes:
        lines.write(node, last.get(node, []))
    return Replay(title, lines.text(), lines.names, lines.direct, lines.nodes)


def _last_uses(graph: Graph) -> dict[Node, list[Node]]:
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


class _Lines:
    """Source text under construction, and the names that it uses."""

    def __init__(self, graph: Graph, where: str) -> None:
        self.graph: Graph = graph
        self.where: str = where
        self.names: dict[str, Any] = {"np": np}
        self.nodes: dict[int, Node] = {}
        self._lines: list[str] = ["def forward(inputs):"]
        sizes = graph.sizes
        names = [node.name for node in graph.nodes]
        # What the text of a size may name: variables of these names get others.
        reserved = _RESERVED if sizes is None else {*_RESERVED, *sizes.sizes}
        self._taken: set[str] = {*names, *reserved}
        self._locals: dict[str, str] = {}
        for name in names:
            if name in reserved:
                self._locals[name] = self._free(f"{name}_")
        self._known: dict[int, str] = {}
        self._kept: list[Any] = []
        self._operators: dict[RuleTable, str] = {}
        self.direct: dict[str, RuleTable] = {}
        constants = graph.constants.values()
        self._has_plain_constants: bool = all(_is_plain(type(v)) for v in constants)
        self._sizes: SizeLines | None = None
        if sizes is not None:
            self._sizes = SizeLines(sizes, where, self.bind)

    def text(self) -> str:
        """The whole function."""
        return "\n".join([*self._lines, ""])

    # ---- names ----

    def _free(self, wanted: str) -> str:
        name, number = wanted, 0
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
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
        known = self._operators.get(op)
        if known is None:
            known = self._operators[op] = self.bind(_name_of(op), op.run)
            if _can_be_direct(op) and self._has_plain_constants:
                self.direct[known] = op
        return known

    # ---- lines ----

    def add(self, line: str) -> None:
        """Add a line of the body."""
        self._lines.append(f"    {line}")

    def write_inputs(self) -> None:
        """Write the lines that take the inputs and check the guards."""
        inputs = [node for node in self.graph.nodes if node.op == PLACEHOLDER]
        named = [(node, self.local(node)) for node in inputs]
        if inputs:
            self.add(f"{', '.join(name for _, name in named)}, = inputs")
        self.add("inputs.clear()")
        for line in guard_lines(named, self.where, self.bind):
            self.add(line)
        if self._sizes is not None:
            for line in self._sizes.of_inputs(named):
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
            self.nodes[len(self._lines) + 1] = node
            values = ", ".join([self.value(v) for v in node.values()])
            call = f"{self.operator(node.target)}({values})"
            if node in unused and not self._is_checked(node):
                unused.remove(node)
                self.add(call)
            else:
                self.add(f"{self.local(node)} = {call}")
        elif node.op == ITEM:
            parent, index = node.args
            self.add(f"{self.local(node)} = {self.local(parent)}[{index!r}]")
        if node.op in (CALL, ITEM):
            self._write_checks(node)
        if unused:
            self.add(f"del {', '.join([self.local(n) for n in unused])}")

    def _is_checked(self, node: Node) -> bool:
        """Whether lines after a call may read its result, also if no node does."""
        has_sizes = self._sizes is not None and bool(gives_sizes(node.val))
        return node.has_fixed_result or has_sizes

    def _write_checks(self, node: Node) -> None:
        """Write what is checked of a result."""
        guard = result_guard(node)
        if guard is not None:
            check = self.bind("check", guard.check)
            self.add(f"{check}({self.local(node)})")
        if self._sizes is not None:
            for line in self._sizes.of_result(node, self.local(node)):
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
        if isinstance(value, Symbolic):
            return f"({value})" if " " in str(value) else str(value)
        return self._object(value)

    def _object(self, value: Any) -> str:
        """The text of another object, which may hold nodes."""
        if not nodes_in([value]):
            return self.bind(_name_of(value), value)
        fill = self.bind(f"{type(value).__name__}_of", _Fill(value))
        return f"{fill}({', '.join([self.value(v) for v in flat(value)])})"


_LITERALS = frozenset((int, bool, str, type(None)))
# Names in the texts of sizes, and of the generated function.
_RESERVED = frozenset(("abs", "inputs", "max", "min", "np"))


class _Fill:
    """A dict or config object with nodes in it: makes one with values in their places."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __call__(self, *values: Any) -> Any:
        found: Iterator[Any] = iter(values)
        return map_nested(self._value, lambda leaf: next(found))


def _name_of(value: Any) -> str:
    """A readable name for an operator or another object."""
    name = getattr(value, "qualname", None) or type(value).__name__
    return "".join(c if c.isalnum() else "_" for c in str(name).replace("::", "_"))
