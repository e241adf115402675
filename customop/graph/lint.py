"""The checks of `Graph.lint`: the order of the nodes, their users and their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

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


class Flaw(NamedTuple):
    """What is wrong with a node, as a clause that follows its name, and what to do."""

    reason: str
    remedy: str


_BY_METHODS = "edit graphs through their methods, which note users: node.args = ..."


def check_graph(graph: Graph) -> None:
    """Raise a `GraphError` that names the first node that is wrong, and why."""
    seen: dict[Node, None] = {}
    names: set[str] = set()
    sizes: set[str] = set()
    for node in graph.nodes:
        found = _fault(graph, node, seen, names)
        if found is None and graph.sizes is not None:
            found = _fault_of_sizes(node, sizes)
        if found is not None:
            raise fault(node, f"the node '{node.name}' {found.reason}", found.remedy)
        seen[node] = None
        names.add(node.name)
    for node in seen:
        wrong = [u.name for u in node.users if u not in seen or node not in u.inputs]
        if wrong:
            what = f"the node '{node.name}' counts {wrong[0]} as a user, which is not"
            raise fault(node, what, _BY_METHODS)
    assert graph.output_node is not None


def _fault(
    graph: Graph, node: Node, seen: Mapping[Node, None], names: set[str]
) -> Flaw | None:
    """What is wrong with a node, or nothing."""
    if node.graph is not graph:
        return Flaw("is of another graph", _COPY)
    if node.name in names:
        return Flaw("has the name of another one", "give it a name of its own")
    inputs = nodes_in((*node.args, *node.kwargs.values()))
    for used in inputs:
        if used not in seen:
            where, remedy = _where(graph, node, used)
            return Flaw(f"uses '{used.name}', which {where}", remedy)
        if node not in used.users:
            reason = f"uses '{used.name}', which does not count it as a user"
            return Flaw(reason, _BY_METHODS)
    return _fault_of_kind(graph, node)


def _fault_of_sizes(node: Node, known: set[str]) -> Flaw | None:
    """What is wrong with the sizes of a node, or nothing; notes those that it gives."""
    given = (*node.args, *node.kwargs.values())
    missing = sizes_in(given) - known
    if missing:  # a size of another capture, which was open around it, is a value
        context = node.graph.sizes
        own = [v for v in flat([*given]) if getattr(v, "context", context) is context]
        missing = sizes_in(own) - known
    known |= gives_sizes(node.val)
    if missing:
        return Flaw(
            f"uses the size '{min(missing)}', which no node before it has",
            "keep the node whose value has the size before this one",
        )
    return None


def _where(graph: Graph, node: Node, used: Node) -> tuple[str, str]:
    """Where a node is that is not among those before another one, and what to do."""
    if used.is_erased:
        return "was erased", (
            "replace its uses before you erase it: node.replace_all_uses_with(other)"
        )
    if used.graph is not graph:
        return "is of another graph", _COPY
    if used is node:
        return "is the node itself", "pass a node that comes before it"
    return "comes later", (
        "make nodes in the order in which they run: with graph.inserting_before(node)"
    )


_COPY = "make a node in this graph: graph.call(op, args), graph.placeholder(name)"


def _fault_of_kind(graph: Graph, node: Node) -> Flaw | None:
    if node.op == PLACEHOLDER and node.previous.op not in (PLACEHOLDER, "root"):
        return Flaw(
            "is an input behind other nodes",
            "make it before the others: with graph.inserting_before(first_node)",
        )
    if node.op == CONSTANT and node.target not in graph.constants:
        return Flaw(
            f"names the constant '{node.target}', which the graph does not have",
            "make constants by graph.constant(value)",
        )
    if node.op == OUTPUT and node.next is not graph.root:
        return Flaw(
            "is the output and not the last node",
            "make nodes before it: with graph.inserting_before(graph.output_node)",
        )
    if node.op == ITEM and (len(node.args) != 2 or type(node.args[0]) is not Node):
        return Flaw(
            f"is an item of {node.args}, must be of a node and an index",
            "write node.args = (node of a list, index)",
        )
    return _fault_of_call(node) if node.op == CALL else None


def _fault_of_call(node: Node) -> Flaw | None:
    schema = getattr(node.target, "schema", None)
    if schema is None:
        return Flaw(
            f"calls {node.target!r}, which is not an operator",
            "set node.target to an operator, such as customop.ops.np.sin.default",
        )
    required = [p for p in schema.positional if p.default is MISSING]
    if not len(required) <= len(node.args) <= len(schema.positional):
        given = counted(len(node.args), "argument")
        return Flaw(
            f"has {given} for {node.target.qualname}{schema}",
            "write node.args with a value for each parameter that has no default",
        )
    known = [p.name for p in schema.keyword_only]
    odd = [name for name in node.kwargs if name not in known]
    if odd:
        return Flaw(
            f"has the keyword '{odd[0]}', which {node.target.qualname} does not take",
            f"write node.kwargs without it{_named(known)}",
        )
    for p in schema.keyword_only:
        if p.default is MISSING and p.name not in node.kwargs:
            return Flaw(
                f"lacks the keyword '{p.name}' of {node.target.qualname}{schema}",
                f"write node.kwargs = {{'{p.name}': ...}}",
            )
    for p, value in zip(schema.positional, node.args, strict=False):
        if is_array_type(p.type) and not isinstance(value, _FOR_ARRAYS):
            return Flaw(
                f"has {shown(value)} for the array '{p.name}'",
                "pass a node: a constant array by graph.constant(value)",
            )
    return None


def _named(known: list[str]) -> str:
    return f"; the operator takes {', '.join(known)}" if known else ""


_FOR_ARRAYS = (Node, int, float, complex)
