"""Parts of graphs: patterns found, parts split, fused and inlined, and both halves of a gradient."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.kinds import is_array
from customop.arrays.nested import children, flat, flatten, steps
from customop.errors import ArgumentError, GraphError, shown
from customop.graph.graph import Graph
from customop.graph.module import GraphModule
from customop.graph.node import (
    CALL,
    CONSTANT,
    ITEM,
    OUTPUT,
    PLACEHOLDER,
    Node,
    caller_of,
    gives_sizes,
    missing_sizes,
    sizes_in,
)
from customop.graph.passes import (
    GraphT,
    Order,
    frozen_key,
    graph_of,
    sort_groups,
    with_graph,
)
from customop.shapes.sizes import Symbolic

# ---- where a small graph, a pattern, occurs in another one ----


# Node of the pattern -> node of the graph, or a number in the place of a wildcard.
Match = dict[Node, Any]


def match_at(
    outputs: Sequence[Node], node: Node, *, is_exact: bool = True
) -> Iterator[Match]:
    """Go through the ways in which a pattern fits, with its first output at a node.

    Parameters
    ----------
    outputs : sequence of Node
        Those of the pattern. Its inputs are wildcards.
    node : Node
        Of the graph.
    is_exact : bool
        False to compare operators alone, not numbers and other constants.
    """
    matcher = _Matcher(is_exact)
    first: Match = {}
    if matcher.fits(outputs[0], node, first):
        yield from matcher.complete(outputs[1:], first)


class _Matcher:
    def __init__(self, is_exact: bool) -> None:
        self._is_exact = is_exact

    def complete(self, outputs: Sequence[Node], found: Match) -> Iterator[Match]:
        """Go through matches that have the other outputs too."""
        if not outputs:
            yield found
            return
        for node in [found[outputs[0]]] if outputs[0] in found else _near(found):
            more = dict(found)
            if isinstance(node, Node) and self.fits(outputs[0], node, more):
                yield from self.complete(outputs[1:], more)

    def fits(self, wanted: Node, given: Any, found: Match) -> bool:
        """Match a node against a pattern node and record what was bound."""
        if wanted in found:
            return _is_same(found[wanted], given)
        if wanted.op == PLACEHOLDER:
            found[wanted] = given
            return _is_value(given)
        if not isinstance(given, Node) or not self._is_alike(wanted, given):
            return False
        found[wanted] = given
        return wanted.op == CONSTANT or self._inputs_fit(wanted, given, found)

    def _is_alike(self, wanted: Node, given: Node) -> bool:
        """Return whether two nodes do the same, whatever their inputs are."""
        if wanted.op != given.op:
            return False
        if wanted.op == CONSTANT:
            return not self._is_exact or _same_constants(wanted, given)
        return wanted.op != CALL or wanted.target is given.target

    def _inputs_fit(self, wanted: Node, given: Node, found: Match) -> bool:
        if wanted.op == ITEM:
            same = wanted.args[1] == given.args[1]
            return same and self.fits(wanted.args[0], given.args[0], found)
        return self._values_fit(wanted.values(), given.values(), found)

    def _values_fit(self, wanted: Any, given: Any, found: Match) -> bool:
        if isinstance(wanted, Node):
            return self.fits(wanted, given, found)
        parts = children(wanted)
        if parts is None:
            return not isinstance(given, Node) and (
                not self._is_exact or frozen_key(wanted) == frozen_key(given)
            )
        others = children(given)
        if others is None or type(wanted) is not type(given):
            return False
        if not self._is_exact and not any(
            isinstance(leaf, Node) for leaf in flat(wanted)
        ):
            return True
        if [*steps(wanted)] != [*steps(given)]:
            return False
        pairs = zip(parts, others, strict=True)
        return all(self._values_fit(a, b, found) for a, b in pairs)


def _is_value(given: Any) -> bool:
    """Return whether a wildcard fits: any node but the output, and numbers."""
    if isinstance(given, Node):
        return given.op != OUTPUT
    return isinstance(given, int | float | complex)


def _is_same(a: Any, b: Any) -> bool:
    if isinstance(a, Node) or isinstance(b, Node):
        return a is b
    return frozen_key(a) == frozen_key(b)


def _same_constants(wanted: Node, given: Node) -> bool:
    a = wanted.graph.constants[wanted.target]
    b = given.graph.constants[given.target]
    if a is b:
        return True
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return False
    same_type = a.dtype == b.dtype and a.shape == b.shape
    return same_type and not a.dtype.hasobject and a.tobytes() == b.tobytes()


def _near(found: Match) -> list[Node]:
    """Return the nodes that use what is matched so far."""
    nodes = [node for node in found.values() if isinstance(node, Node)]
    return list(dict.fromkeys(user for node in nodes for user in node.users))


# ---- whether a match can be replaced ----


def escapes(
    match: Match,
    outputs: Sequence[Node],
    order: Order,
    position: Mapping[Node, int],
) -> bool:
    """Return whether a match cannot be one call, at the place of its last node.

    Something else uses a value inside, or needs one of its calls to have run before.
    `position` has the number of each node.
    """
    inside = {
        node
        for wanted, node in match.items()
        if wanted.op in (CALL, ITEM) and isinstance(node, Node)
    }
    results = {match[wanted] for wanted in outputs}
    for node in inside - results:
        if any(user not in inside and not _is_dead(user) for user in node.users):
            return True
    calls = {caller_of(node) for node in inside}
    return any(
        node.op == CALL and not calls.isdisjoint(order.before[node])
        for node in _between(inside, position)
        if node not in inside
    )


def _is_dead(node: Node) -> bool:
    return node.op == ITEM and not node.users


def _between(nodes: set[Node], position: Mapping[Node, int]) -> Iterator[Node]:
    """Go through the nodes from the first of some to the last."""
    node = min(nodes, key=position.__getitem__)
    last = max(nodes, key=position.__getitem__)
    while node is not last:
        yield node
        node = node.next


# ---- parts of a graph as graphs of their own ----
# `split_graph`, `fuse_nodes`, `inline_graphs`.


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
        """Return the new graph."""
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
        """Return the new node for an old one; copy constants when needed."""
        if node not in self._known:
            assert node.op == CONSTANT
            self._copy(node)
        return self._known[node]

    def _add_part(self, name: str) -> None:
        """Return a call of the graph of some nodes."""
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
    """Copy nodes into a graph of their own; return it and the nodes that it takes."""
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
    """Return more inputs, to read off sizes that the nodes of a part use."""
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


# ---- halves ----
# A graph of a function and its gradients, split into a forward and a backward graph.


class Halves(NamedTuple):
    """The two halves of a function under reverse mode.

    Attributes
    ----------
    forward : GraphModule
        Takes the inputs; returns the outputs, and then what is saved.
    backward : GraphModule
        Takes the inputs in `kept`, what was saved, and cotangents; returns gradients.
    kept : list of int
        Inputs that the backward graph takes.
    saved : list of FakeArray
        What is saved.
    """

    forward: GraphModule
    backward: GraphModule
    kept: list[int]
    saved: list[Any]


def split(
    joint: GraphModule,
    inputs: int,
    outputs: int,
    *,
    recomputes: bool = False,
) -> Halves:
    """Split a graph of inputs and cotangents to outputs and gradients.

    Parameters
    ----------
    joint : GraphModule
    inputs, outputs : int
        How many inputs come before the cotangents, and outputs before the gradients.
    recomputes : bool
        Whether the backward graph computes again from the inputs what it needs, instead
        of saving it. Random numbers and what is written are saved all the same.
    """
    leaves = joint.graph.output_node.args[0]
    given = joint.inputs
    late = depending(joint.graph, given[inputs:])
    wanted = saved_nodes(joint, leaves[outputs:], inputs, late, recomputes=recomputes)
    kept = [i for i, node in enumerate(given[:inputs]) if node in wanted]
    saved = [node for node in wanted if node.op in (CALL, ITEM)]
    forward = part(joint, given[:inputs], [*leaves[:outputs], *saved])
    starts = [*(given[i] for i in kept), *saved, *given[inputs:]]
    once = {n for n in joint.graph.nodes if n.has_effects and n not in late}
    backward = part(joint, starts, leaves[outputs:], once)
    return Halves(forward, backward, kept, [node.meta["val"] for node in saved])


def saved_nodes(
    joint: GraphModule,
    gradients: Sequence[Any],
    inputs: int,
    late: Container[Node],
    *,
    recomputes: bool = False,
) -> dict[Node, None]:
    """Return the inputs and saved nodes that the backward graph takes, in order.

    Parameters
    ----------
    joint : GraphModule
    gradients : sequence of Node
        The outputs of the backward graph.
    inputs : int
        How many inputs come before the cotangents.
    late : collection of Node
        Those of the backward graph.
    recomputes : bool
        As for `split`.
    """
    graph = joint.graph
    wanted = _needed(graph, gradients, late, recomputes=recomputes)
    if graph.sizes is None or not graph.sizes.sizes:
        return wanted
    early = [node for node in graph.nodes if node not in late]
    return _with_sizes(joint, wanted, gradients, inputs, early)


def _with_sizes(
    joint: GraphModule,
    wanted: dict[Node, None],
    ends: Sequence[Any],
    inputs: int,
    early: Sequence[Node],
) -> dict[Node, None]:
    """Return what the backward graph takes, with nodes that bring it sizes."""
    starts = [*wanted, *joint.inputs[inputs:]]
    missing = missing_sizes(part(joint, starts, ends).graph.nodes)
    if not missing:
        return wanted
    more: set[Node] = set()
    for node in early:
        is_number = node.op == PLACEHOLDER and isinstance(node.val, Symbolic)
        if node.op == OUTPUT or not (is_number or is_array(node.val)):
            continue
        if missing & gives_sizes(node.val):
            missing -= gives_sizes(node.val)
            more.add(node)
    return {n: None for n in joint.graph.nodes if n in more or n in wanted}


def depending(graph: Graph, starts: Iterable[Node]) -> set[Node]:
    """Return the nodes that depend on some of them, and these."""
    found = set(starts)
    for node in graph.nodes:
        if any(used in found for used in node.inputs):
            found.add(node)
    return found


def _needed(
    graph: Graph, ends: Sequence[Any], late: Container[Node], *, recomputes: bool
) -> dict[Node, None]:
    """Return the nodes that the backward graph takes, in their order."""
    found: set[Node] = set()
    seen: set[Node] = set()
    waiting = [node for node in ends if isinstance(node, Node)]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if node not in late and _is_saved(node, recomputes):
            found.add(node)
        else:
            waiting += node.inputs
    return {node: None for node in graph.nodes if node in found}


def _is_saved(node: Node, recomputes: bool) -> bool:
    if node.op == CONSTANT or not is_array(node.meta["val"]):
        return False
    if node.op == PLACEHOLDER or not recomputes:
        return True
    source = node.args[0] if node.op == ITEM else node
    return bool(source.has_effects)


def part(
    joint: GraphModule,
    starts: Sequence[Node],
    ends: Sequence[Any],
    without: Container[Node] = (),
) -> GraphModule:
    """Return the part of a graph from some nodes to others, `without` some calls.

    Its inputs are the nodes in `starts`, its outputs those in `ends`.
    """
    graph = Graph()
    graph.sizes = joint.graph.sizes
    known: dict[Node, Node] = {}
    for node in starts:
        known[node] = new = graph.placeholder(node.name)
        new.note(node.meta["val"], node.meta.get("place"))
    for node in joint.graph.nodes:
        if node in known or node.op not in (CALL, ITEM, CONSTANT):
            continue
        if node in without and node.op != CONSTANT:
            continue
        if all(used in known for used in node.inputs):
            known[node] = graph.copy_node(node, known.__getitem__)
    graph.output([known[end] if isinstance(end, Node) else end for end in ends])
    graph.eliminate_dead_code()
    spec = flatten([*range(len(ends))])[1]
    return GraphModule(graph, None, spec, name=joint.__name__, place=joint.place)
