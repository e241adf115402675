"""Who handles a call: the arguments decide, but for modes.

The laws that hold here, and that tests hold on to:

1. A level comes from one counter, is never reused, and is the only order there is.
2. A tracer of level L holds only values of levels below L.
3. An interpreter unwraps a tracer only if it is the tracer's own interpreter.
4. A rule works on unwrapped values and calls operators, never kernels.
5. When a transform ends its tracers die.
6. Only modes touch the one context variable.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

from customop.arrays.describe import describe
from customop.arrays.kinds import TRACED, add_array_class, device_of, kind_of
from customop.arrays.nested import flat, map_nested, map_result
from customop.arrays.numpy_protocol import ArrayMethods
from customop.core.observe import observed, observers, open_modes
from customop.core.rule_kind import RuleKind
from customop.core.table import RuleTable
from customop.errors import (
    CustomOpError,
    DataDependentError,
    LeakedTracerError,
    RegistrationError,
)

if TYPE_CHECKING:  # for rules of users: an Operator is made with this module
    from customop.core.operator import Operator

__all__ = ["Interpreter", "Mode", "Tracer"]

_levels = itertools.count(1)

current_mode: ContextVar[Mode | None] = ContextVar("customop_mode", default=None)


class Tracer(ArrayMethods):
    """A value as one running transform sees it.

    Parameters
    ----------
    interpreter : Interpreter
        The transform that it belongs to.
    value : array
        The value below, of a lower level.
    """

    __slots__ = ("__weakref__", "interpreter", "value")
    # Whether Python may branch on the value.
    is_concrete: ClassVar[bool] = True

    def __init__(self, interpreter: Interpreter, value: Any) -> None:
        self.interpreter: Interpreter = interpreter
        self.value: Any = value

    @property
    def shape(self) -> Any:
        """Lengths of the axes."""
        return self.value.shape

    @property
    def dtype(self) -> Any:
        """Type of the elements."""
        return self.value.dtype

    @property
    def device(self) -> Any:
        """Device that the value lives on."""
        return device_of(self.value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(level={self.interpreter.level}, {self.value!r})"

    def __bool__(self) -> bool:
        if not self.is_concrete:
            raise self._lost("bool() of", "np.where(mask, a, b) in place of a branch")
        return bool(self.value)

    def _lost(self, asked: str, instead: str) -> DataDependentError:
        return DataDependentError(
            f"{asked} {describe(self)}, a value inside {self.interpreter.describe()}",
            "the transform would lose track of it",
            do=f"use {instead}, or stop_gradient(x) for the value alone",
        )

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise self._lost(
            "np.array(), or a NumPy kernel, is given",
            "np.stack to join values, getitem(a, i) to index by one, custom_op for a"
            " kernel",
        )

    def __float__(self) -> float:
        raise self._lost("float() of", "np.sin for math.sin, and arrays as they are")

    def __int__(self) -> int:
        raise self._lost("int() of", "arrays as they are")

    def __complex__(self) -> complex:
        raise self._lost("complex() of", "arrays as they are")

    def __index__(self) -> int:
        raise self._lost(
            "an index, or range(), of", "getitem(x, key) in place of x[key]"
        )

    def item(self, *args: Any) -> NoReturn:
        """Refused: the transform would lose track of the value."""
        raise self._lost("item() of", "arrays as they are")

    def tolist(self) -> NoReturn:
        """Refused: the transform would lose track of the values."""
        raise self._lost("tolist() of", "the array as it is")

    # A copy of a value that a transform follows is the value itself: it never changes.
    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise self._lost("pickling", "the plain array that goes in")

    def __format__(self, spec: str) -> str:
        if spec:
            raise self._lost(f"format({spec!r}) of", "print(x)")
        return repr(self)


add_array_class(TRACED, Tracer)


class Interpreter(ABC):
    """One running transform.

    A subclass names its `kind` of rule and says in `process` what an operator does
    to its tracers. Used as a context manager it ends with the block: its tracers die.

    Attributes
    ----------
    level : int
        Grows with each interpreter made. Of the interpreters whose tracers are among
        the arguments of a call, the one of the highest level handles it.
    alive : bool
        False once the transform has ended.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> class Count(co.Interpreter):
    ...     kind = co.RuleKind("count")
    ...     calls = 0
    ...     def process(self, op, args):
    ...         self.calls += 1
    ...         return self.wrap(op.invoke(self.unwrap(args)))
    >>> with Count() as count:
    ...     y = np.sin(np.cos(count.wrap(np.zeros(2))))
    >>> count.calls
    2
    """

    kind: ClassVar[RuleKind]
    tracer_class: ClassVar[type[Tracer]] = Tracer
    # What dispatch calls: `process` itself, but for modes.
    handle: Callable[[Any, Sequence[Any]], Any]

    def __init__(self) -> None:
        self.level: int = next(_levels)
        self.alive: bool = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "process" in cls.__dict__:
            cls.handle = cls._as_handled()

    @classmethod
    def _as_handled(cls) -> Any:
        return cls.process

    @abstractmethod
    def process(self, op: Operator[..., Any], args: Sequence[Any]) -> Any:
        """Handle a call.

        Parameters
        ----------
        op : Operator
            The operator called.
        args : sequence
            Values of all its parameters, in the order of the schema, keyword-only
            ones last. ``op.invoke(args)`` calls the operator with such a sequence.

        Returns
        -------
        object
            The result of the call.
        """

    def wrap(self, value: Any, *extra: Any) -> Any:
        """Make tracers of the arrays in a result, or in a list or tuple of results."""
        return map_result(value, lambda v: self.tracer_class(self, v, *extra))

    def unwrap(self, args: Sequence[Any]) -> list[Any]:
        """Arguments with this interpreter's own tracers replaced by their values."""
        return [map_nested(value, self.lower) for value in args]

    def lower(self, value: Any) -> Any:
        """The value below one of this interpreter's tracers; all else as it is."""
        if isinstance(value, Tracer) and value.interpreter is self:
            return value.value
        return value

    def end(self) -> None:
        """End the transform: its tracers die."""
        self.alive = False

    def describe(self) -> str:
        """How messages name this transform."""
        return f"{self.kind.name} (level {self.level})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()


class Mode(Interpreter):
    """An interpreter that sees every operator called while it is open.

    It sees operators on constants and those with no array at all. While it handles
    a call, the mode outside it is the current one. It is current in the thread or
    task that opened it, and in no other.

    Attributes
    ----------
    sees_all : bool
        False for a mode that only operators with `Tag.nondeterministic_seeded`
        concern: it leaves the fast path of all others open.
    """

    sees_all: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.outer: Mode | None = None
        self._token: Token[Mode | None] | None = None

    def __enter__(self) -> Self:
        if self._token is not None or not self.alive:
            raise RegistrationError(
                f"{self.describe()} is opened a second time", do="make a new one"
            )
        # Opened later means inside: the level is the one of the opening.
        self.level: int = next(_levels)
        self.outer = self.find_outer()
        self._token = current_mode.set(self)
        if self.sees_all:
            open_modes.append(self)
        return self

    @classmethod
    def _as_handled(cls) -> Any:
        return Mode._outside

    def _outside(self, op: Operator[..., Any], args: Sequence[Any]) -> Any:
        """Process a call with the mode outside as the current one."""
        token = current_mode.set(self.outer)
        try:
            return self.process(op, args)
        finally:
            current_mode.reset(token)

    def find_outer(self) -> Mode | None:
        """The mode that is current while this one handles a call."""
        return current_mode.get()

    def __exit__(self, *exc: object) -> None:
        if current_mode.get() is not self or self._token is None:
            raise RegistrationError(
                f"{self.describe()} is closed while a mode opened later is open",
                do="close modes in the reverse order, as nested with blocks do",
            )
        if self.sees_all:
            open_modes.remove(self)
        current_mode.reset(self._token)
        super().__exit__(*exc)


def dispatch(op: RuleTable, args: Sequence[Any]) -> Any:  # noqa: C901  # one frame: see below
    """Call an operator by the slow path, which is the specification of the fast one.

    Parameters
    ----------
    op : Operator
    args : sequence
        Coerced values of all parameters, in the order of the schema.
    """
    top: Any = None
    watched_by: Sequence[Any] = ()
    if open_modes or op.sees_seed:
        top = mode_for(op)
        watched_by = observers
    for slot in op.array_slots:
        value = args[slot]
        if kind_of[type(value)] is TRACED:
            interpreter = value.interpreter
            if top is None or interpreter.level > top.level:
                top = interpreter
    if op.nested_slots:
        top = highest(top, nested_leaves(op, args))
    if top is None:
        # The kernel is called here, so that two frames stand above it.
        try:
            kernel, values, keywords, proof = op.select(args)
        except CustomOpError as error:
            # From here: how the fault was found is no news for the caller.
            raise error.with_traceback(None) from error.__cause__
        run = observed(op, "kernel", kernel, args, proof) if watched_by else kernel
        try:
            out = run(*values, **keywords)
        except Exception as error:
            if proof is None or not proof.concerns(error):
                raise
            again = proof.copies(error)
            values, keywords = (
                again[: len(values)],
                dict(zip(keywords, again[len(values) :], strict=True)),
            )
        else:
            return out if proof is None else proof.check(out)
        return proof.check(run(*values, **keywords))
    if not top.alive:
        raise leaked(op, top)
    if watched_by:
        return observed(op, top, top.handle, args)(op, args)
    return top.handle(op, args)


def mode_for(op: RuleTable) -> Mode | None:
    """The innermost mode of this thread or task that concerns an operator, or None.

    A context that was copied while a mode was open may hold it when it has ended.
    """
    mode = current_mode.get()
    while mode is not None and not (mode.alive and (mode.sees_all or op.sees_seed)):
        mode = mode.outer
    return mode


def highest(top: Any, values: Sequence[Any]) -> Any:
    """The interpreter of the highest level, `top` or one among tracers."""
    for value in values:
        if isinstance(value, Tracer) and (
            top is None or value.interpreter.level > top.level
        ):
            top = value.interpreter
    return top


def leaked(op: RuleTable, interpreter: Interpreter) -> LeakedTracerError:
    """The error for a tracer that outlived its transform."""
    return LeakedTracerError(
        f"{op.qualname} gets a value of {interpreter.describe()}, which has ended",
        do="return the value from the transformed function instead of storing it",
        op=op.qualname,
        kind=interpreter.kind.name,
    )


def nested_leaves(op: RuleTable, args: Sequence[Any]) -> list[Any]:
    """Arrays, and None in their places, inside the nested arguments of a call."""
    return [leaf for slot in op.nested_slots for leaf in flat(args[slot])]
