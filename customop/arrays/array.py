"""The annotation for arrays of any kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

__all__ = ["Array", "ArrayT"]


class _Operations(Protocol):
    """Abilities that arrays of NumPy, CuPy and this package share, for type checkers."""

    def __add__(self, other: Any, /) -> Computed: ...
    def __radd__(self, other: Any, /) -> Computed: ...
    def __sub__(self, other: Any, /) -> Computed: ...
    def __rsub__(self, other: Any, /) -> Computed: ...
    def __mul__(self, other: Any, /) -> Computed: ...
    def __rmul__(self, other: Any, /) -> Computed: ...
    def __truediv__(self, other: Any, /) -> Computed: ...
    def __rtruediv__(self, other: Any, /) -> Computed: ...
    def __floordiv__(self, other: Any, /) -> Computed: ...
    def __mod__(self, other: Any, /) -> Computed: ...
    def __pow__(self, other: Any, /) -> Computed: ...
    def __rpow__(self, other: Any, /) -> Computed: ...
    def __matmul__(self, other: Any, /) -> Computed: ...
    def __rmatmul__(self, other: Any, /) -> Computed: ...
    def __neg__(self) -> Computed: ...
    def __lt__(self, other: Any, /) -> Computed: ...
    def __le__(self, other: Any, /) -> Computed: ...
    def __gt__(self, other: Any, /) -> Computed: ...
    def __ge__(self, other: Any, /) -> Computed: ...
    def __getitem__(self, key: Any, /) -> Computed: ...
    @property
    def T(self) -> Computed: ...  # noqa: N802  # NumPy's name
    @property
    def size(self) -> Any: ...
    def sum(self, *args: Any, **kwargs: Any) -> Computed: ...
    def mean(self, *args: Any, **kwargs: Any) -> Computed: ...
    def max(self, *args: Any, **kwargs: Any) -> Computed: ...
    def min(self, *args: Any, **kwargs: Any) -> Computed: ...
    def reshape(self, *args: Any, **kwargs: Any) -> Computed: ...
    def transpose(self, *args: Any) -> Computed: ...
    def astype(self, dtype: Any, /) -> Computed: ...
    def copy(self) -> Computed: ...


# `x * 2.0` and `np.exp(x)` have to fit where a function of an ArrayT returns an ArrayT, and
# NumPy's stubs know nothing of that. (mypy 2.4, pyright 1.1.414, NumPy 2.4)
if TYPE_CHECKING:
    import numpy.typing as npt

    _Base = np.generic

    def _any_for_pyright(cls: Any) -> Any:
        """Hide a class from pyright, which takes it for what its decorator returns."""

    # mypy --strict refuses to return Any, but not a class with the base Any. The numbers
    # have it look at `__rmul__` of the class before the `__mul__` of float.
    @_any_for_pyright
    class Computed(_Operations, int, float, complex, Any, Protocol):  # type: ignore[misc]  # as checkers see it
        """The result of operations with an array of any kind."""

    HintT = TypeVar("HintT", bound="ArrayHint")
else:
    _Base = Protocol


class ArrayHint(_Base):
    """Base of `Array` and of no class of arrays, for overloads that tell them apart.

    For type checkers it is a scalar of NumPy: the first overload of each ufunc takes that,
    and returns Any.
    """


class Array(_Operations, ArrayHint, Protocol):  # type: ignore[misc]  # as checkers see it
    """Annotate an array of any kind in an operator.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_op("doc::twice", mutates_args=())
    ... def twice(x: co.Array) -> co.Array:
    ...     return x + x
    >>> twice(np.array([1.0, 2.0]))
    array([2., 4.])
    """

    @property
    def shape(self) -> Any:
        """Lengths of the axes."""

    @property
    def dtype(self) -> Any:
        """Type of the elements."""

    @property
    def ndim(self) -> int:  # type: ignore[override]  # a scalar of NumPy has none
        """Number of axes."""
        ...

    # For type checkers: NumPy's functions accept what has this method.
    def __array__(self, *args: Any, **kwargs: Any) -> npt.NDArray[Any]: ...  # type: ignore[override]  # of any copy


ArrayT = TypeVar("ArrayT", bound=Array)
