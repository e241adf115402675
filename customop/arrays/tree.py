"""Trees: nested lists, tuples, dicts and dataclasses of arrays, as transforms see them.

This is `customop.tree`. A None is a part of the structure, not a leaf. A class of a user
becomes a tree by `register_dataclass`, or by
``optree.register_pytree_node(cls, flatten, unflatten, namespace="customop")``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from customop.arrays import nested
from customop.arrays.array import Array, is_inexact, is_real_float
from customop.arrays.kinds import check_own_rules, is_array
from customop.arrays.nested import Structure, abbreviated, show
from customop.arrays.numpy_functions import INDEXING, call_numpy
from customop.errors import ArgumentError, ShapeError

__all__ = [
    "flatten",
    "leaves",
    "map",
    "ravel",
    "reduce",
    "structure",
    "unflatten",
]

T = TypeVar("T")


def map(fn: Callable[..., Any], tree: Any, *rest: Any) -> Any:  # noqa: A001  # JAX's name
    """Apply a function to each leaf.

    Parameters
    ----------
    fn : callable
        Takes a leaf of `tree` and those of `rest` in its place.
    tree : pytree
    *rest : pytree
        Of the structure of `tree`; where `tree` has a leaf they may have more.

    Returns
    -------
    pytree
        Of the structure of `tree`.

    Raises
    ------
    ValueError
        If `rest` does not have the structure of `tree`.

    Examples
    --------
    >>> import customop as co
    >>> co.tree.map(lambda x, y: x + y, {"a": 1, "b": [2]}, {"a": 10, "b": [20]})
    {'a': 11, 'b': [22]}
    """
    return nested.map_leaves(fn, tree, *rest)


def leaves(tree: Any) -> list[Any]:
    """Return the leaves of a tree, in order.

    Parameters
    ----------
    tree : pytree

    Returns
    -------
    list

    Examples
    --------
    >>> import customop as co
    >>> co.tree.leaves({"b": [1, None, 2], "a": 3})
    [3, 1, 2]
    """
    return nested.leaves(tree)


def structure(tree: Any) -> Structure:
    """Return the structure of a tree, which compares equal and serves `unflatten`.

    Parameters
    ----------
    tree : pytree

    Returns
    -------
    Structure

    Examples
    --------
    >>> import customop as co
    >>> co.tree.structure([1, (2, 3)]) == co.tree.structure([0, (0, 0)])
    True
    """
    return nested.flatten(tree)[1]


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """Return the leaves of a tree in order, and its structure.

    Parameters
    ----------
    tree : pytree

    Returns
    -------
    leaves : list
    structure : Structure

    Examples
    --------
    >>> import customop as co
    >>> found, structure = co.tree.flatten({"a": 1, "b": (2, 3)})
    >>> co.tree.unflatten(structure, [10 * leaf for leaf in found])
    {'a': 10, 'b': (20, 30)}
    """
    return nested.flatten(tree)


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """Build a tree from its structure and leaves.

    Parameters
    ----------
    structure : Structure
        From `flatten` or `structure`.
    leaves : iterable
        As many as the structure has.

    Returns
    -------
    pytree

    Raises
    ------
    ValueError
        If there are more or fewer leaves than the structure has.

    Examples
    --------
    >>> import customop as co
    >>> co.tree.unflatten(co.tree.structure([0, (0, 0)]), "abc")
    ['a', ('b', 'c')]
    """
    return nested.unflatten(structure, list(leaves))


def reduce(fn: Callable[[T, Any], T], tree: Any, initial: T) -> T:
    """Combine all leaves, from the first to the last.

    Parameters
    ----------
    fn : callable
        Takes the value so far and a leaf; returns the next value.
    tree : pytree
    initial : object
        The first value.

    Returns
    -------
    object

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.tree.reduce(lambda total, x: total + np.sum(x), {"a": np.ones(2), "b": 3}, 0)
    np.float64(5.0)
    """
    return functools.reduce(fn, nested.leaves(tree), initial)


# ---- one vector for all leaves ----


def ravel(tree: Any) -> tuple[Array, Callable[[Array], Any]]:
    """Join all arrays of a tree in one vector, for optimizers and linear algebra.

    Parameters
    ----------
    tree : pytree of array
        Numbers count as arrays without axes.

    Returns
    -------
    vector : array, shape (n,)
        The elements of all leaves; its dtype is the one they promote to.
    unravel : callable
        Takes a vector of shape (n,), also a traced one; returns the tree, each leaf with
        its own shape and dtype.

    Raises
    ------
    ArgumentError
        If a leaf is not an array or number; from `unravel`, if complex numbers would go
        into an array of real ones.
    ShapeError
        From `unravel`, if the vector has another shape.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> vector, unravel = co.tree.ravel({"w": np.ones((1, 2)), "b": 3.0})
    >>> vector
    array([3., 1., 1.])
    >>> unravel(2 * vector)
    {'w': array([[2., 2.]]), 'b': array(6.)}
    """
    found, structure = nested.flatten(tree)
    arrays = [_as_array(leaf) for leaf in found]
    models = [(tuple(a.shape), a.dtype) for a in arrays]
    count = sum(math.prod(shape) for shape, _ in models)

    def unravel(vector: Array) -> Any:
        """Return the tree of a vector."""
        _check_vector(vector, count)
        return nested.unflatten(structure, _parts(vector, models))

    if not arrays:
        return np.zeros(0), unravel
    lines = [call_numpy(np.ravel, a) for a in arrays]
    return call_numpy(np.concatenate, lines), unravel


def _as_array(leaf: Any) -> Any:
    if is_array(leaf):
        check_own_rules(leaf, "tree.ravel: a leaf", ArgumentError)
        return leaf
    if not isinstance(leaf, int | float | complex):
        raise ArgumentError(
            f"tree.ravel: a leaf is {show(leaf)}, must be an array or a number",
            do="take it out of the tree, or mark the field static in register_dataclass",
        )
    return np.asarray(leaf)


def _check_vector(vector: Any, count: int) -> None:
    if not is_array(vector) or tuple(vector.shape) != (count,):
        seen = abbreviated(vector) if is_array(vector) else show(vector)
        raise ShapeError(
            f"unravel: {seen} is not a vector of {count} elements",
            do=f"pass an array of shape ({count},)",
        )


def _parts(vector: Any, models: Sequence[tuple[tuple[int, ...], Any]]) -> list[Any]:
    """Return arrays of these shapes and dtypes, one after the other in a vector."""
    parts, start = [], 0
    for shape, dtype in models:
        size = math.prod(shape)
        part = call_numpy(INDEXING, vector, slice(start, start + size))
        part = call_numpy(np.reshape, part, shape)
        parts.append(part if part.dtype == dtype else _cast(part, dtype))
        start += size
    return parts


def _cast(part: Any, dtype: Any) -> Any:
    is_complex = is_inexact(part.dtype) and not is_real_float(part.dtype)
    if is_complex and (is_real_float(dtype) or not is_inexact(dtype)):
        raise ArgumentError(
            f"unravel: {part.dtype} does not fit an array of {dtype}",
            do="pass the real part, or ravel a tree of complex arrays",
        )
    return call_numpy(np.astype, part, dtype)
