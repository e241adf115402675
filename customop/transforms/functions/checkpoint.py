"""`checkpoint`: run a function again for its gradient, instead of keeping values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ClassVar, NamedTuple, ParamSpec, TypeVar

import numpy as np

from customop.arrays.kinds import is_traced
from customop.arrays.nested import flatten, map_nested
from customop.arrays.stand_ins import entered
from customop.config import config
from customop.core.builtin_kinds import AUTOGRAD
from customop.core.interpreter import Interpreter, Mode, highest
from customop.core.rule_kind import RuleKind
from customop.core.table import RuleTable
from customop.core.tracer import Tracer, frozen
from customop.errors import ArgumentError, GradientError, check_function
from customop.synonyms import takes_names_of_others
from customop.transforms.autograd.grad import pull_back
from customop.transforms.autograd.reverse import interpreter_for
from customop.transforms.autograd.tape import GradTracer
from customop.transforms.functions.function_calls import (
    Forward,
    FunctionCall,
    FunctionTable,
    Rows,
    enter,
    moves,
)
from customop.transforms.functions.given import Given
from customop.transforms.generators import KnownSources, restored, set_states, states_of
from customop.transforms.jvp import jvp
from customop.transforms.runs import Subject, subject_of
from customop.transforms.values import Carrier, replaced
from customop.transforms.vmap_interpreter import BatchInterpreter

# ---- values that a function uses but that are not among its arguments ----


class Outside(Mode):
    """Finds or replaces the values of one transform that operators are called with.

    The mode has the level of the transform. Tracers of inner transforms are handled
    before it, so it sees the arguments that rules pass to operators.

    Parameters
    ----------
    top : Interpreter
        The transform that the values belong to.
    level : int
        The level of the mode.
    values, others : sequence of GradTracer, sequence of array
        Values to replace, and their replacements. If none are given, the values are
        recorded in `found`, and operators get the arrays below them.

    Attributes
    ----------
    found : dict of int to GradTracer
        The recorded values by the identity of their nodes, in the order of their use.
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
        # Values are compared by their nodes, because a snapshot has the same node. They
        # are kept alive, since Python reuses identities.
        self._values = values
        pairs = zip(values, others, strict=True)
        self._others: dict[int, Any] = {id(v.node): other for v, other in pairs}

    def _on_open(self) -> None:
        """Take the level of the transform whose values it replaces."""
        self.level: int = self._level

    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run the operator on the values that replace its arguments."""
        return op.invoke([map_nested(value, self.put) for value in args])

    def put(self, value: Any) -> Any:
        """Return the replacement of a value, and record the value if there is none."""
        if type(value) is not GradTracer or value.interpreter is not self.top:
            return value
        if value.node is None:  # a constant of the transform
            return frozen(value.below)
        if id(value.node) in self._others:
            return self._others[id(value.node)]
        if self._values:
            return value
        self.found.setdefault(id(value.node), frozen(value))
        return frozen(value.below)

    def see_write(self, box: Tracer) -> None:
        """Raise for a write to a value from outside: its derivative would be lost."""
        if box.interpreter is self.top:
            raise ArgumentError(
                f"a value of {self.top.describe()} is written in place inside a function"
                " with a checkpoint",
                do="return the new value from the function, and write it outside",
            )


# ---- checkpoint ----


P = ParamSpec("P")
R = TypeVar("R")

Arrays = Sequence[Any]
Compute = Callable[[Arrays], Arrays]


@takes_names_of_others(
    use_reentrant="leave it out, and write co.checkpoint(f)(x)",
    policy="leave it out, and checkpoint the parts that are computed again",
)
def checkpoint(fn: Callable[P, R]) -> Callable[P, R]:
    """Make a function that saves only its arguments, and runs again in the backward pass.

    It takes less memory and more time, because `fn` runs twice. Use it for parts of a
    long computation, such as the layers of a network.

    Parameters
    ----------
    fn : callable
        Takes and returns pytrees of arrays. It must compute the same values each time.

    Returns
    -------
    callable
        Takes the arguments and returns the results of `fn`.

    Raises
    ------
    ArgumentError
        If `fn` is not a function; from the function, if it writes to its arguments.
    GradientError
        From the function: if it uses a traced value that is not an argument and cannot
        be made one. From backward: if the function returns other values the second
        time.

    Notes
    -----
    A generator of random numbers that `fn` is given, or can reach through functions and
    objects, starts from the same state the second time. Other sources of random numbers,
    and modes such as `autocast` that are open only the first time, are detected by
    comparing values.

    In reverse mode, `fn` may use values of `grad` that are not its arguments. It then
    runs twice more to find them; pass them as arguments to save that time. Values of
    other transforms, and some values of nested transforms, are an error.

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
    subject, known = subject_of(fn), KnownSources(fn)

    @wraps(fn)
    def checkpointed(*args: P.args, **kwargs: P.kwargs) -> R:
        leaves = flatten((args, kwargs))[0]
        if not any(is_traced(v) for v in leaves):
            return fn(*args, **kwargs)
        given = Given(table, (args, kwargs))

        def compute(inputs: Arrays) -> Arrays:
            result = given.call(
                lambda args, kwargs: entered(call)(*args, **kwargs), inputs
            )
            return given.outputs(result, inputs)

        call_of = _Checkpoint(table, subject, compute, known.now(leaves))
        outputs = enter(call_of, given.arrays)
        return given.result(outputs)  # type: ignore[no-any-return]  # as fn

    return checkpointed


class _Checkpoint(FunctionCall):
    """One call of a checkpointed function. Its derivatives have checkpoints too."""

    def __init__(
        self,
        table: FunctionTable,
        subject: Subject,
        compute: Compute,
        generators: Sequence[Any] = (),
    ) -> None:
        self.table: FunctionTable = table
        self.subject: Subject = subject
        self.compute: Compute = compute
        self.generators: Sequence[Any] = generators
        # Transforms whose outside values are already inputs.
        self.sources: tuple[Interpreter, ...] = ()
        # States of the generators at the first call.
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
        found = iter(enter(_Checkpoint(self.table, self.subject, compute), arrays))
        return [next(found) if w else None for w in wanted]

    def _pulled(
        self, inputs: Arrays, wanted: Sequence[bool], cotangents: Arrays
    ) -> tuple[Arrays, Arrays]:
        """Return the outputs, and the gradients of the wanted inputs."""

        def moving(*values: Any) -> list[Any]:
            return list(self.run(replaced(inputs, wanted, values)))

        with Carrier() as carrier:
            interpreter = interpreter_for(self.subject)
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
                return list(self.run(replaced(values[:count], wanted, moved)))

            at = tuple([x for x, w in zip(values[:count], wanted, strict=True) if w])
            push: Any = jvp
            outputs, pushed = push(moving, at, tuple(values[count:]))
            numbers[0] = len(outputs)
            return [*outputs, *pushed]

        arrays = [*primals, *(t for t in tangents if t is not None)]
        found = enter(
            _Checkpoint(self.table, self.subject, compute, self.generators), arrays
        )
        outputs, pushed = found[: numbers[0]], found[numbers[0] :]
        pairs = zip(outputs, pushed, strict=True)
        return outputs, [t if moves(y) else None for y, t in pairs]

    def batched(
        self, batch: BatchInterpreter, dims: Sequence[int | None]
    ) -> FunctionCall:
        of_batch = Rows(self.table, batch, dims)

        def compute(inputs: Arrays) -> Arrays:
            rows = of_batch.around(*inputs)
            return [rows.front(v) for v in self.run(rows.of(inputs))]

        return _Checkpoint(self.table, self.subject, compute, self.generators)

    def opened(
        self, error: GradientError, top: Interpreter, given: Arrays, inputs: Arrays
    ) -> tuple[FunctionCall, Arrays] | None:
        """Return a call with values from outside as more inputs, and all its inputs.

        Return None if the error has another cause.
        """
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
        """Return the call with values from outside as more inputs."""

        def compute(values: Arrays) -> Arrays:
            top: Any = highest(source, values)
            with Outside(source, top.level, outside, values[count:]) as putting:
                return [putting.put(y) for y in self.compute(values[:count])]

        made = _Checkpoint(self.table, self.subject, compute, self.generators)
        made.sources = (*self.sources, source)
        return made

    # ---- comparison of both runs ----

    def _check_same(self, marks: Any, outputs: Arrays) -> None:
        """Raise if the function returns other values than the first time."""
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


def _zeros(output: Any) -> Any:
    return np.zeros(output.shape, output.dtype)


# How many elements of an output are compared, about.
_ELEMENTS = 64


class _Mark(NamedTuple):
    """What is compared of an output."""

    shape: tuple[int, ...]
    dtype: Any
    # The tracers around the array. Elements are compared only if these are the same.
    around: tuple[Any, ...]
    elements: Any


def _mark(output: Any) -> _Mark:
    """Return the mark of an output, with only some of its elements."""
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
    """Return whether two marks agree up to rounding, which may vary between runs."""
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
