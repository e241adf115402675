"""Arrays of every kind as vectors of real numbers, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from customop.arrays.convert import from_host, to_host
from customop.arrays.dtypes import dtype_of, is_complex

__all__ = ["Space", "Vector", "is_plain", "random_vector"]

Vector = np.ndarray[Any, np.dtype[Any]]


class Space:
    """Arrays as one vector of real numbers, in which complex elements take two places.

    In these numbers every differentiable function has a Jacobian, also one that is not
    holomorphic, such as abs.

    Attributes
    ----------
    labels : tuple of str
        How messages name the arrays.
    arrays : tuple of array
    widths : list of int
        Numbers in each element, by array.
    blocks : list of slice
        Where each array lies in the vector.
    size : int
        Length of the vector.
    is_plain : bool
        Whether all arrays are those of NumPy, of double precision and in C order.
    """

    __slots__ = ("arrays", "blocks", "is_plain", "labels", "size", "widths")

    def __init__(self, labels: Iterable[str], arrays: Iterable[Any]) -> None:
        self.labels: tuple[str, ...] = tuple(labels)
        self.arrays: tuple[Any, ...] = tuple(arrays)
        # These take a third of the time.
        self.is_plain: bool = all(map(is_plain, self.arrays))
        if self.is_plain:
            self.widths: list[int] = [1] * len(self.arrays)
            lengths = [x.size for x in self.arrays]
        else:
            self.widths = [2 if is_complex(dtype_of(x)) else 1 for x in self.arrays]
            pairs = zip(self.arrays, self.widths, strict=True)
            lengths = [prod(x.shape) * width for x, width in pairs]
        ends = list(accumulate(lengths))
        self.blocks: list[slice] = [
            slice(end - n, end) for end, n in zip(ends, lengths, strict=True)
        ]
        self.size: int = sum(lengths)

    def vector(self, arrays: Sequence[Any]) -> Vector:
        """The vector of arrays."""
        if len(arrays) == 1 and is_plain(arrays[0]):
            return arrays[0].flatten()  # type: ignore[no-any-return]  # a vector
        if arrays and all(map(is_plain, arrays)):
            return np.concatenate([x.reshape(-1) for x in arrays])
        parts = [_components(to_host(x)) for x in arrays]
        if len(parts) == 1 and parts[0].dtype == np.float64:
            return parts[0].copy()
        return np.concatenate([np.zeros(0), *parts])

    def split(self, vector: Vector) -> list[Any]:
        """Arrays of a vector, each of the kind, shape and dtype of this space."""
        if self.is_plain and vector.dtype is _DOUBLE:
            if len(self.arrays) == 1:
                return [_filled(self.arrays[0].shape, vector)]
            return [
                _filled(x.shape, vector[block])
                for block, x in zip(self.blocks, self.arrays, strict=True)
            ]
        pairs = zip(self.blocks, self.arrays, strict=True)
        return [from_host(_elements(vector[block], x), x) for block, x in pairs]

    def blockwise(self, vector: Vector) -> list[Vector]:
        """For each array, the vector with zeros outside of its block."""
        found = []
        for block in self.blocks:
            part = np.zeros_like(vector)
            part[block] = vector[block]
            found.append(part)
        return found

    def unit(self, i: int) -> Vector:
        """The unit vector of a component."""
        unit = np.zeros(self.size)
        unit[i] = 1.0
        return unit

    def units(self) -> Iterator[Vector]:
        """The unit vectors."""
        return map(self.unit, range(self.size))

    def random(self, rng: np.random.Generator) -> Vector:
        """A direction with no component near zero."""
        return random_vector(self.size, rng)

    def starts(self) -> list[int]:
        """Where each element begins in the vector."""
        pairs = zip(self.blocks, self.widths, strict=True)
        return [i for b, w in pairs for i in range(b.start, b.stop, w)]

    def holder(self, component: int) -> int:
        """The number of the array that a component belongs to."""
        return next(i for i, block in enumerate(self.blocks) if component < block.stop)

    def name(self, component: int) -> str:
        """Name a component, as in ``imaginary part of inputs[0][1, 2]``."""
        i = self.holder(component)
        width = self.widths[i]
        element, part = divmod(component - self.blocks[i].start, width)
        name = f"{self.labels[i]}{_index_text(element, self.arrays[i].shape)}"
        return f"{_PARTS[part]} part of {name}" if width == 2 else name


def random_vector(size: int, rng: np.random.Generator) -> Vector:
    """A vector with no component near zero."""
    signs: Vector = rng.choice([-1.0, 1.0], size)
    return signs * rng.uniform(0.5, 1.5, size)


_PARTS = ("real", "imaginary")


def _index_text(element: int, shape: Any) -> str:
    """``[1, 2]`` for an element by its number; nothing for an array without axes."""
    index = np.unravel_index(element, tuple(shape)) if shape else ()
    return f"[{', '.join(str(int(i)) for i in index)}]" if index else ""


_DOUBLE = np.dtype(np.float64)


def is_plain(x: Any) -> bool:
    """Whether an array is one of NumPy, of double precision and in C order."""
    return type(x) is np.ndarray and x.dtype is _DOUBLE and x.flags.c_contiguous


def _filled(shape: tuple[int, ...], components: Vector) -> Vector:
    if len(shape) == 1:
        return components.copy()
    out = np.empty(shape)
    out.reshape(-1)[:] = components
    return out


def _components(values: Vector) -> Vector:
    flat = np.ascontiguousarray(values).reshape(-1)
    if is_complex(flat.dtype):
        flat = flat.view(np.finfo(flat.dtype).dtype)
    return flat if flat.dtype == np.longdouble else flat.astype(np.float64, copy=False)


def _elements(components: Vector, like: Any) -> Vector:
    """Values of the shape and dtype of an array, from their components."""
    dtype = dtype_of(like)
    if dtype == components.dtype:
        return components.reshape(like.shape)
    if is_complex(dtype):
        pairs = components.astype(np.finfo(dtype).dtype)
        return pairs.view(dtype).reshape(like.shape)
    return components.astype(dtype).reshape(like.shape)
