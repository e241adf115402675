"""The straight line: one call of NumPy after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from customop.compiling.numpy_backend.calls import WRITERS, ufunc_text
from customop.compiling.numpy_backend.known import builtin_kernel, ufunc_of
from customop.core.table import RuleTable
from customop.graph.graph import Graph
from customop.graph.lines import GraphLines, last_uses, name_of
from customop.graph.module import GraphModule
from customop.graph.node import PLACEHOLDER, Node
from customop.graph.replay import can_be_direct, kernel_of

__all__ = ["StraightLines"]

Inner = Callable[[GraphModule], GraphModule]
_IN_TRY: Final = " " * 8


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
        super().__init__(graph)
        self._inner: Inner = inner
        self._of_module: dict[int, GraphModule] = {}
        self.kernels: dict[RuleTable, Any] = {}

    def add(self, line: str, node: Node | None = None, indent: str = _IN_TRY) -> None:
        """Add a line of the body, inside its ``try``."""
        super().add(line, node, indent)

    def write_function(self, is_stale: str, again: str, note: str) -> None:
        """Write the whole function.

        Parameters
        ----------
        is_stale : str
            A condition for which the function named `again` is called.
        again, note : str
            Names of functions: of the same arguments, and of an error.
        """
        inputs = [node for node in self.graph.nodes if node.op == PLACEHOLDER]
        named = [(node, self.local(node)) for node in inputs]
        given = ", ".join([name for _, name in named])
        self.add(f"def forward({given}):", indent="")
        self.add(f"if {is_stale}: return {again}({given})", indent="    ")
        self.add("try:", indent="    ")
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

    def write_nodes(self) -> None:
        """Write the lines of all nodes."""
        last = last_uses(self.graph)
        for node in self.graph.nodes:
            self.write(node, last.get(node, []))

    # ---- calls ----

    def call(self, node: Node) -> str:
        """The text of a call."""
        op = node.target
        if not isinstance(op, RuleTable) or not can_be_direct(op):
            return super().call(node)
        kernel = self.kernels[op] = kernel_of(op)
        if kernel is None:
            return super().call(node)
        ufunc = ufunc_of(op)
        if ufunc is not None:
            return ufunc_text(self, ufunc, node.values())
        write = WRITERS.get(op.qualname)
        text = write(self, node) if write and builtin_kernel(op) else None
        if text is not None:
            return text
        values = ", ".join([self.value(v) for v in node.values()])
        return f"{self.bind(name_of(op), kernel)}({values})"

    # ---- graphs inside ----

    def operator(self, op: RuleTable | GraphModule) -> str:
        """The global name of an operator, or of a graph, which is compiled."""
        if isinstance(op, GraphModule):
            return self.bind(op.name, self._compiled(op).run)
        return super().operator(op)

    def value(self, value: Any) -> str:
        """The text of an argument."""
        if isinstance(value, GraphModule):
            return self.bind(value.name, self._compiled(value))
        return super().value(value)

    def _compiled(self, module: GraphModule) -> GraphModule:
        known = self._of_module.get(id(module))
        if known is None:
            known = self._of_module[id(module)] = self._inner(module)
        return known
