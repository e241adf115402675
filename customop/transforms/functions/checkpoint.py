"""checkpoint: run a function again for its gradient, instead of keeping values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ClassVar, NamedTuple, ParamSpec, Self, TypeVar

import numpy as np

from customop.arrays.kinds import is_traced
from customop.arrays.nested import flatten, map_nested
from customop.config import config
from customop.core.builtin_kinds import AUTOGRAD
from customop.core.interpreter import Interpreter, Mode, highest
from customop.core.rule_kind import RuleKind
from customop.core.table import RuleTable
from customop.core.tracer import Tracer, frozen
from customop.errors import ArgumentError, GradientError, check_function
from customop.transforms.autograd.grad import pull_back
from customop.transforms.autograd.reverse import GradInterpreter
from customop.transforms.autograd.tape import GradTracer
from customop.transforms.functions.custom import Given
from customop.transforms.functions.function_calls import (
    Forward,
    FunctionCall,
    FunctionTable,
    Rows,
    enter,
    moves,
)
from customop.transforms.generators import restored, set_states, sources, states_of
from customop.transforms.jvp import jvp
from customop.transforms.values import Carrier
from customop.transforms.vmap_interpreter import BatchInterpreter

# ---- values that a function uses and that are not among its arguments ----


class Outside(Mode):
    """Finds the values of one transform that operators are called with, or replaces them.

    It is a mode of the level of a transform: the tracers of inner transforms are handled
    before it, so that it sees what rules call operators with.

    Parameters
    ----------
    top : Interpreter
        The transform that the values belong to.
    level : int
        Of the mode.
    values, others : sequence of GradTracer, sequence of array
        Values, and what operators get in place of them. Values that are not among them
        are found, and operators get what is below them.

    Attributes
    ----------
    found : dict of int to GradTracer
        Values by the identity of their nodes, in the order of their use.
    """

    kind: ClassVar[RuleKind] = RuleKind("outside")

    def __init__(
        self,
        top: Interpreter,
        level: int,
        values: Sequence[GradTracer] = (),
        others: Sequence[Any] = (),
    ) -> None:
        super().__init__()
        self.top: Interpreter = top
        self.found: dict[int, GradTracer] = {}
        self._level = level
        # A snapshot of a value has its node. The values are kept, since identities are
        # used again.
        self._values = values
        pairs = zip(values, others, strict=True)
        self._others: dict[int, Any] = {id(v.node): other for v, other in pairs}

    def __enter__(self) -> Self:
        super().__enter__()
        self.level: int = self._level
        return self

    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run the operator on other values."""
        return op.invoke([map_nested(value, self.put) for value in args])

    def put(self, value: Any) -> Any:
        """The value that takes the place of another one."""
        if type(value) is not GradTracer or value.interpreter is not self.top:
            return value
        if value.node is None:  # a constant
            return frozen(value.below)
        if id(value.node) in self._others:
            return self._others[id(value.node)]
        if self._values:
            return value
        self.found.setdefault(id(value.node), frozen(value))
        return frozen(value.below)

    def see_write(self, box: Tracer) -> None:
        """Raise for a write to a value from outside, which would lose its derivative."""
        if box.interpreter is self.top:
            raise ArgumentError(
                f"a value of {self.top.describe()} is written in place inside a function"
                " with a checkpoint",
                do="return the new value from the function, and write it outside",
            )


# ---- checkpoint: run a function again for its gradient, instead of keeping values ----


P = ParamSpec("P")
R = TypeVar("R")

Arrays = Sequence[Any]
Compute = Callable[[Arrays], Arrays]


def checkpoint(fn: Callable[P, R]) -> Callable[P, R]:
    """Make a function that keeps only its arguments for backward, and runs again there.

    It takes less memory, and more time: `fn` runs twice. Use it for parts of a long
    computation, such as the layers of a network.

    Parameters
    ----------
    fn : callable
        Takes and returns pytrees of arrays; computes the same each time.

    Returns
    -------
    callable
        Takes and returns what `fn` does.

    Raises
    ------
    ArgumentError
        If `fn` is not a function; from the function, if it writes its arguments.
    GradientError
        From the function: if it uses a traced value that is not an argument, and cannot
        be taken as one; from backward, if it gives other values the second time.

    Notes
    -----
    A generator of random numbers that `fn` is given, or names in its closure or globals,
    starts from the same state the second time. Other sources of random numbers, and modes
    such as `autocast` that are open only the first time, are noticed by the values.

    Under reverse mode `fn` may use values of `grad` that are not its arguments; it then
    runs twice more, to find them. Pass them as arguments to save that time. Values of
    other transforms, and some of nested ones, are an error.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> layer = co.checkpoint(lambda x: np.tanh(np.sin(x) ** 2))
    >>> co.grad(lambda x: layer(layer(x)).sum())(np.array([0.0, 1.0]))
    array([0.        , 0.48280044])
    """
    check_function("checkpoint", fn)
    table = FunctionTable("checkpoint", fn)
    call: Callable[..., Any] = fn

    @wraps(fn)
    def checkpointed(*args: P.args, **kwargs: P.kwargs) -> R:
        leaves = flatten((args, kwargs))[0]
        if not any(is_traced(v) for v in leaves):
            return fn(*args, **kwargs)
        given = Given(table, (args, kwargs))

        def compute(inputs: Arrays) -> Arrays:
            result = given.call(lambda args, kwargs: call(*args, **kwargs), inputs)
            return given.outputs(result, inputs)

        found = sources(fn, leaves)
        outputs = enter(_Checkpoint(table, compute, found), given.arrays)
        return given.result(outputs)  # type: ignore[no-any-return]  # as fn

    return checkpointed


class _Checkpoint(FunctionCall):
    """One call. Its derivatives are functions with checkpoints too."""

    def __init__(
        self, table: FunctionTable, compute: Compute, generators: Sequence[Any] = ()
    ) -> None:
        self.table: FunctionTable = table
        self.compute: Compute = compute
        self.generators: Sequence[Any] = generators
        # Transforms whose values from outside it takes.
        self.sources: tuple[Interpreter, ...] = ()
        # States of the generators when it was first called.
        self.before: Sequence[tuple[Any, Any]] = ()

    def run(self, inputs: Arrays) -> Arrays:
        return self.compute(inputs)

    def forward(self, inputs: Arrays, wanted: Sequence[bool]) -> Forward:
        self.before = states = states_of(self.generators)
        outputs = enter(self, inputs)
        marks = [_mark(y) for y in outputs] if config.checks != "never" else None
        return Forward(outputs, inputs, (wanted, states, marks))

    def backward(self, saved: Arrays, rest: Any, cotangents: Arrays) -> Arrays:
        wanted, states, marks = rest
        count = len(saved)
        places = [i for i, g in enumerate(cotangents) if g is not None]

        def compute(values: Arrays) -> Arrays:
            given: list[Any] = [None] * len(cotangents)
            for i, g in zip(places, values[count:], strict=True):
                given[i] = g
            with restored(states):
                outputs, grads = self._pulled(values[:count], wanted, given)
            self._check_same(marks, outputs)
            return grads

        arrays = [*saved, *(cotangents[i] for i in places)]
        found = iter(enter(_Checkpoint(self.table, compute), arrays))
        return [next(found) if w else None for w in wanted]

    def _pulled(
        self, inputs: Arrays, wanted: Sequence[bool], cotangents: Arrays
    ) -> tuple[Arrays, Arrays]:
        """The outputs, and gradients of the wanted inputs."""

        def moving(*values: Any) -> list[Any]:
            return list(self.run(_replaced(inputs, wanted, values)))

        with Carrier() as carrier:
            interpreter = GradInterpreter()
            interpreter.title = self.table.qualname
            at = carrier.carry([x for x, w in zip(inputs, wanted, strict=True) if w])
            outputs, pullback, _ = pull_back(interpreter, moving, tuple(at))
            pairs = zip(cotangents, outputs, strict=True)
            given = [_zeros(y) if g is None else g for g, y in pairs]
            found = pullback(carrier.carry(given))
            return carrier.uncarry(outputs), carrier.uncarry(found)

    def push(self, primals: Arrays, tangents: Arrays) -> tuple[Arrays, Arrays]:
        wanted = [t is not None for t in tangents]
        count, numbers = len(primals), [0]

        def compute(values: Arrays) -> Arrays:
            def moving(*moved: Any) -> list[Any]:
                return list(self.run(_replaced(values[:count], wanted, moved)))

            at = tuple([x for x, w in zip(values[:count], wanted, strict=True) if w])
            push: Any = jvp
            outputs, pushed = push(moving, at, tuple(values[count:]))
            numbers[0] = len(outputs)
            return [*outputs, *pushed]

        arrays = [*primals, *(t for t in tangents if t is not None)]
        found = enter(_Checkpoint(self.table, compute, self.generators), arrays)
        outputs, pushed = found[: numbers[0]], found[numbers[0] :]
        pairs = zip(outputs, pushed, strict=True)
        return outputs, [t if moves(y) else None for y, t in pairs]

    def batched(
        self, batch: BatchInterpreter, dims: Sequence[int | None]
    ) -> FunctionCall:
        of_batch = Rows(self, batch, dims)

        def compute(inputs: Arrays) -> Arrays:
            rows = of_batch.around(*inputs)
            return [rows.front(v) for v in self.run(rows.of(inputs))]

        return _Checkpoint(self.table, compute, self.generators)

    def opened(
        self, error: GradientError, top: Interpreter, given: Arrays, inputs: Arrays
    ) -> tuple[FunctionCall, Arrays] | None:
        """A call that takes values from outside too, and all its inputs; None for none."""
        if "intruder" not in vars(error):
            return None
        intruder: Interpreter = vars(error)["intruder"]
        is_above = intruder.kind is AUTOGRAD and intruder.level >= top.level
        source = intruder if is_above else top
        if source in self.sources:
            return None
        set_states(self.before)
        with restored(self.before), Outside(source, source.level) as finding:
            for output in self.compute(inputs):
                finding.put(output)
        outside = list(finding.found.values())
        made = self._with_outside(source, outside, len(inputs))
        return made, [*given, *outside]

    def _with_outside(
        self, source: Interpreter, outside: Sequence[Any], count: int
    ) -> _Checkpoint:
        """The call with values from outside as further inputs."""

        def compute(values: Arrays) -> Arrays:
            top: Any = highest(source, values)
            with Outside(source, top.level, outside, values[count:]) as putting:
                return [putting.put(y) for y in self.compute(values[:count])]

        made = _Checkpoint(self.table, compute, self.generators)
        made.sources = (*self.sources, source)
        return made

    # ---- the same values twice ----

    def _check_same(self, marks: Any, outputs: Arrays) -> None:
        """Raise where the function gives other values than the first time."""
        if marks is None:
            return
        again = [_mark(y) for y in outputs]
        if len(marks) != len(again) or not all(map(_is_same, marks, again)):
            raise self.table.error(
                GradientError,
                " gives other values the second time, when backward runs it again",
                f"defined at {self.table.definition.place}",
                do="pass the np.random.Generator that it draws from as an argument, and"
                " open modes such as autocast inside it",
                parameter=None,
            )


def _replaced(inputs: Arrays, wanted: Sequence[bool], values: Arrays) -> list[Any]:
    """Inputs with others in the wanted places."""
    new = iter(values)
    return [next(new) if w else x for x, w in zip(inputs, wanted, strict=True)]


def _zeros(output: Any) -> Any:
    return np.zeros(output.shape, output.dtype)


# Elements of an output that are compared.
_ELEMENTS = 64


class _Mark(NamedTuple):
    """The parts of an output that are compared."""

    shape: tuple[int, ...]
    dtype: Any
    # The tracers around the array, whose elements are compared only below the same ones.
    around: tuple[Any, ...]
    elements: Any


def _mark(output: Any) -> _Mark:
    """A mark of an output for the comparison; it has only some of its elements."""
    value, around = output, []
    while is_traced(value):
        around.append((type(value), getattr(value, "dim", None)))
        value = value.below
    elements = None
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        around.append(array.shape)
        elements = array.flat[:: max(1, array.size // _ELEMENTS)].copy()
    return _Mark(tuple(output.shape), output.dtype, tuple(around), elements)


def _is_same(first: _Mark, second: _Mark) -> bool:
    """Whether marks agree but for rounding, which may differ with the place in memory."""
    if first[:2] != second[:2]:
        return False
    a, b = first.elements, second.elements
    if (
        a is None
        or b is None
        or first.around != second.around
        or a.dtype.kind not in "fc"
    ):
        return True
    if np.array_equal(a, b):
        return True
    most = math.sqrt(float(np.finfo(a.dtype).eps))
    scale = float(np.max(np.abs(a), initial=0.0, where=np.isfinite(a)))
    return np.allclose(a, b, most, most * scale, equal_nan=True)
