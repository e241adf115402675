"""A function and its gradients as one graph, and the two graphs that it is split into.

The graph is captured as reverse mode would run: first the function, then the formulas of
its calls, last call first. All that the formulas compute belongs to the backward graph, so
nothing is computed or saved that the plain function would not compute or save.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import wraps
from operator import is_not
from typing import Any, NamedTuple

from customop.arrays.kinds import device_of, is_array
from customop.arrays.pytree import Structure, flatten, unflatten
from customop.compiling.quiet import keep_what_warns
from customop.core.boxes import Pinned, place_of, views_another
from customop.core.interpreter import current_mode
from customop.core.tracer import Tracer
from customop.errors import GraphError
from customop.graph.graph import Graph
from customop.graph.memory import OUTSIDE, Memory
from customop.graph.module import GraphModule
from customop.graph.new_constants import copy_new_constants
from customop.graph.node import CALL, ITEM, Node, nodes_in
from customop.graph.passes.halves import depending, part, saved_nodes
from customop.transforms.autograd.interpreter import GradInterpreter
from customop.transforms.autograd.node import Leaf
from customop.transforms.autograd.sweep import sweep
from customop.transforms.autograd.tracer import GradTracer
from customop.transforms.trace.generators import with_generators
from customop.transforms.trace.interpreter import Trace, fake_of
from customop.transforms.trace.tracer import GraphTracer

__all__ = ["CONSTANT", "PLAIN", "Arrived", "Joint", "JointHalves", "Pattern", "Result"]

# For each leaf of the arguments: PLAIN, CONSTANT for a tracer without a gradient, else
# the number of the first leaf that is the same tracer.
Pattern = tuple[int, ...]
PLAIN, CONSTANT = -1, -2


class Arrived(NamedTuple):
    """What a backward graph is given.

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


class Result(NamedTuple):
    """A leaf of the result of the function.

    Attributes
    ----------
    place : int
        Number of its value among the outputs of the graph; -1 for an argument.
    source : int
        Number of the argument, or of the earlier leaf, that it is; -1 for a new one.
    moves : bool
        Whether it has a gradient.
    is_tracer : bool
        Whether it is a tracer where gradients are taken.
    is_pinned : bool
        Whether it is an array of its own, although it has no axes or was written.
    """

    place: int = -1
    source: int = -1
    moves: bool = False
    is_tracer: bool = False
    is_pinned: bool = False


class _Within(GradInterpreter):
    """Reverse mode around the whole function: its calls are the function's own."""

    is_lasting = True


class Joint:
    """Captures a function with its gradients.

    Parameters
    ----------
    fn : callable
    pattern : tuple of int
        Which leaves of the arguments are tracers.
    arrived : Arrived, optional
        By default all cotangents, and no sums.
    may_view : bool
        Whether results may be views of arguments, since nobody writes them.

    Attributes
    ----------
    run : callable
        What is captured, of the arguments of `fn`.
    moving : list of int
        Numbers of the leaves with a gradient, each tracer once.
    results : list of Result
    ends : list of str
        The device of each result with a gradient.
    structure : Structure
        Of the result of `fn`.
    count : int
        How many outputs of the graph come before the gradients.
    has_gradient : list of bool
        For each argument with a gradient, whether the function has one for it.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        pattern: Pattern,
        arrived: Arrived | None = None,
        *,
        may_view: bool = False,
    ) -> None:
        self._may_view: bool = may_view or arrived is not None
        self.fn: Callable[..., Any] = fn
        self.pattern: Pattern = pattern
        self.moving: list[int] = [i for i, n in enumerate(pattern) if n == i]
        self.arrived: Arrived | None = arrived
        self.results: list[Result] = []
        self.structure: Structure | None = None
        self.count: int = 0
        self.has_gradient: list[bool] = []
        self.ends: list[str] = []
        self._late: set[Node] = set()
        # The results with a gradient.
        self._ends: list[GradTracer] = []

        @wraps(fn)
        def run(*args: Any, **kwargs: Any) -> list[Any]:
            return self._run(args, kwargs)

        self.run: Callable[..., list[Any]] = run

    # ---- the run that is captured ----

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        trace = current_mode.get()
        assert isinstance(trace, Trace)
        leaves, structure = flatten((args, kwargs))
        interpreter = _Within()
        interpreter.fn, interpreter.inputs = self.fn, leaves
        given = self._tracked(interpreter, leaves)
        before = [v.below if isinstance(v, GradTracer) else None for v in given]
        with interpreter:
            positional, named = unflatten(structure, given)
            fn = with_generators(self.fn, trace.generator_of)
            result = fn(*positional, **named)
            self._check_arguments(
                given, before, flatten((positional, named)), structure
            )
            values = self._take_results(interpreter, given, result)
        early = {*trace.graph.nodes}
        gradients = self._swept(trace, given)
        self._late = {*trace.graph.nodes} - early
        return [*values, *gradients]

    def _tracked(self, interpreter: _Within, leaves: Sequence[Any]) -> list[Any]:
        """The leaves, as tracers where the pattern says so."""
        given: list[Any] = []
        for i, (leaf, first) in enumerate(zip(leaves, self.pattern, strict=True)):
            if first == PLAIN:
                given.append(leaf)
            elif first == CONSTANT:
                given.append(GradTracer(interpreter, leaf, None))
            else:
                given.append(given[first] if first < i else interpreter.variable(leaf))
            if first != PLAIN and type(leaf.box_place) is Pinned:
                given[-1].box_place = leaf.box_place
        return given

    def _check_arguments(
        self,
        given: Sequence[Any],
        before: Sequence[Any],
        found: tuple[list[Any], Structure],
        structure: Structure,
    ) -> None:
        """Raise if the function has written an argument, or changed a container."""
        leaves, now = found
        if now != structure or any(map(is_not, leaves, given)):
            raise GraphError("it changes a container that is an argument")
        pairs = zip(given, before, strict=True)
        if any(isinstance(v, GradTracer) and v.below is not b for v, b in pairs):
            raise GraphError("it writes an argument whose gradient is taken")

    def _take_results(
        self, interpreter: _Within, given: Sequence[Any], result: Any
    ) -> list[Any]:
        """Note what the results are; their values as the graph has them."""
        leaves, self.structure = flatten(result)
        self.results, self._ends = [], []
        values: list[Any] = []
        boxes = [v for v in given if isinstance(v, GradTracer)]
        for i, leaf in enumerate(leaves):
            is_own = isinstance(leaf, GradTracer) and leaf.interpreter is interpreter
            known = [*given, *leaves[:i]]
            if is_own and any(leaf is v for v in known):
                source = next(k for k, v in enumerate(known) if leaf is v)
                self.results.append(Result(source=source))
                continue
            place, moves, is_pinned = len(values), False, False
            if is_own:
                if not self._may_view:
                    _check_alone(leaf, boxes)
                boxes.append(leaf)
                moves = leaf.node is not None
                is_pinned = type(leaf.box_place) is Pinned or views_another(leaf)
                if moves:
                    self._ends.append(leaf)
            found = Result(place, -1, moves, is_own, is_pinned)
            self.results.append(found)
            values.append(leaf.below if is_own else leaf)
        ids = {id(end.node) for end in self._ends}
        if len(ids) < len(self._ends) or any(type(e.node) is Leaf for e in self._ends):
            raise GraphError("results share a call that gradients come to")
        self.count = len(values)
        self.ends = [device_of(end.below) for end in self._ends]
        return values

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
        """Note which calls may warn; raise if the graph writes arrays."""
        keep_what_warns(module.graph, {*derived, *self._late})
        copy_new_constants(module.graph)
        if any(map(_writes, module.graph.nodes)):
            raise GraphError("it writes arrays by operators")
        return module

    def check_nested(self, module: GraphModule) -> None:
        """Raise where the graph cannot run on values of other transforms."""
        nodes = [n for n in module.graph.nodes if n.op == CALL]
        if any(n.has_effects or n.meta.get("errstate") for n in nodes):
            raise GraphError("it draws, or sets np.errstate, inside of two transforms")
        leaves = module.graph.output_node.args[0]
        results = [r for r in self.results if r.place >= 0 and not r.is_tracer]
        plain = [leaves[r.place] for r in results]
        memory = Memory(module.graph)
        if OUTSIDE in memory.of(plain):
            raise GraphError("a result may be an argument, inside of two transforms")

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
    """What names the nodes of the forward graph: the number, and what is called."""
    early = [n for n in graph.nodes if n not in late and n.op in (CALL, ITEM)]
    return {node: (i, str(node.target)) for i, node in enumerate(early)}


def _placeholder(trace: Trace, like: Any, name: str) -> GraphTracer:
    """A new input of the graph, for an array like another one."""
    fake = fake_of(like)
    node = trace.graph.placeholder(name, fake)
    node.note(fake, None)
    return GraphTracer(trace, fake, node)


def _writes(node: Node) -> bool:
    """Whether a call writes an array; drawing writes a generator."""
    if node.op != CALL:
        return False
    if node.subgraphs:
        return any(_writes(n) for graph in node.subgraphs for n in graph.nodes)
    pairs = zip(node.target.schema.parameters, node.values(), strict=True)
    written = [value for p, value in pairs if p.is_written]
    return any(is_array(n.val) for n in nodes_in(written))


def _check_alone(leaf: Tracer, others: Sequence[Tracer]) -> None:
    """Raise for a view of an argument or of another result: writes would be lost."""
    if any(_memory_of(leaf) is _memory_of(other) for other in others):
        raise GraphError("a result is a view of an argument, or of another result")


def _memory_of(box: Any) -> Any:
    """The box that a view is a view of; the box itself for an array of its own."""
    while views_another(box):
        op, args, _ = place_of(box)
        box = args[op.view_slot]
    return box
