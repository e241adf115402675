"""Functions inside a transform as graphs: forward, and jointly with gradients.

The graph of `vmap(f)` or `jvp(f)` is a function of plain arrays: the batches, or the values
and their tangents. What the results are besides arrays is noted here, so that tracers can be
made of them where a compiled function is called with tracers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from operator import is_not
from typing import Any, ClassVar, NamedTuple, NoReturn

from customop.arrays.kinds import device_of, is_array
from customop.arrays.nested import Structure, flatten, unflatten
from customop.compiling.capture import keep_what_warns
from customop.core.interpreter import Interpreter, current_mode
from customop.core.table import RuleTable
from customop.core.tracer import Pinned, Tracer, pin, place_of, views_another
from customop.errors import GraphError
from customop.graph.graph import OUTSIDE, Graph, Memory
from customop.graph.guards import copy_new_constants
from customop.graph.module import GraphModule
from customop.graph.node import CALL, ITEM, PLACEHOLDER, Node, nodes_in
from customop.graph.subgraphs import depending, part, saved_nodes
from customop.library.ops import ops
from customop.transforms.autograd.reverse import GradInterpreter
from customop.transforms.autograd.sweep import sweep
from customop.transforms.autograd.tape import GradTracer, Leaf
from customop.transforms.jvp import JvpInterpreter, JvpTracer
from customop.transforms.random_draws import with_generators
from customop.transforms.trace.graph_tracer import GraphTracer
from customop.transforms.trace.recorder import Trace, fake_of
from customop.transforms.vmap_interpreter import BatchInterpreter, BatchTracer

# ---- a function inside a transform, captured with all that the transform does ----


# What each leaf of the arguments is; PLAIN for one that the transform does not follow.
Pattern = tuple[int, ...]
PLAIN = -1


class Result(NamedTuple):
    """A leaf of the result of the function.

    Attributes
    ----------
    place : int
        Number of its value among the outputs of the graph; -1 for an argument.
    source : int
        Number of the argument, or of the earlier leaf, that it is; -1 for a new one.
    is_tracer : bool
        Whether it is a tracer of the transform.
    extra : int
        For a tracer what else there is: number of the tangent among the outputs, axis of
        the batch, whether it has a gradient; -1 for nothing.
    is_pinned : bool
        Whether it is an array of its own, although it has no axes or was written.
    """

    place: int = -1
    source: int = -1
    is_tracer: bool = False
    extra: int = -1
    is_pinned: bool = False


class Within(ABC):
    """Captures a function inside a transform.

    Parameters
    ----------
    fn : callable
    pattern : tuple of int
        Which leaves of the arguments are tracers, and what else they have.
    pinned : collection of int
        Numbers of tracers that are arrays of their own, although they have no axes.
    may_view : bool
        Whether results may be views of arguments, since nobody writes them.

    Attributes
    ----------
    run : callable
        What is captured. It takes the arguments of `fn` with values in the place of
        tracers.
    results : list of Result
    structure : Structure
        Of the result of `fn`.
    count : int
        How many outputs of the graph are values of results.
    """

    # What messages call an argument that the transform follows.
    followed: ClassVar[str]

    def __init__(
        self,
        fn: Callable[..., Any],
        pattern: Pattern,
        pinned: Collection[int] = (),
        *,
        may_view: bool = False,
    ) -> None:
        self._may_view: bool = may_view
        self.fn: Callable[..., Any] = fn
        self.pattern: Pattern = pattern
        self.pinned: Collection[int] = pinned
        self.results: list[Result] = []
        self.structure: Structure | None = None
        self.count: int = 0

        @wraps(fn)
        def run(*args: Any, **kwargs: Any) -> list[Any]:
            return self._run(args, kwargs)

        self.run: Callable[..., list[Any]] = run

    # ---- what a transform adds ----

    @abstractmethod
    def _begin(self, leaves: Sequence[Any]) -> Interpreter:
        """The interpreter for a run with these values."""

    @abstractmethod
    def _track(
        self, interpreter: Any, number: int, leaf: Any, given: Sequence[Any]
    ) -> Any:
        """The tracer for a value."""

    @abstractmethod
    def _take(self, leaf: Any, values: list[Any]) -> int:
        """Return `Result.extra` of a result; it may add to the outputs."""

    def _finish_run(
        self, trace: Trace, given: Sequence[Any], values: list[Any]
    ) -> list[Any]:
        """The outputs of the graph, from the values of the results."""
        return values

    # ---- the run that is captured ----

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        trace = current_mode.get()
        assert isinstance(trace, Trace)
        leaves, structure = flatten((args, kwargs))
        interpreter = self._begin(leaves)
        interpreter.fn, interpreter.inputs = self.fn, leaves
        given = self._tracked(interpreter, leaves)
        before = [
            None if code == PLAIN else v.below
            for v, code in zip(given, self.pattern, strict=True)
        ]
        with interpreter:
            positional, named = unflatten(structure, given)
            fn = with_generators(self.fn, trace.generator_of)
            result = fn(*positional, **named)
            self._check_arguments(
                given, before, flatten((positional, named)), structure
            )
            values = self._take_results(interpreter, given, result)
        return self._finish_run(trace, given, values)

    def _tracked(self, interpreter: Interpreter, leaves: Sequence[Any]) -> list[Any]:
        """The leaves, as tracers where the pattern says so."""
        given: list[Any] = []
        for i, leaf in enumerate(leaves):
            if self.pattern[i] == PLAIN:
                given.append(leaf)
                continue
            tracer = self._track(interpreter, i, leaf, given)
            if tracer.box_place is None and type(leaf.box_place) is Pinned:
                tracer.box_place = leaf.box_place
            if i in self.pinned:
                pin(tracer)
            given.append(tracer)
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
        if any(b is not None and v.below is not b for v, b in pairs):
            raise GraphError(f"it writes an argument {self.followed}")

    def _take_results(
        self, interpreter: Interpreter, given: Sequence[Any], result: Any
    ) -> list[Any]:
        """Note what the results are; their values as the graph has them."""
        leaves, self.structure = flatten(result)
        self.results = []
        values: list[Any] = []
        boxes = [v for v in given if _is_own(v, interpreter)]
        for i, leaf in enumerate(leaves):
            is_own = _is_own(leaf, interpreter)
            known = [*given, *leaves[:i]]
            if is_own and any(leaf is v for v in known):
                source = next(k for k, v in enumerate(known) if leaf is v)
                self.results.append(Result(source=source))
                continue
            place, extra, is_pinned = len(values), -1, False
            values.append(leaf.below if is_own else leaf)
            if is_own:
                if not self._may_view:
                    _check_alone(leaf, boxes)
                boxes.append(leaf)
                extra = self._take(leaf, values)
                is_pinned = type(leaf.box_place) is Pinned or views_another(leaf)
            self.results.append(Result(place, -1, is_own, extra, is_pinned))
        self.count = len(values)
        return values

    # ---- the graph ----

    def finish(self, module: GraphModule, derived: Collection[Node]) -> GraphModule:
        """Note which calls may warn; raise if the graph writes arrays."""
        keep_what_warns(module.graph, derived)
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
        if any(r.is_tracer and r.place >= 0 for r in self.results):
            self._check_rows(module)

    def _check_rows(self, module: GraphModule) -> None:
        """Raise where a result takes its shape alone from an argument.

        An array such as ``np.zeros_like(x)`` is one array for all rows of another
        transform in the graph, and one for each in the function, which may write it.
        """
        known: dict[Node, tuple[int, int]] = {}
        for number, node in enumerate(module.graph.nodes):
            if node.op == PLACEHOLDER:
                known[node] = (1 << number, 1 << number)
                continue
            shapes, values = 0, 0
            for used in node.inputs:
                shapes, values = shapes | known[used][0], values | known[used][1]
            is_like = node.op == CALL and node.target is ops.np.full_like.default
            known[node] = (shapes, 0 if is_like else values)
        leaves = module.graph.output_node.args[0]
        places = [r.place for r in self.results if r.is_tracer and r.place >= 0]
        found = [known[leaves[i]] for i in places if isinstance(leaves[i], Node)]
        if any(shapes != values for shapes, values in found):
            raise GraphError("a result has the shape of an argument and not its values")


def _is_own(leaf: Any, interpreter: Interpreter) -> bool:
    return isinstance(leaf, Tracer) and leaf.interpreter is interpreter


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


# ---- joint ----
# A function and its gradients as one graph, and the two graphs that it is split into.
#
# The graph is captured as reverse mode would run: first the function, then the formulas
# of its calls, last call first. All that the formulas compute belongs to the backward
# graph, so nothing is computed or saved that the plain function would not compute or
# save.


# In a pattern: a tracer without a gradient. Others have the number of the first leaf that
# is the same tracer.
JOINT_CONSTANT = -2
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
        if first == JOINT_CONSTANT:
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


# ---- functions captured inside `vmap` and `jvp`, which need no backward graph ----


# In a pattern of forward mode: a tracer without a tangent, and one with a tangent.
CONSTANT, MOVING = -2, 0


class _WholeBatch(BatchInterpreter):
    """A vmap around the whole function: its calls are the function's own."""

    is_lasting = True

    def loop(
        self, op: RuleTable, values: Sequence[Any], dims: Sequence[Any]
    ) -> NoReturn:
        """Refuse: a graph would have a call for each row."""
        raise GraphError(f"{op.qualname} has no vmap rule and runs row by row")


class WithinVmap(Within):
    """Captures a function inside `vmap`; a pattern has the axis of each batch."""

    followed: ClassVar[str] = "that is batched"

    def _begin(self, leaves: Sequence[Any]) -> BatchInterpreter:
        pairs = zip(leaves, self.pattern, strict=True)
        first, *others = [v.shape[dim] for v, dim in pairs if dim != PLAIN]
        if not all(size == first for size in others):
            raise GraphError("batches differ in length")
        return _WholeBatch(first, "error", None)

    def _track(
        self, interpreter: Any, number: int, leaf: Any, given: Sequence[Any]
    ) -> BatchTracer:
        return BatchTracer(interpreter, leaf, self.pattern[number])

    def _take(self, leaf: Any, values: list[Any]) -> int:
        return int(leaf.dim)

    def finish(self, module: GraphModule, derived: Collection[Node]) -> GraphModule:
        """As for other transforms; raise if the graph draws, of which vmap must know."""
        module = super().finish(module, derived)
        if any(n.op == CALL and n.has_effects for n in module.graph.nodes):
            raise GraphError("it draws random numbers, or calls what has effects")
        return module


class _WholePush(JvpInterpreter):
    """Forward mode around the whole function: its calls are the function's own."""

    is_lasting = True


class WithinJvp(Within):
    """Captures a function inside `jvp`; the last argument is the list of tangents."""

    followed: ClassVar[str] = "that has a tangent"
    _tangents: Sequence[Any] = ()

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        self._tangents = args[-1]
        return super()._run(args[:-1], kwargs)

    def _begin(self, leaves: Sequence[Any]) -> JvpInterpreter:
        moving = [
            v for v, code in zip(leaves, self.pattern, strict=True) if code == MOVING
        ]
        for value, tangent in zip(moving, self._tangents, strict=True):
            if tuple(value.shape) != tuple(tangent.shape):  # symbolic sizes are noted
                raise GraphError("a tangent has another shape than its value")
        return _WholePush()

    def _track(
        self, interpreter: Any, number: int, leaf: Any, given: Sequence[Any]
    ) -> JvpTracer:
        if self.pattern[number] == CONSTANT:
            return JvpTracer(interpreter, leaf, None)
        moving = [i for i, code in enumerate(self.pattern) if code == MOVING]
        return JvpTracer(interpreter, leaf, self._tangents[moving.index(number)])

    def _take(self, leaf: Any, values: list[Any]) -> int:
        if leaf.tangent is None:
            return -1
        values.append(leaf.tangent)
        return len(values) - 1
