"""reuse_buffers: results go to memory that is not needed any more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import CPU
from customop.core.operator import Operator
from customop.core.table import RuleTable
from customop.graph.forms import writing_form
from customop.graph.graph import Graph
from customop.graph.memory import OUTSIDE, Memory
from customop.graph.node import CALL, ITEM, Node, nodes_in
from customop.graph.passes.apply import GraphT, edited
from customop.schema.tags import Tag
from customop.shapes.sizes import same_shape

__all__ = ["reuse_buffers"]


def reuse_buffers(graph: GraphT) -> GraphT:
    """Let operators write to the memory of operands that nothing needs afterwards.

    ``mylib::scale`` becomes ``mylib::scale_`` with `Tag.inplace`, or ``mylib::scale.out``
    with `Tag.out` if it is pointwise. NumPy's ufuncs have such forms. Inputs, constants,
    results of the graph, views and what they are views of are never written. It is the
    reverse of `functionalize`. Do it last: the graph is then for plain arrays, not for
    transforms.

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
    >>> for node in co.reuse_buffers(module).graph.nodes:
    ...     print(node.name, getattr(node.target, "qualname", ""), node.kwargs)
    x  {}
    sin np::sin {}
    multiply np_out::multiply {'out': sin}
    exp np_out::exp {'out': multiply}
    output  {}
    """
    return edited(graph, _reuse)


def _reuse(graph: Graph) -> None:
    reusing = _Reusing(graph)
    for node in graph.nodes:
        if node.op == CALL and not node.subgraphs and not node.has_effects:
            reusing.look_at(node)


class _Reusing:
    """The state of the memory of a graph, as its calls are changed one by one."""

    def __init__(self, graph: Graph) -> None:
        self._memory = Memory(graph)
        self._position = {node: i for i, node in enumerate(graph.nodes)}
        # Memory -> the nodes whose values may lie in it, and the last that uses one.
        self._holders: dict[int, list[Node]] = {}
        self._last: dict[int, int] = {}
        for node, places in self._memory.places.items():
            for place in places:
                self._holders.setdefault(place, []).append(node)
                last = max([self._position[u] for u in node.users], default=-1)
                self._last[place] = max(self._last.get(place, -1), last)

    def look_at(self, node: Node) -> None:
        """Let a call write to one of its operands, if it can."""
        op: RuleTable = node.target
        if not op.schema.single_return or op.schema.returns[0].alias is not None:
            return
        for slot, operand in self._free_operands(node):
            form, values = _form_for(op, node, slot, operand)
            if form is not None:
                self._change(node, operand, form, values)
                return

    def _free_operands(self, node: Node) -> Iterator[tuple[int, Node]]:
        """Operands that are arrays like the result, and die with the call."""
        values = node.values()
        for slot in node.target.array_slots:
            operand = values[slot]
            is_like = isinstance(operand, Node) and _is_like(operand.val, node.val)
            if is_like and self._dies_at(operand, node):
                yield slot, operand

    def _dies_at(self, operand: Node, node: Node) -> bool:
        places = self._memory.places[operand]
        if len(places) != 1 or OUTSIDE in places or places & self._memory.output:
            return False
        (place,) = places
        own = {operand}
        if operand.op == ITEM:
            own.add(operand.args[0])
            if operand.args[0].op == ITEM:
                return False
        is_alone = all(holder in own for holder in self._holders[place])
        return is_alone and self._last[place] == self._position[node]

    def _change(
        self, node: Node, operand: Node, form: Operator[..., Any], values: list[Any]
    ) -> None:
        positional, named = form.schema.split(values)
        node.target = form
        node.set_inputs(tuple(positional), dict(named))
        # The result lies where the operand lay; the operand itself is not read again.
        (old,) = self._memory.places[operand]
        (new,) = self._memory.places[node]
        self._holders[old] = []
        self._holders[new] = [node]


def _is_like(operand: Any, result: Any) -> bool:
    """Whether the result of a call fits into an operand, and is laid out as that is."""
    if not isinstance(operand, FakeArray) or not isinstance(result, FakeArray):
        return False
    if not result.shape or operand.dtype != result.dtype or operand.device != CPU.name:
        return False  # NumPy's results without axes are scalars
    same = same_shape(operand.shape, result.shape)
    return same and same_shape(operand.strides, result.strides)


def _form_for(
    op: RuleTable, node: Node, slot: int, operand: Node
) -> tuple[Operator[..., Any] | None, list[Any]]:
    """An operator that writes to an operand, and the values of its parameters."""
    values = node.values()
    is_once = nodes_in(values).count(operand) == 1
    if slot == 0 and (is_once or Tag.pointwise in op.tags):
        form = writing_form(op, Tag.inplace)
        if form is not None:
            return form, values
    form = writing_form(op, Tag.out) if Tag.pointwise in op.tags else None
    if form is None or len(form.schema.written) != 1:
        return None, []
    given: Mapping[str, Any] = {**node.bound(), form.schema.written[0]: operand}
    return form, [given[p.name] for p in form.schema.parameters]
