"""The operators of control flow in captured graphs, and the capture of their functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

import numpy as np

from customop.arrays.array import is_inexact
from customop.arrays.kinds import is_array, is_traced
from customop.arrays.nested import flat, flatten
from customop.arrays.numpy_functions import call_numpy
from customop.control.carry import is_faked
from customop.control.loops import record, repeat, step_through, take_branch
from customop.core.interpreter import Mode, current_mode, run_inside, run_under
from customop.core.operator import Operator
from customop.errors import ArgumentError, place
from customop.graph.graph import Graph
from customop.graph.guards import GENERATOR
from customop.graph.module import GRAPH, GraphModule
from customop.graph.node import CALL, CONSTANT, OUTPUT, PLACEHOLDER, Node, missing_sizes
from customop.library.define import custom_op
from customop.library.ops import ops
from customop.schema.tags import Tag
from customop.shapes.expressions import symbol
from customop.shapes.size_context import captured_sizes
from customop.transforms.functions.function_calls import own
from customop.transforms.generators import is_generator
from customop.transforms.modes import autocast
from customop.transforms.random_draws import with_generators
from customop.transforms.trace.graph_tracer import GraphTracer, traced_generator
from customop.transforms.trace.recorder import Trace, fake_of

Arrays = Sequence[Any]


# ---- kernels ----
# They are the functions that users call, with graphs in place of the user's functions.


def run_cond(
    pred: Any,
    operands: Arrays,
    true_graph: GraphModule,
    false_graph: GraphModule,
    *,
    generators: Arrays | None = None,
) -> list[Any]:
    """Run one of two graphs."""

    def branch(graph: GraphModule) -> Any:
        return lambda *arrays: graph(*arrays, *(generators or ()))

    given = branch(true_graph), branch(false_graph)
    return take_branch(pred, *given, operands)  # type: ignore[no-any-return]  # a list


def run_while(
    outside: Arrays,
    init: Arrays,
    cond_graph: GraphModule,
    body_graph: GraphModule,
    *,
    generators: Arrays | None = None,
) -> list[Any]:
    """Run a while_loop of graphs; return the last carry."""
    last = [*outside, *(generators or ())]

    def goes_on(carry: Arrays) -> Any:
        return cond_graph(*carry, *last)[0]

    def step(carry: Arrays) -> Any:
        return body_graph(*carry, *last)

    return repeat(goes_on, step, list(init))  # type: ignore[no-any-return]  # a list


def run_while_scan(
    outside: Arrays,
    init: Arrays,
    cond_graph: GraphModule,
    body_graph: GraphModule,
    *,
    generators: Arrays | None = None,
) -> list[Any]:
    """Run a while_scan of graphs; return the last carry, results, and which steps ran."""
    count, last = len(init), [*outside, *(generators or ())]

    def goes_on(carry: Arrays) -> Any:
        return cond_graph(*carry, *last)[0]

    def step(carry: Arrays) -> Any:
        found = body_graph(*carry, *last)
        return found[:count], found[count:]

    carry, ys, ran = record(goes_on, step, list(init))
    return [*carry, *ys, ran]


def run_scan(
    outside: Arrays,
    init: Arrays,
    xs: Arrays,
    body: GraphModule,
    length: int | None = None,
    reverse: bool = False,
    checkpoint: bool = False,
    *,
    generators: Arrays | None = None,
) -> list[Any]:
    """Run a scan of a graph; return the last carry and the results."""
    count, last = len(init), [*outside, *(generators or ())]

    def step(carry: Arrays, x: Arrays) -> Any:
        found = body(*carry, *x, *last)
        return found[:count], found[count:]

    given = (list(init), list(xs), length, reverse, checkpoint, "scan")
    carry, ys = step_through(step, *given)
    return [*carry, *ys]


# ---- the operators ----
# Their rules are in `flow_batches` and `flow_derivatives`.


def _operator(name: str, run: Any, schema: str) -> Operator[..., Any]:
    """Define an operator whose results do not share memory with its arguments."""

    @wraps(run)
    def kernel(*args: Any, generators: Any = None) -> Any:
        found = run(*args, generators=generators)
        return own(found, [v for v in flatten(args)[0] if is_array(v)])

    op: Operator[..., Any] = custom_op(
        f"control::{name}",
        kernel,
        mutates_args=(),
        schema=f"{schema} -> Array[]",
        # The layout of a result is that of the function that ran, or of the last step.
        tags=Tag.flexible_layout,
    )
    # Random numbers are drawn by the operators in its graphs, not by itself.
    op.sees_seed = False
    op.register_fake(run)
    return op


cond_op: Operator[..., Any] = _operator(
    "cond",
    run_cond,
    f"(Array pred, Array[] operands, {GRAPH} true_graph, {GRAPH} false_graph,"
    " *, Generator[]? generators=None)",
)
while_op: Operator[..., Any] = _operator(
    "while_loop",
    run_while,
    f"(Array[] outside, Array[] init, {GRAPH} cond_graph, {GRAPH} body_graph,"
    " *, Generator[]? generators=None)",
)
# A while_loop that keeps a result of each step, which its gradient needs. All rows of a
# batch have as many results as the row with the most steps. The last output, an array
# of bools, says which steps ran for each row.
while_scan_op: Operator[..., Any] = _operator(
    "while_scan",
    run_while_scan,
    f"(Array[] outside, Array[] init, {GRAPH} cond_graph, {GRAPH} body_graph,"
    " *, Generator[]? generators=None)",
)
scan_op: Operator[..., Any] = _operator(
    "scan",
    run_scan,
    f"(Array[] outside, Array[] init, Array[] xs, {GRAPH} body,"
    " int? length=None, bool reverse=False, bool checkpoint=False, *,"
    " Generator[]? generators=None)",
)


# ---- branches and steps as graphs ----


def tracing() -> bool:
    """Return whether a graph is being captured."""
    mode = current_mode.get()
    while mode is not None:
        if mode.alive and isinstance(mode, Trace):
            return True
        if is_faked(mode):
            return False
        mode = mode.outer
    return False


class Body:
    """A function traced on fake arrays.

    Traced values that it uses, but that are not among its inputs, are `outside`. They
    become inputs too when the function is made a module.

    Parameters
    ----------
    name : str
        The function that was called with `fn`, for messages.
    role : str
        The name of the graph if `fn` has none, such as a lambda.
    fn : callable
        The user's function, for messages.
    run : callable
        Takes the function and a list of arrays; returns a list of arrays and numbers.
    inputs : sequence of array
        Only shapes and dtypes count. `GENERATOR` for a random generator.

    Attributes
    ----------
    inputs : list of Node
    outputs : list
        Nodes and numbers.
    written : dict of int to Node
        Inputs that the function writes in place, and the nodes of their new values.
    """

    def __init__(
        self,
        name: str,
        role: str,
        fn: Callable[..., Any],
        run: Callable[[Callable[..., Any], list[Any]], Sequence[Any]],
        inputs: Sequence[Any],
    ) -> None:
        written = str(getattr(fn, "__name__", type(fn).__name__))
        self.name: str = written if written.isidentifier() else role
        # A graph that is passed as `fn` knows the place of its function.
        self.place: str = str(getattr(fn, "place", "")) or place(fn)
        self.graph: Graph = Graph()
        # Its values, and those of new nodes, use the sizes of the capture around it.
        self.graph.sizes = captured_sizes()
        trace = Trace("fake", self.graph)
        trace.title, trace.fn, trace.is_branch = name, fn, name == "cond"
        self._title = name
        self.outputs: list[Any] = []
        self.written: dict[int, Node] = {}
        self.inputs: list[Node] = []

        def record() -> None:
            tracers = [self._input(trace, value) for value in inputs]
            self.inputs = [tracer.node for tracer in tracers]
            leaves = run(_with_traced_generators(fn, trace), [*tracers])
            self.outputs = [trace.node_and_value(leaf)[0] for leaf in leaves]
            for i, tracer in enumerate(tracers):
                if tracer.node is not self.inputs[i]:
                    self.written[i] = tracer.node

        _run_alone(trace, record)
        self._copy_written()

    def _input(self, trace: Trace, value: Any) -> Any:
        if value is GENERATOR:
            node = self.graph.placeholder("generator", GENERATOR)
            return traced_generator(trace, node, np.random.default_rng(0))
        fake = fake_of(value)
        node = self.graph.placeholder("x")
        node.note(fake, self.place)
        return GraphTracer(trace, fake, node)

    def _copy_of(self, node: Node) -> Node:
        new = self.graph.call(ops.np.copy.default, (node,))
        new.note(node.meta["val"], self.place)
        return new

    def new_value(self, i: int) -> Node:
        """Return the node for the value of an input after the function has run."""
        return self.written.get(i, self.inputs[i])

    def _copy_written(self) -> None:
        """Make operators that write in place write to copies of the inputs."""
        copies: dict[Node, Node] = {}
        for node in self.graph.nodes:
            for used in _written_by(node) if node.op == CALL else ():
                root = _root(used)
                if root.op == CONSTANT:
                    raise self._writes_outside(node)
                if root.op == PLACEHOLDER and root not in copies:
                    copies[root] = self._copied(root)
        for i, node in enumerate(self.inputs):
            if node in copies:
                self.written.setdefault(i, copies[node])
        self.outputs = [copies.get(o, o) for o in self.outputs]  # numbers stay

    def _writes_outside(self, node: Node) -> ArgumentError:
        return ArgumentError(
            f"{self._title}: {node.target.qualname} writes an array that is not an"
            f" argument of {self.name}",
            f"traced at {node.meta.get('place')}",
            f"{self.name} is at {self.place}",
            do="pass the array as an operand, or in the carry",
        )

    def _copied(self, node: Node) -> Node:
        after = [n for n in self.graph.nodes if n.op == PLACEHOLDER][-1]
        with self.graph.inserting_after(after):
            new = self._copy_of(node)
        node.replace_all_uses_with(new, unless=lambda user: user is new)
        return new

    @property
    def outside(self) -> list[Any]:
        """Traced values and generators that are used but are not inputs."""
        return [v for v in self.graph.constants.values() if _comes_from_outside(v)]

    def module(self, outside: FromOutside, results: Sequence[Any]) -> GraphModule:
        """Return the graph as a function of its inputs and of the values from outside.

        The function returns the list `results`, which are nodes or NumPy arrays.
        """
        graph = self.graph
        nodes = [r if isinstance(r, Node) else self._constant(r) for r in results]
        known = {_identity(v): self._placeholder(v) for v in outside.all}
        for node in graph.nodes:
            if node.op == CONSTANT and _comes_from_outside(
                graph.constants[node.target]
            ):
                new = known[_identity(graph.constants[node.target])]
                node.replace_all_uses_with(new)
                nodes = [new if r is node else r for r in nodes]
                graph.erase_node(node)
        # The caller may write to a result, so a constant is copied.
        graph.output([self._copy_of(n) if n.op == CONSTANT else n for n in nodes])
        graph.eliminate_dead_code()
        spec = flatten([*range(len(nodes))])[1]
        return GraphModule(graph, None, spec, name=self.name, place=self.place)

    def _constant(self, value: Any) -> Node:
        node = self.graph.constant(value)
        node.note(fake_of(value), self.place)
        return node

    def _placeholder(self, value: Any) -> Node:
        inputs = [node for node in self.graph.nodes if node.op == PLACEHOLDER]
        before = inputs[-1].next if inputs else self.graph.root.next
        is_array = is_traced(value)
        with self.graph.inserting_before(before):
            node = self.graph.placeholder("outside" if is_array else "generator")
        node.note(fake_of(value) if is_array else GENERATOR, self.place)
        return node


def renewed(module: GraphModule, inputs: Sequence[Any]) -> GraphModule:
    """Return a graph that uses the sizes of the running capture.

    A graph captured earlier has its own symbolic sizes, which the running capture does
    not know.
    """
    if module.graph.sizes is None or module.graph.sizes is captured_sizes():
        return module
    values = [GENERATOR if is_generator(v) else v for v in inputs]
    body = Body("grad", "f", module, lambda fn, arrays: module(*arrays), values)
    return body.module(FromOutside(body), body.outputs)


class FromOutside:
    """The values that functions use but that are not among their inputs, each once.

    Attributes
    ----------
    arrays : list of array
    generators : list of Generator
    """

    __slots__ = ("arrays", "generators")

    def __init__(self, *bodies: Body) -> None:
        found = {_identity(v): v for body in bodies for v in body.outside}.values()
        self.arrays: list[Any] = [v for v in found if is_traced(v)]
        self.arrays += _with_sizes(bodies)
        self.generators: list[Any] = [v for v in found if not is_traced(v)]

    @property
    def all(self) -> list[Any]:
        """The arrays and the generators, in the order of a module's inputs."""
        return [*self.arrays, *self.generators]

    @property
    def named(self) -> dict[str, Any]:
        """The keyword arguments of an operator call."""
        return {"generators": self.generators} if self.generators else {}


def _with_sizes(bodies: Sequence[Body]) -> list[Any]:
    """Return a list with an array whose shape has the sizes that no input has.

    The array has no elements. The list is empty if no size is missing.
    """
    names = set[str]().union(*(missing_sizes(body.graph.nodes) for body in bodies))
    if not names:
        return []
    context = bodies[0].graph.sizes
    assert context is not None
    shape = [context.wrap(symbol(name)) for name in sorted(names)]
    return [call_numpy(np.zeros, (*shape, 0), bool)]


def _comes_from_outside(value: Any) -> bool:
    return is_traced(value) or is_generator(value)


def _identity(value: Any) -> Any:
    """Return a key that is equal for two snapshots of the same value."""
    if not is_traced(value):
        return id(value)
    return (type(value), *(id(getattr(value, name)) for name in value.content))


def _with_traced_generators(fn: Any, trace: Trace) -> Any:
    """Return the function with generators whose draws call operators."""

    def change(generator: Any) -> Any:
        is_traced_one = hasattr(generator, "trace")
        return generator if is_traced_one else trace.generator_of(generator)

    return with_generators(fn, change)


def _run_alone(trace: Trace, fn: Callable[[], None]) -> None:
    """Call a function in a trace, without the modes around that, except autocast."""
    for device, enabled in _autocasts(current_mode.get()).items():
        fn = partial(run_inside, autocast(device, enabled), fn)
    run_under(None, run_inside, trace, fn)


def _autocasts(mode: Mode | None) -> dict[str, bool]:
    while mode is not None and not (mode.alive and isinstance(mode, autocast)):
        mode = mode.outer
    return mode.settings if isinstance(mode, autocast) else {}


def _written_by(node: Node) -> list[Node]:
    """Return the nodes of the arrays that a call writes to."""
    schema = node.target.schema
    pairs = zip(schema.parameters, node.values(), strict=True)
    return [v for p, v in pairs if p.is_written and isinstance(v, Node)]


def _root(node: Node) -> Node:
    """Return the node of the array that a view looks into."""
    while node.op == CALL and node.target.view_slot >= 0:
        node = node.values()[node.target.view_slot]
    return node


# ---- which outputs depend on which inputs ----
# Inputs that have a tangent, or that differ between the rows of a batch.


def moving_outputs(
    module: GraphModule, moving: Sequence[bool], carry: int = 0
) -> tuple[list[bool], list[bool]]:
    """Return which inputs and outputs depend on inputs that move, in some step of a loop.

    Parameters
    ----------
    module : GraphModule
        The step. Its first inputs and outputs are the carry.
    moving : sequence of bool
        Which inputs move before the first step.
    carry : int
        The length of the carry; 0 for a function that runs once.
    """
    return _spread(module, moving, carry, _has_derivative)


def differing_outputs(
    module: GraphModule, differing: Sequence[bool], carry: int = 0
) -> tuple[list[bool], list[bool]]:
    """Do what `moving_outputs` does, for inputs that differ between rows of a batch."""
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


# ---- shared code of the rules ----
# If no graph is being captured, each rule runs the operator's function on traced
# values. In a capture, a rule makes graphs of the transformed functions and calls an
# operator with them, by calling the same functions as users do.


def gradients(moving: Sequence[bool], found: Arrays) -> list[Any]:
    """Return a list with the derivatives found, and None for arrays that do not move."""
    given = iter(found)
    return [next(given) if moves else None for moves in moving]


def tangents_of(values: Arrays, found: Any) -> list[Any]:
    """Return the tangents of a list of arrays; all are None if `found` is None."""
    return [None] * len(values) if found is None else [*found]


def named_as(fn: Any, module: Any) -> Any:
    """Give a function the name and place of a graph, and return it."""
    fn.__name__, fn.place = module.__name__, module.place
    return fn
