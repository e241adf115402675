"""A second class of arrays, based on array_api_strict and registered by public names.

Its elements live in an ``array_api_strict`` array, which takes part in no protocol of
NumPy, refuses what the array API standard does not promise, and has its own dtypes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import array_api_strict as xp
import numpy as np
import optree

import customop as co

KIND = "strict"


class StrictArray:
    """An array of the kind ``strict``.

    Parameters
    ----------
    array : array_api_strict array
    """

    __slots__ = ("__weakref__", "array")
    __array_priority__ = 100.0
    __hash__ = None  # type: ignore[assignment]  # == is elementwise

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return tuple(self.array.shape)

    @property
    def dtype(self) -> Any:
        """A dtype of array_api_strict, not of NumPy."""
        return self.array.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape))

    @property
    def T(self) -> StrictArray:  # noqa: N802  # NumPy's name
        """The array with its axes reversed."""
        return StrictArray(xp.permute_dims(self.array, tuple(range(self.ndim))[::-1]))

    def __repr__(self) -> str:
        return f"StrictArray({to_numpy(self)!r})"

    def __bool__(self) -> bool:
        return bool(self.array)

    def __len__(self) -> int:
        return self.shape[0]

    def astype(self, dtype: Any) -> StrictArray:
        """The array with elements of another dtype."""
        return StrictArray(xp.astype(self.array, getattr(xp, name_of(dtype))))

    def copy(self) -> StrictArray:
        """A copy."""
        return StrictArray(xp.asarray(self.array, copy=True))

    def __getitem__(self, key: Any) -> Any:
        return to_strict(to_numpy(self)[optree.tree_map(to_numpy, key)])

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        if not all(isinstance(x, _KNOWN) for x in inputs):
            return NotImplemented
        return to_strict(getattr(ufunc, method)(*to_numpy(inputs), **to_numpy(kwargs)))

    def __array_function__(
        self, function: Any, classes: Any, args: Any, kwargs: Any
    ) -> Any:
        if not all(issubclass(cls, _KNOWN) for cls in classes):
            return NotImplemented
        return to_strict(function(*to_numpy(args), **to_numpy(kwargs)))


_KNOWN = (StrictArray, np.ndarray, np.generic, int, float, complex)


def name_of(dtype: Any) -> str:
    """Return the name of a dtype of either library, such as ``"float64"``."""
    if isinstance(dtype, type(xp.float64)):
        return str(dtype).rpartition(".")[2]
    return np.dtype(dtype).name


def to_numpy(tree: Any) -> Any:
    """Replace strict arrays and dtypes by those of NumPy."""
    return optree.tree_map(_numpy_leaf, tree, none_is_leaf=True)


def _numpy_leaf(value: Any) -> Any:
    if isinstance(value, StrictArray):
        return np.asarray(value.array._array)
    return np.dtype(name_of(value)) if isinstance(value, type(xp.float64)) else value


def to_strict(tree: Any) -> Any:
    """Replace NumPy's arrays by strict ones."""
    return optree.tree_map(_strict_leaf, tree, none_is_leaf=True)


def _strict_leaf(value: Any) -> Any:
    is_array = isinstance(value, np.ndarray | np.generic)
    return StrictArray(xp.asarray(np.array(value))) if is_array else value


def _operator_methods() -> None:
    """Give the class Python's operators, which call NumPy's ufuncs."""
    binary = {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "truediv": np.true_divide,
        "floordiv": np.floor_divide,
        "mod": np.remainder,
        "pow": np.power,
        "matmul": np.matmul,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }
    for name, ufunc in binary.items():
        setattr(StrictArray, f"__{name}__", lambda x, y, u=ufunc: u(x, y))
        setattr(StrictArray, f"__r{name}__", lambda x, y, u=ufunc: u(y, x))
    compare = {"lt": np.less, "le": np.less_equal, "gt": np.greater}
    compare |= {"ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal}
    for name, ufunc in compare.items():
        setattr(StrictArray, f"__{name}__", lambda x, y, u=ufunc: u(x, y))
    unary = {"neg": np.negative, "pos": np.positive, "abs": np.absolute}
    for name, ufunc in unary.items():
        setattr(StrictArray, f"__{name}__", lambda x, u=ufunc: u(x))


_operator_methods()


def register_kernels(operators: dict[str, Any]) -> None:
    """Register the class, and a kernel for it for every operator of NumPy."""
    co.register_array_type(KIND, StrictArray)
    for name, op in operators.items():
        if name.startswith("np::"):
            op.register_kernel(KIND, _by_numpy(op.__wrapped__))


def _by_numpy(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Make a kernel for strict arrays from one for NumPy's."""

    @wraps(kernel)
    def strict(*args: Any, **kwargs: Any) -> Any:
        return to_strict(kernel(*to_numpy(args), **to_numpy(kwargs)))

    return strict
