"""Functions with their own derivatives as operators, for graph files.

In graph files these operators replace calls of `custom_vjp`, `custom_jvp` and
`checkpoint`, because another process does not have the Python functions. The graphs
that the operators hold are captured when the file is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from customop.arrays.nested import flatten
from customop.core.interpreter import run_inside, run_under
from customop.core.operator import Operator
from customop.core.rule_kind import COMPOSITE
from customop.core.tracer import frozen
from customop.errors import GradientError, MissingRuleError
from customop.graph.graph import Graph
from customop.graph.module import GRAPH, GraphModule
from customop.library.define import custom_op
from customop.transforms.functions.checkpoint import checkpoint
from customop.transforms.functions.custom import JvpCall, VjpCall
from customop.transforms.functions.function_calls import (
    Forward,
    FunctionCall,
    FunctionTable,
    enter,
    moves,
    own,
)
from customop.transforms.trace.graph_tracer import GraphTracer
from customop.transforms.trace.recorder import Trace
from customop.transforms.values import or_zeros

# ---- calls whose functions are graphs ----


Arrays = Sequence[Any]

# The calls whose graphs are running. A rule may call its own function again.
_running: ContextVar[dict[str, Any]] = ContextVar("customop_functions", default={})  # noqa: B039  # replaced, never changed


class _OfGraphs:
    """Base of the calls whose functions are graphs.

    Parameters
    ----------
    key : str
        The name of this call, by which `again_op` finds it.
    function : GraphModule
        The graph of the function itself.
    rule : GraphModule or None
        The graph of the rule for tangents.
    tangents : sequence of int
        The outputs that have a tangent.
    """

    def __init__(
        self,
        title: str,
        key: str,
        function: GraphModule,
        rule: GraphModule | None,
        tangents: Sequence[int],
    ) -> None:
        self.table: FunctionTable = FunctionTable(title, function)
        self.key: str = key
        self.function: GraphModule = function
        self.rule: GraphModule | None = rule
        self.tangents: Sequence[int] = tangents

    @contextmanager
    def _known(self) -> Iterator[None]:
        """Make this call known to `again_op` while a block runs."""
        token = _running.set({**_running.get(), self.key: self})
        try:
            yield
        finally:
            _running.reset(token)

    def run(self, inputs: Arrays) -> Arrays:
        with self._known():
            return own(self.function(*inputs), inputs)

    def push(self, primals: Arrays, tangents: Arrays) -> tuple[Arrays, Arrays]:
        """Compute the outputs and their tangents by the graph of the rule."""
        if self.rule is None:
            raise self.missing("rule for tangents")
        count = len(self.function.graph.output_node.args[0])
        pairs = zip(primals, tangents, strict=True)
        given = [or_zeros(t, x) for x, t in pairs if moves(x)]
        with self._known():
            found = self.rule(*primals, *given)
        moved = dict(zip(self.tangents, found[count:], strict=True))
        return own(found[:count], primals), [moved.get(i) for i in range(count)]

    @property
    def identity(self) -> tuple[Any, ...]:
        return (type(self), self.function)

    def missing(self, rule: str) -> MissingRuleError:
        """Return the error for a rule that the file does not have."""
        return self.table.error(
            MissingRuleError,
            f" has no {rule}, since the function had none when its graph was saved",
            f"traced at {self.function.place}",
            do="register the rule, and save the graph again",
            parameter=None,
        )


class _VjpOfGraphs(_OfGraphs, VjpCall):
    """A call of a custom_vjp, whose rules are two graphs, or three."""

    def __init__(
        self,
        key: str,
        function: GraphModule,
        fwd: GraphModule | None,
        bwd: GraphModule | None,
        gradients: Sequence[int],
        rule: GraphModule | None,
        tangents: Sequence[int],
    ) -> None:
        super().__init__("custom_vjp", key, function, rule, tangents)
        self.fwd: GraphModule | None = fwd
        self.bwd: GraphModule | None = bwd
        self.gradients: Sequence[int] = gradients

    @property
    def has_rule(self) -> bool:
        return self.fwd is not None

    @property
    def has_push(self) -> bool:
        return self.rule is not None

    def forward(self, inputs: Arrays, wanted: Sequence[bool]) -> Forward:
        if self.fwd is None:
            raise self.missing("gradient")
        count = len(self.function.graph.output_node.args[0])
        with self._known():
            found = [frozen(v) for v in own(self.fwd(*inputs), inputs)]
        return Forward(found[:count], found[count:], (found[:count], wanted))

    def backward(self, saved: Arrays, rest: Any, cotangents: Arrays) -> Arrays:
        outputs, wanted = rest
        assert self.bwd is not None
        pairs = zip(outputs, cotangents, strict=True)
        given = [or_zeros(g, y) for y, g in pairs if moves(y)]
        with self._known():
            found = dict(zip(self.gradients, self.bwd(*saved, *given), strict=True))
        return [found.get(i) if w else None for i, w in enumerate(wanted)]


class _JvpOfGraphs(_OfGraphs, JvpCall):
    """A call of a custom_jvp, whose rule is a graph."""

    def __init__(
        self,
        key: str,
        function: GraphModule,
        rule: GraphModule | None,
        tangents: Sequence[int],
    ) -> None:
        super().__init__("custom_jvp", key, function, rule, tangents)

    @property
    def has_rule(self) -> bool:
        return self.rule is not None


# ---- the operators ----


def _run_vjp(
    arrays: Arrays,
    key: str,
    function: GraphModule,
    fwd: GraphModule | None = None,
    bwd: GraphModule | None = None,
    gradients: Sequence[int] = (),
    rule: GraphModule | None = None,
    tangents: Sequence[int] = (),
) -> list[Any]:
    call = _VjpOfGraphs(key, function, fwd, bwd, gradients, rule, tangents)
    return [*enter(call, list(arrays))]


def _run_jvp(
    arrays: Arrays,
    key: str,
    function: GraphModule,
    rule: GraphModule | None = None,
    tangents: Sequence[int] = (),
) -> list[Any]:
    return [*enter(_JvpOfGraphs(key, function, rule, tangents), list(arrays))]


def _run_checkpoint(arrays: Arrays, key: str, function: GraphModule) -> list[Any]:
    return [*checkpoint(function)(*arrays)]


def _run_again(arrays: Arrays, key: str) -> list[Any]:
    call = _running.get().get(key)
    if call is None:
        raise GradientError(
            f"functions::again of {key} is called outside of the graphs of that function",
            do="call the graph that was loaded, not one inside of it",
        )
    return [*enter(call, list(arrays))]


def _operator(name: str, run: Callable[..., Any], schema: str) -> Operator[..., Any]:
    """Define an operator whose body is visible to every transform."""
    op: Operator[..., Any] = custom_op(
        f"functions::{name}", run, mutates_args=(), schema=f"({schema}) -> Array[]"
    )
    op.register(COMPOSITE, run)
    return op


vjp_op: Operator[..., Any] = _operator(
    "custom_vjp",
    _run_vjp,
    f"Array[] arrays, str key, {GRAPH} function, {GRAPH}? fwd=None, {GRAPH}? bwd=None,"
    f" int[] gradients=[], {GRAPH}? rule=None, int[] tangents=[]",
)
jvp_op: Operator[..., Any] = _operator(
    "custom_jvp",
    _run_jvp,
    f"Array[] arrays, str key, {GRAPH} function, {GRAPH}? rule=None, int[] tangents=[]",
)
checkpoint_op: Operator[..., Any] = _operator(
    "checkpoint", _run_checkpoint, f"Array[] arrays, str key, {GRAPH} function"
)
again_op: Operator[..., Any] = _operator("again", _run_again, "Array[] arrays, str key")


# ---- capture for graph files ----


class FunctionWriter:
    """Captures the graphs of a call for a graph file.

    Parameters
    ----------
    call : FunctionCall
    inputs : sequence of FakeArray
    sizes : SizeContext or None
        The sizes of the graph around the call.
    """

    def __init__(self, call: FunctionCall, inputs: Arrays, sizes: Any) -> None:
        self.call: FunctionCall = call
        self.inputs: Arrays = inputs
        self._sizes = sizes
        self.part: str = ""

    @property
    def identity(self) -> tuple[Any, ...]:
        """Return a key that is equal for calls with the same graphs."""
        shapes = [(str(x.dtype), str(tuple(x.shape))) for x in self.inputs]
        return (*self.call.identity, *shapes)

    def again(self, key: str) -> tuple[Any, list[Any]]:
        """Return the operator for a call inside its own graphs."""
        return again_op, [key]

    def operator(self, key: str) -> tuple[Any, list[Any]]:
        """Return the operator for the call, and its arguments after the arrays."""
        function, outputs = self._graph("the body", self.call.run, self.inputs)
        if isinstance(self.call, JvpCall):
            return jvp_op, [key, function, *self._rule(outputs)]
        if isinstance(self.call, VjpCall):
            halves = self._halves(outputs)
            if not self.call.has_push:
                return vjp_op, [key, function, *halves]
            halves = halves or [None, None, []]
            return vjp_op, [key, function, *halves, *self._rule(outputs)]
        return checkpoint_op, [key, function]

    def _halves(self, outputs: Arrays) -> list[Any]:
        """Return forward and backward graphs, and for which inputs there are gradients."""
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
        """Return the graph of the rule for tangents, and which outputs have a tangent."""
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
        if isinstance(call, JvpCall) and not call.has_rule:
            return []
        rule, _ = self._graph("the rule for tangents", push, inputs)
        return [rule, at]

    def _graph(
        self, part: str, run: Callable[[Arrays], Arrays], inputs: Arrays
    ) -> tuple[GraphModule, list[Any]]:
        """Capture a function of arrays; return the graph and fake values of its outputs."""
        self.part, table = part, self.call.table
        graph = Graph()
        graph.sizes = self._sizes
        trace = Trace("fake", graph)
        trace.title, trace.fn = table.qualname, table.definition.fn

        def record() -> list[Any]:
            leaves = run([self._input(trace, value) for value in inputs])
            pairs = [trace.node_and_value(leaf) for leaf in leaves]
            graph.output([node for node, _ in pairs])
            return pairs

        pairs = run_under(None, run_inside, trace, record)
        spec = flatten([*range(len(pairs))])[1]
        named = {"name": table.name, "place": table.definition.place}
        return GraphModule(graph, None, spec, **named), [value for _, value in pairs]

    def _input(self, trace: Trace, value: Any) -> GraphTracer:
        node = trace.graph.placeholder("x", value)
        node.note(value, self.call.table.definition.place)
        return GraphTracer(trace, value, node)
