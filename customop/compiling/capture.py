"""From a function and its arguments to a graph that is ready for a back end.

Only these may be left out where nothing uses them, and run once where a function makes
them twice: a user sees no difference. Inside transforms that the function itself calls,
such as `grad`, others are left out and merged, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import has_own_rules
from customop.core.table import RuleTable
from customop.errors import ArgumentError, CustomOpError, GraphError
from customop.graph.graph import OUTSIDE, Graph, Memory, may_write
from customop.graph.module import GraphModule
from customop.graph.node import CALL, PLACEHOLDER, Node
from customop.graph.passes import (
    copy_new_constants,
    edit_in_place,
    edited,
    merge_equal_nodes,
)
from customop.graph.subgraphs import split_graph
from customop.shapes.sizes import Symbolic
from customop.transforms.trace.graph_tracer import assign
from customop.transforms.trace.make_fx import capture

# ---- calls that neither warn nor raise, whatever their arrays hold ----


# Views and copies of elements.
_MOVES = frozenset(
    (
        *("broadcast_to", "reshape", "transpose", "expand_dims", "squeeze", "slice"),
        *("unslice", "ravel", "copy", "c_copy", "flip", "roll", "stack", "diagonal"),
        *("tril", "triu", "real", "imag", "require", "eye", "arange", "full_like"),
        "packed_like",
    )
)
# Comparisons and the like. A nan raises no flag in them.
_OF_ALL = frozenset(
    (
        *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
        *("logical_and", "logical_or", "logical_xor", "logical_not", "isnan", "isinf"),
        *("isfinite", "signbit", "sign", "negative", "positive", "copysign", "fabs"),
        *("maximum", "minimum", "fmax", "fmin", "floor", "ceil", "trunc", "rint"),
        *("bitwise_and", "bitwise_or", "bitwise_xor", "invert", "conjugate", "where"),
        *("any", "all", "argmax", "argmin", "argsort", "sort"),
    )
)
# Integers in arrays wrap around; those of scalars warn.
_OF_INTEGERS = frozenset(
    ("add", "subtract", "multiply", "square", "absolute", "left_shift", "right_shift")
)
_CASTING = frozenset(("astype", "slice_set", "concatenate"))
_OF_SOME_DTYPES = _OF_ALL | _OF_INTEGERS | _CASTING
_SMALLEST = 127


def is_quiet(node: Node) -> bool:
    """Return whether a node calls an operator of NumPy that neither warns nor raises."""
    op = node.target
    if node.op != CALL:
        return True
    if not isinstance(op, RuleTable) or op.namespace != "np":
        return False
    if op.name in _MOVES:
        return not any(map(_depends_on_data, node.inputs))
    return _is_quiet_on(op.name, node)


def _is_quiet_on(name: str, node: Node) -> bool:
    """Return whether it is so for arrays of these dtypes."""
    val = node.val
    if (
        name not in _OF_SOME_DTYPES
        or not isinstance(val, FakeArray)
        or not val.shape  # operators of scalars warn of integers, too
        or (name in _OF_INTEGERS and val.dtype.kind not in "biu")
    ):
        return False
    arrays = [n.val for n in node.inputs if isinstance(n.val, FakeArray)]
    if name in _CASTING:
        return all(np.can_cast(v.dtype, val.dtype) for v in arrays)
    numbers = [v for v in node.values() if type(v) in (int, float)]
    is_known = not any(isinstance(v, Symbolic) for v in node.values())
    if not is_known or not all(map(_is_small, numbers)):
        return False  # NumPy converts it to the dtype of an array
    if any(v.dtype.kind == "c" for v in arrays):
        return False  # to compare a nan raises a flag
    is_whole = all(v.dtype.kind in "biu" for v in (val, *arrays))
    return name in _OF_ALL or (name in _OF_INTEGERS and is_whole)


def _depends_on_data(node: Node) -> bool:
    """Return whether an array's shape depends on data: an index may lie outside of it."""
    sizes = [n for n in getattr(node.val, "shape", ()) if isinstance(n, Symbolic)]
    return any(n.hint is None for n in sizes)


def _is_small(value: float) -> bool:
    return 0 <= value <= _SMALLEST


def keep_what_warns(graph: Graph, derived: Collection[Node]) -> None:
    """Mark the calls of a function itself that may warn or raise: passes keep each of them.

    Parameters
    ----------
    graph : Graph
        It is changed.
    derived : collection of Node
        Those of transforms inside of the function.
    """
    for node in graph.nodes:
        if node.op == CALL and node not in derived and not is_quiet(node):
            node.must_run = True


# ---- calls that a function makes under `np.errstate` of its own ----


class SettledGraph(GraphModule):
    """A graph that runs under settings of its own for floating-point errors.

    Parameters
    ----------
    module : GraphModule
    settings : dict
        For `numpy.errstate`.

    Attributes
    ----------
    warns : bool
        Whether it may warn, print or call a function whatever the caller has set; so each
        of its runs is one that the user sees.
    """

    def __init__(self, module: GraphModule, settings: dict[str, Any]) -> None:
        super().__init__(module.graph, name=module.name, place=module.place)
        self._settings = settings
        kinds = settings.keys() - {"call"}
        self.warns: bool = any(settings[k] not in ("ignore", "raise") for k in kinds)

    def with_graph(self, graph: Graph) -> GraphModule:
        """Return a module for another graph, under the same settings."""
        module = GraphModule(graph, name=self.name, place=self.place)
        return SettledGraph(module, self._settings)

    def run(self, *leaves: Any) -> Any:
        """Run the graph on the leaves of its inputs."""
        with np.errstate(**self._settings):
            return super().run(*leaves)


def with_settings(module: GraphModule) -> GraphModule:
    """Return a module in which calls under `np.errstate` of the function run under it.

    Calls that write, and those that give views, stay as they are: they move elements.
    """
    settings = {n: s for n in module.graph.nodes if (s := n.fact("errstate"))}
    if not settings:
        return module
    memory = Memory(module.graph)
    names = {
        node: module.graph.name_for(f"settled_{node.name}")
        for node in settings
        if _computes(node, memory)
    }
    found = split_graph(module, names)
    of_name = {name: settings[node] for node, name in names.items()}
    for node in found.graph.nodes:
        if node.op == CALL and node.name in of_name:
            node.target = SettledGraph(node.target, of_name[node.name])
    return found


def _computes(node: Node, memory: Memory) -> bool:
    """Return whether a call runs a graph or gives new arrays, and writes nothing."""
    if node.op != CALL or node.has_effects:
        return False
    given = [memory.places[n] for n in node.inputs]
    is_new = all(memory.places[node].isdisjoint(places) for places in given)
    return is_new or bool(node.subgraphs)


# ---- from a function and its arguments to a graph that is ready for a back end ----


Axes = Mapping[int, Collection[int]]
# Makes a graph ready; it gets the calls that transforms inside of the function made.
Finish = Callable[[GraphModule, Collection[Node]], GraphModule]


class CapturedCall(NamedTuple):
    """A graph, and what its guards must look at.

    Attributes
    ----------
    module : GraphModule
    free : mapping
        Number of an input -> axes of symbolic size.
    same : mapping
        Number of an input -> number of the earlier one that is the same array.
    written : list of int
        Numbers of the inputs that it writes.
    has_strides : bool
        Whether the strides of the inputs have decided what is a view, and how what was
        written lies in memory.
    why_fixed : str
        Why sizes are not symbolic that differ between calls.
    numbers : collection of int
        Numbers of the inputs that are Python's ints and floats, and may be others.
    fixed : mapping
        Number of such an input that differs between calls and must be the same -> why.
    has_guesses : bool
        Whether it is for some values only, as its calls check.
    is_unusual : bool
        Whether those are not the usual ones.
    """

    module: GraphModule
    free: Axes
    same: Mapping[int, int]
    written: Sequence[int]
    has_strides: bool
    why_fixed: str
    numbers: Collection[int] = ()
    fixed: Mapping[int, str] = MappingProxyType({})
    has_guesses: bool = False
    is_unusual: bool = False


def captured(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    leaves: Sequence[Any],
    sizes: Mapping[str, Any] | None,
    free: Axes,
    numbers: Collection[int] = (),
    finish: Finish | None = None,
    is_unusual: bool = False,
) -> CapturedCall:
    """Capture a function.

    Parameters
    ----------
    fn : callable
    args, kwargs
        Its arguments.
    leaves : sequence
        Their leaves.
    sizes : mapping or None
        Names for sizes, as for `make_fx`.
    free : mapping
        Number of a leaf -> axes whose lengths differ between calls.
    numbers : collection of int
        Numbers of leaves that are ints or floats, and differ between calls.
    finish : callable, optional
        Makes the graph ready for a back end. It takes the graph, and the calls that
        transforms inside of the function made.
    is_unusual : bool
        Whether facts about values are taken to be what is not usual.
    """
    _refuse_classes(leaves)
    found = _Capturing(fn, args, kwargs, leaves, sizes, free, numbers, is_unusual)
    return found.run(finish or _finished)


def _finished(module: GraphModule, derived: Collection[Node]) -> GraphModule:
    """Return the graph of a function that runs as a whole, ready for a back end."""
    keep_what_warns(module.graph, derived)
    copy_new_constants(module.graph)
    module = with_settings(module)
    edit_in_place(module.graph, *_CLEANING)
    return module


class _Capturing:
    """Captures a function, with fewer symbolic sizes and numbers until that is possible."""

    def __init__(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        leaves: Sequence[Any],
        sizes: Mapping[str, Any] | None,
        free: Axes,
        numbers: Collection[int],
        is_unusual: bool,
    ) -> None:
        self._given: Any = (fn, args, kwargs)
        self._leaves: Sequence[Any] = leaves
        self._sizes: Mapping[str, Any] | None = sizes
        self._free: Axes = free
        self._same: Mapping[int, int] = {}
        self._why_fixed: str = ""
        self._numbers: Collection[int] = numbers
        self._is_unusual: bool = is_unusual
        self._fixed: dict[int, str] = {}

    def run(self, finish: Finish) -> CapturedCall:
        """Capture it."""
        found = None
        while found is None:
            found = self._try()
        module, has_writes, derived, has_guesses = found
        _refuse_iterators(module)
        written = _written(module.graph)
        module = finish(module, derived)
        same, free = self._same, self._free
        why, numbers, fixed = self._why_fixed, self._numbers, self._fixed
        guesses = has_guesses, self._is_unusual
        return CapturedCall(
            module, free, same, written, has_writes, why, numbers, fixed, *guesses
        )

    def _try(self) -> tuple[GraphModule, bool, set[Node], bool] | None:
        """Capture once; None if fewer sizes are symbolic from now on, to try again."""
        reads: dict[int, str] = {}
        try:
            module, has_writes, derived, has_guesses = self._capture(reads)
        except Exception as error:  # noqa: BLE001  # any of the function
            if not reads:
                self._leave_out(error)
            module, has_writes, derived, has_guesses = None, False, set(), False
        if reads:
            for i, why in reads.items():
                self._fix([i], f"its value is asked {why}")
        elif module is None:
            pass
        elif self._numbers and _has_graphs(module.graph):
            self._fix(self._numbers, "there are graphs of control flow")
        elif has_writes and not all(_is_packed(self._leaves[i]) for i in self._free):
            self._why_fixed, self._free = "strides decide what is a view", {}
        else:
            return module, has_writes, derived, has_guesses
        return None

    def _capture(
        self, reads: dict[int, str]
    ) -> tuple[GraphModule, bool, set[Node], bool]:
        given: Any = {"sizes": self._sizes, "axes": self._free}
        given |= {"numbers": self._numbers, "reads": reads}
        given |= {"is_unusual": self._is_unusual}
        try:
            return capture(*self._given, **given)
        except ArgumentError:
            self._same = _same(self._leaves)
            if not self._same:
                raise
            return capture(*self._given, same=self._same, **given)

    def _leave_out(self, error: Exception) -> None:
        """Leave out what may have been the reason of an error; else raise it."""
        why = str(error).partition("\n")[0]
        if self._numbers:
            self._fix(self._numbers, f"else capturing says: {why}")
        elif self._free and isinstance(error, CustomOpError):
            self._why_fixed, self._free = why, {}
        else:
            raise error

    def _fix(self, numbers: Collection[int], why: str) -> None:
        self._fixed |= dict.fromkeys(numbers, why)
        self._numbers = [i for i in self._numbers if i not in self._fixed]


def _has_graphs(graph: Graph) -> bool:
    """Return whether there are graphs inside, which take arrays alone."""
    return any(node.op == CALL and node.subgraphs for node in graph.nodes)


def _refuse_classes(leaves: Sequence[Any]) -> None:
    """Raise for arrays whose results a graph cannot foresee."""
    for leaf in leaves:
        cls = type(leaf)
        if has_own_rules(cls):
            raise GraphError(
                f"compile: an argument is a {cls.__name__}, whose own arithmetic would"
                " be lost",
                do="pass plain arrays, such as np.asarray(x)",
            )
        if isinstance(leaf, np.ndarray) and leaf.dtype.hasobject:
            raise GraphError(
                "compile: an argument is an array of Python objects, of which NumPy"
                " makes results of any class",
                do="pass an array of numbers",
            )


def _refuse_iterators(module: GraphModule) -> None:
    """Raise if a result is an iterator, which one call would use up for all."""
    for value in module.graph.output_node.args[0]:
        if isinstance(value, Iterator | Coroutine):
            raise GraphError(
                f"compile: a result is a {type(value).__name__}, which runs after the call",
                do="return a list of its values",
            )


def _is_packed(leaf: Any) -> bool:
    """Return whether an array lies in memory as symbolic sizes say."""
    return isinstance(leaf, np.ndarray) and leaf.flags.c_contiguous


def _same(leaves: Sequence[Any]) -> dict[int, int]:
    """Return for each leaf that is an earlier one the number of that."""
    first: dict[int, int] = {}
    found: dict[int, int] = {}
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, np.ndarray) and first.setdefault(id(leaf), i) != i:
            found[i] = first[id(leaf)]
    return found


def _written(graph: Graph) -> list[int]:
    """Return the numbers of the inputs that a graph writes."""
    if not may_write(graph):
        return []
    inputs = [node for node in graph.nodes if node.op == PLACEHOLDER]
    found: set[Node] = set()
    for node, places in Memory(graph).writes.items():
        if node.target is assign:
            found.add(node.args[0])
        elif OUTSIDE in places:
            found.update(inputs)
    return [i for i, node in enumerate(inputs) if node in found]


# To merge equal nodes leaves no dead code: they use the same values.
_CLEANING = (Graph.eliminate_dead_code, merge_equal_nodes)


def cleaned(module: GraphModule) -> GraphModule:
    """Return a copy without dead code and equal calls, under the function's own settings."""
    return edited(with_settings(module), *_CLEANING)
