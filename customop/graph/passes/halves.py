"""A graph of a function and its gradients, split into a forward and a backward graph."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any, NamedTuple

from customop.arrays.kinds import is_array
from customop.arrays.pytree import flatten
from customop.graph.graph import Graph
from customop.graph.module import GraphModule
from customop.graph.node import CALL, CONSTANT, ITEM, OUTPUT, PLACEHOLDER, Node
from customop.graph.size_uses import gives_sizes, missing_sizes
from customop.shapes.symbols import Symbolic

__all__ = ["Halves", "depending", "part", "saved_nodes", "split"]


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
    """The nodes that the backward graph takes, in their order: inputs, and saved ones.

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
    """The nodes that the backward graph takes, and those that have sizes for it."""
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
    """The nodes that depend on some of them, and these."""
    found = set(starts)
    for node in graph.nodes:
        if any(used in found for used in node.inputs):
            found.add(node)
    return found


def _needed(
    graph: Graph, ends: Sequence[Any], late: Container[Node], *, recomputes: bool
) -> dict[Node, None]:
    """The nodes that the backward graph takes, in their order."""
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
    """The part of a graph from some nodes to others, `without` some calls.

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
