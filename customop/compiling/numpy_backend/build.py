"""The code of a graph, for NumPy's arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import CPU
from customop.compiling.numpy_backend.in_place import write_in_place
from customop.compiling.numpy_backend.number_arrays import with_number_arrays
from customop.compiling.numpy_backend.runs import CallRun, find_runs
from customop.compiling.numpy_backend.simplify import simplified
from customop.compiling.numpy_backend.straight import StraightLines
from customop.compiling.report import NodeGroup
from customop.config import config
from customop.core.changes import changing
from customop.core.generated import generate
from customop.errors import counted
from customop.graph.module import GraphModule
from customop.graph.node import Node
from customop.graph.replay import GivenCode, is_plain, kernel_of, note_nodes

__all__ = ["build"]


def build(module: GraphModule) -> Callable[..., list[Any]]:
    """A function of the leaves of the inputs, which returns a list of those of the result.

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
    run: Callable[..., list[Any]] = NumpyCode(with_number_arrays(module)).function
    return run


def _is_foreign(module: GraphModule) -> bool:
    """Whether there are arrays of another library in a graph."""
    if not all(is_plain(type(v)) for v in module.graph.constants.values()):
        return True
    values = [node.val for node in module.graph.nodes]
    return any(isinstance(v, FakeArray) and v.device != CPU.name for v in values)


class NumpyCode:
    """The function of a graph, which is made again when a kernel that it calls changes.

    Attributes
    ----------
    function : callable
        Of the leaves of the inputs.
    runs : list of CallRun
    alone : list of pairs
        Large elementwise calls that are in no run, and why.
    """

    def __init__(self, module: GraphModule) -> None:
        self._module: GraphModule = module
        self._simple: GraphModule = simplified(module)
        write_in_place(self._simple.graph)
        self.function: Any = None
        self._make()

    def _make(self) -> None:
        # The count of changes of tables for which the kernels are right. It goes up when
        # `config.checks` changes, too.
        self._seen: list[int] = [changing.count if config.checks == "first" else -1]
        lines = StraightLines(self._simple.graph, _compiled)
        changes, seen = lines.bind("changing", changing), lines.bind("seen", self._seen)
        self.runs: list[CallRun]
        self.alone: list[tuple[Node, str]]
        self.runs, self.alone = find_runs(self._simple.graph)
        lines.take_runs(self.runs)
        lines.write_function(
            f"{changes}.count != {seen}[0]",
            lines.bind("again", self._run_again),
            lines.bind("note", self._note),
        )
        self._lines = lines
        text = lines.text()
        function = generate(
            f"compiled {self._module.name}", text, "forward", lines.names
        )
        lines.link()
        function.code = text
        function.explain = self.explain
        self.function = function

    def explain(self) -> list[NodeGroup]:
        """The runs, where they end and why, and the large calls in none."""
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
        with changing:
            if self._seen[0] != changing.count:
                self._look_up()
        found: list[Any] = self.function(*leaves)
        return found

    def _look_up(self) -> None:
        count = changing.count
        if all(kernel_of(op) is k for op, k in self._lines.kernels.items()):
            self._seen[0] = count
        else:
            self._simple = simplified(self._module)
            write_in_place(self._simple.graph)
            self._make()

    def _note(self, error: BaseException) -> None:
        note_nodes(error, self.function.__code__, self._lines.nodes)


def _compiled(module: GraphModule) -> GraphModule:
    """A graph of control flow with code of its own."""
    run = build(module)
    return module.with_code(GivenCode(run, getattr(run, "code", ""), module.run_list))
