"""Calls of functions with derivatives of their own, captured for graph files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from customop.arrays.pytree import flatten
from customop.core.interpreter import current_mode
from customop.graph.graph import Graph
from customop.graph.module import GraphModule
from customop.transforms.functions.call import FunctionCall
from customop.transforms.functions.graphs import (
    again_op,
    checkpoint_op,
    jvp_op,
    vjp_op,
)
from customop.transforms.functions.one_rule import JvpCall, VjpCall
from customop.transforms.functions.parts import moves
from customop.transforms.trace.interpreter import Trace
from customop.transforms.trace.tracer import GraphTracer

__all__ = ["FunctionWriter"]

Arrays = Sequence[Any]


class FunctionWriter:
    """Captures a call.

    Parameters
    ----------
    call : FunctionCall
    inputs : sequence of FakeArray
    sizes : SizeContext or None
        Of the graph around it.
    """

    def __init__(self, call: FunctionCall, inputs: Arrays, sizes: Any) -> None:
        self.call: FunctionCall = call
        self.inputs: Arrays = inputs
        self._sizes = sizes
        self.part: str = ""

    @property
    def identity(self) -> tuple[Any, ...]:
        """A key, equal for calls with the same graphs."""
        shapes = [(str(x.dtype), str(tuple(x.shape))) for x in self.inputs]
        return (*self.call.identity, *shapes)

    def again(self, key: str) -> tuple[Any, list[Any]]:
        """The operator for a call inside its own graphs."""
        return again_op, [key]

    def operator(self, key: str) -> tuple[Any, list[Any]]:
        """The operator, and its arguments after the arrays."""
        function, outputs = self._graph("the body", self.call.run, self.inputs)
        if isinstance(self.call, JvpCall):
            return jvp_op, [key, function, *self._rule(outputs)]
        if isinstance(self.call, VjpCall):
            return vjp_op, [key, function, *self._halves(outputs)]
        return checkpoint_op, [key, function]

    def _halves(self, outputs: Arrays) -> list[Any]:
        """Graphs of the forward and the backward half, and which gradients they give."""
        call, count = self.call, len(outputs)
        wanted = [moves(x) for x in self.inputs]
        rest: list[Any] = []
        at: list[int] = []

        def forward(arrays: Arrays) -> list[Any]:
            found = call.forward(arrays, wanted)
            rest[:] = [found.rest]
            return [*found.outputs, *found.saved]

        def backward(arrays: Arrays) -> list[Any]:
            saved, given = arrays[: len(arrays) - len(moving)], arrays[-len(moving) :]
            cotangents: list[Any] = [None] * count
            for i, g in zip(moving, given if moving else (), strict=True):
                cotangents[i] = g
            found = call.backward(saved, rest[0], cotangents)
            at[:] = [i for i, g in enumerate(found) if g is not None]
            return [g for g in found if g is not None]

        moving = [i for i, y in enumerate(outputs) if moves(y)]
        if not moving or not call.has_rule:
            return []
        fwd, values = self._graph("fwd", forward, self.inputs)
        cotangents = [outputs[i] for i in moving]
        bwd, _ = self._graph("bwd", backward, [*values[count:], *cotangents])
        return [fwd, bwd, at]

    def _rule(self, outputs: Arrays) -> list[Any]:
        """The graph of the rule for tangents, and of which outputs it gives some."""
        call, count = self.call, len(self.inputs)
        moving = [i for i, x in enumerate(self.inputs) if moves(x)]
        at: list[int] = []

        def push(arrays: Arrays) -> list[Any]:
            tangents: list[Any] = [None] * count
            for i, t in zip(moving, arrays[count:], strict=True):
                tangents[i] = t
            found, moved = call.push(arrays[:count], tangents)
            at[:] = [i for i, t in enumerate(moved) if t is not None]
            return [*found, *(t for t in moved if t is not None)]

        inputs = [*self.inputs, *(self.inputs[i] for i in moving)]
        if not call.has_rule:
            return []
        rule, _ = self._graph("the rule for tangents", push, inputs)
        return [rule, at]

    def _graph(
        self, part: str, run: Callable[[Arrays], Arrays], inputs: Arrays
    ) -> tuple[GraphModule, list[Any]]:
        """The graph of a function of arrays, and the fake values of its outputs."""
        self.part, table = part, self.call.table
        graph = Graph()
        graph.sizes = self._sizes
        trace = Trace("fake", graph)
        trace.title, trace.fn = table.qualname, table.definition.fn
        token = current_mode.set(None)
        try:
            with trace:
                leaves = run([self._input(trace, value) for value in inputs])
                pairs = [trace.node_and_value(leaf) for leaf in leaves]
                graph.output([node for node, _ in pairs])
        finally:
            current_mode.reset(token)
        spec = flatten([*range(len(pairs))])[1]
        named = {"name": table.name, "place": table.definition.place}
        return GraphModule(graph, None, spec, **named), [value for _, value in pairs]

    def _input(self, trace: Trace, value: Any) -> GraphTracer:
        node = trace.graph.placeholder("x", value)
        node.note(value, self.call.table.definition.place)
        return GraphTracer(trace, value, node)
