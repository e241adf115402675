"""The annotation for arrays of any kind."""

from __future__ import annotations

from typing import Any, Protocol

import numpy.typing as npt
from typing_extensions import TypeVar

__all__ = ["Array", "ArrayT"]


class Array(Protocol):
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
    def ndim(self) -> int:
        """Number of axes."""
        ...

    # For type checkers: NumPy's functions accept what has this method.
    def __array__(self, *args: Any, **kwargs: Any) -> npt.NDArray[Any]: ...
    def __add__(self, other: Any, /) -> Any: ...
    def __radd__(self, other: Any, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __rsub__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __rmul__(self, other: Any, /) -> Any: ...
    def __truediv__(self, other: Any, /) -> Any: ...
    def __rtruediv__(self, other: Any, /) -> Any: ...
    def __pow__(self, other: Any, /) -> Any: ...
    def __matmul__(self, other: Any, /) -> Any: ...
    def __neg__(self) -> Any: ...
    def __getitem__(self, key: Any, /) -> Any: ...


ArrayT = TypeVar("ArrayT", bound=Array)
