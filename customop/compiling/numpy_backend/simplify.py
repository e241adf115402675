"""Changes of graphs before code: shorter calls, writes in place, reuse of operands.

Arrays whose elements are all one number are replaced by that number, where NumPy would
broadcast it in the same way. Elementwise functions of such arrays are computed here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

import numpy as np

from customop.arrays.fake import FakeArray
from customop.compiling.numpy_backend.call_text import (
    OF_SCALARS,
    is_array_node,
    is_builtin,
    out_of,
    resolved,
    ufunc_of,
)
from customop.compiling.numpy_backend.elementwise_runs import VIEWS
from customop.core.table import RuleTable
from customop.errors import counted
from customop.frozen import cached
from customop.graph.graph import Graph, Memory, may_write
from customop.graph.module import GraphModule
from customop.graph.node import (
    CALL,
    CONSTANT,
    ITEM,
    OUTPUT,
    PLACEHOLDER,
    Node,
    makes_sizes,
    sizes_in,
)
from customop.graph.passes import Folding, edited, frozen_key
from customop.progress import node_channel
from customop.shapes.sizes import Symbolic, number_class, same_shape
from customop.transforms.trace.graph_tracer import assign, lay_out, number, set_slice

# ---- a graph as its code is written ----


def prepared(graph: Graph) -> Graph:
    """Return a copy of a graph that gives the same results in less time.

    The graphs inside it stay: they get code of their own.
    """
    node_channel.stage(f"simplifying {counted(graph.count, 'node')}")
    new = graph.copy()
    use_number_arrays(new)
    _leave_out_known(new)
    write_in_place(new)
    return new


_MOST_BYTES = 1 << 17


def _leave_out_known(graph: Graph) -> None:
    """Leave out calls whose results are known, where not one bit of a result changes."""
    numbers = None
    if not may_write(graph) or not Memory(graph).written:
        numbers = _Numbers(graph)  # else an array of one number may be written
    folding = Folding(graph, _MOST_BYTES, reads_constants=False)
    for node in graph.nodes:
        if numbers is not None and node.op == CALL:
            numbers.look_at(node)
        folding.look_at(node)
    folding.finish()
    graph.eliminate_dead_code()


# ---- arrays whose elements are all one number ----


class _Numbers:
    """Follows arrays whose elements are all one number, call by call."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        # Node -> the node without axes whose value all its elements have.
        self._source: dict[Node, Node] = {}
        self._values: dict[Node, Any] = {}
        # Operator and layouts of a call -> whether it gives the same.
        self._same: dict[Any, bool] = {}
        # Whether an operand may be such an array, or a broadcast of a smaller one.
        self._has_any: bool = False

    @cached
    def _memory(self) -> Memory:
        return Memory(self._graph)

    def look_at(self, node: Node) -> None:
        """Simplify a call; calls come in their order."""
        if not is_builtin(node.target) or not _is_known(node.val):
            return
        name = node.target.qualname
        if name in VIEWS:
            self._has_any = True
            self._follow_view(node)
        elif name in {"np::full_like", "np::full"}:
            self._has_any = True
            self._set_number(node, node.values()[1])
        elif self._has_any:
            ufunc = ufunc_of(node.target)
            if ufunc is not None:
                self._look_at_ufunc(node, ufunc)

    def _follow_view(self, node: Node) -> None:
        parent = node.args[0]
        if not isinstance(parent, Node):
            return
        source = self._source.get(parent)
        if (
            source is None
            and isinstance(parent.val, FakeArray)
            and not parent.val.shape
        ):
            source = parent
        if source is not None:
            self._source[node] = source

    def _set_number(self, node: Node, value: Any) -> None:
        if type(value) not in (bool, int, float, complex):
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                array = np.full((), value, node.val.dtype)
        except (ArithmeticError, RuntimeWarning):
            return  # as at each call
        self._set_constant(node, array)

    def _set_constant(self, node: Node, array: Any) -> None:
        with self._graph.inserting_before(node):
            new = self._graph.constant(array, node.name)
        new.note(FakeArray((), array.dtype), node.meta.get("place"))
        self._source[node] = new
        self._values[new] = array
        if not node.val.shape:
            node.replace_all_uses_with(new, unless=_may_keep)
        node.must_run = False  # it has run

    # ---- elementwise functions ----

    def _look_at_ufunc(self, node: Node, ufunc: np.ufunc) -> None:
        known = [self._number(v) for v in node.values()]
        if all(v is not None for v in known):
            self._compute(node, ufunc, known)
            return
        if node.written:
            return  # an operator of scalars
        self._narrow(node)
        self._leave_out_one(node, ufunc)

    def _number(self, value: Any) -> Any:
        """Return the number that all elements of an operand have, or None."""
        if not isinstance(value, Node):
            return value if type(value) in (bool, int, float, complex) else None
        return self._values.get(self._source.get(value, value))

    def _compute(self, node: Node, ufunc: np.ufunc, known: Sequence[Any]) -> None:
        """Compute the number that a ufunc gives, in arrays of 8 as in long ones."""
        run: Callable[..., Any] = ufunc
        if node.written:  # NumPy's scalars have arithmetic of their own
            run, wide = OF_SCALARS[ufunc.__name__], [_scalar(v) for v in known]
        else:
            wide = [np.full(8, v) if isinstance(v, np.ndarray) else v for v in known]
        if not any(isinstance(v, np.ndarray) for v in known):
            return
        with warnings.catch_warnings(), np.errstate(all="raise"):
            warnings.simplefilter("error")
            try:
                found = run(*wide)
            except Exception:  # noqa: BLE001  # whatever it is: as at each call
                return
        if found.dtype == node.val.dtype:
            self._set_constant(node, np.array(found.flat[0]))

    def _narrow(self, node: Node) -> None:
        """Take numbers instead of arrays of them, where the result is the same."""
        for at, value in enumerate(node.args):
            source = self._narrower(value)
            if source is None:
                continue
            new = (*node.args[:at], source, *node.args[at + 1 :])
            if self._gives_same(node, new):
                node.set_inputs(new, node.kwargs)

    def _gives_same(self, node: Node, operands: Sequence[Any]) -> bool:
        """Do what the function of this name does, once for calls that are alike."""
        values = [v.val if isinstance(v, Node) else v for v in operands]
        key = (node.target, *map(_layout, (*values, node.val)))
        if None in key:
            return _gives_same(node, operands)
        if key not in self._same:
            self._same[key] = _gives_same(node, operands)
        return self._same[key]

    def _narrower(self, value: Any) -> Node | None:
        """Return the smaller array that an operand is a broadcast of, if there is one."""
        if not isinstance(value, Node):
            return None
        if value in self._source:
            return self._source[value]
        if value.op == CALL and value.target.qualname == "np::broadcast_to":
            found = value.args[0]
            is_array = isinstance(found, Node) and _is_known(found.val)
            return found if is_array else None
        return None

    def _leave_out_one(self, node: Node, ufunc: np.ufunc) -> None:
        """Take y for 1 y: the same bits, where y is a result of arithmetic."""
        if ufunc is not np.multiply or len(node.args) != 2:
            return
        for one, other in (node.args, node.args[::-1]):
            value = self._values.get(one) if isinstance(one, Node) else None
            if value is None or value != 1 or not isinstance(other, Node):
                continue
            same = _is_laid_out_as(other.val, node.val) and self._is_arithmetic(other)
            if same and self._memory.places[node].isdisjoint(self._memory.output):
                node.must_run = False  # it would not warn
                node.replace_all_uses_with(other)
                return

    def _is_arithmetic(self, node: Node) -> bool:
        """Return whether a product with 1 has the bits of this value, also of nan."""
        if node.val.dtype.kind not in "iuf" or node.op != CALL:
            return False
        return is_builtin(node.target) and ufunc_of(node.target) in _ARITHMETIC


def _may_keep(user: Node) -> bool:
    """Return whether the caller may get an operand as a result, and write to it."""
    if user.op != CALL:
        return True
    if user.subgraphs or user.target.qualname == "np::astype":
        return (
            True  # a scalar is converted to a scalar, and the known number is an array
        )
    # What broadcast_to gives is read-only.
    gives_views = any(r.alias is not None for r in user.target.schema.returns)
    return gives_views and user.target.qualname != "np::broadcast_to"


def _scalar(value: Any) -> Any:
    return value[()] if isinstance(value, np.ndarray) else value


# Their results are never signaling nans, which a product would make quiet.
_ARITHMETIC = frozenset(
    getattr(np, name)
    for name in (
        *("add", "subtract", "multiply", "divide", "sqrt", "square", "reciprocal"),
        *("exp", "expm1", "log", "log1p", "sin", "cos", "tan", "tanh", "arctan"),
    )
)


def _is_known(val: Any) -> bool:
    """Return whether all sizes of an array are numbers."""
    return isinstance(val, FakeArray) and all(type(n) is int for n in val.shape)


def _is_laid_out_as(a: Any, b: Any) -> bool:
    same = isinstance(a, FakeArray) and a.dtype == b.dtype and a.shape == b.shape
    return same and a.strides == b.strides


def _layout(value: Any) -> Any:
    """Return a key of what a fake kernel sees of a value; None without one."""
    if type(value) in (bool, int, float, complex):
        return (type(value), value)
    if isinstance(value, FakeArray) and _is_known(value):
        return (value.shape, value.dtype, value.strides)
    return None


def _gives_same(node: Node, operands: Sequence[Any]) -> bool:
    """Return whether a call with other operands has a result like before."""
    values = [v.val if isinstance(v, Node) else v for v in operands]
    arrays = [v for v in values if isinstance(v, FakeArray)]
    if not all(map(_is_known, arrays)) or not any(v.shape for v in arrays):
        return False
    if np.broadcast_shapes(*[v.shape for v in arrays]) != node.val.shape:
        return False
    return _is_laid_out_as(node.target.run(*values), node.val)


# ---- in place ----
# Write in place again what functions wrote in place and graphs compute as copies.
#
# ``x[1:] += y`` is a node that gives a copy of `x` with another part. Where nothing
# reads the old `x` afterwards, the part is written to `x` itself. ``x += y`` is a sum
# that is assigned to `x` in the end, and becomes ``np.add(x, y, out=x)``. Inputs that a
# graph writes share no memory with others, which is a guard of compiled functions.


def write_in_place(graph: Graph) -> None:
    """Write to arrays whose old values nothing reads.

    Parameters
    ----------
    graph : Graph
        It is changed.
    """
    calls = [node for node in graph.nodes if node.op == CALL]
    if not any(node.target in _WRITTEN_LATER or _is_set(node) for node in calls):
        return
    writers = [node for node in calls if node.target.schema.written]
    is_plain = all(node.target is assign for node in writers)
    if not is_plain or any(node.subgraphs for node in calls):
        return
    for node in calls:
        if _is_set(node):
            _leave_out_own(node)
    copies = [*_without_copies(graph)]
    _Writing(graph).run()
    for copy in copies:
        _copy_again(graph, *copy)
    graph.eliminate_dead_code()


# Beside `np::slice_set`: operators of which this module makes other calls.
_WRITTEN_LATER = (assign, lay_out)


def _without_copies(graph: Graph) -> Iterator[tuple[Node, Sequence[int], Any, str]]:
    """Leave out copies that lie as an array does which may take the result itself.

    Gives the node of each result, the strides of the copy, its value, and its place.
    """
    for node in [*graph.nodes]:
        if node.op != CALL or node.target is not lay_out:
            continue
        value, strides = node.values()
        if all(user is node or user.target is assign for user in value.users):
            node.replace_all_uses_with(value)
            graph.erase_node(node)
            yield value, strides, node.val, node.meta.get("place", "")


def _copy_again(
    graph: Graph, value: Node, strides: Sequence[int], val: Any, place: str
) -> None:
    """Copy a result again that is not written to an array which lies so."""
    others = [user for user in value.users if user.target is not assign]
    if value.is_erased or not others:
        return
    if out_of(value) is not None:
        value.meta["val"] = val
        return
    with graph.inserting_after(value):
        copy = graph.call(lay_out, (value, strides))
    copy.note(val, place)
    is_written = any(user.target is set_slice for user in others)
    value.replace_all_uses_with(
        copy,
        unless=lambda user: user is copy or (user.target is assign and not is_written),
    )


def _is_set(node: Node) -> bool:
    is_call = node.op == CALL and not node.is_erased
    return is_call and node.target.qualname == "np::slice_set"


def _leave_out_own(node: Node) -> None:
    """Leave out ``x[key] = x[key]``, which Python does after ``x[key] += y``."""
    base, value, key = node.values()
    if not isinstance(value, Node) or value.op != CALL:
        return
    if value.target.qualname != "np::slice" or value.args[0] is not base:
        return
    if base.op != CALL or _gives_views(base):
        return
    if frozen_key(value.values()[1]) == frozen_key(key):
        node.replace_all_uses_with(base)
        node.graph.erase_node(node)


class _Writing:
    """Turns the nodes of one graph into writes."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._at: dict[Node, int] = {node: i for i, node in enumerate(graph.nodes)}
        self._returned: set[Node] = {*graph.output_node.inputs}
        self._views: dict[Node, bool] = {}

    def run(self) -> None:
        """Look at the inputs that are written, then at all other arrays."""
        for node in [*self._graph.nodes]:
            if not node.is_erased and node.op == CALL and node.target is assign:
                self._look_at_input(node)
        for node in [*self._graph.nodes]:
            if _is_set(node) and self._is_own(node.args[0]):
                self._write(node, node.args[0], len(self._at))

    def _look_at_input(self, last: Node) -> None:
        """Write to an input itself what is assigned to it at the end."""
        target, value = last.args
        chain = [*_chain(value)]
        end = self._at[last]
        if not chain and isinstance(value, Node) and self._can_take(target, value, end):
            self._graph.erase_node(last)
            self._take(target, value, end)
        if not chain or chain[-1].args[0] is not target or {*chain} & self._returned:
            return
        for node in reversed(chain):
            if not self._write(node, target, self._at[last]):
                return
        self._graph.erase_node(last)

    def _take(self, target: Node, value: Node, end: int) -> None:
        """Let an input take a result, and those that lead to it: ``x += y; x *= z``."""
        value.meta.update(out=target, must_run=True)
        for before in value.inputs:
            only = [*before.users] == [value] and out_of(before) is None
            if only and before is not target and self._can_take(target, before, end):
                self._take(target, before, end)
                return

    def _can_take(self, target: Node, value: Node, end: int) -> bool:
        """Return whether an input may take the result of a ufunc at once.

        From there on nothing may read the old values, in which views count too. The place
        `end` is that where it was assigned.
        """
        here = self._at[value]
        if not _is_ufunc(value) or not _is_like(value.val, target.val):
            return False
        users = [user for alias in self._aliases(value) for user in alias.users]
        if not all(user.target is assign or _is_call(user) for user in users):
            return False  # it is returned, and is not the input itself
        for alias in self._aliases(target):
            is_view = alias is not target
            last = here - is_view
            for user in alias.users:
                is_late = self._at[user] > last and user.op != OUTPUT
                is_end = user.target is assign and user.args[1] is value
                # What is a view of the new value is looked at as an alias, too.
                is_new = self._at[user] > end and _gives_views(user)
                if is_late and not (is_end or is_new):
                    return False
        return True

    def _is_own(self, node: Node) -> bool:
        """Return whether an array was made by a call, and is not a view."""
        return (
            node.op == CALL
            and isinstance(node.val, FakeArray)
            and bool(node.val.shape)
            and not _gives_views(node)
        )

    def _write(self, node: Node, target: Node, end: int) -> bool:
        """Turn a node into a write to its first argument, if that may be written.

        Nodes from the place `end` on read the new value anyway.
        """
        here = self._at[node]
        for alias in self._aliases(target):
            users = (user for user in alias.users if user is not node)
            if any(here < self._at[user] < end for user in users):
                return False
        with self._graph.inserting_before(node):
            new = self._graph.call(set_slice, (target, *node.values()[1:]))
        new.note(None, node.meta.get("place"))
        self._at[new] = here
        node.replace_all_uses_with(target)
        self._graph.erase_node(node)
        return True

    def _aliases(self, target: Node) -> Iterator[Node]:
        """Go through an array, and nodes that may be views of it."""
        waiting, seen = [target], {target}
        while waiting:
            node = waiting.pop()
            yield node
            for user in node.users:
                if user not in seen and _gives_views(user):
                    seen.add(user)
                    waiting.append(user)


def _chain(node: Node) -> Iterator[Node]:
    """Go back through a chain of nodes that replace parts of one array."""
    while _is_set(node):
        yield node
        node = node.args[0]


def _is_call(node: Node) -> bool:
    """Return whether a node is a call of NumPy, which writes nothing."""
    return node.op == CALL and is_builtin(node.target)


def _is_ufunc(node: Node) -> bool:
    """Return whether a node is a ufunc of arrays that gives one array."""
    if node.op != CALL or not isinstance(node.target, RuleTable):
        return False
    ufunc = ufunc_of(node.target)
    return ufunc is not None and ufunc.nout == 1 and ufunc.signature is None


def _is_like(val: Any, other: Any) -> bool:
    """Return whether two arrays have one dtype and one shape with axes."""
    is_array = isinstance(val, FakeArray) and isinstance(other, FakeArray)
    if not is_array or not val.shape or val.dtype != other.dtype:
        return False
    return same_shape(val.shape, other.shape)


def _gives_views(node: Node) -> bool:
    """Return whether the result of a node may share memory with its arguments."""
    if node.op == CALL:
        return any(r.alias is not None for r in node.target.schema.returns)
    return node.op == ITEM


# ---- numbers that differ between calls, as arrays without axes ----
# In ``x * rate`` NumPy converts a number of Python to the dtype of the array. Here that
# is a call of its own, as early as its sizes are known, so that the multiplication is one
# of arrays.


def with_number_arrays(module: GraphModule, *, of_scalars: bool = False) -> GraphModule:
    """Return a module in which ufuncs take arrays without axes for symbolic numbers.

    Parameters
    ----------
    module : GraphModule
    of_scalars : bool
        Whether also ufuncs of scalars alone do.
    """
    return edited(module, lambda graph: use_number_arrays(graph, of_scalars=of_scalars))


def use_number_arrays(graph: Graph, *, of_scalars: bool = False) -> None:
    """Let ufuncs take arrays without axes for symbolic numbers, in the graph itself."""
    if graph.sizes is None or not graph.sizes.sizes:
        return
    inputs = [node for node in graph.nodes if node.op == PLACEHOLDER]
    known = sizes_in([node.val for node in inputs])
    made: dict[tuple[str, np.dtype[Any]], Node] = {}
    last = inputs[-1] if inputs else None
    for node in [*graph.nodes]:
        for at, value, dtype in [*_conversions(node, of_scalars)]:
            key = (str(value), dtype)
            if key not in made:
                missing = sizes_in([value]) - known
                after = _last_maker(node, missing) if missing else last
                made[key] = _made(graph, after, value, dtype)
                last = last if missing else made[key]
            args = (*node.args[:at], made[key], *node.args[at + 1 :])
            node.set_inputs(args, node.kwargs)


def _last_maker(node: Node, sizes: frozenset[str]) -> Node | None:
    """Return the last call before a node that makes one of some sizes."""
    calls = (n for n in node.preceding() if not sizes.isdisjoint(makes_sizes(n)))
    return next(calls, None)


def _made(graph: Graph, last: Node | None, value: Any, dtype: np.dtype[Any]) -> Node:
    """Return the node of a number, after the node that gives the last of its sizes."""
    assert last is not None
    with graph.inserting_after(last):
        new = graph.call(number, (value, dtype))
    new.note(FakeArray((), dtype), last.meta.get("place"))
    return new


def _conversions(
    node: Node, of_scalars: bool
) -> Iterator[tuple[int, Any, np.dtype[Any]]]:
    """Go through the symbolic operands of a ufunc: place, number, and dtype there."""
    if node.op != CALL or not isinstance(node.target, RuleTable):
        return
    at = [i for i, value in enumerate(node.args) if isinstance(value, Symbolic)]
    if not at or not (of_scalars or any(map(is_array_node, node.args))):
        return
    ufunc = ufunc_of(node.target)
    kinds = [_kind(value) for value in node.args]
    if ufunc is None or any(kind is None for kind in kinds):
        return
    found = resolved(ufunc, kinds)
    if found is None:
        return
    own = [k if isinstance(k, np.dtype) else found[i] for i, k in enumerate(kinds)]
    if resolved(ufunc, own) == found:
        yield from ((i, node.args[i], own[i]) for i in at)


def _kind(value: Any) -> Any:
    """Return the dtype of an operand, or the class of a number of Python."""
    if isinstance(value, Node):
        return value.val.dtype if isinstance(value.val, FakeArray) else None
    cls = number_class(value)
    if issubclass(cls, np.generic):
        return np.dtype(cls)
    return cls if cls in (int, float, complex) else None


# ---- calls that write their result to an operand, which nothing reads afterwards ----
# The operand is a new array that only the generated code knows: the result of a ufunc
# or of a product of matrices, which NumPy's own functions read. Its layout is that of
# NumPy's result, whatever the layouts of the arguments are.


# In place, single elements of complex numbers and halves may have other bits: NumPy
# computes them by other instructions (2.4, x86, all ufuncs and dtypes compared).
_DTYPES = frozenset(map(np.dtype, "?bhilqBHILQfd"))
_PRODUCT = "np::matmul"
# Beside ufuncs: they read their arguments, and give new arrays.
_READERS = frozenset(
    (_PRODUCT, *[f"np::{name}" for name in ("sum", "prod", "mean", "max", "min")])
)


def find_reuses(graph: Graph, others: Container[Node]) -> dict[Node, Node]:
    """Return the calls whose result takes the memory of an operand, and that operand.

    Parameters
    ----------
    graph : Graph
    others : container of Node
        Calls that run elsewhere.
    """
    return _Reuses(graph, others).found


class _Reuses:
    def __init__(self, graph: Graph, others: Container[Node]) -> None:
        self._graph = graph
        self._at: dict[Node, int] = {}
        self._ufuncs: dict[Node, np.ufunc] = {}
        for i, node in enumerate(graph.nodes):
            if node.op != CALL or node in others or not is_builtin(node.target):
                continue
            if out_of(node) is not None:
                continue  # it gives that array, not a new one
            ufunc = ufunc_of(node.target)
            if ufunc is not None and ufunc.signature is None:
                self._ufuncs[node] = ufunc
                self._at[node] = i
            elif node.target.qualname in _READERS:
                self._at[node] = i
        # Array -> whether it is in C order for certain.
        self._in_order: dict[Node, bool] = {}
        self.found: dict[Node, Node] = {}
        for node, ufunc in self._ufuncs.items():
            self._is_in_order(node)
            can_write = ufunc.nout == 1 and _is_array(node)
            operand = self._operand_of(node) if can_write else None
            if operand is not None:
                self.found[node] = operand

    def _operand_of(self, node: Node) -> Node | None:
        for operand in node.inputs:
            if (
                self._is_new(operand)
                and self._ends_at(operand, node)
                and _is_like(operand.val, node.val)
                and self._keeps_layout(operand, node)
            ):
                return operand
        return None

    def _is_new(self, node: Node) -> bool:
        """Return whether a value is a new array of one of these calls."""
        return (node in self._ufuncs or self._is_product(node)) and _is_array(node)

    def _is_product(self, node: Node) -> bool:
        return node in self._at and node.target.qualname == _PRODUCT

    def _ends_at(self, operand: Node, node: Node) -> bool:
        """Return whether nothing reads an operand after a call, or keeps it."""
        if len(operand.users) == 1:  # this call
            return True
        last = self._at[node]
        return all(
            user in self._at and self._at[user] <= last for user in operand.users
        )

    # ---- layouts ----

    def _keeps_layout(self, operand: Node, node: Node) -> bool:
        """Return whether NumPy would lay out the result as the operand."""
        others = [v for v in node.inputs if v is not operand]
        if all(_ndim(other) < 2 for other in others):
            return True  # they have no say
        return all(map(self._is_in_order, (operand, *others)))

    def _is_in_order(self, node: Node) -> bool:
        if node not in self._in_order:
            self._in_order[node] = self._looks_in_order(node)
        return self._in_order[node]

    def _looks_in_order(self, node: Node) -> bool:
        if _ndim(node) < 2:
            return True
        if node.op == CONSTANT:
            value = self._graph.constants[node.target]
            return isinstance(value, np.ndarray) and value.flags.c_contiguous
        if self._is_product(node):
            return _ndim(node) == 2
        if node not in self._ufuncs:
            return False
        # Known already, for calls that come before.
        return all(self._is_in_order(v) for v in node.values() if isinstance(v, Node))


def _is_array(node: Node) -> bool:
    """Return whether a call gives an array with axes that may be written in place."""
    val = node.val
    return (
        isinstance(val, FakeArray)
        and len(val.shape) > 0
        and val.dtype in _DTYPES
        and not node.written
    )


def _ndim(node: Node) -> int:
    return len(node.val.shape) if isinstance(node.val, FakeArray) else 0
