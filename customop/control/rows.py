"""Values of batches, and rows that are safe to compute with where others are not."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from customop.arrays.describe import abbreviated, show
from customop.arrays.kinds import is_array, is_fake, is_traced
from customop.arrays.numpy_functions import call_numpy
from customop.core.interpreter import Interpreter
from customop.errors import ArgumentError, ShapeError
from customop.transforms.batch import BatchTracer
from customop.transforms.trace.tracer import GraphTracer

__all__ = [
    "Mask",
    "as_predicate",
    "has_no_elements",
    "plain_value",
    "selected",
    "truth",
]


def has_no_elements(value: Any) -> bool:
    """Whether a value is a fake array, also below tracers, and not one of a graph.

    A graph that is made of fake arrays runs on others.
    """
    while is_traced(value):
        if isinstance(value, GraphTracer):
            return False
        value = value.below
    return is_fake(value)


class _AllRows(NamedTuple):
    """The rows of a value of nested batches.

    Attributes
    ----------
    array : array
        With one axis for each batch in front.
    batches : list of Interpreter
        Those batches, from the outermost one.
    """

    array: Any
    batches: list[Interpreter]


def _rows_of(value: Any) -> _AllRows | None:
    """The rows of a value; None where its elements are not known."""
    if not is_traced(value):
        return None if is_fake(value) else _AllRows(value, [])
    is_batch = isinstance(value, BatchTracer)
    if not is_batch and not value.is_concrete:
        return None
    found = _rows_of(value.below)
    if found is None or not is_batch:
        return found
    count = len(found.batches)
    array = np.moveaxis(found.array, count + value.dim, count)
    return _AllRows(array, [*found.batches, value.interpreter])


def plain_value(value: Any) -> Any:
    """The array below a traced value that is the same in all rows; None if not known."""
    rows = _rows_of(value)
    return None if rows is None or rows.batches else rows.array


class Mask:
    """A condition that may differ between the rows of a batch.

    Attributes
    ----------
    value : array
        The condition of one row, traced.
    all, any : bool
        Whether it holds in all rows, and in some row.
    """

    __slots__ = ("_rows", "_where", "all", "any", "value")

    def __init__(self, value: Any, rows: _AllRows) -> None:
        self.value: Any = value
        self._rows = rows
        self.any: bool = bool(rows.array.any())
        self.all: bool = bool(rows.array.all())
        # One row where it holds: its index in each batch.
        self._where: dict[int, Any] = {}
        if self.any:
            place = np.argwhere(rows.array)[0]
            self._where = dict(zip(map(id, rows.batches), place, strict=True))

    def opposite(self) -> Mask:
        """The rows in which the condition does not hold."""
        rows = self._rows._replace(array=~self._rows.array)
        return Mask(call_numpy(np.logical_not, self.value), rows)

    def safe(self, leaf: Any) -> Any:
        """A value with the rows outside of the mask replaced by one of a row inside.

        A function may divide by zero or fail in a row whose result is thrown away, and
        its gradient there is nan.
        """
        rows = _rows_of(leaf) if is_traced(leaf) and self.any else None
        if rows is None or 0 in rows.array.shape[: len(rows.batches)]:
            return leaf
        if not any(id(batch) in self._where for batch in rows.batches):
            return leaf
        place = [self._where.get(id(batch), 0) for batch in rows.batches]
        return call_numpy(np.where, self.value, leaf, rows.array[tuple(place)])


def truth(value: Any, what: str) -> bool | Mask | None:
    """Whether a condition holds, for each row in a batch; None where it is not known.

    Raises
    ------
    ArgumentError
        If it is not a number or an array of numbers.
    ShapeError
        If it has axes.
    """
    if type(value) is bool or type(value) is np.bool_:
        return bool(value)
    _check_condition(value, what)
    if isinstance(value, int | float):
        return bool(value)
    rows = _rows_of(value)
    if rows is None:
        return None
    if not rows.batches:
        return bool(rows.array)
    if rows.array.dtype == np.bool_:
        return Mask(value, rows)
    is_true = call_numpy(np.not_equal, value, 0)
    return Mask(is_true, rows._replace(array=rows.array != 0))


def as_predicate(value: Any) -> Any:
    """A condition on symbolic sizes as an array of the graph, if it is not certain."""
    condition = value if value.number_class in (bool, np.bool_) else value != 0
    if isinstance(condition, bool):
        return condition
    return call_numpy(np.full, (), condition, np.bool_)


def _check_condition(value: Any, what: str) -> None:
    if not is_array(value):
        if isinstance(value, int | float):
            return
        seen = show(value)
    elif getattr(value.dtype, "kind", "") in "biuf":
        seen = ""
    else:
        seen = abbreviated(value)
    if seen:
        raise ArgumentError(
            f"{what} is {seen}, must be a bool",
            do="compare, as in x > 0, or use np.any(x) or np.all(x)",
        )
    if len(value.shape):
        raise ShapeError(
            f"{what} is {abbreviated(value)}, must have no axes",
            do="use np.any(x) or np.all(x); for each element, np.where, or vmap",
        )


def selected(condition: Any, yes: Any, no: Any) -> Any:
    """A leaf of one result where the condition holds, and of the other elsewhere."""
    if yes is no or not (is_array(yes) or isinstance(yes, int | float | complex)):
        return yes
    return call_numpy(np.where, condition, yes, no)
