"""The code of a graph for NumPy's arrays: one call after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import CPU
from customop.compiling.numpy_backend.blocks import BlockRun
from customop.compiling.numpy_backend.call_text import (
    WRITERS,
    WRITING,
    builtin_kernel,
    out_of,
    ufunc_of,
    ufunc_text,
)
from customop.compiling.numpy_backend.elementwise_runs import CallRun, find_runs
from customop.compiling.numpy_backend.simplify import find_reuses, prepared
from customop.compiling.report import NodeGroup
from customop.config import config
from customop.core.codegen import generate
from customop.core.table import RuleTable, changing, finalized
from customop.errors import counted
from customop.graph.graph import Graph
from customop.graph.guards import InputGuard, guard_line, guards_of
from customop.graph.module import GraphModule
from customop.graph.node import CONSTANT, PLACEHOLDER, Node
from customop.graph.replay import (
    GivenCode,
    can_be_direct,
    is_plain,
    kernel_of,
    note_nodes,
)
from customop.graph.writer import GraphLines, Uses, name_of

# ---- the straight line: one call of NumPy after the other ----


Inner = Callable[[GraphModule], GraphModule]
_IN_TRY: Final = " " * 8


class CallWay(NamedTuple):
    """The way in which the calls of an operator are written.

    Attributes
    ----------
    kernel : callable or None
        The kernel that lines call; None for the operator itself.
    ufunc : numpy.ufunc or None
        The same, if it is a ufunc.
    write : callable or None
        Gives a shorter text of a call, or None.
    """

    kernel: Callable[..., Any] | None = None
    ufunc: np.ufunc | None = None
    write: Callable[[GraphLines, Node], str | None] | None = None


class StraightLines(GraphLines):
    """The function of a graph, with the kernels of NumPy's operators.

    Parameters
    ----------
    graph : Graph
    inner : callable
        Compiles the graphs of control flow.

    Attributes
    ----------
    kernels : dict
        Operator -> the kernel that the lines call, or None for the operator itself.
    """

    def __init__(self, graph: Graph, inner: Inner) -> None:
        super().__init__(graph, indent=_IN_TRY)
        self._inner: Inner = inner
        self._of_module: dict[int, GraphModule] = {}
        self.kernels: dict[RuleTable, Any] = {}
        self._ways: dict[RuleTable | GraphModule, CallWay] = {}
        self._run_of: dict[Node, CallRun] = {}
        self._reuses: dict[Node, Node] = {}
        self._name_of_run: dict[CallRun, str] = {}
        self._blocks: dict[str, BlockRun] = {}

    def write_function(
        self, is_stale: str, again: str, note: str, guards: Sequence[InputGuard]
    ) -> None:
        """Write the whole function.

        Parameters
        ----------
        is_stale : str
            A condition for which the function named `again` is called.
        again, note : str
            Names of functions: of the same arguments, and of an error.
        guards : sequence of InputGuard
            Those of the inputs; of these the strides are checked, where they matter.
        """
        self._reuses = find_reuses(self.graph, self._run_of)
        self.write_parts()
        inputs = [node for node in self.graph.nodes if node.op == PLACEHOLDER]
        named = [(node, self.local(node)) for node in inputs]
        given = ", ".join([name for _, name in named])
        self.add(f"def forward({given}):", indent="")
        self.add(f"if {is_stale}: return {again}({given})", indent="    ")
        self.add("try:", indent="    ")
        for (_, name), guard in zip(named, guards, strict=False):
            if guard.has_strides:
                check = self.bind(f"check_{name}", guard.check)
                self.add(guard_line(name, guard, check, self.bind))
        self.write_sizes(named)
        self.write_nodes()
        self.add("except Exception as error:", indent="    ")
        self.add(f"{note}(error)")
        self.add("raise")

    def write_sizes(self, named: Sequence[tuple[Node, str]]) -> None:
        """Write the lines for the sizes of inputs; the caller has checked them."""
        if self.sizes is not None:
            for line in self.sizes.of_inputs(named):
                if not line.startswith("if "):
                    self.add(line)

    def uses(self, node: Node) -> Uses | None:
        """Return what a node takes and makes; a run takes the place of its last call."""
        run = self._run_of.get(node)
        if run is None:
            return _used(node), (node,)
        return (run.given, run.results) if node is run.calls[-1] else None

    def write(self, node: Node, unused: list[Node]) -> None:
        """Write the lines of a node, or of the run that ends with it."""
        run = self._run_of.get(node)
        if run is None:
            super().write(node, unused)
        elif node is run.calls[-1]:
            self._write_run(run, unused)

    # ---- runs ----

    def take_runs(self, runs: Sequence[CallRun]) -> None:
        """Write the functions of runs, before that of the graph."""
        for run in runs:
            block = BlockRun(run)
            name = self.bind("run", block)
            self._blocks[name] = block
            self._run_of.update(dict.fromkeys(run.calls, run))
            self._name_of_run[run] = name
            self._write_calls(f"{name}_one_by_one", run, run.calls, run.results)
            if run.before:
                self._write_calls(f"{name}_first", run, run.before, run.before)

    def _write_calls(
        self, name: str, run: CallRun, calls: Sequence[Node], results: Sequence[Node]
    ) -> None:
        """Write a function of a list of operands, which calls one after the other."""
        body = "    "
        self.add(f"def {name}(given):", indent="")
        given = run.given
        if given:
            self.add(f"{self.locals_of(given)}, = given", indent=body)
        is_all = calls is run.calls
        if is_all:
            self.add("given.clear()", indent=body)
        ends = {n: call for call in calls for n in _used(call)} if is_all else {}
        kept = {*results}
        ending: dict[Node, list[str]] = {}
        for node, call in ends.items():
            if node not in kept and node.op != CONSTANT:
                ending.setdefault(call, []).append(self.local(node))
        for call in calls:
            self.add(f"{self.local(call)} = {self.call(call)}", call, body)
            if call in ending:
                self.add(f"del {', '.join(ending[call])}", indent=body)
        self.add(f"return [{self.locals_of(results)}]", indent=body)

    def _write_run(self, run: CallRun, unused: Sequence[Node]) -> None:
        texts = [self.value(n) for n in run.given]
        self.add(f"given = [{', '.join(texts)}]")
        self.free([n for n in unused if n not in run.results])
        results = "".join([f"{self.local(n)}, " for n in run.results])
        takes = (
            f"{results}= " if results else ""
        )  # of a run whose warnings alone matter
        self.add(f"{takes}{self._name_of_run[run]}(given)")

    def link(self) -> None:
        """Give the runs their functions, after the text was run."""
        for name, block in self._blocks.items():
            block.one_by_one = self.names[f"{name}_one_by_one"]
            block.first = self.names.get(f"{name}_first")

    # ---- calls ----

    def call(self, node: Node) -> str:
        """Return the text of a call."""
        op = node.target
        way = self._ways.get(op)
        if way is None:
            way = self._ways[op] = self._way_of(op)
        if way.ufunc is not None:
            return ufunc_text(self, way.ufunc, node, self._reuses.get(node))
        text = way.write(self, node) if way.write else None
        if text is not None:
            return text
        if way.kernel is None:
            return super().call(node)
        arguments = ", ".join(self.arguments(node))
        return f"{self.bind(name_of(op), way.kernel)}({arguments})"

    def _way_of(self, op: RuleTable | GraphModule) -> CallWay:
        """Return how the calls of an operator are written."""
        if isinstance(op, RuleTable) and op.qualname in WRITING:
            return CallWay(write=WRITING[op.qualname])
        if not isinstance(op, RuleTable) or not can_be_direct(op):
            return CallWay()
        kernel = self.kernels[op] = kernel_of(op)
        if kernel is None:
            return CallWay()
        write = WRITERS.get(op.qualname) if builtin_kernel(op) else None
        return CallWay(kernel, ufunc_of(op), write)

    # ---- graphs inside ----

    def callee(self, target: Any) -> str:
        """Return the global name of an operator, or of a graph, which is compiled."""
        if isinstance(target, GraphModule):
            return self.bind(name_of(target), self._compiled(target).run)
        return super().callee(target)

    def value(self, value: Any) -> str:
        """Return the text of an argument."""
        if isinstance(value, GraphModule):
            return self.bind(name_of(value), self._compiled(value))
        return super().value(value)

    def _compiled(self, module: GraphModule) -> GraphModule:
        known = self._of_module.get(id(module))
        if known is None:
            known = self._of_module[id(module)] = self._inner(module)
        return known


def _used(node: Node) -> list[Node]:
    """Return the operands of a node, and an array that takes its result."""
    out = out_of(node)
    return node.inputs if out is None else [*node.inputs, out]


# ---- the code of a graph, for NumPy's arrays ----


def build(module: GraphModule) -> Callable[..., list[Any]]:
    """Return a function from the leaves of the inputs to a list of those of the result.

    Parameters
    ----------
    module : GraphModule

    Returns
    -------
    callable
        It does not check the guards of the graph. Its attribute `code` is its source, and
        `explain` gives the elementwise calls that run over blocks.
    """
    if _is_foreign(module):
        return module.run_list
    run: Callable[..., list[Any]] = NumpyCode(module).function
    return run


def _is_foreign(module: GraphModule) -> bool:
    """Return whether there are arrays of another library in a graph."""
    if not all(is_plain(type(v)) for v in module.graph.constants.values()):
        return True
    values = [node.val for node in module.graph.nodes]
    return any(isinstance(v, FakeArray) and v.device != CPU.name for v in values)


class NumpyCode:
    """The function of a graph, which is made again when a kernel that it calls changes.

    Parameters
    ----------
    module : GraphModule
    guards : sequence of InputGuard, optional
        Of its inputs, if their strides are to be checked.

    Attributes
    ----------
    function : callable
        Of the leaves of the inputs.
    runs : list of CallRun
    alone : list of pairs
        Large elementwise calls that are in no run, and why.
    """

    def __init__(self, module: GraphModule, guards: Sequence[InputGuard] = ()) -> None:
        self._module: GraphModule = module
        self._guards: Sequence[InputGuard] = guards
        self.function: Any = None
        self._make()

    def _make(self) -> None:
        # The count of changes of tables for which the kernels are right. It goes up when
        # `config.checks` changes, too.
        self._seen: list[int] = [changing.count if config.checks == "first" else -1]
        graph = prepared(self._module.graph)
        lines = StraightLines(graph, _compiled)
        changes, seen = lines.bind("changing", changing), lines.bind("seen", self._seen)
        self.runs: list[CallRun]
        self.alone: list[tuple[Node, str]]
        self.runs, self.alone = find_runs(graph)
        lines.take_runs(self.runs)
        lines.write_function(
            f"{changes}.count != {seen}[0]",
            lines.bind("again", self._run_again),
            lines.bind("note", self._note),
            self._guards,
        )
        self._lines = lines
        text = lines.text()
        function = generate(
            f"compiled {self._module.name}",
            text,
            "forward",
            lines.names,
            lines.starts,
        )
        lines.link()
        function.code = text
        function.explain = self.explain
        self.function = function

    def explain(self) -> list[NodeGroup]:
        """Return the runs, where they end and why, and the large calls in none."""
        found: list[NodeGroup] = []
        for run in self.runs:
            names = [call.name for call in run.calls]
            done = f"blocks of {counted(len(run.members), 'elementwise call')}"
            found.append(NodeGroup(names, done, f"ends where {run.why}"))
        return [*found, *[NodeGroup([n.name], "call", why) for n, why in self.alone]]

    def _run_again(self, *leaves: Any) -> list[Any]:
        """Run where an operator has changed, or each call is to be checked."""
        if config.checks != "first":
            return self._module.run_list(*leaves)
        with finalized, changing:
            if self._seen[0] != changing.count:
                self._look_up()
        found: list[Any] = self.function(*leaves)
        return found

    def _look_up(self) -> None:
        count = changing.count
        if all(kernel_of(op) is k for op, k in self._lines.kernels.items()):
            self._seen[0] = count
        else:
            self._make()

    def _note(self, error: BaseException) -> None:
        note_nodes(error, self.function.__code__, self._lines.nodes)


def _compiled(module: GraphModule) -> GraphModule:
    """Return a graph of control flow with code of its own.

    Its arguments may lie in memory otherwise in each step of a loop, so it checks strides
    where they have decided what is a view.
    """
    if _is_foreign(module):
        run: Any = module.run_list
    else:
        guards = guards_of(module.inputs, module.place)
        run = NumpyCode(module, guards).function
    return module.with_code(GivenCode(run, getattr(run, "code", ""), module.run_list))
