"""A call of a function with derivatives of its own, as transforms see it.

The function and its rules take and return lists of arrays. Each call has a table with
rules for the three transforms, so their interpreters handle it like any operator. A rule
gets values of lower levels, and calls the function on them: `enter` then finds the next
interpreter. So every nesting works, and the rules are used under all of them.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from customop.arrays.kinds import is_traced
from customop.core.boxes import frozen, handle_boxes
from customop.core.definition import Definition, Row
from customop.core.grad_rules import GradCall, GradRule
from customop.core.interpreter import Interpreter, current_mode, highest, leaked
from customop.core.kinds import AUTOGRAD, JVP, VMAP
from customop.core.observe import observed, observers
from customop.core.rule_types import BatchInfo
from customop.core.table import CallWriter, Plans, RuleTable
from customop.errors import GradientError, LeakedTracerError, place
from customop.later import later
from customop.schema.schema import Schema
from customop.transforms.autograd.calls import TrackedCall
from customop.transforms.autograd.interpreter import NO_GRAD, GradInterpreter
from customop.transforms.autograd.node import GradNode
from customop.transforms.autograd.tracer import GradTracer
from customop.transforms.autograd.variables import stop_gradient
from customop.transforms.batch import BatchInterpreter

__all__ = [
    "Forward",
    "FunctionCall",
    "FunctionTable",
    "check_below",
    "check_closed",
    "enter",
]

Arrays = Sequence[Any]

# Captures calls for graph files.
saved: ModuleType = later(import_module, "customop.transforms.functions.saved")


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
        writer: CallWriter = saved.FunctionWriter(self.made_for, inputs, sizes)
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
