"""Calls that neither warn nor raise, whatever their arrays hold.

Only these may be left out where nothing uses them, and run once where a function makes
them twice: a user sees no difference. Inside transforms that the function itself calls,
such as `grad`, others are left out and merged, too.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from customop.arrays.fake import FakeArray
from customop.core.table import RuleTable
from customop.graph.graph import Graph
from customop.graph.node import CALL, Node
from customop.shapes.symbols import Symbolic

__all__ = ["is_quiet", "keep_what_warns"]

# Views and copies of elements.
_MOVES = frozenset(
    (
        *("broadcast_to", "reshape", "transpose", "expand_dims", "squeeze", "slice"),
        *("unslice", "ravel", "copy", "c_copy", "flip", "roll", "stack", "diagonal"),
        *("tril", "triu", "real", "imag", "require", "eye", "arange", "full_like"),
    )
)
# Comparisons and the like. A nan raises no flag in them.
_OF_ALL = frozenset(
    (
        *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
        *("logical_and", "logical_or", "logical_xor", "logical_not", "isnan", "isinf"),
        *("isfinite", "signbit", "sign", "negative", "positive", "copysign", "fabs"),
        *("maximum", "minimum", "fmax", "fmin", "floor", "ceil", "trunc", "rint"),
        *("bitwise_and", "bitwise_or", "bitwise_xor", "invert", "conjugate", "where"),
        *("any", "all", "argmax", "argmin", "argsort", "sort"),
    )
)
# Integers in arrays wrap around; those of scalars warn.
_OF_INTEGERS = frozenset(
    ("add", "subtract", "multiply", "square", "absolute", "left_shift", "right_shift")
)
_SMALLEST = 127


def is_quiet(node: Node) -> bool:
    """Whether a call of an operator of NumPy neither warns nor raises."""
    op = node.target
    if node.op != CALL:
        return True
    if not isinstance(op, RuleTable) or op.namespace != "np":
        return False
    if op.name in _MOVES:
        return not any(map(_depends_on_data, node.inputs))
    return _is_quiet_on(op.name, node)


def _is_quiet_on(name: str, node: Node) -> bool:
    """Whether it is so for arrays of these dtypes."""
    given, val = [n.val for n in node.inputs], node.val
    arrays = [v for v in given if isinstance(v, FakeArray)]
    if not isinstance(val, FakeArray) or not val.shape:
        return False  # operators of scalars warn of integers, too
    if name in ("astype", "slice_set", "concatenate"):
        return all(np.can_cast(v.dtype, val.dtype) for v in arrays)
    numbers = [v for v in node.values() if type(v) in (int, float)]
    is_known = not any(isinstance(v, Symbolic) for v in node.values())
    if not is_known or not all(map(_is_small, numbers)):
        return False  # NumPy converts it to the dtype of an array
    if any(v.dtype.kind == "c" for v in arrays):
        return False  # to compare a nan raises a flag
    is_whole = all(v.dtype.kind in "biu" for v in (val, *arrays))
    return name in _OF_ALL or (name in _OF_INTEGERS and is_whole)


def _depends_on_data(node: Node) -> bool:
    """Whether the shape of an array does: an index may lie outside of it."""
    sizes = [n for n in getattr(node.val, "shape", ()) if isinstance(n, Symbolic)]
    return any(n.hint is None for n in sizes)


def _is_small(value: float) -> bool:
    return 0 <= value <= _SMALLEST


def keep_what_warns(graph: Graph, derived: Collection[Node]) -> None:
    """Mark the calls of a function itself that may warn or raise: passes keep each of them.

    Parameters
    ----------
    graph : Graph
        It is changed.
    derived : collection of Node
        Those of transforms inside of the function.
    """
    for node in graph.nodes:
        if node.op == CALL and node not in derived and not is_quiet(node):
            node.meta["must_run"] = True
