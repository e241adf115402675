"""Symbolic numbers: `SymInt`, `SymFloat` and `SymBool`."""

from __future__ import annotations

import math
import numbers
import operator
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from customop.errors import ArgumentError
from customop.later import later
from customop.shapes.conditions import (
    Calculation,
    Condition,
    Logic,
    Side,
    names_in_side,
    side_class,
)
from customop.shapes.expressions import (
    Expr,
    Number,
    add,
    check_text,
    multiply,
    negate,
    power,
    value_of,
)
from customop.shapes.sizes import Symbolic, number_classes

if TYPE_CHECKING:
    from customop.shapes.size_context import SizeContext

# Reads instructions, which most programs never need.
symbolic_operations: ModuleType = later(
    import_module, "customop.shapes.symbolic_operations"
)


# ---- base of symbolic numbers: their context, and the operators of Python ----


class InContext(Symbolic):
    """Base of symbolic numbers and conditions."""

    __slots__ = ("context", "hint")

    context: SizeContext
    hint: Any
    number_class: Any

    @property
    def value(self) -> Any:
        """The number that it is in this call, which becomes a guard."""
        return self.context.number(self)

    # Immutable, and the context is an identity.

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __reduce__(self) -> NoReturn:
        raise ArgumentError(
            f"the symbolic {self} cannot be pickled: it belongs to one capture",
            do="save the graph with graph.save(path)",
        )


class RealNumber(InContext):
    """A symbolic number: arithmetic and comparisons of `SymInt` and `SymFloat`."""

    __slots__ = ()

    @property
    def side(self) -> Side:
        """The expression or calculation."""
        raise NotImplementedError

    @property
    def __class__(self) -> type:
        """The class that isinstance sees; for an input, that of its number."""
        cls: type = self.number_class if has_numbers(self) else type(self)
        return cls if cls in (int, float) else type(self)

    @__class__.setter
    def __class__(self, new: type) -> NoReturn:
        raise TypeError("the class of a symbolic number cannot be set")

    # ---- arithmetic ----

    def __add__(self, other: Any) -> Any:
        return self.context.operate("+", self, other)

    def __radd__(self, other: Any) -> Any:
        return self.context.operate("+", other, self)

    def __sub__(self, other: Any) -> Any:
        return self.context.operate("-", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self.context.operate("-", other, self)

    def __mul__(self, other: Any) -> Any:
        return self.context.operate("*", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self.context.operate("*", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self.context.operate("/", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self.context.operate("/", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return self.context.operate("//", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self.context.operate("//", other, self)

    def __mod__(self, other: Any) -> Any:
        return self.context.operate("%", self, other)

    def __rmod__(self, other: Any) -> Any:
        return self.context.operate("%", other, self)

    def __divmod__(self, other: Any) -> Any:
        quotient = self // other
        return (
            NotImplemented if quotient is NotImplemented else (quotient, self % other)
        )

    def __rdivmod__(self, other: Any) -> Any:
        quotient = other // self
        return (
            NotImplemented if quotient is NotImplemented else (quotient, other % self)
        )

    def __pow__(self, other: Any) -> Any:
        return self.context.operate("**", self, other)

    def __rpow__(self, other: Any) -> Any:
        return self.context.operate("**", other, self)

    def __pos__(self) -> Any:
        return self

    # A comparison is a bool where it can be proven.

    def __eq__(self, other: object) -> Any:
        return self.context.compared(self, "==", other)

    def __ne__(self, other: object) -> Any:
        return self.context.compared(self, "!=", other)

    def __lt__(self, other: Any) -> Any:
        return self.context.compared(self, "<", other)

    def __le__(self, other: Any) -> Any:
        return self.context.compared(self, "<=", other)

    def __gt__(self, other: Any) -> Any:
        return self.context.compared(self, ">", other)

    def __ge__(self, other: Any) -> Any:
        return self.context.compared(self, ">=", other)

    def __hash__(self) -> int:
        if self.context.numbers:
            read_numbers(self)  # it may be a key
        return hash(self.side)

    def __bool__(self) -> bool:
        return bool(self != 0)

    # ---- text and NumPy ----

    def __str__(self) -> str:
        return str(self.side)

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.value, dtype)

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        return self.context.apply_ufunc(ufunc, method, inputs, kwargs)

    # Numbers of NumPy have these.

    @property
    def astype(self) -> Callable[[Any], Any]:
        """Convert a number of NumPy to a dtype; Python's have no such method."""
        self._check_numpy("astype")
        return lambda dtype: self.context.as_class(self, np.dtype(dtype).type)

    @property
    def item(self) -> Callable[[], Any]:
        """Convert a number of NumPy to one of Python, which have no such method."""
        self._check_numpy("item")
        plain = type(self.number_class(1).item())
        return lambda: self.context.as_class(self, plain)

    def _check_numpy(self, name: str) -> None:
        cls = self.number_class
        if not issubclass(cls, np.generic):
            raise AttributeError(  # noqa: TRY004  # as of any missing attribute
                f"the symbolic {self} is of the class {cls.__name__}, which has no"
                f" attribute '{name}'"
            )

    def __complex__(self) -> complex:
        return complex(self.value)

    @property
    def real(self) -> Any:
        """The number itself."""
        return self

    @property
    def imag(self) -> int:
        """Zero."""
        return 0

    def conjugate(self) -> Any:
        """Return the number itself."""
        return self


# ---- symbolic sizes ----
# `SymInt`, and the numbers that are calculated from them: `SymFloat`.
#
# They are numbers that are not known while a function is captured. A plain int stays a
# plain int: an operation whose result is constant returns one.


# The classes of NumPy of which there are sizes. Those of others, whose numbers soon are out
# of range, are calculated as NumPy does.
WHOLE: Final = frozenset(np.dtype(c).type for c in "ilqp")


class SymInt(RealNumber):
    """A size that is not known while a function is captured, such as ``s0 + 1``.

    It takes part in integer arithmetic and comparisons. A comparison that follows from
    the bounds of the sizes is True or False. Another one is a `SymBool`, which decides
    when Python needs to know: sizes of inputs by the values that they had, with a guard
    in the graph; sizes that depend on data raise `DataDependentError`.

    A size is an int, which does not change the dtype of an array beside it. What NumPy's
    functions make of it, such as ``np.minimum(n, 3)``, is an ``np.int64``, which does.

    Attributes
    ----------
    expr : Expr
        The expression.
    number_class : type
        The class of the number that it will be: int, or one of NumPy.
    context : SizeContext
        The sizes of the capture that it belongs to.
    hint : int or None
        Its value in the call that was captured; None if it depends on data.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> x = co.FakeMode().from_array(np.zeros((4, 3)), sizes=("batch", 3))
    >>> n = x.shape[0]
    >>> (6 * n + 5) // 3, n >= 0, n + 1 == n
    (2*batch + 1, True, False)
    >>> np.minimum(n, 3)
    np.int64(min(3, batch))
    """

    __slots__ = ("expr", "number_class")

    expr: Expr
    number_class: type
    hint: int | None

    @property
    def side(self) -> Side:
        """The expression; of a number of NumPy with its class."""
        if self.number_class is int:
            return self.expr
        return Calculation(self.number_class.__name__, (self.expr,))

    @property
    def weak(self) -> SymInt:
        """The same number as an int of Python."""
        return self if self.number_class is int else self._like(self.expr, self.hint)

    def __hash__(self) -> int:
        if self.context.numbers:
            read_numbers(self)
        return hash(self.expr)  # as an equal number of another class

    def _like(self, value: Number, hint: int | None, cls: type = int) -> Any:
        return make_int(self.context, value, hint, cls)

    # ---- integer arithmetic ----

    def __add__(self, other: Any) -> Any:
        if type(other) is int:
            hint = None if self.hint is None else self.hint + other
            return self._like(add(self.expr, other), hint, self.number_class)
        return self.context.operate("+", self, other)

    def __radd__(self, other: Any) -> Any:
        return self + other if type(other) is int else super().__radd__(other)

    def __sub__(self, other: Any) -> Any:
        return self + -other if type(other) is int else super().__sub__(other)

    def __mul__(self, other: Any) -> Any:
        if type(other) is int:
            hint = None if self.hint is None else self.hint * other
            return self._like(multiply(self.expr, other), hint, self.number_class)
        return self.context.operate("*", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self * other if type(other) is int else super().__rmul__(other)

    def __pow__(self, other: Any) -> Any:
        if type(other) is int and other >= 0:
            hint = None if self.hint is None else self.hint**other
            return self._like(power(self.expr, other), hint, self.number_class)
        return self.context.operate("**", self, other)

    def __neg__(self) -> Any:
        hint = None if self.hint is None else -self.hint
        return self._like(negate(self.expr), hint, self.number_class)

    def __abs__(self) -> Any:
        own = self.weak
        return own.context.as_class(
            own.context.extreme("max", own, -own), self.number_class
        )

    # ---- bits ----

    def __invert__(self) -> Any:
        return -self - 1

    def __lshift__(self, other: Any) -> Any:
        return self * 2**other if _is_shift(other) else int(self) << other

    def __rlshift__(self, other: Any) -> Any:
        return other << int(self)

    def __rshift__(self, other: Any) -> Any:
        return self // 2**other if _is_shift(other) else int(self) >> other

    def __rrshift__(self, other: Any) -> Any:
        return other >> int(self)

    def __and__(self, other: Any) -> Any:
        # The last bits of a number are a remainder.
        is_mask = type(other) is int and other > 0 and not other & (other + 1)
        return self % (other + 1) if is_mask else self.value & other

    __rand__ = __and__

    def __or__(self, other: Any) -> Any:
        return self.value | other

    __ror__ = __or__

    def __xor__(self, other: Any) -> Any:
        return self.value ^ other

    __rxor__ = __xor__

    def bit_length(self) -> int:
        """Return the number of bits of its value, which becomes a guard."""
        return int(self.value).bit_length()

    # ---- conversions ----

    def __index__(self) -> int:
        is_read = not symbolic_operations.is_handed_over(sys._getframe(1))
        return int(self.value) if is_read else typical(self)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __trunc__(self) -> SymInt:
        return self.weak

    def __floor__(self) -> SymInt:
        return self.weak

    def __ceil__(self) -> SymInt:
        return self.weak

    def __round__(self, digits: int | None = None) -> SymInt:
        return self.weak if digits is None else self

    @property
    def numerator(self) -> SymInt:
        """The number itself."""
        return self

    @property
    def denominator(self) -> int:
        """One."""
        return 1


def _is_shift(value: Any) -> bool:
    return type(value) is int and value >= 0


class SymFloat(RealNumber):
    """A number that is calculated from symbolic sizes, such as ``n / 2`` or ``n**0.5``.

    Attributes
    ----------
    side : Calculation
        The calculation.
    context : SizeContext
        The sizes of the capture that it belongs to.
    hint : float or None
        Its value in the call that was captured; None if it depends on data.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> x = co.FakeMode().from_array(np.zeros((4, 3)), sizes=("batch", 3))
    >>> half = x.shape[0] / 2
    >>> type(half) is co.SymFloat, half.hint
    (True, 2.0)
    """

    __slots__ = ("calculation",)

    calculation: Calculation

    @property
    def side(self) -> Side:
        """The calculation."""
        return self.calculation

    @property
    def number_class(self) -> type:
        """The class of the number that it will be, such as float or np.float64."""
        return side_class(self.calculation, self.context.typical)

    def __neg__(self) -> Any:
        return make_float(self.context, Calculation("-", (self.calculation,)))

    def __abs__(self) -> Any:
        return make_float(self.context, Calculation("abs", (self.calculation,)))

    def __float__(self) -> float:
        return float(self.value)

    def __index__(self) -> int:
        return operator.index(self.value)  # of 2**n; a float raises

    def __int__(self) -> int:
        return operator.index(self.__trunc__())

    def __trunc__(self) -> Any:
        return math.floor(self) if self >= 0 else math.ceil(self)

    def __floor__(self) -> Any:
        quotient = self._quotient()
        if quotient is None:
            return math.floor(self.value)
        return quotient[0] // quotient[1]

    def __ceil__(self) -> Any:
        quotient = self._quotient()
        if quotient is None:
            return math.ceil(self.value)
        return -(-quotient[0] // quotient[1])

    def __round__(self, digits: int | None = None) -> Any:
        return round(self.value, digits)

    def is_integer(self) -> bool:
        """Return whether its value, which becomes a guard, is a whole number."""
        return float(self.value).is_integer()

    def _quotient(self) -> tuple[Any, Any] | None:
        """Return both sides of a division of integers, which is rounded exactly; or None."""
        parts = self.calculation.parts
        if has_numbers(self):
            return None
        if self.calculation.name != "/" or not all(
            isinstance(part, int | Expr) for part in parts
        ):
            return None
        return self.context.wrap(parts[0]), self.context.wrap(parts[1])


number_classes.update((SymInt, SymFloat))
numbers.Integral.register(SymInt)
numbers.Real.register(SymFloat)


# ---- `SymBool`: a condition on symbolic sizes that is not decided yet ----


class SymBool(InContext):
    """A condition on sizes that is not decided yet.

    ``if``, ``and``, ``not`` and ``bool()`` decide it, as `SymInt` says; ``&``, ``|`` and
    ``~`` combine conditions without a decision.

    Attributes
    ----------
    condition : Condition
        The comparison.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> x = co.FakeMode().from_array(np.zeros((4, 3)), sizes=("batch", 3))
    >>> type(x.shape[0] > 3) is co.SymBool
    True
    >>> x.shape[0] >= 0  # follows from the bounds
    True
    """

    __slots__ = ("condition", "number_class")

    condition: Condition

    def __init__(
        self, context: SizeContext, condition: Condition, cls: type = bool
    ) -> None:
        self.context: SizeContext = context
        self.condition: Condition = condition
        # bool, or that of NumPy, whose sums are numbers of NumPy
        self.number_class: type = cls

    @property
    def value(self) -> Any:
        """Return whether it holds in this call, which becomes a guard."""
        return self.number_class(bool(self))

    def __bool__(self) -> bool:
        return self.context.decide(self.condition)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.value, dtype)

    def __and__(self, other: Any) -> Any:
        return _combined("and", self, other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Any:
        return _combined("or", self, other)

    __ror__ = __or__

    def __invert__(self) -> SymBool:
        return SymBool(self.context, self.condition.opposite, self.number_class)

    # As a number it is 0 or 1, which decides it. Arrays beside it take it as it is.

    def __index__(self) -> int:
        return int(bool(self))

    def __float__(self) -> float:
        return float(bool(self))

    def __add__(self, other: Any) -> Any:
        return self.value + other if _is_number(other) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return other + self.value if _is_number(other) else NotImplemented

    def __sub__(self, other: Any) -> Any:
        return self.value - other if _is_number(other) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return other - self.value if _is_number(other) else NotImplemented

    def __mul__(self, other: Any) -> Any:
        return self.value * other if _is_number(other) else NotImplemented

    def __rmul__(self, other: Any) -> Any:
        return other * self.value if _is_number(other) else NotImplemented

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SymBool):
            return self.condition == other.condition
        return bool(self) == other

    def __hash__(self) -> int:
        return hash(self.condition)

    def __str__(self) -> str:
        return str(self.condition)

    __repr__ = __str__


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | complex | np.generic | InContext)


def _combined(sign: str, left: SymBool, right: Any) -> Any:
    if isinstance(right, SymBool):
        context = context_of(left, right)
        assert context is not None
        return SymBool(context, Logic(sign, (left.condition, right.condition)))
    if not isinstance(right, bool | np.bool_):
        return NotImplemented
    if sign == "and":
        return left if right else False
    return True if right else left


# ---- from expressions and calculations ----


def make_int(
    context: SizeContext, value: Number, hint: int | None, cls: type = int
) -> Any:
    """Return an expression as a `SymInt`, or the number that it is."""
    if type(value) is int:
        return value if cls is int else cls(value)
    made = SymInt.__new__(SymInt)
    made.context = context
    made.expr = value  # type: ignore[assignment]  # an Expr
    made.number_class = cls
    made.hint = hint
    return made


def make_float(context: SizeContext, value: Calculation, hint: Any = None) -> SymFloat:
    """Make a `SymFloat` of a calculation, with its hint if none is given."""
    if context.numbers and value.depth > _MOST_OF_NUMBERS:
        context.read_number(value.names)  # the graph is only for this number
    check_text(value.depth, value.text)
    made = SymFloat.__new__(SymFloat)
    made.context = context
    made.calculation = value
    made.hint = context.hint_of(value) if hint is None else hint
    return made


# Calculations in each other after which the value of an input is asked.
_MOST_OF_NUMBERS: Final = 40


def make_number(context: SizeContext, value: Side, hint: Any = None) -> Any:
    """Return the number from which `as_side` made a side."""
    if not isinstance(value, Calculation):
        return context.wrap(value) if isinstance(value, Expr) else value
    cls = getattr(np, value.name, None)
    if isinstance(cls, type) and cls in WHOLE and isinstance(value.parts[0], Expr):
        return context.as_class(context.wrap(value.parts[0]), cls)
    return make_float(context, value, hint)


# ---- what they are ----


def typical(value: SymInt) -> int:
    """Return a number in place of a size, at least 2 for each name in it."""
    return value_of(value.expr, value.context.typical)


def context_of(*values: Any) -> SizeContext | None:
    """Return the context of the symbolic numbers among values, or None.

    Raises
    ------
    ArgumentError
        If they belong to different captures.
    """
    found = None
    for value in values:
        if isinstance(value, InContext):
            if found is not None and value.context is not found:
                raise mixed(values)
            found = value.context
    return found


def mixed(values: tuple[Any, ...]) -> ArgumentError:
    """Make the error for sizes of different captures."""
    names = " and ".join(str(v) for v in values if isinstance(v, InContext))
    return ArgumentError(
        f"{names} are sizes of different captures",
        do="make both in one capture, or under one FakeMode()",
    )


def as_side(value: Any) -> Side | None:
    """Return the expression, calculation or number of a value; else None."""
    cls = type(value)
    if cls is int:
        return value  # type: ignore[no-any-return]  # an int
    if isinstance(value, RealNumber):
        return value.side
    if cls is bool:
        return int(value)
    is_number = isinstance(value, float | complex | np.number | np.bool_)
    return value if is_number and not isinstance(value, np.timedelta64) else None


def whole_of(value: Any) -> Number | None:
    """Return the integer or expression of a value of any class; else None."""
    cls = type(value)
    if cls is SymInt:
        return value.expr  # type: ignore[no-any-return]  # an Expr
    is_whole = isinstance(value, int | np.integer | np.bool_)
    return int(value) if is_whole and cls is not np.timedelta64 else None


def class_of(value: Any) -> type:
    """Return the class of the number that a value is or will be."""
    return value.number_class if isinstance(value, InContext) else type(value)


# ---- inputs that are numbers ----


def has_numbers(*values: Any) -> bool:
    """Return whether a symbolic number depends on an input that is a number."""
    return any(
        isinstance(v, RealNumber)
        and bool(v.context.numbers)
        and not v.context.numbers.keys().isdisjoint(names_in_side(v.side))
        for v in values
    )


def read_numbers(*values: Any) -> None:
    """Ask for the values of the inputs that are numbers, on which these depend."""
    for value in values:
        if isinstance(value, RealNumber):
            value.context.read_number(names_in_side(value.side))
