"""Rewrite graphs by functions: `decompose` and `replace_pattern`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from customop.arrays.fake import FakeArray, to_fake
from customop.arrays.kinds import is_array
from customop.arrays.nested import flatten, map_outline, part_of
from customop.errors import ArgumentError, CustomOpError, GraphError, check_function
from customop.graph.graph import Graph, Memory
from customop.graph.node import CALL, ITEM, PLACEHOLDER, Node
from customop.graph.passes import GraphT, Order, edited, frozen_key
from customop.graph.subgraphs import Match, escapes, match_at
from customop.graph.text import type_text
from customop.library.ops import ops
from customop.shapes.sizes import same_shape
from customop.transforms.trace.graph_tracer import GraphTracer, Table, as_table, assign
from customop.transforms.trace.recorder import Trace

# ---- Emitter: add the operators that a function calls to a graph ----


class Emitter:
    """Runs functions on nodes of a graph, and adds the operators that they call.

    Parameters
    ----------
    graph : Graph
        The graph that gets the new nodes.

    Attributes
    ----------
    trace : Trace
        A context manager that must be open around calls.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph: Graph = graph
        self.trace: Trace = Trace("fake", graph)

    def call(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        before: Node,
    ) -> Any:
        """Call a function with the values of nodes.

        Parameters
        ----------
        fn : callable
        args, kwargs
            The arguments, with nodes instead of arrays.
        before : Node
            New nodes are inserted before this node, and get its place in the user's
            code.

        Returns
        -------
        object
            The result of the function, with nodes instead of arrays.
        """
        known: dict[Node, Any] = {}

        def traced(value: Any) -> Any:
            if not isinstance(value, Node):
                return value
            if value not in known:
                known[value] = self.traced(value)
            return known[value]

        start = before.previous
        with self.graph.inserting_before(before):
            out = fn(
                *map_outline(list(args), traced),
                **{name: map_outline(value, traced) for name, value in kwargs.items()},
            )
            # If an argument is returned, the result is its node, which is written to
            # below.
            own = {id(tracer): node for node, tracer in known.items()}
            found = map_outline(out, lambda v: own.get(id(v)) or self.node_of(v))
            for node, tracer in known.items():
                if isinstance(tracer, GraphTracer) and tracer.node is not node:
                    self.graph.call(assign, (node, tracer.node)).note(None, None)
        place = before.meta.get("place")
        for node in between(start, before):
            if place is not None:
                node.meta["place"] = place
        return found

    def traced(self, node: Node) -> Any:
        """Return the value of a node for a function: a tracer for an array."""
        val = node.meta.get("val")
        return GraphTracer(self.trace, val, node) if is_array(val) else val

    def node_of(self, value: Any) -> Any:
        """Return the node of a traced value or an array; return other values unchanged."""
        return self.trace.node_and_value(value)[0]


def vals_of(value: Any) -> Any:
    """Replace nested nodes by their ``meta["val"]``; return other values unchanged."""
    if isinstance(value, Node):
        return value.meta.get("val")
    if isinstance(value, list | tuple):
        return type(value)(map(vals_of, value))
    return value


def are_alike(first: Any, second: Any) -> bool:
    """Return whether nested values certainly have the same shapes and dtypes."""
    if is_array(first) and is_array(second):
        same_type = bool(first.dtype == second.dtype)
        return same_type and same_shape(tuple(first.shape), tuple(second.shape))
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        pairs = zip(first, second, strict=False)
        return len(first) == len(second) and all(are_alike(a, b) for a, b in pairs)
    return type(first) is type(second)


def between(start: Node, end: Node) -> Iterator[Node]:
    """Yield the nodes after `start` and before `end`."""
    node = start.next
    while node is not end:
        yield node
        node = node.next


def replace_results(node: Node, found: Any) -> None:
    """Replace a node and its items by other nodes in all their users, and erase it."""
    if isinstance(found, Node):
        node.replace_all_uses_with(found)
    else:
        for user in [*node.users]:
            if user.op == ITEM and user.args[0] is node:
                replace_results(user, part_of(found, user.args[1]))
            else:
                user.map_inputs(lambda used: found if used is node else used)
    node.graph.erase_node(node)


# ---- decompose ----


def decompose(graph: GraphT, table: Table) -> GraphT:
    """Replace calls of operators by functions that call other operators.

    Parameters
    ----------
    graph : GraphModule or Graph
        It is not changed.
    table : mapping, or iterable of Operator or str
        Maps operators, or their names, to functions of their parameters. For a list of
        operators, their own bodies are used. Calls that a function makes are replaced
        as well, except calls of the operator that it replaces.

    Returns
    -------
    GraphModule or Graph
        A new graph.

    Raises
    ------
    ArgumentError
        If the table has something other than operators and functions.
    GraphError
        If a function returns arrays of another shape or dtype than the operator.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> module = co.make_fx(lambda x: np.tanh(x) + 1.0)(np.ones(3))
    >>> def tanh(x):
    ...     e = np.exp(2.0 * x)
    ...     return (e - 1.0) / (e + 1.0)
    >>> opened = co.decompose(module, {"np::tanh": tanh})
    >>> [node.name for node in opened.graph.nodes][1:-1]
    ['multiply', 'exp', 'subtract', 'add_1', 'divide', 'add']
    """
    found = as_table(table, "decompose")

    def open_calls(inner: Graph) -> None:
        emitter = Emitter(inner)
        emitter.trace.opened = found
        with emitter.trace:
            for node in inner.nodes:
                if node.op == CALL and node.target in found:
                    _open(emitter, node)

    return edited(graph, open_calls)


def _open(emitter: Emitter, node: Node) -> None:
    results = emitter.call(node.target, node.args, node.kwargs, node)
    given, expected = vals_of(results), vals_of(node)
    if not are_alike(given, expected):
        raise GraphError(
            f"decompose: the function for {node.target.qualname} gives"
            f" {type_text(given)}, the operator gives {type_text(expected)}",
            *([f"traced at {node.meta['place']}"] if node.meta.get("place") else []),
            do="return arrays of the same shapes and dtypes",
        )
    replace_results(node, results)


# ---- replace_pattern ----


def replace_pattern(
    graph: GraphT,
    pattern: Callable[..., Any],
    replacement: Callable[..., Any],
    examples: Sequence[Any] | None = None,
) -> GraphT:
    """Replace each place in a graph that computes one function by another function.

    Both functions are traced. The arguments of `pattern` are wildcards: they match any
    array or number. Operators and constants must be the same. A place is not replaced
    if another node uses a value inside it, or if it overlaps with an earlier
    replacement.

    Parameters
    ----------
    graph : GraphModule or Graph
        It is not changed.
    pattern : callable
        Takes arrays; returns an array or a pytree of them. It is traced for the shapes
        and dtypes of each place where it might match.
    replacement : callable
        Takes the same arguments; returns arrays of the same shapes and dtypes.
    examples : sequence of array, optional
        Arguments for which `pattern` calls the operators to find; 3 x 3 matrices by
        default.

    Returns
    -------
    GraphModule or Graph
        A new graph.

    Raises
    ------
    ArgumentError
        If `pattern` cannot be traced with `examples`, or calls no operator.
    GraphError
        If `replacement` returns other shapes or dtypes than `pattern`.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> module = co.make_fx(lambda x: np.log(np.exp(x * 2.0) + 1.0))(np.ones(3))
    >>> def log1p(x):
    ...     return np.log(x + 1.0)
    >>> better = co.replace_pattern(module, log1p, np.log1p)
    >>> [node.name for node in better.graph.nodes]
    ['x', 'multiply', 'exp', 'log1p', 'output']
    """
    check_function("replace_pattern", pattern)
    check_function("replace_pattern", replacement)
    found = _Wanted(pattern, examples)
    return edited(graph, lambda inner: _Replacing(inner, found, replacement).run())


class _Traced:
    """A function traced as a graph without an output node.

    Attributes
    ----------
    inputs : list of Node
    outputs : list
        The leaves of the result: nodes and other values.
    """

    def __init__(self, fn: Callable[..., Any], vals: Sequence[Any], sizes: Any) -> None:
        graph = Graph()
        graph.sizes = sizes
        given: list[Any] = []
        for i, val in enumerate(vals):
            node = graph.placeholder(f"x{i}", val)
            given.append(node if is_array(val) else val)
        self.inputs: list[Any] = [
            node for node in graph.nodes if node.op == PLACEHOLDER
        ]
        emitter = Emitter(graph)
        with emitter.trace:
            out = emitter.call(fn, given, {}, graph.root)
        self.outputs: list[Any] = flatten(out)[0]
        self.graph: Graph = graph


class _Wanted:
    """A pattern, traced for each combination of argument types that is needed."""

    def __init__(self, fn: Callable[..., Any], examples: Sequence[Any] | None) -> None:
        self._fn = fn
        count = _required(fn) if examples is None else 0
        given = [FakeArray((3, 3))] * count if examples is None else examples
        self.count: int = len(given)
        try:
            traced = _Traced(fn, [to_fake(value) for value in given], None)
        except (CustomOpError, ValueError, TypeError, IndexError) as error:
            if examples is not None:
                raise
            raise ArgumentError(
                f"replace_pattern: the pattern fails for matrices of 3 x 3: {error}",
                do="pass examples of its arguments: replace_pattern(graph, pattern,"
                " replacement, examples=[...])",
            ) from error
        self.general: _Traced = traced
        if not any(_is_computed(node) for node in traced.outputs[:1]):
            raise ArgumentError(
                "replace_pattern: the pattern calls no operator for its first result",
                do="write a function that computes what is to be replaced",
            )
        self._known: dict[Any, _Traced | None] = {}

    def for_values(self, vals: Sequence[Any], sizes: Any) -> _Traced | None:
        """Return the pattern traced for arguments of these types; None if it fails."""
        key = tuple([_type_key(val) for val in vals])
        if key not in self._known:
            try:
                self._known[key] = _Traced(self._fn, vals, sizes)
            except (CustomOpError, ValueError, TypeError, IndexError):
                self._known[key] = None  # it does not work for such arguments
        return self._known[key]


def _required(fn: Callable[..., Any]) -> int:
    """Return the number of positional parameters without a default."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(fn).parameters.values()
    return sum(p.kind in kinds and p.default is p.empty for p in parameters)


def _is_computed(value: Any) -> bool:
    return isinstance(value, Node) and value.op in (CALL, ITEM)


def _type_key(val: Any) -> Any:
    if is_array(val):
        return (type_text(val), str(val.strides), str(val.device))
    return frozen_key(val)


class _Replacing:
    """Finds all places that match, and then replaces them."""

    def __init__(
        self, graph: Graph, pattern: _Wanted, replacement: Callable[..., Any]
    ) -> None:
        self._graph = graph
        self._pattern = pattern
        self._replacement = replacement
        self._order = Order(graph)
        self._memory = Memory(graph)
        self._position = {node: i for i, node in enumerate(graph.nodes)}
        self._used: set[Node] = set()
        # Replaced node -> its replacement.
        self._instead: dict[Node, Any] = {}

    def run(self) -> None:
        """Replace all places that match."""
        found = [match for node in self._graph.nodes for match in self._at(node)]
        emitter = Emitter(self._graph)
        with emitter.trace:
            for traced, match in found:
                self._replace(emitter, traced, match)

    def _at(self, node: Node) -> list[tuple[_Traced, Match]]:
        """Return a list with the first match whose first output is this node, if any."""
        general = self._pattern.general
        for rough in match_at(general.outputs, node, is_exact=False):
            if any(wanted not in rough for wanted in general.inputs):
                continue
            vals = [vals_of(rough[wanted]) for wanted in general.inputs]
            traced = self._pattern.for_values(vals, self._graph.sizes)
            if traced is None or not all(map(_is_computed, traced.outputs)):
                continue
            for match in match_at(traced.outputs, node):
                if self._fits(traced, match):
                    self._used |= self._inside(match)
                    return [(traced, match)]
        return []

    def _inside(self, match: Match) -> set[Node]:
        return {node for wanted, node in match.items() if _is_computed(wanted)}

    def _fits(self, traced: _Traced, match: Match) -> bool:
        """Return whether a match fits the types of the traced pattern and can be replaced."""
        for wanted in traced.inputs:
            val = vals_of(wanted)
            if not is_array(val):
                match[wanted] = val  # a number, which is a constant of the pattern
            elif wanted not in match or _type_key(vals_of(match[wanted])) != _type_key(
                val
            ):
                return False
        if not self._used.isdisjoint(self._inside(match)):
            return False
        return not escapes(match, traced.outputs, self._order, self._position)

    def _replace(self, emitter: Emitter, traced: _Traced, match: Match) -> None:
        inside = self._inside(match)
        last = max(inside, key=self._position.__getitem__)
        args = [self._current(match[wanted]) for wanted in traced.inputs]
        found = emitter.call(self._replacement, args, {}, last)
        leaves = flatten(found)[0]
        self._check(traced, match, leaves)
        for wanted, new in zip(traced.outputs, leaves, strict=True):
            old = match[wanted]
            if self._needs_copy(old, new):
                new = emitter.call(ops.np.copy.default, [new], {}, last)  # noqa: PLW2901
            self._instead[old] = new
        for node in sorted(inside, key=self._position.__getitem__, reverse=True):
            if node in self._instead:
                replace_results(node, self._instead[node])
            else:
                for unused in [*node.users]:
                    self._graph.erase_node(unused)
                self._graph.erase_node(node)

    def _current(self, node: Any) -> Any:
        """Return the current replacement of a node, or the node itself."""
        while isinstance(node, Node) and node in self._instead:
            node = self._instead[node]
        return node

    def _check(self, traced: _Traced, match: Match, leaves: Sequence[Any]) -> None:
        expected = vals_of([match[wanted] for wanted in traced.outputs])
        given = vals_of([*leaves])
        if not are_alike(given, expected):
            node = match[traced.outputs[0]]
            place = node.meta.get("place")
            raise GraphError(
                f"replace_pattern: the replacement gives {type_text(given)[1:-1]}, the"
                f" pattern {type_text(expected)[1:-1]}",
                *([f"at '{node.name}', traced at {place}"] if place else []),
                do="return arrays of the same shapes and dtypes",
            )

    def _needs_copy(self, old: Node, new: Any) -> bool:
        """Return whether the replacement would share memory that the original did not.

        This only matters if the memory is written to or returned.
        """
        if not isinstance(new, Node):
            return False
        places = self._memory.places[old]
        matters = self._memory.written or not places.isdisjoint(self._memory.output)
        return bool(matters) and not _is_fresh(new)


def _is_fresh(node: Node) -> bool:
    """Return whether the value of a new node certainly does not share memory."""
    while node.op == ITEM:
        node = node.args[0]
    if node.op != CALL or node.subgraphs:
        return False
    return all(r.alias is None for r in node.target.schema.returns)
