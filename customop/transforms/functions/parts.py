"""Arguments and results of a function as lists of arrays, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from customop.arrays.dtypes import is_inexact
from customop.arrays.kinds import is_array, is_traced
from customop.arrays.pytree import Structure, flatten, unflatten
from customop.core.boxes import Pinned, frozen
from customop.core.contract.memory import readonly

__all__ = ["Parts", "moves", "own", "sealed_inputs"]


class Parts:
    """A tree without its arrays.

    Attributes
    ----------
    structure : Structure
    leaves : list
        All leaves, with None in the places of arrays.
    at : list of int
        Those places.
    """

    __slots__ = ("at", "leaves", "structure")

    def __init__(self, tree: Any) -> None:
        self.leaves: list[Any]
        self.structure: Structure
        self.leaves, self.structure = flatten(tree)
        self.at: list[int] = [i for i, v in enumerate(self.leaves) if is_array(v)]

    @property
    def identity(self) -> tuple[Any, ...]:
        """A key, equal for trees that differ in their arrays alone."""
        at = set(self.at)
        others = [v for i, v in enumerate(self.leaves) if i not in at]
        return (self.structure, *((type(v), repr(v)) for v in others))

    @classmethod
    def of(cls, tree: Any) -> tuple[Parts, list[Any]]:
        """The parts of a tree, and its arrays."""
        parts = cls(tree)
        arrays = [parts.leaves[i] for i in parts.at]
        for i in parts.at:
            parts.leaves[i] = None
        return parts, arrays

    def tree(self, arrays: Sequence[Any]) -> Any:
        """The tree with these arrays."""
        return unflatten(self.structure, self._placed(self.leaves, arrays))

    def beside(self, values: Sequence[Any]) -> Any:
        """A tree of derivatives: 0.0 beside numbers and integers, None beside the rest."""
        numbers = [_zero(leaf) for leaf in self.leaves]
        given = [0.0 if value is None else value for value in values]
        return unflatten(self.structure, self._placed(numbers, given))

    def _placed(self, leaves: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
        found = list(leaves)
        for i, array in zip(self.at, arrays, strict=True):
            found[i] = array
        return found


def _zero(leaf: Any) -> Any:
    return 0.0 if isinstance(leaf, int | float | complex) else None


def moves(value: Any) -> bool:
    """Whether an array has derivatives."""
    return bool(is_inexact(value.dtype))


def sealed_inputs(inputs: Sequence[Any]) -> list[Any]:
    """Inputs as a function may see them: it cannot write them."""
    return [readonly(value) for value in inputs]


def own(outputs: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Results as arrays of their own: a copy of each that is an input, or a part of one."""
    seen = [*inputs]
    found = []
    for value in outputs:
        new = value.copy("K") if _is_shared(value, seen) else value  # keeps scalars
        found.append(frozen(new))
        seen.append(value)
    return found


def _is_shared(value: Any, seen: Sequence[Any]) -> bool:
    if is_traced(value):
        place = value.box_place
        is_sealed = type(place) is Pinned and place.is_sealed
        return is_sealed or type(place) is tuple or any(value is v for v in seen)
    if type(value) is not np.ndarray:
        return False
    arrays = [v for v in seen if type(v) is np.ndarray]
    return not value.flags.writeable or any(
        np.may_share_memory(value, v) for v in arrays
    )
