"""A graph: the nodes of a program in order, and the constants that they use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from keyword import iskeyword
from typing import Any, NoReturn, Self

from customop.errors import GraphError, counted
from customop.graph.lint import check_graph
from customop.graph.memory import OUTSIDE, Memory
from customop.graph.node import (
    CALL,
    CONSTANT,
    ITEM,
    OUTPUT,
    PLACEHOLDER,
    Node,
    fault,
)
from customop.graph.size_uses import makes_sizes, sizes_in

__all__ = ["Graph", "NodeList"]


class NodeList(Sequence[Node]):
    """The nodes of a graph in order; a walk goes on when nodes come or go."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def __iter__(self) -> Iterator[Node]:
        root = self._graph.root
        node = root.next
        while node is not root:
            if not node.is_erased:
                yield node
            node = node.next

    def __reversed__(self) -> Iterator[Node]:
        root = self._graph.root
        node = root.previous
        while node is not root:
            if not node.is_erased:
                yield node
            node = node.previous

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
            if wanted.isidentifier() and not iskeyword(wanted):
                taken[wanted] = 1
                return wanted
            return self.name_for(_as_identifier(wanted))
        name = f"{wanted}_{number}"
        while name in taken:
            number += 1
            name = f"{wanted}_{number}"
        taken[wanted] = number + 1
        taken[name] = 1
        return name

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
            is_free = node.op in (CALL, ITEM, CONSTANT) and not node.users
            is_free = is_free and not (node.has_effects or node.must_run)
            if is_free and not sizes & makes_sizes(node):
                self.erase_node(node)
                count += 1
            elif self.sizes is not None:
                sizes |= sizes_in((*node.args, *node.kwargs.values()))
        return count

    @property
    def has_effects(self) -> bool:
        """Whether a run does more than give values: it writes inputs or constants, or draws."""
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
        new.meta = node.meta
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
        for node in self.nodes:
            known[node] = new.copy_node(node, known.__getitem__)
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
    """Whether a call writes memory from outside of the graph, draws or gives nothing."""
    if node in memory.writes and not node.has_fixed_result:
        return OUTSIDE in memory.writes[node] or node.target.sees_seed
    return node.has_effects


def _as_identifier(text: str) -> str:
    words = "".join(c if f"_{c}".isidentifier() else " " for c in text).split()
    found = "_".join(words) or "_"
    if iskeyword(found):
        return f"{found}_"
    return found if found.isidentifier() else f"_{found}"
