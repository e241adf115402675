"""A function inside a transform, captured with all that the transform does.

The graph of `vmap(f)` or `jvp(f)` is a function of plain arrays: the batches, or the values
and their tangents. What the results are besides arrays is noted here, so that tracers can be
made of them where a compiled function is called with tracers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from operator import is_not
from typing import Any, ClassVar, NamedTuple

from customop.arrays.kinds import is_array
from customop.arrays.pytree import Structure, flatten, unflatten
from customop.compiling.quiet import keep_what_warns
from customop.core.boxes import Pinned, pin, place_of, views_another
from customop.core.interpreter import Interpreter, current_mode
from customop.core.tracer import Tracer
from customop.errors import GraphError
from customop.graph.memory import OUTSIDE, Memory
from customop.graph.module import GraphModule
from customop.graph.new_constants import copy_new_constants
from customop.graph.node import CALL, PLACEHOLDER, Node, nodes_in
from customop.library.ops import ops
from customop.transforms.drawing import with_generators
from customop.transforms.trace.interpreter import Trace

__all__ = ["PLAIN", "Pattern", "Result", "Within"]

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
