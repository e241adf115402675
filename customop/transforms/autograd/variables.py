"""Gradients in the imperative form: variables, backward, no_grad, stop_gradient."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ContextDecorator
from typing import Any, Self, TypeVar

import numpy as np

from customop.arrays.array import Array, is_real_float
from customop.arrays.kinds import is_array, is_traced
from customop.arrays.nested import abbreviated, describe, map_leaves, map_nested, show
from customop.arrays.numpy_functions import call_numpy
from customop.config import config
from customop.core.builtin_kinds import AUTOGRAD
from customop.core.contract import readonly
from customop.core.interpreter import Mode, current_mode
from customop.core.observe import open_modes
from customop.core.operator import Operator
from customop.core.rule_kind import RuleKind
from customop.core.rule_types import Context
from customop.core.table import RuleTable
from customop.core.tracer import Tracer
from customop.errors import GradientError
from customop.library.define import custom_op
from customop.schema.tags import Tag
from customop.transforms.autograd.reverse import NO_GRAD, GradInterpreter, watch
from customop.transforms.autograd.sweep import plus, sweep
from customop.transforms.autograd.tape import GradTracer, Leaf, no_variable
from customop.transforms.runs import Subject, is_watched, subject_of_caller
from customop.transforms.values import (
    Carrier,
    Fresh,
    NeedsCarrier,
    as_cotangent,
    as_input,
    one_like,
    uncarried,
)

T = TypeVar("T")


# ---- the value alone ----


def _identity(x: Any) -> Any:
    return x


def _block(ctx: Context, inputs: Any, output: Any) -> None:
    ctx.mark_non_differentiable(output)


stop_array: Operator[[Any], Any] = (
    custom_op(
        "customop::stop_gradient",
        _identity,
        mutates_args=(),
        schema="(Array(a) x) -> Array(a)",
        tags=Tag.pointwise,
    )
    .register_fake(_identity)
    .register_autograd(lambda ctx, g: None, setup_context=_block)
    .register_jvp(lambda primals, tangents: (stop_array(*primals), None))
    .waive("test_gradients", reason="the identity, whose gradient is meant to be zero")
    .waive("test_jvp", reason="the identity, whose tangent is meant to be zero")
)


def stop_gradient(x: T) -> T:
    """Return the value without its tracking: no gradient flows back through it.

    Parameters
    ----------
    x : pytree of array
        Other leaves stay as they are.

    Returns
    -------
    pytree of array
        Plain arrays where only gradients were tracked. Values under `vmap` stay
        tracked, because a row of a batch is not an array by itself.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.grad(lambda x: x * co.stop_gradient(x))(np.array(3.0))
    np.float64(3.0)
    """
    if is_array(x):
        return _apart(x)  # type: ignore[no-any-return]  # as x
    return map_leaves(lambda v: _apart(v) if is_array(v) else v, x)  # type: ignore[no-any-return]  # as x


def _apart(x: Any) -> Any:
    """Return the value without its tracking; a copy, as a formula may have saved it."""
    value = stop_array(x)
    while type(value) is GradTracer and value.node is None:  # a buffer: nothing to stop
        value = value.below
    return call_numpy(np.copy, value) if is_traced(x) else value


# ---- the imperative form ----


class _Tape(GradInterpreter):
    """The transform of variables."""

    kind = AUTOGRAD
    title = "variable(x)"
    is_lasting = True
    # A step of an optimizer leaves the first value of a variable to whoever has it.
    has_looked = True

    def __init__(self) -> None:
        super().__init__()
        # Calls are watched from a new call of `variable` or `backward` to a backward.
        self.watched: list[Subject] = []
        self.runs_plans = True

    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run the operator below; watch what its node saved, if this pass is watched."""
        out = super().process(op, args)
        if self.watched and config.checks != "never":
            is_sampled = all(subject.is_sampled for subject in self.watched)
            watch(args, out, is_sampled=is_sampled)
        return out

    def watch_from(self) -> None:
        """Watch all calls until the next backward, if this is a new place to ask it."""
        subject = subject_of_caller()
        if is_watched(subject):
            self.watched.append(subject)
            self.runs_plans = False

    def replace(self, box: Tracer, new: Any) -> None:
        """Write a variable inside `no_grad` only; it stays a variable."""
        assert isinstance(box, GradTracer)
        if type(box.node) is not Leaf:
            super().replace(box, new)
            return
        mode = current_mode.get()
        if mode is None or mode.kind is not NO_GRAD:
            raise GradientError(
                f"{describe(box)} is a variable, and is written in place",
                do="write it inside no_grad(), or write a copy: y = x.copy()",
            )
        box.below = new.below

    def backward(self, y: Any, gradient: Any, retain_graph: bool) -> None:
        """Add the gradient of `y` to its variables."""
        if gradient is None:
            if tuple(y.shape) != () or not is_real_float(y.dtype):
                raise GradientError(
                    f"backward: {abbreviated(y)} is not a real float without axes, so"
                    " it needs a gradient",
                    do="call backward(np.sum(np.real(y))), or backward(y, gradient)",
                )
            gradient = one_like(y.below)
        seed = as_cotangent(gradient, y.below, "backward: the gradient")
        if y.node is None:
            raise no_variable(y)
        found = sweep([(y.node, seed)], retain=retain_graph)
        for subject in self.watched:
            subject.note_watched()
        self.watched = []
        self.runs_plans = True
        self.watch_from()
        fresh = Fresh(seed)
        for leaf, grad in found.items():
            before = leaf.grad
            total = fresh(grad) if before is None else plus(before, grad)
            leaf.grad = uncarried(total)


class _CaptureTape(_Tape):
    """The variables that a function makes while a graph is captured."""

    def watch_from(self) -> None:
        """Nothing is watched: the graph runs later."""

    def backward(self, y: Any, gradient: Any, retain_graph: bool) -> None:
        """Add the gradient of `y` to its variables; raise where some are outside."""
        below = y.below
        while is_traced(below):
            if isinstance(below.interpreter, _Tape) and below.node is not None:
                raise GradientError(
                    f"backward: {show(y)} depends on variables that were made in the"
                    " function of a transform, and on others that were made outside of it",
                    do="make all of them outside, or take the gradient by grad",
                )
            below = below.below
        super().backward(y, gradient, retain_graph)


# It never ends: its level is below all others.
_tape = _Tape()
_tape.level = 0
# Carries the variables that need it.
_carrier = Carrier()


def _tape_for(value: Any) -> _Tape:
    """Who differentiates for a new variable of this value."""
    mode = current_mode.get() if open_modes else None
    while mode is not None and not (mode.alive and mode.is_capture):
        mode = mode.outer
    if mode is None:
        return _tape
    # A tape holds values of lower levels.
    around = value.interpreter.level if is_traced(value) else 0
    for tape in mode.tapes:
        if isinstance(tape, _Tape) and tape.level > around:
            return tape
    new = _CaptureTape()
    mode.tapes = (*mode.tapes, new)
    return new


def variable(x: Array | float) -> GradTracer:
    """Make a value that `backward` computes a gradient for.

    Parameters
    ----------
    x : array or float
        Array of floats.

    Returns
    -------
    GradTracer
        Behaves as the array does; its `grad` is None until `backward` has run.

    Raises
    ------
    GradientError
        If `x` is not an array of floats.

    Notes
    -----
    A variable that a function makes while `make_fx` captures it belongs to the graph, which
    then has the operators of `backward` too. One that was made before is a constant of the
    graph.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> x = co.variable(np.array([1.0, 2.0]))
    >>> (x * x).sum().backward()
    >>> x.grad
    array([2., 4.])
    """
    try:
        value = as_input(x, "variable: x")
    except NeedsCarrier:
        value = _carrier.carry(x)
    tape = _tape_for(value)
    if isinstance(value, GradTracer) and value.interpreter is tape:
        raise GradientError(
            f"variable: {show(x)} already is a variable or depends on one",
            do="use it as it is, or variable(stop_gradient(x)) for a new start",
        )
    tape.watch_from()
    return tape.variable(value)


def backward(
    y: Array, gradient: Array | float | None = None, *, retain_graph: bool = False
) -> None:
    """Add the gradient of a value to the `grad` of the variables it depends on.

    Parameters
    ----------
    y : array
        A value computed from variables.
    gradient : array, optional
        Cotangent of `y`, of its shape and dtype; needed where `y` has axes.
    retain_graph : bool
        Keep the saved arrays, so that `backward` can run again through the same calls.

    Raises
    ------
    GradientError
        If `y` depends on no variable, has axes and no `gradient` is given, or its
        graph has been freed.
    MissingRuleError
        If an operator on the way has no autograd rule.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> x = co.variable(np.array([1.0, 2.0]))
    >>> co.backward(np.sum(x**3))
    >>> x.grad
    array([ 3., 12.])

    A value with axes needs its cotangent. Gradients are added to those that are there:

    >>> y = x * x
    >>> co.backward(y, gradient=np.array([1.0, 10.0]), retain_graph=True)
    >>> x.grad
    array([ 5., 52.])
    >>> co.backward(y, gradient=np.ones(2))
    >>> x.grad
    array([ 7., 56.])
    """
    if not isinstance(y, GradTracer):
        raise no_variable(y)
    y.backward(gradient, retain_graph=retain_graph)


class _NoGradMode(Mode):
    """The mode of `no_grad`: operators get values without their tracking."""

    kind = NO_GRAD

    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run the operator on values without tracking."""
        out = op.invoke([map_nested(value, _stopped) for value in args])
        # A view has the memory of a variable, or of what a formula saved.
        return map_nested(out, readonly) if op.view_slot >= 0 else out


class _EnableGradMode(Mode):
    """The mode of `enable_grad`: it skips the modes of `no_grad` outside."""

    kind = RuleKind("enable_grad")

    def find_outer(self) -> Mode | None:
        """Return the first mode outside that is not of `no_grad`."""
        mode = current_mode.get()
        while isinstance(mode, _NoGradMode):
            mode = mode.outer
        return mode

    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run the operator as outside of `no_grad`."""
        return op.invoke(args)


def _stopped(value: Any) -> Any:
    return stop_array(value) if is_traced(value) else value


class _Switch(ContextDecorator):
    """Opens a mode for a block or for the calls of a function."""

    _mode: type[Mode]

    def __init__(self) -> None:
        self._open: list[Mode] = []

    def _recreate_cm(self) -> Self:
        # A mode belongs to the thread that opened it, so each call of a decorated
        # function opens a new one.
        return type(self)()

    def __enter__(self) -> None:
        mode = self._mode()
        try:
            self._open.append(mode)
            mode.__enter__()
        except BaseException:
            self._open.remove(mode)
            mode.close_interrupted()
            raise

    def __exit__(self, *exc: object) -> None:
        mode = self._open[-1]
        try:
            self._open.pop()
            mode.__exit__(*exc)
        finally:
            mode.close_interrupted()


class no_grad(_Switch):  # noqa: N801  # torch's name
    """Compute without tracking: as a context manager or a decorator.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> x = co.variable(np.array([1.0, 2.0]))
    >>> with co.no_grad():
    ...     y = x * 2.0
    >>> y
    array([2., 4.])
    """

    _mode = _NoGradMode


class enable_grad(_Switch):  # noqa: N801  # torch's name
    """Track again inside of `no_grad`: as a context manager or a decorator.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> x = co.variable(np.array(3.0))
    >>> with co.no_grad(), co.enable_grad():
    ...     y = x * x
    >>> y.backward()
    >>> x.grad
    np.float64(6.0)
    """

    _mode = _EnableGradMode
