"""Symbolic sizes: `SymInt`, and what is calculated from them: `SymFloat`, `SymBool`.

They are numbers that are not known while a function is captured. A plain int stays a
plain int: an operation whose result is constant returns one.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from customop.errors import ArgumentError
from customop.shapes.conditions import (
    Calculation,
    Compared,
    Condition,
    Logic,
    Side,
    calculate,
    names_in_side,
)
from customop.shapes.division import modulo
from customop.shapes.expressions import (
    Expr,
    Number,
    add,
    multiply,
    negate,
    power,
    subtract,
)
from customop.shapes.symbols import Symbolic, number_classes

if TYPE_CHECKING:
    from customop.shapes.size_context import SizeContext

__all__ = [
    "SymBool",
    "SymFloat",
    "SymInt",
    "as_side",
    "context_of",
    "has_numbers",
    "make_float",
    "make_int",
    "read_numbers",
]


class _InContext(Symbolic):
    """What symbolic numbers of all classes have."""

    __slots__ = ("context", "hint")

    context: SizeContext
    hint: Any

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


class _Real(_InContext):
    """A symbolic number: arithmetic and comparisons of `SymInt` and `SymFloat`."""

    __slots__ = ()

    @property
    def side(self) -> Side:
        """The expression or calculation."""
        raise NotImplementedError

    @property
    def __class__(self) -> type:
        """What isinstance sees: of an input that is a number, the class of numbers."""
        if not has_numbers(self):
            return type(self)
        return int if type(self) is SymInt else float

    @__class__.setter
    def __class__(self, new: type) -> NoReturn:
        raise TypeError("the class of a symbolic number cannot be set")

    def __truediv__(self, other: Any) -> Any:
        return _divided(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _divided(other, self)

    # A comparison is a bool where it can be proven.

    def __eq__(self, other: object) -> Any:
        return _compared(self, "==", other)

    def __ne__(self, other: object) -> Any:
        return _compared(self, "!=", other)

    def __lt__(self, other: Any) -> Any:
        return _compared(self, "<", other)

    def __le__(self, other: Any) -> Any:
        return _compared(self, "<=", other)

    def __gt__(self, other: Any) -> Any:
        return _compared(self, ">", other)

    def __ge__(self, other: Any) -> Any:
        return _compared(self, ">=", other)

    def __hash__(self) -> int:
        if self.context.numbers:
            read_numbers(self)  # it may be a key
        return hash(self.side)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __pos__(self) -> Any:
        return self

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


class SymInt(_Real):
    """A size that is not known while a function is captured, such as ``s0 + 1``.

    It takes part in integer arithmetic and comparisons. A comparison that follows from
    the bounds of the sizes is True or False. Another one is a `SymBool`, which decides
    when Python needs to know: sizes of inputs by the values that they had, with a guard
    in the graph; sizes that depend on data raise `DataDependentError`.

    Attributes
    ----------
    expr : Expr
        The expression.
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
    """

    __slots__ = ("expr",)

    expr: Expr
    hint: int | None

    @property
    def side(self) -> Side:
        """The expression."""
        return self.expr

    # ---- integer arithmetic ----

    def __add__(self, other: Any) -> Any:
        if type(other) is int:
            hint = self.hint
            after = None if hint is None else hint + other
            return make_int(self.context, add(self.expr, other), after)
        return _operated("+", self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if type(other) is int:
            return self + -other
        return _operated("-", self, other)

    def __rsub__(self, other: Any) -> Any:
        return _operated("-", other, self)

    def __mul__(self, other: Any) -> Any:
        if type(other) is int:
            hint = self.hint
            after = None if hint is None else hint * other
            return make_int(self.context, multiply(self.expr, other), after)
        return _operated("*", self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        return _operated("//", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _operated("//", other, self)

    def __mod__(self, other: Any) -> Any:
        return _operated("%", self, other)

    def __rmod__(self, other: Any) -> Any:
        return _operated("%", other, self)

    def __divmod__(self, other: Any) -> Any:
        quotient = _operated("//", self, other)
        if quotient is NotImplemented:
            return NotImplemented
        return quotient, self - quotient * other

    def __rdivmod__(self, other: Any) -> Any:
        quotient = _operated("//", other, self)
        if quotient is NotImplemented:
            return NotImplemented
        return quotient, other - quotient * self

    def __pow__(self, other: Any) -> Any:
        if type(other) is int and other >= 0:
            hint = None if self.hint is None else self.hint**other
            return make_int(self.context, power(self.expr, other), hint)
        return _calculated("**", self, other)

    def __rpow__(self, other: Any) -> Any:
        return _calculated("**", other, self)

    def __neg__(self) -> Any:
        hint = None if self.hint is None else -self.hint
        return make_int(self.context, negate(self.expr), hint)

    def __abs__(self) -> Any:
        return self.context.extreme("max", self, -self)

    # ---- conversions ----

    def __index__(self) -> int:
        return int(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __complex__(self) -> complex:
        return complex(self.value)

    def __trunc__(self) -> SymInt:
        return self

    def __floor__(self) -> SymInt:
        return self

    def __ceil__(self) -> SymInt:
        return self

    def __round__(self, digits: int | None = None) -> SymInt:
        return self

    @property
    def real(self) -> SymInt:
        """The number itself."""
        return self

    @property
    def imag(self) -> int:
        """0."""
        return 0

    def conjugate(self) -> SymInt:
        """Return the number itself."""
        return self

    def bit_length(self) -> int:
        """Return the number of bits of its value, which becomes a guard."""
        return int(self.value).bit_length()


class SymFloat(_Real):
    """A float that is calculated from symbolic sizes, such as ``n / 2`` or ``n**0.5``.

    Attributes
    ----------
    side : Calculation
        The calculation.
    context : SizeContext
        The sizes of the capture that it belongs to.
    hint : float or None
        Its value in the call that was captured; None if it depends on data.
    """

    __slots__ = ("calculation",)

    calculation: Calculation

    @property
    def side(self) -> Side:
        """The calculation."""
        return self.calculation

    def __add__(self, other: Any) -> Any:
        return _calculated("+", self, other)

    def __radd__(self, other: Any) -> Any:
        return _calculated("+", other, self)

    def __sub__(self, other: Any) -> Any:
        return _calculated("-", self, other)

    def __rsub__(self, other: Any) -> Any:
        return _calculated("-", other, self)

    def __mul__(self, other: Any) -> Any:
        return _calculated("*", self, other)

    def __rmul__(self, other: Any) -> Any:
        return _calculated("*", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return _calculated("//", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _calculated("//", other, self)

    def __mod__(self, other: Any) -> Any:
        return _calculated("%", self, other)

    def __rmod__(self, other: Any) -> Any:
        return _calculated("%", other, self)

    def __pow__(self, other: Any) -> Any:
        return _calculated("**", self, other)

    def __rpow__(self, other: Any) -> Any:
        return _calculated("**", other, self)

    def __neg__(self) -> Any:
        return make_float(self.context, Calculation("-", (self.calculation,)))

    def __abs__(self) -> Any:
        return make_float(self.context, Calculation("abs", (self.calculation,)))

    def __float__(self) -> float:
        return float(self.value)

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

    def _quotient(self) -> tuple[Any, Any] | None:
        """Both sides of a division of integers, whose rounding is exact in integers."""
        parts = self.calculation.parts
        if has_numbers(self):
            return None
        if self.calculation.name != "/" or not all(
            isinstance(part, int | Expr) for part in parts
        ):
            return None
        return self.context.wrap(parts[0]), self.context.wrap(parts[1])


class SymBool(_InContext):
    """A condition on sizes that is not decided yet.

    ``if``, ``and``, ``not`` and ``bool()`` decide it, as `SymInt` says; ``&``, ``|`` and
    ``~`` combine conditions without a decision.

    Attributes
    ----------
    condition : Condition
        The comparison.
    """

    __slots__ = ("condition",)

    condition: Condition

    def __init__(self, context: SizeContext, condition: Condition) -> None:
        self.context: SizeContext = context
        self.condition: Condition = condition

    @property
    def value(self) -> bool:
        """Whether it holds in this call, which becomes a guard."""
        return bool(self)

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
        return SymBool(self.context, self.condition.opposite)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SymBool):
            return self.condition == other.condition
        return bool(self) == other

    def __hash__(self) -> int:
        return hash(self.condition)

    def __str__(self) -> str:
        return str(self.condition)

    __repr__ = __str__


number_classes.update((SymInt, SymFloat))
numbers.Integral.register(SymInt)
numbers.Real.register(SymFloat)


def make_int(context: SizeContext, value: Number, hint: int | None) -> Any:
    """An expression as a `SymInt`, or the int that it is."""
    if type(value) is int:
        return value
    made = SymInt.__new__(SymInt)
    made.context = context
    made.expr = value  # type: ignore[assignment]  # an Expr
    made.hint = hint
    return made


def make_float(context: SizeContext, value: Calculation, hint: Any = None) -> SymFloat:
    """A calculation as a `SymFloat`, with its hint if none is given."""
    if context.numbers and _is_deep(value):
        context.read_number(value.names)  # its text would have too many brackets
    made = SymFloat.__new__(SymFloat)
    made.context = context
    made.calculation = value
    made.hint = context.hint_of(value) if hint is None else hint
    return made


# ---- inputs that are numbers ----


def has_numbers(*values: Any) -> bool:
    """Whether a symbolic number depends on an input that is a number."""
    return any(
        isinstance(v, _Real)
        and bool(v.context.numbers)
        and not v.context.numbers.keys().isdisjoint(names_in_side(v.side))
        for v in values
    )


def read_numbers(*values: Any) -> None:
    """Ask for the values of the inputs that are numbers, on which these depend."""
    for value in values:
        if isinstance(value, _Real):
            value.context.read_number(names_in_side(value.side))


def _is_deep(side: Side, most: int = 40) -> bool:
    """Whether a calculation has more calculations one inside the other than Python reads."""
    if not isinstance(side, Calculation):
        return False
    return most == 0 or any(_is_deep(part, most - 1) for part in side.parts)


def _is_certain_power(base: Any, exponent: Any) -> bool:
    """Whether a power of inputs that are numbers has one class, whatever they are."""
    is_positive = isinstance(base, float) and base > 0
    is_whole = type(exponent) is int and type(base) is not SymInt
    is_integer = type(base) is SymInt and type(exponent) is SymInt
    is_base = type(base) is int and base > 0 and type(exponent) is SymFloat
    return (is_positive or is_whole or is_base) and not is_integer


# ---- operations ----


def context_of(*values: Any) -> SizeContext | None:
    """The context of the symbolic numbers among values; None if there are none.

    Raises
    ------
    ArgumentError
        If they belong to different captures.
    """
    found = None
    for value in values:
        if isinstance(value, _InContext):
            if found is not None and value.context is not found:
                raise _mixed(values)
            found = value.context
    return found


def _mixed(values: tuple[Any, ...]) -> ArgumentError:
    names = " and ".join(str(v) for v in values if isinstance(v, _InContext))
    return ArgumentError(
        f"{names} are sizes of different captures",
        do="make both in one capture, or under one FakeMode()",
    )


def as_side(value: Any) -> Side | None:
    """The expression, calculation or number of a value; None for other values."""
    cls = type(value)
    if cls is int:
        return value  # type: ignore[no-any-return]  # an int
    if cls is SymInt:
        return value.expr  # type: ignore[no-any-return]  # an Expr
    if isinstance(value, _Real):
        return value.side
    if isinstance(value, float):  # np.float64 too
        return value
    if isinstance(value, bool | np.bool_ | np.integer):
        return int(value)
    return value if isinstance(value, np.floating) else None  # type: ignore[return-value]  # as a float


def _hint(value: Any) -> Any:
    return value if type(value) is int else getattr(value, "hint", value)


def _operated(sign: str, left: Any, right: Any) -> Any:
    """The result of integer arithmetic, or of floating point if one side is a float."""
    a, b = as_side(left), as_side(right)
    if not isinstance(a, _NUMBERS) or not isinstance(b, _NUMBERS):
        return _calculated(sign, left, right)
    context = left.context if type(left) is SymInt else right.context
    if context.numbers:
        if isinstance(left, np.generic) or isinstance(right, np.generic):
            read_numbers(left, right)
        if sign in _DIVISIONS:
            read_numbers(right)
    if type(left) is type(right) and left.context is not right.context:
        raise _mixed((left, right))
    if sign in _DIVISIONS:
        context.assume_nonzero(right)
    found = context.results.get((sign, a, b))
    if found is None:
        found = context.results[(sign, a, b)] = _INTEGER[sign](context, a, b)
    if type(found) is int:
        return found
    first, second = _hint(left), _hint(right)
    hint = None
    if first is not None and second is not None:
        hint = calculate(sign, (int(first), int(second)))
    return make_int(context, found, hint)


_NUMBERS: Final = (int, Expr)
_DIVISIONS: Final = ("//", "%")
_INTEGER: Final[dict[str, Callable[[SizeContext, Number, Number], Number]]] = {
    "+": lambda _, a, b: add(a, b),
    "-": lambda _, a, b: subtract(a, b),
    "*": lambda _, a, b: multiply(a, b),
    "//": lambda context, a, b: context.knowledge.quotient(a, b),
    "%": lambda context, a, b: context.knowledge.simpler(modulo(a, b)),
}


def _calculated(sign: str, left: Any, right: Any) -> Any:
    """The result of an operation in floating point."""
    a, b = as_side(left), as_side(right)
    if a is None or b is None:
        return NotImplemented
    context = context_of(left, right)
    assert context is not None
    if context.numbers:
        if sign == "**" and not _is_certain_power(left, right):
            read_numbers(left, right)
        # NumPy's integers are of their own class, too.
        pairs: Any = zip((left, right), (a, b), strict=True)
        exact: Any = [v if isinstance(v, np.generic) else s for v, s in pairs]
        a, b = exact
    return make_float(context, Calculation(sign, (a, b)))


def _divided(left: Any, right: Any) -> Any:
    found = _calculated("/", left, right)
    if found is not NotImplemented:
        found.context.assume_nonzero(right)
    return found


def _compared(left: Any, sign: str, right: object) -> Any:
    a, b = as_side(left), as_side(right)
    if a is None or b is None:
        return NotImplemented
    context = left.context
    if isinstance(right, _InContext) and right.context is not context:
        raise _mixed((left, right))
    if a is b and not (context.numbers and has_numbers(left)):  # it may be nan
        return sign in ("==", "<=", ">=")
    known = context.compare(a, sign, b)
    return SymBool(context, Compared(a, sign, b)) if known is None else known


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
