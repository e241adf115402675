"""The tape of reverse mode: nodes, tracers, and calls as rules see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from customop.arrays.array import Array, is_inexact
from customop.arrays.kinds import device_of, is_array
from customop.arrays.nested import (
    abbreviated,
    children,
    describe,
    map_nested,
    map_outline,
    map_paths,
    nests,
    outline,
    show,
)
from customop.core.builtin_kinds import GradRule
from customop.core.contract import moments, writes
from customop.core.dispatch import SCALARS
from customop.core.interpreter import Interpreter
from customop.core.observe import observed, observers
from customop.core.table import RuleTable
from customop.core.tracer import Tracer
from customop.errors import GradientError

# A global of ours is found faster than an attribute of NumPy.
_ndarray = np.ndarray


# Shape and dtype of one of several outputs, to check its gradient, and its device, as a
# gradient of zeros may be needed.
Meta = tuple[Any, ...]


# From a tracked input of a call to its origin: number of the parameter, path inside the
# argument, and the leaf, node or output that made it.
Edge = tuple[int, tuple[int, ...], Any]


class Leaf:
    """The place where a gradient ends: an input of the transform, or a variable."""

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
    # Checksums of what the node keeps, while its function is watched: see `reverse`.
    node_watch: Any
    # Set on the class of each operator's nodes, see `reverse_plans`.
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
        """True for each positional input whose gradient is needed."""
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
        """True for each positional input whose gradient is needed."""
        return (True, *(False,) * (self.node_op.positional_count - 1))


def _nested_needs(value: Any, slot: int, tracked: set[Any]) -> Any:
    """Return whether gradients are needed, nested as an argument is; tuples as lists."""

    def build(part: Any, needs: list[Any]) -> Any:
        return needs if type(part) is tuple else outline(part, needs)

    return map_paths(value, lambda _, path: (slot, path) in tracked, build)


# ---- the tracer of reverse mode ----


class GradTracer(Tracer):
    """A value whose gradient is computed, or that depends on one.

    Attributes
    ----------
    grad : array or None
        For a `variable`: the sum of the gradients of all `backward` calls so far.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> x = co.variable(np.array([1.0, 2.0]))
    >>> y = np.sum(x * x)
    >>> isinstance(y, co.GradTracer)
    True
    >>> y.backward()
    >>> x.grad
    array([2., 4.])
    """

    __slots__ = ("node",)

    def __init__(self, interpreter: Interpreter, value: Any, node: Any) -> None:
        self.interpreter: Interpreter = interpreter
        self.below = value
        self.box_place: Any = None
        self.box_views: Any = None
        self.node: Any = node

    @property
    def grad(self) -> Array | None:
        """Sum of the gradients that `backward` has brought to a `variable`, or None."""
        return self.node.grad if type(self.node) is Leaf else None

    @grad.setter
    def grad(self, value: Array | None) -> None:
        if type(self.node) is not Leaf:
            raise GradientError(
                f"x.grad: {describe(self)} is not a variable, so its gradient cannot be"
                " set",
                do="set it on x = variable(a)",
            )
        if value is not None and not is_array(value):
            raise GradientError(
                f"x.grad must be an array or None, got {show(value)}",
                do="set an array of the shape of the variable, or None",
            )
        self.node.grad = value

    def backward(
        self, gradient: Array | float | None = None, *, retain_graph: bool = False
    ) -> None:
        """Add the gradient of this value to the `grad` of its variables; see `backward`.

        Parameters
        ----------
        gradient : array, optional
            Cotangent of this value; needed where it has axes.
        retain_graph : bool
            Keep the saved arrays, so that `backward` can run again.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> x = co.variable(np.array([1.0, 2.0]))
        >>> (x * x).backward(np.array([1.0, 10.0]))
        >>> x.grad
        array([ 2., 40.])
        """
        interpreter: Any = self.interpreter  # a GradInterpreter
        interpreter.backward(self, gradient, retain_graph)


def end_of(value: Any, interpreter: Interpreter) -> Any:
    """Return the node that made a tracer of this interpreter, None for other values."""
    mine = isinstance(value, GradTracer) and value.interpreter is interpreter
    return value.node if mine else None


def no_variable(y: Any) -> GradientError:
    """Return the error for `backward` of a value that depends on no variable."""
    return GradientError(
        f"backward: {show(y)} depends on no variable",
        do="compute it from x = variable(a), outside no_grad()",
    )


# ---- a call of an operator under reverse mode, as its rule sees it ----


class TrackedCall:
    """A call under one running gradient; see `GradCall`."""

    __slots__ = ("args", "edges", "interpreter", "nodes", "op", "values")

    def __init__(
        self,
        interpreter: Interpreter,
        op: RuleTable,
        nodes: type[GradNode],
        args: Sequence[Any],
    ) -> None:
        self.interpreter: Interpreter = interpreter
        self.op: RuleTable = op
        self.nodes: type[GradNode] = nodes
        self.args: Sequence[Any] = args
        self.edges: list[Edge] = []
        self.values: list[Any] = list(args)
        values = self.values
        for slot in op.array_slots:
            value = values[slot]
            if type(value) is GradTracer and value.interpreter is interpreter:
                if value.node is not None:
                    self.edges.append((slot, (), value.node))
                values[slot] = value.below
        for slot in op.nested_slots:
            values[slot] = map_paths(values[slot], partial(self._lower_leaf, slot))

    def _lower_leaf(self, slot: int, value: Any, path: tuple[int, ...]) -> Any:
        if type(value) is GradTracer and value.interpreter is self.interpreter:
            if value.node is not None:
                self.edges.append((slot, path, value.node))
            return value.below
        return value

    def lower(self, value: Any) -> Any:
        """Return the value below a tracer of this gradient; other values as they are."""
        return self.interpreter.lower(value)

    def node(self) -> GradNode:
        """Make the node of the call."""
        node = self.nodes(self.edges)
        if self.op.nested_slots:
            node.node_inputs = [emptied(value) for value in self.values]
        return node

    def set_up(
        self, node: GradNode, setup_context: Callable[..., Any], out: Any
    ) -> None:
        """Let the user's function save what the backward formula needs."""
        setup = observed_setup(self.op, setup_context) if observers else setup_context
        positional, keywords = self.op.schema.split(self.values)
        inputs = tuple(positional)
        if keywords:
            setup(ctx=node, inputs=inputs, keyword_only_inputs=keywords, output=out)
        else:
            setup(ctx=node, inputs=inputs, output=out)

    def track(self, node: GradNode, out: Any) -> Any:
        """Return the result with its differentiable arrays tracked to the node."""
        schema = self.op.schema
        blocked = node.node_blocked
        if schema.single_return:
            if not is_differentiable(out, blocked):
                if is_array(out) and inexact[out.dtype] is None:
                    raise hidden(self.op, out)
                return out
            node.node_shape, node.node_dtype = out.shape, out.dtype
            return GradTracer(self.interpreter, out, node)
        parts = list(out) if schema.is_tuple else [out]
        if schema.is_tuple and _PLAIN.issuperset(map(type, parts)):
            return self._tracked(node, parts, blocked)
        node.node_metas = found = [metas_of(part, blocked) for part in parts]
        metas = enumerate(flat_metas(found))

        def wrap(value: Any) -> Any:
            at, meta = next(metas)
            if meta is None:
                return value
            return GradTracer(self.interpreter, value, Output(node, at, meta))

        tracked = [map_nested(part, wrap) for part in parts]
        return tuple(tracked) if schema.is_tuple else tracked[0]

    def _tracked(
        self, node: GradNode, parts: list[Any], blocked: Sequence[Any]
    ) -> tuple[Any, ...]:
        """Do what `track` does for several plain arrays, in a third of the time."""
        node.node_metas = metas = [metas_of(part, blocked) for part in parts]
        for at, meta in enumerate(metas):
            if meta is not None:
                origin = Output(node, at, meta)
                parts[at] = GradTracer(self.interpreter, parts[at], origin)
        return tuple(parts)


_PLAIN = frozenset((np.ndarray, *SCALARS))


def emptied(value: Any) -> Any:
    """Return the nesting of an argument, without the arrays in it."""
    return map_outline(value, lambda _: None)


def observed_setup(op: RuleTable, setup: Any) -> Callable[..., None]:
    """Return a setup function that is shown to observers."""

    def run(*args: Any, **keywords: Any) -> None:
        given = [*args, *keywords.values()][1:]  # without ctx, which comes first
        observed(op, "setup_context", setup, given)(*args, **keywords)

    return run


# ---- which values have derivatives ----


def is_in(value: Any, values: Iterable[Any]) -> bool:
    """Return whether a value is one of these objects."""
    return any(value is item for item in values)


def is_differentiable(value: Any, blocked: Sequence[Any]) -> bool:
    """Return whether a result has a derivative, and gradients may flow through it."""
    return is_array(value) and is_inexact(value.dtype) and not is_in(value, blocked)


def metas_of(part: Any, blocked: Sequence[Any]) -> Any:
    """Return metas of one output, nested as it is; None where no gradient can flow."""
    found = children(part)
    if found is not None:
        metas = [metas_of(item, blocked) for item in found]
        return metas if type(part) in (list, tuple) else outline(part, metas)
    if not is_differentiable(part, blocked):
        return None
    return (tuple(part.shape), part.dtype, device_of(part))


def flat_metas(outputs: Any) -> list[Any]:
    """Return metas of all outputs, one for each place that an edge can name."""
    if type(outputs) is list and _FLAT.issuperset(map(type, outputs)):  # as usual
        return outputs
    if type(outputs) is tuple or type(outputs) not in nests:
        return [outputs]
    return [leaf for item in children(outputs) or () for leaf in flat_metas(item)]


_FLAT = frozenset((tuple, type(None)))


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


inexact: _Inexact = _Inexact()


# NumPy's object for most arrays: to compare it takes less than to look it up.
double: np.dtype[Any] = np.dtype(np.float64)


def hidden(op: RuleTable, out: Any) -> GradientError:
    """Return the error for a tracked value that becomes an array of objects or dates."""
    return op.error(
        GradientError,
        f" returns {abbreviated(out)} of a tracked value: no gradient goes through such an"
        " array",
        do="keep to arrays of numbers, or pass stop_gradient(x) for the value alone",
    )
