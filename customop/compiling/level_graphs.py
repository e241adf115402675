"""A function inside one transform as a graph, and the code that calls it with tracers.

The graph of `vmap(f)` or `jvp(f)` is a function of plain arrays: the batches, or the values
and their tangents. What the results are besides arrays is noted here, so that tracers can be
made of them where a compiled function is called with tracers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from operator import is_not
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np

from customop.arrays.array import dtype_of
from customop.arrays.kinds import CPU, device_of, is_array, is_traced
from customop.arrays.nested import Structure, flatten, unflatten
from customop.arrays.stand_ins import entered
from customop.compiling.call_code import CallArguments, CallLines, Original
from customop.compiling.capture import CapturedCall, keep_what_warns
from customop.compiling.surroundings import Surroundings
from customop.core.interpreter import Interpreter, current_mode
from customop.core.table import RuleTable
from customop.core.tracer import (
    Pinned,
    Tracer,
    frozen,
    is_scalar,
    pin,
    place_of,
    views_another,
)
from customop.errors import GraphError
from customop.graph.code_parts import packer
from customop.graph.graph import OUTSIDE, Memory
from customop.graph.module import GraphModule
from customop.graph.node import CALL, PLACEHOLDER, Node, nodes_in
from customop.graph.passes import copy_new_constants
from customop.library.ops import ops
from customop.transforms.jvp import JvpInterpreter, JvpTracer
from customop.transforms.random_draws import with_generators
from customop.transforms.trace.recorder import Trace, fake_of
from customop.transforms.vmap_interpreter import BatchInterpreter, BatchTracer

# What each leaf of the arguments is; PLAIN for one that the transform does not follow.
Pattern = tuple[int, ...]
PLAIN = -1
# A pattern, and a further argument: the list of tangents, or None.
Taken = tuple[Pattern, list[Any] | None]


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


class Tracers(NamedTuple):
    """The tracers of the innermost transform among the arguments of a call.

    Attributes
    ----------
    graph_class : type
        The class of graphs for this transform.
    pattern : tuple of int
        What each leaf is for it.
    pinned : tuple of int
        Numbers of tracers without axes that are arrays of their own.
    positional : int
        The number of positional arguments.
    at : int
        The number of the leaves among these.
    is_nested : bool
        Whether there are values of other transforms below, or a vmap around the call must
        know of draws.
    """

    graph_class: type[LevelGraph]
    pattern: Pattern
    pinned: tuple[int, ...]
    positional: int
    at: int
    is_nested: bool


class CallText(NamedTuple):
    """The variables of a generated call.

    Attributes
    ----------
    leaves : list of str
        The leaves of the arguments, among them tracers.
    values : list of str
        The values below.
    given : list of str
        What the graph takes: these, and tangents.
    """

    leaves: Sequence[str]
    values: Sequence[str]
    given: Sequence[str]


class LevelGraph(ABC):
    """Captures a function inside a transform, and writes the code around its graph.

    Parameters
    ----------
    original : Original
        The function.
    tracers : Tracers

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
    may_view : bool
        Whether results may be views of arguments, since nobody writes them.
    """

    # How `explain` calls the transform, and what is not possible where the function runs.
    word: ClassVar[str]
    cannot: ClassVar[str]
    # How messages call an argument that the transform follows.
    followed: ClassVar[str]
    tracer_class: ClassVar[type[Tracer]]
    # Whether the values below have the axes of the arguments, so that names fit them.
    keeps_axes: ClassVar[bool] = False

    def __init__(self, original: Original, tracers: Tracers) -> None:
        self.may_view: bool = original.is_lift
        self.fn: Callable[..., Any] = original.fn
        self.pattern: Pattern = tracers.pattern
        self.pinned: Collection[int] = tracers.pinned
        self.is_nested: bool = tracers.is_nested
        self._at: int = tracers.at
        self.results: list[Result] = []
        self.structure: Structure | None = None
        self.count: int = 0

        @wraps(self.fn)
        def run(*args: Any, **kwargs: Any) -> list[Any]:
            return self._run(args, kwargs)

        self.run: Callable[..., list[Any]] = run

    # ---- what a transform adds ----

    @classmethod
    @abstractmethod
    def read(cls, leaves: Sequence[Any], own: Sequence[bool]) -> Taken | None:
        """Return what leaves are, of which some are tracers; None if it cannot be said."""

    @abstractmethod
    def _begin(self, leaves: Sequence[Any]) -> Interpreter:
        """Return the interpreter for a run with these values."""

    @abstractmethod
    def _track(
        self, interpreter: Any, number: int, leaf: Any, given: Sequence[Any]
    ) -> Any:
        """Return the tracer for a value."""

    @abstractmethod
    def _take(self, leaf: Any, values: list[Any]) -> int:
        """Return `Result.extra` of a result; it may add to the outputs."""

    def _finish_run(
        self, trace: Trace, given: Sequence[Any], values: list[Any]
    ) -> list[Any]:
        """Return the outputs of the graph, from the values of the results."""
        return values

    def forward(
        self, found: CapturedCall, around: Surroundings, given: CallArguments
    ) -> GraphModule:
        """Return the graph that gives the results, from the captured one."""
        return found.module

    @abstractmethod
    def tests(self, leaves: Sequence[str]) -> Iterator[str]:
        """Yield conditions for tracers whose class and interpreter are right."""

    def more_texts(self, leaves: Sequence[str]) -> list[str]:
        """Return the texts of further values below: tangents."""
        return []

    def node_lines(self, text: CallText, names: dict[str, Any]) -> list[str]:
        """Return lines before those of the results; `names` gets what they name."""
        return []

    @abstractmethod
    def tracer_text(self, result: Result) -> str:
        """Return the text of the tracer for a result, from outputs ``_o0, _o1, ...``."""

    @abstractmethod
    def size(self, calls: str, arguments: Sequence[str]) -> str:
        """Return how many operators the graph calls, as `explain` says it."""

    @property
    def codes(self) -> Sequence[str]:
        """The Python code of further graphs."""
        return ()

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
            result = entered(fn)(*positional, **named)
            self._check_arguments(
                given, before, flatten((positional, named)), structure
            )
            values = self._take_results(interpreter, given, result)
        return self._finish_run(trace, given, values)

    def _tracked(self, interpreter: Interpreter, leaves: Sequence[Any]) -> list[Any]:
        """Return the leaves, as tracers where the pattern says so."""
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
        """Note what the results are; return their values as the graph has them."""
        leaves, self.structure = flatten(result)
        self.results = []
        values: list[Any] = []
        boxes = [v for v in given if is_own(v, interpreter)]
        for i, leaf in enumerate(leaves):
            is_tracer = is_own(leaf, interpreter)
            known = [*given, *leaves[:i]]
            if is_tracer and any(leaf is v for v in known):
                source = next(k for k, v in enumerate(known) if leaf is v)
                self.results.append(Result(source=source))
                continue
            place, extra, is_array = len(values), -1, False
            values.append(leaf.below if is_tracer else leaf)
            if is_tracer:
                if not self.may_view:
                    _check_alone(leaf, boxes)
                boxes.append(leaf)
                extra = self._take(leaf, values)
                is_array = type(leaf.box_place) is Pinned or views_another(leaf)
            self.results.append(Result(place, -1, is_tracer, extra, is_array))
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

    # ---- the code around the graph ----

    def take_below(self, lines: CallLines, has_axes: Sequence[bool]) -> CallText:
        """Write the conditions for tracers, and the lines that take the values below.

        `has_axes` says it of each leaf. The leaves of the lines are then the values, or
        values like those of other transforms.
        """
        leaves = lines.leaves
        own = [i for i, code in enumerate(self.pattern) if code != PLAIN]
        cls = lines.bind("Tracer", self.tracer_class)
        first, *others = [leaves[i] for i in own]
        lines.unless([f"type({first}) is {cls}"])
        lines.add(f"_top = {first}.interpreter")
        tests = [f"type({v}) is {cls} and {v}.interpreter is _top" for v in others]
        tests += [*self._scalar_tests(lines, has_axes), *self.tests(leaves)]
        lines.unless(["_top.runs_plans", *tests])
        values = [*leaves]
        for i in own:
            values[i] = f"_b{i}"
            lines.add(f"_b{i} = {leaves[i]}.below")
        given = [*values]
        given[self._at : self._at] = self.more_texts(leaves)
        if not self.is_nested:
            lines.leaves = given
            return CallText(leaves, values, given)
        names = [f"_w{i}" for i in range(len(given))]
        keep, alike = lines.bind("frozen", frozen), lines.bind("like", like)
        lines.add(*[f"{n} = {keep}({v})" for n, v in zip(names, given, strict=True)])
        lines.unless([f"{lines.bind('nests', nests)}(_top, ({', '.join(names)},))"])
        lines.leaves = [f"_s{i}" for i in range(len(given))]
        pairs = zip(lines.leaves, names, strict=True)
        lines.add(*[f"{s} = {alike}({n})" for s, n in pairs])
        count = len(given) - len(values)
        values = [*names[: self._at], *names[self._at + count :]]
        return CallText(leaves, values, names)

    def _scalar_tests(
        self, lines: CallLines, has_axes: Sequence[bool]
    ) -> Iterator[str]:
        """Yield conditions for tracers without axes to be scalars, or arrays, as before."""
        for i, name in enumerate(lines.leaves):
            if self.pattern[i] == PLAIN or has_axes[i]:
                continue
            scalar = f"{lines.bind('is_scalar', is_scalar)}({name})"
            if i in self.pinned:
                yield f"not {scalar}"
            else:
                yield f"({name}.box_place is None or {scalar})"

    def place_tests(self, leaves: Sequence[str], has_axes: Sequence[bool]) -> list[str]:
        """Return conditions for tracers not to be views, nor written."""
        triples = zip(leaves, self.pattern, has_axes, strict=True)
        return [f"{v}.box_place is None" for v, p, has in triples if p != PLAIN and has]

    def result_lines(
        self, text: CallText, count: int, title: str, names: dict[str, Any]
    ) -> list[str]:
        """Return lines that make the result of ``_outs``, the `count` outputs of the graph."""
        assert self.structure is not None
        names |= {"_Tracer": self.tracer_class, "_pin": _pin}
        outs = "".join([f"_o{i}, " for i in range(count)])
        lines = [f"{outs}= _outs"] if outs else []
        lines += self.node_lines(text, names)
        found = [*text.leaves]
        for i, result in enumerate(self.results):
            name = f"_r{i}"
            if result.place < 0:
                made = found[result.source]
            elif result.is_tracer:
                made = self.tracer_text(result)
            else:
                made = f"_o{result.place}"
            lines.append(f"{name} = {made}")
            if result.is_pinned:
                lines.append(f"_pin({name})")
            found.append(name)
        if self.structure.type is None:
            return [*lines, "return _r0"]
        names["_pack"] = packer(self.structure, f"result of {title}")
        return [*lines, f"return _pack([{', '.join(found[len(self.pattern) :])}])"]

    @property
    def _where(self) -> str:
        return ", inside of other transforms" if self.is_nested else ""


def is_own(leaf: Any, interpreter: Interpreter) -> bool:
    """Return whether a value is a tracer of this transform."""
    return isinstance(leaf, Tracer) and leaf.interpreter is interpreter


def _writes(node: Node) -> bool:
    """Return whether a call writes an array; drawing writes a generator."""
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
    """Return the box that a view is a view of; the box itself for an array of its own."""
    while views_another(box):
        op, args, _ = place_of(box)
        box = args[op.view_slot]
    return box


def _pin(result: Any) -> None:
    """Note that a result is an array of its own; one that is read-only stays so."""
    value = result.below if is_traced(result) else result
    if type(value) is np.ndarray and not value.flags.writeable:
        result.box_place = Pinned(value.strides, is_sealed=True)
    else:
        pin(result)


def nests(top: Any, values: Iterable[Any]) -> bool:
    """Return whether other transforms are around a call: of values, or a vmap of draws."""
    if any(map(is_traced, values)):
        return True
    mode = current_mode.get()
    while mode is not None:
        if mode.alive and getattr(mode, "batch", None) is not top:
            return True
        mode = mode.outer
    return False


def is_pinned(box: Any) -> bool:
    """Return whether a tracer without axes is an array of its own."""
    return not box.shape and box.box_place is not None and not is_scalar(box)


def like(value: Any) -> Any:
    """Return a value like a traced one, to capture a function with; others as they are."""
    if not is_traced(value):
        return value
    if value.shape or device_of(value) != CPU.name:
        return fake_of(value)
    scalar = dtype_of(value).type(1)
    return scalar if is_scalar(value) else np.asarray(scalar)


# ---- vmap ----


class _WholeBatch(BatchInterpreter):
    """A vmap around the whole function: its calls are the function's own."""

    is_lasting = True

    def loop(
        self, op: RuleTable, values: Sequence[Any], dims: Sequence[Any]
    ) -> NoReturn:
        """Refuse: a graph would have a call for each row."""
        raise GraphError(f"{op.qualname} has no vmap rule and runs row by row")


class VmapGraph(LevelGraph):
    """Captures a function inside `vmap`; a pattern has the axis of each batch."""

    word: ClassVar[str] = "vmap"
    cannot: ClassVar[str] = "its vmap cannot be compiled"
    followed: ClassVar[str] = "that is batched"
    tracer_class: ClassVar[type[Tracer]] = BatchTracer

    @classmethod
    def read(cls, leaves: Sequence[Any], own: Sequence[bool]) -> Taken:
        """Return the axis of each batch."""
        pairs = zip(leaves, own, strict=True)
        return tuple([v.dim if is_mine else PLAIN for v, is_mine in pairs]), None

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
        """Finish it as for other transforms; raise if it draws: vmap must know of draws."""
        module = super().finish(module, derived)
        if any(n.op == CALL and n.has_effects for n in module.graph.nodes):
            raise GraphError("it draws random numbers, or calls what has effects")
        return module

    def tests(self, leaves: Sequence[str]) -> Iterator[str]:
        """Yield conditions for the axes of the batches to be as they were."""
        for name, dim in zip(leaves, self.pattern, strict=True):
            if dim != PLAIN:
                yield f"{name}.dim == {dim}"

    def tracer_text(self, result: Result) -> str:
        """Return the text of a row of a batch."""
        return f"_Tracer(_top, _o{result.place}, {result.extra})"

    def size(self, calls: str, arguments: Sequence[str]) -> str:
        """Return how many operators the graph calls, and where the rows are."""
        pairs = zip(arguments, self.pattern, strict=True)
        rows = ", ".join([f"{n} along {d}" for n, d in pairs if d != PLAIN])
        return f"{calls} for rows of {rows}{self._where}"


# ---- jvp ----


# In a pattern of forward mode: a tracer without a tangent, and one with a tangent.
_CONSTANT, _MOVING = -2, 0


class _WholePush(JvpInterpreter):
    """Forward mode around the whole function: its calls are the function's own."""

    is_lasting = True


class JvpGraph(LevelGraph):
    """Captures a function inside `jvp`; the last argument is the list of tangents."""

    word: ClassVar[str] = "jvp"
    cannot: ClassVar[str] = "its jvp cannot be compiled"
    followed: ClassVar[str] = "that has a tangent"
    tracer_class: ClassVar[type[Tracer]] = JvpTracer
    _tangents: Sequence[Any] = ()

    @classmethod
    def read(cls, leaves: Sequence[Any], own: Sequence[bool]) -> Taken:
        """Return which leaves have tangents, and these."""
        pairs = [*zip(leaves, own, strict=True)]
        pattern = tuple([_code_of(v) if is_mine else PLAIN for v, is_mine in pairs])
        moving = [v for v, code in zip(leaves, pattern, strict=True) if code == _MOVING]
        return pattern, [v.tangent for v in moving]

    def __init__(self, original: Original, tracers: Tracers) -> None:
        super().__init__(original, tracers)
        named: Any = self.run
        named.__signature__ = _with_tangents(self.fn, tracers.positional)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        self._tangents = args[-1]
        return super()._run(args[:-1], kwargs)

    def _begin(self, leaves: Sequence[Any]) -> JvpInterpreter:
        moving = [
            v for v, code in zip(leaves, self.pattern, strict=True) if code == _MOVING
        ]
        for value, tangent in zip(moving, self._tangents, strict=True):
            if tuple(value.shape) != tuple(tangent.shape):  # symbolic sizes are noted
                raise GraphError("a tangent has another shape than its value")
        return _WholePush()

    def _track(
        self, interpreter: Any, number: int, leaf: Any, given: Sequence[Any]
    ) -> JvpTracer:
        if self.pattern[number] == _CONSTANT:
            return JvpTracer(interpreter, leaf, None)
        moving = [i for i, code in enumerate(self.pattern) if code == _MOVING]
        return JvpTracer(interpreter, leaf, self._tangents[moving.index(number)])

    def _take(self, leaf: Any, values: list[Any]) -> int:
        if leaf.tangent is None:
            return -1
        values.append(leaf.tangent)
        return len(values) - 1

    def tests(self, leaves: Sequence[str]) -> Iterator[str]:
        """Yield conditions for the same arguments to have tangents."""
        for name, code in zip(leaves, self.pattern, strict=True):
            if code == _CONSTANT:
                yield f"{name}.tangent is None"

    def more_texts(self, leaves: Sequence[str]) -> list[str]:
        """Return the texts of the tangents; None meets no condition of an array."""
        pairs = zip(leaves, self.pattern, strict=True)
        return [f"{name}.tangent" for name, code in pairs if code == _MOVING]

    def tracer_text(self, result: Result) -> str:
        """Return the text of a value with its tangent."""
        tangent = f"_o{result.extra}" if result.extra >= 0 else None
        return f"_Tracer(_top, _o{result.place}, {tangent})"

    def size(self, calls: str, arguments: Sequence[str]) -> str:
        """Return how many operators the graph calls."""
        return f"{calls} with tangents{self._where}"


def _code_of(leaf: Any) -> int:
    return _CONSTANT if leaf.tangent is None else _MOVING


def _with_tangents(fn: Callable[..., Any], count: int) -> Signature:
    """Return the first parameters of a function, and one for the tangents."""
    try:
        found = [p.name for p in signature(fn).parameters.values() if p.kind in _ONE]
    except (TypeError, ValueError):  # of a ufunc, say
        found = []
    names = [*found[:count], *(f"argument{i}" for i in range(len(found), count))]
    return Signature([Parameter(name, _ONE[1]) for name in (*names, "tangents")])


_ONE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
