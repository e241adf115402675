"""Calls that write their result to an operand, which nothing reads afterwards.

The operand is a new array that only the generated code knows: the result of a ufunc or of a
product of matrices, which NumPy's own functions read. Its layout is that of NumPy's result,
whatever the layouts of the arguments are.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import numpy as np

from customop.arrays.fake import FakeArray
from customop.compiling.numpy_backend.calls import out_of
from customop.compiling.numpy_backend.known import is_builtin, ufunc_of
from customop.graph.graph import Graph
from customop.graph.node import CALL, CONSTANT, Node
from customop.shapes.sizes import same_shape

__all__ = ["find_reuses"]

# In place, single elements of complex numbers and halves may have other bits: NumPy
# computes them by other instructions (2.4, x86, all ufuncs and dtypes compared).
_DTYPES = frozenset(map(np.dtype, "?bhilqBHILQfd"))
_PRODUCT = "np::matmul"
# Beside ufuncs: they read their arguments, and give new arrays.
_READERS = frozenset(
    (_PRODUCT, *[f"np::{name}" for name in ("sum", "prod", "mean", "max", "min")])
)


def find_reuses(graph: Graph, others: Container[Node]) -> dict[Node, Node]:
    """The calls whose result takes the memory of an operand, and that operand.

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
        calls = [n for n in graph.nodes if n.op == CALL and n not in others]
        # One with an array for its result gives that array, not a new one.
        calls = [n for n in calls if is_builtin(n.target) and out_of(n) is None]
        self._at: dict[Node, int] = {}
        self._ufuncs: dict[Node, np.ufunc] = {}
        for i, node in enumerate(calls):
            ufunc = ufunc_of(node.target)
            if ufunc is not None and ufunc.signature is None:
                self._ufuncs[node] = ufunc
                self._at[node] = i
            elif node.target.qualname in _READERS:
                self._at[node] = i
        # Array -> whether it is in C order for certain.
        self._in_order: dict[Node, bool] = {}
        self.found: dict[Node, Node] = {}
        for node in self._ufuncs:
            self._is_in_order(node)
            operand = self._operand_of(node) if self._can_write(node) else None
            if operand is not None:
                self.found[node] = operand

    def _can_write(self, node: Node) -> bool:
        ufunc = self._ufuncs[node]
        return ufunc.nout == 1 and _is_array(node)

    def _operand_of(self, node: Node) -> Node | None:
        for operand in dict.fromkeys(v for v in node.values() if isinstance(v, Node)):
            if (
                self._is_new(operand)
                and _is_like(operand.val, node.val)
                and self._ends_at(operand, node)
                and self._keeps_layout(operand, node)
            ):
                return operand
        return None

    def _is_new(self, node: Node) -> bool:
        """Whether a value is a new array of one of these calls."""
        return (node in self._ufuncs or self._is_product(node)) and _is_array(node)

    def _is_product(self, node: Node) -> bool:
        return node in self._at and node.target.qualname == _PRODUCT

    def _ends_at(self, operand: Node, node: Node) -> bool:
        """Whether nothing reads an operand after a call, or keeps it."""
        last = self._at[node]
        return all(
            user in self._at and self._at[user] <= last for user in operand.users
        )

    # ---- layouts ----

    def _keeps_layout(self, operand: Node, node: Node) -> bool:
        """Whether NumPy would lay out the result as the operand."""
        others = [v for v in node.values() if isinstance(v, Node) and v is not operand]
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
    """Whether a call gives an array with axes, of a dtype that may be written in place."""
    val = node.val
    return (
        isinstance(val, FakeArray)
        and len(val.shape) > 0
        and val.dtype in _DTYPES
        and not node.written
    )


def _ndim(node: Node) -> int:
    return len(node.val.shape) if isinstance(node.val, FakeArray) else 0


def _is_like(operand: Any, result: Any) -> bool:
    return operand.dtype == result.dtype and same_shape(operand.shape, result.shape)
