"""Arrays made of nested lists of arrays, numbers and traced values."""

from __future__ import annotations

from typing import Any

import numpy as np

from customop.arrays.array import Array
from customop.arrays.kinds import is_array, is_traced
from customop.arrays.numpy_functions import call_numpy
from customop.errors import ShapeError

__all__ = ["array"]


def array(object: Any, dtype: Any = None, *, ndmin: int = 0) -> Array:  # noqa: A002  # NumPy's
    """Make an array of nested lists, which may hold traced values.

    It is `numpy.array`, which cannot take traced values itself: NumPy would ask them for
    their numbers.

    Parameters
    ----------
    object : array, number, or nested list or tuple of them
        Arrays in a list have the same shape, and each becomes a row.
    dtype : dtype, optional
        By default the one that NumPy promotes all values to.
    ndmin : int
        Number of axes that the result has at least; new ones come first.

    Returns
    -------
    array
        An array of its own: a copy where `object` is an array. Traced if any value is.

    Raises
    ------
    ShapeError
        If the values in a list differ in shape.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> def rotate(angle, point):
    ...     c, s = np.cos(angle), np.sin(angle)
    ...     return co.array([[c, -s], [s, c]]) @ point
    >>> co.jacfwd(rotate)(np.array(0.0), np.array([1.0, 2.0]))
    array([-2.,  1.])
    """
    if not _needs_operators(object):
        return np.array(object, dtype=dtype, ndmin=ndmin)
    found = _joined(object)
    found = call_numpy(np.copy, found) if found is object else found
    if dtype is not None and found.dtype != np.dtype(dtype):
        found = call_numpy(np.astype, found, dtype)
    missing = ndmin - len(found.shape)
    if missing > 0:
        found = call_numpy(np.reshape, found, (*(1,) * missing, *found.shape))
        found = call_numpy(np.copy, found)  # not a view, so that it can be written
    if is_traced(found) and not found.shape:
        found.box_pin()
    return found  # type: ignore[no-any-return]  # an array of some kind


def _needs_operators(value: Any) -> bool:
    """Whether an array that is not NumPy's is among nested values."""
    if isinstance(value, list | tuple):
        return any(_needs_operators(item) for item in value)
    return is_array(value) and not isinstance(value, np.ndarray | np.generic)


def _joined(value: Any) -> Any:
    if is_array(value):
        return value
    if not _needs_operators(value):
        return np.asarray(value)
    rows = [_joined(item) for item in value]
    shapes = list(dict.fromkeys(tuple(row.shape) for row in rows))
    if len(shapes) > 1:
        raise ShapeError(
            f"array: a list has values of the shapes {shapes[0]} and {shapes[1]}",
            do="give all values in a list the same shape",
        )
    return call_numpy(np.stack, rows)
