"""Questions about sizes that never become guards, and arithmetic with them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, Final, NoReturn, Self

import numpy as np

from customop.errors import GuessError, ShapeError
from customop.later import later

# Programs whose sizes all are numbers never need these.
conditions: ModuleType = later(import_module, "customop.shapes.conditions")
symbolic: ModuleType = later(import_module, "customop.shapes.symbolic")

__all__ = [
    "SymShape",
    "as_length",
    "broadcast_sizes",
    "is_known",
    "is_negative",
    "is_nonzero",
    "is_size",
    "is_symbolic",
    "number_class",
    "product",
    "same_shape",
    "same_size",
    "sym_max",
    "sym_min",
    "typical",
    "was_one",
]


# ---- the base of symbolic numbers, which takes no time to import ----


class Symbolic:
    """A number that is made of symbolic sizes: the base of `SymInt` and `SymFloat`."""

    __slots__ = ()

    hint: Any
    context: Any

    @property
    def value(self) -> Any:
        """The number that it is in this call, which becomes a guard."""
        raise NotImplementedError


def has_sizes(value: Any) -> bool:
    """Return whether an argument is a symbolic number, or has one in a list."""
    if isinstance(value, list | tuple):
        return any(map(has_sizes, value))
    return isinstance(value, Symbolic)


# Classes of numbers that broadcast with arrays; symbolic ones enter themselves.
number_classes: set[type] = {bool, int, float, complex}

# The function, if it is set, that a ufunc of symbolic numbers and arrays calls.
with_arrays: list[Callable[..., Any]] = []

# Not empty once there may be symbolic sizes. Code that runs often asks it first.
made: list[bool] = []


# ---- questions about sizes that never become guards, and arithmetic with them ----
# Sizes are ints or `SymInt`. Fake kernels that use these functions work on both.


def is_size(value: Any) -> bool:
    """Return whether a value is a `SymInt`.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop import sizes
    >>> n, one = co.FakeMode().from_array(np.zeros((5, 1)), sizes=("n", 1)).shape
    >>> sizes.is_size(n), sizes.is_size(one)
    (True, False)
    """
    return isinstance(value, Symbolic) and type(value) is symbolic.SymInt


def number_class(value: Any) -> type:
    """Return the class of a number; for a symbolic one, that of its value.

    It is int for a size, and np.int64 for ``np.minimum(n, 3)``; float for a `SymFloat`
    such as ``n / 2``, and np.float64 for one such as ``np.sqrt(n)``.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop import sizes
    >>> n, one = co.FakeMode().from_array(np.zeros((5, 1)), sizes=("n", 1)).shape
    >>> sizes.number_class(n), sizes.number_class(n / 2)
    (<class 'int'>, <class 'float'>)
    """
    cls = type(value)
    is_symbolic = issubclass(cls, Symbolic)
    found: type = symbolic.class_of(value) if is_symbolic else cls
    return found


def typical(size: Any) -> int:
    """Return a number in place of a size, at least 2 for each name in it.

    Sort strides by it: that of a dense array is larger for an axis that is slower.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop import sizes
    >>> n, one = co.FakeMode().from_array(np.zeros((5, 1)), sizes=("n", 1)).shape
    >>> sizes.typical(n), sizes.typical(one)
    (5, 1)
    """
    if not is_size(size):
        return int(size)
    return symbolic.typical(size)  # type: ignore[no-any-return]  # an int


def as_length(size: Any) -> Any:
    """Return a size as an int of Python, where NumPy has calculated it.

    Examples
    --------
    >>> import numpy as np
    >>> from customop import sizes
    >>> sizes.as_length(np.int64(3))
    3
    """
    if type(size) is int:
        return size
    return size.weak if is_size(size) else int(size)


class SymShape(tuple[Any, ...]):
    """The shape of an array that has symbolic sizes.

    Comparing it with another shape asks one question: the answer is True or False where
    it is certain, and else a `SymBool` for all sizes together.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> shape = co.FakeMode().from_array(np.zeros((5, 3)), sizes=("n", 3)).shape
    >>> shape == (5, 4), shape == (5, 3)
    (False, n == 5)
    """

    __slots__ = ()

    def __new__(cls, sizes: Iterable[Any] = ()) -> Self:
        """Make a shape of ints of Python, also where NumPy has calculated them."""
        return tuple.__new__(cls, [as_length(n) for n in sizes])

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, tuple):
            return NotImplemented
        if len(self) != len(other):
            return False
        found: Any = True
        for a, b in zip(self, other, strict=True):
            same = a is b or a == b
            if same is False:
                return False
            if same is not True:
                found = same if found is True else found & same
        return found

    def __ne__(self, other: object) -> Any:
        same = self == other
        return not same if isinstance(same, bool) else ~same

    def __hash__(self) -> int:
        return tuple.__hash__(self)

    def __getitem__(self, key: Any) -> Any:
        found = tuple.__getitem__(self, key)
        return SymShape(found) if isinstance(key, slice) else found

    def __add__(self, other: Any) -> Any:
        return SymShape((*self, *other))

    def __radd__(self, other: Any) -> Any:
        return SymShape((*other, *self))

    def __array_function__(
        self, function: Any, classes: Any, args: Any, kwargs: Any
    ) -> Any:
        """Compute a function of NumPy, such as ``np.prod(x.shape)``."""
        reduce = _REDUCTIONS.get(function.__name__)
        if reduce is not None and len(args) == 1 and not kwargs and is_symbolic(self):
            # NumPy makes an array of the lengths, and its numbers have its class.
            return _context_of(self).as_class(reduce(self), np.int64)
        given = {name: _as_tuples(value) for name, value in kwargs.items()}
        return function(*map(_as_tuples, args), **given)


def _as_tuples(value: Any) -> Any:
    """Return a shape, or several in a list, as plain tuples."""
    if type(value) is SymShape:
        return tuple(value)
    is_nested = type(value) in (list, tuple)
    return type(value)(map(_as_tuples, value)) if is_nested else value


def is_symbolic(shape: Iterable[Any]) -> bool:
    """Return whether one of several sizes is a `SymInt`.

    Examples
    --------
    >>> from customop import sizes
    >>> sizes.is_symbolic((2, 3))
    False
    """
    for size in shape:  # noqa: SIM110  # any() takes twice as long
        if type(size) is not int and is_size(size):
            return True
    return False


def is_known(size: Any, value: Any) -> bool:
    """Return whether a size certainly has a value; False where it only may.

    Examples
    --------
    >>> from customop import sizes
    >>> sizes.is_known(1, 1), sizes.is_known(2, 1)
    (True, False)
    """
    if type(size) is int and type(value) is int:
        return size == value
    if is_size(value):
        size, value = value, size
    if not is_size(size):
        return bool(size == value)
    whole = symbolic.whole_of(value)
    side = symbolic.as_side(value) if whole is None else whole
    if side is None:
        return False
    symbolic.context_of(size, value)  # raises for sizes of different captures
    own: Any = size
    return own.context.compare(own.expr, "==", side) is True


def was_one(size: Any) -> bool:
    """Return whether a size is 1: certainly, or at tracing, which becomes a guard.

    A size with a name, or that depends on data, is not taken to be 1: it may be so in
    another call, where the axis still has its own length.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop import sizes
    >>> n, one = co.FakeMode().from_array(np.zeros((5, 1)), sizes=("n", 1)).shape
    >>> sizes.was_one(n), sizes.was_one(one)
    (False, True)
    """
    if is_known(size, 1):
        return True
    return (
        is_size(size)
        and size.context.is_unnamed(size.expr)
        and (size.hint == 1 and bool(size == 1))
    )


class Guesses:
    """The facts about values that a capture asks for.

    Attributes
    ----------
    has_any : bool
        Whether one was asked for.
    are_unusual : bool
        Whether facts that may differ are taken to be what is not usual.
    """

    __slots__ = ("are_unusual", "has_any")

    def __init__(self) -> None:
        self.has_any: bool = False
        self.are_unusual: bool = False


class _Guessing(threading.local):
    """The guesses of the capture that runs in this thread."""

    guesses: Guesses | None = None


guessing: _Guessing = _Guessing()


def guess(usual: bool, *, may_differ: bool = True) -> bool:
    """Return what a capture takes a fact about values for, which its graph checks.

    It is `usual`, unless it may differ and compile has met values for which it does.
    """
    guesses = guessing.guesses
    if guesses is None:
        return usual
    guesses.has_any = True
    return usual is not (may_differ and guesses.are_unusual)


def refuse_guess(what: str, expected: bool, do: str) -> NoReturn:
    """Raise because a fact is not as `guess` said."""
    raise GuessError(
        f"{what}, which is {not expected} here",
        f"the graph was made for values for which it is {expected}",
        do=do,
    )


def is_negative(size: Any) -> bool:
    """Return whether a size is negative here; if not, the graph checks that.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop import sizes
    >>> n, one = co.FakeMode().from_array(np.zeros((5, 1)), sizes=("n", 1)).shape
    >>> sizes.is_negative(n - 1), sizes.is_negative(one - 2)
    (False, True)
    """
    return _fails(size, ">=") if is_size(size) else bool(size < 0)


def is_nonzero(size: Any) -> bool:
    """Return whether a size is not zero here; if it is zero, the graph checks that.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop import sizes
    >>> n, one = co.FakeMode().from_array(np.zeros((5, 1)), sizes=("n", 1)).shape
    >>> sizes.is_nonzero(n), sizes.is_nonzero(one - 1)
    (True, False)
    """
    return _fails(size, "==") if is_size(size) else bool(size != 0)


def _fails(size: Any, sign: str) -> bool:
    """Return whether ``size sign 0`` does not hold; if it does, note a check."""
    context, condition = size.context, conditions.Compared(size.expr, sign, 0)
    if not context.can_hold(condition):
        return True
    context.require(condition)
    return False


def same_size(a: Any, b: Any) -> bool:
    """Return whether two sizes are certainly the same.

    Examples
    --------
    >>> from customop import sizes
    >>> sizes.same_size(3, 3)
    True
    """
    return is_known(a, b)


def same_shape(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Return whether two shapes are certainly the same.

    Examples
    --------
    >>> from customop import sizes
    >>> sizes.same_shape((2, 3), (2, 3))
    True
    """
    return len(first) == len(second) and all(map(is_known, first, second))


def product(sizes: Iterable[Any]) -> Any:
    """Return the product of sizes; 1 if there are none.

    Examples
    --------
    >>> from customop import sizes
    >>> sizes.product((2, 3))
    6
    """
    return math.prod(sizes)


def _context_of(sizes: Iterable[Any]) -> Any:
    found = [size for size in sizes if isinstance(size, Symbolic)]
    return symbolic.context_of(*found) if found else None


def sym_min(*sizes: Any) -> Any:
    """Return the least of several sizes, without a guard.

    Examples
    --------
    >>> from customop import sizes
    >>> sizes.sym_min(2, 3)
    2
    """
    context = _context_of(sizes)
    return min(sizes) if context is None else context.extreme("min", *sizes)


def sym_max(*sizes: Any) -> Any:
    """Return the largest of several sizes, without a guard.

    Examples
    --------
    >>> from customop import sizes
    >>> sizes.sym_max(2, 3)
    3
    """
    context = _context_of(sizes)
    return max(sizes) if context is None else context.extreme("max", *sizes)


# Functions of NumPy of the lengths of a shape.
_REDUCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "prod": product,
    "sum": sum,
    "max": lambda shape: sym_max(*shape),
    "amax": lambda shape: sym_max(*shape),
    "min": lambda shape: sym_min(*shape),
    "amin": lambda shape: sym_min(*shape),
}


def broadcast_sizes(*shapes: Sequence[Any]) -> tuple[Any, ...]:
    """Return the shape that NumPy broadcasts shapes to.

    Sizes that are the same, or known to be 1, need no guard. Otherwise a guard says which
    of them were equal or 1.

    Raises
    ------
    ShapeError
        If they do not fit together.
    DataDependentError, SizeError
        If it cannot be known whether they do.

    Examples
    --------
    >>> from customop import sizes
    >>> sizes.broadcast_sizes((2, 1), (3,))
    (2, 3)
    """
    if not shapes:
        return ()
    ndim = max(map(len, shapes))
    found = list(next(shape for shape in shapes if len(shape) == ndim))
    for shape in shapes:
        start = len(found) - len(shape)
        for i, size in enumerate(shape, start):
            other = found[i]
            if size is not other:
                joint = _joint_size(other, size)
                if joint is None:
                    raise _unfit(shapes)
                found[i] = joint
    return tuple(found)


def _joint_size(a: Any, b: Any) -> Any:
    """Return the size that two sizes of an axis broadcast to, or None."""
    if type(a) is int and type(b) is int:
        return a if b in (a, 1) else b if a == 1 else None
    if is_known(a, b) or is_known(b, 1):
        return a if is_size(b) or is_known(b, 1) else b
    if is_known(a, 1):
        return b
    return _decided_size(a, b)


def _decided_size(a: Any, b: Any) -> Any:
    """Return what `_joint_size` does for uncertain sizes, with a guard."""
    first, second = _hint(a), _hint(b)
    if first is None or second is None or first == second:
        if a == b:  # a guard, or an error
            return b if type(b) is int else a
        return None
    for one, hint, other in ((a, first, b), (b, second, a)):
        if hint == 1 and one == 1:
            return other
    # Only a guard that they differ makes the error that follows right.
    return None if a != b else a


def _hint(size: Any) -> int | None:
    found: int | None = size.hint if is_size(size) else size
    return found


def _unfit(shapes: Sequence[Sequence[Any]]) -> ShapeError:
    texts = " and ".join(str(tuple(shape)) for shape in shapes)
    return ShapeError(
        f"the shapes {texts} cannot be broadcast together",
        do="pass arrays whose sizes are equal or 1 along each axis",
    )
