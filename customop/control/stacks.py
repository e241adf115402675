"""Split arrays into rows for the steps of a scan, and stack the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import index
from typing import Any

import numpy as np

from customop.arrays.array import Array
from customop.arrays.fake import fake_like, make_fake
from customop.arrays.kinds import check_own_rules, is_array, is_fake, is_traced
from customop.arrays.nested import Structure, flatten, show, structure_text, unflatten
from customop.arrays.numpy_functions import call_numpy
from customop.control.carry import agree, as_fake, is_number, named, path_of
from customop.core.tracer import frozen
from customop.errors import ArgumentError, ShapeError, place
from customop.library.define import custom_op
from customop.shapes.symbolic import SymInt

# ---- splitting ----


@custom_op("control::unstack", mutates_args=())
def unstack(x: Array) -> list[Array]:
    """Split an array into copies of its rows.

    With indexing instead, the gradient of each row would be an array as large as `x`.
    """
    return [x[i].copy() for i in range(x.shape[0])]


unstack.register_fake(lambda x: [fake_like(x, tuple(x.shape[1:]))] * x.shape[0])
unstack.register_autograd(lambda ctx, grads: call_numpy(np.stack, grads))


@unstack.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    return unstack(primals[0]), unstack(tangents[0])


@unstack.register_vmap
def _(info: Any, in_dims: Any, x: Any) -> Any:
    dim = in_dims[0]
    parts = unstack(call_numpy(np.moveaxis, x, 0 if dim else 1, 0))
    return parts, [dim - 1 if dim else 0] * len(parts)


class Slices:
    """The `xs` of a scan.

    Parameters
    ----------
    xs : pytree of array
    length : int or None
        Number of steps; `xs` must have as many rows.
    name : str
        The name of the function, for messages.

    Attributes
    ----------
    count : int
        Number of steps.
    """

    __slots__ = ("count", "leaves", "structure")

    def __init__(self, xs: Any, length: Any, name: str) -> None:
        self.leaves: list[Any] = [xs]
        self.structure: Structure | None = None
        if type(xs) is not np.ndarray:
            self.leaves, self.structure = flatten(xs)
        self.count: Any = self._count(length, name)

    def _count(self, length: Any, name: str) -> Any:
        if length is not None:
            length = _as_length(length, name)
        elif not self.leaves:
            raise ArgumentError(
                f"{name}: xs has no arrays, so it does not say how many steps there are",
                do="pass length=n",
            )
        for i, leaf in enumerate(self.leaves):
            shape = leaf.shape if is_array(leaf) else ()
            check_own_rules(leaf, f"{name}: {self._path(i)}", ArgumentError)
            if not shape:
                raise ArgumentError(
                    f"{name}: {self._path(i)} is {named(leaf)}, which has no axis to go"
                    " along",
                    do="pass arrays with one row for each step, and take what is the same"
                    " for all steps from the closure of the function",
                )
            length = shape[0] if length is None else length
            if shape[0] != length:
                first = "length" if i == 0 else self._path(0)
                raise ShapeError(
                    f"{name}: {self._path(i)} is {named(leaf)}, with {shape[0]} rows, and"
                    f" {first} says {length}",
                    do="pass arrays with one row for each step",
                )
        return length

    def _path(self, i: int) -> str:
        return "xs" if self.structure is None else path_of(self.structure, i, "xs")

    def element(self, parts: Sequence[Any]) -> Any:
        """Return the element of one step, from the rows of the arrays."""
        return parts[0] if self.structure is None else unflatten(self.structure, parts)

    def rows(self, *, reverse: bool) -> Iterable[Any]:
        """Return the elements, one for each step."""
        if not self.leaves:
            return (self.element(()) for _ in range(self.count))
        columns = [_column(leaf, reverse) for leaf in self.leaves]
        if self.structure is None:
            return columns[0]
        return self._joined(columns)

    def _joined(self, columns: Sequence[Iterable[Any]]) -> Iterator[Any]:
        assert self.structure is not None
        for parts in zip(*columns, strict=True):
            yield unflatten(self.structure, parts)

    def first(self) -> Any:
        """Return an element whose values do not matter, even if there are no steps."""
        return self.element([first_row(leaf) for leaf in self.leaves])


def _as_length(length: Any, name: str) -> Any:
    if isinstance(length, SymInt):
        return length
    try:
        found = index(length)
    except TypeError:
        found = -1
    if found < 0:
        raise ArgumentError(
            f"{name}: length is {show(length)}, must be an int that is not negative",
            do="pass the number of steps, or leave length out",
        )
    return found


def _column(leaf: Any, reverse: bool) -> Iterable[Any]:
    """Return the rows of an array; those of a NumPy array are read-only."""
    if is_traced(leaf):
        parts: Any = unstack(leaf)
        return reversed(parts) if reverse else parts  # type: ignore[no-any-return]  # a list
    if type(leaf) is np.ndarray:
        leaf = leaf.view()
        leaf.flags.writeable = False
        return leaf[::-1] if reverse else leaf  # type: ignore[no-any-return]  # as above
    count = leaf.shape[0]
    return (leaf[i] for i in (range(count)[::-1] if reverse else range(count)))


def first_row(leaf: Any) -> Any:
    """Return a row of an array, for its shape and dtype only."""
    if is_traced(leaf) and not _is_empty(leaf):
        return leaf[0]
    fake = as_fake(leaf)
    return make_fake(fake.shape[1:], fake.dtype, fake.strides[1:], fake.device)


def _is_empty(leaf: Any) -> bool:
    """Return whether an array is known to have no rows."""
    return type(leaf.shape[0]) is int and leaf.shape[0] == 0


# ---- stacking ----


class StepResults:
    """Collects the results of the steps of a scan.

    Parameters
    ----------
    count : int
        Number of steps.
    fn : callable
        The function of the steps, for messages.
    reverse : bool
        Whether the steps run from the last row to the first.
    """

    __slots__ = ("_columns", "_count", "_fn", "_is_reversed", "_only", "_tree")

    def __init__(self, count: int, fn: Callable[..., Any], *, reverse: bool) -> None:
        self._count = count
        self._fn = fn
        self._is_reversed = reverse
        self._tree: Structure | None = None
        self._columns: list[_Column] = []
        # The only leaf, if each result is one array.
        self._only: _Column | None = None

    def start(self, y: Any) -> Callable[[Any], None]:
        """Take the result of the first step; return a function that takes the others."""
        if type(y) is np.ndarray or isinstance(y, np.generic):  # saves 2 us
            self._only = column = _Column(y, self._count, self._is_reversed)
            return column.put
        found, self._tree = flatten(y)
        self._columns = [
            _Column(leaf, self._count, self._is_reversed) for leaf in found
        ]
        if len(found) == 1 and found[0] is y:
            return self._columns[0].put
        return self._put_tree if found else self._put_nothing

    def _put_nothing(self, y: Any) -> None:
        if y is not None:
            self._put_tree(y)

    def _put_tree(self, y: Any) -> None:
        found, structure = flatten(y)
        assert self._tree is not None
        if structure != self._tree:
            raise self._changed(
                f"y is {structure_text(structure)}", structure_text(self._tree)
            )
        for column, leaf in zip(self._columns, found, strict=True):
            column.put(leaf)

    def _changed(self, what: str, before: str) -> ArgumentError:
        return ArgumentError(
            f"scan: {what} in a later step, and {before} in the first",
            f"f is at {place(self._fn)}",
            do="return a y of the same structure, shapes and dtypes in each step",
        )

    def _check(self, path: str, column: _Column) -> None:
        if column.other is not None:
            raise self._changed(f"{path} is {named(column.other)}", named(column.first))

    def stacked(self) -> Any:
        """Return all results, with the axis of the steps in front."""
        if self._only is not None:
            self._check("y", self._only)
            return self._only.stacked()
        assert self._tree is not None
        for i, column in enumerate(self._columns):
            if column.other is not None:
                self._check(path_of(self._tree, i, "y"), column)
        return unflatten(self._tree, [column.stacked() for column in self._columns])


class _Column:
    """The values of one leaf of the results, over the steps."""

    __slots__ = (
        "_array",
        "_at",
        "_cls",
        "_shape",
        "_step",
        "_values",
        "first",
        "other",
    )

    def __init__(self, first: Any, count: int, reverse: bool) -> None:
        self.first: Any = first
        # A leaf that does not agree with the first one.
        self.other: Any = None
        self._at = count - 1 if reverse else 0
        self._step = -1 if reverse else 1
        self._values: list[Any] = []
        self._shape: Any = None
        # NumPy arrays are copied into one array immediately: a list could hold the same
        # array many times, if the body writes to it in every step.
        self._array: Any = None
        self._cls: Any = None
        if isinstance(first, np.ndarray | np.generic):
            self._cls = type(first)
            self._shape = first.shape
            self._array = np.empty((count, *first.shape), first.dtype)
        self.put(first)

    def put(self, leaf: Any) -> None:
        """Add the leaf of a step."""
        array = self._array
        if (
            type(leaf) is self._cls
            and leaf.dtype is array.dtype
            and leaf.shape == self._shape
        ):
            array[self._at] = leaf
            self._at += self._step
        else:
            self._put_other(leaf)

    def _put_other(self, leaf: Any) -> None:
        if not agree(self.first, leaf):
            self.other = leaf
            return
        if isinstance(leaf, np.ndarray | np.generic) and self._array is not None:
            self._array[self._at] = leaf
            self._at += self._step
            return
        if self._array is not None:
            end = slice(None, self._at, self._step)
            self._values = list(self._array[end])
            self._array = self._cls = None
        self._values.append(frozen(leaf))

    def stacked(self) -> Any:
        """Return the leaves as one array, in the order of the rows."""
        if self._array is not None:
            return self._array
        ordered = self._values[:: self._step]
        if all(map(is_number, ordered)):
            return np.asarray(ordered)
        return call_numpy(np.stack, [_as_array(v) for v in ordered])


def _as_array(leaf: Any) -> Any:
    return np.asarray(leaf) if is_number(leaf) else leaf


def repeated(leaf: Any, count: Any) -> Any:
    """Return a result repeated for each step; its elements do not matter."""
    if is_fake(leaf):
        return fake_like(leaf, (count, *leaf.shape))
    wide = call_numpy(np.expand_dims, leaf, 0)
    return call_numpy(np.broadcast_to, wide, (count, *leaf.shape))
