"""Simplify graphs where not one bit of a result changes.

Arrays whose elements are all one number are replaced by that number, where NumPy would
broadcast it in the same way. Elementwise functions of such arrays are computed here.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from customop.arrays.fake import FakeArray
from customop.compiling.numpy_backend.known import is_builtin, ufunc_of
from customop.compiling.numpy_backend.runs import VIEWS
from customop.graph.graph import Graph
from customop.graph.memory import Memory
from customop.graph.module import GraphModule
from customop.graph.node import CALL, Node
from customop.graph.passes.apply import edited
from customop.graph.passes.fold import fold_constants

__all__ = ["simplified"]

_MOST_BYTES = 1 << 17


def simplified(module: GraphModule) -> GraphModule:
    """A module with the same results from fewer calls."""
    module = edited(module, lambda graph: _Numbers(graph).run())
    return fold_constants(module, max_bytes=_MOST_BYTES, reads_constants=False)


class _Numbers:
    """A walk that follows arrays whose elements are all one number."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._memory = Memory(graph)
        # Node -> the node without axes whose value all its elements have.
        self._source: dict[Node, Node] = {}
        self._values: dict[Node, Any] = {}

    def run(self) -> None:
        """Simplify the calls of the graph."""
        if self._memory.written:
            return  # an array of one number may be written
        for node in self._graph.nodes:
            if node.op == CALL and is_builtin(node.target) and _is_known(node.val):
                self._look_at(node)
        self._graph.eliminate_dead_code()

    def _look_at(self, node: Node) -> None:
        name = node.target.qualname
        if name in VIEWS:
            self._follow_view(node)
        elif name in {"np::full_like", "np::full"}:
            self._set_number(node, node.values()[1])
        else:
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
        node.meta.pop("must_run", None)  # it has run

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
        """The number that all elements of an operand are; None if it is not known."""
        if not isinstance(value, Node):
            return value if type(value) in (bool, int, float, complex) else None
        return self._values.get(self._source.get(value, value))

    def _compute(self, node: Node, ufunc: np.ufunc, known: Sequence[Any]) -> None:
        """The elements of a function of such arrays; of 8, as in a long array."""
        run: Callable[..., Any] = ufunc
        if node.written:  # NumPy's scalars have arithmetic of their own
            if ufunc not in _OF_SCALARS:
                return
            run, wide = _OF_SCALARS[ufunc], [_scalar(v) for v in known]
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
            if _is_same(node, new):
                node.set_inputs(new, node.kwargs)

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
            same = _like(other.val, node.val) and self._is_arithmetic(other)
            if same and self._memory.places[node].isdisjoint(self._memory.output):
                node.meta.pop("must_run", None)  # it would not warn
                node.replace_all_uses_with(other)
                return

    def _is_arithmetic(self, node: Node) -> bool:
        """Whether a product with 1 has the bits of this value, also where it is nan."""
        if node.val.dtype.kind not in "iuf" or node.op != CALL:
            return False
        return is_builtin(node.target) and ufunc_of(node.target) in _ARITHMETIC


def _may_keep(user: Node) -> bool:
    """Whether an operand may live on in a result, where the caller may write to it."""
    if user.op != CALL:
        return True
    if user.subgraphs:
        return True
    # What broadcast_to gives is read-only.
    gives_views = any(r.alias is not None for r in user.target.schema.returns)
    return gives_views and user.target.qualname != "np::broadcast_to"


# Ufunc -> the operator of Python, where a scalar is written with it.
_OF_SCALARS: Mapping[np.ufunc, Callable[[Any, Any], Any]] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.divide: operator.truediv,
}


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
    """Whether all sizes of an array are numbers."""
    return isinstance(val, FakeArray) and all(type(n) is int for n in val.shape)


def _like(a: Any, b: Any) -> bool:
    same = isinstance(a, FakeArray) and a.dtype == b.dtype and a.shape == b.shape
    return same and a.strides == b.strides


def _is_same(node: Node, operands: Sequence[Any]) -> bool:
    """Whether a call with other operands has a result like before."""
    values = [v.val if isinstance(v, Node) else v for v in operands]
    arrays = [v for v in values if isinstance(v, FakeArray)]
    if not all(map(_is_known, arrays)) or not any(v.shape for v in arrays):
        return False
    if np.broadcast_shapes(*[v.shape for v in arrays]) != node.val.shape:
        return False
    return _like(node.target.run(*values), node.val)
