"""How a pass is applied: to a copy, which it edits, and to the graphs inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from customop.arrays.nested import map_nested
from customop.errors import ArgumentError, counted, shown
from customop.graph.graph import Graph
from customop.graph.module import GraphModule
from customop.graph.node import Node
from customop.progress import node_channel

__all__ = ["GraphT", "edited", "graph_of", "with_graph"]

GraphT = TypeVar("GraphT", Graph, GraphModule)


def graph_of(given: Graph | GraphModule, name: str = "a pass") -> Graph:
    """The graph that a pass was given, also in a module."""
    if isinstance(given, GraphModule):
        return given.graph
    if isinstance(given, Graph):
        return given
    raise ArgumentError(
        f"{name} takes a GraphModule or a Graph, got {shown(given)}",
        do="capture one: make_fx(f)(*args)",
    )


def with_graph(given: GraphT, graph: Graph) -> GraphT:
    """A new graph as what a pass was given: with inputs and outputs as before."""
    found: Any = given.with_graph(graph) if isinstance(given, GraphModule) else graph
    return found  # type: ignore[no-any-return]  # of the class of `given`


def edited(given: GraphT, edit: Callable[[Graph], None]) -> GraphT:
    """A copy of a graph that was edited, and in which the graphs inside were too.

    Parameters
    ----------
    given : Graph or GraphModule
    edit : callable
        Changes the graph that it is given.

    Returns
    -------
    Graph or GraphModule
    """
    old = graph_of(given)
    node_channel.stage(f"simplifying {counted(old.count, 'node')}")
    new = old.copy()
    for node in new.nodes:
        if node.subgraphs:
            _edit_inner(node, edit)
    edit(new)
    return with_graph(given, new)


def _edit_inner(node: Node, edit: Callable[[Graph], None]) -> None:
    def change(value: Any) -> Any:
        return edited(value, edit) if isinstance(value, GraphModule) else value

    node.target = change(node.target)
    named = {name: map_nested(value, change) for name, value in node.kwargs.items()}
    args = tuple([map_nested(value, change) for value in node.args])
    node.set_inputs(args, named)
