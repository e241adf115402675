"""Arrays without data: shape, dtype, strides and device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np

from customop.devices import FAKE, add_array_type, kind_of, normalize_device
from customop.errors import ArgumentError, DataDependentError, ShapeError
from customop.protocols import ArrayMethods, abbreviated, describe

__all__ = ["FakeArray", "fake_like"]


class FakeArray(ArrayMethods):
    """An array with shape, dtype, strides and device, and no data.

    Parameters
    ----------
    shape : int or sequence of int
        Lengths of the axes.
    dtype : dtype
        Type of the elements.
    strides : sequence of int, bytes, optional
        Distance in memory along each axis; C order by default.
    device : str
        Device that the array is said to live on.

    Raises
    ------
    ShapeError
        If a length is negative, or strides and shape differ in length.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> x = co.FakeArray((2, 3), np.float32)
    >>> np.sum(x * 2.0, axis=1)
    FakeArray(f32[2], device='cpu')
    """

    __slots__ = ("__weakref__", "device", "dtype", "shape", "strides")

    shape: tuple[int, ...]
    dtype: Any
    strides: tuple[int, ...]
    device: str

    def __init__(
        self,
        shape: int | Sequence[int],
        dtype: Any = np.float64,
        strides: Sequence[int] | None = None,
        device: str = "cpu",
    ) -> None:
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = np.dtype(dtype)
        if any(length < 0 for length in self.shape):
            raise ShapeError(
                f"a shape has no negative lengths, got {self.shape}",
                do="give the length of each axis",
            )
        order = (
            c_strides(self.shape, self.dtype.itemsize) if strides is None else strides
        )
        self.strides = tuple(order)
        if len(self.strides) != len(self.shape):
            raise ShapeError(
                f"{len(self.strides)} strides do not fit the shape {self.shape}",
                do="give a stride for each axis",
            )
        self.device = device if device == "cpu" else normalize_device(device)

    def __repr__(self) -> str:
        return f"FakeArray({abbreviated(self)}, device={self.device!r})"

    def _no_data(self, asked: str) -> DataDependentError:
        return DataDependentError(
            f"{asked} of {describe(self)}, which has no data",
            do="compute with shapes and dtypes only, or call with real arrays",
        )

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise self._no_data("np.asarray() or a NumPy kernel")

    def __bool__(self) -> bool:
        raise self._no_data("bool()")

    def __float__(self) -> float:
        raise self._no_data("float()")

    def __int__(self) -> int:
        raise self._no_data("int()")

    def __complex__(self) -> complex:
        raise self._no_data("complex()")

    def __index__(self) -> int:
        raise self._no_data("int()")

    def item(self, *args: Any) -> NoReturn:
        """Refused: there is no data."""
        raise self._no_data("item()")

    def tolist(self) -> NoReturn:
        """Refused: there is no data."""
        raise self._no_data("tolist()")


add_array_type(FAKE, FakeArray)


def make_fake(
    shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...], device: str
) -> FakeArray:
    """A FakeArray of parts known to fit, without the checks for users."""
    fake = FakeArray.__new__(FakeArray)
    fake.shape = shape
    fake.dtype = dtype
    fake.strides = strides
    fake.device = device
    return fake


def fake_like(
    x: Any, shape: Any = None, dtype: Any = None, device: Any = None
) -> FakeArray:
    """Make a fake array like another array, fake or real.

    Parameters
    ----------
    x : array
        What shape, dtype, device and order of axes are taken from.
    shape : int or sequence of int, optional
    dtype : dtype, optional
    device : str, optional

    Returns
    -------
    FakeArray
        With the strides that ``numpy.empty_like(x, dtype, shape=shape)`` has: the
        order of the axes of `x` is kept where the number of axes is the same.

    Raises
    ------
    ArgumentError
        If `x` is no array.
    ShapeError
        If a length is negative.

    Notes
    -----
    Source: `order="K"` of ``numpy.empty_like``, NumPy 2.4.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.fake_like(np.zeros((2, 3)), dtype=np.int64)
    FakeArray(i64[2, 3], device='cpu')
    """
    if type(x) is FakeArray and dtype is None and device is None and shape is None:
        strides = like_strides(x.shape, x.strides, x.dtype.itemsize, x.shape)
        return make_fake(x.shape, x.dtype, strides, x.device)
    if kind_of[type(x)] is None:
        raise ArgumentError(
            f"fake_like: {x!r} is no array", do="pass an array: fake_like(x, shape=...)"
        )
    length = _lengths(x.shape if shape is None else shape)
    kind = dtype_of(x) if dtype is None else np.dtype(dtype)
    strides = like_strides(tuple(x.shape), strides_of(x), kind.itemsize, length)
    where = device_of(x) if device is None else normalize_device(device)
    return make_fake(length, kind, strides, where)


def _lengths(shape: Any) -> tuple[int, ...]:
    lengths = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(length < 0 for length in lengths):
        raise ShapeError(
            f"fake_like: a shape has no negative lengths, got {lengths}",
            do="give the length of each axis",
        )
    return lengths


def device_of(x: Any) -> str:
    """Name of the device of an array of any kind."""
    kind = kind_of[type(x)]
    if kind == "cuda":
        return f"cuda:{x.device.id}"
    if kind == FAKE:
        return str(x.device)
    return kind if kind in ("cpu", None) else _other_device(x, kind)


def _other_device(x: Any, kind: str) -> str:
    if isinstance(x, np.generic):
        return "cpu"
    return x.device if hasattr(x, "interpreter") else kind


def strides_of(x: Any) -> tuple[int, ...]:
    """Strides in bytes; C order for arrays that tell none."""
    strides = getattr(x, "strides", None)
    return (
        c_strides(tuple(x.shape), dtype_of(x).itemsize) if strides is None else strides
    )


def dtype_of(x: Any) -> np.dtype[Any]:
    """NumPy's dtype of an array of any kind; others are known by their names."""
    dtype = x.dtype
    if isinstance(dtype, np.dtype):
        return dtype
    return np.dtype(str(dtype).rpartition(".")[2])


@lru_cache(maxsize=4096)
def c_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides of an array in C order, as NumPy counts them for empty arrays too."""
    strides = []
    step = itemsize
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


@lru_cache(maxsize=4096)
def like_strides(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    itemsize: int,
    new_shape: tuple[int, ...],
) -> tuple[int, ...]:
    """Strides of ``np.empty_like`` for an array of `shape` and `strides`."""
    if len(shape) != len(new_shape):
        return c_strides(new_shape, itemsize)
    return packed_strides(new_shape, axis_order(shape, strides), itemsize)


def axis_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """Axes from the slowest in memory to the fastest; ties stay in C order."""
    return sorted(range(len(shape)), key=lambda axis: -abs(strides[axis]))


def packed_strides(
    shape: tuple[int, ...], order: Sequence[int], itemsize: int
) -> tuple[int, ...]:
    """Strides of a dense array whose axes stand in memory in this order."""
    strides = [0] * len(shape)
    step = itemsize
    for axis in reversed(order):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)
