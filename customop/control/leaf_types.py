"""Types of the leaves of carries and results, and whether two of them agree."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from customop.arrays.describe import abbreviated, show
from customop.arrays.kinds import is_array
from customop.arrays.pytree import Structure, flatten, outline
from customop.errors import shown
from customop.shapes.sizes import same_shape

__all__ = [
    "LeafType",
    "agree",
    "difference",
    "fits",
    "is_number",
    "leaf_type",
    "named",
    "path_of",
]

_NUMBERS = (bool, int, float, complex)


class LeafType(NamedTuple):
    """Shape and dtype of a leaf.

    Attributes
    ----------
    shape : tuple of int
    dtype : dtype
    is_weak : bool
        Whether it is a Python number, which takes the dtype of what it meets.
    """

    shape: tuple[int, ...]
    dtype: Any
    is_weak: bool = False


def is_number(leaf: Any) -> bool:
    """Whether a leaf is a Python number."""
    return type(leaf) in _NUMBERS


def leaf_type(leaf: Any) -> LeafType | None:
    """The type of an array or a number; None for any other leaf."""
    if is_array(leaf):
        return LeafType(tuple(leaf.shape), leaf.dtype)
    if isinstance(leaf, _NUMBERS):
        return LeafType((), np.result_type(type(leaf)), is_weak=True)
    return None


# ---- leaves that must agree ----


def fits(old: LeafType, new: LeafType) -> bool:
    """Whether a dtype may follow another one in a carry."""
    if old.dtype == new.dtype:
        return True
    if old.is_weak:  # a number becomes what it is added to
        number = old.dtype.type(0).item()
        return bool(np.result_type(number, new.dtype) == new.dtype)
    if new.is_weak:
        number = new.dtype.type(0).item()
        return bool(np.result_type(number, old.dtype) == old.dtype)
    return False


def difference(first: Any, second: Any, names: tuple[str, str]) -> str:
    """How two results differ, or nothing; `names` say where they come from."""
    before, structure = flatten(first)
    after, other = flatten(second)
    one, two = names
    if structure != other:
        return f"the result is {outline(structure)} {one}, and {outline(other)} {two}"
    for i, (a, b) in enumerate(zip(before, after, strict=True)):
        if not agree(a, b):
            path = path_of(structure, i, "result")
            return f"{path} is {named(a)} {one}, and {named(b)} {two}"
    return ""


def agree(a: Any, b: Any) -> bool:
    """Whether two leaves can be one leaf of a result."""
    one, two = leaf_type(a), leaf_type(b)
    if one is None or two is None:
        return one is two and (a is b or bool(a == b))
    if not same_shape(one.shape, two.shape):
        return False
    if one.is_weak and two.is_weak:
        return True
    return fits(one, two)


# ---- words ----


def path_of(structure: Structure, index: int, root: str) -> str:
    """A leaf as an expression, such as ``carry['h'][0]``."""
    return structure.accessors()[index].codify(root)


def named(leaf: Any) -> str:
    """A leaf in a message."""
    if is_array(leaf):
        return abbreviated(leaf)
    if is_number(leaf):
        return f"the {type(leaf).__name__} {shown(leaf, 40)}"
    return show(leaf)
