"""A graph of a function and its gradients, split into a forward and a backward graph."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple

from customop.arrays.dtypes import is_inexact
from customop.arrays.kinds import is_array
from customop.arrays.nested import flat
from customop.arrays.pytree import flatten
from customop.graph.graph import Graph
from customop.graph.module import GraphModule
from customop.graph.node import CALL, CONSTANT, ITEM, OUTPUT, PLACEHOLDER, Node
from customop.graph.size_uses import gives_sizes, missing_sizes

__all__ = ["Halves", "differing_outputs", "moving_outputs", "split"]


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
    joint: GraphModule, inputs: int, outputs: int, *, recomputes: bool = False
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
    graph = joint.graph
    leaves = graph.output_node.args[0]
    given = joint.inputs
    late = _depending(graph, given[inputs:])
    wanted = _needed(graph, leaves[outputs:], late, recomputes=recomputes)
    if graph.sizes is not None and graph.sizes.sizes:
        early = [node for node in graph.nodes if node not in late]
        wanted = _with_sizes(joint, wanted, leaves[outputs:], inputs, early)
    kept = [i for i, node in enumerate(given[:inputs]) if node in wanted]
    saved = [node for node in wanted if node.op in (CALL, ITEM)]
    forward = _part(joint, given[:inputs], [*leaves[:outputs], *saved])
    starts = [*(given[i] for i in kept), *saved, *given[inputs:]]
    once = {node for node in graph.nodes if node.has_effects and node not in late}
    backward = _part(joint, starts, leaves[outputs:], once)
    return Halves(forward, backward, kept, [node.meta["val"] for node in saved])


def _with_sizes(
    joint: GraphModule,
    wanted: dict[Node, None],
    ends: Sequence[Any],
    inputs: int,
    early: Sequence[Node],
) -> dict[Node, None]:
    """The nodes that the backward graph takes, and those that have sizes for it."""
    starts = [*wanted, *joint.inputs[inputs:]]
    missing = missing_sizes(_part(joint, starts, ends).graph.nodes)
    if not missing:
        return wanted
    more: set[Node] = set()
    for node in early:
        if node.op != OUTPUT and is_array(node.val) and missing & gives_sizes(node.val):
            missing -= gives_sizes(node.val)
            more.add(node)
    return {n: None for n in joint.graph.nodes if n in more or n in wanted}


def _depending(graph: Graph, starts: Sequence[Node]) -> set[Node]:
    """The nodes that depend on some of them, and these."""
    found = set(starts)
    for node in graph.nodes:
        if any(used in found for used in node.inputs):
            found.add(node)
    return found


def _needed(
    graph: Graph, ends: Sequence[Any], late: set[Node], *, recomputes: bool
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


def _part(
    joint: GraphModule,
    starts: Sequence[Node],
    ends: Sequence[Any],
    without: Container[Node] = (),
) -> GraphModule:
    """The part of a graph from some nodes to others, `without` some calls."""
    graph = Graph()
    graph.sizes = joint.graph.sizes
    known: dict[Node, Node] = {}
    for node in starts:
        known[node] = new = graph.placeholder(node.name)
        new.note(node.meta["val"], node.meta.get("place"))
    for node in joint.graph.nodes:
        if node in known or node.op not in (CALL, ITEM, CONSTANT) or node in without:
            continue
        if all(used in known for used in node.inputs):
            known[node] = graph.copy_node(node, known.__getitem__)
    graph.output([known[end] if isinstance(end, Node) else end for end in ends])
    graph.eliminate_dead_code()
    spec = flatten([*range(len(ends))])[1]
    return GraphModule(graph, None, spec, name=joint.__name__, place=joint.place)


# ---- which outputs move ----


def moving_outputs(
    module: GraphModule, moving: Sequence[bool], carry: int = 0
) -> tuple[list[bool], list[bool]]:
    """Which inputs and outputs of a step depend on inputs that move, as the steps go on.

    Parameters
    ----------
    module : GraphModule
        Its first inputs and outputs are the carry.
    moving : sequence of bool
        Of the inputs, before the first step.
    carry : int
        The length of the carry; 0 for a function that runs once.
    """
    return _spread(module, moving, carry, _has_derivative)


def differing_outputs(
    module: GraphModule, differing: Sequence[bool], carry: int = 0
) -> tuple[list[bool], list[bool]]:
    """As `moving_outputs`, for inputs that differ between the rows of a batch."""
    return _spread(module, differing, carry, lambda node: True)


def _spread(
    module: GraphModule,
    starts: Sequence[bool],
    carry: int,
    passes: Callable[[Node], bool],
) -> tuple[list[bool], list[bool]]:
    given, graph = list(starts), module.graph
    leaves = graph.output_node.args[0]
    while True:
        pairs = zip(module.inputs, given, strict=True)
        found = {node for node, is_given in pairs if is_given}
        for node in graph.nodes:
            reached = node.op != OUTPUT and any(n in found for n in node.inputs)
            if reached and passes(node):
                found.add(node)
        outputs = [node in found for node in leaves]
        wider = [a or b for a, b in zip(given, outputs[:carry], strict=False)]
        wider += given[len(wider) :]
        if wider == given:
            return given, outputs
        given = wider


def _has_derivative(node: Node) -> bool:
    leaves = flat(node.meta["val"])
    return any(is_array(v) and is_inexact(v.dtype) for v in leaves)
