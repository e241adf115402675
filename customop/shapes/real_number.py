"""Base of symbolic numbers: their context, and the operators of Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from customop.errors import ArgumentError
from customop.shapes.conditions import Side, names_in_side
from customop.shapes.symbols import Symbolic

if TYPE_CHECKING:
    from customop.shapes.size_context import SizeContext

__all__ = ["InContext", "RealNumber", "has_numbers", "read_numbers"]


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
        """The class that isinstance sees: for an input that is a number, that of numbers."""
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
        """0."""
        return 0

    def conjugate(self) -> Any:
        """Return the number itself."""
        return self


# ---- inputs that are numbers ----


def has_numbers(*values: Any) -> bool:
    """Whether a symbolic number depends on an input that is a number."""
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
