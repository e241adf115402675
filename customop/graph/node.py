"""Nodes of a graph: inputs, constants, calls and results, and the sizes among them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from keyword import iskeyword
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import numpy as np

from customop.arrays.kinds import is_array
from customop.arrays.nested import flat, map_nested
from customop.core.table import RuleTable
from customop.errors import GENERATED, GraphError
from customop.shapes.conditions import names_in_side
from customop.shapes.expressions import Number, affine_in, names_of
from customop.shapes.notation import as_name
from customop.shapes.sizes import Symbolic
from customop.shapes.symbolic import SymBool, as_side

if TYPE_CHECKING:
    from customop.graph.graph import Graph


# ---- nodes of a graph: one for each input, constant, operator call and result ----


PLACEHOLDER: Final = "placeholder"
CONSTANT: Final = "constant"
CALL: Final = "call"
ITEM: Final = "item"
OUTPUT: Final = "output"


class Node:
    """One value of a graph, or its output; made by the methods of `Graph`.

    Attributes
    ----------
    op : str
        ``"placeholder"`` for an input, ``"constant"``, ``"call"`` for the call of an
        operator, ``"item"`` for one part of a call that returns several, ``"output"``.
    name : str
        Unique in its graph, and an identifier. Another one may be assigned.
    target : object
        The operator of a call, or a graph module; the name of an input, or of a constant in
        ``graph.constants``; else None.
    args : tuple
        Of a call the values of its positional parameters, in the order of the schema and
        without those at the end that equal their defaults. Nodes stand in the places of
        arrays, also inside lists, dicts and config objects. Of an item the node and an
        index or key. Of the output one list of its leaves.
    kwargs : dict
        Of a call the values of keyword-only parameters.
    users : dict of Node to None
        The nodes that have this one among their arguments, in order.
    meta : dict
        ``"val"``: a `FakeArray` like the value, or what else the value is; ``"place"``:
        the user's file and line. Passes may add what they like.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> graph = co.make_fx(lambda x: np.sum(x * 2.0))(np.zeros((4, 3))).graph
    >>> x, multiply, *_ = graph.nodes
    >>> multiply.op, multiply.target.qualname, multiply.args, [*multiply.users]
    ('call', 'np::multiply', (x, 2.0), [sum])
    >>> multiply.meta["val"]
    FakeArray(f64[4, 3], device='cpu')
    """

    __slots__ = (
        "__weakref__",
        "_args",
        "_at",
        "_is_erased",
        "_kwargs",
        "_meta",
        "_must_run",
        "_name",
        "_next",
        "_previous",
        "_val",
        "graph",
        "op",
        "target",
        "users",
    )

    def __init__(self, graph: Graph, name: str, op: str, target: Any) -> None:
        self.graph: Graph = graph
        self._name: str = name
        self.op: str = op
        self.target: Any = target
        self.users: dict[Node, None] = {}
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        self._next: Node = self
        self._previous: Node = self
        self._is_erased: bool = False
        self._meta: dict[str, Any] | None = None
        # What `meta` is made of when it is first read.
        self._val: Any = None
        self._at: tuple[CodeType, int] | str | None = None
        self._must_run: bool = False

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> NoReturn:
        raise GraphError(
            f"the node '{self.name}' is not pickled by itself",
            do="pickle its GraphModule, or write it by module.save(path)",
        )

    @property
    def name(self) -> str:
        """The name of the node: another one may be assigned that no node of its graph has."""
        return self._name

    @name.setter
    def name(self, new: str) -> None:
        if new != self._name:
            self.graph.take_name(new)
            self._name = new

    # ---- arguments ----

    @property
    def args(self) -> tuple[Any, ...]:
        """Values of the positional parameters; assign a tuple to replace them."""
        return self._args

    @args.setter
    def args(self, new: Sequence[Any]) -> None:
        self.set_inputs(tuple(new), self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """Values of the keyword-only parameters; assign a dict to replace them."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, new: Mapping[str, Any]) -> None:
        self.set_inputs(self._args, dict(new))

    def set_inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Replace all arguments, and update `users` of the nodes among them.

        Parameters
        ----------
        args : tuple
            As the attribute `args`.
        kwargs : dict
            As the attribute `kwargs`.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> graph = co.make_fx(lambda x: np.sin(np.cos(x)))(np.zeros(2)).graph
        >>> x, cos, sin, _ = graph.nodes
        >>> sin.set_inputs((x,), {})
        >>> [*x.users], [*cos.users]
        ([cos, sin], [])
        """
        if self._args or self._kwargs:
            for node in self._all_inputs():
                node.users.pop(self, None)
        self._args, self._kwargs = args, kwargs
        for node in self._all_inputs():
            node.users[self] = None

    def _all_inputs(self) -> list[Node]:
        """Return the nodes among the arguments, as often as they are there."""
        kwargs = self._kwargs
        return nodes_in((*self._args, *kwargs.values()) if kwargs else self._args)

    @property
    def inputs(self) -> list[Node]:
        """The nodes among the arguments, each once and in order."""
        kwargs = self._kwargs  # as `_all_inputs`, in one call
        found = nodes_in((*self._args, *kwargs.values()) if kwargs else self._args)
        return found if len(found) < 2 else [*dict.fromkeys(found)]

    def map_inputs(self, fn: Callable[[Node], Any]) -> None:
        """Replace each node among the arguments.

        Parameters
        ----------
        fn : callable
            Returns the new node, or another value, for a node.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> x, sin, add, _ = co.make_fx(lambda x: x + np.sin(x))(np.zeros(2)).graph.nodes
        >>> add.map_inputs(lambda node: x)
        >>> add.args
        (x, x)
        """
        args, kwargs = self.mapped(fn)
        self.set_inputs(args, kwargs)

    def mapped(
        self, fn: Callable[[Node], Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with each node among them replaced; the node stays as it is.

        Parameters
        ----------
        fn : callable
            Returns the new node, or another value, for a node.

        Returns
        -------
        tuple
            The new `args`, a tuple, and `kwargs`, a dict.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> _, multiply, _ = co.make_fx(lambda x: x * 2.0)(np.zeros(2)).graph.nodes
        >>> multiply.mapped(lambda node: node.name.upper())
        (('X', 2.0), {})
        """
        args = tuple([fn(v) if type(v) is Node else _mapped(v, fn) for v in self._args])
        return args, {k: _mapped(v, fn) for k, v in self._kwargs.items()}

    def replace_all_uses_with(
        self, other: Node, *, unless: Callable[[Node], bool] | None = None
    ) -> list[Node]:
        """Put another node in the place of this one, wherever it is an argument.

        Parameters
        ----------
        other : Node
        unless : callable, optional
            Returns True for a user that stays as it is.

        Returns
        -------
        list of Node
            The users that were changed.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> module = co.make_fx(lambda x: np.sin(np.abs(x)))(np.zeros(1))
        >>> x, absolute, sin, _ = module.graph.nodes
        >>> absolute.replace_all_uses_with(x)
        [sin]
        >>> module.recompile()
        >>> module(np.array([-1.0])) == np.sin(-1.0)
        array([ True])
        """
        found = [user for user in self.users if unless is None or not unless(user)]
        for user in found:
            user.map_inputs(lambda node: other if node is self else node)
        return found

    def bound(self) -> dict[str, Any]:
        """Return the values of all parameters of a call by name, with defaults.

        Returns
        -------
        dict of str to object

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> _, call, _ = co.make_fx(lambda x: np.var(x))(np.zeros(4)).graph.nodes
        >>> call.args
        (x,)
        >>> call.bound()
        {'x': x, 'axis': None, 'keepdims': False, 'ddof': 0.0, 'dtype': None}
        """
        return dict(zip(self._names(), self.values(), strict=True))

    def values(self) -> list[Any]:
        """Return the values of all parameters of a call, in the order of the schema.

        Returns
        -------
        list

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> _, call, _ = co.make_fx(lambda x: np.var(x))(np.zeros(4)).graph.nodes
        >>> call.args, call.values()
        ((x,), [x, None, False, 0.0, None])
        """
        schema, found = self.target.schema, [*self._args]
        if len(found) < len(schema.positional):
            found += [p.default for p in schema.positional[len(found) :]]
        if schema.keyword_only:
            named = self._kwargs
            found += [named.get(p.name, p.default) for p in schema.keyword_only]
        return found

    def _names(self) -> Iterator[str]:
        return (p.name for p in self.target.schema.parameters)

    # ---- place in the graph ----

    @property
    def next(self) -> Node:
        """The node after this one; after the last one comes ``graph.root``."""
        return self._next

    @property
    def previous(self) -> Node:
        """The node before this one; before the first one comes ``graph.root``."""
        return self._previous

    @property
    def is_erased(self) -> bool:
        """Return whether the node was taken out of its graph."""
        return self._is_erased

    def prepend(self, node: Node) -> None:
        """Move another node of the graph before this one.

        Parameters
        ----------
        node : Node

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> graph = co.make_fx(lambda x: (np.sin(x), np.cos(x)))(np.zeros(2)).graph
        >>> _, sin, cos, _ = graph.nodes
        >>> sin.prepend(cos)
        >>> graph.nodes
        [x, cos, sin, output]
        """
        if node is not self:
            node.unlink()
            node.link(self)

    def append(self, node: Node) -> None:
        """Move another node of the graph after this one.

        Parameters
        ----------
        node : Node

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> graph = co.make_fx(lambda x: (np.sin(x), np.cos(x)))(np.zeros(2)).graph
        >>> _, sin, cos, _ = graph.nodes
        >>> cos.append(sin)
        >>> graph.nodes
        [x, cos, sin, output]
        """
        if node is not self:
            node.unlink()
            node.link(self._next)

    def link(self, after: Node) -> None:
        """Enter the list of nodes before another one; for `Graph`."""
        before = after._previous  # of the same class
        self._previous, self._next = before, after
        before._next = after._previous = self  # noqa: SLF001  # of the same class

    def following(self) -> Iterator[Node]:
        """Go through the nodes after this one, up to ``graph.root``; for `Graph`."""
        node: Node = self._next
        root = self.graph.root
        while node is not root:
            if not node._is_erased:
                yield node
            node = node._next

    def preceding(self) -> Iterator[Node]:
        """Go through the nodes before this one, back to ``graph.root``; for `Graph`."""
        node: Node = self._previous
        root = self.graph.root
        while node is not root:
            if not node._is_erased:
                yield node
            node = node._previous

    def unlink(self) -> None:
        """Leave the list of nodes; for `Graph`. A walk that is here goes on."""
        before, after = self._previous, self._next
        before._next, after._previous = after, before  # noqa: SLF001  # of the same class

    def copied(self, graph: Graph, known: Mapping[Node, Node]) -> Node:
        """Return a node like this one for another graph, whose nodes are in `known`."""
        new = Node(graph, self._name, self.op, self.target)
        if not self.is_plain:
            new.set_inputs(*self.mapped(known.__getitem__))
        elif self._args:
            args = [known[v] if type(v) is Node else v for v in self._args]
            new._args = (*args,)  # of the same class
            for value in args:
                if type(value) is Node:
                    value.users[new] = None
        new.note_facts_of(self)
        return new

    def erase(self) -> None:
        """Take the node out of its graph: `Graph.erase_node`."""
        self.unlink()
        self.set_inputs((), {})
        self._is_erased = True

    # ---- facts ----

    @property
    def meta(self) -> dict[str, Any]:
        """Facts about the node; made when it is first read."""
        if self._meta is None:
            self._meta = {"val": self._val}
            if self._at is not None:
                self._meta["place"] = place_at(self._at)
            if self._must_run:
                self._meta["must_run"] = True
            self._val = self._at = None
        return self._meta

    @meta.setter
    def meta(self, new: Mapping[str, Any]) -> None:
        self._meta = dict(new)

    @property
    def val(self) -> Any:
        """``meta["val"]``; None if there is none."""
        return self._val if self._meta is None else self._meta.get("val")

    @property
    def place(self) -> Any:
        """``meta["place"]``; None if there is none."""
        if self._meta is not None:
            return self._meta.get("place")
        return None if self._at is None else place_at(self._at)

    def more_facts(self) -> dict[str, Any]:
        """Return what `meta` has beside ``"val"`` and ``"place"``."""
        if self._meta is None and not self._must_run:
            return {}
        return {k: v for k, v in self.meta.items() if k not in ("val", "place")}

    def note(self, val: Any, at: tuple[CodeType, int] | str | None) -> None:
        """Set the facts that tracing knows; cheap, since `meta` is made later."""
        self._val, self._at = val, at

    def note_facts_of(self, other: Node) -> None:
        """Copy the facts about another node; cheap as long as nobody has read `meta`."""
        facts = other._meta  # of the same class
        self._meta = None if facts is None else facts.copy()
        self._val, self._at = other._val, other._at  # of the same class
        self._must_run = other._must_run  # of the same class

    def fact(self, name: str) -> Any:
        """Return a fact that a pass has noted in `meta`, or None; cheap where there is none."""
        return None if self._meta is None else self._meta.get(name)

    @property
    def is_checked(self) -> bool:
        """Return whether the graph checks the result.

        The rest of the graph has it as a constant, ``meta["must_be"]``, or has decided
        what is a view by its strides, those of ``meta["must_lie"]``.
        """
        meta = self._meta
        return meta is not None and ("must_be" in meta or "must_lie" in meta)

    @property
    def must_run(self) -> bool:
        """Return whether the call stays, by itself, also where nothing uses it.

        `compile` sets ``meta["must_run"]`` where it may warn or raise.
        """
        if self._meta is None:
            return self._must_run
        found: bool = self._meta.get("must_run", False)
        return found

    @must_run.setter
    def must_run(self, value: bool) -> None:
        if self._meta is None:
            self._must_run = value
        elif value:
            self._meta["must_run"] = True
        else:
            self._meta.pop("must_run", None)

    @property
    def written(self) -> str:
        """Return the form of a call by an operator of Python: ``{0} ** {1}``; or empty.

        It is noted for NumPy's scalars, whose operators are not the ufuncs.
        """
        return self.fact("written") or ""

    @property
    def has_effects(self) -> bool:
        """Return whether a node does more than give a value.

        It writes, draws, returns nothing, or checks its result.
        """
        return self.op == OUTPUT or self.is_checked or not self.is_pure

    @property
    def is_plain(self) -> bool:
        """Return whether the arguments are nodes and plain constants, without parts."""
        return not self._kwargs and _SINGLE.issuperset(map(type, self._args))

    @property
    def is_pure(self) -> bool:
        """Return whether the node is not a call that writes, draws or returns nothing."""
        if self.op != CALL:
            return True
        op = self.target
        if op.schema.written or op.sees_seed or not op.schema.returns:
            return False
        return not any(graph.has_effects for graph in self.subgraphs)

    @property
    def subgraphs(self) -> list[Graph]:
        """The graphs that a call runs: its target, or graph modules in its arguments."""
        is_operator = isinstance(self.target, RuleTable)
        if is_operator and self.is_plain:
            return []
        found: list[Any] = [] if is_operator else [self.target]
        found += [v for v in self._args if type(v) not in _SINGLE]
        found += self._kwargs.values()
        leaves = [leaf for v in found if not _is_single(v) for leaf in flat(v)]
        graphs = [getattr(v, "graph", None) for v in leaves if not _is_single(v)]
        return [graph for graph in graphs if isinstance(graph, type(self.graph))]


def _is_single(value: Any) -> bool:
    """Return whether a value is certainly not a graph module, and holds none."""
    return type(value) in _SINGLE or isinstance(value, RuleTable)


def _mapped(value: Any, fn: Callable[[Node], Any]) -> Any:
    """Return a value with each node in it replaced."""
    if type(value) is Node:
        return fn(value)
    if type(value) in _PLAIN:
        return value
    return map_nested(value, lambda leaf: fn(leaf) if type(leaf) is Node else leaf)


def caller_of(node: Node) -> Node:
    """Return the call that a node is a part of, or the node itself."""
    while node.op == ITEM:
        node = node.args[0]
    return node


def nodes_in(values: Iterable[Any]) -> list[Node]:
    """Return the nodes among values and inside them, in order."""
    found: list[Node] = []
    for value in values:
        if type(value) is Node:
            found.append(value)
        elif type(value) not in _PLAIN:
            found += [leaf for leaf in flat(value) if type(leaf) is Node]
    return found


_PLAIN = frozenset((int, float, bool, complex, str, type(None)))
_SINGLE = _PLAIN | {Node}


# ---- places ----

# Line of each instruction of a code object; looked up when a place is first asked for,
# since Python finds a line by reading the table from its beginning.
_lines: dict[int, tuple[CodeType, list[int | None]]] = {}


def place_at(at: tuple[CodeType, int] | str) -> str:
    """Return file and line of an instruction."""
    if isinstance(at, str):
        return at
    code, offset = at
    known = _lines.get(id(code))  # to hash a code object takes long
    if known is None:
        if len(_lines) > _MOST_CODES:
            _lines.clear()
        known = _lines[id(code)] = code, _lines_of(code)
    return f"{code.co_filename}:{known[1][offset // 2] or code.co_firstlineno}"


_MOST_CODES = 256


def _lines_of(code: CodeType) -> list[int | None]:
    found: list[int | None] = [None] * (len(code.co_code) // 2 + 1)
    for start, end, line in code.co_lines():
        found[start // 2 : end // 2] = [line] * (end // 2 - start // 2)
    return found


# This package, and Python code of NumPy that calls operators, such as np.broadcast_to.
_OURS = (
    GENERATED,
    str(Path(__file__).parents[1]),
    str(Path(np.__file__).parent),
)


class _Files(dict[str, bool]):
    """File name of code -> whether it is not the user's."""

    def __missing__(self, name: str) -> bool:
        if len(self) > _MOST_FILES:  # of generated code, for example
            self.clear()
        self[name] = ours = name.startswith(_OURS)
        return ours


_MOST_FILES = 10_000
_is_ours = _Files()


def place_here() -> tuple[CodeType, int]:
    """Return the running instruction of the user's code; its line is looked up later."""
    frame = sys._getframe(1)
    while _is_ours[frame.f_code.co_filename] and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


# ---- names and faults ----


def as_identifier(text: str) -> str:
    """Return a text as a name for generated code, in the form in which Python reads it."""
    text = text if text.isascii() else as_name(text)
    if text.isidentifier() and not iskeyword(text):
        return text
    words = "".join(c if f"_{c}".isidentifier() else " " for c in text).split()
    found = "_".join(words) or "_"
    if iskeyword(found):
        return f"{found}_"
    return found if found.isidentifier() else f"_{found}"


def fault(node: Node, what: str, do: str) -> GraphError:
    """Return an error about a node."""
    place = node.meta.get("place")
    return GraphError(what, *([f"traced at {place}"] if place else []), do=do)


# ---- symbolic sizes among the arguments and values of nodes ----


class Solved(NamedTuple):
    """A size that a length ``factor * name + rest`` gives."""

    name: str
    factor: int
    rest: int

    def text(self, length: str) -> str:
        """Return the size as Python code, from that of the length."""
        if self.rest:
            length += f" {'-' if self.rest > 0 else '+'} {abs(self.rest)}"
        return length if self.factor == 1 else f"({length}) // {self.factor}"

    def value(self, length: int) -> int:
        """Return the size, from the length."""
        return (length - self.rest) // self.factor


def solved(size: Any, known: Collection[str]) -> Solved | None:
    """Return how a length gives the one unknown size in it, or None."""
    expr: Number = size.expr
    names = names_of(expr)
    if len(names) != 1 or not names.isdisjoint(known):
        return None
    (name,) = names
    factor, rest = affine_in(expr, name, {}) or (0, 0)
    return Solved(name, factor, rest) if factor else None


def sizes_in(values: Iterable[Any]) -> frozenset[str]:
    """Return the names of symbolic sizes in nested values and shapes of arrays."""
    found: frozenset[str] = frozenset()
    for value in values:
        if type(value) in _SINGLE:
            continue
        for leaf in flat(value):
            if is_array(leaf):
                found = found.union(*map(_names, leaf.shape))
            else:
                found |= _names(leaf)
    return found


def _names(value: Any) -> frozenset[str]:
    if not isinstance(value, Symbolic):
        return frozenset()
    if isinstance(value, SymBool):
        return value.condition.names
    side = as_side(value)
    return frozenset() if side is None else names_in_side(side)


def has_sizes(values: Iterable[Any]) -> bool:
    """Return whether there are symbolic sizes in nested values."""
    return bool(sizes_in(values))


def gives_sizes(value: Any) -> frozenset[str]:
    """Return the names of sizes that can be read off a value as whole lengths."""
    if type(value) in _SINGLE:
        return frozenset()
    if isinstance(value, Symbolic):
        return frozenset({str(value)}) & _names(value)
    leaves = value.shape if is_array(value) else flat(value)
    if not is_array(value) and len(leaves) == 1 and leaves[0] is value:
        return frozenset()
    return frozenset().union(*map(gives_sizes, leaves))


def missing_sizes(nodes: Iterable[Node]) -> set[str]:
    """Return the names of the sizes that nodes use and that none before them gives."""
    known: set[str] = set()
    missing: set[str] = set()
    for node in nodes:
        used = sizes_in((*node.args, *node.kwargs.values()))
        missing |= used - known
        known |= gives_sizes(node.val) | used
    return missing


def makes_sizes(node: Node) -> frozenset[str]:
    """Return the names of sizes that a call brings: no argument has them."""
    own = sizes_in([node.val]) if node.op == CALL else frozenset()
    if not own:
        return own
    given = [source.val for source in node.inputs]
    return own - sizes_in([*given, *node.args, *node.kwargs.values()])
