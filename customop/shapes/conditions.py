"""Conditions on sizes, the guards of a capture, and errors for what cannot be known."""

from __future__ import annotations

import keyword
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, reduce
from math import gcd, inf, isfinite
from typing import Any, Final, TypeAlias

import numpy as np

from customop.errors import (
    ArgumentError,
    DataDependentError,
    ShapeError,
    SizeError,
    caller_place,
    shown,
)
from customop.frozen import Frozen, cached
from customop.shapes.expressions import (
    Atom,
    Expr,
    Factor,
    LargeSize,
    Number,
    add,
    depth_of,
    floor_divide,
    subtract,
    terms_of,
    value_of,
)
from customop.shapes.proofs import Knowledge

# ---- conditions on sizes, and calculations with them whose results are floats ----


class Calculation(Frozen, compare=("text",)):
    """A number that is calculated from sizes: a float, such as ``n**0.5``, or NumPy's.

    Attributes
    ----------
    name : str
        One of ``+ - * / // % **``, ``abs``, ``min``, ``max``, ``int``, ``float``,
        ``complex``, or the name of a function or a class of numbers of NumPy: ``np.int64(s0)`` is the
        calculation of a size that NumPy has made.
    parts : tuple
        Expressions, numbers and calculations that it is made of.
    """

    name: str
    parts: tuple[Any, ...]

    @cached
    def text(self) -> str:
        """Its Python text, in which 2, 2.0 and np.float32(2.0) differ."""
        texts = [_in_calculation(part) for part in self.parts]
        if self.name not in _OPERATIONS:
            module = "" if self.name in _BUILTINS else "np."
            return f"{module}{self.name}({', '.join(map(_side_text, self.parts))})"
        return (
            texts[0].join(("-", ""))
            if len(texts) == 1
            else f" {self.name} ".join(texts)
        )

    def __str__(self) -> str:
        return self.text

    @cached
    def depth(self) -> int:
        """Return the number of parentheses inside each other in its text."""
        return 1 + max(map(_depth, self.parts), default=0)

    @property
    def names(self) -> frozenset[str]:
        """Names of the sizes in it."""
        found: frozenset[str] = frozenset()
        return found.union(*map(names_in_side, self.parts))

    def value(self, sizes: Mapping[str, int]) -> Any:
        """Return its value for these sizes."""
        values = [side_value(part, sizes) for part in self.parts]
        return calculate(self.name, values)


class FloatName(Calculation):
    """A float that is an input of a graph, by its name in the text; it has no parts."""

    @cached
    def text(self) -> str:
        """Return the name."""
        return self.name

    @property
    def names(self) -> frozenset[str]:
        """The name."""
        return frozenset({self.name})

    def value(self, sizes: Mapping[str, Any]) -> Any:
        """Return the value of the name among these."""
        return sizes[self.name]


def _depth(side: Side) -> int:
    if isinstance(side, Calculation):
        return side.depth
    return depth_of(side) if isinstance(side, Expr) else 2  # complex(float('inf'), 0.0)


_OPERATIONS: Final[dict[str, Callable[..., Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}

_BUILTINS: Final[dict[str, Callable[..., Any]]] = {
    "abs": abs,
    "min": min,
    "max": max,
    "int": int,
    "float": float,
    "complex": complex,
}

Side: TypeAlias = "Number | complex | np.generic | Calculation"


def calculate(name: str, values: Sequence[Any]) -> Any:
    """Return the value of a calculation."""
    if name == "-" and len(values) == 1:
        return -values[0]
    found = _OPERATIONS.get(name) or _BUILTINS.get(name) or getattr(np, name)
    return found(*values)


def _in_calculation(side: Side) -> str:
    text = _side_text(side)
    is_call = isinstance(side, Calculation) and side.name not in _OPERATIONS
    is_bare = text.isalnum() or is_call or isinstance(side, float | np.generic)
    return text if is_bare and not text.startswith("-") else f"({text})"


def _side_text(side: Side) -> str:
    """Write a side as Python text, with the class of a number of NumPy."""
    if isinstance(side, np.generic):
        return f"np.{type(side).__name__}({_side_text(side.item())})"
    if isinstance(side, float):
        return repr(side) if isfinite(side) else f"float('{side}')"
    if isinstance(side, complex):
        return f"complex({_side_text(side.real)}, {_side_text(side.imag)})"
    return str(side)


def side_value(side: Side, sizes: Mapping[str, int]) -> Any:
    """Return the number that a side of a relation has for these sizes."""
    if isinstance(side, Expr):
        return value_of(side, sizes)
    return side.value(sizes) if isinstance(side, Calculation) else side


def side_by(
    side: Side,
    size: Callable[[str], Any],
    operation: Callable[[str], Callable[..., Any]],
) -> Any:
    """Compute a side of a relation from sizes of another library.

    Parameters
    ----------
    side
    size : callable
        Takes the name of a size, and returns the other library's.
    operation : callable
        Takes the sign or name of an operation, and returns the other library's.
    """

    def computed(part: Any) -> Any:
        if isinstance(part, Expr):
            terms = [
                reduce(operator.mul, map(factor, monomial), c)
                for monomial, c in part.terms.items()
            ]
            return reduce(operator.add, terms)
        if isinstance(part, Calculation):
            return operation(part.name)(*map(computed, part.parts))
        return part

    def factor(part: Factor) -> Any:
        if isinstance(part, Atom):
            return operation(part.sign)(*map(computed, part.parts))
        return size(part)

    return computed(side)


def names_in_side(side: Side) -> frozenset[str]:
    """Return the names of the sizes in a side of a relation."""
    return side.names if isinstance(side, Expr | Calculation) else frozenset()


def side_class(side: Side, sizes: Mapping[str, int]) -> type:
    """Return the class of the number that a side is, of Python or of NumPy.

    That of a power depends on the numbers; it is as for these sizes.
    """
    if isinstance(side, Expr):
        return int
    if not isinstance(side, Calculation):
        return type(side)
    if isinstance(side, FloatName):
        return float
    if side.name in _BY_VALUE:
        with np.errstate(all="ignore"):
            return type(side.value(sizes))
    parts = tuple(side_class(part, sizes) for part in side.parts)
    found: type = result_class(side.name, parts)
    return found


# With Python's numbers, the classes of the operands do not determine the result's.
_BY_VALUE: Final = ("**", "min", "max")


@lru_cache(maxsize=4096)
def result_class(name: str, classes: tuple[type, ...]) -> Any:
    """Return the class of the result of a calculation, or several possible ones."""
    with np.errstate(all="ignore"):
        found = calculate(name, [cls(1) for cls in classes])
    return (*map(type, found),) if isinstance(found, tuple) else type(found)


_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OPPOSITE: Final = {
    "==": "!=",
    "!=": "==",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
}
_SWAPPED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Compared(Frozen):
    """A comparison of two numbers that are made of sizes.

    Attributes
    ----------
    left, right : Expr, int, float or Calculation
    sign : str
        ``==``, ``!=``, ``<``, ``<=``, ``>`` or ``>=``.
    """

    left: Side
    sign: str
    right: Side

    def __str__(self) -> str:
        return f"{_side_text(self.left)} {self.sign} {_side_text(self.right)}"

    @property
    def names(self) -> frozenset[str]:
        """Names of the sizes in it."""
        return names_in_side(self.left) | names_in_side(self.right)

    @property
    def opposite(self) -> Compared:
        """The condition that holds where this one does not."""
        return Compared(self.left, _OPPOSITE[self.sign], self.right)

    @property
    def plainer(self) -> Compared:
        """The same condition without a common factor, and with fewer minus signs."""
        left, right = self.left, self.right
        if not isinstance(left, Expr) or not isinstance(right, int | Expr):
            return self
        common = gcd(*terms_of(left).values(), *terms_of(right).values())
        signs = {c > 0 for side in (left, right) for c in terms_of(side).values()}
        common = -common if signs == {False} else common
        if common == 1:
            return self
        sign = self.sign if common > 0 else _SWAPPED[self.sign]
        # The divisor divides every coefficient, so these are exact.
        return Compared(floor_divide(left, common), sign, floor_divide(right, common))

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Return whether it holds for these sizes."""
        left, right = (side_value(side, sizes) for side in (self.left, self.right))
        return bool(_COMPARE[self.sign](left, right))

    def _difference(self) -> tuple[Number, str] | None:
        """Return an expression to compare with zero, and whether it must be zero."""
        left, right = self.left, self.right
        if not isinstance(left, int | Expr) or not isinstance(right, int | Expr):
            return None
        if self.sign in ("==", "!="):
            return subtract(left, right), self.sign
        if self.sign in ("<", "<="):
            left, right = right, left
        found = subtract(left, right)
        return add(found, -1) if self.sign in ("<", ">") else found, ">="

    def known(self, knowledge: Knowledge) -> bool | None:
        """Return True if it always holds, False if it never does, else None."""
        found = self._difference()
        if found is None:
            sizes = knowledge.numbers(self.names)
            return None if sizes is None else self.holds(sizes)
        value, sign = found
        if sign == ">=":
            return knowledge.is_nonnegative(value)
        is_zero = knowledge.is_zero(value)
        return is_zero if sign == "==" or is_zero is None else not is_zero

    def learn(self, knowledge: Knowledge) -> None:
        """Note that it holds."""
        found = self._difference()
        if found is None:
            return
        value, sign = found
        if sign == ">=":
            knowledge.add_nonnegative(value)
        elif sign == "==":
            knowledge.add_zero(value)
        else:
            knowledge.add_nonzero(value)


class Logic(Frozen):
    """Several conditions, of which all or one must hold.

    Attributes
    ----------
    sign : str
        ``and`` or ``or``.
    parts : tuple of Condition
    """

    sign: str
    parts: tuple[Any, ...]

    def __str__(self) -> str:
        return f" {self.sign} ".join(
            f"({part})" if isinstance(part, Logic) else str(part) for part in self.parts
        )

    @property
    def names(self) -> frozenset[str]:
        """Names of the sizes in it."""
        found: frozenset[str] = frozenset()
        return found.union(*(part.names for part in self.parts))

    @property
    def opposite(self) -> Logic:
        """The condition that holds where this one does not."""
        other = "or" if self.sign == "and" else "and"
        return Logic(other, tuple(part.opposite for part in self.parts))

    @property
    def plainer(self) -> Logic:
        """The same condition with plainer parts."""
        return Logic(self.sign, tuple(part.plainer for part in self.parts))

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Return whether it holds for these sizes."""
        choose = all if self.sign == "and" else any
        return choose(part.holds(sizes) for part in self.parts)

    def known(self, knowledge: Knowledge) -> bool | None:
        """Return True if it always holds, False if it never does, else None."""
        answers = [part.known(knowledge) for part in self.parts]
        decisive = self.sign == "or"
        if decisive in answers:
            return decisive
        return None if None in answers else not decisive

    def learn(self, knowledge: Knowledge) -> None:
        """Note that it holds."""
        if self.sign == "and":
            for part in self.parts:
                part.learn(knowledge)


Condition: TypeAlias = Compared | Logic


# ---- symbols of a capture, the guards of its graph, and what a size may be called ----


class Size:
    """A symbol of a capture.

    Attributes
    ----------
    name : str
    kind : str
        ``"input"``, ``"named"``, ``"data"`` for a size that depends on the values of
        arrays, or ``"number"`` for an input that is a number.
    hint : int, float or None
        Its value in the call that was captured.
    sources : list of str
        Where an input gives it, such as ``x.shape[0]``.
    origin : str
        Where it comes from, in words.
    bounds : tuple
        The least and the largest value that were given; None without a largest one. Those
        of a number say nothing.
    """

    __slots__ = ("bounds", "hint", "kind", "name", "origin", "sources")

    def __init__(
        self,
        name: str,
        kind: str,
        hint: int | None,
        source: str,
        origin: str,
        bounds: tuple[int, int | None],
    ) -> None:
        self.name: str = name
        self.kind: str = kind
        self.hint: int | None = hint
        self.sources: list[str] = [source] if source else []
        self.origin: str = origin
        self.bounds: tuple[int, int | None] = bounds


class Guard(Frozen, compare=("condition", "text", "kind")):
    """A condition that the sizes of a call must meet for a graph to be right.

    Attributes
    ----------
    condition : Condition
    text : str
        The condition as Python code.
    place : str
        File and line of the user's code that asked.
    kind : str
        ``"guard"`` for a branch that was taken, ``"number"`` where a size was taken as a
        number, such as by ``range(n)``, ``"check"`` for what `check` says or an operation
        needs, such as a divisor that is not zero.
    message : str
        The message given to `check`.
    """

    condition: Condition
    text: str
    place: str
    kind: str = "guard"
    message: str = ""

    def __str__(self) -> str:
        return f"{self.text}  at {self.place}"

    @property
    def names(self) -> frozenset[str]:
        """Names of the sizes in it."""
        return self.condition.names

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Return whether it holds for these sizes."""
        return self.condition.holds(sizes)


def check_bounds(name: str, low: Any, high: Any) -> None:
    """Raise unless `low` and `high` can be the bounds of a size."""
    for what, value in (("min", low), ("max", high)):
        if type(value) is not int and not (what == "max" and value is None):
            raise ArgumentError(
                f"{name}: {what}={shown(value)} is not an int", do=f"write {what}=1"
            )
    if low < 0:
        raise ShapeError(
            f"{name}: min={low} is negative", do="leave it out: a size is at least 0"
        )
    if high is not None and high < low:
        raise ShapeError(
            f"{name}: max={high} is less than min={low}", do="give max >= min"
        )


_OWN_NAME = re.compile(r"[su]\d+")


def check_name(name: Any) -> None:
    """Raise unless a text can be the name of a size."""
    is_name = isinstance(name, str) and name.isidentifier()
    if not is_name or keyword.iskeyword(name):
        raise ArgumentError(
            f"{shown(name)} is not a name for a size", do='write a name such as "batch"'
        )
    if _OWN_NAME.fullmatch(name):
        raise ArgumentError(
            f"'{name}' is like the names of sizes without a name",
            do='write another name, such as "batch"',
        )


# ---- errors for what cannot be known of sizes while a function is captured ----


_FOR_DATA: Final = (
    "say the answer before, by co.check(...) of what holds for all data, or use"
    " np.where or cond"
)
_FOR_NAMES: Final = (
    "say the answer before, by co.check(...) of what holds for all sizes that you mean,"
    " or leave out the name: then the answer becomes a guard"
)
# The advice where the number itself is asked.
FOR_NUMBERS: Final = (
    "keep the size: np.arange(n, like=x) and np.zeros_like(x, shape=(n,)) with an array x"
    " of the function, math.prod(x.shape); co.sizes.broadcast_sizes(s, t) in place of"
    " np.broadcast_shapes(s, t); co.scan(f, init, x) and co.fori_loop(0, n, ...) in place"
    " of a loop"
)


def check_askable(
    asked: str,
    names: Collection[str],
    sizes: Mapping[str, Size],
    knowledge: Knowledge,
    do: str = "",
) -> None:
    """Raise unless the answer to a question about sizes may become a guard."""
    kinds = {sizes[name].kind for name in names}
    known = sorted(names)
    if not ("data" in kinds or kinds == {"named"}):
        return
    data = [name for name in known if sizes[name].kind == "data"]
    places = [f"at {caller_place()}"]
    places += [_described(sizes[name], knowledge) for name in data or known]
    if data:
        why = "which depends on the values of arrays"
        raise DataDependentError(f"{asked}, {why}", *places, do=do or _FOR_DATA)
    why = f"and {' and '.join(known)} may be any size"
    raise SizeError(f"{asked}, {why}", *places, do=do or _FOR_NAMES)


def _described(size: Size, knowledge: Knowledge) -> str:
    low, high = knowledge.bounds[size.name]
    most = "" if high == inf else f", at most {high}"
    where = f" of {size.origin}" if size.origin else ""
    now = "" if size.hint is None else f", now {size.hint}"
    return f"{size.name}: the size{where}, at least {low}{most}{now}"


def too_large(error: LargeSize) -> SizeError:
    """Make the error for an expression of too many terms."""
    return SizeError(
        str(error),
        f"at {caller_place()}",
        do="compute it with arrays, or from int(n): then the graph is only for this size",
    )
