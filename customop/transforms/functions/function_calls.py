"""How transforms handle calls of functions with their own derivatives."""

from __future__ import annotations

import copy
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.array import is_inexact
from customop.arrays.kinds import is_array, is_traced
from customop.arrays.nested import Structure, flatten, placed, unflatten
from customop.arrays.numpy_functions import call_numpy
from customop.core.builtin_kinds import AUTOGRAD, JVP, VMAP, GradCall, GradRule
from customop.core.contract import readonly
from customop.core.interpreter import Interpreter, current_mode, highest, leaked
from customop.core.observe import observed, observers
from customop.core.rule_kind import Definition, Row
from customop.core.rule_types import BatchInfo
from customop.core.table import CallWriter, Plans, RuleTable
from customop.core.tracer import Pinned, frozen, handle_boxes
from customop.errors import (
    GradientError,
    LeakedTracerError,
    innermost,
    place,
    quoted,
)
from customop.later import later
from customop.schema.schema import Schema
from customop.transforms.autograd.reverse import NO_GRAD, GradInterpreter
from customop.transforms.autograd.tape import GradNode, GradTracer, TrackedCall
from customop.transforms.autograd.variables import stop_gradient
from customop.transforms.vmap_interpreter import BatchInterpreter, BatchTracer

# The module that captures calls for graph files; imported on first use.
function_operators: ModuleType = later(
    import_module, "customop.transforms.functions.function_operators"
)


# ---- arguments and results as lists of arrays ----


_ndarray = np.ndarray
# The structure of a lone leaf, such as an array.
_LEAF: Structure = flatten(0.0)[1]


class Parts:
    """A pytree without its arrays.

    Attributes
    ----------
    structure : Structure
    leaves : list
        All leaves, with None in the places of arrays.
    at : list of int
        The places of the arrays.
    """

    __slots__ = ("at", "leaves", "structure")

    def __init__(self, tree: Any) -> None:
        self.leaves: list[Any]
        self.structure: Structure
        if type(tree) is _ndarray:  # a tenth of the time
            self.leaves, self.structure = [tree], _LEAF
            self.at: list[int] = [0]
            return
        self.leaves, self.structure = flatten(tree)
        self.at = [i for i, v in enumerate(self.leaves) if is_array(v)]

    @property
    def identity(self) -> tuple[Any, ...]:
        """Return a key that is equal for trees that differ only in their arrays."""
        at = set(self.at)
        others = [v for i, v in enumerate(self.leaves) if i not in at]
        return (self.structure, *((type(v), repr(v)) for v in others))

    @classmethod
    def of(cls, tree: Any) -> tuple[Parts, list[Any]]:
        """Split a tree into its parts and its arrays."""
        parts = cls(tree)
        arrays = [parts.leaves[i] for i in parts.at]
        for i in parts.at:
            parts.leaves[i] = None
        return parts, arrays

    def tree(self, arrays: Sequence[Any]) -> Any:
        """Return the tree with `arrays` in their places."""
        if self.structure is _LEAF and self.at:
            return arrays[0]
        return unflatten(self.structure, placed(self.leaves, self.at, arrays))

    def beside(self, values: Sequence[Any]) -> Any:
        """Return a tree of derivatives, nested like this tree.

        It has `values` in the places of arrays (0.0 for None), 0.0 in the places of
        numbers, and None in all others.
        """
        if self.structure is _LEAF and self.at:
            return 0.0 if values[0] is None else values[0]
        numbers = [_zero(leaf) for leaf in self.leaves]
        given = [0.0 if value is None else value for value in values]
        return unflatten(self.structure, placed(numbers, self.at, given))


def _zero(leaf: Any) -> Any:
    return 0.0 if isinstance(leaf, int | float | complex) else None


def moves(value: Any) -> bool:
    """Return whether an array can have derivatives."""
    return bool(is_inexact(value.dtype))


def sealed_inputs(inputs: Sequence[Any]) -> list[Any]:
    """Return read-only versions of inputs."""
    return [readonly(value) for value in inputs]


def own(outputs: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Copy results that share memory with inputs or other results; return all of them."""
    seen = [*inputs]
    found = []
    for value in outputs:
        new = value.copy("K") if _is_shared(value, seen) else value  # scalars stay
        found.append(frozen(new))
        seen.append(value)
    return found


def _is_shared(value: Any, seen: Sequence[Any]) -> bool:
    if is_traced(value):
        place = value.box_place
        is_sealed = type(place) is Pinned and place.is_sealed
        return is_sealed or type(place) is tuple or any(value is v for v in seen)
    if type(value) is not np.ndarray:
        return False
    arrays = [v for v in seen if type(v) is np.ndarray]
    return not value.flags.writeable or any(
        np.may_share_memory(value, v) for v in arrays
    )


# ---- a call of a function with its own derivatives ----
# The function and its rules take and return lists of arrays. Each call has a table with
# rules for the three transforms, so their interpreters handle it like an operator. A
# rule gets values of lower levels and calls the function on them; `enter` then finds
# the next interpreter. So every nesting works and uses the custom rules.


Arrays = Sequence[Any]


class Forward(NamedTuple):
    """The results of the forward pass of reverse mode.

    Attributes
    ----------
    outputs : sequence of array
    saved : sequence of array
        Arrays that the backward pass needs.
    rest : object
        Other values that the backward pass needs.
    """

    outputs: Arrays
    saved: Arrays
    rest: Any


class FunctionTable(RuleTable):
    """The rule table of one function. Each call gets a copy with its own rules."""

    # The call that the copy belongs to.
    made_for: FunctionCall
    # The rule of the nodes of all calls.
    rule: FunctionRule

    def __init__(self, title: str, fn: Callable[..., Any]) -> None:
        name = getattr(fn, "__name__", type(fn).__name__)
        super().__init__(
            Definition(
                f"{title}::{name}",
                fn,
                Schema.parse("(Array[] arrays) -> Array[]"),
                frozenset(),
                place(fn),
                str(getattr(fn, "__module__", "")),
            )
        )
        self.rule = FunctionRule(self.definition.place)

    def writer(self, args: Sequence[Any], sizes: Any) -> CallWriter:
        """Return the object that writes a call to a graph file; `args` are its node's."""
        inputs = [node.val for node in args[0]]
        writer: CallWriter = function_operators.FunctionWriter(
            self.made_for, inputs, sizes
        )
        return writer

    def forget_plans(self) -> None:
        """Free the plans that the transforms made of the rules, which refer to the table."""
        plans = self.plans.by_tracer
        for kind in [kind for kind in plans if kind is not GradTracer]:
            del plans[kind]

    def of_call(self, fn: FunctionCall, top: Interpreter) -> FunctionTable:
        """Return a copy of the table with the rules of one call."""
        table = copy.copy(self)
        table.made_for = fn
        table.plans = Plans()
        # A weak reference, so that the arrays of the call are freed at once.
        table.plans.by_tracer[GradTracer] = partial(_plan, fn, weakref.ref(table))
        table.run = lambda arrays: enter(fn, arrays)
        table.invoke = lambda args: enter(fn, args[0])
        where = self.definition.place
        table.rows = {
            AUTOGRAD: Row(self.rule, where),
            VMAP: Row(partial(_by_vmap, fn, top), where),
        }
        if fn.has_push:
            table.rows[JVP] = Row(partial(_by_jvp, fn, top), where)
        return table


class FunctionCall(ABC):
    """One call of a function with its own derivatives, or a batch of such calls.

    Attributes
    ----------
    table : FunctionTable
        The table of the function, for messages and observers.
    """

    table: FunctionTable
    # ``push(primals, tangents)`` returns the outputs and their tangents; the tangent of
    # a constant is None. Without `has_push` forward mode transposes the reverse-mode
    # rule.
    push: Any = None

    @property
    def identity(self) -> tuple[Any, ...]:
        """Return a key that is equal for calls that compute the same from the same arrays."""
        return (self,)

    @property
    def has_rule(self) -> bool:
        """Return whether the call has a rule for derivatives."""
        return True

    @property
    def has_push(self) -> bool:
        """Return whether the call has a rule for forward mode."""
        return self.push is not None

    @abstractmethod
    def run(self, inputs: Arrays) -> Arrays:
        """Compute the outputs."""

    @abstractmethod
    def forward(self, inputs: Arrays, wanted: Sequence[bool]) -> Forward:
        """Compute the outputs, and whatever the gradients of the wanted inputs need."""

    @abstractmethod
    def backward(self, saved: Arrays, rest: Any, cotangents: Arrays) -> Arrays:
        """Return gradients of the inputs, None for zero; a cotangent of integers is None."""

    @abstractmethod
    def batched(
        self, batch: BatchInterpreter, dims: Sequence[int | None]
    ) -> FunctionCall:
        """Return the call for a batch; its outputs have the axis of the batch in front."""

    def opened(
        self, error: GradientError, top: Interpreter, given: Arrays, inputs: Arrays
    ) -> tuple[FunctionCall, Arrays] | None:
        """Return a call with values from outside as more inputs, and all its inputs.

        Return None if the call cannot be changed so. `given` are the inputs, and
        `inputs` are the values below the transform `top`, under which the error was
        raised.
        """
        return None


# ---- choice of the interpreter ----


def enter(fn: FunctionCall, inputs: Arrays) -> Arrays:
    """Call a function on values of any level; the highest interpreter handles it."""
    top = highest(None, inputs)
    if top is not None and _is_stopped(top):
        inputs = [stop_gradient(v) if is_traced(v) else v for v in inputs]
        top = highest(None, inputs)
    if top is None:
        return fn.run(inputs)
    if type(top) is GradInterpreter and are_plain(top, inputs):
        # No other transform sees the call, so it needs no table of its own.
        return _recorded(fn, fn.table, top, (list(inputs),))  # type: ignore[no-any-return]  # arrays
    op = fn.table.of_call(fn, top)
    if not top.alive:
        raise leaked(op, top)
    args = (list(inputs),)
    handle = observed(op, top, top.handle, args) if observers else top.handle
    try:
        found: Arrays = handle_boxes(handle, top, op, args)
    finally:
        op.forget_plans()
    return found


def are_plain(top: GradInterpreter, inputs: Arrays) -> bool:
    """Return whether all inputs are NumPy arrays, or these tracked by one gradient alone."""
    if observers or not top.alive or top.written_inputs or current_mode.get():
        return False
    for value in inputs:
        below = value
        if type(value) is GradTracer:
            if value.interpreter is not top:
                return False
            below = value.below
        if type(below) is not _ndarray:
            return False
    return True


def _is_stopped(top: Interpreter) -> bool:
    """Return whether the call is inside a `no_grad` that is inside the transform.

    Other modes need no check: they see the operators that the function calls.
    """
    mode = current_mode.get()
    while mode is not None:
        if mode.alive and mode.kind is NO_GRAD and mode.level > top.level:
            return True
        mode = mode.outer
    return False


def check_closed(table: FunctionTable, top: Interpreter, values: Arrays) -> None:
    """Raise if a value depends on a value of `top` that is not an argument."""
    if any(found is top for v in values for found in _interpreters(v)):
        raise _not_closed(table, top)


def check_below(table: FunctionTable, top: Interpreter, values: Arrays) -> None:
    """Raise if a result belongs to the level of `top` or above, unlike the arguments."""
    intruder = _intruder(top, values)
    if intruder is not None:
        raise _not_closed(table, intruder)


def check_no_others(table: FunctionTable, values: Arrays, found: Arrays) -> None:
    """Raise if what was found belongs to a transform to which no value belongs."""
    known = {id(one) for v in values for one in _interpreters(v)}
    for value in found:
        for one in _interpreters(value):
            if id(one) not in known:
                raise _not_closed(table, one)


def _intruder(top: Interpreter, values: Arrays) -> Interpreter | None:
    """Return a transform at or above the level of `top` that a value uses, or None."""
    found: Interpreter | None = highest(None, values)
    return found if found is not None and found.level >= top.level else None


def _not_closed(table: FunctionTable, intruder: Interpreter) -> GradientError:
    names = _outer_names(table.definition.fn, intruder)
    seen = f"{quoted(names)}, " if names else ""
    error: Any = table.error(
        GradientError,
        f" uses {seen}a value of {intruder.describe()} that is not among its arguments, so"
        " its derivative would be lost",
        intruder.where(),
        f"defined at {table.definition.place}",
        do=f"pass {quoted(names) or 'the value'} as an argument",
        parameter=None,
    )
    error.intruder = intruder
    return error  # type: ignore[no-any-return]  # with one attribute more


def _outer_names(fn: Any, intruder: Interpreter) -> list[str]:
    """Return the names outside of a function whose values belong to a transform."""
    own = innermost(fn)
    code = getattr(own, "__code__", None)
    cells = zip(code.co_freevars, own.__closure__ or (), strict=True) if code else ()
    outer = {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}
    names = getattr(code, "co_names", ())
    outer |= {n: own.__globals__[n] for n in names if n in own.__globals__}
    return [
        name
        for name, value in outer.items()
        if any(
            found is intruder for v in flatten(value)[0] for found in _interpreters(v)
        )
    ]


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # not assigned yet
        return False


def _interpreters(value: Any) -> Iterator[Interpreter]:
    """Yield the interpreters of a traced value and of the values below it."""
    while is_traced(value):
        yield value.interpreter
        value = value.below


# ---- reverse mode ----


class FunctionRule(GradRule):
    """The reverse-mode rule in the table of a call. The table's plan does the work."""

    __slots__ = ("where",)
    backward = None

    def __init__(self, where: str) -> None:
        self.where: str = where

    def forward(self, call: GradCall) -> Any:
        """Raise: it is never called, because the table has a plan."""
        raise AssertionError(self)

    def check(self, op: Definition) -> None:
        """Accept every function."""

    @property
    def backward_place(self) -> str:
        """The file and line of the function."""
        return self.where

    @property
    def places(self) -> tuple[str, ...]:
        """The file and line of the function."""
        return (self.where,)


class FunctionNode(GradNode):
    """The node of one call under reverse mode."""

    node_call: FunctionCall
    node_rest: Any
    node_top: Interpreter

    @staticmethod
    def node_backward(node: FunctionNode, cotangents: Arrays) -> tuple[Any, ...]:
        """Return the gradients of the arrays."""
        top, table = node.node_top, node.node_call.table
        try:
            found = node.node_call.backward(
                node.saved_arrays, node.node_rest, cotangents
            )
        except LeakedTracerError as error:
            explain_outlived(table, top, error)
            raise
        check_closed(table, top, [g for g in found if g is not None])
        return (list(found),)


def explain_outlived(table: FunctionTable, top: Interpreter, error: Exception) -> None:
    """Raise our error if a rule has used a value of `top` after `top` had ended."""
    if (
        isinstance(error, LeakedTracerError)
        and not top.alive
        and f"a value of {top.describe()}," in error.what
    ):
        raise _not_closed(table, top) from error


def _plan(
    fn: FunctionCall,
    table: weakref.ref[FunctionTable],
    interpreter: GradInterpreter,
    args: Any,
) -> Any:
    """Run a call under reverse mode, and record what its backward pass needs."""
    op = table()
    assert op is not None  # it is being called
    return _recorded(fn, op, interpreter, args)


def _recorded(
    fn: FunctionCall, op: FunctionTable, interpreter: GradInterpreter, args: Any
) -> Any:
    call = TrackedCall(interpreter, op, FunctionNode, args)
    inputs = call.values[0]
    if not call.edges:
        return [interpreter.constant(v) for v in enter(fn, inputs)]
    tracked = {path[0] for _, path, _ in call.edges}
    try:
        found = fn.forward(inputs, [i in tracked for i in range(len(inputs))])
        check_below(fn.table, interpreter, [*found.outputs, *found.saved])
    except GradientError as error:
        opened = fn.opened(error, interpreter, args[0], inputs)
        if opened is None:
            raise
        return enter(*opened)
    node: Any = call.node()
    node.node_op, node.node_rule = op, fn.table.rule
    node.node_call, node.node_rest, node.node_top = fn, found.rest, interpreter
    node.saved_arrays = tuple(frozen(v) for v in found.saved)
    return call.track(node, list(found.outputs))


# ---- forward mode ----


def _by_jvp(
    fn: FunctionCall, top: Interpreter, primals: Any, tangents: Any
) -> tuple[Any, Any]:
    outputs, moved = fn.push(primals[0], tangents[0])
    check_below(fn.table, top, [*outputs, *(t for t in moved if t is not None)])
    return list(outputs), list(moved)


# ---- batches ----


def _by_vmap(
    fn: FunctionCall, top: Any, info: BatchInfo, in_dims: Any, inputs: Any
) -> tuple[Any, Any]:
    found = enter(fn.batched(top, in_dims[0]), inputs)
    return list(found), [0] * len(found)


# ---- rows of batches ----


class Rows:
    """Converts batches to rows, and rows to batches.

    The interpreter of the vmap is used if possible, so that a function may use other
    rows of the same batch. A new one is needed if the vmap has ended, or if another
    transform runs around the function, because a tracer may only hold values of lower
    levels.
    """

    __slots__ = ("batch", "dims", "outer", "table")

    def __init__(
        self,
        table: FunctionTable,
        batch: BatchInterpreter,
        dims: Sequence[int | None],
        outer: BatchInterpreter | None = None,
    ) -> None:
        self.table: FunctionTable = table
        self.batch: BatchInterpreter = batch
        self.dims: Sequence[int | None] = dims
        # The interpreter of the vmap if it is not used. Its rows are then an error.
        self.outer: BatchInterpreter | None = outer

    def around(self, *values: Any) -> Rows:
        """Return this object, or one with a new interpreter that can hold these values."""
        batch = self.batch
        top = highest(None, values)
        if batch.alive and (top is None or top.level < batch.level):
            return self
        new = BatchInterpreter(
            batch.info.batch_size, batch.info.randomness, batch.draws
        )
        new.fn = batch.fn
        return Rows(self.table, new, self.dims, batch)

    def of(self, values: Arrays, dims: Sequence[int | None] | None = None) -> list[Any]:
        """Convert batches to rows; None stays."""
        pairs = zip(values, self.dims if dims is None else dims, strict=True)
        return [
            v if d is None or v is None else BatchTracer(self.batch, frozen(v), d)
            for v, d in pairs
        ]

    def front(self, value: Any) -> Any:
        """Convert a row to a batch with its axis in front; None stays."""
        if value is None:
            return None
        if self.outer is not None:
            check_closed(self.table, self.outer, [value])
        if self.batch.dim_of(value) is None:
            check_below(self.table, self.batch, [value])
        dim = self.batch.dim_of(value)
        if dim is None:
            shape = (self.batch.info.batch_size, *value.shape)
            return call_numpy(np.broadcast_to, frozen(value), shape)
        below = frozen(value.below)
        return below if dim == 0 else call_numpy(np.moveaxis, below, dim, 0)

    def gradient(self, value: Any, dim: int | None) -> Any:
        """Return the gradient of an input, summed over the rows if they share the input."""
        if value is None:
            return None
        batch = self.front(value)
        if dim is None:
            return call_numpy(np.sum, batch, axis=0)
        return batch if dim == 0 else call_numpy(np.moveaxis, batch, 0, dim)
