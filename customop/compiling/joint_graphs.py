"""Functions inside reverse mode as graphs: forward and backward, and their nodes.

The joint graph is captured as reverse mode would run: first the function, then the formulas
of its calls, last call first. All that the formulas compute belongs to the backward graph, so
nothing is computed or saved that the plain function would not compute or save.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import CPU, device_of, is_array, is_traced
from customop.arrays.nested import unflatten
from customop.compiling.call_code import (
    CallArguments,
    Original,
    strict_settings,
    symbolic_axes,
)
from customop.compiling.capture import CapturedCall, cleaned
from customop.compiling.entries import (
    calls_text,
    captured_alone,
    capturing,
    code_of,
)
from customop.compiling.level_graphs import (
    PLAIN,
    CallText,
    LevelGraph,
    Result,
    Taken,
    Tracers,
)
from customop.compiling.surroundings import Surroundings
from customop.core.codegen import generate
from customop.core.interpreter import run_under
from customop.core.observe import observers, open_modes
from customop.core.tracer import Tracer
from customop.errors import GradientError, GraphError, counted
from customop.graph.graph import Graph
from customop.graph.module import GraphModule
from customop.graph.node import CALL, ITEM, Node
from customop.graph.subgraphs import depending, part, saved_nodes
from customop.transforms.autograd.reverse import GradInterpreter
from customop.transforms.autograd.sweep import sweep
from customop.transforms.autograd.tape import GradNode, GradTracer, Leaf, Output
from customop.transforms.functions.function_calls import FunctionTable
from customop.transforms.trace.graph_tracer import GraphTracer
from customop.transforms.trace.recorder import Trace, fake_of

# In a pattern: a tracer without a gradient. Others have the number of the first leaf that
# is the same tracer.
_CONSTANT = -2
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


class _WholeTape(GradInterpreter):
    """Reverse mode around the whole function: its calls are the function's own."""

    is_lasting = True


class GradGraph(LevelGraph):
    """Captures a function with its gradients.

    Parameters
    ----------
    original, tracers
        As for `LevelGraph`.
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
    halves : JointHalves or None
        None before the function is captured.
    """

    word: ClassVar[str] = "gradient"
    cannot: ClassVar[str] = "its gradient cannot be compiled"
    followed: ClassVar[str] = "whose gradient is taken"
    tracer_class: ClassVar[type[Tracer]] = GradTracer
    keeps_axes: ClassVar[bool] = True

    def __init__(
        self,
        original: Original,
        tracers: Tracers,
        arrived: Arrived | None = None,
    ) -> None:
        super().__init__(original, tracers)
        self.may_view: bool = self.may_view or arrived is not None
        self.original: Original = original
        self._tracers: Tracers = tracers
        self.moving: list[int] = [i for i, n in enumerate(self.pattern) if n == i]
        self.arrived: Arrived | None = arrived
        self.has_gradient: list[bool] = []
        self.ends: list[str] = []
        self.halves: JointHalves | None = None
        self.pullback: Pullback | None = None
        self._late: set[Node] = set()
        # The results with a gradient.
        self._ends: list[GradTracer] = []

    @classmethod
    def read(cls, leaves: Sequence[Any], own: Sequence[bool]) -> Taken | None:
        """Return which tracers have gradients; None for two tracers of one call."""
        pattern: list[int] = []
        origins: dict[int, int] = {}
        for i, (leaf, is_mine) in enumerate(zip(leaves, own, strict=True)):
            if not is_mine:
                pattern.append(PLAIN)
            elif leaf.node is None:
                pattern.append(_CONSTANT)
            else:
                first = origins.setdefault(id(leaf.node), i)
                if leaf is not leaves[first]:
                    return None
                pattern.append(first)
        return tuple(pattern), None

    # ---- the run that is captured ----

    def _begin(self, leaves: Sequence[Any]) -> GradInterpreter:
        self._ends = []
        return _WholeTape()

    def _track(
        self, interpreter: Any, number: int, leaf: Any, given: Sequence[Any]
    ) -> Any:
        first = self.pattern[number]
        if first == _CONSTANT:
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
        """Return the values, and the gradients."""
        ids = {id(end.node) for end in self._ends}
        if len(ids) < len(self._ends) or any(type(e.node) is Leaf for e in self._ends):
            raise GraphError("results share a call that gradients come to")
        self.ends = [device_of(end.below) for end in self._ends]
        early = {*trace.graph.nodes}
        gradients = self._swept(trace, given)
        self._late = {*trace.graph.nodes} - early
        return [*values, *gradients]

    def _swept(self, trace: Trace, given: Sequence[Any]) -> list[Any]:
        """Return the gradients that there are, for new inputs of the graph."""
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

    # ---- the graphs ----

    def finish(self, module: GraphModule, derived: Collection[Node]) -> GraphModule:
        """Finish it as for other transforms; the calls of formulas are derived."""
        return super().finish(module, {*derived, *self._late})

    def forward(
        self, found: CapturedCall, around: Surroundings, given: CallArguments
    ) -> GraphModule:
        """Return the forward graph; note the backward graph."""
        self.halves = halves = self._halves(found.module)
        self.pullback = Pullback(self, halves, found, around, given)
        return halves.forward

    def _halves(self, module: GraphModule) -> JointHalves:
        graph, count = module.graph, len(self.pattern)
        leaves, given = graph.output_node.args[0], module.inputs
        late, wanted = self._wanted(module)
        kept = [i for i, node in enumerate(given[:count]) if node in wanted]
        saved = [node for node in wanted if node.op in (CALL, ITEM)]
        forward = part(module, given[:count], [*leaves[: self.count], *saved], late)
        backward = self._part(module, late, kept, saved)
        order = _numbered(graph, late)
        return JointHalves(forward, backward, kept, [order[node] for node in saved])

    def again(self, arrived: Arrived) -> GradGraph:
        """Return what captures the function once more, for other gradients."""
        return GradGraph(self.original, self._tracers, arrived)

    def backward(self, module: GraphModule, halves: JointHalves) -> GraphModule | None:
        """Return another backward graph for a forward graph; None if that saves too little."""
        late, wanted = self._wanted(module)
        of_key = {key: node for node, key in _numbered(module.graph, late).items()}
        if any(key not in of_key for key in halves.saved):
            return None
        saved = [of_key[key] for key in halves.saved]
        if not {*wanted} <= {*saved, *(module.inputs[i] for i in halves.kept)}:
            return None
        return self._part(module, late, halves.kept, saved)

    def _wanted(self, module: GraphModule) -> tuple[set[Node], dict[Node, None]]:
        """Return the nodes of the backward graph, and those that it takes."""
        graph, count = module.graph, len(self.pattern)
        late = depending(graph, [*module.inputs[count:], *self._late])
        gradients = graph.output_node.args[0][self.count :]
        return late, saved_nodes(module, gradients, count, late)

    def _part(
        self,
        module: GraphModule,
        late: Collection[Node],
        kept: Sequence[int],
        saved: Sequence[Node],
    ) -> GraphModule:
        """Return the backward graph, which takes arguments, what is saved, and cotangents."""
        graph, given = module.graph, module.inputs
        starts = [*(given[i] for i in kept), *saved, *given[len(self.pattern) :]]
        gradients = graph.output_node.args[0][self.count :]
        return part(module, starts, gradients, _once(graph, late))

    # ---- the code around the forward graph ----

    def tests(self, leaves: Sequence[str]) -> Iterator[str]:
        """Yield conditions for the same tracers to have gradients, and to be one tracer."""
        for i, code in enumerate(self.pattern):
            if code == _CONSTANT:
                yield f"{leaves[i]}.node is None"
            elif code == i:
                yield f"{leaves[i]}.node is not None"
            elif code != PLAIN:
                yield f"{leaves[i]} is {leaves[code]}"
        for at, i in enumerate(self.moving):
            for j in self.moving[:at]:
                yield f"{leaves[i]}.node is not {leaves[j]}.node"

    def node_lines(self, text: CallText, names: dict[str, Any]) -> list[str]:
        """Return lines that make the node of a call, with what the backward graph needs."""
        halves, pullback = self.halves, self.pullback
        assert halves is not None
        assert pullback is not None
        if not self.ends:
            return []
        names |= {"_Node": pullback.nodes, "_Output": Output, "_shape": _shape_of}
        edges = ", ".join([f"({i}, (), {text.leaves[i]}.node)" for i in self.moving])
        count = len(halves.forward.graph.output_node.args[0])
        kept = [text.values[i] for i in halves.kept]
        kept += [f"_o{i}" for i in range(self.count, count)]
        lines = [
            f"_node = _Node([{edges}])",
            f"_node.saved_arrays = ({''.join(f'{v}, ' for v in kept)})",
        ]
        if symbolic_axes(halves.forward):
            shapes = "".join([f"_shape({v}), " for v in text.values])
            lines.append(f"_node.node_shapes = ({shapes})")
        places = self._places
        if len(places) == 1:
            out = f"_o{places[0]}"
            lines.append(f"_node.node_shape = {out}.shape")
            lines.append(f"_node.node_dtype = {out}.dtype")
        else:
            pairs = zip(places, self.ends, strict=True)
            metas = [f"(_o{p}.shape, _o{p}.dtype, {device!r}), " for p, device in pairs]
            lines.append(f"_node.node_metas = _metas = [{''.join(metas)}]")
        return lines

    @property
    def _places(self) -> list[int]:
        """The numbers of the outputs with a gradient."""
        return [r.place for r in self.results if r.extra >= 0 <= r.place]

    def tracer_text(self, result: Result) -> str:
        """Return the text of a value with its node, or one of the node's outputs."""
        end = "None"
        if result.extra >= 0:
            at = self._places.index(result.place)
            is_one = len(self.ends) == 1
            end = "_node" if is_one else f"_Output(_node, {at}, _metas[{at}])"
        return f"_Tracer(_top, _o{result.place}, {end})"

    # ---- reports ----

    def size(self, calls: str, arguments: Sequence[str]) -> str:
        """Return how many operators both graphs call, and how many arrays the first saves."""
        if self.halves is None:
            return ""
        saved = counted(len(self.halves.saved), "array")
        backward = calls_text(self.halves.backward)
        return (
            f"{calls} forward, which save {saved}, and {backward} backward{self._where}"
        )

    @property
    def codes(self) -> Sequence[str]:
        """The Python code of the backward graphs."""
        return [] if self.pullback is None else self.pullback.texts


def _once(graph: Graph, late: Collection[Node]) -> set[Node]:
    """Return the calls of the forward graph that may not run again."""
    nodes = graph.nodes
    return {n for n in nodes if n not in late and (n.has_effects or n.must_run)}


def _numbered(graph: Graph, late: Collection[Node]) -> dict[Node, Any]:
    """Return a key for each node of the forward graph: its number and its target."""
    early = [n for n in graph.nodes if n not in late and n.op in (CALL, ITEM)]
    return {node: (i, str(node.target)) for i, node in enumerate(early)}


def _placeholder(trace: Trace, like: Any, name: str) -> GraphTracer:
    """Add an input to the graph, for an array like another one."""
    fake = fake_of(like)
    node = trace.graph.placeholder(name, fake)
    node.note(fake, None)
    return GraphTracer(trace, fake, node)


def _shape_of(value: Any) -> tuple[int, ...]:
    return value.shape if is_array(value) else ()


# ---- the backward graphs ----


class Pullback:
    """The backward graphs of an entry, one for each set of gradients that arrives.

    Attributes
    ----------
    nodes : type
        The class of nodes of calls.
    """

    def __init__(
        self,
        joint: GradGraph,
        halves: JointHalves,
        found: CapturedCall,
        around: Surroundings,
        given: CallArguments,
    ) -> None:
        self._joint: GradGraph = joint
        self._halves: JointHalves = halves
        self._found: CapturedCall = found
        self._around: Surroundings = around
        # Arguments without their data, to capture the function once more.
        self._like: list[Any] = [_without_data(v) for v in given.leaves]
        self._structure: Any = given.structure
        # For gradients of all results, and no sums.
        self._usual: BackwardCode | None = None
        # What a backward graph is given, and shapes -> its code.
        self._codes: dict[Any, BackwardCode] = {}
        names = {
            "node_op": FunctionTable("compile", joint.original.fn),
            "node_pullback": self,
            "node_is_nested": joint.is_nested,
            "__slots__": (),
        }
        self.nodes: type[CompiledNode] = type("compiled_node", (CompiledNode,), names)

    @property
    def texts(self) -> list[str]:
        """The Python code of its graphs."""
        return [code.text for code in [*self._codes.values()]]

    def code(
        self, grads: Sequence[Any], sums: Sequence[Any], shapes: Any
    ) -> BackwardCode:
        """Return the code of the backward graph for what has come to a node."""
        is_usual = not [g for g in grads if g is None]
        is_usual = is_usual and not [s for s in sums if s is not None]
        if is_usual and self._usual is not None:
            return self._usual
        arrived = Arrived(
            tuple([g is not None for g in grads]), tuple([s is not None for s in sums])
        )
        code = self._codes.get(arrived) or self._codes.get((arrived, shapes))
        if code is None:
            with capturing:
                code = run_under(None, self._new_code, arrived, shapes)
        return code

    def _new_code(self, arrived: Arrived, shapes: Any) -> BackwardCode:
        joint = self._joint
        module, key = self._halves.backward, arrived
        is_usual = all(arrived.cotangents) and not any(arrived.sums)
        if not is_usual:
            joint = joint.again(arrived)
            module, key = self._captured_again(joint, arrived, shapes)
        code = BackwardCode(module, joint)
        self._codes[key] = code
        if is_usual:
            self._usual = code
        return code

    def _captured_again(
        self, joint: GradGraph, arrived: Arrived, shapes: Any
    ) -> tuple[GraphModule, Any]:
        """Return another backward graph, and the key for which it holds."""
        original, found = joint.original, self._found
        if self._around.changed():
            raise self._changed()
        leaves = self._like
        if shapes is not None:
            pairs = zip(leaves, shapes, strict=True)
            leaves = [_of_shape(v, shape) if shape else v for v, shape in pairs]
        again = captured_alone(
            joint.run,
            original.title,
            CallArguments(*unflatten(self._structure, leaves)),
            self._around,
            original.sizes,
            found.free,
            found.numbers,
            joint.finish,
            is_unusual=found.is_unusual,
        )
        module = joint.backward(again.module, self._halves)
        if module is None:
            raise self._changed()
        # The sizes that the backward pass asks for may differ in other calls.
        known = {guard.text for guard in self._halves.forward.graph.sizes.guards}
        is_same = known >= {guard.text for guard in module.graph.sizes.guards}
        is_same = is_same and again.free == found.free
        return module, arrived if is_same else (arrived, shapes)

    def _changed(self) -> GradientError:
        return GradientError(
            f"compile: what '{self._joint.original.title}' uses has changed since it was"
            " called, so that its gradient cannot be captured",
            do="take the gradient before, or pass what changes as an argument",
        )


def _without_data(value: Any) -> Any:
    return fake_of(value) if is_array(value) and value.shape else value


def _of_shape(like: Any, shape: Sequence[int]) -> Any:
    """Return an array that nobody reads; with symbolic sizes arrays lie in C order."""
    if device_of(like) == CPU.name:
        return np.empty(shape, like.dtype)
    return FakeArray(shape, like.dtype, device=device_of(like))


class BackwardCode:
    """The code of a backward graph.

    Parameters
    ----------
    module : GraphModule
        As it was captured.
    joint : GradGraph
        The capture that the graph is from.

    Attributes
    ----------
    lift : callable or None
        The graph on values of other transforms; None for one that draws, which a vmap
        around it must see.
    numbers : list of int
        Of the arguments with a gradient, the numbers of those that get one.
    run : callable
        Takes a list of the inputs in reverse order, and empties it: so an array that
        nobody else has is freed after its last use.
    """

    def __init__(self, module: GraphModule, joint: GradGraph) -> None:
        nodes = [node for node in module.graph.nodes if node.op == CALL]
        has_effects = any(node.has_effects for node in nodes)
        original = joint.original
        self.lift: Any = None if has_effects else original.lift(module)
        self.module: GraphModule = module
        self.numbers: list[int] = [i for i, has in enumerate(joint.has_gradient) if has]
        # Values of other transforms are the usual ones there.
        self._code: Any = None
        run: Callable[..., list[Any]] = module.run_list
        if not joint.is_nested:
            self._code, run = original.build(cleaned(module))
        # Python hands arguments of a call in this form over: the caller keeps none.
        given = ", ".join(["take()"] * len(module.inputs))
        text = f"def pull(given):\n    take = given.pop\n    return run({given})\n"
        name = f"gradient of {original.title}"
        self.run: Callable[[list[Any]], list[Any]] = generate(
            name, text, "pull", {"run": run}
        )

    @property
    def text(self) -> str:
        """The Python code of the graph."""
        return code_of(self._code, self.module)


# ---- a compiled function on the tape of reverse mode: one node for all of its calls ----


class CompiledNode(GradNode):
    """One call of a compiled function under reverse mode."""

    __slots__ = ()
    node_takes_sums = True
    node_pullback: Pullback
    # Of the arguments, where sizes are symbolic.
    node_shapes: Any = None
    # Whether calls have values of other transforms.
    node_is_nested: bool = False

    @staticmethod
    def node_pull(
        node: CompiledNode, grads: list[Any], sums: list[Any], retain: bool
    ) -> list[tuple[Any, Any]]:
        """Return the origin of each tracked argument, with its gradient."""
        edges = node.node_edges or ()
        is_nested = node.node_is_nested
        is_nested = is_nested or any(map(is_traced, grads)) or any(map(is_traced, sums))
        code = node.node_pullback.code(grads, sums, node.node_shapes)
        given = [v for v in (*node.saved_arrays, *grads, *sums) if v is not None]
        grads.clear()
        sums.clear()
        if not retain:
            node.node_edges = None
            node.saved_arrays = ()
        if open_modes or strict_settings or observers or (is_nested and not code.lift):
            found = code.module.run_list(*given)
        elif is_nested:
            found = code.lift(*given)
        else:
            given.reverse()
            found = code.run(given)
        origins = [edges[i][2] for i in code.numbers]
        return [*zip(origins, found, strict=True)]
