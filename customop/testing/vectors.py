"""Arrays of every kind as vectors of real numbers, and back."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.describe import describe
from customop.arrays.fake import dtype_of
from customop.arrays.kinds import (
    FAKE,
    NUMPY_SCALAR,
    conversion_of,
    kind_of,
    known_kinds,
)
from customop.arrays.numpy_protocol import call_numpy
from customop.errors import ArgumentError, did_you_mean, quoted

__all__ = [
    "Space",
    "Vector",
    "as_kind",
    "devices_at_hand",
    "from_host",
    "is_complex_dtype",
    "to_host",
]

Vector = np.ndarray[Any, np.dtype[Any]]


def to_host(value: Any) -> Vector:
    """The values of an array of any kind, as a NumPy array to read."""
    kind = kind_of[type(value)]
    own = conversion_of(kind).to_numpy
    if own is not None:
        return np.asarray(own(value))
    if kind == "cuda":
        return np.asarray(value.get())
    if kind in (None, "cpu", NUMPY_SCALAR) or hasattr(value, "__array__"):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return np.asarray(np.from_dlpack(value))
    raise ArgumentError(
        f"{describe(value)} gives its values to nobody",
        do="give the class a method __array__ or __dlpack__",
    )


def as_kind(x: Any, kind: str) -> Any:
    """Make an array of another kind, of the same values.

    Parameters
    ----------
    x : array
        Of any kind with data.
    kind : str
        One of `devices_at_hand`.

    Returns
    -------
    array
        `x` itself where it is of that kind already.

    Raises
    ------
    ArgumentError
        If arrays of that kind cannot be made here.

    Examples
    --------
    >>> import numpy as np
    >>> from customop.testing import as_kind
    >>> as_kind(np.ones(2), "cpu")
    array([1., 1.])
    """
    found = kind_of[type(x)]
    if found == kind:
        return x
    if kind not in devices_at_hand():
        near = did_you_mean(kind, devices_at_hand())
        raise ArgumentError(
            f"as_kind: no array of the kind '{kind}' can be made here{near}; at hand:"
            f" {quoted(devices_at_hand())}",
            do=f'register_array_type("{kind}", cls, from_numpy=...)',
        )
    values = to_host(x)
    if kind == "cpu":
        return values
    own = conversion_of(kind).from_numpy
    return sys.modules["cupy"].asarray(values) if own is None else own(values)


def devices_at_hand() -> tuple[str, ...]:
    """Name the kinds of array that can be made here.

    Returns
    -------
    tuple of str
        ``"cpu"``; ``"cuda"`` where CuPy is installed and a device answers; and the
        kinds that were registered with ``from_numpy``.

    Examples
    --------
    >>> from customop.testing import devices_at_hand
    >>> "cpu" in devices_at_hand()
    True
    """
    kinds = [kind for kind in known_kinds() if kind not in ("cpu", FAKE)]
    return ("cpu", *(kind for kind in kinds if _can_be_made(kind)))


def _can_be_made(kind: str) -> bool:
    if conversion_of(kind).from_numpy is not None:
        return True
    return kind == "cuda" and _cuda_answers()


@cache
def _cuda_answers() -> bool:
    """Whether CuPy is installed and finds a device."""
    if importlib.util.find_spec("cupy") is None:
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy warns where it finds no CUDA
        cupy = importlib.import_module("cupy")
    try:
        return int(cupy.cuda.runtime.getDeviceCount()) > 0
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


def from_host(values: Vector, like: Any) -> Any:
    """An array of the kind, dtype and layout of `like`."""
    kind = kind_of[type(like)]
    if kind == "cuda":
        return sys.modules["cupy"].asarray(values)
    if kind in ("cpu", NUMPY_SCALAR):
        out = np.empty_like(like)
        out[...] = values
        return out
    own = None if kind is None else conversion_of(kind).from_numpy
    if own is not None:
        return own(values)
    # Other kinds are known by their operators alone: one number after the other.
    items = [call_numpy(np.full_like, like, number, shape=[]) for number in values.flat]
    if not items:
        return call_numpy(np.zeros_like, like)
    return call_numpy(np.reshape, call_numpy(np.stack, items), values.shape)


def is_complex_dtype(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is of complex numbers."""
    return dtype.kind == "c"


class Space(NamedTuple):
    """Arrays as one vector of real numbers: a complex element is two of them.

    Under this reading every differentiable function has a Jacobian, also one that is
    not holomorphic, such as abs.
    """

    labels: tuple[str, ...]
    arrays: tuple[Any, ...]

    @property
    def widths(self) -> list[int]:
        """Numbers that each element of an array is, by array."""
        return [2 if is_complex_dtype(dtype_of(x)) else 1 for x in self.arrays]

    @property
    def lengths(self) -> list[int]:
        """Numbers that each array is."""
        sizes = [prod(x.shape) for x in self.arrays]
        return [size * w for size, w in zip(sizes, self.widths, strict=True)]

    @property
    def size(self) -> int:
        """Numbers that all arrays are."""
        return sum(self.lengths)

    def blocks(self) -> list[slice]:
        """Where each array lies in the vector."""
        ends = np.cumsum(self.lengths, dtype=int)
        pairs = zip(ends, self.lengths, strict=True)
        return [slice(int(end) - length, int(end)) for end, length in pairs]

    def vector(self, arrays: Sequence[Any]) -> Vector:
        """The vector of arrays."""
        parts = [_components(to_host(x)) for x in arrays]
        return np.concatenate([np.zeros(0), *parts])

    def split(self, vector: Vector) -> list[Any]:
        """Arrays of a vector, each of the kind, shape and dtype of this space."""
        pairs = zip(self.blocks(), self.arrays, strict=True)
        return [from_host(_whole(vector[block], x), x) for block, x in pairs]

    def units(self) -> Iterator[Vector]:
        """The unit vectors."""
        for i in range(self.size):
            unit = np.zeros(self.size)
            unit[i] = 1.0
            yield unit

    def random(self, rng: np.random.Generator) -> Vector:
        """A direction with no component near zero."""
        size = self.size
        signs: Vector = rng.choice([-1.0, 1.0], size)
        return signs * rng.uniform(0.5, 1.5, size)

    def starts(self) -> list[int]:
        """Where each element begins in the vector."""
        pairs = zip(self.blocks(), self.widths, strict=True)
        return [i for b, w in pairs for i in range(b.start, b.stop, w)]

    def name(self, component: int) -> str:
        """One number of the vector, as in ``imaginary part of inputs[0][1, 2]``."""
        rows = zip(self.labels, self.arrays, self.blocks(), self.widths, strict=True)
        for label, x, block, width in rows:
            if component < block.stop:
                element, part = divmod(component - block.start, width)
                name = f"{label}{_index_text(element, x.shape)}"
                return f"{_PARTS[part]} part of {name}" if width == 2 else name
        raise AssertionError(component)


_PARTS = ("real", "imaginary")


def _index_text(element: int, shape: Any) -> str:
    """``[1, 2]`` for an element by its number; nothing for an array without axes."""
    index = np.unravel_index(element, tuple(shape)) if shape else ()
    return f"[{', '.join(str(int(i)) for i in index)}]" if index else ""


def _components(values: Vector) -> Vector:
    flat = np.ascontiguousarray(values).reshape(-1)
    if is_complex_dtype(flat.dtype):
        flat = flat.view(np.finfo(flat.dtype).dtype)
    return flat if flat.dtype == np.longdouble else flat.astype(np.float64)


def _whole(components: Vector, like: Any) -> Vector:
    """Values of the shape and dtype of an array, from their components."""
    dtype = dtype_of(like)
    if is_complex_dtype(dtype):
        pairs = components.astype(np.finfo(dtype).dtype)
        return pairs.view(dtype).reshape(like.shape)
    return components.astype(dtype).reshape(like.shape)
