"""Groups of pointwise calls, each with one result: parts of runs, see `runs`.

Back ends that make one kernel of a group take what `pointwise` has an expression of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.kinds import CPU
from customop.compiling.kernel import Kernel
from customop.compiling.numpy_backend.runs import runs_of
from customop.compiling.pointwise import Pointwise, pointwise_of
from customop.compiling.report import NodeGroup
from customop.graph.graph import Graph
from customop.graph.module import GraphModule
from customop.graph.node import CALL, CONSTANT, ITEM, PLACEHOLDER, Node
from customop.graph.passes.partition import split_graph
from customop.shapes.sizes import same_shape

__all__ = [
    "ElementProgram",
    "Line",
    "find_groups",
    "kernels_of",
    "program_of",
    "with_kernels",
]


def find_groups(graph: Graph, kind: str = CPU.name) -> dict[Node, str]:
    """Find pointwise calls that can run as one, element by element.

    Parameters
    ----------
    graph : Graph
    kind : str
        Of the arrays.

    Returns
    -------
    dict
        Call -> the name of its group. Each group has at least two calls of the same
        shape, and one result: the others are used in the group alone.
    """
    found: dict[Node, str] = {}
    for run in runs_of(graph, lambda node: _is_pointwise(node, kind), _is_pure):
        for root, members in _trees(run.members):
            if len(members) > 1 and _spans(root, members):
                found |= dict.fromkeys(members, graph.name_for(f"fused_{root.name}"))
    return found


def _is_pointwise(node: Node, kind: str) -> bool:
    is_call = node.op == CALL and not node.has_fixed_result
    return is_call and pointwise_of(node, kind) is not None


def _is_pure(node: Node) -> bool:
    """Whether it makes no difference if a node comes before a group."""
    return node.op in (CALL, ITEM) and not node.has_effects


def _trees(calls: Sequence[Node]) -> Iterator[tuple[Node, list[Node]]]:
    """Calls of a run with one result, which is the last one, and that result."""
    root_of: dict[Node, Node] = {}
    members: dict[Node, list[Node]] = {}
    for node in reversed(calls):
        roots = {root_of.get(user) for user in node.users}
        root = roots.pop() if len(roots) == 1 else None
        if root is None or len(members[root]) >= _MOST_CALLS:
            if node.target.name == "broadcast_to":
                continue  # a view costs nothing
            root = node
        root_of[node] = root
        members.setdefault(root, []).append(node)
    yield from members.items()


def _spans(root: Node, members: list[Node]) -> bool:
    """Whether the operands from outside have the shape of the result, all together."""
    inside = {*members}
    given = {n for member in members for n in member.inputs if n not in inside}
    if len(given) > _MOST_OPERANDS:
        return False
    shapes = [node.val.shape for node in given]
    if any(same_shape(shape, root.val.shape) for shape in shapes):
        return True
    is_known = all(type(n) is int for shape in shapes for n in shape)
    return is_known and np.broadcast_shapes(*shapes) == root.val.shape


# Compilers take more than linear time.
_MOST_CALLS = 64
# NumPy's iterator takes 64; the result is one.
_MOST_OPERANDS = 32


# ---- what a group computes ----


class Line(NamedTuple):
    """One call of a group.

    Attributes
    ----------
    name : str
        The variable of its value.
    pointwise : Pointwise
    operands : tuple
        For each a pair: the name of a variable and its dtype, or the bytes of a number of
        the dtype that the pointwise takes and None. 0.0 equals -0.0, their bytes do not.
    """

    name: str
    pointwise: Pointwise
    operands: tuple[tuple[str | bytes, np.dtype[Any] | None], ...]


class ElementProgram(NamedTuple):
    """The calls of a group, in order; the last one gives the result."""

    inputs: tuple[tuple[str, np.dtype[Any]], ...]
    lines: tuple[Line, ...]

    @property
    def result(self) -> np.dtype[Any]:
        """The dtype of the result."""
        return self.lines[-1].pointwise.result


def program_of(graph: Graph, kind: str = CPU.name) -> ElementProgram:
    """Return the program of a group: ``a0``, ... are its inputs, ``v0``, ... its values.

    The same program is the same for groups of other names.
    """
    names: dict[Node, str] = {}
    inputs: list[tuple[str, np.dtype[Any]]] = []
    lines: list[Line] = []
    for node in graph.nodes:
        if node.op in (PLACEHOLDER, CONSTANT):
            names[node] = f"a{len(inputs)}"
            inputs.append((names[node], node.val.dtype))
        elif node.op == CALL:
            pointwise = pointwise_of(node, kind)
            assert pointwise is not None
            pairs = zip(node.values(), pointwise.operands, strict=False)
            operands = [_operand(value, dtype, names) for value, dtype in pairs]
            names[node] = f"v{len(lines)}"
            lines.append(Line(names[node], pointwise, tuple(operands)))
    return ElementProgram(tuple(inputs), tuple(lines))


def _operand(
    value: Any, dtype: np.dtype[Any], names: dict[Node, str]
) -> tuple[str | bytes, np.dtype[Any] | None]:
    if isinstance(value, Node):
        return names[value], value.val.dtype
    return np.asarray(value).astype(dtype).tobytes(), None


def with_kernels(
    module: GraphModule,
    kernel_for: Callable[[GraphModule, ElementProgram], Kernel],
    kind: str = CPU.name,
) -> GraphModule:
    """A module in which each group of pointwise calls is one call of a kernel."""
    groups = find_groups(module.graph, kind)
    if not groups:
        return module
    found = split_graph(module, groups)
    names = {*groups.values()}
    for node in found.graph.nodes:
        if node.op == CALL and node.name in names:
            node.target = kernel_for(node.target, program_of(node.target.graph, kind))
    return found


def kernels_of(module: GraphModule, title: str) -> list[NodeGroup]:
    """Describe each kernel of a module for reports, such as that it is one ufunc."""
    targets = [node.target for node in module.graph.nodes if node.op == CALL]
    return [
        NodeGroup([node.name for node in calls], f"one {title} of {len(calls)} calls")
        for target in targets
        if isinstance(target, Kernel)
        for calls in [[n for n in target.graph.nodes if n.op == CALL]]
    ]
