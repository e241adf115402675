"""Calls of functions on the values of a graph, as new nodes of that graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from customop.arrays.kinds import is_array
from customop.arrays.nested import map_outline
from customop.graph.graph import Graph
from customop.graph.node import ITEM, Node
from customop.shapes.sizes import same_shape
from customop.transforms.trace.interpreter import Trace
from customop.transforms.trace.operators import assign
from customop.transforms.trace.tracer import GraphTracer

__all__ = ["Emitter", "are_alike", "replace_results", "vals_of"]


class Emitter:
    """Runs functions on nodes of a graph, and adds the operators that they call.

    Parameters
    ----------
    graph : Graph
        It gets the new nodes.

    Attributes
    ----------
    trace : Trace
        Open it around calls: it is a context manager.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph: Graph = graph
        self.trace: Trace = Trace("fake", graph)

    def call(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        before: Node,
    ) -> Any:
        """Call a function with the values of nodes.

        Parameters
        ----------
        fn : callable
        args, kwargs
            With nodes in the places of arrays.
        before : Node
            New nodes come before it, and get its place in the user's code.

        Returns
        -------
        object
            What the function returns, with nodes in the places of arrays.
        """
        known: dict[Node, Any] = {}

        def traced(value: Any) -> Any:
            if not isinstance(value, Node):
                return value
            if value not in known:
                known[value] = self.traced(value)
            return known[value]

        start = before.previous
        with self.graph.inserting_before(before):
            out = fn(
                *map_outline(list(args), traced),
                **{name: map_outline(value, traced) for name, value in kwargs.items()},
            )
            # An argument that is returned is the node itself, which is written below.
            own = {id(tracer): node for node, tracer in known.items()}
            found = map_outline(out, lambda v: own.get(id(v)) or self.node_of(v))
            for node, tracer in known.items():
                if isinstance(tracer, GraphTracer) and tracer.node is not node:
                    self.graph.call(assign, (node, tracer.node)).note(None, None)
        place = before.meta.get("place")
        for node in between(start, before):
            if place is not None:
                node.meta["place"] = place
        return found

    def traced(self, node: Node) -> Any:
        """The value of a node as the function sees it."""
        val = node.meta.get("val")
        return GraphTracer(self.trace, val, node) if is_array(val) else val

    def node_of(self, value: Any) -> Any:
        """The node of a traced value or of an array; other values as they are."""
        return self.trace.node_and_value(value)[0]


def vals_of(value: Any) -> Any:
    """Return ``meta["val"]`` of nested nodes; other values as they are."""
    if isinstance(value, Node):
        return value.meta.get("val")
    if isinstance(value, list | tuple):
        return type(value)(map(vals_of, value))
    return value


def are_alike(first: Any, second: Any) -> bool:
    """Whether nested values are certainly of the same shapes and dtypes."""
    if is_array(first) and is_array(second):
        same_type = bool(first.dtype == second.dtype)
        return same_type and same_shape(tuple(first.shape), tuple(second.shape))
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        pairs = zip(first, second, strict=False)
        return len(first) == len(second) and all(are_alike(a, b) for a, b in pairs)
    return type(first) is type(second)


def between(start: Node, end: Node) -> Iterator[Node]:
    """The nodes after `start` and before `end`."""
    node = start.next
    while node is not end:
        yield node
        node = node.next


def replace_results(node: Node, found: Any) -> None:
    """Let the users of a node, and of its items, use what takes its place; erase it."""
    if isinstance(found, Node):
        node.replace_all_uses_with(found)
    else:
        for user in [*node.users]:
            if user.op == ITEM and user.args[0] is node:
                replace_results(user, found[user.args[1]])
            else:
                user.map_inputs(lambda used: found if used is node else used)
    node.graph.erase_node(node)
