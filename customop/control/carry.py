"""Values of loops: types of leaves, rows of a batch, unknown arrays, and carries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.array import packed_strides
from customop.arrays.fake import make_fake
from customop.arrays.kinds import device_of, has_memory, is_array, is_fake, is_traced
from customop.arrays.nested import (
    Structure,
    abbreviated,
    flatten,
    leaves,
    map_leaves,
    map_nested,
    outline_pytree,
    show,
    unflatten,
)
from customop.arrays.numpy_functions import call_numpy
from customop.core.interpreter import Interpreter, Mode, current_mode
from customop.core.observe import open_modes
from customop.core.table import RuleTable
from customop.core.tracer import frozen
from customop.errors import ArgumentError, CustomOpError, ShapeError, place, shown
from customop.shapes.sizes import same_shape
from customop.transforms.generators import restored, sources, states_of
from customop.transforms.modes import FakeMode
from customop.transforms.trace.graph_tracer import GraphTracer
from customop.transforms.trace.recorder import Trace
from customop.transforms.vmap_interpreter import BatchTracer

# ---- types of the leaves of carries and results, and whether two of them agree ----


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
        return f"the result is {outline_pytree(structure)} {one}, and {outline_pytree(other)} {two}"
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


# ---- rows ----
# Values of batches, and rows that are safe to compute with where others are not.


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


# ---- arrays whose elements are not known: loops run their bodies once on them ----


def is_virtual(tree: Any) -> bool:
    """Whether arrays without elements are computed with."""
    if not open_modes and _is_plain(tree):
        return False
    mode = current_mode.get()
    while mode is not None and not isinstance(mode, Trace):
        if is_faked(mode):
            return True
        mode = mode.outer
    return any(map(has_no_elements, leaves(tree)))


_PLAIN = frozenset((np.ndarray, np.float64, float, int, type(None)))


def _is_plain(tree: Any) -> bool:
    """Whether a pytree has only plain arrays and numbers: a quick answer for most."""
    cls = type(tree)
    if cls is tuple:
        for item in tree:  # noqa: SIM110  # half the time
            if not _is_plain(item):
                return False
        return True
    return cls in _PLAIN


def is_faked(mode: Mode) -> bool:
    """Whether a mode is one of fake arrays."""
    return mode.alive and mode.kind is FakeMode.kind


class _Shapes(FakeMode):
    """Fake mode that also takes traced values by their shapes alone."""

    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run the fake kernel."""
        return super().process(op, [map_nested(value, as_fake) for value in args])


def as_fake(leaf: Any) -> Any:
    """The fake array of any array; other values as they are."""
    if not is_array(leaf) or is_fake(leaf):
        return leaf
    shape, dtype = tuple(leaf.shape), leaf.dtype
    strides = packed_strides(shape, range(len(shape)), dtype.itemsize)
    return make_fake(shape, dtype, strides, device_of(leaf))


def as_unknown(leaf: Any) -> Any:
    """A leaf whose elements are not known: numbers and plain arrays become fake."""
    if is_traced(leaf):
        return leaf
    return as_fake(np.asarray(leaf) if is_number(leaf) else leaf)


def shapes_of(fn: Callable[..., Any], *args: Any) -> Any:
    """The result of a function as fake arrays; it draws no random numbers."""
    states = states_of(sources(fn, args))
    with _Shapes(), restored(states):
        found = fn(*map_leaves(as_fake, args))
    return map_leaves(as_fake, found)


# ---- the carry of a loop: it keeps its structure, shapes and dtypes ----


def own_carry(init: Any) -> Any:
    """A carry that a body may write in place, without changing the caller's arrays."""
    carry = plain_copy(init)
    if carry is not NOT_PLAIN:
        return carry
    found, structure = flatten(init)
    return unflatten(structure, [_own(leaf) for leaf in found])


_CARRY_NUMBERS = frozenset(
    (float, int, bool, np.float64, np.int64, np.bool_, type(None))
)


class _NotPlain:
    """Marks a carry that `plain_copy` does not copy."""


NOT_PLAIN = _NotPlain()


def plain_copy(init: Any) -> Any:
    """As `own_carry`, for arrays of NumPy and numbers, and tuples of them."""
    cls = type(init)
    if cls is np.ndarray:
        return init.copy("K")
    if cls in _CARRY_NUMBERS:
        return init
    if cls is not tuple:
        return NOT_PLAIN
    found = []
    for item in init:
        cls = type(item)
        if cls is np.ndarray:
            item = item.copy("K")  # noqa: PLW2901  # a third of the time
        elif cls not in _CARRY_NUMBERS:
            item = plain_copy(item)  # noqa: PLW2901  # the same item
            if item is NOT_PLAIN:
                return NOT_PLAIN
        found.append(item)
    return tuple(found)


def _own(leaf: Any) -> Any:
    if type(leaf) is np.ndarray:
        return leaf.copy(order="K")
    return leaf.copy() if has_memory(leaf) else frozen(leaf)


class Kept:
    """Checks that the steps of a loop keep the carry.

    Checking each step would take as long as a small body. So the first step is checked,
    and the carry at the end of the loop, whether it ends by an error or not.

    Parameters
    ----------
    name : str
        The function that loops, for messages.
    body : callable
        The steps.
    first : pytree, optional
        The carry after the first step, if that was checked.

    Attributes
    ----------
    started : bool
        Whether there was a first step.
    """

    __slots__ = ("_first", "_name", "body", "started")

    def __init__(
        self, name: str, body: Callable[..., Any], first: Any = NOT_PLAIN
    ) -> None:
        self._name = name
        self._first: Any = first
        self.body: Callable[..., Any] = body
        self.started: bool = first is not NOT_PLAIN

    def first(self, old: Any, new: Any) -> Any:
        """The carry after a step that is checked; raise if the step does not keep it."""
        new = checked_carry(self._name, self.body, old, new)
        if not self.started:
            self._first, self.started = new, True
        return new

    def result(self, carry: Any) -> Any:
        """The carry after the last step; raise if the steps did not keep it."""
        if not self.started or carry is self._first:
            return carry
        return checked_carry(self._name, self.body, self._first, carry)

    def explain(self, error: Exception, carry: Any) -> None:
        """Raise if a step failed on a carry that was not kept."""
        is_own = not self.started or isinstance(error, CustomOpError)
        fault = "" if is_own else _compared(self._first, carry)[1]
        if fault:
            raise _changed_carry(self._name, self.body, fault) from error


def checked_carry(name: str, body: Callable[..., Any], old: Any, new: Any) -> Any:
    """The new carry, with numbers as arrays where the old one has arrays.

    Raises
    ------
    ArgumentError
        If it has another structure, shape or dtype than the old one.
    """
    found, fault = _compared(old, new)
    if fault:
        raise _changed_carry(name, body, fault)
    return found


def pair_of(f: Callable[..., Any], out: Any) -> tuple[Any, Any]:
    """The carry and the result that a step of a scan returned; raise for anything else."""
    if type(out) is tuple and len(out) == 2:
        return out
    raise ArgumentError(
        f"scan: f returned {show(out)}, must be a pair",
        f"f is at {place(f)}",
        do="return (carry, y), with y None where a step has no result",
    )


def _changed_carry(name: str, body: Callable[..., Any], fault: str) -> ArgumentError:
    return ArgumentError(
        f"{name}: {fault}",
        f"the body is at {place(body)}",
        do="return a carry of the structure, shapes and dtypes of the one that came in",
    )


def _compared(old: Any, new: Any) -> tuple[Any, str]:
    """The new carry, and what differs, or an empty text."""
    if is_same(old, new):
        return new, ""
    before, structure = flatten(old)
    after, other = flatten(new)
    if structure != other:
        text = f"{outline_pytree(structure)}, and comes out as {outline_pytree(other)}"
        return new, f"the carry goes in as {text}"
    found = []
    for i, (a, b) in enumerate(zip(before, after, strict=True)):
        if not _keeps(a, b):
            text = f"goes in as {named(a)}, and comes out as {named(b)}"
            return new, f"{path_of(structure, i, 'carry')} {text}"
        found.append(np.asarray(b, a.dtype)[()] if is_array(a) and is_number(b) else b)
    return unflatten(other, found), ""


def is_same(old: Any, new: Any) -> bool:
    """Whether a carry is kept for certain: a quick answer for most carries."""
    cls = type(new)
    if new is old or cls is not type(old):
        return new is old
    if cls is np.ndarray:
        return new.dtype is old.dtype and new.shape == old.shape
    if cls is tuple or cls is list:
        if len(old) != len(new):
            return False
        for a, b in zip(old, new, strict=True):  # a third of the time of all(map())
            if a is not b and not is_same(a, b):
                return False
        return True
    return cls in (int, float, np.float64, np.int64)


def _keeps(old: Any, new: Any) -> bool:
    """Whether a leaf may follow another one in its place."""
    if old is new:
        return True
    a, b = leaf_type(old), leaf_type(new)
    if a is None or b is None:
        return a is b and bool(old == new)
    return same_shape(a.shape, b.shape) and fits(a, b)
