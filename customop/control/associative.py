"""Combine the rows of arrays by an associative function, in few calls of it."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any, TypeVar

import numpy as np

from customop.arrays.kinds import check_own_rules, is_array
from customop.arrays.nested import Structure, flatten, unflatten
from customop.arrays.numpy_functions import call_numpy
from customop.arrays.stand_ins import entered
from customop.control.carry import difference, named, own_carry, path_of
from customop.errors import (
    ArgumentError,
    ShapeError,
    check_flag,
    check_function,
    place,
)
from customop.shapes.sizes import is_size

T = TypeVar("T")


def associative_scan(
    f: Callable[[T, T], T], xs: T, reverse: bool = False, axis: int = 0
) -> T:
    """Combine the rows of arrays up to each row, by an associative function.

    Row `i` of the result is ``f(...f(f(xs[0], xs[1]), xs[2])..., xs[i])``.

    Parameters
    ----------
    f : callable
        Takes two pytrees as `xs`, with several rows each, and combines row by row. It
        must be associative: ``f(f(a, b), c)`` is ``f(a, f(b, c))``.
    xs : pytree of array
        Arrays with the same number of rows, which is not a symbolic size.
    reverse : bool
        Whether to begin with the last row. Each result stays in the place of its row.
    axis : int
        The axis of the rows.

    Returns
    -------
    pytree of array
        As `xs`.

    Raises
    ------
    ArgumentError
        If `f` changes the structure, shapes or dtypes, a leaf of `xs` has no such axis,
        or the number of rows is a symbolic size.
    ShapeError
        If arrays in `xs` differ in their number of rows.
    ValueError
        If `f` writes to its arguments in place: plain arrays are read-only.

    Notes
    -----
    For `n` rows it calls `f` at most ``2 * log2(n)`` times, on less than ``2 * n`` rows
    in total. `scan` calls its function `n` times.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.associative_scan(np.multiply, np.array([1.0, 2.0, 3.0, 4.0]))
    array([ 1.,  2.,  6., 24.])

    The recurrence ``h = a * h + b``, as maps that are combined:

    >>> def after(first, second):
    ...     (a, b), (c, d) = first, second
    ...     return a * c, c * b + d
    >>> a, b = np.array([0.5, 0.5, 2.0]), np.ones(3)
    >>> co.associative_scan(after, (a, b))[1]
    array([1. , 1.5, 4. ])
    >>> co.grad(lambda a: co.associative_scan(after, (a, b))[1].sum())(a)
    array([0. , 3. , 1.5])
    """
    check_function("associative_scan", f)
    check_flag("reverse", reverse)
    leaves, structure = flatten(own_carry(xs))
    axis = index(axis)
    count = _count(leaves, structure, axis)
    if count < 2:  # new arrays, as for more rows
        leaves = [call_numpy(np.copy, leaf) for leaf in leaves]
        return unflatten(structure, leaves)  # type: ignore[no-any-return]  # as xs
    turn = slice(None, None, -1 if reverse else 1)
    rows = _Combiner(f, structure, axis)
    found = rows.prefixes(rows.cut(leaves, turn), count)
    return unflatten(structure, rows.cut(found, turn) if reverse else found)  # type: ignore[no-any-return]  # as xs


def _count(leaves: list[Any], structure: Structure, axis: int) -> int:
    """Return the number of rows; raise if it is not one known number."""
    if not leaves:
        raise ArgumentError(
            "associative_scan: xs has no arrays", do="pass at least one array"
        )
    counts: list[Any] = []
    for i, leaf in enumerate(leaves):
        path = path_of(structure, i, "xs")
        check_own_rules(leaf, f"associative_scan: {path}", ArgumentError)
        ndim = len(leaf.shape) if is_array(leaf) else 0
        if not -ndim <= axis < ndim:
            raise ArgumentError(
                f"associative_scan: {path} is {named(leaf)}, which has no axis {axis}",
                do="pass arrays with that axis",
            )
        counts.append(leaf.shape[axis])
        if is_size(counts[i]):
            raise ArgumentError(
                f"associative_scan: {path} is {named(leaf)}, and how often the function"
                " is called depends on the number of rows",
                do="use co.scan, or capture with a known number of rows",
            )
        if counts[i] != counts[0]:
            raise ShapeError(
                f"associative_scan: {path} is {named(leaf)}, with {counts[i]} rows, and"
                f" {path_of(structure, 0, 'xs')} has {counts[0]}",
                do="pass arrays with the same number of rows",
            )
    return int(counts[0])


class _Combiner:
    """Combines rows of arrays that lie along one axis."""

    __slots__ = ("_axis", "_f", "_given", "_structure")

    def __init__(self, f: Callable[..., Any], structure: Structure, axis: int) -> None:
        self._given, self._f = f, entered(f)
        self._structure, self._axis = structure, axis

    def cut(self, leaves: list[Any], rows: slice) -> list[Any]:
        """Return some rows of each array."""
        return [leaf[self._key(leaf, rows)] for leaf in leaves]

    def _key(self, leaf: Any, rows: slice) -> Any:
        return (slice(None),) * (self._axis % leaf.ndim) + (rows,)

    def prefixes(self, leaves: list[Any], count: int) -> list[Any]:
        """Combine neighbors, the results by themselves, and then fill in the others."""
        if count < 2:
            return leaves
        cut = self.cut
        pairs = self._combined(
            cut(leaves, slice(0, count - 1, 2)), cut(leaves, slice(1, count, 2))
        )
        odd = self.prefixes(pairs, count // 2)
        even = cut(leaves, slice(0, 1))
        if count > 2:
            before = cut(odd, slice(0, (count - 1) // 2))
            after = self._combined(before, cut(leaves, slice(2, count, 2)))
            even = [self._joined(pair) for pair in zip(even, after, strict=True)]
        return [self._woven(*pair) for pair in zip(even, odd, strict=True)]

    def _combined(self, first: list[Any], second: list[Any]) -> list[Any]:
        """Call the function on rows and check its result."""
        old, other = (
            unflatten(self._structure, [_read_only(leaf) for leaf in leaves])
            for leaves in (first, second)
        )
        new = self._f(old, other)
        if fault := difference(old, new, ("in its arguments", "from f")):
            raise ArgumentError(
                f"associative_scan: {fault}",
                f"f is at {place(self._given)}",
                do="return the structure, shapes and dtypes of each argument",
            )
        return flatten(new)[0]

    def _joined(self, parts: Any) -> Any:
        return call_numpy(np.concatenate, parts, self._axis)

    def _woven(self, even: Any, odd: Any) -> Any:
        """Return rows that come from two arrays by turns, from the first one first."""
        axis = self._axis % even.ndim
        count = odd.shape[axis]
        ends = even[self._key(even, slice(0, count))], odd
        pairs = call_numpy(np.stack, ends, axis + 1)
        shape = (*odd.shape[:axis], 2 * count, *odd.shape[axis + 1 :])
        woven = call_numpy(np.reshape, pairs, shape)
        if even.shape[axis] == count:
            return woven
        return self._joined((woven, even[self._key(even, slice(count, None))]))


def _read_only(rows: Any) -> Any:
    """Return rows through which the function cannot write to the array they are from."""
    if type(rows) is not np.ndarray:
        return rows.copy()
    rows.flags.writeable = False
    return rows
