"""`make_fx`: run a function once, and record the operators that it calls as a graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from functools import partial, wraps
from operator import is_not
from types import FunctionType
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar

import numpy as np

from customop.arrays.array import strides_of
from customop.arrays.fake import symbolic_like, with_sizes
from customop.arrays.kinds import check_own_rules, is_array, is_traced
from customop.arrays.nested import Structure, abbreviated, flatten, unflatten
from customop.arrays.stand_ins import entered
from customop.arrays.watched_code import WriteWatch, may_ask
from customop.core.contract import owner
from customop.core.interpreter import run_inside
from customop.core.reach import is_opaque
from customop.core.tracer import Pinned, empty_views, frozen, pin
from customop.errors import (
    ArgumentError,
    GraphError,
    caller_place,
    check_function,
    did_you_mean,
    place,
    shown,
)
from customop.graph.graph import Graph
from customop.graph.guards import GENERATOR
from customop.graph.module import GraphModule
from customop.graph.node import Node
from customop.graph.passes import copy_new_constants
from customop.progress import node_channel
from customop.transforms.generators import (
    DrawWatch,
    draw_subject,
    is_generator,
    plain_generator,
    subject_with,
)
from customop.transforms.random_draws import with_generators
from customop.transforms.trace.graph_tracer import (
    ErrorSettings,
    GraphTracer,
    Operators,
    Table,
    as_chosen,
    as_table,
    assign,
    check_undrawn,
    lay_out,
    traced_generator,
)
from customop.transforms.trace.recorder import Trace, copied, fake_of

# ---- paths of arrays inside the arguments of a function ----


class Path(NamedTuple):
    """The path to a leaf of the arguments.

    Attributes
    ----------
    parameter : str
    steps : tuple
        Keys, positions and attribute names inside the argument.
    text : str
        The path as the user would write it, such as ``params['w']``.
    """

    parameter: str
    steps: tuple[Any, ...]
    text: str


def paths_of(fn: Callable[..., Any], spec: Structure) -> list[Path]:
    """Return the paths of the leaves of positional and keyword arguments."""
    parameters = _parameters(fn)
    return [
        _path(parameters, accessor[1:], is_named=bool(accessor[0].entry))
        for accessor in spec.accessors()
    ]


def argument_path(fn: Callable[..., Any], structure: Structure, number: int) -> Path:
    """Return the path of a leaf of a tuple of positional arguments."""
    accessor = structure.accessors()[number]
    return _path(_parameters(fn), accessor, is_named=False)


def _parameters(fn: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return [*inspect.signature(fn).parameters.values()]
    except (TypeError, ValueError):  # for example for a ufunc
        return []


def _path(
    parameters: Sequence[inspect.Parameter], accessor: Any, *, is_named: bool
) -> Path:
    key = accessor[0].entry
    steps = tuple([entry.entry for entry in accessor[1:]])
    if is_named:
        name = root = str(key)
    elif key < len(parameters) and parameters[key].kind in _ONE:
        name = root = parameters[key].name
    else:
        last = [p for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL]
        before = parameters.index(last[0]) if last else 0
        name = last[0].name if last else "args"
        root = f"{name}[{key - before}]"
        steps = (key - before, *steps)
    return Path(name, steps, str(accessor[1:].codify(root)))


_ONE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


# ---- names of sizes ----


def names_for(
    title: str, sizes: Mapping[str, Any], paths: Sequence[Path], leaves: Sequence[Any]
) -> list[Sequence[Any] | None]:
    """Return the names of the axes of each leaf, or None if none are given.

    `title` is the function of this package that got `sizes`.
    """
    if not sizes:
        return [None] * len(paths)
    known = [*dict.fromkeys(path.parameter for path in paths)]
    for name in sizes:
        if name not in known:
            raise ArgumentError(
                f"{title}: sizes has '{name}', which is not an argument"
                f"{did_you_mean(str(name), known)}",
                do=f"use names of arguments: {', '.join(known)}",
            )
    pairs = zip(paths, leaves, strict=True)
    return [
        _names(title, sizes[path.parameter], path, leaf)
        if path.parameter in sizes
        else None
        for path, leaf in pairs
    ]


def _names(title: str, given: Any, path: Path, leaf: Any) -> Sequence[Any] | None:
    for step in path.steps:
        if given is None:
            return None
        given = _step(title, given, step, path)
    if given is None or not is_array(leaf):
        return None
    if not isinstance(given, tuple | list):
        raise ArgumentError(
            f"{title}: sizes has {shown(given)} for {path.text}, which is not a tuple",
            do=f"name each axis, or None: {('name',) * len(leaf.shape)}",
        )
    return given


def _step(title: str, given: Any, step: Any, path: Path) -> Any:
    """Return the entry of `given` for one part of an argument, or None."""
    if isinstance(given, Mapping):
        return given.get(step)
    if isinstance(step, int) and isinstance(given, tuple | list) and step < len(given):
        return given[step]
    if isinstance(step, str) and hasattr(given, step):
        return getattr(given, step)
    raise ArgumentError(
        f"{title}: sizes has {shown(given)} on the way to {path.text}",
        do="nest dicts and tuples of names as the argument is nested",
    )


# ---- make_fx ----
# Run a function once, and record the operators that it calls as a graph.


P = ParamSpec("P")
R = TypeVar("R")

TracingMode = Literal["real", "fake", "symbolic"]
_MODES = ("real", "fake", "symbolic")


def make_fx(
    fn: Callable[P, R],
    tracing_mode: TracingMode | None = None,
    *,
    sizes: Mapping[str, Any] | None = None,
    keep: Operators = (),
    decompose: Table = (),
) -> Callable[P, GraphModule]:
    """Make a function that captures `fn` as a graph.

    Parameters
    ----------
    fn : callable
        Takes and returns pytrees.
    tracing_mode : str, optional
        ``"real"``, the default, computes values while tracing. ``"fake"``, the default
        with `sizes`, computes only shapes and dtypes. ``"symbolic"`` also keeps the
        sizes of all arrays symbolic, so that the graph works for all sizes that its
        guards allow.
    sizes : mapping, optional
        Names for sizes, by parameter: ``{"x": ("batch", 3)}``. For a pytree, give dicts
        or lists of such tuples, nested like the pytree. A size with a name is symbolic.
        Give None, or the length itself, for an axis of fixed length. The sizes of other
        arrays are fixed, unless ``tracing_mode="symbolic"``.
    keep : iterable of Operator or str, or callable
        Operators that stay nodes although their bodies consist of operators, or a
        function that returns whether an operator stays a node. The bodies of other such
        operators are traced.
    decompose : mapping, or iterable of Operator or str
        Operators to replace, each with a function of its parameters that is traced
        instead. For a list of operators, their own bodies are traced.

    Returns
    -------
    callable
        Takes the arguments of `fn`, and returns a `GraphModule`. Arrays are the inputs
        of the graph. Other arguments are constants: when the graph is called, it checks
        that they are the same.

    Raises
    ------
    ArgumentError
        If `fn` is not a function, the mode is unknown, `sizes` do not fit, or `keep` or
        `decompose` has something other than operators.
    DataDependentError
        From the function: if `fn` needs the value of an array, or branches on a size
        that depends on data.
    SizeError
        From the function: if `fn` branches on a size that has a name.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> graph = co.make_fx(lambda x: np.sin(x) + 1.0)(np.zeros(2))
    >>> graph(np.array([0.0, np.pi / 2]))
    array([1., 2.])
    >>> mean = co.make_fx(lambda x: x.sum() / len(x.shape), sizes={"x": ("n",)})
    >>> mean(np.zeros(3))(np.ones(5))
    np.float64(5.0)

    Without computing, for arrays of all sizes:

    >>> fake = co.FakeArray((40_000, 60_000), np.float64)
    >>> mean = co.make_fx(np.mean, tracing_mode="symbolic")(fake)
    >>> mean(np.ones((2, 3)))
    np.float64(1.0)

    An operator is one node, unless it is to be replaced by its body or by another function:

    >>> @co.custom_op("doc::softplus", mutates_args=())
    ... def softplus(x: np.ndarray) -> np.ndarray:
    ...     return np.log1p(np.exp(x))
    >>> _ = softplus.register_fake(lambda x: co.fake_like(x))
    >>> def called(graph):
    ...     return [node.target.qualname for node in graph.graph.nodes if node.op == "call"]
    >>> called(co.make_fx(softplus)(np.ones(2)))
    ['doc::softplus']
    >>> called(co.make_fx(softplus, decompose=["doc::softplus"])(np.ones(2)))
    ['np::exp', 'np::log1p']
    >>> other = {"doc::softplus": lambda x: np.logaddexp(x, 0.0)}
    >>> called(co.make_fx(softplus, decompose=other)(np.ones(2)))
    ['np::logaddexp']
    """
    check_function("make_fx", fn)
    mode = _checked_mode(tracing_mode, sizes)
    kept = as_chosen(keep, "make_fx: keep")
    opened = as_table(decompose, "make_fx: decompose")

    @wraps(fn)
    def trace(*args: P.args, **kwargs: P.kwargs) -> GraphModule:
        where = caller_place()

        def once() -> tuple[Trace, GraphModule]:
            capture = _Capture(fn, mode, sizes or {}, where)
            capture.trace.kept, capture.trace.opened = kept, opened
            return capture.trace, capture.run(args, kwargs)

        # Without the trace, which holds references to the constants.
        module = _without_unseen_reads(once)[1]
        copy_new_constants(module.graph)
        return module

    return trace


def _checked_mode(mode: TracingMode | None, sizes: Any) -> TracingMode:
    """Return the tracing mode; raise if it is unknown or does not fit `sizes`."""
    if sizes is not None and not isinstance(sizes, Mapping):
        raise ArgumentError(
            f"make_fx: sizes={shown(sizes)} is not a dict",
            do='write names by parameter: sizes={"x": ("batch", None)}',
        )
    if mode is None:
        return "fake" if sizes else "real"
    if mode not in _MODES:
        raise ArgumentError(
            f"make_fx: unknown tracing_mode={shown(mode)}",
            do="use 'real', 'fake' or 'symbolic'",
        )
    if sizes and mode == "real":
        raise ArgumentError(
            "make_fx: sizes have names only where no values are computed",
            do="leave tracing_mode='real' out, or use 'symbolic'",
        )
    return mode


def graph_of(
    fn: Callable[..., Any],
    tracing_mode: TracingMode,
    arrays: Sequence[Any],
    names: Sequence[str],
) -> GraphModule:
    """Capture a function of arrays as `make_fx` does, for use inside this package.

    It takes the names of the arrays, and does not look for unseen draws from
    generators. This saves half of the time for a single operator.
    """
    capture = _Capture(fn, tracing_mode, {}, "")
    no_names = [None] * len(arrays)
    spec = capture.take(arrays, names, no_names, lambda given: fn(*given))
    return GraphModule(capture.trace.graph, None, spec)


def capture(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    sizes: Mapping[str, Any] | None = None,
    axes: Mapping[int, Collection[int]] | None = None,
    same: Mapping[int, int] | None = None,
    numbers: Collection[int] = (),
    reads: dict[int, str] | None = None,
    is_unusual: bool = False,
) -> tuple[GraphModule, bool, set[Node], bool]:
    """Capture a function by shapes and dtypes, for `compile`.

    Parameters
    ----------
    fn : callable
    args, kwargs
        The arguments of `fn`.
    sizes : mapping, optional
        The same parameter as in `make_fx`.
    axes : mapping, optional
        Number of a leaf of the arguments -> its axes with symbolic sizes, as in the
        mode ``"symbolic"``.
    same : mapping, optional
        Number of a leaf -> number of the earlier leaf that is the same array.
    numbers : collection of int, optional
        Numbers of leaves that are ints or floats and may differ when the graph runs.
    reads : dict, optional
        Filled with those numbers whose values the function has read, and the line.
    is_unusual : bool
        Whether facts about values are taken to be what is not usual.

    Returns
    -------
    GraphModule
    bool
        Whether the function writes in place. If so, strides decide what is a view.
    set of Node
        The calls that were made by transforms inside the function.
    bool
        Whether the graph is for some values only, see `customop.shapes.sizes.guess`.

    Raises
    ------
    GraphError
        If the function leaves NumPy's settings for errors changed.
    """
    node_channel.stage("capturing")
    where = caller_place()

    def once() -> tuple[Trace, GraphModule]:
        run = _Capture(fn, "fake", sizes or {}, where)
        run.trace.title = "compile"
        run.axes, run.same, run.numbers = axes or {}, same or {}, numbers
        if reads is not None:
            run.trace.sizes.reads = reads
        run.trace.sizes.guesses.are_unusual = is_unusual
        run.keeps_containers = True
        with ErrorSettings() as settings:
            run.trace.settings = settings
            module = run.run(args, kwargs)
            settings.check_same(module.name)
        return run.trace, module

    trace, module = _without_unseen_reads(once)
    return module, trace.has_writes, trace.derived, trace.sizes.guesses.has_any


# ---- arrays that operators write and plain code reads ----


def _without_unseen_reads(
    once: Callable[[], tuple[Trace, GraphModule]],
) -> tuple[Trace, GraphModule]:
    """Trace a function; raise if it reads an array from outside that operators write.

    Plain NumPy code that reads such an array is not seen, and gets what the array held
    while the function was traced. So the function is traced again while the
    array holds other values: the graph must be the same.
    """
    trace, module = once()
    written = {id(owner(array)): owner(array) for array in trace.written_constants()}
    pairs = [(array, array.copy()) for array in written.values()]
    if not pairs:
        return trace, module
    cause = None
    try:
        is_same = all(
            _is_same_graph(module, _traced_with(once, pairs, change))
            for change in _CHANGES
        )
    except Exception as error:  # noqa: BLE001  # any, of the other values
        is_same, cause = False, error
    if not is_same:
        names = ", ".join(abbreviated(array) for array, _ in pairs)
        fn: Any = trace.fn
        raise GraphError(
            f"{trace.title}: '{module.name}' reads an array from outside of it that an"
            f" operator writes, {names}, by code that its graph does not have",
            f"it is at {place(fn)}",
            do="pass the array as an argument, or read it by operators that also take a"
            " traced value",
        ) from cause
    return trace, module


def _traced_with(
    once: Callable[[], tuple[Trace, GraphModule]],
    pairs: Sequence[tuple[np.ndarray, np.ndarray]],
    change: Callable[[np.ndarray], np.ndarray],
) -> GraphModule:
    """Trace a function while arrays hold other values than their copies in `pairs`."""
    try:
        for array, before in pairs:
            array[...] = change(before)
        return once()[1]
    finally:
        for array, before in pairs:
            array[...] = before


def _near(array: np.ndarray) -> np.ndarray:
    """Return an array that differs in each element."""
    if array.dtype.kind == "b":
        return ~array
    if array.dtype.kind in "iu":
        return array ^ 1
    return np.where(np.isfinite(array) & (array != 1), np.ones_like(array), 2)


def _far(array: np.ndarray, side: str) -> np.ndarray:
    """Return an array of values that conditions tell from most others."""
    if array.dtype.kind == "b":
        return np.full_like(array, side == "max")
    if array.dtype.kind in "iu":
        return np.full_like(array, getattr(np.iinfo(array.dtype), side))
    return np.full_like(array, {"min": -1e4, "max": 1e4}[side])


_CHANGES = (_near, partial(_far, side="min"), partial(_far, side="max"))


def _is_same_graph(first: GraphModule, second: GraphModule) -> bool:
    """Return whether two graphs have the same code and constants."""
    own, others = first.graph.constants, second.graph.constants
    return (
        first.code == second.code
        and own.keys() == others.keys()
        and all(_is_same_constant(own[name], others[name]) for name in own)
    )


def _is_same_constant(a: Any, b: Any) -> bool:
    kinds = np.ndarray | np.generic
    if not isinstance(a, kinds) or not isinstance(b, kinds):
        return type(a) is type(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


class _WatchedGraph(Graph):
    """A graph that reports its nodes while they are made, for progress displays."""

    def enter(self, node: Node) -> None:
        """Insert a new node at the current place, and report it."""
        super().enter(node)
        node_channel.advance()


class _Capture:
    """One run of a function that is captured."""

    def __init__(
        self,
        fn: Callable[..., Any],
        tracing_mode: str,
        sizes: Mapping[str, Any],
        place: str,
    ) -> None:
        self.fn = fn
        self.is_symbolic: bool = tracing_mode == "symbolic"
        self.names: Mapping[str, Any] = sizes
        graph = _WatchedGraph() if node_channel.is_watched else None
        self.trace: Trace = Trace(tracing_mode, graph)
        self.trace.fn = fn
        self.place: str = place
        self.keeps_containers: bool = False
        self.axes: Mapping[int, Collection[int]] = {}
        self.same: Mapping[int, int] = {}
        self.numbers: Collection[int] = ()
        # The tracers of inputs, with their first nodes.
        self.inputs: list[tuple[GraphTracer, Any]] = []

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> GraphModule:
        """Trace the function and return its graph."""
        leaves, in_spec = flatten((args, kwargs))
        paths = paths_of(self.fn, in_spec)
        names = names_for(self.trace.title, self.names, paths, leaves)
        subject = subject_with(draw_subject(self.fn, "graph"), self.fn, "graph", leaves)
        watch = None if subject.is_known else DrawWatch(self.fn, leaves)
        functions: Sequence[FunctionType] = ()
        if watch is not None:
            self.trace.note_arrays(watch.arrays)
            functions = watch.functions
            functions = functions if watch.arrays else [*filter(may_ask, functions)]

        def call(given: list[Any]) -> Any:
            positional, named = unflatten(in_spec, given)
            run = entered(with_generators(self.fn, self.trace.generator_of))
            with WriteWatch(functions, self.trace.note_plain_write):
                out = run(*positional, **named)
            if self.keeps_containers:
                self._check_containers(given, flatten((positional, named)), in_spec)
            return out

        out_spec = self.take(leaves, [path.text for path in paths], names, call)
        name = getattr(self.fn, "__name__", type(self.fn).__name__)
        graph = self.trace.graph
        if watch is not None:
            check_undrawn(watch, f"{self.trace.title} of {name}", graph)
            subject.reaches |= watch.reaches or self.trace.has_changed_arrays()
            subject.note_watched()
        return GraphModule(graph, in_spec, out_spec, name=name, place=self.place)

    def _check_containers(
        self, given: list[Any], found: tuple[list[Any], Structure], in_spec: Structure
    ) -> None:
        """Raise if the function has changed a list or dict that is an argument."""
        leaves, structure = found
        if structure != in_spec or any(map(is_not, leaves, given)):
            raise GraphError(
                f"{getattr(self.fn, '__name__', 'the function')} changes a container that"
                " is an argument, which its graph would not do",
                do="return the new container",
            )

    def take(
        self,
        leaves: Sequence[Any],
        sources: Sequence[str],
        names: Sequence[Sequence[Any] | None],
        call: Callable[[list[Any]], Any],
    ) -> Structure:
        """Trace a call with these leaves, and return the structure of its result."""
        trace = self.trace
        trace.inputs = [leaf for i, leaf in enumerate(leaves) if i not in self.same]

        def record() -> Structure:
            triples = zip(leaves, sources, names, strict=True)
            given: list[Any] = []
            for number, (leaf, source, axes) in enumerate(triples):
                made = self._input(number, leaf, source, axes)
                given.append(given[self.same[number]] if number in self.same else made)
            found, out_spec = flatten(call(given))
            self._write_inputs()
            trace.graph.output([self._output(leaf) for leaf in found])
            return out_spec

        return run_inside(trace, record)

    def _input(
        self, number: int, leaf: Any, source: str, axes: Sequence[Any] | None
    ) -> Any:
        trace = self.trace
        if is_generator(leaf):
            node = trace.graph.placeholder(source, GENERATOR)
            node.meta.update(place=self.place, source=source)
            return traced_generator(trace, node, deepcopy(plain_generator(leaf)))
        if number in self.numbers:
            leaf = trace.sizes.input_number(leaf, source, number)
        is_input = is_array(leaf)
        check_own_rules(leaf, f"the graph's argument {source}", GraphError)
        if is_opaque(leaf):
            raise GraphError(
                f"{trace.title}: argument {source} is a {type(leaf).__name__}, whose"
                " numbers would be constants of the graph",
                do="pass its numbers as plain arrays, such as np.asarray(x)",
            )
        fake = fake_of(leaf) if is_input else leaf
        if is_input and axes is not None:
            fake = with_sizes(fake, axes, source, trace.sizes)
        elif is_input and (self.is_symbolic or number in self.axes):
            fake = symbolic_like(fake, source, trace.sizes, self.axes.get(number))
        elif is_input:
            fake = trace.of_shared_parts(fake)
        node = trace.graph.placeholder(source, fake)
        node.note(fake, self.place)
        node.meta["source"] = source
        if not is_input:
            return leaf
        below = copied(leaf) if trace.is_real else fake
        tracer = GraphTracer(trace, below, node)
        tracer.box_origin = leaf
        if not leaf.shape and _is_box(leaf):
            pin(tracer)
        if strides_of(below) != strides_of(fake):  # the copy has no gaps
            tracer.box_place = Pinned(strides_of(fake), ((trace, node),))
        self.inputs.append((tracer, node))
        return tracer

    def _output(self, leaf: Any) -> Any:
        """Return the entry in the output node for a leaf of the result."""
        return self.trace.node_and_value(leaf)[0]

    def _write_inputs(self) -> None:
        """Add nodes that write the new values of inputs, if the function wrote to them.

        Afterwards an input has its first node again, and its views are taken again. So
        views that are returned are views of the input, as in the function.
        """
        graph = self.trace.graph
        for tracer, node in self.inputs:
            if tracer.node is not node:
                new = tracer.node
                if new.target is lay_out:  # the input keeps its own layout
                    new = new.args[0]
                graph.call(assign, (node, new)).note(None, self.place)
                tracer.node = node
                empty_views(tracer)


def _is_box(leaf: Any) -> bool:
    """Return whether an input without axes is an array, not a scalar."""
    if is_traced(leaf):
        return not frozen(leaf).box_is_scalar
    return hasattr(leaf, "__setitem__")
