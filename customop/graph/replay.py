"""Replay: the straight-line Python that runs a graph."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import CPU, kind_of
from customop.arrays.nested import flat, map_nested
from customop.config import config
from customop.core.builtin_kinds import ARRAY_CLASS
from customop.core.codegen import generate
from customop.core.dispatch import find_kernel
from customop.core.observe import open_modes
from customop.core.rule_kind import COMPOSITE
from customop.core.rule_makers import again, find_prepare, fixed, has_arrays_first
from customop.core.table import RuleTable, changing
from customop.graph.code_parts import SizeLines
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
    gives_sizes,
    nodes_in,
)
from customop.shapes.sizes import Symbolic

# ---- the lines of a graph ----
# The source text of the straight-line Python that runs it.


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


# ---- replay: the straight-line Python that runs a graph ----
# One line for each node. Each value is freed in the line after its last use. `op.run`
# is called with the values of all parameters, which tracing has coerced.


# An operator, and the values of its parameters after the arrays.
Prepared = tuple[RuleTable, Sequence[Any]]


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
        "_plain",
        "_run",
        "_seen",
        "_waits",
        "code",
        "guards",
        "names",
        "nodes",
        "operators",
        "prepared",
        "title",
    )

    def __init__(
        self,
        title: str,
        code: str,
        names: dict[str, Any],
        operators: Mapping[str, RuleTable],
        prepared: Mapping[str, Prepared],
        guards: Mapping[str, InputGuard],
        nodes: dict[int, Node],
    ) -> None:
        self.title: str = title
        self.code: str = code
        self.names: dict[str, Any] = names
        # Global name -> the operator, for those whose kernels may be called directly.
        self.operators: Mapping[str, RuleTable] = operators
        # Global name -> the operator, and the constants with which it is called.
        self.prepared: Mapping[str, Prepared] = prepared
        # Global name of a check -> the guard. Empty if an input has none.
        self.guards: Mapping[str, InputGuard] = guards
        self.nodes: dict[int, Node] = nodes
        self._run: Any = None
        self._direct: Any = None
        # As `_direct`, but a guard that fails raises `_OtherInputs`.
        self._plain: Any = None
        # The count of changes of tables for which they were made.
        self._seen: int = -1
        # Calls that do not try `_plain`, after one that had other arguments.
        self._waits: int = 0

    def run(self, leaves: list[Any]) -> list[Any]:
        """Run the graph."""
        run = self._run or self._compile()
        is_direct = self.operators or self.prepared
        is_usual = is_direct and not open_modes and config.checks == "first"
        if is_usual and _all_plain(leaves):
            if self._seen != changing.count:
                self._look_up()
            run = self._direct
        found: list[Any] = run(leaves)
        return found

    def run_plain(self, leaves: list[Any]) -> list[Any] | None:
        """Run the graph if its guards show that all inputs are NumPy's arrays.

        Else it returns None, and the list is as it was.
        """
        if self._waits:
            self._waits -= 1
            return None
        if not self.guards or open_modes or config.checks != "first":
            return None
        if self._seen != changing.count:
            self._look_up()
        try:
            found: list[Any] = self._plain(leaves)
        except _OtherInputs:
            self._waits = _WAITS
            return None
        return found

    def _compile(self) -> Any:
        """Compile the function, when it is first called: 10 us a node."""
        self._run = generate(self.title, self.code, "forward", self.names)
        return self._run

    def _look_up(self) -> None:
        """Make the same function with the kernels of NumPy in the place of its operators."""
        run = self._run or self._compile()
        self._seen = changing.count
        names = {**self.names}
        for name, op in self.operators.items():
            names[name] = _quicker(op) or op.run
        for name, (op, constants) in self.prepared.items():
            kernel = kernel_of(op)
            if kernel is not None:
                direct = fixed(kernel, constants)
                is_own = op.namespace == "np"
                names[name] = direct if is_own else _proven(op, direct, names[name])
        self._direct = FunctionType(run.__code__, names)
        checks = {name: _PlainOnly(guard) for name, guard in self.guards.items()}
        self._plain = FunctionType(run.__code__, {**names, **checks})

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
    otherwise : callable
        Does the same by calls of operators. It runs while a mode is open, and for fake
        arrays: the function may call kernels, which take arrays that have elements.
    """

    def __init__(
        self,
        fn: Callable[..., list[Any]],
        code: str,
        otherwise: Callable[..., list[Any]],
    ) -> None:
        self._fn = fn
        self.code: str = code
        self._otherwise = otherwise

    def run(self, leaves: list[Any]) -> list[Any]:
        """Run the function."""
        is_usual = not open_modes and _all_plain(leaves)
        return (self._fn if is_usual else self._otherwise)(*leaves)

    def run_plain(self, leaves: list[Any]) -> list[Any] | None:
        """Leave all arguments to `run`."""

    def note(self, error: BaseException) -> None:
        """Do nothing: the function adds what it knows to an error."""


def note_nodes(error: BaseException, code: Any, nodes: Mapping[int, Node]) -> None:
    """Add the user's line to an error from inside generated code.

    Parameters
    ----------
    error : BaseException
    code : code object
        Of a function in the generated file.
    nodes : mapping
        Line of the file -> the node that it runs.
    """
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == code.co_filename:
            node = nodes.get(trace.tb_lineno)
            if node is not None:
                place = node.meta.get("place", "an unknown place")
                error.add_note(f"in the node '{node.name}', traced at {place}")
        trace = trace.tb_next


class _OtherInputs(Exception):
    """An input is not what the usual way takes."""


class _PlainOnly:
    """The check of an input that is not as usual: of an array it raises."""

    def __init__(self, guard: InputGuard) -> None:
        self._guard = guard

    def __call__(self, value: Any) -> None:
        if isinstance(self._guard.expected, FakeArray) or not self._guard.holds(value):
            raise _OtherInputs


# After a call with other arguments so many take the way for all kinds of them.
_WAITS = 16

# Classes seen that are NumPy's arrays or scalars, or not arrays at all.
_plain: set[type] = {np.ndarray}


def _all_plain(leaves: Sequence[Any]) -> bool:
    return _plain.issuperset(map(type, leaves)) or all(
        is_plain(type(leaf)) for leaf in leaves
    )


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
    return isinstance(op, RuleTable) and op.namespace == "np" and _is_simple(op)


def _is_simple(op: RuleTable) -> bool:
    """Whether a call of an operator does no more than to run a kernel."""
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
    has_plain = all(is_plain(type(v)) for v in graph.constants.values())
    lines = _ReplayLines(graph, where) if has_plain else GraphLines(graph, where)
    lines.write_inputs()
    last = last_uses(graph)
    for node in graph.nodes:
        lines.write(node, last.get(node, []))
    direct: Mapping[str, RuleTable] = {}
    prepared: Mapping[str, Prepared] = {}
    if isinstance(lines, _ReplayLines):
        prepared = lines.prepared
        direct = {n: op for n, op in lines.operators.items() if can_be_direct(op)}
    return Replay(
        title, lines.text(), lines.names, direct, prepared, lines.guards, lines.nodes
    )


# ---- calls whose constants the kernel takes beforehand ----


class _ReplayLines(GraphLines):
    """The lines of a graph, which calls prepared kernels."""

    def __init__(self, graph: Graph, where: str) -> None:
        super().__init__(graph, where)
        self.prepared: dict[str, Prepared] = {}
        self._of_call: dict[tuple[RuleTable, str], str] = {}

    def call(self, node: Node) -> str:
        """The text of a call, with the constants of a prepared kernel behind it."""
        op, values = node.target, node.values()
        if node.written:
            return node.written.format(*map(self.value, values))
        if not _is_prepared(op, values):
            return super().call(node)
        count = len(op.array_slots)
        arrays = ", ".join(map(self.value, values[:count]))
        text = ", ".join(map(repr, values[count:]))
        name = self._of_call.get((op, text))
        if name is None:
            constants = [again(value) for value in values[count:]]
            name = self.bind(name_of(op), _with_constants(op, constants))
            self._of_call[op, text] = name
            self.prepared[name] = op, constants
        return f"{name}({arrays})  # {text}"


def _is_prepared(op: object, values: Sequence[Any]) -> bool:
    """Whether a call runs a kernel that takes its constants beforehand."""
    if not isinstance(op, RuleTable) or not has_arrays_first(op) or not _is_simple(op):
        return False
    constants = values[len(op.array_slots) :]
    is_known = bool(constants) and all(map(_is_literal, constants))
    return is_known and find_prepare(kernel_of(op)) is not None


def _is_literal(value: Any) -> bool:
    if type(value) is list:
        return all(map(_is_literal, value))
    return type(value) in _LITERALS


def _with_constants(op: RuleTable, constants: Sequence[Any]) -> Callable[..., Any]:
    """The operator as a function of its arrays."""
    return lambda *arrays: op.run(*arrays, *map(again, constants))


def _proven(
    op: RuleTable, direct: Callable[..., Any], general: Callable[..., Any]
) -> Callable[..., Any]:
    """The prepared kernel of a user, as long as calls need no proof of its contract."""
    fast = op.fast

    def call(*arrays: Any) -> Any:
        if {*map(type, arrays)} == {fast.array}:
            return direct(*arrays)
        return general(*arrays)

    return call
