"""Nodes: reverse mode remembers each call of an operator in one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from customop.arrays.describe import abbreviated, show
from customop.arrays.dtypes import is_inexact
from customop.arrays.kinds import device_of, is_array
from customop.arrays.nested import children, map_paths, nests, outline
from customop.core.contract.memory import moments, writes
from customop.core.grad_rules import GradRule
from customop.core.table import RuleTable
from customop.errors import GradientError

__all__ = [
    "Edge",
    "GradNode",
    "Leaf",
    "Meta",
    "Output",
    "UnaryNode",
    "double",
    "flat_metas",
    "hidden",
    "inexact",
    "is_differentiable",
    "is_in",
    "metas_of",
]


# A global of ours is found faster than an attribute of NumPy.
_ndarray = np.ndarray

# Shape and dtype of one of several outputs, to check its gradient, and its device, as a
# gradient of zeros may be needed.
Meta = tuple[Any, ...]


class Leaf:
    """Where a gradient ends: an input of the transform, or a variable."""

    __slots__ = ("grad", "node_dtype", "node_shape")

    node_is_unary = False

    def __init__(self, value: Any) -> None:
        self.node_shape: Any = value.shape
        self.node_dtype: Any = value.dtype
        self.grad: Any = None


class Output:
    """One of several outputs of a call, as edges name it."""

    __slots__ = ("index", "node", "node_dtype", "node_shape")

    node_is_unary = False

    def __init__(self, node: GradNode, index: int, metas: Meta) -> None:
        self.node: GradNode = node
        self.index: int = index
        self.node_shape: Any = metas[0]
        self.node_dtype: Any = metas[1]


# From a tracked input of a call to its origin: number of the parameter, path inside the
# argument, and the leaf, node or output that made it.
Edge = tuple[int, tuple[int, ...], Any]


class GradNode:
    """One call of an operator, as its backward formula sees it: the `ctx`.

    Rules may set attributes of their own; names that begin with ``node_`` are the
    package's.

    Attributes
    ----------
    needs_input_grad : tuple
        For each positional input, whether its gradient is needed; nested as the inputs
        are.
    saved_arrays : tuple of array
        The arguments of `save_for_backward`; `saved_tensors` is the same.
    """

    # What every node has. What rules set lies in `__dict__`, which few nodes need: a
    # node with slots alone takes 120 ns less.
    __slots__ = (
        "__dict__",
        "__weakref__",
        "node_blocked",
        "node_dtype",
        "node_edges",
        "node_number",
        "node_shape",
        "saved_arrays",
    )

    # Defaults are on the class, so that most calls set few attributes.
    node_materialize: bool = True
    # When arrays were saved, if that is later than the node.
    node_moment: int = 0
    # Metas of several results, or of one that is nested.
    node_metas: list[Any] | None = None
    # The arguments without their arrays, where arguments are nested.
    node_inputs: Sequence[Any] = ()
    node_is_unary = False
    # Whether backward returns gradients of the tracked arguments alone, in order.
    node_is_partial = False
    # The argument of a unary node.
    node_slots: tuple[int, ...] = (0,)
    # Whether the node adds its gradients to what has come to its arguments from later
    # calls, as a node of many calls must: a sum of floats depends on the order.
    # `node_pull` then takes the gradients of its outputs, for each edge that sum or None,
    # and whether it keeps what it has saved; it returns origins with the whole sums.
    node_takes_sums = False
    node_pull: Callable[[Any, list[Any], list[Any], bool], list[tuple[Any, Any]]]
    # Checksums of what the node keeps, while its function is watched: see `saved`.
    node_watch: Any
    # Set on the class of each operator's nodes, see `plans`.
    node_op: RuleTable
    node_rule: GradRule
    node_backward: Callable[..., Any]

    def __init__(self, edges: Sequence[Edge]) -> None:
        self.saved_arrays: tuple[Any, ...] = ()
        # None once the node is freed.
        self.node_edges: Sequence[Edge] | None = edges
        # Of the result, to check its gradient. They take 50 ns less than a tuple.
        self.node_shape: Any = None
        self.node_dtype: Any = None
        # The results that `mark_non_differentiable` names. A slot, which is read in a
        # fifth of the time that a default on the class takes.
        self.node_blocked: tuple[Any, ...] = ()
        # Nodes are numbered in the order of their calls.
        self.node_number: int = next(moments)

    @property
    def needs_input_grad(self) -> tuple[Any, ...]:
        """For each positional input, whether its gradient is needed."""
        op = self.node_op
        edges = self.node_edges or ()
        if not op.nested_slots:
            slots = [edge[0] for edge in edges]
            return tuple([i in slots for i in range(op.positional_count)])
        if op.list_slot >= 0:  # as below, in a fifth of the time
            of_list = [False] * len(self.node_inputs[op.list_slot])
            for _, path, _ in edges:
                of_list[path[0]] = True
            needs: list[Any] = [False] * op.positional_count
            needs[op.list_slot] = of_list
            return tuple(needs)
        tracked = {(edge[0], edge[1]) for edge in edges}
        return tuple(
            _nested_needs(self.node_inputs[slot], slot, tracked)
            for slot in range(op.positional_count)
        )

    def save_for_backward(self, *arrays: Any) -> None:
        """Keep arrays, or None in their places, until the backward formula runs.

        Raises
        ------
        GradientError
            If a value is not an array.
        """
        for value in arrays:
            if type(value) is _ndarray or value is None:
                continue
            if not is_array(value):
                raise self.node_op.error(
                    GradientError,
                    f"save_for_backward takes arrays, got {show(value)}",
                    do="set other values as attributes: ctx.axis = axis",
                    parameter=None,
                )
        self.saved_arrays = arrays
        if writes:
            self.node_moment = next(moments)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """Torch's name for `saved_arrays`."""
        return self.saved_arrays

    def mark_non_differentiable(self, *outputs: Any) -> None:
        """Say that no gradient flows through these outputs."""
        self.node_blocked = outputs

    def set_materialize_grads(self, value: bool) -> None:
        """Say whether missing gradients of outputs come as zeros or as None."""
        self.node_materialize = value


class UnaryNode(GradNode):
    """A call whose only array is the first argument, and whose result is one array.

    Its `node_edges` is the origin of that array alone, without tuples: 40 ns a call.
    """

    __slots__ = ()
    node_is_unary = True

    @property
    def needs_input_grad(self) -> tuple[Any, ...]:
        """For each positional input, whether its gradient is needed."""
        return (True, *(False,) * (self.node_op.positional_count - 1))


def _nested_needs(value: Any, slot: int, tracked: set[Any]) -> Any:
    """Whether gradients are needed, nested as an argument is; tuples as lists."""

    def build(part: Any, needs: list[Any]) -> Any:
        return needs if type(part) is tuple else outline(part, needs)

    return map_paths(value, lambda _, path: (slot, path) in tracked, build)


# ---- which values have derivatives ----


def is_in(value: Any, values: Iterable[Any]) -> bool:
    """Whether a value is one of these objects."""
    return any(value is item for item in values)


def is_differentiable(value: Any, blocked: Sequence[Any]) -> bool:
    """Whether a result has a derivative, and gradients may flow through it."""
    return is_array(value) and is_inexact(value.dtype) and not is_in(value, blocked)


def metas_of(part: Any, blocked: Sequence[Any]) -> Any:
    """Metas of one output, nested as it is; None where no gradient can flow."""
    found = children(part)
    if found is not None:
        metas = [metas_of(item, blocked) for item in found]
        return outline(part, metas) if type(part) in nests else metas
    if not is_differentiable(part, blocked):
        return None
    return (tuple(part.shape), part.dtype, device_of(part))


_FLAT = frozenset((tuple, type(None)))


def flat_metas(outputs: Any) -> list[Any]:
    """Metas of all outputs, one for each place that an edge can name."""
    if type(outputs) is list and _FLAT.issuperset(map(type, outputs)):  # as usual
        return outputs
    if type(outputs) is list or type(outputs) in nests:
        return [leaf for item in children(outputs) or () for leaf in flat_metas(item)]
    return [outputs]


class _Inexact(dict[Any, bool | None]):
    """Dtype -> whether its values have derivatives; None for those that hide numbers.

    Arrays of objects, dates and durations are computed with, and no gradient can follow.
    Dtypes of other libraries are in a dict of their own: some have the hash of NumPy's,
    and warn when they are compared with them.
    """

    def __missing__(self, dtype: Any) -> bool | None:
        if not isinstance(dtype, np.dtype):
            if dtype not in _foreign:
                _foreign[dtype] = is_inexact(dtype)
            return _foreign[dtype]
        self[dtype] = found = None if dtype.kind in "OmM" else is_inexact(dtype)
        return found


_foreign: dict[Any, bool] = {}


def hidden(op: RuleTable, out: Any) -> GradientError:
    """The error for a tracked value that becomes an array of objects or durations."""
    return op.error(
        GradientError,
        f" returns {abbreviated(out)} of a tracked value: no gradient goes through such an"
        " array",
        do="keep to arrays of numbers, or pass stop_gradient(x) for the value alone",
    )


inexact: _Inexact = _Inexact()
# NumPy's object for most arrays: to compare it takes less than to look it up.
double: np.dtype[Any] = np.dtype(np.float64)
