"""Write in place again what functions wrote in place and graphs compute as copies.

``x[1:] += y`` is a node that gives a copy of `x` with another part. Where nothing reads
the old `x` afterwards, the part is written to `x` itself. ``x += y`` is a sum that is
assigned to `x` in the end, and becomes ``np.add(x, y, out=x)``. Inputs that a graph writes
share no memory with others, which is a guard of compiled functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from customop.arrays.fake import FakeArray
from customop.compiling.kernel import Kernel
from customop.compiling.numpy_backend.calls import out_of
from customop.compiling.numpy_backend.known import is_builtin, ufunc_of
from customop.core.table import RuleTable
from customop.graph.graph import Graph
from customop.graph.node import CALL, ITEM, OUTPUT, Node
from customop.graph.passes.common import frozen_key
from customop.shapes.sizes import same_shape
from customop.transforms.trace.operators import assign, lay_out, set_slice

__all__ = ["write_in_place"]


def write_in_place(graph: Graph) -> None:
    """Write to arrays whose old values nothing reads.

    Parameters
    ----------
    graph : Graph
        It is changed.
    """
    calls = [node for node in graph.nodes if node.op == CALL]
    writers = [node for node in calls if node.target.schema.written]
    is_plain = all(node.target is assign for node in writers)
    if not is_plain or any(map(_has_graphs, calls)):
        return
    for node in calls:
        if _is_set(node):
            _leave_out_own(node)
    copies = [*_without_copies(graph)]
    _Writing(graph).run()
    for copy in copies:
        _copy_again(graph, *copy)
    graph.eliminate_dead_code()


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


def _has_graphs(node: Node) -> bool:
    """Whether a call runs graphs that may write; kernels do not."""
    return not isinstance(node.target, Kernel) and bool(node.subgraphs)


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
        """Whether an input may take the result of a ufunc at once.

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
        """Whether an array was made by a call, and is not a view."""
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
        """An array, and nodes that may be views of it."""
        waiting, seen = [target], {target}
        while waiting:
            node = waiting.pop()
            yield node
            for user in node.users:
                if user not in seen and _gives_views(user):
                    seen.add(user)
                    waiting.append(user)


def _chain(node: Node) -> Iterator[Node]:
    """A node that replaces a part, the one of its first argument, and so on."""
    while _is_set(node):
        yield node
        node = node.args[0]


def _is_call(node: Node) -> bool:
    """Whether a node is a call of NumPy, which writes nothing."""
    return node.op == CALL and is_builtin(node.target)


def _is_ufunc(node: Node) -> bool:
    """Whether a node is a ufunc of arrays that gives one array."""
    if node.op != CALL or not isinstance(node.target, RuleTable):
        return False
    ufunc = ufunc_of(node.target)
    return ufunc is not None and ufunc.nout == 1 and ufunc.signature is None


def _is_like(val: Any, other: Any) -> bool:
    """Whether two arrays have one dtype and one shape with axes."""
    is_array = isinstance(val, FakeArray) and isinstance(other, FakeArray)
    if not is_array or not val.shape or val.dtype != other.dtype:
        return False
    return same_shape(val.shape, other.shape)


def _gives_views(node: Node) -> bool:
    """Whether the result of a node may share memory with its arguments."""
    if node.op == CALL:
        return any(r.alias is not None for r in node.target.schema.returns)
    return node.op == ITEM
