"""A graph: the nodes of a program in order, and the constants that they use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from keyword import iskeyword
from typing import Any, NoReturn, Self

from customop.arrays.nested import flat
from customop.errors import GraphError, counted, shown
from customop.graph.memory import OUTSIDE, Memory
from customop.graph.node import (
    CALL,
    CONSTANT,
    ITEM,
    OUTPUT,
    PLACEHOLDER,
    Node,
    fault,
    nodes_in,
)
from customop.graph.size_uses import gives_sizes, makes_sizes, sizes_in
from customop.schema.parameters import MISSING
from customop.schema.types import is_array_type

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
        """A name that no node of the graph has: `wanted`, or with a number after it."""
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
        """Make an input.

        Parameters
        ----------
        name : str
        val : FakeArray or object
            A fake array of the shape and dtype that the graph is made for; for an input
            that is not an array the value that it must have.

        Returns
        -------
        Node
        """
        node = self.make(PLACEHOLDER, name, (), None, name)
        node.note(val, None)
        return node

    def constant(self, value: Any, name: str = "constant") -> Node:
        """Make a constant, and keep the value in `constants`."""
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
        """Make a call of an operator.

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
        """
        named = dict(kwargs) if kwargs else None
        return self.make(CALL, target, tuple(args), named, name or target.name)

    def item(self, node: Node, index: int | str, name: str = "") -> Node:
        """Make a node for one part of a call that returns several."""
        wanted = name or f"{node.name}_{index}"
        return self.make(ITEM, None, (node, index), None, wanted)

    def output(self, value: Any) -> Node:
        """Make the output: a node or other value, or a list of the leaves of a pytree."""
        leaves = list(value) if isinstance(value, list | tuple) else [value]
        return self.make(OUTPUT, None, (leaves,), None, "output")

    # ---- editing ----

    @contextmanager
    def inserting_before(self, node: Node) -> Iterator[Self]:
        """Put new nodes before this one, in the block."""
        self._check_own(node)
        earlier, self._before = self._before, node
        try:
            yield self
        finally:
            self._before = earlier

    @contextmanager
    def inserting_after(self, node: Node) -> Iterator[Self]:
        """Put new nodes after this one, in the block and in the order they are made."""
        with self.inserting_before(node.next):
            yield self

    def erase_node(self, node: Node) -> None:
        """Take a node out.

        Parameters
        ----------
        node : Node
            Nothing may use it.

        Raises
        ------
        GraphError
            If another node uses it, or it is not of this graph.
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
        """Make a node like one of another graph.

        Parameters
        ----------
        node : Node
        change : callable
            Gives the node of this graph for one of the other graph.

        Returns
        -------
        Node
        """
        args, kwargs = node.mapped(change)
        new = self.make(node.op, node.target, args, kwargs, node.name)
        if node.op == CONSTANT:
            new.target = new.name
            self.constants[new.name] = node.graph.constants[node.target]
        new.meta = node.meta
        return new

    def copy(self) -> Graph:
        """A graph of new nodes, with the same constants."""
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
        """Check that the graph is well made.

        Raises
        ------
        GraphError
            It names the node and the fault.
        """
        seen: dict[Node, None] = {}
        names: set[str] = set()
        sizes: set[str] = set()
        for node in self.nodes:
            reason = _reason(self, node, seen, names)
            if not reason and self.sizes is not None:
                reason = _reason_of_sizes(node, sizes)
            if reason:
                raise fault(node, f"the node '{node.name}' {reason}", _REPAIR)
            seen[node] = None
            names.add(node.name)
        for node in seen:
            wrong = [
                u.name for u in node.users if u not in seen or node not in u.inputs
            ]
            if wrong:
                what = (
                    f"the node '{node.name}' counts {wrong[0]} as a user, which is not"
                )
                raise fault(node, what, _REPAIR)
        assert self.output_node is not None


def _acts(node: Node, memory: Memory) -> bool:
    """Whether a call writes memory from outside of the graph, draws or gives nothing."""
    if node in memory.writes and not node.has_fixed_result:
        return OUTSIDE in memory.writes[node] or node.target.sees_seed
    return node.has_effects


_REPAIR = "edit graphs through their methods, in the order in which nodes run"


def _as_identifier(text: str) -> str:
    words = "".join(c if f"_{c}".isidentifier() else " " for c in text).split()
    found = "_".join(words) or "_"
    if iskeyword(found):
        return f"{found}_"
    return found if found.isidentifier() else f"_{found}"


def _reason(
    graph: Graph, node: Node, seen: Mapping[Node, None], names: set[str]
) -> str:
    """The reason why a node is wrong, or nothing."""
    if node.graph is not graph:
        return "is of another graph"
    if node.name in names:
        return "has the name of another one"
    inputs = nodes_in((*node.args, *node.kwargs.values()))
    for used in inputs:
        if used not in seen:
            return f"uses '{used.name}', which {_where(graph, node, used)}"
        if node not in used.users:
            return f"uses '{used.name}', which does not count it as a user"
    return _reason_of_kind(graph, node)


def _reason_of_sizes(node: Node, known: set[str]) -> str:
    """The reason why sizes of a node are wrong, or nothing; notes those that it gives."""
    given = (*node.args, *node.kwargs.values())
    missing = sizes_in(given) - known
    if missing:  # a size of another capture, which was open around it, is a value
        context = node.graph.sizes
        own = [v for v in flat([*given]) if getattr(v, "context", context) is context]
        missing = sizes_in(own) - known
    known |= gives_sizes(node.val)
    if missing:
        return f"uses the size '{min(missing)}', which no node before it has"
    return ""


def _where(graph: Graph, node: Node, used: Node) -> str:
    """Where a node is that is not among those before another one."""
    if used.is_erased:
        return "was erased"
    if used.graph is not graph:
        return "is of another graph"
    return "is the node itself" if used is node else "comes later"


def _reason_of_kind(graph: Graph, node: Node) -> str:
    if node.op == PLACEHOLDER and node.previous.op not in (PLACEHOLDER, "root"):
        return "is an input behind other nodes"
    if node.op == CONSTANT and node.target not in graph.constants:
        return f"names the constant '{node.target}', which the graph does not have"
    if node.op == OUTPUT and node.next is not graph.root:
        return "is the output and not the last node"
    if node.op == ITEM and (len(node.args) != 2 or type(node.args[0]) is not Node):
        return f"is an item of {node.args}, must be of a node and an index"
    return _reason_of_call(node) if node.op == CALL else ""


def _reason_of_call(node: Node) -> str:
    schema = getattr(node.target, "schema", None)
    if schema is None:
        return f"calls {node.target!r}, which is not an operator"
    required = [p for p in schema.positional if p.default is MISSING]
    if not len(required) <= len(node.args) <= len(schema.positional):
        given = counted(len(node.args), "argument")
        return f"has {given} for {node.target.qualname}{schema}"
    known = [p.name for p in schema.keyword_only]
    odd = [name for name in node.kwargs if name not in known]
    if odd:
        return f"has the keyword '{odd[0]}', which {node.target.qualname} does not take"
    for p in schema.keyword_only:
        if p.default is MISSING and p.name not in node.kwargs:
            return f"lacks the keyword '{p.name}' of {node.target.qualname}{schema}"
    for p, value in zip(schema.positional, node.args, strict=False):
        if is_array_type(p.type) and not isinstance(value, _FOR_ARRAYS):
            return f"has {shown(value)} for the array '{p.name}'"
    return ""


_FOR_ARRAYS = (Node, int, float, complex)
