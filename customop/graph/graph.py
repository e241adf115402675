"""A graph: the nodes of a program in order, checks of them, and the memory they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from itertools import takewhile
from typing import Any, Final, NamedTuple, NoReturn, Self

from customop.arrays.nested import flat
from customop.core.collector import grow
from customop.core.contract import owner
from customop.core.table import RuleTable
from customop.errors import GraphError, counted, shown
from customop.frozen import cached
from customop.graph.node import (
    CALL,
    CONSTANT,
    ITEM,
    OUTPUT,
    PLACEHOLDER,
    Node,
    as_identifier,
    fault,
    gives_sizes,
    makes_sizes,
    nodes_in,
    sizes_in,
)
from customop.schema.schema import Schema
from customop.schema.types import MISSING, is_array_type

# ---- which values of a graph share memory, and which nodes write it ----


# The memory of inputs and constants, which a caller may share among them.
OUTSIDE: Final = 0
Places = frozenset[int]
_OUTSIDE: Final[Places] = frozenset({OUTSIDE})


class Memory:
    """The memory behind the nodes of a graph, as the schemas describe it.

    Each piece of memory has a number. Inputs and constants all have the number 0, since
    a caller may pass one array twice, or one that is a constant. Constants also have one
    for the array that owns their memory.

    Attributes
    ----------
    places : dict
        Node -> numbers of the memory that its value may lie in.
    writes : dict
        Node that writes -> numbers of the memory that it writes.
    """

    def __init__(self, graph: Graph) -> None:
        self.places: dict[Node, Places] = {}
        self.writes: dict[Node, Places] = {}
        # The places of each result, for calls of several.
        self._parts: dict[Node, Sequence[Places]] = {}
        self._count = OUTSIDE
        self._owners: dict[int, Places] = {}
        self.output: Places = frozenset()
        for node in graph.nodes:
            self.places[node] = self._places_of(node)
            if node.op == OUTPUT:
                self.output = self.places[node]

    @cached
    def written(self) -> Places:
        """Return all memory that some node writes."""
        return frozenset().union(*self.writes.values())

    def of(self, values: Iterable[Any]) -> Places:
        """Return the memory of the nodes among nested values."""
        return frozenset().union(*[self.places[node] for node in nodes_in(values)])

    def _new(self) -> Places:
        self._count += 1
        return frozenset({self._count})

    def _places_of(self, node: Node) -> Places:
        if node.op == CALL:
            graphs = node.subgraphs
            return self._of_graphs(node, graphs) if graphs else self._of_call(node)
        if node.op == ITEM:
            return self._of_item(*node.args)
        if node.op == CONSTANT:
            own = id(owner(node.graph.constants[node.target]))
            if own not in self._owners:
                self._owners[own] = self._new()
            return _OUTSIDE | self._owners[own]
        return _OUTSIDE if node.op == PLACEHOLDER else self.of(node.args)

    def _of_item(self, node: Node, index: Any) -> Places:
        parts = self._parts.get(node)
        return self.places[node] if parts is None else parts[index]

    def _of_call(self, node: Node) -> Places:
        op: RuleTable = node.target
        if op.schema.gives_new_array:
            return self._new()
        pairs = [*zip(op.schema.parameters, node.values(), strict=True)]
        if op.schema.written:
            self.writes[node] = self.of(v for p, v in pairs if p.is_written)
        named: dict[str, list[Any]] = {}
        for p, value in pairs:
            if p.alias is not None:
                named.setdefault(p.alias.name, []).append(value)
        aliases = [r.alias for r in op.schema.returns]
        parts = [self._new() if a is None else self.of(named[a.name]) for a in aliases]
        if op.schema.is_tuple:
            self._parts[node] = parts
        return frozenset().union(*parts)

    def _of_graphs(self, node: Node, graphs: Sequence[Graph]) -> Places:
        """Return the places of a call of graphs, which may write and return any argument."""
        given = self.of((*node.args, *node.kwargs.values()))
        inner = [Memory(graph) for graph in graphs]
        if any(OUTSIDE in memory.written for memory in inner):
            self.writes[node] = given | _OUTSIDE
        new = self._new()
        return given | new if any(OUTSIDE in m.output for m in inner) else new


def may_write(graph: Graph) -> bool:
    """Return whether a node writes, or runs graphs that may."""
    calls = (node for node in graph.nodes if node.op == CALL)
    return any(node.target.schema.written or node.subgraphs for node in calls)


# ---- the checks of `Graph.lint` ----
# The order of the nodes, their users and their arguments.


class Flaw(NamedTuple):
    """What is wrong with a node, as a clause that follows its name, and what to do."""

    reason: str
    remedy: str


_BY_METHODS = "edit graphs through their methods, which note users: node.args = ..."


def check_graph(graph: Graph) -> None:
    """Raise a `GraphError` that names the first node that is wrong, and why."""
    seen: dict[Node, None] = {}
    sizes: set[str] = set()
    links = 0
    calls = _CallChecks()
    for node in graph.nodes:
        inputs = node.inputs
        links += len(inputs)
        found = _fault(graph, node, inputs, seen, calls)
        has_sizes = graph.sizes is not None and (graph.sizes.sizes or not node.is_plain)
        if found is None and has_sizes:
            found = _fault_of_sizes(node, sizes)
        if found is not None:
            raise fault(node, f"the node '{node.name}' {found.reason}", found.remedy)
        seen[node] = None
    # All links are among those of the users: if there are as many of these, none is wrong.
    is_right = sum(len(node.users) for node in seen) == links
    for node in () if is_right else seen:
        wrong = [u.name for u in node.users if u not in seen or node not in u.inputs]
        if wrong:
            what = f"the node '{node.name}' counts {wrong[0]} as a user, which is not"
            raise fault(node, what, _BY_METHODS)
    assert graph.output_node is not None


def _fault(
    graph: Graph,
    node: Node,
    inputs: Sequence[Node],
    seen: Mapping[Node, None],
    calls: _CallChecks,
) -> Flaw | None:
    """Return what is wrong with a node, or nothing."""
    if node.graph is not graph:
        return Flaw("is of another graph", _COPY)
    for used in inputs:
        if used not in seen:
            where, remedy = _where(graph, node, used)
            return Flaw(f"uses '{used.name}', which {where}", remedy)
        if node not in used.users:
            reason = f"uses '{used.name}', which does not count it as a user"
            return Flaw(reason, _BY_METHODS)
    return calls.fault(node) if node.op == CALL else _fault_of_kind(graph, node)


def _fault_of_sizes(node: Node, known: set[str]) -> Flaw | None:
    """Return what is wrong with the sizes of a node, and note those that it gives."""
    given = (*node.args, *node.kwargs.values())
    missing = sizes_in(given) - known
    if missing:  # a size of another capture, which was open around it, is a value
        context = node.graph.sizes
        own = [v for v in flat([*given]) if getattr(v, "context", context) is context]
        missing = sizes_in(own) - known
    known |= gives_sizes(node.val)
    if missing:
        return Flaw(
            f"uses the size '{min(missing)}', which no node before it has",
            "keep the node whose value has the size before this one",
        )
    return None


def _where(graph: Graph, node: Node, used: Node) -> tuple[str, str]:
    """Return why a node is not among those before another one, and what to do."""
    if used.is_erased:
        return "was erased", (
            "replace its uses before you erase it: node.replace_all_uses_with(other)"
        )
    if used.graph is not graph:
        return "is of another graph", _COPY
    if used is node:
        return "is the node itself", "pass a node that comes before it"
    return "comes later", (
        "make nodes in the order in which they run: with graph.inserting_before(node)"
    )


_COPY = "make a node in this graph: graph.call(op, args), graph.placeholder(name)"


def _fault_of_kind(graph: Graph, node: Node) -> Flaw | None:
    if node.op == PLACEHOLDER and node.previous.op not in (PLACEHOLDER, "root"):
        return Flaw(
            "is an input behind other nodes",
            "make it before the others: with graph.inserting_before(first_node)",
        )
    if node.op == CONSTANT and node.target not in graph.constants:
        return Flaw(
            f"names the constant '{node.target}', which the graph does not have",
            "make constants by graph.constant(value)",
        )
    if node.op == OUTPUT and node.next is not graph.root:
        return Flaw(
            "is the output and not the last node",
            "make nodes before it: with graph.inserting_before(graph.output_node)",
        )
    if node.op == ITEM and (len(node.args) != 2 or type(node.args[0]) is not Node):
        return Flaw(
            f"is an item of {node.args}, must be of a node and an index",
            "write node.args = (node of a list, index)",
        )
    return None


class _CallChecks:
    """The checks of calls: those that are alike are checked once."""

    def __init__(self) -> None:
        # Id of an operator, and number of arguments -> whether such calls without keywords are
        # right, whatever nodes and numbers the arguments are.
        self._known: dict[tuple[int, int], bool] = {}

    def fault(self, node: Node) -> Flaw | None:
        """Return what is wrong with a call, or nothing."""
        if node.kwargs or not _NODES_AND_NUMBERS.issuperset(map(type, node.args)):
            return _fault_of_call(node)
        key = id(node.target), len(node.args)
        if self._known.get(key):
            return None
        found = _fault_of_call(node)
        is_checked = getattr(node.target, "qualname", "") in call_checks
        self._known[key] = found is None and not is_checked
        return found


def _fault_of_call(node: Node) -> Flaw | None:
    schema = getattr(node.target, "schema", None)
    if schema is None:
        return Flaw(
            f"calls {node.target!r}, which is not an operator",
            "set node.target to an operator, such as customop.ops.np.sin.default",
        )
    count, most = len(node.args), len(schema.positional)
    if count != most and not _least(schema) <= count < most:
        given = counted(count, "argument")
        return Flaw(
            f"has {given} for {node.target.qualname}{schema}",
            "write node.args with a value for each parameter that has no default",
        )
    for name in node.kwargs:
        if name not in schema.keyword_names:
            qualname, known = node.target.qualname, schema.keyword_names
            return Flaw(
                f"has the keyword '{name}', which {qualname} does not take",
                f"write node.kwargs without it{_named(known)}",
            )
    for p in schema.keyword_only:
        if p.default is MISSING and p.name not in node.kwargs:
            return Flaw(
                f"lacks the keyword '{p.name}' of {node.target.qualname}{schema}",
                f"write node.kwargs = {{'{p.name}': ...}}",
            )
    for p, value in zip(schema.positional, node.args, strict=False):
        if not isinstance(value, _FOR_ARRAYS) and is_array_type(p.type):
            return Flaw(
                f"has {shown(value)} for the array '{p.name}'",
                "pass a node: a constant array by graph.constant(value)",
            )
    check = call_checks.get(node.target.qualname)
    return None if check is None else check(node.values())


# Name of an operator -> a function that returns what is wrong with the arguments of a
# call, in the order of the schema, beyond their types.
call_checks: dict[str, Callable[[Sequence[Any]], Flaw | None]] = {}


def _least(schema: Schema) -> int:
    """Return how many positional parameters have no default."""
    return sum(p.default is MISSING for p in schema.positional)


def _named(known: Sequence[str]) -> str:
    return f"; the operator takes {', '.join(known)}" if known else ""


_FOR_ARRAYS = (Node, int, float, complex)
_NODES_AND_NUMBERS = frozenset(_FOR_ARRAYS)


# ---- a graph: the nodes of a program in order, and the constants that they use ----


class NodeList(Sequence[Node]):
    """The nodes of a graph in order; a walk goes on when nodes come or go."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def __iter__(self) -> Iterator[Node]:
        return self._graph.root.following()

    def __reversed__(self) -> Iterator[Node]:
        return self._graph.root.preceding()

    def __len__(self) -> int:
        return self._graph.count

    def __getitem__(self, index: Any) -> Any:
        return [*self][index]

    def __repr__(self) -> str:
        return f"[{', '.join(node.name for node in self)}]"


class Graph:
    """The nodes of a captured program: inputs, constants, calls and the output.

    Attributes
    ----------
    nodes : sequence of Node
        In order: inputs first, the output last. It may be edited while it is walked.
    constants : dict
        Name -> array or object. They are kept as they are, not copied.
    sizes : SizeContext or None
        The symbolic sizes, with what is known of them.
    root : Node
        Before the first node and after the last one.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> graph = co.Graph()
    >>> x = graph.placeholder("x", co.FakeArray((3,)))
    >>> y = graph.call(co.ops.np.sin.default, (x,))
    >>> _ = graph.output(y)
    >>> co.GraphModule(graph)(np.zeros(3))
    array([0., 0., 0.])
    """

    def __init__(self) -> None:
        self.constants: dict[str, Any] = {}
        self.sizes: Any = None
        self.count: int = 0
        self.root: Node = Node(self, "", "root", None)
        # New nodes come before this one.
        self._before: Node = self.root
        self._taken: dict[str, int] = {}

    @property
    def nodes(self) -> NodeList:
        """The nodes in order."""
        return NodeList(self)

    @property
    def inputs(self) -> list[Node]:
        """The inputs in order; they come before the other nodes, which `lint` checks."""
        return [*takewhile(lambda node: node.op == PLACEHOLDER, self.nodes)]

    def __repr__(self) -> str:
        return f"<Graph of {counted(self.count, 'node')}>"

    # ---- making nodes ----

    def name_for(self, wanted: str) -> str:
        """Return a name that no node of the graph has.

        Parameters
        ----------
        wanted : str
            The name to return if it is free. Otherwise a number is added.

        Returns
        -------
        str

        Examples
        --------
        >>> import customop as co
        >>> graph = co.Graph()
        >>> graph.name_for("x"), graph.name_for("x")
        ('x', 'x_1')
        """
        taken = self._taken
        number = taken.get(wanted)
        if number is None:
            plain = as_identifier(wanted)
            if plain == wanted:
                taken[wanted] = 1
                return wanted
            return self.name_for(plain)
        name = f"{wanted}_{number}"
        while name in taken:
            number += 1
            name = f"{wanted}_{number}"
        taken[wanted] = number + 1
        taken[name] = 1
        return name

    def take_name(self, name: Any) -> None:
        """Note that a node gets a name; raise if it cannot have it, or another node has it."""
        if not isinstance(name, str) or as_identifier(name) != name:
            raise GraphError(
                f"{shown(name)} is not a name for a node",
                do="write an identifier that is no keyword, such as"
                f" {as_identifier(str(name))}",
            )
        if name in self._taken and any(node.name == name for node in self.nodes):
            raise GraphError(
                f"two nodes would have the name '{name}'",
                do=f'write graph.name_for("{name}"), which adds a number',
            )
        self._taken.setdefault(name, 1)

    def make(
        self,
        op: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        name: str,
    ) -> Node:
        """Make a node at the place for new ones, of which `name` is the wished name."""
        node = Node(self, self.name_for(name), op, target)
        if args or kwargs:
            node.set_inputs(args, kwargs or {})
        self.enter(node)
        return node

    def enter(self, node: Node) -> None:
        """Put a new node at the place for new ones."""
        node.link(self._before)
        self.count += 1
        grow()

    def placeholder(self, name: str, val: Any = None) -> Node:
        """Add an input.

        Parameters
        ----------
        name : str
            The wished name; a number is added if another node has it.
        val : FakeArray or object
            A fake array of the shape and dtype that the graph is made for; for an input
            that is not an array the value that it must have.

        Returns
        -------
        Node

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> graph = co.Graph()
        >>> x = graph.placeholder("x", co.FakeArray((3,), np.float32))
        >>> x.op, x.name, x.val
        ('placeholder', 'x', FakeArray(f32[3], device='cpu'))
        """
        node = self.make(PLACEHOLDER, name, (), None, name)
        node.note(val, None)
        return node

    def constant(self, value: Any, name: str = "constant") -> Node:
        """Add a constant, and keep its value in `constants`.

        Parameters
        ----------
        value : array or object
            It is kept as it is, not copied.
        name : str
            The wished name; a number is added if another node has it.

        Returns
        -------
        Node

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> graph = co.Graph()
        >>> table = graph.constant(np.arange(3.0), "table")
        >>> graph.constants
        {'table': array([0., 1., 2.])}
        """
        node = self.make(CONSTANT, None, (), None, name)
        node.target = node.name
        self.constants[node.name] = value
        return node

    def call(
        self,
        target: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None = None,
        *,
        name: str = "",
    ) -> Node:
        """Add a call of an operator.

        Parameters
        ----------
        target : Operator
        args : sequence
            Values of its positional parameters, with nodes in the places of arrays.
        kwargs : mapping, optional
            Values of its keyword-only parameters.
        name : str
            The wished name of the node; that of the operator by default.

        Returns
        -------
        Node

        Notes
        -----
        The arguments are checked against the schema by `lint` and when the graph runs.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> graph = co.Graph()
        >>> x = graph.placeholder("x", co.FakeArray((2,)))
        >>> total = graph.call(co.ops.np.sum.default, (x,), name="total")
        >>> _ = graph.output(graph.call(co.ops.np.multiply.default, (total, 10.0)))
        >>> co.GraphModule(graph)(np.array([1.0, 2.0]))
        np.float64(30.0)
        """
        named = dict(kwargs) if kwargs else None
        return self.make(CALL, target, tuple(args), named, name or target.name)

    def item(self, node: Node, index: int | str, name: str = "") -> Node:
        """Add a node for one part of a call that returns several.

        Parameters
        ----------
        node : Node
            The call.
        index : int or str
            Position of the part, or its key in a dict.
        name : str
            The wished name of the node; by default that of the call and the index.

        Returns
        -------
        Node

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> graph = co.Graph()
        >>> x = graph.placeholder("x", co.FakeArray((3,)))
        >>> both = graph.call(co.ops.np.modf.default, (x,))
        >>> _ = graph.output(graph.item(both, 1))  # the whole parts
        >>> co.GraphModule(graph)(np.array([0.5, 1.25, 2.0]))
        array([0., 1., 2.])
        """
        wanted = name or f"{node.name}_{index}"
        return self.make(ITEM, None, (node, index), None, wanted)

    def output(self, value: Any) -> Node:
        """Add the output, the last node of a graph.

        Parameters
        ----------
        value : object
            A node or another value, or a list of the leaves of a pytree.

        Returns
        -------
        Node

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> graph = co.Graph()
        >>> x = graph.placeholder("x", co.FakeArray((2,)))
        >>> _ = graph.output([x, 1.0])
        >>> co.GraphModule(graph)(np.zeros(2))
        [array([0., 0.]), 1.0]
        """
        leaves = list(value) if isinstance(value, list | tuple) else [value]
        return self.make(OUTPUT, None, (leaves,), None, "output")

    # ---- editing ----

    @contextmanager
    def inserting_before(self, node: Node) -> Iterator[Self]:
        """Put nodes that are made in the ``with`` block before a node.

        Parameters
        ----------
        node : Node

        Returns
        -------
        context manager
            It gives this graph.

        Raises
        ------
        GraphError
            If the node was erased or is of another graph.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> module = co.make_fx(lambda x: np.sin(x))(np.zeros(2))
        >>> graph = module.graph
        >>> x, sin, _ = graph.nodes
        >>> with graph.inserting_before(sin):
        ...     doubled = graph.call(co.ops.np.multiply.default, (x, 2.0))
        >>> sin.args = (doubled,)
        >>> graph.nodes
        [x, multiply, sin, output]
        """
        self._check_own(node)
        earlier, self._before = self._before, node
        try:
            yield self
        finally:
            self._before = earlier

    @contextmanager
    def inserting_after(self, node: Node) -> Iterator[Self]:
        """Put nodes that are made in the ``with`` block after a node, in their order.

        Parameters
        ----------
        node : Node

        Returns
        -------
        context manager
            It gives this graph.

        Raises
        ------
        GraphError
            If the node was erased or is of another graph.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> graph = co.make_fx(lambda x: np.sin(x))(np.zeros(2)).graph
        >>> x = graph.nodes[0]
        >>> with graph.inserting_after(x):
        ...     _ = graph.call(co.ops.np.cos.default, (x,))
        >>> graph.nodes
        [x, cos, sin, output]
        """
        with self.inserting_before(node.next):
            yield self

    def erase_node(self, node: Node) -> None:
        """Take a node out of the graph.

        Parameters
        ----------
        node : Node
            No other node may use it.

        Raises
        ------
        GraphError
            If another node uses it, or it is not of this graph.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> graph = co.make_fx(lambda x: np.sin(np.cos(x)))(np.zeros(2)).graph
        >>> x, cos, sin, _ = graph.nodes
        >>> _ = cos.replace_all_uses_with(x)
        >>> graph.erase_node(cos)
        >>> graph.nodes
        [x, sin, output]
        """
        self._check_own(node)
        if node.users:
            users = ", ".join(user.name for user in node.users)
            raise fault(
                node,
                f"erase_node: '{node.name}' is used by {users}",
                "replace_all_uses_with another node first, or erase its users",
            )
        if node is self._before:
            self._before = node.next
        node.erase()
        if node.op == CONSTANT:  # each has one node
            self.constants.pop(node.target, None)
        self.count -= 1

    def _check_own(self, node: Node) -> None:
        if node.graph is not self or node.is_erased:
            why = "was erased" if node.is_erased else "is of another graph"
            raise GraphError(
                f"the node '{node.name}' {why}", do="use a node of graph.nodes"
            )

    def eliminate_dead_code(self) -> int:
        """Erase calls and items that nobody uses, unless they write, draw or return nothing.

        A call also stays if its result has a size that is used.

        Returns
        -------
        int
            How many nodes were erased. Inputs stay.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> def f(x):
        ...     np.cos(x)  # the result is not used
        ...     return np.sin(x)
        >>> graph = co.make_fx(f)(np.zeros(2)).graph
        >>> graph.eliminate_dead_code(), graph.nodes
        (1, [x, sin, output])
        """
        count = 0
        sizes: frozenset[str] = frozenset()  # that nodes which stay use
        for node in reversed(self.nodes):
            is_free = not node.users and node.op in (CALL, ITEM, CONSTANT)
            is_free = is_free and not (node.must_run or node.has_effects)
            if is_free and not (sizes and sizes & makes_sizes(node)):
                self.erase_node(node)
                count += 1
            elif self.sizes is not None and not node.is_plain:
                sizes |= sizes_in((*node.args, *node.kwargs.values()))
        return count

    @property
    def has_effects(self) -> bool:
        """Return whether a run writes inputs or constants, or draws random numbers."""
        memory = Memory(self)
        inner = (node for node in self.nodes if node.op != OUTPUT)
        return any(_acts(node, memory) for node in inner)

    # ---- copies ----

    def copy_node(self, node: Node, change: Callable[[Node], Any]) -> Node:
        """Add a node like one of another graph.

        Parameters
        ----------
        node : Node
            A node of another graph. The new one has the same `meta`.
        change : callable
            Returns the node of this graph for a node of the other graph.

        Returns
        -------
        Node

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> old = co.make_fx(lambda x: np.sin(x))(np.zeros(2)).graph
        >>> new, copies = co.Graph(), {}
        >>> for node in old.nodes:
        ...     copies[node] = new.copy_node(node, copies.get)
        >>> new.nodes
        [x, sin, output]
        """
        args, kwargs = node.mapped(change)
        new = self.make(node.op, node.target, args, kwargs, node.name)
        if node.op == CONSTANT:
            new.target = new.name
            self.constants[new.name] = node.graph.constants[node.target]
        new.note_facts_of(node)
        return new

    def copy(self) -> Graph:
        """Return a graph of new nodes, with the same constants.

        Returns
        -------
        Graph

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> graph = co.make_fx(lambda x: np.sin(x))(np.zeros(2)).graph
        >>> new = graph.copy()
        >>> new.nodes, new.nodes[0] is graph.nodes[0]
        ([x, sin, output], False)
        """
        new = Graph()
        new.sizes = self.sizes
        known: dict[Node, Node] = {}
        # As `copy_node`; the names are those of one graph already.
        for node in self.nodes:
            copied = known[node] = node.copied(new, known)
            new.enter(copied)
            if node.op == CONSTANT:
                copied.target = node.name
                new.constants[node.name] = self.constants[node.target]
        new._taken = dict.fromkeys([node.name for node in known], 1)
        return new

    def __reduce__(self) -> NoReturn:
        raise GraphError(
            "a graph is not pickled by itself",
            do="pickle its GraphModule, or write it by module.save(path)",
        )

    def __copy__(self) -> Graph:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        new = self.copy()
        new.constants = {k: deepcopy(v, memo) for k, v in new.constants.items()}
        return new

    # ---- checking ----

    @property
    def output_node(self) -> Node:
        """The output."""
        node = self.root.previous
        if node.op != OUTPUT:
            raise GraphError(
                "the last node of the graph is not its output",
                do="graph.output(value) after all others",
            )
        return node

    def lint(self) -> None:
        """Check the order of the nodes, and each call against its schema.

        Raises
        ------
        GraphError
            It names the node and the fault.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> graph = co.make_fx(lambda x: np.sin(x))(np.zeros(2)).graph
        >>> graph.lint()
        >>> x, sin, _ = graph.nodes
        >>> sin.append(x)  # the input comes after its use
        >>> graph.lint()
        Traceback (most recent call last):
            ...
        customop.GraphError: the node 'sin' uses 'x', which comes later
          ...
        """
        check_graph(self)


def _acts(node: Node, memory: Memory) -> bool:
    """Return whether a call writes outside of the graph, draws or gives nothing."""
    if node in memory.writes and not node.is_checked:
        return OUTSIDE in memory.writes[node] or node.target.sees_seed
    return node.has_effects
