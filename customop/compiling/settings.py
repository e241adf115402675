"""Calls that a function makes under `np.errstate` of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from customop.graph.graph import Graph
from customop.graph.memory import Memory
from customop.graph.module import GraphModule
from customop.graph.node import CALL, Node
from customop.graph.passes.partition import split_graph

__all__ = ["with_settings"]


class _Settled(GraphModule):
    """A graph that runs under settings of its own for floating-point errors."""

    def __init__(self, module: GraphModule, settings: dict[str, Any]) -> None:
        super().__init__(module.graph, name=module.name, place=module.place)
        self._settings = settings

    def with_graph(self, graph: Graph) -> GraphModule:
        """A module for another graph, under the same settings."""
        module = GraphModule(graph, name=self.name, place=self.place)
        return _Settled(module, self._settings)

    def run(self, *leaves: Any) -> Any:
        """Run the graph on the leaves of its inputs."""
        with np.errstate(**self._settings):
            return super().run(*leaves)


def with_settings(module: GraphModule) -> GraphModule:
    """A module in which calls under `np.errstate` of the function run under it.

    Calls that write, and those that give views, stay as they are: they move elements.
    """
    settings = {n: s for n in module.graph.nodes if (s := n.meta.get("errstate"))}
    if not settings:
        return module
    memory = Memory(module.graph)
    names = {
        node: module.graph.name_for(f"settled_{node.name}")
        for node in settings
        if _computes(node, memory)
    }
    found = split_graph(module, names)
    of_name = {name: settings[node] for node, name in names.items()}
    for node in found.graph.nodes:
        if node.op == CALL and node.name in of_name:
            node.target = _Settled(node.target, of_name[node.name])
    return found


def _computes(node: Node, memory: Memory) -> bool:
    """Whether a call runs a graph or gives new arrays, and writes nothing."""
    if node.op != CALL or node.has_effects:
        return False
    given = [memory.places[n] for n in node.inputs]
    is_new = all(memory.places[node].isdisjoint(places) for places in given)
    return is_new or bool(node.subgraphs)
