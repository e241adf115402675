"""The checks of `Graph.lint`: the order of the nodes, their users and their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from customop.arrays.nested import flat
from customop.errors import counted, shown
from customop.graph.node import (
    CALL,
    CONSTANT,
    ITEM,
    OUTPUT,
    PLACEHOLDER,
    Node,
    fault,
    nodes_in,
)
from customop.graph.size_uses import gives_sizes, sizes_in
from customop.schema.parameters import MISSING
from customop.schema.types import is_array_type

if TYPE_CHECKING:  # a graph checks itself
    from customop.graph.graph import Graph

__all__ = ["check_graph"]

_REPAIR = "edit graphs through their methods, in the order in which nodes run"


def check_graph(graph: Graph) -> None:
    """Raise a `GraphError` that names the first node that is wrong, and why."""
    seen: dict[Node, None] = {}
    names: set[str] = set()
    sizes: set[str] = set()
    for node in graph.nodes:
        reason = _reason(graph, node, seen, names)
        if not reason and graph.sizes is not None:
            reason = _reason_of_sizes(node, sizes)
        if reason:
            raise fault(node, f"the node '{node.name}' {reason}", _REPAIR)
        seen[node] = None
        names.add(node.name)
    for node in seen:
        wrong = [u.name for u in node.users if u not in seen or node not in u.inputs]
        if wrong:
            what = f"the node '{node.name}' counts {wrong[0]} as a user, which is not"
            raise fault(node, what, _REPAIR)
    assert graph.output_node is not None


def _reason(
    graph: Graph, node: Node, seen: Mapping[Node, None], names: set[str]
) -> str:
    """The reason why a node is wrong, or nothing."""
    if node.graph is not graph:
        return "is of another graph"
    if node.name in names:
        return "has the name of another one"
    inputs = nodes_in((*node.args, *node.kwargs.values()))
    for used in inputs:
        if used not in seen:
            return f"uses '{used.name}', which {_where(graph, node, used)}"
        if node not in used.users:
            return f"uses '{used.name}', which does not count it as a user"
    return _reason_of_kind(graph, node)


def _reason_of_sizes(node: Node, known: set[str]) -> str:
    """The reason why sizes of a node are wrong, or nothing; notes those that it gives."""
    given = (*node.args, *node.kwargs.values())
    missing = sizes_in(given) - known
    if missing:  # a size of another capture, which was open around it, is a value
        context = node.graph.sizes
        own = [v for v in flat([*given]) if getattr(v, "context", context) is context]
        missing = sizes_in(own) - known
    known |= gives_sizes(node.val)
    if missing:
        return f"uses the size '{min(missing)}', which no node before it has"
    return ""


def _where(graph: Graph, node: Node, used: Node) -> str:
    """Where a node is that is not among those before another one."""
    if used.is_erased:
        return "was erased"
    if used.graph is not graph:
        return "is of another graph"
    return "is the node itself" if used is node else "comes later"


def _reason_of_kind(graph: Graph, node: Node) -> str:
    if node.op == PLACEHOLDER and node.previous.op not in (PLACEHOLDER, "root"):
        return "is an input behind other nodes"
    if node.op == CONSTANT and node.target not in graph.constants:
        return f"names the constant '{node.target}', which the graph does not have"
    if node.op == OUTPUT and node.next is not graph.root:
        return "is the output and not the last node"
    if node.op == ITEM and (len(node.args) != 2 or type(node.args[0]) is not Node):
        return f"is an item of {node.args}, must be of a node and an index"
    return _reason_of_call(node) if node.op == CALL else ""


def _reason_of_call(node: Node) -> str:
    schema = getattr(node.target, "schema", None)
    if schema is None:
        return f"calls {node.target!r}, which is not an operator"
    required = [p for p in schema.positional if p.default is MISSING]
    if not len(required) <= len(node.args) <= len(schema.positional):
        given = counted(len(node.args), "argument")
        return f"has {given} for {node.target.qualname}{schema}"
    known = [p.name for p in schema.keyword_only]
    odd = [name for name in node.kwargs if name not in known]
    if odd:
        return f"has the keyword '{odd[0]}', which {node.target.qualname} does not take"
    for p in schema.keyword_only:
        if p.default is MISSING and p.name not in node.kwargs:
            return f"lacks the keyword '{p.name}' of {node.target.qualname}{schema}"
    for p, value in zip(schema.positional, node.args, strict=False):
        if is_array_type(p.type) and not isinstance(value, _FOR_ARRAYS):
            return f"has {shown(value)} for the array '{p.name}'"
    return ""


_FOR_ARRAYS = (Node, int, float, complex)
