"""Methods and operators of traced and fake arrays, and writing in place.

``np.asarray(x)`` itself asks ``x.__array__``, which has to return a plain array: NumPy
offers no other hook, except ``np.asarray(x, like=x)``. Code written for the array API
standard takes its functions from ``x.__array_namespace__()``, which are these.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import cache, lru_cache, wraps
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from customop.arrays.array import dtype_of
from customop.arrays.kinds import (
    UNDECIDED,
    answer,
    at_home,
    is_array,
    is_fake,
    is_traced,
    joined,
    refuse_own_rules,
)
from customop.arrays.nested import describe
from customop.arrays.numpy_functions import ALONE, CALLS, call_numpy, place_of_out, run
from customop.errors import ArgumentError, CustomOpError
from customop.later import later

ufunc_keywords: ModuleType = later(import_module, "customop.arrays.ufunc_keywords")


# ---- the array namespace of traced and fake arrays ----
# NumPy, whose conversions keep them.


CONVERSIONS = ("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray")


class KeepingNamespace(ModuleType):
    """The functions of a module, of which the conversions keep traced and fake arrays.

    It equals the module: array-api-compat compares the namespaces of its arguments.
    """

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.__name__, module.__doc__)
        self._module: ModuleType = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if name in CONVERSIONS:
            found = keeping(name, found)
        setattr(self, name, found)
        return found

    def __dir__(self) -> list[str]:
        return dir(self._module)

    def __repr__(self) -> str:
        return repr(self._module)

    def __eq__(self, other: object) -> bool:
        return self is other or self._module == other

    def __hash__(self) -> int:
        return hash(self._module)


def keeping(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a conversion that calls the operator for traced and fake arrays."""

    @wraps(function)
    def convert(obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        like = first_virtual(obj)
        if like is None or "like" in kwargs:
            return function(obj, *args, **kwargs)
        return getattr(np, name)(obj, *args, **kwargs, like=like)

    return convert


def first_virtual(value: Any) -> Any:
    """Return the first traced or fake array among nested values, or None."""
    if isinstance(value, list | tuple):
        return next((x for x in map(first_virtual, value) if x is not None), None)
    return value if is_traced(value) or is_fake(value) else None


@lru_cache(8)
def namespace_of(module: ModuleType) -> ModuleType:
    """Return a module's namespace for traced and fake arrays."""
    return KeepingNamespace(module)


# ---- methods of arrays, and operators of Python, made of NumPy's functions ----


# Python's operators by the names of their methods: those that have a reflected method of
# the name with r before it, comparisons with the name of the reflected one, and those of
# one array. Powers are apart, since they are several ufuncs.
ARITHMETIC: dict[str, np.ufunc] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.true_divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "matmul": np.matmul,
    "divmod": np.divmod,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
COMPARISONS: dict[str, tuple[np.ufunc, str]] = {
    "lt": (np.less, "__gt__"),
    "le": (np.less_equal, "__ge__"),
    "gt": (np.greater, "__lt__"),
    "ge": (np.greater_equal, "__le__"),
    "eq": (np.equal, ""),
    "ne": (np.not_equal, ""),
}
SIGNS: dict[str, np.ufunc] = {
    "neg": np.negative,
    "pos": np.positive,
    "abs": np.absolute,
    "invert": np.invert,
}


def unary(function: Any) -> Callable[[Any], Any]:
    """Make the method that calls a function of one array."""

    def method(self: Any) -> Any:
        return CALLS[function](self)

    return method


def binary(ufunc: np.ufunc, reflected: str = "") -> Callable[[Any, Any], Any]:
    """Make the method of a binary operator of Python and of its reflected name."""

    def method(self: Any, other: Any) -> Any:
        if not at_home[type(other)]:
            found = answer(ufunc, reflected, other, self, other)
            if found is not UNDECIDED:
                return found
            other = joined(other, self)
        return CALLS[ufunc](self, other)

    return method


def reflected_of(ufunc: np.ufunc) -> Callable[[Any, Any], Any]:
    """Make the reflected method of an operator of Python."""

    def method(self: Any, other: Any) -> Any:
        if not at_home[type(other)]:
            found = answer(ufunc, "", other, other, self)
            if found is not UNDECIDED:
                return found
            other = joined(other, self)
        return CALLS[ufunc](other, self)

    return method


def raising(power: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Make ``x ** y``, which calls other ufuncs for some numbers, as NumPy does.

    ``x ** 0.5`` is np.sqrt(x), whose bits differ from those of np.power(x, 0.5).
    """

    def method(self: Any, other: Any) -> Any:
        # NumPy's scalars have code of their own, which rounds as np.power.
        if type(other) not in _PLAIN or other not in _QUICK or self.box_is_scalar:
            return power(self, other)
        ufunc = _ufunc_of_power(dtype_of(self), type(other) is int, other)
        return power(self, other) if ufunc is np.power else CALLS[ufunc](self)

    return method


_PLAIN = frozenset((int, float))
# Exponents that some version of NumPy has another ufunc for.
_QUICK = frozenset((-1, 0, 0.5, 1, 2))


@cache
def _ufunc_of_power(dtype: np.dtype[Any], is_int: bool, exponent: float) -> np.ufunc:
    """Return the ufunc that NumPy runs for ``array ** exponent``."""
    asked: list[np.ufunc] = []

    class AskedUfunc(np.ndarray[Any, Any]):
        def __array_ufunc__(self, ufunc: Any, *args: Any, **kwargs: Any) -> Any:
            asked.append(ufunc)
            return 0

    try:
        _ = np.ones(1, dtype).view(AskedUfunc) ** (int if is_int else float)(exponent)
    except ValueError:  # integers have no negative powers
        return np.power
    return asked[0]


def as_method(function: Any) -> Callable[..., Any]:
    """Make the method of arrays that does what a function of NumPy does."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not args and not kwargs:
            return ALONE[function](self)
        refuse_own_rules((*args, *kwargs.values()))
        if "out" in kwargs or len(args) >= place_of_out[function] >= 0:
            return run(function, (self, *args), kwargs, self)
        return CALLS[function](self, *args, **kwargs)

    method.__name__ = function.__name__
    method.__doc__ = f"As `numpy.{function.__name__}`."
    return method


# ---- the methods of an array that write in place ----


def _in_place(ufunc: np.ufunc, compute: Callable[[Any, Any], Any]) -> Any:
    def method(self: Any, other: Any) -> Any:
        if self.box_is_scalar:
            return NotImplemented  # as NumPy's scalars: z += 1 is z = z + 1
        new = compute(self, other)
        if not is_array(new):
            return new  # another library has decided
        self.box_write(ufunc_keywords.fit_into(self, new, f"np.{ufunc.__name__}"))
        return self

    return method


class WritingMethods:
    """Operators and methods that write in place.

    A class that inherits them needs the attributes of an array and the three methods
    below; names that begin with ``box_`` are the package's.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        shape: Any
        dtype: Any

        @property
        def box_is_scalar(self) -> bool:
            """Return whether NumPy's value would be a scalar, which never changes."""
            ...

        def box_write(self, new: Any) -> None:
            """Write a whole new value, of this shape and dtype."""
            ...

        def box_like(self, constant: Any) -> Any:
            """Make an array of a constant that can take values like this one."""
            ...

        def __getitem__(self, key: Any) -> Any: ...
        def __setitem__(self, key: Any, value: Any) -> None: ...
        def __iadd__(self, other: Any, /) -> Self: ...
        def __isub__(self, other: Any, /) -> Self: ...
        def __imul__(self, other: Any, /) -> Self: ...
        def __itruediv__(self, other: Any, /) -> Self: ...
        def __ifloordiv__(self, other: Any, /) -> Self: ...
        def __imod__(self, other: Any, /) -> Self: ...
        def __ipow__(self, other: Any, /) -> Self: ...
        def __imatmul__(self, other: Any, /) -> Self: ...
        def __ilshift__(self, other: Any, /) -> Self: ...
        def __irshift__(self, other: Any, /) -> Self: ...
        def __iand__(self, other: Any, /) -> Self: ...
        def __ior__(self, other: Any, /) -> Self: ...
        def __ixor__(self, other: Any, /) -> Self: ...

    else:
        __iadd__ = _in_place(np.add, operator.add)
        __isub__ = _in_place(np.subtract, operator.sub)
        __imul__ = _in_place(np.multiply, operator.mul)
        __itruediv__ = _in_place(np.true_divide, operator.truediv)
        __ifloordiv__ = _in_place(np.floor_divide, operator.floordiv)
        __imod__ = _in_place(np.remainder, operator.mod)
        __ipow__ = _in_place(np.power, operator.pow)
        __imatmul__ = _in_place(np.matmul, operator.matmul)
        __ilshift__ = _in_place(np.left_shift, operator.lshift)
        __irshift__ = _in_place(np.right_shift, operator.rshift)
        __iand__ = _in_place(np.bitwise_and, operator.and_)
        __ior__ = _in_place(np.bitwise_or, operator.or_)
        __ixor__ = _in_place(np.bitwise_xor, operator.xor)

    def sort(self, axis: int = -1, **kwargs: Any) -> None:
        """Sort in place, as `numpy.ndarray.sort`."""
        self.box_write(np.sort(self, axis, **kwargs))  # type: ignore[call-overload]  # any array

    def partition(self, kth: Any, axis: int = -1, **kwargs: Any) -> None:
        """Partition in place, as `numpy.ndarray.partition`."""
        self.box_write(np.partition(self, kth, axis, **kwargs))  # type: ignore[call-overload]  # any array

    def fill(self, value: Any) -> None:
        """Write one value everywhere, as `numpy.ndarray.fill`."""
        if getattr(value, "shape", ()) != () or isinstance(value, list | tuple):
            value = self._one(value)
        self[...] = value

    def _one(self, value: Any) -> Any:
        """Return a list, or an array with axes, as one element; raise as NumPy does."""
        one = np.empty((), self.dtype)
        is_traced = hasattr(value, "shape") and not isinstance(value, np.ndarray)
        one.fill(np.zeros(2) if is_traced else value)
        return one[()]

    def put(self, indices: Any, values: Any, mode: Any = "raise") -> None:
        """Do what `numpy.put` does."""
        np.put(self, indices, values, mode)  # type: ignore[arg-type]  # any array

    @property
    def flat(self) -> FlatItems:
        """The elements in C order, to be read and written."""
        return FlatItems(self)

    @flat.setter
    def flat(self, value: Any) -> None:
        FlatItems(self)[...] = value


class FlatItems:
    """``x.flat``: the elements of an array in C order."""

    __slots__ = ("_array",)

    def __init__(self, array: Any) -> None:
        self._array = array

    def copy(self) -> Any:
        """Copy the elements into a new array."""
        return np.copy(np.reshape(self._array, -1))

    def __getitem__(self, key: Any) -> Any:
        return self.copy()[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        if is_traced(value) and value.box_shares(self._array):
            raise ArgumentError(
                f"the elements of {describe(self._array)} are written by x.flat, with values"
                " of the same array, which change meanwhile",
                do="write x.flat[key] = value.copy()",
            )
        places = np.arange(len(self))[key]
        if not isinstance(places, np.integer):
            # A value that is too short is repeated; one that is too long is cut.
            np.put(self._array, places, value)
            return
        place = np.unravel_index(places, tuple(self._array.shape))
        try:
            call_numpy((np.flatiter, "__setitem__"), self._array, place, value)
        except (TypeError, ValueError, OverflowError) as error:
            if isinstance(error, CustomOpError):
                raise
            raise ValueError("Error setting single item of array.") from error

    def __iter__(self) -> Iterator[Any]:
        return iter(self.copy())

    def __len__(self) -> int:
        return int(np.prod(self._array.shape, dtype=int))
