"""Graphs of rules that other libraries can run: calls of operators that write nothing."""

from __future__ import annotations

from customop.core.operator import Operator
from customop.graph.module import GraphModule
from customop.graph.node import CALL
from customop.transforms.trace.functionalize import functionalize
from customop.transforms.trace.graph_tracer import lay_out


def without_writes(module: GraphModule) -> GraphModule | None:
    """Return a graph that only computes; None if the graph draws, or has loops."""
    found = functionalize(module)
    found.graph.eliminate_dead_code()
    calls = [n for n in found.graph.nodes if n.op == CALL and n.target is not lay_out]
    if all(isinstance(n.target, Operator) and not n.has_effects for n in calls):
        return found
    return None
