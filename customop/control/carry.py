"""Values in loops: types of leaves, rows of a batch, unknown arrays, and carries."""

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
    show,
    structure_text,
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

# ---- the carry of a loop, which keeps its structure, shapes and dtypes ----


def own_carry(init: Any) -> Any:
    """Return a carry that a body may write in place, without changing the caller's arrays."""
    carry = plain_copy(init)
    if carry is not NOT_PLAIN:
        return carry
    found, structure = flatten(init)
    return unflatten(structure, [_own(leaf) for leaf in found])


def plain_copy(init: Any) -> Any:
    """Copy a carry of NumPy arrays, numbers and tuples; return `NOT_PLAIN` for any other."""
    cls = type(init)
    if cls is np.ndarray:
        return init.copy("K")
    if cls in _NOT_COPIED:
        return init
    if cls is not tuple:
        return NOT_PLAIN
    found = []
    for item in init:
        cls = type(item)
        if cls is np.ndarray:
            item = item.copy("K")  # noqa: PLW2901  # a third of the time
        elif cls not in _NOT_COPIED:
            item = plain_copy(item)  # noqa: PLW2901  # the same item
            if item is NOT_PLAIN:
                return NOT_PLAIN
        found.append(item)
    return tuple(found)


class _NotPlain:
    """Marks a carry that `plain_copy` does not copy."""


NOT_PLAIN = _NotPlain()

_NOT_COPIED = frozenset((float, int, bool, np.float64, np.int64, np.bool_, type(None)))


def _own(leaf: Any) -> Any:
    if type(leaf) is np.ndarray:
        return leaf.copy(order="K")
    return leaf.copy() if has_memory(leaf) else frozen(leaf)


class Kept:
    """Checks that the steps of a loop keep the structure and types of the carry.

    Checking each step would take as long as a small body. So only the first step is
    checked, and the carry at the end of the loop, even if the loop ends with an error.

    Parameters
    ----------
    name : str
        The name of the looping function, for messages.
    body : callable
        The function that runs one step.
    first : pytree, optional
        The carry after the first step, if that was checked.

    Attributes
    ----------
    started : bool
        Whether the first step has run.
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
        """Check a step and return the carry after it; raise if its types changed."""
        new = checked_carry(self._name, self.body, old, new)
        if not self.started:
            self._first, self.started = new, True
        return new

    def result(self, carry: Any) -> Any:
        """Return the carry after the last step; raise if it changed its types."""
        if not self.started or carry is self._first:
            return carry
        return checked_carry(self._name, self.body, self._first, carry)

    def explain(self, error: Exception, carry: Any) -> None:
        """Raise a clearer error if a step failed because the types of the carry changed."""
        is_own = not self.started or isinstance(error, CustomOpError)
        fault = "" if is_own else _compared(self._first, carry)[1]
        if fault:
            raise _changed_carry(self._name, self.body, fault) from error


def checked_carry(name: str, body: Callable[..., Any], old: Any, new: Any) -> Any:
    """Check a new carry; return it with numbers as arrays where the old one has arrays.

    Raises
    ------
    ArgumentError
        If the new carry has another structure, shape or dtype than the old one.
    """
    found, fault = _compared(old, new)
    if fault:
        raise _changed_carry(name, body, fault)
    return found


def pair_of(f: Callable[..., Any], out: Any) -> tuple[Any, Any]:
    """Return the carry and the result of a step of a scan; raise if `out` is not a pair."""
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
    """Return the new carry, and a text that says what differs (empty if nothing does)."""
    if is_same(old, new):
        return new, ""
    before, structure = flatten(old)
    after, other = flatten(new)
    if structure != other:
        text = f"{structure_text(structure)}, and comes out as {structure_text(other)}"
        return new, f"the carry goes in as {text}"
    found = []
    for i, (a, b) in enumerate(zip(before, after, strict=True)):
        if not _keeps(a, b):
            text = f"goes in as {named(a)}, and comes out as {named(b)}"
            return new, f"{path_of(structure, i, 'carry')} {text}"
        found.append(np.asarray(b, a.dtype)[()] if is_array(a) and is_number(b) else b)
    return unflatten(other, found), ""


def is_same(old: Any, new: Any) -> bool:
    """Return whether two carries certainly have the same types.

    The test is quick: for rarer types it may say no although they agree.
    """
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
    """Return whether leaf `new` may replace leaf `old` in a carry."""
    if old is new:
        return True
    a, b = leaf_type(old), leaf_type(new)
    if a is None or b is None:
        return a is b and bool(old == new)
    return same_shape(a.shape, b.shape) and fits(a, b)


# ---- conditions, which may differ between the rows of a batch ----


def truth(value: Any, what: str) -> bool | Mask | None:
    """Return whether a condition holds: a bool, a `Mask` in a batch, or None if unknown.

    Raises
    ------
    ArgumentError
        If the condition is not a number or an array of numbers.
    ShapeError
        If the condition has axes.
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
        # A row in which the condition holds: its index in each batch.
        self._where: dict[int, Any] = {}
        if self.any:
            place = np.argwhere(rows.array)[0]
            self._where = dict(zip(map(id, rows.batches), place, strict=True))

    def opposite(self) -> Mask:
        """Return the mask of the rows in which the condition does not hold."""
        rows = self._rows._replace(array=~self._rows.array)
        return Mask(call_numpy(np.logical_not, self.value), rows)

    def safe(self, leaf: Any) -> Any:
        """Return a value whose rows outside the mask are copies of a row inside it.

        Without this, a function could fail in a row whose result is thrown away, or
        divide by zero there and give a nan gradient.
        """
        rows = _rows_of(leaf) if is_traced(leaf) and self.any else None
        if rows is None or 0 in rows.array.shape[: len(rows.batches)]:
            return leaf
        if not any(id(batch) in self._where for batch in rows.batches):
            return leaf
        place = [self._where.get(id(batch), 0) for batch in rows.batches]
        return call_numpy(np.where, self.value, leaf, rows.array[tuple(place)])


def as_predicate(value: Any) -> Any:
    """Return a condition on symbolic sizes as a bool, or as an array of the graph."""
    condition = value if value.number_class in (bool, np.bool_) else value != 0
    if isinstance(condition, bool):
        return condition
    return call_numpy(np.full, (), condition, np.bool_)


def selected(condition: Any, yes: Any, no: Any) -> Any:
    """Select a leaf: `yes` where the condition holds, `no` elsewhere."""
    if yes is no or not (is_array(yes) or isinstance(yes, int | float | complex)):
        return yes
    return call_numpy(np.where, condition, yes, no)


def plain_value(value: Any) -> Any:
    """Return the array below a traced value.

    Return None if the value differs between rows or its elements are not known.
    """
    rows = _rows_of(value)
    return None if rows is None or rows.batches else rows.array


class _AllRows(NamedTuple):
    """All rows of a value that is batched by nested vmaps.

    Attributes
    ----------
    array : array
        It has one axis for each batch, in front.
    batches : list of Interpreter
        The batches, outermost first.
    """

    array: Any
    batches: list[Interpreter]


def _rows_of(value: Any) -> _AllRows | None:
    """Return the rows of a value, or None if its elements are not known."""
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


# ---- arrays whose elements are not known ----
# Loops run their bodies once on such arrays.


def is_virtual(tree: Any) -> bool:
    """Return whether the computation runs on arrays whose elements are not known."""
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
    """Return whether a pytree has only plain arrays and numbers.

    The test is quick: it only looks into tuples, and says no for rarer types.
    """
    cls = type(tree)
    if cls is tuple:
        for item in tree:  # noqa: SIM110  # half the time
            if not _is_plain(item):
                return False
        return True
    return cls in _PLAIN


def is_faked(mode: Mode) -> bool:
    """Return whether a mode is an open `FakeMode`."""
    return mode.alive and mode.kind is FakeMode.kind


def has_no_elements(value: Any) -> bool:
    """Return whether a value is a fake array or a tracer over one.

    Values of a graph do not count: the graph is captured on fake arrays, but later runs
    on arrays that have elements.
    """
    while is_traced(value):
        if isinstance(value, GraphTracer):
            return False
        value = value.below
    return is_fake(value)


def as_unknown(leaf: Any) -> Any:
    """Replace numbers and plain arrays by fake arrays; traced values are unchanged."""
    if is_traced(leaf):
        return leaf
    return as_fake(np.asarray(leaf) if is_number(leaf) else leaf)


def as_fake(leaf: Any) -> Any:
    """Return a fake array of the same shape and dtype; other values are unchanged."""
    if not is_array(leaf) or is_fake(leaf):
        return leaf
    shape, dtype = tuple(leaf.shape), leaf.dtype
    strides = packed_strides(shape, range(len(shape)), dtype.itemsize)
    return make_fake(shape, dtype, strides, device_of(leaf))


def shapes_of(fn: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a function as fake arrays, without drawing random numbers."""
    states = states_of(sources(fn, args))
    with _Shapes(), restored(states):
        found = fn(*map_leaves(as_fake, args))
    return map_leaves(as_fake, found)


class _Shapes(FakeMode):
    """Fake mode that also takes traced values and uses only their shapes and dtypes."""

    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run the fake kernel."""
        return super().process(op, [map_nested(value, as_fake) for value in args])


# ---- leaves that must agree ----


def difference(first: Any, second: Any, names: tuple[str, str]) -> str:
    """Describe how two results differ; return an empty string if they agree.

    `names` say where the two results come from.
    """
    before, structure = flatten(first)
    after, other = flatten(second)
    one, two = names
    if structure != other:
        return f"the result is {structure_text(structure)} {one}, and {structure_text(other)} {two}"
    for i, (a, b) in enumerate(zip(before, after, strict=True)):
        if not agree(a, b):
            path = path_of(structure, i, "result")
            return f"{path} is {named(a)} {one}, and {named(b)} {two}"
    return ""


def agree(a: Any, b: Any) -> bool:
    """Return whether two leaves can be in the same place of a result."""
    one, two = leaf_type(a), leaf_type(b)
    if one is None or two is None:
        return one is two and (a is b or bool(a == b))
    if not same_shape(one.shape, two.shape):
        return False
    if one.is_weak and two.is_weak:
        return True
    return fits(one, two)


def fits(old: LeafType, new: LeafType) -> bool:
    """Return whether a carry leaf of type `old` may be followed by one of type `new`."""
    if old.dtype == new.dtype:
        return True
    if old.is_weak:  # a number takes the dtype of the array
        number = old.dtype.type(0).item()
        return bool(np.result_type(number, new.dtype) == new.dtype)
    if new.is_weak:
        number = new.dtype.type(0).item()
        return bool(np.result_type(number, old.dtype) == old.dtype)
    return False


class LeafType(NamedTuple):
    """Shape and dtype of a leaf.

    Attributes
    ----------
    shape : tuple of int
    dtype : dtype
    is_weak : bool
        Whether it is a Python number, which takes the dtype of the array it is used
        with.
    """

    shape: tuple[int, ...]
    dtype: Any
    is_weak: bool = False


def leaf_type(leaf: Any) -> LeafType | None:
    """Return the type of an array or a number; None for any other leaf."""
    if is_array(leaf):
        return LeafType(tuple(leaf.shape), leaf.dtype)
    if isinstance(leaf, _NUMBERS):
        return LeafType((), np.result_type(type(leaf)), is_weak=True)
    return None


_NUMBERS = (bool, int, float, complex)


def is_number(leaf: Any) -> bool:
    """Return whether a leaf is a Python number."""
    return type(leaf) in _NUMBERS


# ---- text for messages ----


def path_of(structure: Structure, index: int, root: str) -> str:
    """Return the expression that names a leaf, such as ``carry['h'][0]``."""
    return structure.accessors()[index].codify(root)


def named(leaf: Any) -> str:
    """Return the text for a leaf in a message."""
    if is_array(leaf):
        return abbreviated(leaf)
    if is_number(leaf):
        return f"the {type(leaf).__name__} {shown(leaf, 40)}"
    return show(leaf)
