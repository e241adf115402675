"""Parts of a graph as graphs of their own: `split_graph`, `fuse_nodes`, `inline_graphs`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from customop.errors import ArgumentError, GraphError, shown
from customop.graph.graph import Graph
from customop.graph.module import GraphModule
from customop.graph.node import CALL, CONSTANT, ITEM, OUTPUT, PLACEHOLDER, Node
from customop.graph.order import Order, caller_of, sort_groups
from customop.graph.passes.apply import GraphT, graph_of, with_graph
from customop.graph.size_uses import gives_sizes, sizes_in

__all__ = ["fuse_nodes", "inline_graphs", "split_graph"]


def split_graph(
    graph: GraphT, part_of: Callable[[Node], str | None] | Mapping[Node, str]
) -> GraphT:
    """Put the calls of a graph into named parts, which are graphs of their own.

    Parameters
    ----------
    graph : GraphModule or Graph
        It stays as it is.
    part_of : callable or mapping
        Gives the name of the part for a call; None for a call that is in no part.

    Returns
    -------
    GraphModule or Graph
        A new one, with a call of a `GraphModule` for each part. The parts run in an order
        in which each has what it needs.

    Raises
    ------
    GraphError
        If two parts need results of each other.
    ArgumentError
        If `part_of` gives something other than a name.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> module = co.make_fx(lambda x: np.exp(np.sin(x) * 2.0))(np.ones(3))
    >>> names = {"sin": "first", "multiply": "first", "exp": "second"}
    >>> parts = co.split_graph(module, lambda node: names[node.name])
    >>> [node.name for node in parts.graph.nodes]
    ['x', 'first', 'second', 'output']
    >>> np.array_equal(parts(np.ones(3)), module(np.ones(3)))
    True
    """
    inner = graph_of(graph, "split_graph")
    asked = part_of.get if isinstance(part_of, Mapping) else part_of
    chosen: dict[Node, str] = {}
    for node in inner.nodes:
        if node.op != CALL:
            continue
        name = asked(node)
        if name is not None:
            chosen[node] = _checked_name(name, node)
    return with_graph(graph, _Splitting(inner, chosen, "split_graph").run())


def fuse_nodes(
    graph: GraphT, nodes: Iterable[Node | str], name: str = "fused"
) -> GraphT:
    """Replace several nodes by one, which calls a `GraphModule` of them.

    Parameters
    ----------
    graph : GraphModule or Graph
        It stays as it is.
    nodes : iterable of Node or str
        Calls of the graph, or their names.
    name : str
        The name of the new node.

    Returns
    -------
    GraphModule or Graph
        A new one.

    Raises
    ------
    GraphError
        If a node between them needs one of them, and another one needs that.
    ArgumentError
        If a node is not a call of this graph.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> module = co.make_fx(lambda x: np.exp(np.sin(x) * 2.0))(np.ones(3))
    >>> fused = co.fuse_nodes(module, ["sin", "multiply"])
    >>> [node.name for node in fused.graph.nodes]
    ['x', 'fused', 'exp', 'output']
    """
    inner = graph_of(graph, "fuse_nodes")
    known = {node.name: node for node in inner.nodes}
    chosen = {}
    for given in nodes:
        node = known.get(given) if isinstance(given, str) else given
        if not isinstance(node, Node) or known.get(node.name) is not node:
            raise ArgumentError(
                f"fuse_nodes: {shown(given)} is not a node of the graph",
                do="pass nodes of graph.nodes, or their names",
            )
        caller = caller_of(node)
        if caller.op != CALL:
            raise ArgumentError(
                f"fuse_nodes: '{node.name}' is not a call but the {_KINDS[caller.op]}",
                do="pass calls of operators",
            )
        chosen[caller] = _checked_name(name, caller)
    return with_graph(graph, _Splitting(inner, chosen, "fuse_nodes").run())


_KINDS = {PLACEHOLDER: "input", CONSTANT: "constant", OUTPUT: "output"}


def _checked_name(name: Any, node: Node) -> str:
    if not isinstance(name, str) or not name.isidentifier():
        raise ArgumentError(
            f"the part of '{node.name}' is {shown(name)}, which is not a name",
            do='use a Python identifier, such as "encoder"',
        )
    return name


class _Splitting:
    """Builds a graph of calls of parts."""

    def __init__(self, graph: Graph, chosen: Mapping[Node, str], title: str) -> None:
        self._graph = graph
        self._title = title
        self._chosen = chosen
        self._new = Graph()
        self._new.sizes = graph.sizes
        # Node -> the node of the new graph that has its value.
        self._known: dict[Node, Node] = {}
        # Call -> its part, or the call itself; and the nodes of each in order.
        self._group_of: dict[Node, Any] = {}
        self._members: dict[Any, list[Node]] = {}

    def run(self) -> Graph:
        """The new graph."""
        for node in self._graph.nodes:
            if node.op == PLACEHOLDER:
                self._copy(node)
            elif node.op in (CALL, ITEM):
                caller = caller_of(node)
                group = self._chosen.get(caller, caller)
                self._group_of[caller] = group
                self._members.setdefault(group, []).append(node)
        for group in self._sorted():
            if isinstance(group, str):
                self._add_part(group)
            else:
                for node in self._members[group]:
                    self._copy(node)
        self._copy(self._graph.output_node)
        self._new.lint()
        return self._new

    def _sorted(self) -> list[Any]:
        order, stuck = sort_groups(Order(self._graph), self._group_of)
        if stuck:
            parts = [f"'{group}'" for group in stuck if isinstance(group, str)]
            others = [
                f"'{group.name}'" for group in stuck if not isinstance(group, str)
            ]
            between = f", with {', '.join(others[:3])} between" if others else ""
            raise GraphError(
                f"{self._title}: {' and '.join(parts)} cannot run as one call: nodes in"
                f" and outside of it need each other{between}",
                do="put the nodes between into the same part, or make more parts",
            )
        return order

    def _copy(self, node: Node) -> None:
        self._known[node] = self._new.copy_node(node, self._outer)

    def _outer(self, node: Node) -> Node:
        """The node of the new graph for one of the old; constants come when needed."""
        if node not in self._known:
            assert node.op == CONSTANT
            self._copy(node)
        return self._known[node]

    def _add_part(self, name: str) -> None:
        """A call of the graph of some nodes."""
        members = self._members[name]
        inside = {*members}
        part, given = _extracted(members, self._graph)
        results = [n for n in members if any(u not in inside for u in n.users)]
        part.graph.output([part.known[node] for node in results])
        module = GraphModule(part.graph, name=name, place=_place_of(members))
        call = self._new.call(module, [self._outer(node) for node in given], name=name)
        vals = [node.meta.get("val") for node in results]
        call.meta = {"val": vals[0] if len(vals) == 1 else tuple(vals)}
        if module.place:
            call.meta["place"] = module.place
        for i, node in enumerate(results):
            new = call if len(results) == 1 else self._new.item(call, i, node.name)
            if new is not call:
                new.meta = node.meta
            self._known[node] = new


class _Part:
    """The graph of a part, and its nodes for those of the whole graph."""

    def __init__(self) -> None:
        self.graph: Graph = Graph()
        self.known: dict[Node, Node] = {}


def _extracted(members: Sequence[Node], graph: Graph) -> tuple[_Part, list[Node]]:
    """Copies of nodes in a graph of their own, and the nodes that are its inputs."""
    part = _Part()
    part.graph.sizes = graph.sizes
    inside = {*members}
    outside = dict.fromkeys(n for m in members for n in m.inputs if n not in inside)
    given = [node for node in outside if node.op != CONSTANT]
    given += _size_sources(members, given, graph)
    for node in given:
        part.known[node] = part.graph.placeholder(node.name, node.meta.get("val"))
    for node in outside:
        if node.op == CONSTANT:
            part.known[node] = part.graph.copy_node(node, part.known.__getitem__)
    for node in members:
        part.known[node] = part.graph.copy_node(node, part.known.__getitem__)
    return part, given


def _size_sources(
    members: Sequence[Node], given: Sequence[Node], graph: Graph
) -> list[Node]:
    """More inputs, to read off sizes that the nodes of a part use."""
    used = [value for node in members for value in (*node.args, *node.kwargs.values())]
    needed = sizes_in([*used, *(node.val for node in given)])
    needed -= frozenset().union(*(gives_sizes(node.val) for node in given))
    inside = {*members}
    found: list[Node] = []
    for node in graph.nodes if needed else ():
        if node not in inside and needed & gives_sizes(node.val):
            found.append(node)
            needed -= gives_sizes(node.val)
    return found


def _place_of(members: Iterable[Node]) -> str:
    places = [str(node.meta["place"]) for node in members if node.meta.get("place")]
    return places[0] if places else ""


# ---- the reverse ----


def inline_graphs(graph: GraphT) -> GraphT:
    """Replace calls of graph modules by the nodes inside them.

    It undoes `split_graph` and `fuse_nodes`. Graphs that are arguments stay, as those of
    control flow.

    Parameters
    ----------
    graph : GraphModule or Graph
        It stays as it is.

    Returns
    -------
    GraphModule or Graph
        A new one.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> module = co.make_fx(lambda x: np.exp(np.sin(x) * 2.0))(np.ones(3))
    >>> fused = co.fuse_nodes(module, ["sin", "multiply"])
    >>> [node.name for node in co.inline_graphs(fused).graph.nodes]
    ['x', 'sin', 'multiply', 'exp', 'output']
    """
    old = graph_of(graph, "inline_graphs")
    new = Graph()
    new.sizes = old.sizes
    new.output(_copied_into(new, old, {}))
    return with_graph(graph, new)


def _copied_into(new: Graph, graph: Graph, known: dict[Node, Any]) -> list[Any]:
    """Copy the nodes of a graph, opened, whose inputs may be known; leaves of the output."""
    for node in graph.nodes:
        if node in known:
            continue
        if node.op == OUTPUT:
            return [known[v] if isinstance(v, Node) else v for v in node.args[0]]
        if node.op == ITEM and isinstance(known[node.args[0]], list):
            known[node] = known[node.args[0]][node.args[1]]
        elif node.op == CALL and isinstance(node.target, GraphModule):
            args, _ = node.mapped(known.__getitem__)
            inner = dict(zip(node.target.inputs, args, strict=True))
            leaves = _copied_into(new, node.target.graph, inner)
            known[node] = leaves[0] if len(leaves) == 1 else leaves
        else:
            known[node] = new.copy_node(node, known.__getitem__)
    raise AssertionError("a graph ends with its output")
