"""Arrays of the array API standard, as kernels made of NumPy's functions see them.

Such arrays take part in none of NumPy's protocols. A kernel gets each of them in a
`Standard`, which does: it calls the function of that meaning in the namespace of the
array.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partialmethod
from typing import Any, ClassVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from customop.arrays.kinds import speaks_standard_only
from customop.arrays.nested import map_nested
from customop.arrays.standard_functions import (
    REDUCED,
    Enclosed,
    call,
    call_numpy_function,
    call_one,
    elementwise,
    full_key,
    lowered,
    missing_in,
    permuted,
    reduced,
)

__all__ = ["Standard", "on_standard"]


@lru_cache(maxsize=4096)
def on_standard(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel for all kinds, made of NumPy's functions or those of the standard."""

    def run(*args: Any, **kwargs: Any) -> Any:
        given = [map_nested(v, _enclosed) for v in args]
        named = {key: map_nested(v, _enclosed) for key, v in kwargs.items()}
        return map_nested(kernel(*given, **named), _taken_out)

    return run


def _enclosed(value: Any) -> Any:
    return Standard(value) if speaks_standard_only(type(value)) else value


def _taken_out(value: Any) -> Any:
    return value.array if type(value) is Standard else value


class Standard(Enclosed, NDArrayOperatorsMixin):
    """An array of the standard that NumPy's functions can be called with, too."""

    __slots__ = ()
    __array_priority__: ClassVar[float] = 100.0
    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # == is elementwise

    # ---- what kernels ask an array for ----

    @property
    def T(self) -> Standard:  # noqa: N802  # NumPy's name
        """The array with its axes reversed."""
        return permuted(self)

    @property
    def imag(self) -> Standard:
        """Imaginary parts."""
        return call_one(self, "imag")

    def copy(self, order: str = "C") -> Standard:
        """A copy."""
        return Standard(self.space.asarray(self.array, copy=True))

    def conj(self) -> Standard:
        """Complex conjugates."""
        return self if self.dtype.kind != "c" else call_one(self, "conj")

    def __bool__(self) -> bool:
        return bool(self.array)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Standard:
        return Standard(self.array[full_key(self, key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.array[full_key(self, key)] = lowered(self, value)

    def _method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(np, name)(self, *args, **kwargs)

    # Any: type checkers know no partialmethod of these.
    sum: Any = partialmethod(_method, "sum")
    prod: Any = partialmethod(_method, "prod")
    mean: Any = partialmethod(_method, "mean")
    std: Any = partialmethod(_method, "std")
    max: Any = partialmethod(_method, "max")
    min: Any = partialmethod(_method, "min")
    any: Any = partialmethod(_method, "any")
    all: Any = partialmethod(_method, "all")
    squeeze: Any = partialmethod(_method, "squeeze")
    take: Any = partialmethod(_method, "take")
    ravel: Any = partialmethod(_method, "ravel")
    round: Any = partialmethod(_method, "round")
    cumsum: Any = partialmethod(_method, "cumsum")
    cumprod: Any = partialmethod(_method, "cumprod")
    argsort: Any = partialmethod(_method, "argsort")
    clip: Any = partialmethod(_method, "clip")

    def reshape(self, *shape: Any) -> Any:
        """The array with other lengths."""
        return self._method("reshape", shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Any:
        """The array with its axes in another order."""
        return permuted(self, (axes[0] if len(axes) == 1 else axes) or None)

    # ---- protocols ----

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return _Namespace(self)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        if method == "reduce" and ufunc in REDUCED:
            return reduced(REDUCED[ufunc], *inputs, **kwargs)
        if method != "__call__" or kwargs:
            raise missing_in(self, (ufunc, method))
        return elementwise(self, ufunc, inputs)

    def __array_function__(
        self, function: Any, classes: Any, args: Any, kwargs: Any
    ) -> Any:
        return call_numpy_function(self, function, args, kwargs)


class _Namespace:
    """The namespace of an array, with functions that take and return `Standard`."""

    __slots__ = ("_like",)

    def __init__(self, like: Standard) -> None:
        self._like = like

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._like.space, name)
        if not callable(found) or isinstance(found, type):
            return found
        return lambda *args, **kwargs: call(self._like, name, *args, **kwargs)
