"""Arrays of every kind as vectors of real numbers, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.convert import from_host, to_host
from customop.arrays.dtypes import dtype_of, is_complex

__all__ = [
    "Space",
    "Vector",
    "is_complex",
]

Vector = np.ndarray[Any, np.dtype[Any]]


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
        return [2 if is_complex(dtype_of(x)) else 1 for x in self.arrays]

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
    if is_complex(flat.dtype):
        flat = flat.view(np.finfo(flat.dtype).dtype)
    return flat if flat.dtype == np.longdouble else flat.astype(np.float64)


def _whole(components: Vector, like: Any) -> Vector:
    """Values of the shape and dtype of an array, from their components."""
    dtype = dtype_of(like)
    if is_complex(dtype):
        pairs = components.astype(np.finfo(dtype).dtype)
        return pairs.view(dtype).reshape(like.shape)
    return components.astype(dtype).reshape(like.shape)
