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

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import CPU, kind_of
from customop.config import config
from customop.core.changes import changing
from customop.core.dispatch import find_kernel
from customop.core.generated import generate
from customop.core.kinds import ARRAY_CLASS, COMPOSITE
from customop.core.observe import open_modes
from customop.core.prepared import again, find_prepare, fixed, has_arrays_first
from customop.core.table import RuleTable
from customop.graph.graph import Graph
from customop.graph.guards import InputGuard
from customop.graph.lines import GraphLines, last_uses, name_of
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


_LITERALS = frozenset((int, bool, str, type(None)))


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
