"""The methods of an array that write in place."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from customop.arrays.describe import describe
from customop.arrays.kinds import is_array, is_traced
from customop.arrays.numpy_functions import call_numpy
from customop.errors import ArgumentError, CustomOpError
from customop.later import later

fit: ModuleType = later(import_module, "customop.arrays.fit")

__all__ = ["WritingMethods"]


def _in_place(ufunc: np.ufunc, compute: Callable[[Any, Any], Any]) -> Any:
    def method(self: Any, other: Any) -> Any:
        if self.box_is_scalar:
            return NotImplemented  # as NumPy's scalars: z += 1 is z = z + 1
        new = compute(self, other)
        if not is_array(new):
            return new  # another library has decided
        self.box_write(fit.fit_into(self, new, f"np.{ufunc.__name__}"))
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
            """Whether NumPy's value would be a scalar, which never changes."""
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
        """As `numpy.ndarray.sort`: sort in place."""
        self.box_write(np.sort(self, axis, **kwargs))  # type: ignore[call-overload]  # any array

    def partition(self, kth: Any, axis: int = -1, **kwargs: Any) -> None:
        """As `numpy.ndarray.partition`: partition in place."""
        self.box_write(np.partition(self, kth, axis, **kwargs))  # type: ignore[call-overload]  # any array

    def fill(self, value: Any) -> None:
        """As `numpy.ndarray.fill`: write one value everywhere."""
        if getattr(value, "shape", ()) != () or isinstance(value, list | tuple):
            value = self._one(value)
        self[...] = value

    def _one(self, value: Any) -> Any:
        """A list, or an array with axes, as one element; raise as NumPy does."""
        one = np.empty((), self.dtype)
        is_traced = hasattr(value, "shape") and not isinstance(value, np.ndarray)
        one.fill(np.zeros(2) if is_traced else value)
        return one[()]

    def put(self, indices: Any, values: Any, mode: Any = "raise") -> None:
        """As `numpy.put`."""
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
        """The elements as a new array."""
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
