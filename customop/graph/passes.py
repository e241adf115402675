"""Passes: dead code, equal calls, constant folding, new constants, reuse of buffers."""

from __future__ import annotations

import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, TypeVar

import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import CPU, is_array
from customop.arrays.nested import children, flat, map_nested, part_of, steps
from customop.core.contract import owner
from customop.core.operator import Operator
from customop.core.registry import in_namespace
from customop.core.table import RuleTable
from customop.errors import ArgumentError, counted, shown
from customop.frozen import cached
from customop.graph.graph import OUTSIDE, Graph, Memory, may_write
from customop.graph.guards import result_guards
from customop.graph.module import GraphModule
from customop.graph.node import (
    CALL,
    CONSTANT,
    ITEM,
    Node,
    caller_of,
    has_sizes,
    makes_sizes,
    nodes_in,
    sizes_in,
)
from customop.library.ops import ops
from customop.progress import node_channel
from customop.schema.tags import Tag
from customop.schema.types import Parameter
from customop.shapes.sizes import Symbolic, same_shape

# ---- how a pass is applied: to a copy, which it edits, and to the graphs inside ----


GraphT = TypeVar("GraphT", Graph, GraphModule)


def graph_of(given: Graph | GraphModule, name: str = "a pass") -> Graph:
    """Return the graph that a pass was given, also in a module."""
    if isinstance(given, GraphModule):
        return given.graph
    if isinstance(given, Graph):
        return given
    raise ArgumentError(
        f"{name} takes a GraphModule or a Graph, got {shown(given)}",
        do="capture one: make_fx(f)(*args)",
    )


def with_graph(given: GraphT, graph: Graph) -> GraphT:
    """Return a new graph as what a pass was given, with inputs and outputs as before."""
    found: Any = given.with_graph(graph) if isinstance(given, GraphModule) else graph
    return found  # type: ignore[no-any-return]  # of the class of `given`


Edit = Callable[[Graph], object]


def edited(given: GraphT, *edits: Edit) -> GraphT:
    """Return an edited copy of a graph, in which the graphs inside are edited too.

    Parameters
    ----------
    given : Graph or GraphModule
    *edits : callable
        Each changes the graph that it is given; they run one after the other.

    Returns
    -------
    Graph or GraphModule
    """
    new = graph_of(given).copy()
    edit_in_place(new, *edits)
    return with_graph(given, new)


def edit_in_place(graph: Graph, *edits: Edit) -> None:
    """Edit a graph that nobody else has, and put edited copies of the graphs inside it.

    Parameters
    ----------
    graph : Graph
    *edits : callable
        As for `edited`.
    """
    node_channel.stage(f"simplifying {counted(graph.count, 'node')}")
    for node in graph.nodes:
        if node.subgraphs:
            _edit_inner(node, edits)
    for edit in edits:
        edit(graph)


def _edit_inner(node: Node, edits: Sequence[Edit]) -> None:
    def change(value: Any) -> Any:
        return edited(value, *edits) if isinstance(value, GraphModule) else value

    node.target = change(node.target)
    named = {name: map_nested(value, change) for name, value in node.kwargs.items()}
    args = tuple([map_nested(value, change) for value in node.args])
    node.set_inputs(args, named)


# ---- which nodes of a graph must run before which others ----


class Order:
    """The calls that must run before each call of a graph.

    Attributes
    ----------
    before : dict
        Call -> the calls that must run before it: those whose results it takes, those
        that write what it reads or read what it writes, and of calls with effects all
        earlier ones.
    """

    def __init__(self, graph: Graph) -> None:
        self.before: dict[Node, dict[Node, None]] = {}
        self._memory = Memory(graph)
        self._writer: dict[int, Node] = {}
        self._readers: dict[int, list[Node]] = defaultdict(list)
        self._makers: dict[str, Node] = {}
        self._effect: Node | None = None
        for node in graph.nodes:
            if node.op == CALL:
                self.before[node] = dict.fromkeys(self._needed(node))
                for name in makes_sizes(node):
                    self._makers.setdefault(name, node)

    def _needed(self, node: Node) -> list[Node]:
        found = [caller_of(source) for source in node.inputs]
        found = [source for source in found if source.op == CALL]
        names = sizes_in((*node.args, *node.kwargs.values()))
        found += [self._makers[name] for name in names if name in self._makers]
        written = self._memory.writes.get(node, frozenset())
        read = self._memory.of((*node.args, *node.kwargs.values())) | written
        found += [self._writer[place] for place in read if place in self._writer]
        for place in written:
            found += self._readers.pop(place, ())
            self._writer[place] = node
        for place in read:
            self._readers[place].append(node)
        if node.has_effects:
            if self._effect is not None:
                found.append(self._effect)
            self._effect = node
        return [source for source in found if source is not node]


def sort_groups(order: Order, group_of: dict[Node, Any]) -> tuple[list[Any], list[Any]]:
    """Return groups in an order in which they can run, and those that need each other.

    Among groups that can run next, the one that begins first in the graph comes first.
    """
    groups = list(dict.fromkeys(group_of.values()))
    number = {group: i for i, group in enumerate(groups)}
    later = _later_groups(order, group_of)
    waits = dict.fromkeys(groups, 0)
    for followers in later.values():
        for group in followers:
            waits[group] += 1
    ready = [number[group] for group in groups if not waits[group]]
    found = []
    while ready:
        group = groups[heappop(ready)]
        found.append(group)
        for follower in later[group]:
            waits[follower] -= 1
            if not waits[follower]:
                heappush(ready, number[follower])
    return found, _between({g for g in groups if waits[g]}, later, groups)


def _between(
    stuck: set[Any], later: dict[Any, set[Any]], groups: list[Any]
) -> list[Any]:
    """Return the blocked groups that other blocked groups wait for."""
    while ends := {group for group in stuck if not later[group] & stuck}:
        stuck -= ends
    return [group for group in groups if group in stuck]


def _later_groups(order: Order, group_of: dict[Node, Any]) -> dict[Any, set[Any]]:
    """Return for each group the groups that need it to have run."""
    found: dict[Any, set[Any]] = {group: set() for group in group_of.values()}
    for node, sources in order.before.items():
        for source in sources:
            if group_of[source] != group_of[node]:
                found[group_of[source]].add(group_of[node])
    return found


# ---- dead code: calls whose results nobody uses ----


def eliminate_dead_code(graph: GraphT) -> GraphT:
    """Leave out calls whose results nobody uses.

    Calls that write an argument, draw random numbers or return nothing stay, and so do
    all inputs.

    Parameters
    ----------
    graph : GraphModule or Graph
        It stays as it is.

    Returns
    -------
    GraphModule or Graph
        A new one.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> def f(x):
    ...     np.cos(x)
    ...     return np.sin(x)
    >>> smaller = co.eliminate_dead_code(co.make_fx(f)(np.ones(3)))
    >>> [node.name for node in smaller.graph.nodes]
    ['x', 'sin', 'output']
    """
    return edited(graph, Graph.eliminate_dead_code)


# ---- common subexpressions: what a graph computes twice is computed once ----


def eliminate_common_subexpressions(graph: GraphT) -> GraphT:
    """Compute equal calls only once.

    Calls are the same if they call one operator with the same arguments, and nothing was
    written in between that they read. Calls that write or draw stay, and so do results
    that are written later, or that are both parts of the output: the caller may write
    one of them.

    Parameters
    ----------
    graph : GraphModule or Graph
        It stays as it is.

    Returns
    -------
    GraphModule or Graph
        A new one.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> module = co.make_fx(lambda x: np.sin(x) * np.cos(np.sin(x)))(np.ones(3))
    >>> smaller = co.eliminate_common_subexpressions(module)
    >>> [node.name for node in smaller.graph.nodes]
    ['x', 'sin', 'cos', 'multiply', 'output']
    """
    return edited(graph, merge_equal_nodes)


def merge_equal_nodes(graph: Graph) -> None:
    """Keep the first node of each computation of a graph, which is changed."""
    merging = _Merging(graph)
    for node in graph.nodes:
        merging.look_at(node)


class _Merging:
    """A walk that keeps the first node of each computation."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._has_writes = may_write(graph)
        # Number of writes so far to each memory, and the first node of each key.
        self._moments: dict[int, int] = {}
        self._first: dict[Hashable, Node] = {}

    @cached
    def _memory(self) -> Memory:
        return Memory(self._graph)

    @cached
    def _escaped(self) -> set[int]:
        return set(self._memory.output)

    def look_at(self, node: Node) -> None:
        """Put an earlier node in the place of this one, if there is one."""
        if self._has_writes:  # places that are not written yet have no part in keys
            for place in self._memory.writes.get(node, ()):
                self._moments[place] = self._moments.get(place, 0) + 1
        if not self._can_merge(node):
            return
        first = self._first.setdefault(self._key(node), node)
        if first is node or not self._may_share(first, node):
            return
        node.replace_all_uses_with(first)
        self._graph.erase_node(node)

    def _can_merge(self, node: Node) -> bool:
        if node.op not in (CALL, ITEM, CONSTANT):
            return False
        return not (node.must_run or node.has_effects or makes_sizes(node))

    def _may_share(self, first: Node, node: Node) -> bool:
        """Return whether users of two nodes may get one array."""
        if node.op == CONSTANT:
            return True  # it is one object already
        places = self._memory.places
        both = places[first] | places[node]
        if both & self._memory.written:
            return False
        if not places[node].isdisjoint(self._escaped):
            if not places[first].isdisjoint(self._escaped):
                return False
            self._escaped.update(places[first])
        return True

    def _key(self, node: Node) -> Hashable:
        if node.op == CONSTANT:
            return ("constant", id(self._graph.constants[node.target]))
        values = node.values() if node.op == CALL else node.args
        key = (node.op, id(node.target), *map(frozen_key, values))
        if not self._moments:
            return key
        read = sorted(self._memory.of((*node.args, *node.kwargs.values())))
        written = [place for place in read if place in self._moments]
        return (*key, *[(place, self._moments[place]) for place in written])


_NUMBERS = (bool, int, str, bytes, type(None))


def frozen_key(value: Any) -> Hashable:
    """Return a key that is equal for arguments of one class with the same bits."""
    cls = type(value)
    if cls in _NUMBERS:
        return (cls, value)
    if isinstance(value, Symbolic):  # a comparison of two would become a guard
        return (cls, str(value), id(value.context))
    if isinstance(value, float | complex | np.generic):
        bits = np.asarray(value)
        return (cls, bits.dtype, bits.tobytes())
    if isinstance(value, Node):
        return (Node, id(value))
    found = children(value)
    if found is not None:
        names = tuple(steps(value))
        return (cls, names, tuple([frozen_key(part) for part in found]))
    return _key_of_object(value)


def _key_of_object(value: Any) -> Hashable:
    """Return an object without arrays: equal ones of a class count as the same."""
    try:
        hash(value)
    except TypeError:
        return (type(value), id(value))
    return (type(value), value)


# ---- constant folding: what does not depend on the inputs is computed once ----


def fold_constants(
    graph: GraphT, *, max_bytes: int = 1 << 20, reads_constants: bool = True
) -> GraphT:
    """Compute now what does not depend on the inputs.

    Calls that write or draw stay. A call also stays if its result is returned, since each
    call of the graph returns new arrays; if something writes it, or a constant that it
    reads; or if it raises or warns. Inputs that are written must not be constants too.

    Parameters
    ----------
    graph : GraphModule or Graph
        It stays as it is.
    max_bytes : int
        A result of more bytes is not kept as a constant.
    reads_constants : bool
        False to compute only what depends on no constant either, as the elements of
        these may be changed between two calls of the graph.

    Returns
    -------
    GraphModule or Graph
        A new one. Nodes that are no longer used are left out.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> table = np.arange(3.0)
    >>> module = co.make_fx(lambda x: x + co.ops.np.sin(table))(np.ones(3))
    >>> folded = co.fold_constants(module)
    >>> [node.op for node in folded.graph.nodes]
    ['placeholder', 'constant', 'call', 'output']
    """
    return edited(graph, lambda inner: Folding(inner, max_bytes, reads_constants).run())


class Folding:
    """Computes what it can, node by node; then puts it in the place of the nodes.

    Parameters
    ----------
    graph : Graph
        It is changed.
    max_bytes, reads_constants
        As for `fold_constants`.
    """

    def __init__(self, graph: Graph, max_bytes: int, reads_constants: bool) -> None:
        self._graph = graph
        self._max_bytes = max_bytes
        self._reads_constants = reads_constants
        # Nodes whose values are known, and those of them that were computed here.
        self._values: dict[Node, Any] = {}
        self._computed: dict[Node, None] = {}

    @cached
    def _memory(self) -> Memory:
        return Memory(self._graph)

    def run(self) -> None:
        """Fold what can be folded, and leave out what nobody uses then."""
        for node in self._graph.nodes:
            self.look_at(node)
        self.finish()
        self._graph.eliminate_dead_code()

    def look_at(self, node: Node) -> None:
        """Compute a node, if all that it needs is known; nodes come in their order."""
        if node.op == CONSTANT:
            if self._reads_constants:
                self._values[node] = self._graph.constants[node.target]
        elif self._can_fold(node):
            self._compute(node)

    def finish(self) -> None:
        """Put the values in the places of the nodes."""
        for node in self._computed:
            if any(user not in self._computed for user in node.users):
                self._put_in_place(node)

    def _can_fold(self, node: Node) -> bool:
        if node.op not in (CALL, ITEM):
            return False
        if any(source not in self._values for source in node.inputs):
            return False
        if not node.is_pure or node.written:
            return False
        if has_sizes((*node.args, *node.kwargs.values())):
            return False
        memory = self._memory
        places = memory.places[node] - {OUTSIDE}
        used = places | (memory.of(node.inputs) - {OUTSIDE})
        return used.isdisjoint(memory.written) and places.isdisjoint(memory.output)

    def _compute(self, node: Node) -> None:
        if not self._is_small(node.meta.get("val")):
            return
        args, kwargs = node.mapped(self._values.__getitem__)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                found = (
                    node.target(*args, **kwargs) if node.op == CALL else part_of(*args)
                )
            except Exception:  # noqa: BLE001  # a kernel may raise anything: at each run
                return
        guards = result_guards(node)
        if self._is_small(found) and all(g.holds(found) for g in guards.values()):
            self._values[node] = found
            self._computed[node] = None
            for fact in guards:
                del node.meta[fact]  # it is so in every call

    def _is_small(self, value: Any) -> bool:
        """Return whether a value, or what is known of it before, has few bytes."""
        if has_sizes([value]):
            return False
        arrays = [leaf for leaf in flat(value) if is_array(leaf)]
        size: int = sum(x.size * x.dtype.itemsize for x in arrays)
        return size <= self._max_bytes

    def _put_in_place(self, node: Node) -> None:
        """Give the users of a node its value: a constant, or the number itself."""
        value = self._values[node]
        node.must_run = False  # it has run
        if not is_array(value):
            if len(flat(value)) == 1 and not isinstance(value, list | tuple | dict):
                for user in [*node.users]:
                    user.map_inputs(lambda used: value if used is node else used)
            return
        with self._graph.inserting_before(node):
            new = self._graph.constant(value, node.name)
        new.meta = node.meta
        node.replace_all_uses_with(new)


# ---- operators that compute the same ----
# Fresh arrays, in place, and into an array given.
#
# They are found by their names, as in ``mylib::scale``, ``mylib::scale_`` with
# `Tag.inplace` and ``mylib::scale.out``, ``mylib::scale_out`` or ``mylib_out::scale``
# with `Tag.out`.


def functional_form(op: RuleTable) -> Operator[..., object] | None:
    """Return the operator that gives new arrays where another one writes, or None."""
    if Tag.inplace in op.tags and op.name.endswith("_"):
        found = _named(op.namespace, op.name[:-1], op.overload)
        given = op.schema.parameters
    elif Tag.out in op.tags:
        found = _without_out(op)
        given = tuple([p for p in op.schema.parameters if not p.is_written])
    else:
        return None
    if found is None or found.schema.written or found.sees_seed:
        return None
    same = _plain(found.schema.parameters) == _plain(given)
    returns = [str(r.type) for r in op.schema.returns]
    own = [str(r.type) for r in found.schema.returns if r.alias is None]
    return found if same and own == returns else None


def writing_form(op: RuleTable, tag: Tag) -> Operator[..., object] | None:
    """Return the operator with a tag that writes what this one returns, or None."""
    if tag is Tag.inplace:
        places = [(op.namespace, f"{op.name}_", op.overload)]
    else:
        places = [
            (op.namespace, op.name, "out"),
            (op.namespace, f"{op.name}_out", op.overload),
            (f"{op.namespace}_out", op.name, op.overload),
        ]
    for namespace, name, overload in places:
        found = _named(namespace, name, overload)
        if found is not None and tag in found.tags and functional_form(found) is op:
            return found
    return None


def _without_out(op: RuleTable) -> Operator[..., object] | None:
    if op.overload == "out":
        return _named(op.namespace, op.name, "")
    if op.name.endswith("_out"):
        return _named(op.namespace, op.name[: -len("_out")], op.overload)
    if op.namespace.endswith("_out"):
        return _named(op.namespace[: -len("_out")], op.name, op.overload)
    return None


def _named(namespace: str, name: str, overload: str) -> Operator[..., object] | None:
    return in_namespace(namespace).get(name, {}).get(overload)


def _plain(parameters: Sequence[Parameter]) -> list[tuple[str, str, str, str]]:
    """Return parameters without their aliases."""
    return [(p.name, str(p.type), p.kind, repr(p.default)) for p in parameters]


# ---- reuse_buffers: results go to memory that is not needed any more ----


def reuse_buffers(graph: GraphT) -> GraphT:
    """Let operators write to the memory of operands that nothing needs afterwards.

    ``mylib::scale`` becomes ``mylib::scale_`` with `Tag.inplace`, or ``mylib::scale.out``
    with `Tag.out` if it is pointwise. NumPy's ufuncs have such forms. Inputs, constants,
    results of the graph, views and what they are views of are never written. It is the
    reverse of `functionalize`. Do it last: the graph is then for plain arrays, not for
    transforms.

    Parameters
    ----------
    graph : GraphModule or Graph
        It stays as it is.

    Returns
    -------
    GraphModule or Graph
        A new one.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> module = co.make_fx(lambda x: np.exp(np.sin(x) * 2.0))(np.ones(3))
    >>> for node in co.reuse_buffers(module).graph.nodes:
    ...     print(node.name, getattr(node.target, "qualname", ""), node.kwargs)
    x  {}
    sin np::sin {}
    multiply np_out::multiply {'out': sin}
    exp np_out::exp {'out': multiply}
    output  {}
    """
    return edited(graph, _reuse)


def _reuse(graph: Graph) -> None:
    reusing = _Reusing(graph)
    for node in graph.nodes:
        if node.op == CALL and not node.subgraphs and not node.has_effects:
            reusing.look_at(node)


class _Reusing:
    """The state of the memory of a graph, as its calls are changed one by one."""

    def __init__(self, graph: Graph) -> None:
        self._memory = Memory(graph)
        self._position = {node: i for i, node in enumerate(graph.nodes)}
        # Memory -> the nodes whose values may lie in it, and the last that uses one.
        self._holders: dict[int, list[Node]] = {}
        self._last: dict[int, int] = {}
        for node, places in self._memory.places.items():
            for place in places:
                self._holders.setdefault(place, []).append(node)
                last = max([self._position[u] for u in node.users], default=-1)
                self._last[place] = max(self._last.get(place, -1), last)

    def look_at(self, node: Node) -> None:
        """Let a call write to one of its operands, if it can."""
        op: RuleTable = node.target
        if not op.schema.single_return or op.schema.returns[0].alias is not None:
            return
        for slot, operand in self._free_operands(node):
            form, values = _form_for(op, node, slot, operand)
            if form is not None:
                self._change(node, operand, form, values)
                return

    def _free_operands(self, node: Node) -> Iterator[tuple[int, Node]]:
        """Go through the operands like the result that end with the call."""
        values = node.values()
        for slot in node.target.array_slots:
            operand = values[slot]
            is_like = isinstance(operand, Node) and _is_like(operand.val, node.val)
            if is_like and self._dies_at(operand, node):
                yield slot, operand

    def _dies_at(self, operand: Node, node: Node) -> bool:
        places = self._memory.places[operand]
        if len(places) != 1 or OUTSIDE in places or places & self._memory.output:
            return False
        (place,) = places
        own = {operand}
        if operand.op == ITEM:
            own.add(operand.args[0])
            if operand.args[0].op == ITEM:
                return False
        is_alone = all(holder in own for holder in self._holders[place])
        return is_alone and self._last[place] == self._position[node]

    def _change(
        self, node: Node, operand: Node, form: Operator[..., Any], values: list[Any]
    ) -> None:
        positional, named = form.schema.split(values)
        node.target = form
        node.set_inputs(tuple(positional), dict(named))
        # The result lies where the operand lay; the operand itself is not read again.
        (old,) = self._memory.places[operand]
        (new,) = self._memory.places[node]
        self._holders[old] = []
        self._holders[new] = [node]


def _is_like(operand: Any, result: Any) -> bool:
    """Return whether a result has the shape, dtype and strides of an operand."""
    if not isinstance(operand, FakeArray) or not isinstance(result, FakeArray):
        return False
    if not result.shape or operand.dtype != result.dtype or operand.device != CPU.name:
        return False  # NumPy's results without axes are scalars
    same = same_shape(operand.shape, result.shape)
    return same and same_shape(operand.strides, result.strides)


def _form_for(
    op: RuleTable, node: Node, slot: int, operand: Node
) -> tuple[Operator[..., Any] | None, list[Any]]:
    """Return an operator that writes to an operand, and its arguments."""
    values = node.values()
    is_once = nodes_in(values).count(operand) == 1
    if slot == 0 and (is_once or Tag.pointwise in op.tags):
        form = writing_form(op, Tag.inplace)
        if form is not None:
            return form, values
    form = writing_form(op, Tag.out) if Tag.pointwise in op.tags else None
    if form is None or len(form.schema.written) != 1:
        return None, []
    given: Mapping[str, Any] = {**node.bound(), form.schema.written[0]: operand}
    return form, [given[p.name] for p in form.schema.parameters]


# ---- arrays that a function made while it was captured ----
# They are constants of its graph, and new arrays in each run of the function.


def copy_new_constants(graph: Graph) -> None:
    """Copy in each run what the function makes again in each run, where it matters.

    ``np.zeros(3)`` in a function is a constant of its graph. The caller may write to it
    if it is returned, so each run returns a copy. An array that is there before the
    function runs is returned itself.
    """
    arrays = [value for value in graph.constants.values() if _is_writeable(value)]
    if not arrays:
        return
    shared = Counter(id(owner(value)) for value in arrays)
    del arrays
    memory = Memory(graph)
    reached = (memory.output | memory.written) - {OUTSIDE}
    for node in graph.nodes:
        is_reached = node.op == CONSTANT and memory.places[node] & reached
        if is_reached and _is_unshared(graph.constants, node.target, shared):
            _put_copy(graph, node)


def _is_writeable(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.flags.writeable


def _is_unshared(
    constants: Mapping[str, Any], name: str, shared: Mapping[int, int]
) -> bool:
    """Return whether only the graph refers to an array and its memory."""
    if not _is_writeable(constants[name]):
        return False
    is_owner, count, count_of_memory = _references(constants, name)
    others = shared[id(owner(constants[name]))] - 1
    least = _LEAST[is_owner]
    return (
        count <= least[1] + (others if is_owner else 0)
        and count_of_memory <= least[2] + others
    )


def _references(constants: Mapping[str, Any], name: str) -> tuple[bool, int, int]:
    """Return whether an array owns its memory; count references to it and its owner."""
    count = sys.getrefcount(constants[name])
    memory = owner(constants[name])
    return memory is constants[name], count, sys.getrefcount(memory)


def _least(constants: Mapping[str, Any]) -> tuple[bool, int, int]:
    return _references(constants, "probe")


# The same for arrays to which nobody else has a reference.
_LEAST = {
    True: _least({"probe": np.zeros(2)}),
    False: _least({"probe": np.zeros(2)[1:]}),
}


def _put_copy(graph: Graph, node: Node) -> None:
    with graph.inserting_after(node):
        copy = graph.call(ops.np.copy.default, (node,))
    copy.note(node.val, node.meta.get("place"))
    node.replace_all_uses_with(copy, unless=lambda user: user is copy)
