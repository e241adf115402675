"""Run a graph node by node, where to compile it would take longer than to run it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from customop.arrays.nested import map_nested
from customop.arrays.pytree import unflatten
from customop.graph.graph import Graph
from customop.graph.guards import guards_of, result_guard
from customop.graph.module import GraphModule
from customop.graph.node import (
    CALL,
    CONSTANT,
    ITEM,
    PLACEHOLDER,
    Node,
)
from customop.graph.sizes import SizeValues
from customop.shapes.symbols import Symbolic

__all__ = ["run_once"]


def run_once(module: GraphModule, leaves: Sequence[Any]) -> Any:
    """Run a graph on the leaves of its inputs.

    It does and checks what the generated code of a `GraphModule` does and checks, but
    frees no value before the end. A graph of three nodes is compiled in the time of five
    runs.

    Raises
    ------
    GuardError
        If an input, a size or a result is not as the graph was traced for.
    """
    run = _NodeByNode(module.graph)
    run.take(leaves)
    for node in module.graph.nodes:
        run.step(node)
    out = [run.value(leaf) for leaf in module.graph.output_node.args[0]]
    if module.out_spec is not None:
        return unflatten(module.out_spec, out)
    return out[0] if len(out) == 1 else out


class _NodeByNode:
    """The values of the nodes in one run."""

    def __init__(self, graph: Graph) -> None:
        self.graph: Graph = graph
        self.known: dict[Node, Any] = {}
        sizes = graph.sizes
        self.sizes: SizeValues | None = None if sizes is None else SizeValues(sizes)

    def take(self, leaves: Sequence[Any]) -> None:
        """Take the inputs, and check the guards."""
        inputs = [node for node in self.graph.nodes if node.op == PLACEHOLDER]
        pairs = [*zip(inputs, leaves, strict=True)]
        self.known.update(pairs)
        for guard, leaf in zip(guards_of(inputs, ""), leaves, strict=True):
            guard.check(leaf)
        if self.sizes is not None:
            self.sizes.read_inputs(pairs)

    def step(self, node: Node) -> None:
        """Run a node, unless it is an input or the output."""
        if node.op == CONSTANT:
            self.known[node] = self.graph.constants[node.target]
        elif node.op == CALL:
            values = [self.value(value) for value in node.values()]
            self._check(node, self._called(node, values))
        elif node.op == ITEM:
            parent, index = node.args
            self._check(node, self.known[parent][index])

    def _called(self, node: Node, values: Sequence[Any]) -> Any:
        try:
            return node.target.run(*values)
        except Exception as error:
            place = node.meta.get("place", "an unknown place")
            error.add_note(f"in the node '{node.name}', traced at {place}")
            raise

    def _check(self, node: Node, found: Any) -> None:
        """Keep a result, which must be as it was traced."""
        guard = result_guard(node)
        if guard is not None:
            guard.check(found)
        if self.sizes is not None:
            self.sizes.read_result(node, found)
        self.known[node] = found

    def value(self, value: Any) -> Any:
        """An argument, with values in the place of nodes and numbers in that of sizes."""
        return map_nested(value, self._leaf)

    def _leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, Node):
            return self.known[leaf]
        if isinstance(leaf, Symbolic) and self.sizes is not None:
            return self.sizes.of(leaf)
        return leaf
