"""Running a graph node by node, forward or backward, with a function for its calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from customop.arrays.nested import (
    children,
    flatten,
    map_nested,
    map_outline,
    outline,
    part_of,
    steps,
    unflatten,
)
from customop.errors import ArgumentError, GraphError, check_function, counted
from customop.graph.code_parts import SizeValues
from customop.graph.graph import Graph
from customop.graph.guards import guards_of, result_guards
from customop.graph.module import GraphModule
from customop.graph.node import (
    CALL,
    CONSTANT,
    ITEM,
    OUTPUT,
    PLACEHOLDER,
    Node,
    nodes_in,
)
from customop.shapes.sizes import Symbolic

# ---- walk ----
# Running a graph node by node, forward or backward, with a function for its calls.


Call = Callable[[Node, Sequence[Any]], Any]
Undo = Callable[[Node, Any, Sequence[Any]], Any]


def walk_graph(module: GraphModule, call: Call, /, *args: Any, **kwargs: Any) -> Any:
    """Run a graph, with a function that gives the result of each call.

    It is how transforms of whole programs are written: the function looks up rules of the
    operator, or counts, prints or changes what goes through. Guards are not checked.

    Parameters
    ----------
    module : GraphModule
    call : callable
        ``call(node, values)``, with the values of all parameters of ``node.target`` in the
        order of its schema. ``node.target.run(*values)`` is the call itself.
    *args, **kwargs
        As `module` takes them.

    Returns
    -------
    object
        Nested as the result of `module`.

    Raises
    ------
    ArgumentError
        If the arguments are nested in another way than the traced ones.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> module = co.make_fx(lambda x: np.exp(x * 2.0))(np.ones(3))
    >>> def call(node, values):
    ...     print(node.target.qualname)
    ...     return node.target.run(*values)
    >>> co.walk_graph(module, call, np.zeros(3))
    np::multiply
    np::exp
    array([1., 1., 1.])
    """
    check_function("walk_graph", call)
    known = _inputs(module, args, kwargs)
    for node in module.graph.nodes:
        if node.op == CONSTANT:
            known[node] = module.graph.constants[node.target]
        elif node.op == ITEM:
            known[node] = part_of(known[node.args[0]], node.args[1])
        elif node.op == CALL:
            known[node] = call(node, _filled(node.values(), known))
    return _result(module, _filled(module.graph.output_node.args[0], known))


def walk_graph_back(module: GraphModule, undo: Undo, result: Any, /) -> Any:
    """Go through a graph from its result to its inputs.

    What follows from constants alone is computed on the way.

    Parameters
    ----------
    module : GraphModule
    undo : callable
        ``undo(node, out, values)`` returns the input of a call that gives the result `out`.
        `values` has all arguments of the call, with None for the input that is asked for;
        if several are, a tuple of them is returned.
    result : pytree
        Nested as the result of `module`.

    Returns
    -------
    object
        The only argument, or a tuple of the arguments.

    Raises
    ------
    GraphError
        If a value is needed by two calls, or by none that leads to the result.
    ArgumentError
        If `result` is nested in another way.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> module = co.make_fx(lambda x: (x + 1.0) + 2.0)(np.ones(3))
    >>> co.walk_graph_back(module, lambda node, out, values: out - values[1], np.zeros(3))
    array([-3., -3., -3.])
    """
    check_function("walk_graph_back", undo)
    known = _constants(module)
    walk = _Backward(known)
    output = module.graph.output_node
    for leaf, value in zip(output.args[0], _leaves_of(module, result), strict=True):
        walk.find(leaf, value, output)
    for node in reversed(module.graph.nodes):
        if node.op in (CALL, ITEM) and node not in walk.constant:
            walk.step(node, undo)
    values = [walk.value(node) for node in module.inputs]
    if module.in_spec is None:
        return values[0] if len(values) == 1 else tuple(values)
    args, _ = unflatten(module.in_spec, values)
    return args[0] if len(args) == 1 else args


class _Backward:
    """The known values of a graph on the way back."""

    def __init__(self, known: dict[Node, Any]) -> None:
        self.constant: dict[Node, Any] = known
        self._known = dict(known)

    def find(self, node: Any, value: Any, user: Node) -> None:
        """Note the value of a node, which a user of it needs."""
        if not isinstance(node, Node) or node in self.constant:
            return
        if node in self._known:
            raise GraphError(
                f"'{node.name}' is used more than once: its value does not follow from"
                f" that of '{user.name}'",
                *where_traced(node),
                do="undo such a function by other means",
            )
        self._known[node] = value

    def value(self, node: Node) -> Any:
        """Return the value of a node that is not a constant."""
        if node not in self._known:
            raise GraphError(
                f"'{node.name}' does not lead to the result",
                *where_traced(node),
                do="leave it out: eliminate_dead_code(graph)",
            )
        return self._known[node]

    def step(self, node: Node, undo: Undo) -> None:
        """Find the inputs of a call, or the whole that an item is a part of."""
        if node.op == ITEM:
            if node.users or node in self._known:
                self._add_part(node)
            return
        inputs = nodes_in(node.values())
        asked = [source for source in inputs if source not in self.constant]
        values = _filled(node.values(), self.constant)
        found = undo(node, _whole(self.value(node)), values)
        parts = (found,) if len(asked) == 1 else found
        if len(parts) != len(asked):
            raise GraphError(
                f"undo of '{node.name}' returned {counted(len(parts), 'value')}, it has"
                f" {counted(len(asked), 'input')} to find",
                *where_traced(node),
                do="return one value for each None",
            )
        for source, value in zip(asked, parts, strict=True):
            self.find(source, value, node)

    def _add_part(self, node: Node) -> None:
        parent, index = node.args
        parts = self._known.setdefault(parent, _ItemsFound(parent))
        parts.found[index] = self.value(node)


class _ItemsFound:
    """The results of a call of several, found one by one."""

    def __init__(self, node: Node) -> None:
        self.val: Any = node.val
        self.found: dict[Any, Any] = {}


def _whole(value: Any) -> Any:
    if not isinstance(value, _ItemsFound):
        return value
    names = steps(value.val)
    return outline(value.val, [value.found.get(name) for name in names])


def _filled(values: Any, known: dict[Node, Any]) -> Any:
    """Put the values of nodes into nested values; None for what is not known."""
    return map_outline(values, lambda v: known.get(v) if isinstance(v, Node) else v)


def _constants(module: GraphModule) -> dict[Node, Any]:
    """Return the values of constants, and of what follows from them alone."""
    known: dict[Node, Any] = {}
    for node in module.graph.nodes:
        if node.op == CONSTANT:
            known[node] = module.graph.constants[node.target]
        elif node.op in (PLACEHOLDER, OUTPUT) or any(
            n not in known for n in node.inputs
        ):
            continue
        elif node.op == ITEM:
            known[node] = part_of(known[node.args[0]], node.args[1])
        else:
            known[node] = node.target.run(*_filled(node.values(), known))
    return known


def _inputs(
    module: GraphModule, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[Node, Any]:
    leaves, spec = flatten((args, kwargs))
    inputs = module.inputs
    expected = module.in_spec or flatten(((*range(len(inputs)),), {}))[1]
    if spec != expected:
        raise ArgumentError(
            f"walk_graph: the arguments are nested as {spec}, the graph was traced with"
            f" {expected}",
            do="pass what the traced function took",
        )
    return dict(zip(inputs, leaves, strict=True))


def _result(module: GraphModule, leaves: Sequence[Any]) -> Any:
    if module.out_spec is not None:
        return unflatten(module.out_spec, leaves)
    return leaves[0] if len(leaves) == 1 else [*leaves]


def _leaves_of(module: GraphModule, result: Any) -> Sequence[Any]:
    """Return the leaves of a result, in the order of the output of a graph."""
    count = len(module.graph.output_node.args[0])
    if module.out_spec is None:
        leaves = [result] if count == 1 else children(result)
        if leaves is not None and len(leaves) == count:
            return leaves
        raise ArgumentError(
            f"walk_graph_back: the result must be a list of {count} values",
            do="pass a value for each result of the graph",
        )
    found, spec = flatten(result)
    if spec != module.out_spec:
        raise ArgumentError(
            f"walk_graph_back: the result is nested as {spec}, that of the graph as"
            f" {module.out_spec}",
            do="pass what the graph returns",
        )
    return found


def where_traced(node: Node) -> list[str]:
    """Return where a node was traced, for messages; empty if it is not known."""
    place = node.meta.get("place")
    return [f"traced at {place}"] if place else []


# ---- once ----
# Run a graph node by node, where to compile it would take longer than to run it.


def run_once(module: GraphModule, leaves: Sequence[Any]) -> Any:
    """Run a graph on the leaves of its inputs.

    It does and checks what the generated code of a `GraphModule` does and checks, but
    frees no value before the end. A graph of three nodes is compiled in the time of five
    runs.

    Raises
    ------
    GuardError
        If an input, a size or a result is not as the graph was traced for.
    """
    run = _NodeByNode(module.graph)
    run.take(leaves)
    for node in module.graph.nodes:
        run.step(node)
    out = [run.value(leaf) for leaf in module.graph.output_node.args[0]]
    if module.out_spec is not None:
        return unflatten(module.out_spec, out)
    return out[0] if len(out) == 1 else out


class _NodeByNode:
    """The values of the nodes in one run."""

    def __init__(self, graph: Graph) -> None:
        self.graph: Graph = graph
        self.known: dict[Node, Any] = {}
        sizes = graph.sizes
        self.sizes: SizeValues | None = None if sizes is None else SizeValues(sizes)

    def take(self, leaves: Sequence[Any]) -> None:
        """Take the inputs, and check the guards."""
        inputs = [node for node in self.graph.nodes if node.op == PLACEHOLDER]
        pairs = [*zip(inputs, leaves, strict=True)]
        self.known.update(pairs)
        for guard, leaf in zip(guards_of(inputs, ""), leaves, strict=True):
            guard.check(leaf)
        if self.sizes is not None:
            self.sizes.read_inputs(pairs)

    def step(self, node: Node) -> None:
        """Run a node, unless it is an input or the output."""
        if node.op == CONSTANT:
            self.known[node] = self.graph.constants[node.target]
        elif node.op == CALL:
            values = [self.value(value) for value in node.values()]
            self._check(node, self._called(node, values))
        elif node.op == ITEM:
            parent, index = node.args
            self._check(node, part_of(self.known[parent], index))

    def _called(self, node: Node, values: Sequence[Any]) -> Any:
        try:
            return node.target.run(*values)
        except Exception as error:
            place = node.meta.get("place", "an unknown place")
            error.add_note(f"in the node '{node.name}', traced at {place}")
            raise

    def _check(self, node: Node, found: Any) -> None:
        """Keep a result, which must be as it was traced."""
        for guard in result_guards(node).values():
            guard.check(found)
        if self.sizes is not None:
            self.sizes.read_result(node, found)
        self.known[node] = found

    def value(self, value: Any) -> Any:
        """Return an argument with values for its nodes and numbers for its sizes."""
        return map_nested(value, self._leaf)

    def _leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, Node):
            return self.known[leaf]
        if isinstance(leaf, Symbolic) and self.sizes is not None:
            return self.sizes.of(leaf)
        return leaf
