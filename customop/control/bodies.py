"""Functions of branches and steps as graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from customop.arrays.kinds import is_traced
from customop.arrays.numpy_functions import call_numpy
from customop.arrays.pytree import flatten
from customop.control.virtual import is_faked
from customop.core.interpreter import Mode, current_mode
from customop.errors import ArgumentError, place
from customop.graph.graph import Graph
from customop.graph.guards import GENERATOR
from customop.graph.module import GraphModule
from customop.graph.node import CALL, CONSTANT, PLACEHOLDER, Node
from customop.graph.size_uses import missing_sizes
from customop.library.ops import ops
from customop.shapes.active_context import captured_sizes
from customop.shapes.expressions import symbol
from customop.transforms.autocast import autocast
from customop.transforms.drawing import with_generators
from customop.transforms.generators import is_generator
from customop.transforms.trace.generators import traced_generator
from customop.transforms.trace.interpreter import Trace, fake_of
from customop.transforms.trace.tracer import GraphTracer

__all__ = ["Body", "FromOutside", "tracing"]


def tracing() -> bool:
    """Whether a graph is being captured."""
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

    Traced values that it uses and that are not among its inputs, are `outside`: they
    become inputs too, when it is made a module.

    Parameters
    ----------
    name : str
        The function that is called with `fn`, for messages.
    role : str
        The name of the graph where `fn` is a lambda.
    fn : callable
        The user's function, for messages.
    run : callable
        Takes the function, and a list of arrays; returns a list of arrays and numbers.
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
        # A graph has the place of its function.
        self.place: str = str(getattr(fn, "place", "")) or place(fn)
        self.graph: Graph = Graph()
        # Its values have sizes of the capture around it, and so do those of new nodes.
        self.graph.sizes = captured_sizes()
        trace = Trace("fake", self.graph)
        trace.title, trace.fn = name, fn
        self._title = name
        self.outputs: list[Any] = []
        self.written: dict[int, Node] = {}
        with _alone(trace):
            tracers = [self._input(trace, value) for value in inputs]
            self.inputs: list[Node] = [tracer.node for tracer in tracers]
            leaves = run(_with_traced_generators(fn, trace), [*tracers])
            self.outputs = [trace.node_and_value(leaf)[0] for leaf in leaves]
            for i, tracer in enumerate(tracers):
                if tracer.node is not self.inputs[i]:
                    self.written[i] = tracer.node
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
        """The node of an input when the function has run."""
        return self.written.get(i, self.inputs[i])

    def _copy_written(self) -> None:
        """Let operators that write, write copies of the inputs."""
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
        """Traced values, and generators, that the function uses and are not its inputs."""
        return [v for v in self.graph.constants.values() if _comes_from_outside(v)]

    def module(self, outside: FromOutside, results: Sequence[Any]) -> GraphModule:
        """The graph as a function of its inputs and of what comes from outside.

        It returns a list of arrays: `results`, which are nodes, or arrays of NumPy.
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
        # Who gets a result may write it.
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
    """A graph whose sizes are those of the capture that runs.

    A graph that was captured before has sizes of its own, which nothing else here knows.
    """
    if module.graph.sizes is None or module.graph.sizes is captured_sizes():
        return module
    values = [GENERATOR if is_generator(v) else v for v in inputs]
    body = Body("grad", "f", module, lambda fn, arrays: module(*arrays), values)
    return body.module(FromOutside(body), body.outputs)


class FromOutside:
    """The values that functions use and that are not among their inputs, each once.

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
        """Both, in the order of the inputs of a module."""
        return [*self.arrays, *self.generators]

    @property
    def named(self) -> dict[str, Any]:
        """The keyword argument of an operator."""
        return {"generators": self.generators} if self.generators else {}


def _with_sizes(bodies: Sequence[Body]) -> list[Any]:
    """An array without elements whose shape has the sizes that no input of a body has."""
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
    """A key, equal for two snapshots of a value."""
    if not is_traced(value):
        return id(value)
    return (type(value), *(id(getattr(value, name)) for name in value.content))


def _with_traced_generators(fn: Any, trace: Trace) -> Any:
    """The function, whose generators call operators for their draws."""

    def change(generator: Any) -> Any:
        is_traced_one = hasattr(generator, "trace")
        return generator if is_traced_one else trace.generator_of(generator)

    return with_generators(fn, change)


@contextmanager
def _alone(trace: Trace) -> Iterator[None]:
    """Open a trace without the modes around it, but for autocast."""
    settings = _autocasts(current_mode.get())
    token = current_mode.set(None)
    try:
        with ExitStack() as stack:
            stack.enter_context(trace)
            for device, enabled in settings.items():
                stack.enter_context(autocast(device, enabled))
            yield
    finally:
        current_mode.reset(token)


def _autocasts(mode: Mode | None) -> dict[str, bool]:
    while mode is not None and not (mode.alive and isinstance(mode, autocast)):
        mode = mode.outer
    return mode.settings if isinstance(mode, autocast) else {}


def _written_by(node: Node) -> list[Node]:
    """The nodes of arrays that a call writes."""
    schema = node.target.schema
    pairs = zip(schema.parameters, node.values(), strict=True)
    return [v for p, v in pairs if p.is_written and isinstance(v, Node)]


def _root(node: Node) -> Node:
    """The node of the array that a view is a view of."""
    while node.op == CALL and node.target.view_slot >= 0:
        node = node.values()[node.target.view_slot]
    return node
