"""Replay: the straight-line Python that runs a graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import Any, Final

import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import CPU, kind_of
from customop.config import config
from customop.core.builtin_kinds import ARRAY_CLASS
from customop.core.codegen import generate
from customop.core.dispatch import find_kernel
from customop.core.observe import open_modes
from customop.core.rule_kind import COMPOSITE
from customop.core.rule_makers import again, find_prepare, fixed, has_arrays_first
from customop.core.table import RuleTable, changing
from customop.graph.call_table import CallTable, TableRun
from customop.graph.graph import Graph
from customop.graph.guards import (
    InputGuard,
    apart_guard,
    guard_line,
    guards_of,
)
from customop.graph.node import Node
from customop.graph.writer import LITERALS, GraphLines, name_of

# ---- replay: the straight-line Python that runs a graph ----


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
    lines = _ReplayLines(graph, where, is_plain=has_plain)
    lines.write_inputs()
    if lines.is_large:
        lines.write_calls()
    else:
        lines.write_nodes()
    return Replay(title, lines, is_plain=has_plain)


# An operator, and the values of its parameters after the arrays.
Prepared = tuple[RuleTable, Sequence[Any]]


class Replay:
    """The generated function of a graph.

    Attributes
    ----------
    nodes : dict
        Line -> the node that it runs.
    """

    __slots__ = (
        "_direct",
        "_lines",
        "_operators",
        "_plain",
        "_run",
        "_seen",
        "_table",
        "_text",
        "_waits",
        "guards",
        "names",
        "nodes",
        "prepared",
        "title",
    )

    def __init__(self, title: str, lines: _ReplayLines, *, is_plain: bool) -> None:
        self.title: str = title
        self._text: str = lines.text()
        self.names: dict[str, Any] = lines.names
        # Global name -> the operator, for those whose kernels may be called directly.
        self._operators: dict[str, RuleTable] = {}
        if is_plain:
            found = lines.operators.items()
            self._operators = {n: op for n, op in found if can_be_direct(op)}
        # Global name -> the operator, and the constants with which it is called.
        self.prepared: Mapping[str, Prepared] = lines.prepared
        # Global name of a check -> the guard. Empty if an input has none.
        self.guards: Mapping[str, InputGuard] = lines.guards
        self.nodes: dict[int, Node] = lines.nodes
        # Global name of the calls of a large graph, and the table of them.
        self._table: tuple[str, CallTable] | None = lines.table
        self._lines: Callable[[], _ReplayLines] = lines.again
        self._run: Any = None
        self._direct: Any = None
        # As `_direct`, but a guard that fails raises `_OtherInputs`.
        self._plain: Any = None
        # The count of changes of tables for which they were made.
        self._seen: int = -1
        # Calls that do not try `_plain`, after one that had other arguments.
        self._waits: int = 0

    @property
    def code(self) -> str:
        """Return its source.

        It takes a list of the leaves of all inputs, which it empties so that they are
        freed early, and returns a list of the leaves of the result. For a large graph,
        whose calls are the rows of a table, it is written when it is asked for.
        """
        if self._table is None:
            return self._text
        lines = self._lines()
        lines.write_parts()
        lines.write_inputs()
        lines.write_nodes()
        return lines.text()

    def run(self, leaves: list[Any]) -> list[Any]:
        """Run the graph."""
        run = self._run or self._compile()
        is_direct = self._operators or self.prepared
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
        self._run = generate(self.title, self._text, "forward", self.names)
        return self._run

    def _look_up(self) -> None:
        """Make the same function with the kernels of NumPy in the place of its operators."""
        run = self._run or self._compile()
        self._seen = changing.count
        names = {**self.names}
        for name, op in self._operators.items():
            names[name] = _quicker(op) or op.run
        for name, (op, constants) in self.prepared.items():
            kernel = kernel_of(op)
            if kernel is not None:
                direct = fixed(kernel, constants)
                is_own = op.namespace == "np"
                names[name] = direct if is_own else _proven(op, direct, names[name])
        if self._table is not None:
            name, table = self._table
            names[name] = TableRun(table, names)
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
    """Return whether a class is one of NumPy's, or not a class of arrays."""
    if cls in _plain:
        return True
    found = issubclass(cls, np.generic) or kind_of[cls] is None
    if found:
        _plain.add(cls)
    return found


def can_be_direct(op: object) -> bool:
    """Return whether an operator is one of NumPy that only calls its kernel.

    Its kernels take NumPy's scalars as they are, for which the call of an operator takes
    some microseconds.
    """
    return isinstance(op, RuleTable) and op.namespace == "np" and only_runs_kernel(op)


def only_runs_kernel(op: RuleTable) -> bool:
    """Return whether a call of an operator does no more than to run a kernel."""
    schema = op.schema
    others = schema.written or schema.has_shapes or schema.keyword_only
    return not (others or op.sees_seed or op.needs_contiguous or op.is_factory)


def kernel_of(op: RuleTable) -> Callable[..., Any] | None:
    """Return the kernel for NumPy's arrays; None if a call does more than run it."""
    is_opened = COMPOSITE in op.rows and CPU.name not in op.rows
    if is_opened or ARRAY_CLASS in op.rows or op.closed:
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


# The operator that writes an input at the end of a graph.
_ASSIGN: Final = "customop::assign"


# ---- its lines: inputs are checked, and kernels take their constants beforehand ----


class _ReplayLines(GraphLines):
    """The lines of a graph, which check its inputs.

    Parameters
    ----------
    graph, where
        As for `GraphLines`.
    is_plain : bool
        Whether NumPy's arrays are its only constants. Kernels are called then.

    Attributes
    ----------
    guards : dict
        Global name of a check -> the guard of an input; empty if an input has none.
    prepared : dict
        Global name of a kernel -> the operator, and the constants that it has taken.
    table : (str, CallTable) or None
        Global name of the calls of a large graph, and the table of them.
    again : callable
        Makes the same without a line.
    """

    def __init__(self, graph: Graph, where: str, *, is_plain: bool) -> None:
        super().__init__(graph, where)
        self.table: tuple[str, CallTable] | None = None
        self.again: Callable[[], _ReplayLines] = partial(
            _ReplayLines, graph, where, is_plain=is_plain
        )
        self.guards: dict[str, InputGuard] = {}
        self.prepared: dict[str, Prepared] = {}
        self._is_plain = is_plain
        # Operator -> the global name that calls it; empty if its kernel may be prepared.
        self._usual: dict[Any, str] = {}
        self._of_call: dict[tuple[RuleTable, str], str] = {}
        self._forms: dict[str, str] = {}

    def write_inputs(self) -> None:
        """Write the lines that take the inputs and check the guards."""
        self.add("def forward(inputs):", indent="")
        inputs = self.graph.inputs
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
        written = [node for node, _ in named if _is_assigned(node)]
        found = apart_guard([node for node, _ in named], written, self.where)
        if found is not None:
            nodes, guard = found
            names = dict(named)
            check = self.bind("check_apart", guard.check)
            self.add(f"{check}({', '.join(names[node] for node in nodes)})")

    def write_calls(self) -> None:
        """Write the line that runs all calls, which are the rows of a table."""
        table = CallTable(self.graph, self.called, self.bind)
        name = self._free("calls")
        self.names[name] = TableRun(table, self.names)
        self.table = name, table
        self.add(f"kept = [{self.locals_of(table.given)}]")
        self.free(self.graph.inputs)
        self.add(f"return {name}(kept)")

    def call(self, node: Node) -> str:
        """Return the text of a call, with the constants of a prepared kernel behind it."""
        if self._is_plain and node.written:
            return node.written.format(*map(self.value, node.values()))
        name, arguments = self.called(node)
        text = f"{name}({', '.join(map(self.value, arguments))})"
        prepared = self.prepared.get(name)
        if prepared is None:
            return text
        return f"{text}  # {', '.join(map(repr, prepared[1]))}"

    def called(self, node: Node) -> tuple[str, Sequence[Any]]:
        """Return the global name of what a call calls, and the arguments."""
        op, values = node.target, node.values()
        form = node.fact("written") if self._is_plain else None
        if form:
            return self._by_python(form, len(values)), values
        callee = self._usual.get(op)
        if callee is None:
            is_prepared = self._is_plain and _can_prepare(op)
            callee = self._usual[op] = "" if is_prepared else self.callee(op)
        if callee:
            return callee, values
        count = len(op.array_slots)
        if len(values) == count or not all(map(_is_literal, values[count:])):
            return self.callee(op), values
        text = ", ".join(map(repr, values[count:]))
        name = self._of_call.get((op, text))
        if name is None:
            constants = [again(value) for value in values[count:]]
            name = self.bind(name_of(op), _with_constants(op, constants))
            self._of_call[op, text] = name
            self.prepared[name] = op, constants
        return name, values[:count]

    def _by_python(self, form: str, count: int) -> str:
        """Return the global name of a function that applies an operator of Python."""
        if form not in self._forms:
            names = [f"v{i}" for i in range(count)]
            text = f"def apply({', '.join(names)}):\n    return {form.format(*names)}\n"
            self._forms[form] = self.bind("apply", generate(form, text, "apply", {}))
        return self._forms[form]


def _is_assigned(node: Node) -> bool:
    """Return whether a graph writes an input at the end."""
    return any(
        getattr(user.target, "qualname", "") == _ASSIGN and user.args[0] is node
        for user in node.users
    )


def _can_prepare(op: object) -> bool:
    """Return whether an operator has a kernel that takes its constants beforehand."""
    if (
        not isinstance(op, RuleTable)
        or not has_arrays_first(op)
        or not only_runs_kernel(op)
    ):
        return False
    return find_prepare(kernel_of(op)) is not None


def _is_literal(value: Any) -> bool:
    if type(value) is list:
        return all(map(_is_literal, value))
    return type(value) in LITERALS


def _with_constants(op: RuleTable, constants: Sequence[Any]) -> Callable[..., Any]:
    """Return the operator as a function of its arrays."""
    return lambda *arrays: op.run(*arrays, *map(again, constants))


def _proven(
    op: RuleTable, direct: Callable[..., Any], general: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a prepared kernel of a user, for arrays that need no proof of its contract."""
    fast = op.fast

    def call(*arrays: Any) -> Any:
        if {*map(type, arrays)} == {fast.array}:
            return direct(*arrays)
        return general(*arrays)

    return call
