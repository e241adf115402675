"""Interpreters: running transforms and modes, and which of them handles a call.

The laws that hold here, and that tests hold on to:

1. A level comes from one counter, is never reused, and is the only order there is.
2. A tracer of level L holds only values of levels below L.
3. An interpreter unwraps a tracer only if it is the tracer's own interpreter.
4. A rule works on unwrapped values and calls operators, never kernels.
5. When a transform ends its tracers die.
6. Only modes touch the one context variable.
"""

from __future__ import annotations

import inspect
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, Self, TypeVar

import numpy as np

from customop.arrays.kinds import is_array, is_traced
from customop.arrays.nested import describe, flat, flatten, map_nested, map_result
from customop.arrays.refusals import Refusal
from customop.config import config
from customop.core.observe import open_modes
from customop.core.rule_kind import RuleKind
from customop.core.table import RuleTable
from customop.core.tracer import (
    Pinned,
    Tracer,
    fill,
    frozen,
    is_scalar,
    origins,
    overlap,
    pin,
    share,
)
from customop.errors import (
    ArgumentError,
    CustomOpError,
    DataDependentError,
    LeakedTracerError,
    RegistrationError,
    innermost,
    is_ours,
    place,
    place_of_call,
    quoted,
)
from customop.later import later

corrections: ModuleType = later(import_module, "customop.arrays.corrections")

if TYPE_CHECKING:  # users see operators, and Operator imports this module
    from customop.core.operator import Operator

P = ParamSpec("P")
T = TypeVar("T")

_levels = itertools.count(1)
# The level of a new interpreter.
next_level: Callable[[], int] = _levels.__next__
current_mode: ContextVar[Mode | None] = ContextVar("customop_mode", default=None)


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
    # For messages: the name of the transform, and the function that it runs.
    title: str = ""
    fn: Callable[..., Any] | None = None
    # Whether `process` does nothing but run the plan that an operator keeps for this class
    # of tracers. A call then runs the plan itself, as long as `runs_plans` is true.
    has_plans: ClassVar[bool] = False
    # Whether it goes on after the function that it runs has returned.
    is_lasting: ClassVar[bool] = False
    # The last error for one of its tracers whose value was asked for.
    refused: Refusal | None = None
    tracer_class: ClassVar[type[Tracer]] = Tracer
    # The arguments of the transformed function, to find those that share memory.
    inputs: Any = ()
    # The inputs that were written in place, each with arrays that keep the old values.
    written_inputs: tuple[tuple[Any, Any], ...] = ()
    # Whether a call with such an array under another name is an error.
    guards_inputs: bool = True
    # Called by dispatch: `process` itself, except for modes.
    handle: Callable[[Any, Sequence[Any]], Any]

    def __init__(self) -> None:
        # Attributes of objects: generated code reads them more often than they are set,
        # and to read an attribute of a class takes 20 ns more (Python 3.11).
        self.level: int = next(_levels)
        self.alive: bool = True
        self.runs_plans: bool = self.has_plans
        mode = current_mode.get()
        if mode is not None:
            self.show_start(mode)

    def show_start(self, mode: Mode) -> None:
        """Show this transform to a mode that is open, and to those outside of it."""
        outer: Mode | None = mode
        while outer is not None:
            outer.see_start(self)
            outer = outer.outer

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "process" in cls.__dict__:
            cls.handle = cls._as_handled()
            cls.has_plans = cls.__dict__.get("has_plans", False)

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

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> class Doubled(co.Interpreter):
        ...     kind = co.RuleKind("doubled")
        ...     def process(self, op, args):
        ...         return self.wrap(op.invoke(self.unwrap(args)) * 2.0)
        >>> with Doubled() as doubled:
        ...     y = np.add(doubled.wrap(np.ones(2)), 1.0)
        ...     print(doubled.lower(y))
        [4. 4.]
        """

    def opens(self, op: RuleTable) -> bool:
        """Return whether an operator with a body of operators runs by its body.

        Parameters
        ----------
        op : Operator
            It has such a body.

        Returns
        -------
        bool
            By default True without a rule of this kind.
        """
        return not self.kind.has_rule(op)

    def wrap(self, value: Any, *extra: Any) -> Any:
        """Make tracers of the arrays in a result.

        Parameters
        ----------
        value : array, or list or tuple of results
        *extra : object
            Passed to `tracer_class` after the interpreter and the value.

        Returns
        -------
        Tracer, or list or tuple of them
            Values that are not arrays stay as they are.
        """
        return map_result(value, lambda v: self.tracer_class(self, v, *extra))

    def unwrap(self, args: Sequence[Any]) -> list[Any]:
        """Replace this interpreter's own tracers among arguments by the values below them."""
        return [map_nested(value, self.lower) for value in args]

    def lower(self, value: Any) -> Any:
        """Return the value below one of this interpreter's tracers; other values as they are."""
        if isinstance(value, Tracer) and value.interpreter is self:
            return value.below
        return value

    def take_out(self, value: Any) -> Any:
        """Return the value below a tracer, as a result that the user may write to."""
        if isinstance(value, Tracer):
            below = value.below if value.interpreter is self else value
            is_array = type(value.box_place) is Pinned and not value.shape
            if isinstance(below, Tracer):
                below = frozen(below)
                if is_array:
                    pin(below)
                return below
            if is_array and isinstance(below, np.generic):
                return np.asarray(below)
            is_view = type(value.box_place) is tuple and not below.shape
            # NumPy's methods of scalars give scalars, and operators arrays.
            return below[()] if is_view and is_scalar(value) else below
        return value

    # ---- writing in place ----

    def constant(self, value: Any) -> Any:
        """Make a tracer of a constant, which is written into a tracer of this transform.

        A subclass whose tracers have more than a value overrides it.

        Parameters
        ----------
        value : array
            Of a lower level.

        Returns
        -------
        Tracer
        """
        return self.wrap(value)

    def replace(self, box: Tracer, new: Any) -> None:
        """Put the content of another tracer in one, of which the user has the name."""
        fill(box, new)

    def note_write(self, box: Tracer) -> None:
        """Show open modes a tracer of this transform that was written in place."""
        mode = current_mode.get()
        while mode is not None:
            mode.see_write(box)
            mode = mode.outer

    def strides_sources(self, box: Tracer) -> tuple[Any, ...]:
        """Return pairs of a capture and its node, if these decide the strides of a tracer."""
        return ()

    def guard(self, origin: Any) -> None:
        """Note that an argument was written: calls with it under another name raise."""
        if self.guards_inputs and config.checks != "never":
            if all(origin is not argument for _, argument in self.written_inputs):
                new = [(memory, origin) for memory in origins(origin)]
                self.written_inputs = (*self.written_inputs, *new)
            # From here on every call looks at its arguments.
            self.runs_plans = False
            self.handle = self._handle_guarded

    def _handle_guarded(self, op: Operator[..., Any], args: Sequence[Any]) -> Any:
        self.check_written(op, args)
        handle: Any = type(self).handle
        return handle(self, op, args)

    def check_written(self, op: RuleTable, args: Sequence[Any]) -> None:
        """Raise for an array that has the old values of an argument that was written."""
        for p, value in zip(op.schema.parameters, args, strict=True):
            for leaf in flat(value):
                for memory, origin in self.written_inputs if is_array(leaf) else ():
                    # A tracer of an outer transform is not written here.
                    is_outer = is_traced(leaf) and leaf.interpreter.level < self.level
                    if (overlap if is_outer else share)(leaf, memory):
                        self.report(self._stale(op, p.name, leaf, origin))

    def _stale(
        self, op: RuleTable, parameter: str, value: Any, origin: Any
    ) -> ArgumentError:
        name = name_of(origin, self.fn, self.inputs)
        plain = name.split("'")[1] if "'" in name else "x"
        return op.error(
            ArgumentError,
            f"argument '{parameter}', {describe(value)}, is {name} of {self.describe()}"
            " under another name, and has the values from before that was written",
            do=f"use {plain} itself, or write to a copy: {plain} = {plain}.copy()",
            parameter=parameter,
        )

    def report(self, fault: CustomOpError) -> None:
        """Raise a fault of the function that runs."""
        raise fault

    def again(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Take a view again, whatever modes are open and also after the end."""
        return run_under(None, self.process, op, args)  # type: ignore[arg-type]  # a called table is an operator

    def given(self) -> list[Any]:
        """Return the arrays among `inputs`."""
        return [v for v in flatten(self.inputs)[0] if is_array(v)]

    def end(self) -> None:
        """End the transform: its tracers can no longer be used.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> class Plain(co.Interpreter):
        ...     kind = co.RuleKind("plain")
        ...     def process(self, op, args):
        ...         return self.wrap(op.invoke(self.unwrap(args)))
        >>> plain = Plain()
        >>> x = plain.wrap(np.zeros(2))
        >>> plain.end()
        >>> np.sin(x)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        customop.LeakedTracerError: np::sin gets a value of plain, which has ended
          ...
        """
        self.alive = self.runs_plans = False
        if self.written_inputs:
            del self.handle  # which refers to this object

    def describe(self) -> str:
        """Return the name of this transform in messages, such as ``grad(loss)``."""
        title = self.title or self.kind.name
        name = _name_of_users(self.fn)
        return f"{title}({name})" if name else title

    def where(self) -> str:
        """Return a line for messages that says which call of the transform this is, if known."""
        if self.fn is None:
            return ""
        called = place_of_call(self, self.fn)
        if called:
            return f"{self.describe()} is called at {called}"
        name = _name_of_users(self.fn)
        return f"{name} is defined at {place(self.fn)}" if name else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()
        error = exc[1] if exc else None
        if isinstance(error, Exception):
            self.raise_refused(error)

    def raise_refused(self, error: Exception) -> None:
        """Raise the error for a value that was asked for, if other code has replaced it."""
        if isinstance(error, CustomOpError):
            return
        is_own = type(error).__module__ == "builtins"
        if not is_own or str(error).startswith("unhashable type"):
            corrections.explain_foreign(error)
            return
        own, trace = error.__cause__, error.__traceback__
        if not isinstance(own, DataDependentError):
            refused = self.refused
            own = refused.error if refused and refused.causes(error) else None
        if own is not None and trace is not None:
            is_numpy = type(error) in (ValueError, TypeError, SystemError)
            raise own.with_traceback(trace.tb_next) from None if is_numpy else error


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
    is_capture : bool
        Whether it records what runs, so that variables made meanwhile belong to it.
    tapes : tuple of Interpreter
        Those of such variables. They end with the mode.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> class Names(co.Mode):
    ...     kind = co.RuleKind("names")
    ...     def process(self, op, args):
    ...         print(op.qualname)
    ...         return op.invoke(args)
    >>> with Names():
    ...     y = co.ops.np.sin(np.zeros(2))
    np::sin
    """

    sees_all: ClassVar[bool] = True
    is_capture: ClassVar[bool] = False
    tapes: tuple[Interpreter, ...] = ()

    outer: Mode | None = None
    # The mode that was current when it was opened, in a tuple.
    _before: tuple[Mode | None, ...] = ()

    def __enter__(self) -> Self:
        if self._before or not self.alive:
            raise RegistrationError(
                f"{self.describe()} is opened a second time", do="make a new one"
            )
        # The level counts from the opening: modes opened later are inside.
        self.level: int = next(_levels)
        self.outer = self.find_outer()
        self._before = (current_mode.get(),)
        # Without `__exit__`, which Python calls only if this method returns.
        try:
            if self.sees_all:
                open_modes.append(self)
            current_mode.set(self)
            self._on_open()
            return self  # noqa: TRY300  # an interrupt before it comes into the handler
        except BaseException:
            self._close(())
            raise

    def _on_open(self) -> None:
        """Set up what the mode needs, when it has been opened."""

    def _on_close(self) -> None:
        """Put back what `_on_open` has changed. It may run twice, or without that."""

    @classmethod
    def _as_handled(cls) -> Any:
        return Mode._outside

    def _outside(self, op: Operator[..., Any], args: Sequence[Any]) -> Any:
        """Process a call with the mode outside as the current one."""
        before = current_mode.get()
        try:
            current_mode.set(self.outer)
            return self.process(op, args)
        finally:
            current_mode.set(before)

    def see_write(self, box: Tracer) -> None:
        """Look at a tracer that was written in place while the mode is open."""

    def see_start(self, interpreter: Interpreter) -> None:
        """Look at a transform that begins while the mode is open."""

    def find_outer(self) -> Mode | None:
        """Return the mode that is current while this one handles a call."""
        return current_mode.get()

    def _opened_inside(self) -> list[Mode] | None:
        """Return the modes opened later that are open; None if this one is not open here."""
        found: list[Mode] = []
        mode = current_mode.get()
        while mode is not None and mode is not self:
            found.append(mode)
            mode = mode.outer
        return None if mode is None else found

    def __exit__(self, *exc: object) -> None:
        inside: list[Mode] | None = None
        try:
            inside = self._opened_inside()
            # An interrupt may come before the first line of the `__exit__` of a mode.
            is_interrupted = bool(exc) and isinstance(exc[1], BaseException)
            fits = inside is not None and (not inside or is_interrupted)
            if inside is not None and fits:
                self._close(inside)
        except BaseException:  # an interrupt: it does not come twice
            self._close(inside or ())
            raise
        if not fits:
            raise RegistrationError(
                f"{self.describe()} is closed while a mode opened later is open",
                do="close modes in the reverse order, as nested with blocks do",
            )
        super().__exit__(*exc)
        for tape in self.tapes:
            tape.end()

    def _close(self, inside: Sequence[Mode]) -> None:
        """Close this mode and those opened later; it may run again after an interrupt."""
        for mode in inside:
            mode.end()
        for mode in (*inside, self):
            mode._on_close()  # noqa: SLF001  # of the same class
            if mode in open_modes:
                open_modes.remove(mode)
        current_mode.set(*self._before)

    def close_interrupted(self) -> None:
        """Close the mode if an interrupt came before the first line of its `__exit__`."""
        inside = self._opened_inside()
        if inside is not None:
            self._close(inside)
            self.end()


def run_inside(
    mode: Mode, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Open a mode, call a function and close the mode, also where an interrupt comes."""
    try:
        with mode:
            return fn(*args, **kwargs)
    finally:
        mode.close_interrupted()


def run_under(
    mode: Mode | None, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call a function while a mode that is open, or none, is the current one."""
    before = current_mode.get()
    try:
        # Inside, because an interrupt may come when the call returns.
        current_mode.set(mode)
        return fn(*args, **kwargs)
    finally:
        current_mode.set(before)


def _name_of_users(fn: Callable[..., Any] | None) -> str:
    """Return the name of a function; empty for one of this package."""
    inner = innermost(fn)
    if fn is None or is_ours(getattr(inner, "__globals__", {"__name__": ""})):
        return ""
    return str(getattr(inner, "__name__", type(fn).__name__))


# ---- who handles a call ----


def top_interpreter(op: RuleTable, args: Sequence[Any]) -> Any:
    """Return the mode or transform that handles a call, or None."""
    top: Any = mode_for(op) if open_modes or op.sees_seed else None
    for slot in op.array_slots:
        value = args[slot]
        if isinstance(value, Tracer):
            interpreter = value.interpreter
            if top is None or interpreter.level > top.level:
                top = interpreter
    return highest(top, nested_leaves(op, args)) if op.nested_slots else top


def mode_for(op: RuleTable) -> Mode | None:
    """Return the innermost mode of this thread or task that concerns an operator, or None.

    A context that was copied while a mode was open may hold it when it has ended.
    """
    mode = current_mode.get()
    while mode is not None and not (mode.alive and (mode.sees_all or op.sees_seed)):
        mode = mode.outer
    return mode


def highest(top: Any, values: Sequence[Any]) -> Any:
    """Return the interpreter of the highest level, `top` or one among tracers."""
    for value in values:
        if isinstance(value, Tracer) and (
            top is None or value.interpreter.level > top.level
        ):
            top = value.interpreter
    return top


def nested_leaves(op: RuleTable, args: Sequence[Any]) -> list[Any]:
    """List the arrays inside the nested arguments of a call, with None where one is missing."""
    return [leaf for slot in op.nested_slots for leaf in flat(args[slot])]


def leaked(op: RuleTable, interpreter: Interpreter) -> LeakedTracerError:
    """Build the error for a tracer that outlived its transform."""
    return op.error(
        LeakedTracerError,
        f" gets a value of {interpreter.describe()}, which has ended",
        interpreter.where(),
        do="return the value from the transformed function instead of storing it",
        parameter=None,
        kind=interpreter.kind.name,
    )


# ---- the arguments of a function that is transformed, by name ----


def given_by_name(
    fn: Callable[..., Any] | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return arguments by parameter name; by number if the signature is not known."""
    try:
        assert fn is not None
        return dict(inspect.signature(fn).bind(*args, **kwargs).arguments)
    except (AssertionError, TypeError, ValueError):
        return {**{f"{i}": value for i, value in enumerate(args)}, **kwargs}


def name_of(array: Any, fn: Callable[..., Any] | None, inputs: Any) -> str:
    """Name the argument that is or holds an array, as in ``argument 'x'``.

    `inputs` are the arguments, or a pair of those by position and those by name.
    """
    is_pair = len(inputs) == 2 and type(inputs[1]) is dict
    args, kwargs = inputs if is_pair and type(inputs[0]) is tuple else (inputs, {})
    if not args and not kwargs:  # the usual case: it is the only argument
        args = (array,)
    for name, value in given_by_name(fn, args, kwargs).items():
        if any(leaf is array for leaf in flatten(value)[0]):
            return f"argument {name}" if name.isdigit() else f"argument '{name}'"
    return "an argument"


def explain_read_only(
    error: ValueError, what: str, names: Sequence[str], do: str
) -> None:
    """Add to NumPy's error what is read-only and what to write instead."""
    if "read-only" in str(error) and names:
        is_one = len(names) == 1
        # A copy takes no traced values.
        copy = corrections.correction(error)
        error.add_note(
            f"inside {what} {quoted(names)} {'is' if is_one else 'are'} read-only, as a"
            f" write would change {'it' if is_one else 'them'} outside\n"
            f"  do: {copy or f'write to a copy, {names[0]} = {names[0]}.copy()'}; or {do}"
        )
