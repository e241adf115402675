"""Which outputs of a graph depend on inputs that move, or that differ in a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from customop.arrays.dtypes import is_inexact
from customop.arrays.kinds import is_array
from customop.arrays.nested import flat
from customop.graph.module import GraphModule
from customop.graph.node import OUTPUT, Node

__all__ = ["differing_outputs", "moving_outputs"]


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
