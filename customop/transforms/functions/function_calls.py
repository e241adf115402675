"""Calls of functions with derivatives of their own, as transforms see them."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.array import is_inexact
from customop.arrays.kinds import is_array, is_traced
from customop.arrays.nested import Structure, flatten, unflatten
from customop.arrays.numpy_functions import call_numpy
from customop.core.builtin_kinds import AUTOGRAD, JVP, VMAP, GradCall, GradRule
from customop.core.contract import readonly
from customop.core.interpreter import Interpreter, current_mode, highest, leaked
from customop.core.observe import observed, observers
from customop.core.rule_kind import Definition, Row
from customop.core.rule_makers import BatchInfo
from customop.core.table import CallWriter, Plans, RuleTable
from customop.core.tracer import Pinned, frozen, handle_boxes
from customop.errors import GradientError, LeakedTracerError, place
from customop.later import later
from customop.schema.schema import Schema
from customop.transforms.autograd.reverse import NO_GRAD, GradInterpreter
from customop.transforms.autograd.tape import GradNode, GradTracer, TrackedCall
from customop.transforms.autograd.variables import stop_gradient
from customop.transforms.vmap_interpreter import BatchInterpreter, BatchTracer

# Captures calls for graph files.
function_operators: ModuleType = later(
    import_module, "customop.transforms.functions.function_operators"
)


# ---- arguments and results of a function as lists of arrays, and back ----


class Parts:
    """A tree without its arrays.

    Attributes
    ----------
    structure : Structure
    leaves : list
        All leaves, with None in the places of arrays.
    at : list of int
        Those places.
    """

    __slots__ = ("at", "leaves", "structure")

    def __init__(self, tree: Any) -> None:
        self.leaves: list[Any]
        self.structure: Structure
        self.leaves, self.structure = flatten(tree)
        self.at: list[int] = [i for i, v in enumerate(self.leaves) if is_array(v)]

    @property
    def identity(self) -> tuple[Any, ...]:
        """A key, equal for trees that differ in their arrays alone."""
        at = set(self.at)
        others = [v for i, v in enumerate(self.leaves) if i not in at]
        return (self.structure, *((type(v), repr(v)) for v in others))

    @classmethod
    def of(cls, tree: Any) -> tuple[Parts, list[Any]]:
        """The parts of a tree, and its arrays."""
        parts = cls(tree)
        arrays = [parts.leaves[i] for i in parts.at]
        for i in parts.at:
            parts.leaves[i] = None
        return parts, arrays

    def tree(self, arrays: Sequence[Any]) -> Any:
        """The tree with these arrays."""
        return unflatten(self.structure, self._placed(self.leaves, arrays))

    def beside(self, values: Sequence[Any]) -> Any:
        """A tree of derivatives: 0.0 beside numbers and integers, None beside the rest."""
        numbers = [_zero(leaf) for leaf in self.leaves]
        given = [0.0 if value is None else value for value in values]
        return unflatten(self.structure, self._placed(numbers, given))

    def _placed(self, leaves: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
        found = list(leaves)
        for i, array in zip(self.at, arrays, strict=True):
            found[i] = array
        return found


def _zero(leaf: Any) -> Any:
    return 0.0 if isinstance(leaf, int | float | complex) else None


def moves(value: Any) -> bool:
    """Whether an array has derivatives."""
    return bool(is_inexact(value.dtype))


def sealed_inputs(inputs: Sequence[Any]) -> list[Any]:
    """Inputs as a function may see them: it cannot write them."""
    return [readonly(value) for value in inputs]


def own(outputs: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Results as arrays of their own: a copy of each that is an input, or a part of one."""
    seen = [*inputs]
    found = []
    for value in outputs:
        new = value.copy("K") if _is_shared(value, seen) else value  # keeps scalars
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


# ---- a call of a function with derivatives of its own, as transforms see it ----
# The function and its rules take and return lists of arrays. Each call has a table with
# rules for the three transforms, so their interpreters handle it like any operator. A
# rule gets values of lower levels, and calls the function on them: `enter` then finds
# the next interpreter. So every nesting works, and the rules are used under all of
# them.


Arrays = Sequence[Any]


class Forward(NamedTuple):
    """The results of the first half of reverse mode.

    Attributes
    ----------
    outputs : sequence of array
    saved : sequence of array
        Arrays that the second half needs.
    rest : object
        What else it needs.
    """

    outputs: Arrays
    saved: Arrays
    rest: Any


class FunctionTable(RuleTable):
    """The table of one function; a copy of it has the rules of one call."""

    # That call.
    made_for: FunctionCall

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

    def writer(self, args: Sequence[Any], sizes: Any) -> CallWriter:
        """Who writes the call to a graph file; `args` are those of its node."""
        inputs = [node.val for node in args[0]]
        writer: CallWriter = function_operators.FunctionWriter(
            self.made_for, inputs, sizes
        )
        return writer

    def of_call(self, fn: FunctionCall, top: Interpreter) -> FunctionTable:
        """The table for a call that an interpreter handles."""
        table = copy.copy(self)
        table.made_for = fn
        table.plans = Plans()
        table.plans.by_tracer[GradTracer] = partial(_plan, fn, table)
        table.run = lambda arrays: enter(fn, arrays)
        table.invoke = lambda args: enter(fn, args[0])
        where = self.definition.place
        table.rows = {
            AUTOGRAD: Row(FunctionRule(where), where),
            VMAP: Row(partial(_by_vmap, fn, top), where),
        }
        if fn.push is not None:
            table.rows[JVP] = Row(partial(_by_jvp, fn, table, top), where)
        return table


class FunctionCall(ABC):
    """One call of a function with derivatives of its own; a batch of it is one too.

    Attributes
    ----------
    table : FunctionTable
        That of the function, for messages and observers.
    """

    table: FunctionTable
    # ``push(primals, tangents)`` gives the outputs and their tangents; those of constants
    # are None. Without it forward mode transposes the rule of reverse mode.
    push: Any = None

    @property
    def identity(self) -> tuple[Any, ...]:
        """A key, equal for calls that compute the same from the same arrays."""
        return (self,)

    @property
    def has_rule(self) -> bool:
        """Whether its derivatives are known."""
        return True

    @abstractmethod
    def run(self, inputs: Arrays) -> Arrays:
        """Compute the outputs."""

    @abstractmethod
    def forward(self, inputs: Arrays, wanted: Sequence[bool]) -> Forward:
        """Compute the outputs, and what the gradients of the wanted inputs need."""

    @abstractmethod
    def backward(self, saved: Arrays, rest: Any, cotangents: Arrays) -> Arrays:
        """Gradients of the inputs, None for zero; cotangents are None for integers."""

    @abstractmethod
    def batched(
        self, batch: BatchInterpreter, dims: Sequence[int | None]
    ) -> FunctionCall:
        """The same for a batch, whose outputs have the axis of the batch in front."""

    def opened(
        self, error: GradientError, top: Interpreter, given: Arrays, inputs: Arrays
    ) -> tuple[FunctionCall, Arrays] | None:
        """A call that takes values from outside too, and all its inputs; None for none.

        `given` are the inputs, and `inputs` those below the transform `top`, under which
        the error was raised.
        """
        return None


# ---- who handles a call ----


def enter(fn: FunctionCall, inputs: Arrays) -> Arrays:
    """Call a function on values of any level."""
    top = highest(None, inputs)
    if top is not None and _is_stopped(top):
        inputs = [stop_gradient(v) if is_traced(v) else v for v in inputs]
        top = highest(None, inputs)
    if top is None:
        return fn.run(inputs)
    op = fn.table.of_call(fn, top)
    if not top.alive:
        raise leaked(op, top)
    args = (list(inputs),)
    handle = observed(op, top, top.handle, args) if observers else top.handle
    found: Arrays = handle_boxes(handle, top, op, args)
    return found


def _is_stopped(top: Interpreter) -> bool:
    """Whether the call is inside `no_grad`, which is inside the transform.

    Other modes see the operators that the function calls.
    """
    mode = current_mode.get()
    while mode is not None:
        if mode.alive and mode.kind is NO_GRAD and mode.level > top.level:
            return True
        mode = mode.outer
    return False


def check_closed(fn: FunctionCall, top: Interpreter, values: Arrays) -> None:
    """Raise for values that depend on one of this transform that is not an argument."""
    if any(found is top for v in values for found in _interpreters(v)):
        raise _not_closed(fn, top)


def check_below(fn: FunctionCall, top: Interpreter, values: Arrays) -> None:
    """Raise for results that are not of lower levels, as the arguments are."""
    intruder = _intruder(top, values)
    if intruder is not None:
        raise _not_closed(fn, intruder)


def _intruder(top: Interpreter, values: Arrays) -> Interpreter | None:
    """A transform of this level or above it that a value depends on."""
    found: Interpreter | None = highest(None, values)
    return found if found is not None and found.level >= top.level else None


def _not_closed(fn: FunctionCall, intruder: Interpreter) -> GradientError:
    error: Any = fn.table.error(
        GradientError,
        f" uses a value of {intruder.describe()} that is not among its arguments, so its"
        " derivative would be lost",
        intruder.where(),
        f"defined at {fn.table.definition.place}",
        do="pass the value as an argument",
        parameter=None,
    )
    error.intruder = intruder
    return error  # type: ignore[no-any-return]  # with one attribute more


def _interpreters(value: Any) -> Iterator[Interpreter]:
    """The interpreters of a traced value, and of the values below it."""
    while is_traced(value):
        yield value.interpreter
        value = value.below


# ---- reverse mode ----


class FunctionRule(GradRule):
    """The rule in the table of a call. Its plan does the work."""

    __slots__ = ("where",)
    backward = None

    def __init__(self, where: str) -> None:
        self.where: str = where

    def forward(self, call: GradCall) -> Any:
        """Not called: the table has a plan."""
        raise AssertionError(self)

    def check(self, op: Definition) -> None:
        """Fits every function."""

    @property
    def backward_place(self) -> str:
        """File and line of the function."""
        return self.where

    @property
    def places(self) -> tuple[str, ...]:
        """File and line of the function."""
        return (self.where,)


class FunctionNode(GradNode):
    """One call under reverse mode."""

    node_call: FunctionCall
    node_rest: Any
    node_top: Interpreter

    @staticmethod
    def node_backward(node: FunctionNode, cotangents: Arrays) -> tuple[Any, ...]:
        """Gradients of the arrays."""
        top = node.node_top
        try:
            found = node.node_call.backward(
                node.saved_arrays, node.node_rest, cotangents
            )
        except LeakedTracerError as error:
            if top.alive or f"a value of {top.describe()}," not in error.what:
                raise
            raise _not_closed(node.node_call, top) from error
        check_closed(node.node_call, top, [g for g in found if g is not None])
        return (list(found),)


def _plan(
    fn: FunctionCall, op: FunctionTable, interpreter: GradInterpreter, args: Any
) -> Any:
    """Run a call under reverse mode, and note how to go back through it."""
    call = TrackedCall(interpreter, op, FunctionNode, args)
    inputs = call.values[0]
    if not call.edges:
        return [interpreter.constant(v) for v in enter(fn, inputs)]
    tracked = {path[0] for _, path, _ in call.edges}
    try:
        found = fn.forward(inputs, [i in tracked for i in range(len(inputs))])
        check_below(fn, interpreter, [*found.outputs, *found.saved])
    except GradientError as error:
        opened = fn.opened(error, interpreter, args[0], inputs)
        if opened is None:
            raise
        return enter(*opened)
    node: Any = call.node()
    node.node_op, node.node_rule = op, op.rows[AUTOGRAD].fn
    node.node_call, node.node_rest, node.node_top = fn, found.rest, interpreter
    node.saved_arrays = tuple(frozen(v) for v in found.saved)
    return call.track(node, list(found.outputs))


# ---- forward mode ----


def _by_jvp(
    fn: FunctionCall, op: FunctionTable, top: Interpreter, primals: Any, tangents: Any
) -> tuple[Any, Any]:
    outputs, moved = fn.push(primals[0], tangents[0])
    check_below(fn, top, [*outputs, *(t for t in moved if t is not None)])
    return list(outputs), list(moved)


# ---- batches ----


def _by_vmap(
    fn: FunctionCall, top: Any, info: BatchInfo, in_dims: Any, inputs: Any
) -> tuple[Any, Any]:
    found = enter(fn.batched(top, in_dims[0]), inputs)
    return list(found), [0] * len(found)


# ---- rows of batches, for functions with derivatives of their own under vmap ----


class Rows:
    """Makes rows of batches, and batches of rows again.

    The interpreter of the vmap itself is used where that is possible, so that a function
    may use other rows of the same batch. It is not where the vmap has ended, or where
    another transform runs around the function: a tracer holds values of lower levels.
    """

    __slots__ = ("batch", "dims", "fn", "outer")

    def __init__(
        self,
        fn: FunctionCall,
        batch: BatchInterpreter,
        dims: Sequence[int | None],
        outer: BatchInterpreter | None = None,
    ) -> None:
        self.fn: FunctionCall = fn
        self.batch: BatchInterpreter = batch
        self.dims: Sequence[int | None] = dims
        # The interpreter of the vmap where it is not used: its rows are an error.
        self.outer: BatchInterpreter | None = outer

    def around(self, *values: Any) -> Rows:
        """The same with an interpreter that can hold these values."""
        batch = self.batch
        top = highest(None, values)
        if batch.alive and (top is None or top.level < batch.level):
            return self
        new = BatchInterpreter(
            batch.info.batch_size, batch.info.randomness, batch.draws
        )
        new.fn = batch.fn
        return Rows(self.fn, new, self.dims, batch)

    def of(self, values: Arrays, dims: Sequence[int | None] | None = None) -> list[Any]:
        """Rows of values; None stays."""
        pairs = zip(values, self.dims if dims is None else dims, strict=True)
        return [
            v if d is None or v is None else BatchTracer(self.batch, frozen(v), d)
            for v, d in pairs
        ]

    def front(self, value: Any) -> Any:
        """A batch of rows with its axis in front; None stays."""
        if value is None:
            return None
        if self.outer is not None:
            check_closed(self.fn, self.outer, [value])
        if self.batch.dim_of(value) is None:
            check_below(self.fn, self.batch, [value])
        dim = self.batch.dim_of(value)
        if dim is None:
            shape = (self.batch.info.batch_size, *value.shape)
            return call_numpy(np.broadcast_to, frozen(value), shape)
        below = frozen(value.below)
        return below if dim == 0 else call_numpy(np.moveaxis, below, dim, 0)

    def gradient(self, value: Any, dim: int | None) -> Any:
        """The gradient of an input: the sum over all rows where they share it."""
        if value is None:
            return None
        batch = self.front(value)
        if dim is None:
            return call_numpy(np.sum, batch, axis=0)
        return batch if dim == 0 else call_numpy(np.moveaxis, batch, 0, dim)
