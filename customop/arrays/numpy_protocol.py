"""NumPy's own protocols: how plain ``np.`` code reaches operators."""

from __future__ import annotations

import sys
from abc import ABCMeta
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from customop.arrays.array_methods import (
    ARITHMETIC,
    COMPARISONS,
    SIGNS,
    WritingMethods,
    as_method,
    binary,
    namespace_of,
    raising,
    reflected_of,
    unary,
)
from customop.arrays.kinds import (
    any_foreign,
    at_home,
    device_of,
    is_fake,
    is_traced,
    joined,
    others_decide,
    refuse_own_rules,
)
from customop.arrays.nested import describe
from customop.arrays.numpy_functions import (
    ALONE,
    CALLS,
    INDEXING,
    SETTING,
    call_numpy,
    place_of_out,
    run,
)
from customop.arrays.refusals import (
    ABSENT,
    AbsentAttribute,
    asked_by_setitem,
    called_method,
    instead_of_draw,
    missing,
    name_call,
)
from customop.errors import ArgumentError, CustomOpError
from customop.shapes.sizes import Symbolic, with_arrays


class ArrayMethods(WritingMethods):
    """Operators, methods and protocols of an array, made of NumPy's functions.

    A class that inherits them needs `shape` and `dtype`. Everything else calls the
    operator that is registered for the NumPy function of that name.
    """

    __slots__ = ()
    # Higher than ndarray, so that ndarray + x calls x.__radd__.
    __array_priority__: ClassVar[float] = 1000.0
    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # as for ndarray: == is elementwise

    shape: Any
    dtype: Any

    # ---- structure ----

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> Any:
        """Number of elements."""
        count = 1
        for length in self.shape:
            count *= length
        return count

    @property
    def itemsize(self) -> int:
        """Length of one element, in bytes."""
        return int(self.dtype.itemsize)

    @property
    def nbytes(self) -> Any:
        """Length of all elements, in bytes."""
        return self.size * self.itemsize

    @property
    def T(self) -> Any:  # noqa: N802  # NumPy's name
        """The array with its axes reversed."""
        return call_numpy(np.transpose, self)

    @property
    def mT(self) -> Any:  # noqa: N802  # NumPy's name
        """The array with its last two axes swapped."""
        return call_numpy(np.swapaxes, self, -1, -2)

    @property
    def real(self) -> Any:
        """The real parts."""
        return call_numpy(np.real, self)

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self) -> Any:
        """The imaginary parts."""
        return call_numpy(np.imag, self)

    @imag.setter
    def imag(self, value: Any) -> None:
        if self.dtype.kind != "c":
            raise TypeError("array does not have imaginary part to set")
        self.imag[...] = value

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array with no axes")
        return int(self.shape[0])  # of a symbolic size a guard

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        return call_numpy(INDEXING, self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        if self.box_is_scalar and not is_fake(self):
            raise ArgumentError(
                f"{describe(self)} is a scalar, which cannot be written in place",
                do="write into an array: np.zeros_like(x), or np.zeros(shape, like=x)",
            )
        if type(value) is type(self) and len(self.shape) > 1:
            _check_shuffled(self, value)
        new = call_numpy(SETTING, self, key, value)
        if new is not self:
            self.box_write(new)

    def __contains__(self, item: Any) -> bool:
        return bool((self == item).any())

    if TYPE_CHECKING:  # the tables below, for type checkers

        def __add__(self, other: Any, /) -> Any: ...
        def __radd__(self, other: Any, /) -> Any: ...
        def __sub__(self, other: Any, /) -> Any: ...
        def __rsub__(self, other: Any, /) -> Any: ...
        def __mul__(self, other: Any, /) -> Any: ...
        def __rmul__(self, other: Any, /) -> Any: ...
        def __truediv__(self, other: Any, /) -> Any: ...
        def __rtruediv__(self, other: Any, /) -> Any: ...
        def __floordiv__(self, other: Any, /) -> Any: ...
        def __rfloordiv__(self, other: Any, /) -> Any: ...
        def __mod__(self, other: Any, /) -> Any: ...
        def __rmod__(self, other: Any, /) -> Any: ...
        def __pow__(self, other: Any, /) -> Any: ...
        def __rpow__(self, other: Any, /) -> Any: ...
        def __matmul__(self, other: Any, /) -> Any: ...
        def __rmatmul__(self, other: Any, /) -> Any: ...
        def __divmod__(self, other: Any, /) -> Any: ...
        def __rdivmod__(self, other: Any, /) -> Any: ...
        def __lshift__(self, other: Any, /) -> Any: ...
        def __rlshift__(self, other: Any, /) -> Any: ...
        def __rshift__(self, other: Any, /) -> Any: ...
        def __rrshift__(self, other: Any, /) -> Any: ...
        def __and__(self, other: Any, /) -> Any: ...
        def __rand__(self, other: Any, /) -> Any: ...
        def __or__(self, other: Any, /) -> Any: ...
        def __ror__(self, other: Any, /) -> Any: ...
        def __xor__(self, other: Any, /) -> Any: ...
        def __rxor__(self, other: Any, /) -> Any: ...
        def __neg__(self) -> Any: ...
        def __pos__(self) -> Any: ...
        def __abs__(self) -> Any: ...
        def __invert__(self) -> Any: ...
        def __lt__(self, other: Any, /) -> Any: ...
        def __le__(self, other: Any, /) -> Any: ...
        def __gt__(self, other: Any, /) -> Any: ...
        def __ge__(self, other: Any, /) -> Any: ...
        def __eq__(self, other: object, /) -> Any: ...
        def __ne__(self, other: object, /) -> Any: ...
        def sum(self, *args: Any, **kwargs: Any) -> Any: ...
        def mean(self, *args: Any, **kwargs: Any) -> Any: ...
        def prod(self, *args: Any, **kwargs: Any) -> Any: ...
        def max(self, *args: Any, **kwargs: Any) -> Any: ...
        def min(self, *args: Any, **kwargs: Any) -> Any: ...
        def std(self, *args: Any, **kwargs: Any) -> Any: ...
        def var(self, *args: Any, **kwargs: Any) -> Any: ...
        def all(self, *args: Any, **kwargs: Any) -> Any: ...
        def any(self, *args: Any, **kwargs: Any) -> Any: ...
        def argmax(self, *args: Any, **kwargs: Any) -> Any: ...
        def argmin(self, *args: Any, **kwargs: Any) -> Any: ...
        def argsort(self, *args: Any, **kwargs: Any) -> Any: ...
        def argpartition(self, *args: Any, **kwargs: Any) -> Any: ...
        def searchsorted(self, *args: Any, **kwargs: Any) -> Any: ...
        def nonzero(self) -> Any: ...
        def cumsum(self, *args: Any, **kwargs: Any) -> Any: ...
        def cumprod(self, *args: Any, **kwargs: Any) -> Any: ...
        def take(self, *args: Any, **kwargs: Any) -> Any: ...
        def repeat(self, *args: Any, **kwargs: Any) -> Any: ...
        def round(self, *args: Any, **kwargs: Any) -> Any: ...
        def dot(self, *args: Any, **kwargs: Any) -> Any: ...
        def ravel(self, *args: Any, **kwargs: Any) -> Any: ...
        def squeeze(self, *args: Any, **kwargs: Any) -> Any: ...
        def swapaxes(self, *args: Any, **kwargs: Any) -> Any: ...
        def diagonal(self, *args: Any, **kwargs: Any) -> Any: ...
        def trace(self, *args: Any, **kwargs: Any) -> Any: ...

    else:

        def __dir__(self) -> list[str]:
            return [n for n in super().__dir__() if n not in ABSENT or hasattr(self, n)]

        # Powers are several ufuncs; all other operators of Python are set below.
        __pow__ = raising(binary(np.power, "__rpow__"))
        __rpow__ = reflected_of(np.power)

        # ---- methods ----

        sum, mean, prod = as_method(np.sum), as_method(np.mean), as_method(np.prod)
        max, min = as_method(np.max), as_method(np.min)
        std, var = as_method(np.std), as_method(np.var)
        all, any = as_method(np.all), as_method(np.any)
        argmax, argmin = as_method(np.argmax), as_method(np.argmin)
        argsort, nonzero = as_method(np.argsort), as_method(np.nonzero)
        cumsum, cumprod = as_method(np.cumsum), as_method(np.cumprod)
        take, repeat = as_method(np.take), as_method(np.repeat)
        round, dot = as_method(np.round), as_method(np.dot)
        ravel, squeeze = as_method(np.ravel), as_method(np.squeeze)
        argpartition = as_method(np.argpartition)
        searchsorted = as_method(np.searchsorted)
        swapaxes, diagonal = as_method(np.swapaxes), as_method(np.diagonal)
        trace = as_method(np.trace)

    def conj(self, *args: Any, **kwargs: Any) -> Any:
        """Do what `numpy.ndarray.conj` does: the array itself, unless it is complex."""
        if self.dtype.kind != "c" and not args and not kwargs:
            return self
        return run(np.conj, (self, *args), kwargs, self)

    conjugate = conj

    def clip(
        self,
        min: Any = None,  # noqa: A002  # NumPy's names
        max: Any = None,  # noqa: A002  # NumPy's
        out: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Do what `numpy.clip` does, where one bound is enough."""
        refuse_own_rules((min, max, out))
        return run(np.clip, (self, min, max), {**kwargs, "out": out}, self)

    def choose(self, choices: Any, out: Any = None, mode: str = "raise") -> Any:
        """Do what `numpy.choose` does."""
        return run(np.choose, (self, choices), {"out": out, "mode": mode}, self)

    def to_device(self, device: Any, /, *, stream: None = None) -> Any:
        """Return the array itself, which stays on its device."""
        if device != device_of(self) or stream is not None:
            raise ArgumentError(
                f"{describe(self)} cannot move to {device!r}",
                do="pass arguments that are on that device",
            )
        return self

    def compress(self, condition: Any, *args: Any, **kwargs: Any) -> Any:
        """Do what `numpy.compress` does, with the array in the second place."""
        return run(np.compress, (condition, self, *args), kwargs, self)

    def reshape(self, *shape: Any, **kwargs: Any) -> Any:
        """Do what `numpy.reshape` does; the lengths may come one by one."""
        return call_numpy(np.reshape, self, _one(shape), **kwargs)

    def transpose(self, *axes: Any) -> Any:
        """Do what `numpy.transpose` does; the axes may come one by one."""
        return call_numpy(np.transpose, self, _one(axes) if axes else None)

    def astype(self, dtype: Any, **kwargs: Any) -> Any:
        """Do what `numpy.astype` does."""
        found = call_numpy(np.astype, self, dtype, **kwargs)
        if self.shape or not is_traced(found) or not self.box_is_scalar:
            return found
        return found if found.box_is_scalar else found[()]

    def copy(self, order: Any = "C") -> Any:
        """Do what `numpy.ndarray.copy` does, whose order is C by default."""
        is_scalar = not self.shape and getattr(self, "box_is_scalar", False)
        return self[()] if is_scalar else self._make(np.copy, (self, order), {})

    def flatten(self, order: str = "C") -> Any:
        """Do what `numpy.ndarray.flatten` does: copy."""
        return call_numpy(np.copy, call_numpy(np.ravel, self, order))

    # ---- Python's rounding, of values without axes ----

    def __round__(self, ndigits: int | None = None) -> Any:
        return call_numpy(np.round, self._number("round"), ndigits or 0)

    def __floor__(self) -> Any:
        return call_numpy(np.floor, self._number("math.floor"))

    def __ceil__(self) -> Any:
        return call_numpy(np.ceil, self._number("math.ceil"))

    def __trunc__(self) -> Any:
        return call_numpy(np.trunc, self._number("math.trunc"))

    def _number(self, name: str) -> Self:
        if self.shape:
            raise ArgumentError(
                f"{name}() takes a single number, got {describe(self)}",
                do=f"use np.{name.removeprefix('math.')}(x)",
            )
        return self

    # ---- protocols ----

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        """Return NumPy, or for array-api-compat the namespace of plain arrays."""
        package = sys._getframe(1).f_globals.get("__package__") or ""
        if package.endswith("array_api_compat.common"):
            return namespace_of(import_module(package.removesuffix("common") + "numpy"))
        return namespace_of(_numpy)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        if not kwargs and method == "__call__" and ufunc in CALLS:
            # The usual calls, the short way.
            if len(inputs) == 1:
                return CALLS[ufunc](self)
            for value in inputs:
                if not at_home[type(value)]:
                    break
            else:
                return CALLS[ufunc](*inputs)
        if (kwargs or len(inputs) > 1) and others_decide(inputs, kwargs):
            return NotImplemented
        if method == "__call__" and len(inputs) > 1:
            inputs = tuple([joined(value, self) for value in inputs])
        function = ufunc if method == "__call__" else (ufunc, method)
        if kwargs:
            return run(function, inputs, kwargs, self)
        return call_numpy(function, *inputs, **kwargs)

    def __array_function__(
        self, function: Any, classes: Any, args: Any, kwargs: Any
    ) -> Any:
        try:
            if len(classes) == len(args) == 1 and args[0] is self and not kwargs:
                if function not in _MAKERS:  # the usual calls, the short way
                    return ALONE[function](self)
            elif len(classes) > 1 and any_foreign(classes, "__array_function__"):
                return NotImplemented
            if function in _MAKERS:
                return self._make(function, args, kwargs)
            if "out" in kwargs or len(args) > place_of_out[function] >= 0:
                return run(function, args, kwargs, self)
            return CALLS[function](*args, **kwargs)
        except CustomOpError as error:
            name_call(error, function)
            raise

    def _make(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Make a result that is an array of its own: a buffer, or one without axes."""
        if function in _BY_SHAPE and kwargs.get("device") is None:
            kwargs = {**kwargs, "device": device_of(self)}
        found = run(function, args, kwargs, self)
        if function not in _NEVER_SCALARS:
            return self.box_like(found)  # buffers take traced values later
        if is_traced(found) and not found.shape:
            found.box_pin()
        return found

    def __cupy_override_elementwise_kernel__(
        self, kernel: Any, *args: Any, **kwargs: Any
    ) -> Any:
        # CuPy calls this where NumPy calls __array_ufunc__; its ufuncs are named
        # "cupy_add" (seen in cupy 14.2).
        function = getattr(np, kernel.name.removeprefix("cupy_"), None)
        if isinstance(function, np.ufunc):
            return self.__array_ufunc__(function, "__call__", *args, **kwargs)
        # Some functions of NumPy are ufuncs in CuPy, such as `where`.
        if function is None or others_decide(args, kwargs):
            raise missing(kernel)
        return run(function, args, kwargs, self)


def _check_shuffled(array: Any, row: Any) -> None:
    """Raise where NumPy swaps two rows, which are views that change with the array.

    It does so for arrays that are not its own: ``x[i], x[j] = x[j], x[i]``.
    """
    place = getattr(row, "box_place", None)
    if type(place) is not tuple or not any(a is array for a in place[1]):
        return
    if not asked_by_setitem() and called_method() == "shuffle":
        raise ArgumentError(
            f"shuffle() of a random generator swaps rows of {describe(array)}, which are"
            " views of it",
            do=f"use {instead_of_draw('shuffle')}",
        )


def _with_sizes(
    ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Compute a ufunc of symbolic sizes and arrays."""
    own = [v for v in inputs if isinstance(v, ArrayMethods)]
    if own:  # NumPy asks it next
        return NotImplemented
    first = next(v for v in inputs if not isinstance(v, Symbolic))
    function = ufunc if method == "__call__" else (ufunc, method)
    return run(function, inputs, kwargs, first)


with_arrays.append(_with_sizes)


for _name in ABSENT:
    setattr(ArrayMethods, _name, AbsentAttribute(_name))
for _name, _ufunc in ARITHMETIC.items():
    setattr(ArrayMethods, f"__{_name}__", binary(_ufunc, f"__r{_name}__"))
    setattr(ArrayMethods, f"__r{_name}__", reflected_of(_ufunc))
for _name, (_ufunc, _reflected) in COMPARISONS.items():
    setattr(ArrayMethods, f"__{_name}__", binary(_ufunc, _reflected))
for _name, _ufunc in SIGNS.items():
    setattr(ArrayMethods, f"__{_name}__", unary(_ufunc))


_numpy: Any = np

# The flag of classes that `match` takes for sequences: Py_TPFLAGS_SEQUENCE.
_SEQUENCE = 1 << 5
if np.ndarray.__flags__ & _SEQUENCE:  # since NumPy 2.5
    # An abstract class that has the flag gives it to the classes that register with it.
    # Unlike collections.abc.Sequence, it does not make tracers sequences for isinstance.
    _matched: Any = ABCMeta("_Matched", (), {"__abc_tpflags__": _SEQUENCE})
    _matched.register(ArrayMethods)


def _one(items: tuple[Any, ...]) -> Any:
    """Return ``(2, 3)`` for both ``f(2, 3)`` and ``f((2, 3))``."""
    return items[0] if len(items) == 1 else items


# Functions that make buffers like an array, which may be filled by traced values.
_BY_SHAPE: frozenset[Any] = frozenset(
    (
        np.zeros,
        np.ones,
        np.empty,
        np.full,
        np.eye,
        np.identity,
        np.tri,
        np.arange,
    )
)
_FROM_VALUES: tuple[Any, ...] = (
    np.array,
    np.asarray,
    np.asanyarray,
    np.ascontiguousarray,
    np.asfortranarray,
    np.require,
)
_LIKE: tuple[Any, ...] = (np.zeros_like, np.ones_like, np.empty_like, np.full_like)
# Functions whose results are arrays also where they have no axes.
_NEVER_SCALARS: frozenset[Any] = frozenset(
    (np.copy, np.where, np.select, np.tensordot, np.astype, np.i0)
)
_MAKERS: frozenset[Any] = frozenset(
    (*_LIKE, *_BY_SHAPE, *_FROM_VALUES, *_NEVER_SCALARS)
)
