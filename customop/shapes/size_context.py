"""The sizes of one capture: their names, bounds, facts, guards and values in a run."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

from customop.errors import ArgumentError, DataDependentError, ShapeError, caller_place
from customop.shapes.conditions import (
    FOR_NUMBERS,
    Calculation,
    Compared,
    Condition,
    FloatName,
    Guard,
    Side,
    Size,
    check_askable,
    check_bounds,
    check_name,
    names_in_side,
    side_value,
    too_large,
)
from customop.shapes.expressions import (
    Expr,
    LargeSize,
    Number,
    solve_for_name,
    substitute,
    symbol,
)
from customop.shapes.notation import as_name
from customop.shapes.proofs import Knowledge
from customop.shapes.sizes import Guesses, guessing, made
from customop.shapes.symbolic import (
    SymBool,
    SymInt,
    as_side,
    class_of,
    make_float,
    make_int,
    whole_of,
)
from customop.shapes.symbolic_operations import (
    apply_ufunc,
    compared,
    operated,
    with_class,
)

# ---- the sizes of one capture ----
# Their names and bounds, facts about them, and guards.


class SizeContext:
    """The sizes of one capture.

    Attributes
    ----------
    sizes : dict
        Name -> Size, in the order in which they were made.
    guards : list of Guard
        Conditions on the sizes of inputs, in order.
    checks : list of Guard
        Conditions on sizes that depend on data, in order.
    knowledge : Knowledge
        Bounds and facts.

    Examples
    --------
    >>> from customop.shapes.size_context import SizeContext
    >>> context = SizeContext()
    >>> n = context.input_size(4, "x.shape[0]")
    >>> m = context.new_dynamic_size(min=1, max=10)
    >>> bool(n > 2), m <= 10, n * m
    (True, True, s0*u0)
    >>> [guard.text for guard in context.guards]
    ['s0 > 2']
    """

    def __init__(self) -> None:
        made[:] = [True]
        self.sizes: dict[str, Size] = {}
        self.guards: list[Guard] = []
        self.checks: list[Guard] = []
        self.knowledge: Knowledge = Knowledge()
        # Name -> a value for the order of strides: as in the call, and at least 2.
        self.typical: dict[str, int] = {}
        # Results of operations: sign and two sides -> expression.
        self.results: dict[tuple[str, Number, Number], Number] = {}
        self._decided: dict[Condition, bool] = {}
        self._compared: dict[tuple[str, Side, Side], bool | None] = {}
        self._numbers = {"s": 0, "u": 0, "v": 0}
        # Inputs that are numbers: name -> number of the input; and those whose values were
        # asked for, each with the line that asked.
        self.numbers: dict[str, int] = {}
        self.reads: dict[int, str] = {}
        self.guesses: Guesses = Guesses()
        # True after the capture: then no call of real arrays may have its sizes.
        self.has_ended: bool = False

    # ---- new sizes ----

    def input_size(
        self,
        hint: int,
        source: str,
        name: str | None = None,
        min: int = 0,  # noqa: A002  # as new_dynamic_size has it
        max: int | None = None,  # noqa: A002
    ) -> Any:
        """Make the size of an input.

        Parameters
        ----------
        hint : int
            Its value in the call that is captured.
        source : str
            Its text in messages and generated code, such as ``x.shape[0]``.
        name : str, optional
            The user's name for it. The same name is the same size.
        min, max : int, optional
            Bounds.

        Returns
        -------
        SymInt

        Raises
        ------
        ShapeError
            If a name already has another value.
        ArgumentError
            If a name cannot be used, or the bounds are wrong.
        """
        check_bounds("input_size", min, max)
        if name is None:
            return self._new(self._next("s"), "input", hint, source, source, min, max)
        # Generated code has it as a variable.
        name = as_name(name) if isinstance(name, str) else name
        before = self.sizes.get(name)
        if before is None:
            check_name(name)
            return self._new(name, "named", hint, source, source, min, max)
        if before.hint != hint:
            raise ShapeError(
                f"the size '{name}' is {before.hint} in {before.sources[0]} and {hint}"
                f" in {source}",
                do="give sizes that may differ different names",
            )
        before.sources.append(source)
        self.knowledge.set_bounds(name, min, inf if max is None else max)
        self._compared.clear()
        return make_int(self, symbol(name), hint)

    def input_number(self, value: Any, source: str, number: int) -> Any:
        """Make the number that an input is: any int or float, by the class of `value`.

        Parameters
        ----------
        value : int or float
            What it is in the call that is captured.
        source : str
            Its text in messages, such as ``rate``.
        number : int
            Number of the input.

        Returns
        -------
        SymInt or SymFloat
        """
        name = self._next("v")
        self.numbers[name] = number
        found = self.add(Size(name, "number", value, source, source, (0, None)))
        if type(value) is int:
            return found
        return make_float(self, FloatName(name, ()), value)

    def read_number(self, names: Iterable[str]) -> None:
        """Raise, and note the line, if the value of an input is asked for.

        Raises
        ------
        DataDependentError
            If one of the names is such an input.
        """
        asked = self.numbers.keys() & names
        if not asked:
            return
        place = caller_place()
        self.reads.update((self.numbers[name], f"at {place}") for name in asked)
        texts = " and ".join(sorted(self.sizes[name].origin for name in asked))
        raise DataDependentError(
            f"the value of {texts} is asked",
            f"at {place}",
            do="capture the function for this value",
        )

    def new_dynamic_size(
        self,
        min: Any = 0,  # noqa: A002  # the names that torch.library has
        max: Any = None,  # noqa: A002
        origin: str = "",
    ) -> Any:
        """Make a size that depends on the values of arrays.

        Parameters
        ----------
        min : int or SymInt
            The least value that it can have.
        max : int or SymInt, optional
            The largest value that it can have.
        origin : str, optional
            Where it comes from, for messages.

        Returns
        -------
        SymInt

        Raises
        ------
        ArgumentError
            If `min` is negative, `max` is less than `min`, or one is not an int.
        """
        is_low, is_high = isinstance(min, SymInt), isinstance(max, SymInt)
        low, high = 0 if is_low else min, None if is_high else max
        check_bounds("new_dynamic_size", low, high)
        made = self._new(self._next("u"), "data", None, "", origin, low, high)
        # Bounds that are symbolic are facts.
        if is_low:
            self.require(Compared(made.expr, ">=", min.expr))
        if is_high:
            self.require(Compared(made.expr, "<=", max.expr))
        return made

    def _next(self, letter: str) -> str:
        number = self._numbers[letter]
        while f"{letter}{number}" in self.sizes:
            number += 1
        self._numbers[letter] = number + 1
        return f"{letter}{number}"

    def _new(
        self,
        name: str,
        kind: str,
        hint: int | None,
        source: str,
        origin: str,
        low: int,
        high: int | None,
    ) -> Any:
        return self.add(Size(name, kind, hint, source, origin, (low, high)))

    def add(self, size: Size) -> Any:
        """Take a size that was made elsewhere, and give its `SymInt`."""
        name, hint = size.name, size.hint
        is_number = size.kind == "number"
        low, high = size.bounds
        self.sizes[name] = size
        self.knowledge.set_bounds(
            name, -inf if is_number else low, inf if high is None else high
        )
        self.typical[name] = 2 if hint is None or (hint < 2 and not is_number) else hint
        return make_int(self, symbol(name), hint)

    def restore(self, guard: Guard) -> None:
        """Take a condition that was found elsewhere."""
        has_data = any(self.sizes[name].kind == "data" for name in guard.names)
        (self.checks if has_data else self.guards).append(guard)
        guard.condition.learn(self.knowledge)

    # ---- values ----

    def operate(self, sign: str, left: Any, right: Any) -> Any:
        """Compute an operation of Python on sizes and other numbers."""
        try:
            return operated(self, sign, left, right)
        except LargeSize as error:
            raise too_large(error) from None

    def compared(self, left: Any, sign: str, right: object) -> Any:
        """Return whether a comparison holds; a `SymBool` where that is not certain."""
        return compared(left, sign, right)

    def as_class(self, value: Any, cls: type) -> Any:
        """Return a size or another number in a class of Python or NumPy."""
        return with_class(self, value, cls)

    def apply_ufunc(
        self, ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Compute a ufunc of NumPy for sizes, and for other numbers or arrays."""
        try:
            return apply_ufunc(ufunc, method, inputs, kwargs)
        except LargeSize as error:
            raise too_large(error) from None

    def wrap(self, value: Number) -> Any:
        """Return an expression of these sizes as a `SymInt`; an int as it is."""
        return make_int(self, value, self.hint_of(value))

    def hint_of(self, side: Side) -> Any:
        """Return the value of an expression in the call; None if it depends on data."""
        names = names_in_side(side)
        hints = {name: self.sizes[name].hint for name in names}
        if None in hints.values():
            return None
        return side_value(side, hints)  # type: ignore[arg-type]  # None was excluded

    def extreme(self, sign: str, *values: Any) -> Any:
        """Return the minimum or maximum (``"min"`` or ``"max"``) of numbers."""
        found = values[0]
        try:
            for value in values[1:]:
                found = self._extreme(sign, found, value)
        except LargeSize as error:
            raise too_large(error) from None
        return found

    def _extreme(self, sign: str, first: Any, second: Any) -> Any:
        a, b = whole_of(first), whole_of(second)
        if a is not None and b is not None:
            return self.wrap(self.knowledge.extreme(sign, a, b))
        return make_float(self, Calculation(sign, (as_side(first), as_side(second))))

    def number(self, value: Any) -> Any:
        """Return the value of a symbolic number, which becomes a guard.

        Raises
        ------
        DataDependentError, SizeError
            As `decide` does.
        """
        self.read_number(names_in_side(value.side))
        whole = whole_of(value)
        side = value.side if whole is None else whole
        condition = Compared(side, "==", value.hint)
        if value.hint is None or not self.known(condition):
            asked = f"the number {value} is asked"
            self._check_askable(asked, condition.names, FOR_NUMBERS)
            self.decide(condition, "number")
        return value.hint if whole is None else class_of(value)(value.hint)

    # ---- questions ----

    def compare(self, left: Side, sign: str, right: Side) -> bool | None:
        """Return whether a comparison always holds; False for never, else None."""
        key = (sign, left, right)
        if key in self._compared:
            return self._compared[key]
        found = self._compared[key] = self.known(Compared(left, sign, right))
        return found

    def known(self, condition: Condition) -> bool | None:
        """Return whether a condition always holds; False for never, else None."""
        found = self._decided.get(condition)
        return condition.known(self.knowledge) if found is None else found

    def decide(self, condition: Condition, kind: str = "guard") -> bool:
        """Return whether a condition holds, and record a guard for what was assumed.

        Raises
        ------
        DataDependentError
            If it depends on data.
        SizeError
            If it has only sizes to which the user gave names.
        """
        found = self.known(condition)
        if found is not None:
            return found
        self.read_number(condition.names)
        self._check_decidable(condition)
        hints = {name: self.sizes[name].hint for name in condition.names}
        found = condition.holds(hints)  # type: ignore[arg-type]  # no data: all have hints
        self._record(condition if found else condition.opposite, kind)
        self._decided[condition] = found
        return found

    def _check_decidable(self, condition: Condition) -> None:
        if isinstance(condition, Compared) and condition.sign == "!=":
            condition = condition.opposite
        self._check_askable(f"whether {condition} is asked", condition.names)

    def _check_askable(self, asked: str, names: frozenset[str], do: str = "") -> None:
        check_askable(asked, names, self.sizes, self.knowledge, do)

    def is_unnamed(self, side: Side) -> bool:
        """Return whether all sizes in an expression are of inputs without a name."""
        return all(self.sizes[n].kind == "input" for n in names_in_side(side))

    # ---- facts ----

    def _record(self, condition: Condition, kind: str, message: str = "") -> None:
        plainer = condition.plainer
        guard = Guard(plainer, str(plainer), caller_place(), kind, message)
        has_data = any(self.sizes[n].kind == "data" for n in condition.names)
        listed = self.checks if has_data else self.guards
        if guard not in listed:
            listed.append(guard)
        condition.learn(self.knowledge)
        self._compared.clear()
        self._decided.clear()
        self._decided[condition] = True
        self._decided[condition.opposite] = False

    def require(self, condition: Condition, message: str = "") -> None:
        """Note that a condition holds: it is known from now on, and the graph checks it.

        Raises
        ------
        ShapeError
            If it does not hold in this call.
        """
        if self.known(condition):
            return
        if not self.can_hold(condition):
            raise ShapeError(
                message or f"check({condition}) fails{self._value(condition)}",
                f"at {caller_place()}",
                do="pass arrays of other sizes, or change the check",
            )
        self._record(condition, "check", message)

    def can_hold(self, condition: Condition) -> bool:
        """Return whether a condition holds in this call, as far as that is known."""
        known = self.known(condition)
        if known is not None:
            return known
        hints = {name: self.sizes[name].hint for name in condition.names}
        return None in hints.values() or condition.holds(hints)  # type: ignore[arg-type]  # None was excluded

    def _value(self, condition: Condition) -> str:
        name = min(condition.names, default=None)
        hint = None if name is None else self.sizes[name].hint
        return "" if hint is None else f": {name} is {hint}"

    def assume_nonzero(self, divisor: Any) -> None:
        """Note that a divisor is not zero; the graph checks it.

        Raises
        ------
        ZeroDivisionError
            If it is zero.
        """
        if type(divisor) is int and divisor:
            return
        whole = whole_of(divisor)
        side = as_side(divisor) if whole is None else whole
        if not isinstance(side, Expr):
            if not side and not isinstance(side, Calculation):
                raise ZeroDivisionError("division by zero")
            return
        if not self.numbers.keys().isdisjoint(names_in_side(side)):
            return  # Python raises when the graph runs
        if self.hint_of(side) == 0:
            raise ZeroDivisionError(f"division by zero: {divisor} is 0")
        if not self.compare(side, "!=", 0):
            self._record(Compared(side, "!=", 0), "check")


# ---- the context of code that runs now, and `check` of conditions on sizes ----


class _Active(threading.local):
    """The context of this thread, and that of calls outside of any capture."""

    context: SizeContext | None = None
    plain: weakref.ref[SizeContext] | None = None


_active = _Active()


def set_active(context: SizeContext | None) -> SizeContext | None:
    """Set the context of new sizes in this thread, and return the one before."""
    before = _active.context
    _active.context = context
    guessing.guesses = None if context is None else context.guesses
    return before


def captured_sizes() -> SizeContext | None:
    """Return the sizes of the capture that runs in this thread, or None."""
    return _active.context


def active_context() -> SizeContext:
    """Return the context of new sizes.

    Outside of a capture it is one for all sizes of the thread that are still in use, so
    that their names differ.
    """
    if _active.context is not None:
        return _active.context
    found = None if _active.plain is None else _active.plain()
    if found is None:
        found = SizeContext()
        _active.plain = weakref.ref(found)
    return found


def check(condition: Any, message: str | None = None) -> None:
    """Require a condition on sizes.

    Parameters
    ----------
    condition : bool or SymBool
        Such as ``x.shape[0] > 0``.
    message : str, optional
        For the error.

    Raises
    ------
    ShapeError
        If it does not hold.
    ArgumentError
        If it is an array with axes.

    Notes
    -----
    Of symbolic sizes the condition is known from then on, so that questions about them
    can be answered. A captured graph checks it when it is called.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> x = co.FakeMode().from_array(np.zeros(5), sizes=("n",))
    >>> n = x.shape[0]
    >>> co.check(n >= 2)
    >>> n == 0, n + 1 > 2
    (False, True)

    A message for those who call the graph with other sizes:

    >>> def half(x):
    ...     co.check(x.shape[0] % 2 == 0, "an even number of rows")
    ...     return np.sum(x)
    >>> graph = co.make_fx(half, sizes={"x": ("n",)})(np.ones(4))
    >>> graph(np.ones(3))
    Traceback (most recent call last):
    ...
    customop.ShapeError: an even number of rows
    ...
    """
    if isinstance(condition, SymBool):
        condition.context.require(condition.condition, message or "")
    elif getattr(condition, "ndim", 0):
        raise ArgumentError(
            f"check: the condition has the shape {condition.shape}, and must be one bool",
            do="write condition.all(), or condition.any()",
        )
    elif not condition:
        raise ShapeError(
            message or "check: the condition is False",
            f"at {caller_place()}",
            do="pass arrays of other sizes, or change the check",
        )


# ---- the values of dynamic sizes, from arrays of a run ----


def solve_names(pairs: Iterable[tuple[Any, int]]) -> dict[str, int]:
    """Solve for the values of names, from sizes and the numbers that they became."""
    found: dict[str, int] = {}
    waiting = [(as_side(size), number) for size, number in pairs]
    while True:
        before = len(found)
        for size, number in waiting:
            rest = substitute(size, found)  # type: ignore[arg-type]  # of a size
            solved = solve_for_name(rest, number)
            if solved is not None:
                found[solved[0]] = solved[1]
        if len(found) == before:
            return found


def with_values(context: SizeContext, size: Any, values: Mapping[str, int]) -> Any:
    """Return a size with numbers in place of names."""
    return context.wrap(substitute(as_side(size), values))  # type: ignore[arg-type]  # of a size


def fault_of(context: SizeContext, values: Mapping[str, int]) -> str:
    """Explain which value is out of bounds, or which check fails; or return nothing."""
    for name, value in values.items():
        low, high = context.sizes[name].bounds
        if value < low:
            return f"a size {value}, and the fake kernel says at least {low}"
        if high is not None and value > high:
            return f"a size {value}, and the fake kernel says at most {high}"
    for guard in context.checks:
        if guard.names <= values.keys() and not guard.holds(values):
            numbers = " and ".join(f"{n} = {values[n]}" for n in sorted(guard.names))
            return f"{numbers}, and the fake kernel says {guard.text}"
    return ""
