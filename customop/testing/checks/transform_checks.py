"""Checks of the rules of transforms: vmap, autograd and jvp."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import lru_cache
from typing import Any, Self

import numpy as np

from customop.arrays.kinds import is_array, is_traced
from customop.arrays.nested import flat
from customop.core.builtin_kinds import AUTOGRAD, VMAP
from customop.core.rule_kind import COMPOSITE
from customop.core.samples import Sample
from customop.errors import (
    ContractError,
    CustomOpError,
    DataDependentError,
    VmapError,
)
from customop.schema.tags import Tag
from customop.testing.checks.session import (
    Run,
    Session,
    arrays_of,
    outputs_of,
    placer,
    same_bits,
)
from customop.testing.checks.smooth import (
    as_single,
    as_single_complex,
    at_other_lengths,
    check_single,
    function_of,
    gradients_of,
    is_wide,
    made_gradients,
    ones_like,
    why_no_derivative,
    with_longer_axes,
)
from customop.testing.faults import Fault
from customop.testing.inputs.sample_values import map_values
from customop.testing.inputs.shrink import Longer
from customop.testing.inputs.templates import call_of
from customop.testing.quiet import about_to_run, strict_numbers
from customop.transforms.autograd.grad import vjp
from customop.transforms.vmap import vmap

# ---- the check of an operator's vmap rule against a loop over the rows ----


# The most combinations of in_dims that are tried.
_MOST_COMBINATIONS = 24
# Up to so many arrays, all combinations of first axis, last axis and None are tried.
_FEW_ARRAYS = 3

_DO = (
    "the batch axis of each argument is its entry among in_dims (None for one that is"
    " the same for all rows), and that of the result is out_dims"
)


def in_lengths(session: Session, sample: Sample) -> Iterator[Sample]:
    """Yield the sample, and with a vmap rule also the sample with longer axes."""
    yield sample
    op = session.op
    if op.find_rule(VMAP) is not None and not op.sees_seed:
        yield from with_longer_axes(session, sample)


def check_vmap(session: Session, sample: Sample) -> str:
    """Check that the vmap rule gives what a loop over the rows gives."""
    if isinstance(sample, Longer):
        return _check_longer(session, sample)
    op = session.op
    if op.find_rule(VMAP) is None:
        is_composite = COMPOSITE in op.rows
        return "made of operators" if is_composite else "no vmap rule: a loop is exact"
    arrays = arrays_of(session.bound(sample))
    if not arrays:
        return "no argument is an array"
    if not session.has_room(sample):
        return session.notes[-1]
    function = _RowFunction(session, sample)
    if op.sees_seed:
        _check_randomness(function)
        return ""
    _check_rule(function, sample, arrays)
    return ""


def _check_rule(function: _RowFunction, sample: Sample, arrays: Sequence[Any]) -> None:
    """Check the vmap rule for batches along all axes, and of several sizes."""
    session, op = function.session, function.session.op
    # Rows and results depend on which arrays are batched, but not along which axis.
    known: dict[tuple[bool, ...], _BatchRows] = {}
    for dims in _combinations(tuple([leaf.ndim for leaf in arrays])):
        batched = tuple(d is not None for d in dims)
        if batched not in known:
            known[batched] = _BatchRows(function, batched, 2)
        try:
            _check_dims(known[batched], dims)
        except (Fault, CustomOpError) as error:
            error.parameter = error.parameter or _batched_wrongly(function, dims)
            raise
    first = (0,) * len(arrays)
    every = (True,) * len(arrays)
    for size in (1, 0):
        _check_dims(known[every].first(size), first)
    _check_without_rows(known[every])
    for size in _sizes_that_meet(session, sample, arrays):
        _check_dims(_BatchRows(function, every, size), first)
    for unlike in (_with_nan, _short):
        _check_unlike(function, unlike)
    if not op.schema.written and Tag.dynamic_output_shape not in op.tags:
        _check_out_dims(known[every])
        _check_nested(_BatchRows(function, every, 4))


def _batched_wrongly(function: _RowFunction, dims: Sequence[int | None]) -> str:
    """Return the parameter whose batch axis a rule gets wrong, or "" for several.

    The fault shows along the axis of this argument alone, or not without it.
    """
    usual = 0 if any(d != 0 for d in dims) else None
    changed = [k for k, d in enumerate(dims) if d != usual]
    nothing = [usual] * len(dims)
    session = function.session
    pairs = zip(
        session.op.schema.parameters, session.bound(function.sample), strict=True
    )
    names = [p.name for p, value in pairs for _ in arrays_of([value])]
    alone = {
        names[k] for k in changed if _is_wrong(function, _with(nothing, k, dims[k]))
    }
    without = {
        names[k] for k in changed if not _is_wrong(function, _with(dims, k, usual))
    }
    found = {name for part in (alone, without) if len(part) == 1 for name in part}
    return found.pop() if len(found) == 1 else ""


def _with(
    dims: Sequence[int | None], k: int, entry: int | None
) -> tuple[int | None, ...]:
    return (*dims[:k], entry, *dims[k + 1 :])


def _is_wrong(function: _RowFunction, dims: Sequence[int | None]) -> bool:
    try:
        _check_dims(_BatchRows(function, [d is not None for d in dims], 2), dims)
    except Exception:  # noqa: BLE001  # whatever a rule raises
        return True
    return False


# Rules may take the batch apart in blocks of 64.
_LONG_BATCH = 67


def _sizes_that_meet(
    session: Session, sample: Sample, arrays: Sequence[Any]
) -> list[int]:
    """Return sizes of batches: as long as an axis, and once a long one."""
    lengths = {n for x in arrays for n in x.shape if _USUAL < n <= _MOST_MET}
    found = sorted(lengths)[:2]
    is_last = sample is session.samples[-1] and not session.keeps_shapes
    return [*found, _LONG_BATCH] if is_last and session.affords(_LONG_BATCH) else found


_USUAL, _MOST_MET = 2, 9


def _check_without_rows(rows: _BatchRows) -> None:
    """Check that a batch without rows has the axes and dtype of others."""
    empty = rows.first(0)
    dims = (0,) * len(rows.function.arrays)
    outs = _batched(empty, dims, empty.stacked(dims))
    if outs is None or not rows.runs:
        return
    expected = [leaf for _, leaf in rows.runs[0].effects if is_array(leaf)]
    for i, (out, row) in enumerate(zip(outs, expected, strict=False)):
        if (out.shape[1:], out.dtype) != (row.shape, row.dtype):
            raise Fault(
                f"returns output {i} of shape {out.shape} and {out.dtype} for a batch"
                f" without rows, must be {(0, *row.shape)} and {row.dtype}",
                do="return an empty array of the shape and dtype that rows would have",
            )


def _check_longer(session: Session, sample: Longer) -> str:
    """Batch all arrays along their first axes; usual lengths check the others."""
    count = len(arrays_of(session.bound(sample)))
    rows = _BatchRows(_RowFunction(session, sample), (True,) * count, 2)

    def work() -> str:
        _check_dims(rows, (0,) * count)
        return ""

    return at_other_lengths(session, sample, work)


@lru_cache(maxsize=64)
def _combinations(ranks: tuple[int, ...]) -> list[tuple[int | None, ...]]:
    """List batch axes to try: each axis of one array, 0 or None for the others."""
    count = len(ranks)
    found: list[tuple[int | None, ...]] = [(0,) * count]
    if count > 1:  # each array along another axis
        found += [
            tuple((i + k) % (rank + 1) for i, rank in enumerate(ranks)) for k in (1, 2)
        ]
    found += (
        (*(rest,) * i, axis, *(rest,) * (count - i - 1))
        for i, rank in enumerate(ranks)
        for axis in (*range(rank + 1), -1, None)
        for rest in (0, None)
    )
    if 1 < count <= _FEW_ARRAYS:
        found += itertools.product([0, -1, None], repeat=count)
    # Rules get axes counted from the start, so -1 only repeats the last axis.
    kept: dict[tuple[int | None, ...], tuple[int | None, ...]] = {}
    for dims in found:
        pairs = zip(dims, ranks, strict=True)
        key = tuple([d if d is None else d % (rank + 1) for d, rank in pairs])
        kept.setdefault(key, dims)
    kept.pop((None,) * count, None)
    return [*kept.values()][:_MOST_COMBINATIONS]


class _RowFunction:
    """The operator as a function from its arrays to the arrays among its results.

    Transforms search the attributes of objects; it has slots, which they do not.
    """

    __slots__ = ("_made", "arrays", "put", "sample", "session")

    def __init__(self, session: Session, sample: Sample) -> None:
        self.session: Session = session
        self.sample: Sample = sample
        values = session.values(sample)
        self.arrays: list[Any] = arrays_of(values)
        self.put: Callable[[Sequence[Any]], list[Any]] = placer(values, is_array)
        self._made: dict[tuple[Any, int], Callable[..., Any]] = {}

    def call(self, *arrays: Any) -> Any:
        """Return the results for one row."""
        self.session.check_time()
        out = self.session.op.invoke(self.put(arrays))
        if is_array(out):  # an array alone takes two thirds of the time of a tuple
            return out
        leaves = flat(outputs_of(self.session.op, out))
        return tuple([leaf for leaf in leaves if is_array(leaf)])

    def batched(self, dims: Any, out_dims: int = 0) -> Callable[..., Any]:
        """Return the function under vmap. It is made once for the same axes."""
        key = dims, out_dims
        if key not in self._made:
            self._made[key] = vmap(self.call, dims, out_dims)
        return self._made[key]

    def remedy(self, more: str = "") -> str:
        """Return the advice for a wrong rule."""
        return f"correct the rule of @{self.session.op.name}.register_vmap: {more}{_DO}"


class _BatchRows:
    """Rows for the arrays of a call, and what the operator returns for each row.

    Arrays that are not batched are the same in all rows. The others differ as much as
    the kernel allows.
    """

    def __init__(
        self,
        function: _RowFunction,
        batched: Sequence[bool],
        size: int,
        unlike: Callable[[Any, int], Any] | None = None,
    ) -> None:
        self.function = function
        self.session: Session = function.session
        self.size = size
        self.rows: list[list[Any]] = []
        # The results under vmap along the first axis of all arrays, once known.
        self.outs: list[Any] | None = None
        self.runs: list[Run] = (
            self._run(batched) if unlike is None else self._run_rows(batched, unlike)
        )

    def _run(self, batched: Sequence[bool]) -> list[Run]:
        for unlike in (_shuffled, _scaled):
            try:
                return self._run_rows(batched, unlike)
            except Exception:  # noqa: BLE001, S112  # a matrix must be positive, say
                continue
        return self._run_rows(batched, lambda x, _: x.copy())

    def _run_rows(
        self, batched: Sequence[bool], unlike: Callable[[Any, int], Any]
    ) -> list[Run]:
        pairs = list(zip(self.function.arrays, batched, strict=True))
        self.rows = [
            [unlike(np.asarray(x), i) if is_batched else x for x, is_batched in pairs]
            for i in range(self.size)
        ]
        copies = ([x.copy() for x in row] for row in self.rows)
        return [self.session.call(self.function.put(row)) for row in copies]

    def first(self, size: int) -> Self:
        """Return a copy with only the first of these rows."""
        made = copy(self)
        made.size, made.outs = size, None
        made.rows, made.runs = self.rows[:size], self.runs[:size]
        return made

    def stacked(self, dims: Sequence[int | None]) -> list[Any]:
        """Return the arrays of all rows, stacked along these axes."""
        return [
            x.copy() if d is None else _stack([row[k] for row in self.rows], x, d)
            for k, (x, d) in enumerate(zip(self.function.arrays, dims, strict=True))
        ]


def _shuffled(x: Any, i: int) -> Any:
    """Return row `i`: the elements scaled and in another order."""
    line = _scaled(x, i).reshape(-1)
    return np.concatenate((line[i:], line[:i])).reshape(x.shape)


def _scaled(x: Any, i: int) -> Any:
    """Scale floats toward zero, which keeps them in a ball around zero or in a cone."""
    return (x * (1.0 - 0.125 * i)).astype(x.dtype) if x.dtype.kind in "fc" else x.copy()


def _with_nan(x: Any, i: int) -> Any:
    """Return row `i`; the second row contains nan."""
    out = _shuffled(x, i)
    if i and x.dtype.kind in "fc":
        out.reshape(-1)[:1] = np.nan
    return out


def _short(x: Any, i: int) -> Any:
    """Return row `i` as float32, if the array is of floats."""
    out = _shuffled(x, i)
    return out.astype(np.float32) if x.dtype.kind == "f" else out


def _check_unlike(function: _RowFunction, unlike: Callable[[Any, int], Any]) -> None:
    """Check rows with other values or dtypes: each gives what it gives alone."""
    if not any(x.dtype.kind in "fc" for x in function.arrays):
        return
    count = len(function.arrays)
    try:
        rows = _BatchRows(function, (True,) * count, 2, unlike)
    except Exception:  # noqa: BLE001  # values that the kernel does not take
        return
    _check_dims(rows, (0,) * count)


def _stack(rows: Sequence[Any], like: Any, dim: int) -> Any:
    axis = dim % (like.ndim + 1)
    if rows:
        at = (*(slice(None),) * axis, None)
        return np.concatenate([x[at] for x in rows], axis)  # np.stack takes four times
    return np.zeros((*like.shape[:axis], 0, *like.shape[axis:]), like.dtype)


# ---- along which axes ----


def _check_dims(rows: _BatchRows, dims: Sequence[int | None]) -> None:
    """Check that every row gives what it gives alone."""
    arrays = rows.stacked(dims)
    outs = _batched(rows, dims, arrays)
    if outs is None:
        return
    if not any(dims):
        rows.outs = outs
    found = [*outs, *_written(rows, dims, arrays)]
    for i, run in enumerate(rows.runs):
        _compare_row(rows, dims, run, [leaf[i] for leaf in found], i)


def _batched(
    rows: _BatchRows, dims: Sequence[int | None], arrays: Sequence[Any]
) -> list[Any] | None:
    """Return the results under vmap, or None if it may refuse these arguments."""
    op = rows.session.op
    try:
        # A single array along its first axis takes a shorter path.
        outs = rows.function.batched(0 if dims == (0,) else tuple(dims))(*arrays)
    except (VmapError, DataDependentError):
        # An array shared by all rows cannot be written. Uneven rows cannot be stacked.
        if op.schema.written or Tag.dynamic_output_shape in op.tags:
            return None
        raise
    except CustomOpError as error:
        if rows.size == 0 and not isinstance(error, ContractError):
            return None
        raise
    except Exception as error:
        if rows.size == 0:  # a maximum, say, needs at least one row
            return None
        raise Fault(
            f"raises {type(error).__name__} under vmap with in_dims=({_text(dims)}),"
            f" and not for each row alone: {error}",
            do=rows.function.remedy(),
        ) from error
    return _each(outs)


def _each(outs: Any) -> list[Any]:
    """List the results of a `_RowFunction` under vmap."""
    return [outs] if is_array(outs) else [*outs]


def _text(dims: Sequence[int | None]) -> str:
    return ", ".join(map(str, dims))


def _written(
    rows: _BatchRows, dims: Sequence[int | None], arrays: Sequence[Any]
) -> list[Any]:
    """Return the written arrays with the batch axis first."""
    if not rows.session.op.schema.written:
        return []
    values = rows.session.bound(rows.function.sample)
    pairs = zip(rows.session.op.schema.parameters, values, strict=True)
    flags = [p.is_written for p, value in pairs for _ in arrays_of([value])]
    return [
        np.moveaxis(x, dim or 0, 0)
        for x, dim, is_written in zip(arrays, dims, flags, strict=True)
        if is_written
    ]


def _compare_row(
    rows: _BatchRows, dims: Sequence[int | None], run: Run, found: Sequence[Any], i: int
) -> None:
    expected = [pair for pair in run.effects if is_array(pair[1])]
    if len(found) != len(expected):
        raise Fault(
            f"gives {len(found)} results under vmap, {len(expected)} without", do=_DO
        )
    for a, (name, b) in zip(found, expected, strict=True):
        if not same_bits(a, b):
            rows.session.compare_leaf(
                name,
                np.asarray(a),
                np.asarray(b),
                f"between row {i} under vmap with in_dims=({_text(dims)}) and that row"
                " alone",
                do=rows.function.remedy(),
            )


def _check_out_dims(rows: _BatchRows) -> None:
    """Check that `out_dims` moves the batch axis of the results."""
    arrays = rows.stacked((0,) * len(rows.function.arrays))
    outs = rows.outs
    expected = _each(rows.function.batched(0)(*arrays)) if outs is None else outs
    ranks = {leaf.ndim for leaf in expected}
    for axis in (-1, min(ranks) - 1) if len(ranks) > 1 else (-1,):
        found = _each(rows.function.batched(0, axis)(*arrays))
        for i, (a, b) in enumerate(zip(found, expected, strict=True)):
            moved = np.moveaxis(b, 0, axis)
            if not same_bits(a, moved):
                rows.session.compare_leaf(
                    f"output {i}",
                    np.asarray(a),
                    moved,
                    f"between out_dims={axis} and out_dims=0",
                    do=rows.function.remedy(),
                )


def _check_nested(rows: _BatchRows) -> None:
    """Check that vmap of vmap gives the same rows."""
    arrays = rows.stacked((0,) * len(rows.function.arrays))
    squares = [x.reshape(2, 2, *x.shape[1:]) for x in arrays]
    found = _each(vmap(rows.function.batched(0))(*squares))
    for i, run in enumerate(rows.runs):
        expected = [leaf for _, leaf in run.effects if is_array(leaf)]
        for k, (a, b) in enumerate(zip(found, expected, strict=True)):
            row = np.asarray(a[i // 2, i % 2])
            if not same_bits(row, b):
                rows.session.compare_leaf(
                    f"output {k}",
                    row,
                    np.asarray(b),
                    f"between row ({i // 2}, {i % 2}) under vmap of vmap and that row"
                    " alone",
                    do=rows.function.remedy(
                        "call operators in it, and count axes from in_dims; "
                    ),
                )


# ---- random operators ----


def _check_randomness(function: _RowFunction) -> None:
    """Check that ``"error"`` raises, and ``"same"`` draws the same in all rows."""
    stacked = [np.stack([x, x]) for x in function.arrays]
    try:
        vmap(function.call)(*stacked)
    except VmapError:
        pass
    else:
        raise Fault(
            "draws random numbers under vmap with randomness='error'",
            do="let the rule call random operators, which raise there",
        )
    _check_different(function)
    same = _each(vmap(function.call, randomness="same")(*stacked))
    for i, leaf in enumerate(same):
        function.session.compare_leaf(
            f"output {i}",
            np.asarray(leaf[1]),
            np.asarray(leaf[0]),
            "between rows of equal values with randomness='same'",
            do="look at info.randomness in the rule",
        )


def _check_different(function: _RowFunction) -> None:
    """Check that ``"different"`` draws anew in each row, as calls in a row do."""
    rows = [np.stack([x] * _ROWS) for x in function.arrays]
    found = _each(vmap(function.call, randomness="different")(*rows))
    calls = [_each(function.call(*function.arrays)) for _ in range(_ROWS)]
    for i, leaf in enumerate(found):
        values = np.asarray(leaf)
        is_one = all(same_bits(values[k], values[0]) for k in range(_ROWS))
        drawn = [np.asarray(call[i]) for call in calls]
        if is_one and not all(same_bits(v, drawn[0]) for v in drawn):
            raise Fault(
                f"draws the same numbers for all {_ROWS} rows of output {i} with"
                " randomness='different'",
                do="draw numbers of the shape of the whole batch",
            )


# So many rows are hardly equal by chance, even where each is one of two numbers.
_ROWS = 16

# Registration, gradients of first and second order.


# ---- test_autograd_registration ----


def check_autograd_registration(session: Session, sample: Sample) -> str:
    """Check that the gradient formula works and the kernel itself tracks nothing."""
    op = session.op
    for name, leaf in session.expected(sample).effects:
        if is_traced(leaf):
            raise Fault(
                f"returns {name} as a value that a transform follows, from plain"
                " arrays: its kernel uses variables or tracers of others",
                do="let the kernel compute on plain arrays (stop_gradient(x)), and"
                f" put the gradient into @{op.name}.register_autograd",
            )
    if op.find_rule(AUTOGRAD) is None:
        return "no autograd rule" if COMPOSITE not in op.rows else "made of operators"
    reason = why_no_derivative(session, sample)
    if not reason:
        _check_each_alone(session, sample)
    return reason


def check_short_floats(session: Session, sample: Sample) -> str:
    """Check that gradients of short floats are short too: the engine refuses others."""
    if session.op.find_rule(AUTOGRAD) is None or why_no_derivative(session, sample):
        return ""
    _check_short(session, map_values(as_single, session.values(sample)))
    try:
        _check_short(session, map_values(as_single_complex, session.values(sample)))
    except CustomOpError:  # complex results may have no gradient
        return ""
    return ""


def _check_short(session: Session, values: Sequence[Any]) -> None:
    about_to_run(lambda: call_of(session.op.schema, values))
    try:
        with strict_numbers():
            call, chosen = function_of(session, values)
            out, pullback = vjp(call, *chosen.values())
    except Exception:  # noqa: BLE001  # a dtype that the kernel refuses
        return
    if any(map(is_wide, out)):
        return
    found = pullback(tuple(map(ones_like, out)))

    def wide(change: Callable[[Any], Any]) -> Sequence[Any]:
        call, chosen = function_of(session, map_values(change, values))
        out, pullback = vjp(call, *chosen.values())
        return pullback(tuple(change(ones_like(x)) for x in out))

    check_single(values, "gradient", [*chosen], found, wide)


def _check_each_alone(session: Session, sample: Sample) -> None:
    """Check that a gradient does not depend on which other gradients are requested."""
    together = gradients_of(session, sample)
    if len(together) == 1:
        return
    for name, gradient in together.items():
        alone = made_gradients(session, sample, [name])
        session.compare_leaf(
            f"the gradient by {name}",
            alone[name],
            gradient,
            "between asking for it alone and for all gradients",
            do="use ctx.needs_input_grad only to leave out gradients that are not"
            " needed",
        )
