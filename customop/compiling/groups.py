"""Groups of pointwise calls of one shape, each with one result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.kinds import CPU
from customop.compiling.kernel import Kernel
from customop.compiling.pointwise import Pointwise, pointwise_of
from customop.compiling.report import NodeGroup
from customop.graph.graph import Graph
from customop.graph.module import GraphModule
from customop.graph.node import CALL, CONSTANT, PLACEHOLDER, Node
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
    found = _Groups(graph, kind)
    for node in reversed(graph.nodes):
        found.look_at(node)
    names = found.names()
    return {node: names[root] for node, root in found.root_of.items() if root in names}


class _Groups:
    """Groups that grow from their last call backwards."""

    def __init__(self, graph: Graph, kind: str) -> None:
        self._kind = kind
        self.root_of: dict[Node, Node] = {}
        self._graph = graph
        self._members: dict[Node, list[Node]] = {}
        # How many nodes with effects come before a node: a group must not span one,
        # which may write what the group reads.
        self._effects: dict[Node, int] = {}
        count = 0
        for node in graph.nodes:
            count += node.op == CALL and node.has_effects
            self._effects[node] = count

    def look_at(self, node: Node) -> None:
        """Let a call join the group of all its users, or begin one."""
        if (
            node.op != CALL
            or node.has_fixed_result
            or pointwise_of(node, self._kind) is None
        ):
            return
        roots = {self.root_of.get(user) for user in node.users}
        root = roots.pop() if len(roots) == 1 else None
        if root is None or not self._may_join(node, root):
            if node.target.name == "broadcast_to":
                return  # a view costs nothing
            root = node
        self.root_of[node] = root
        self._members.setdefault(root, []).append(node)

    def _may_join(self, node: Node, root: Node) -> bool:
        is_near = self._effects[node] == self._effects[root]
        is_small = len(self._members[root]) < _MOST_CALLS
        return is_near and is_small and same_shape(node.val.shape, root.val.shape)

    def names(self) -> dict[Node, str]:
        """Root -> name, of the groups that are worth it and give the whole shape."""
        found: dict[Node, str] = {}
        for root, members in self._members.items():
            if len(members) > 1 and _spans(root, members):
                found[root] = self._graph.name_for(f"fused_{root.name}")
        return found


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
    """What a group computes, with variables ``a0``, ... for inputs, ``v0``, ... for values.

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
    """What is said of each kernel of a module, such as that it is one ufunc."""
    targets = [node.target for node in module.graph.nodes if node.op == CALL]
    return [
        NodeGroup([node.name for node in calls], f"one {title} of {len(calls)} calls")
        for target in targets
        if isinstance(target, Kernel)
        for calls in [[n for n in target.graph.nodes if n.op == CALL]]
    ]
