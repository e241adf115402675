"""`functionalize`: remove writes from a graph, except writes to inputs at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from customop.arrays.kinds import is_array
from customop.arrays.nested import (
    children,
    flat,
    map_nested,
    map_outline,
    outline,
    part_of,
    steps,
)
from customop.core.operator import Operator
from customop.core.tracer import connect_results, views_another
from customop.errors import CustomOpError, GraphError
from customop.graph.graph import Graph, Memory
from customop.graph.module import GraphModule
from customop.graph.node import CALL, CONSTANT, ITEM, OUTPUT, PLACEHOLDER, Node
from customop.graph.passes import GraphT, functional_form, graph_of, with_graph
from customop.graph.subgraphs import inline_graphs
from customop.graph.walk import where_traced
from customop.library.ops import ops
from customop.schema.tags import Tag
from customop.transforms.trace.graph_tracer import GraphTracer, assign
from customop.transforms.trace.recorder import Trace
from customop.transforms.trace.rewrite import are_alike


def functionalize(graph: GraphT) -> GraphT:
    """Replace operators that write by operators that return new arrays.

    In-place operators such as ``mylib::scale_``, and ``mylib::scale.out``, become
    ``mylib::scale`` if it exists with the same parameters. Any other operator that
    writes becomes a call of a graph that writes to copies. The last nodes of the graph
    copy the new values into inputs and constants. Inputs must not share memory with
    each other.

    Parameters
    ----------
    graph : GraphModule or Graph
        It is not changed. Graphs that it calls are inlined.

    Returns
    -------
    GraphModule or Graph
        A new graph.

    Raises
    ------
    GraphError
        If a graph of control flow writes to its arguments.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> def bump(x: np.ndarray) -> None:
    ...     x += 1.0
    >>> op = co.custom_op("doc::bump", bump, mutates_args=("x",))
    >>> def f(x):
    ...     y = x * 2.0
    ...     op(y[0])
    ...     return y
    >>> module = co.functionalize(co.make_fx(f)(np.ones((2, 2))))
    >>> [node.name for node in module.graph.nodes]
    ['x', 'multiply', 'slice', 'bump', 'output']
    >>> any(node.has_effects for node in module.graph.nodes if node.op == "call")
    False
    """
    graph_of(graph, "functionalize")
    opened = inline_graphs(graph)
    return with_graph(graph, _Functional(graph_of(opened)).run())


class _Functional:
    """Builds the new graph. Each value is a box, and a write gives it a new node."""

    def __init__(self, graph: Graph) -> None:
        self._old = graph
        self._new = Graph()
        self._new.sizes = graph.sizes
        self._trace = Trace("fake", self._new)
        self._trace.kept = lambda op: True
        self._memory = Memory(graph)
        # Old node -> its value: a tracer, nested tracers, a node, or a number.
        self._values: dict[Node, Any] = {}
        # Old call with several results -> the new node.
        self._calls: dict[Node, Node] = {}
        # Tracers of inputs and constants, with their first nodes.
        self._roots: list[tuple[GraphTracer, Node]] = []
        self._constants: dict[int, Any] = {}

    def run(self) -> Graph:
        """Return the new graph."""
        # The trace is not opened as a mode: it only handles views that are taken again.
        for node in self._old.nodes:
            self._add(node)
        self._trace.end()
        if self._old.sizes is None:
            self._new.sizes = None
        return self._new

    def _add(self, node: Node) -> None:
        if node.op == ITEM:
            self._add_item(node)
        elif node.op == OUTPUT:
            self._add_output(node)
        elif node.op != CALL:
            self._add_root(node)
        elif node not in self._memory.writes:
            self._add_call(node)
        elif node.subgraphs:
            raise GraphError(
                f"functionalize: the graph in '{node.name}' writes its arguments",
                *where_traced(node),
                do="write to copies in the function: x = x.copy()",
            )
        else:
            self._add_write(node)

    def _box(self, val: Any, node: Node) -> GraphTracer:
        return GraphTracer(self._trace, val, node)

    def _current(self, node: Node) -> Any:
        """Return the new node that now has the value of an old node."""
        value = self._values[node]
        return value.node if isinstance(value, GraphTracer) else value

    # ---- nodes that do not write ----

    def _add_root(self, node: Node) -> None:
        """Add an input or a constant. Two constants that are one object share a box."""
        key = id(self._old.constants[node.target]) if node.op == CONSTANT else None
        if key in self._constants:
            self._values[node] = self._constants[key]
            return
        new = self._new.copy_node(node, self._current)
        val = node.meta.get("val")
        value: Any = new
        if is_array(val):
            value = self._box(val, new)
            self._roots.append((value, new))
        self._values[node] = value
        if key is not None:
            self._constants[key] = value

    def _add_call(self, node: Node) -> None:
        new = self._new.copy_node(node, self._current)
        val = node.meta.get("val")
        if not is_array(val) and children(val) is None:
            self._values[node] = new
            return
        if not is_array(val):
            self._calls[node] = new
        found = map_outline(val, lambda v: self._box(v, new) if is_array(v) else v)
        if not isinstance(node.target, GraphModule) and node.target.view_slot >= 0:
            given = self._arguments(node)
            connect_results(node.target, given, given, found)
        self._values[node] = found

    def _add_item(self, node: Node) -> None:
        parent, index = node.args
        found = part_of(self._values[parent], index)
        if parent in self._calls:
            val = node.meta.get("val")
            new = self._new.item(self._calls[parent], index, node.name)
            new.meta = node.meta
            for box in flat(found):
                if isinstance(box, GraphTracer) and not box.box_is_stale:
                    box.node = new if box.node is self._calls[parent] else box.node
            if not is_array(val):
                self._calls[node] = new
        self._values[node] = found

    def _arguments(self, node: Node) -> list[Any]:
        """Return the values of all parameters, with boxes instead of nodes."""
        return [map_nested(v, self._value) for v in node.values()]

    def _value(self, leaf: Any) -> Any:
        return self._values[leaf] if isinstance(leaf, Node) else leaf

    def _add_output(self, node: Node) -> None:
        began = {id(box): new for box, new in self._roots}
        leaves = [
            began.get(id(self._value(leaf))) or self._current_leaf(leaf)
            for leaf in node.args[0]
        ]
        for box, new in self._roots:
            if box.node is not new:
                self._new.call(assign, (new, box.node)).note(None, None)
        self._new.output(leaves)

    def _current_leaf(self, leaf: Any) -> Any:
        return self._current(leaf) if isinstance(leaf, Node) else leaf

    # ---- nodes that write ----

    def _add_write(self, node: Node) -> None:
        given = self._arguments(node)
        if not self._by_form(node, given):
            self._by_copies(node, given)

    def _written(self, node: Node, given: Sequence[Any]) -> list[GraphTracer]:
        pairs = zip(node.target.schema.parameters, given, strict=True)
        boxes = [leaf for p, v in pairs if p.is_written for leaf in flat(v)]
        return [box for box in boxes if isinstance(box, GraphTracer)]

    def _by_form(self, node: Node, given: Sequence[Any]) -> bool:
        """Call the functional form of an operator; return False if it has none."""
        op, boxes = node.target, self._written(node, given)
        if op is assign:
            box, value = given
            if not are_alike(box.below, value.below) or views_another(box):
                return False
            box.box_write(self._box(box.below, value.node))
            return True
        form = functional_form(op)
        if form is None or any(map(views_another, boxes)):
            return False
        pairs = [*zip(op.schema.parameters, given, strict=True)]
        if Tag.out in op.tags:
            pairs = [(p, v) for p, v in pairs if not p.is_written]
        values = [value for _, value in pairs]
        if not self._fits(form, values, [box.below for box in boxes]):
            return False
        positional, named = form.schema.split(
            [map_outline(v, _node_of) for v in values]
        )
        new = self._new.call(form, positional, named, name=op.name.removesuffix("_"))
        new.meta = _facts(node, _one_or_all([box.below for box in boxes]))
        self._put(node, new, boxes, None)
        self._values[node] = tuple(boxes) if op.schema.is_tuple else boxes[0]
        return True

    def _fits(
        self, form: Operator[..., Any], values: list[Any], expected: list[Any]
    ) -> bool:
        """Return whether an operator returns arrays of the expected types."""
        below = [map_nested(v, self._trace.lower) for v in values]
        try:
            found = self._trace.run_fake(form, below)
        except CustomOpError:
            return False  # it has no fake kernel, or refuses these types
        return are_alike(flat(found), expected)

    def _by_copies(self, node: Node, given: Sequence[Any]) -> None:
        """Call a graph that writes to copies of whole arrays, and takes views of these."""
        part = _CopyingPart(self._new.sizes)
        inside = [map_outline(v, part.inside) for v in given]
        boxes = self._written(node, given)
        roots = [part.root_of(box) for box in boxes]
        written = [*{id(root): root for root in roots}.values()]
        results = part.call(node, inside)
        for root in written:
            part.copy_root(root)
        fresh = [v for v in flat(results) if isinstance(v, Node)]
        part.graph.output([*map(part.node_of, written), *fresh])
        module = GraphModule(
            part.graph, name=node.target.name, place=node.meta.get("place", "")
        )
        args = [box.node for box in part.given]
        new = self._new.call(module, args, name=node.name)
        vals = [box.below for box in written] + [v.meta.get("val") for v in fresh]
        new.meta = _facts(node, _one_or_all(vals))
        self._put(node, new, written, results)
        for p, value in zip(node.target.schema.parameters, given, strict=True):
            if p.is_written and p.alias is not None:
                self._return_written(node, p.alias.name, value)

    def _put(
        self, node: Node, new: Node, written: Sequence[GraphTracer], results: Any
    ) -> None:
        """Give written boxes their new values, and record the results of a node."""
        fresh = [v for v in flat(results) if isinstance(v, Node)]
        vals = [box.below for box in written] + [v.meta.get("val") for v in fresh]
        count = len(vals)
        parts = [new] if count == 1 else [self._new.item(new, i) for i in range(count)]
        if count > 1:
            for part, val in zip(parts, vals, strict=True):
                part.meta = _facts(node, val)
        made = [self._box(v, part) for v, part in zip(vals, parts, strict=True)]
        for box, value in zip(written, made, strict=False):
            box.box_write(value)
        left = iter(made[len(written) :])
        self._values[node] = map_outline(
            results, lambda v: next(left) if isinstance(v, Node) else v
        )

    def _return_written(self, node: Node, alias: str, value: Any) -> None:
        """Make each result that is a written argument the box of that argument."""
        schema = node.target.schema
        for i, r in enumerate(schema.returns):
            if r.alias is not None and r.alias.name == alias:
                if schema.is_tuple:
                    found = list(self._values[node])
                    found[i] = value
                    self._values[node] = tuple(found)
                else:
                    self._values[node] = value


def _node_of(value: Any) -> Any:
    return value.node if isinstance(value, GraphTracer) else value


def _facts(node: Node, val: Any) -> dict[str, Any]:
    """Return the `meta` of a node, with another value."""
    checked = ("must_be", "must_lie")
    found = {key: fact for key, fact in node.meta.items() if key not in checked}
    return {**found, "val": val}


def _one_or_all(vals: Sequence[Any]) -> Any:
    return vals[0] if len(vals) == 1 else tuple(vals)


class _CopyingPart:
    """A graph around a call that writes.

    The graph copies whole arrays, and takes the views of them again.

    Attributes
    ----------
    graph : Graph
    given : list
        The boxes and nodes of the outer graph that are its inputs.
    """

    def __init__(self, sizes: Any) -> None:
        self.graph: Graph = Graph()
        self.graph.sizes = sizes
        self.given: list[Any] = []
        # Identity of a box -> the node inside. The outer graph keeps the boxes alive.
        self._inputs: dict[int, Node] = {}
        self._views: dict[int, Node] = {}

    def root_of(self, box: GraphTracer) -> GraphTracer:
        """Return the box that a box is a view of, or the box itself."""
        while views_another(box):
            op, args, _ = box.box_place
            box = args[op.view_slot]
        return box

    def inside(self, value: Any) -> Any:
        """Return the inner node for an outer box or constant; other values stay."""
        if isinstance(value, Node):  # a generator, or another constant object
            return self.graph.copy_node(value, self.inside)
        if not isinstance(value, GraphTracer):
            return value
        if not views_another(value):
            return self._input(value)
        if id(value) not in self._views:
            self._views[id(value)] = self._view(value)
        return self._views[id(value)]

    def _input(self, box: GraphTracer) -> Node:
        if id(box) not in self._inputs:
            first = next((n for n in self.graph.nodes if n.op != PLACEHOLDER), None)
            with self.graph.inserting_before(first or self.graph.root):
                node = self.graph.placeholder(box.node.name, box.below)
            self.given.append(box)
            self._inputs[id(box)] = node
        return self._inputs[id(box)]

    def node_of(self, box: GraphTracer) -> Node:
        """Return the inner node that has the value of a box after the call."""
        return self._inputs[id(box)]

    def _view(self, box: GraphTracer) -> Node:
        op, args, number = box.box_place
        positional, named = op.schema.split([map_outline(v, self.inside) for v in args])
        node = self.graph.call(op, positional, named)
        if op.schema.is_tuple or not op.schema.single_return:
            node = self.graph.item(node, number)
        node.note(box.below, None)
        return node

    def copy_root(self, root: GraphTracer) -> None:
        """Make the inner nodes use a copy of an input."""
        node = self._inputs[id(root)]
        last = [n for n in self.graph.nodes if n.op == PLACEHOLDER][-1]
        with self.graph.inserting_after(last):
            new = self.graph.call(ops.np.copy.default, (node,))
        new.note(root.below, None)
        node.replace_all_uses_with(new, unless=lambda user: user is new)
        self._inputs[id(root)] = new

    def call(self, node: Node, inside: Sequence[Any]) -> Any:
        """Call the operator inside; return its results, with None for written arguments."""
        schema = node.target.schema
        positional, named = schema.split(inside)
        new = self.graph.call(node.target, positional, named)
        new.meta = node.meta
        val = node.meta.get("val")
        vals: Sequence[Any] = val if schema.is_tuple else [val]  # type: ignore[assignment]  # a tuple
        found = [
            None
            if r.alias is not None
            else self._parts(self.graph.item(new, i) if schema.is_tuple else new, v)
            for i, (r, v) in enumerate(zip(schema.returns, vals, strict=False))
        ]
        return tuple(found) if schema.is_tuple else found[0] if found else None

    def _parts(self, node: Node, val: Any) -> Any:
        """Return a result as nested nodes; return numbers unchanged."""
        node.meta["val"] = val
        inside = children(val)
        if inside is None:
            return node if is_array(val) else val
        names: Sequence[Any] = steps(val)
        pairs = zip(names, inside, strict=True)
        parts = [self._parts(self.graph.item(node, i), v) for i, v in pairs]
        return outline(val, parts)
