"""A function and its gradients as one graph, and the two graphs that it is split into.

The graph is captured as reverse mode would run: first the function, then the formulas of
its calls, last call first. All that the formulas compute belongs to the backward graph, so
nothing is computed or saved that the plain function would not compute or save.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, NamedTuple

from customop.arrays.kinds import device_of
from customop.compiling.within import Pattern, Within
from customop.errors import GraphError
from customop.graph.graph import Graph
from customop.graph.module import GraphModule
from customop.graph.node import CALL, ITEM, Node
from customop.graph.passes.halves import depending, part, saved_nodes
from customop.transforms.autograd.interpreter import GradInterpreter
from customop.transforms.autograd.node import Leaf
from customop.transforms.autograd.sweep import sweep
from customop.transforms.autograd.tracer import GradTracer
from customop.transforms.trace.interpreter import Trace, fake_of
from customop.transforms.trace.tracer import GraphTracer

__all__ = ["CONSTANT", "Arrived", "Joint", "JointHalves"]

# In a pattern: a tracer without a gradient. Others have the number of the first leaf that
# is the same tracer.
CONSTANT = -2
# What a result has that gets a gradient.
_MOVES = 0


class Arrived(NamedTuple):
    """Which cotangents and sums a backward graph gets.

    Attributes
    ----------
    cotangents : tuple of bool
        For each result with a gradient, whether one has come to it.
    sums : tuple of bool
        For each argument with a gradient, whether one has come to it from later calls.
        Those of the function are added to it one by one, as reverse mode adds them.
    """

    cotangents: tuple[bool, ...]
    sums: tuple[bool, ...]


class _WholeTape(GradInterpreter):
    """Reverse mode around the whole function: its calls are the function's own."""

    is_lasting = True


class Joint(Within):
    """Captures a function with its gradients.

    Parameters
    ----------
    fn, pattern, pinned, may_view
        As for `Within`.
    arrived : Arrived, optional
        By default all cotangents, and no sums.

    Attributes
    ----------
    moving : list of int
        Numbers of the leaves with a gradient, each tracer once.
    ends : list of str
        The device of each result with a gradient.
    has_gradient : list of bool
        For each argument with a gradient, whether the function has one for it.
    """

    followed: ClassVar[str] = "whose gradient is taken"

    def __init__(
        self,
        fn: Callable[..., Any],
        pattern: Pattern,
        pinned: Collection[int] = (),
        arrived: Arrived | None = None,
        *,
        may_view: bool = False,
    ) -> None:
        super().__init__(fn, pattern, pinned, may_view=may_view or arrived is not None)
        self.moving: list[int] = [i for i, n in enumerate(pattern) if n == i]
        self.arrived: Arrived | None = arrived
        self.has_gradient: list[bool] = []
        self.ends: list[str] = []
        self._late: set[Node] = set()
        # The results with a gradient.
        self._ends: list[GradTracer] = []

    # ---- the run that is captured ----

    def _begin(self, leaves: Sequence[Any]) -> GradInterpreter:
        self._ends = []
        return _WholeTape()

    def _track(
        self, interpreter: Any, number: int, leaf: Any, given: Sequence[Any]
    ) -> Any:
        first = self.pattern[number]
        if first == CONSTANT:
            return GradTracer(interpreter, leaf, None)
        return given[first] if first < number else interpreter.variable(leaf)

    def _take(self, leaf: Any, values: list[Any]) -> int:
        if leaf.node is None:
            return -1
        self._ends.append(leaf)
        return _MOVES

    def _finish_run(
        self, trace: Trace, given: Sequence[Any], values: list[Any]
    ) -> list[Any]:
        """The values, and the gradients."""
        ids = {id(end.node) for end in self._ends}
        if len(ids) < len(self._ends) or any(type(e.node) is Leaf for e in self._ends):
            raise GraphError("results share a call that gradients come to")
        self.ends = [device_of(end.below) for end in self._ends]
        early = {*trace.graph.nodes}
        gradients = self._swept(trace, given)
        self._late = {*trace.graph.nodes} - early
        return [*values, *gradients]

    def _swept(self, trace: Trace, given: Sequence[Any]) -> list[Any]:
        """The gradients that there are, for new inputs of the graph."""
        starts = [given[i].node for i in self.moving]
        wanted = self.arrived or Arrived(
            (True,) * len(self._ends), (False,) * len(starts)
        )
        ends = zip(self._ends, wanted.cotangents, strict=True)
        seeds = [
            (end.node, _placeholder(trace, end.below, "cotangent"))
            for end, is_given in ends
            if is_given
        ]
        arguments = zip(self.moving, starts, wanted.sums, strict=True)
        sums = [
            (node, _placeholder(trace, given[i].below, "sum"))
            for i, node, is_given in arguments
            if is_given
        ]
        found = sweep([*sums, *seeds], retain=False)
        gradients = [found.get(start) for start in starts]
        self.has_gradient = [g is not None for g in gradients]
        return [g for g in gradients if g is not None]

    # ---- the graph ----

    def finish(self, module: GraphModule, derived: Collection[Node]) -> GraphModule:
        """As for other transforms; the calls of formulas are derived."""
        return super().finish(module, {*derived, *self._late})

    def halves(self, module: GraphModule) -> JointHalves:
        """The forward and the backward graph."""
        graph, count = module.graph, len(self.pattern)
        leaves, given = graph.output_node.args[0], module.inputs
        late = depending(graph, [*given[count:], *self._late])
        wanted = saved_nodes(module, leaves[self.count :], count, late)
        kept = [i for i, node in enumerate(given[:count]) if node in wanted]
        saved = [node for node in wanted if node.op in (CALL, ITEM)]
        forward = part(module, given[:count], [*leaves[: self.count], *saved], late)
        starts = [*(given[i] for i in kept), *saved, *given[count:]]
        backward = part(module, starts, leaves[self.count :], _once(graph, late))
        order = _numbered(graph, late)
        return JointHalves(forward, backward, kept, [order[node] for node in saved])

    def backward(self, module: GraphModule, halves: JointHalves) -> GraphModule | None:
        """Another backward graph for a forward graph; None if that saves too little."""
        graph, count = module.graph, len(self.pattern)
        leaves, given = graph.output_node.args[0], module.inputs
        late = depending(graph, [*given[count:], *self._late])
        wanted = saved_nodes(module, leaves[self.count :], count, late)
        of_key = {key: node for node, key in _numbered(graph, late).items()}
        if any(key not in of_key for key in halves.saved):
            return None
        known = [*(given[i] for i in halves.kept), *(of_key[k] for k in halves.saved)]
        if not {*wanted} <= {*known}:
            return None
        starts = [*known, *given[count:]]
        return part(module, starts, leaves[self.count :], _once(graph, late))


class JointHalves(NamedTuple):
    """The two graphs of a function and its gradients.

    Attributes
    ----------
    forward : GraphModule
        Takes the leaves of the arguments; returns values of results, and what is saved.
    backward : GraphModule
        Takes arguments, what is saved, cotangents and sums; returns gradients.
    kept : list of int
        Numbers of the arguments that the backward graph takes.
    saved : list
        What names the saved nodes in each capture of the function.
    """

    forward: GraphModule
    backward: GraphModule
    kept: list[int]
    saved: list[Any]


def _once(graph: Graph, late: Collection[Node]) -> set[Node]:
    """The calls of the forward graph that may not run again."""
    nodes = graph.nodes
    return {n for n in nodes if n not in late and (n.has_effects or n.must_run)}


def _numbered(graph: Graph, late: Collection[Node]) -> dict[Node, Any]:
    """Return a key for each node of the forward graph: its number and its target."""
    early = [n for n in graph.nodes if n not in late and n.op in (CALL, ITEM)]
    return {node: (i, str(node.target)) for i, node in enumerate(early)}


def _placeholder(trace: Trace, like: Any, name: str) -> GraphTracer:
    """A new input of the graph, for an array like another one."""
    fake = fake_of(like)
    node = trace.graph.placeholder(name, fake)
    node.note(fake, None)
    return GraphTracer(trace, fake, node)
