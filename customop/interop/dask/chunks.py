"""Call operators on chunks of dask arrays; plans say which chunks are needed together.

Each axis of the arrays of a call has a label, which is a number. Axes with the same
label are cut at the same places, and a task gets one chunk along each. If no result has
a label, every task gets the whole axis: its chunks are joined. This is the notation of
``dask.array.blockwise``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import prod
from types import FrameType
from typing import Any, NamedTuple, TypeAlias

import dask.array as da
import numpy as np
from dask import config
from dask._task_spec import GraphNode
from dask.array.core import concatenate_axes
from dask.array.utils import meta_from_array
from dask.base import normalize_token, tokenize
from dask.utils import format_bytes, parse_bytes

from customop import FakeArray
from customop.arrays.kinds import CPU, is_array
from customop.arrays.nested import flat, map_nested
from customop.core.dispatch import find_kernel, kernel_for
from customop.core.recipes import Recipe, recipe_of
from customop.core.table import RuleTable
from customop.errors import MissingRuleError, ShapeError
from customop.schema.coerce import typed_arrays

# ---- kernels ----


def joined(op: RuleTable, plan: Plan) -> Callable[..., Any]:
    """Return a kernel that runs on chunks that are joined as a plan says."""

    def kernel(*args: Any, **keywords: Any) -> Any:
        values = [*args, *keywords.values()]
        nested = fakes_of(op, values)
        fakes = flat(nested)
        if not fakes or not all(map(is_array, fakes)):
            raise op.error(
                MissingRuleError,
                " returns more than arrays, which cannot be computed later",
                do=f'@{op.name}.register_kernel("dask")',
                kind="dask",
            )
        arrays = arrays_of(values)
        labels, outs = plan(op, values, arrays, fakes)
        check_whole(op, values, arrays, labels)
        return on_chunks(op, values, labels, outs, nested)

    return kernel


def typed(op: RuleTable, values: Sequence[Any]) -> list[tuple[str, Any, Any]]:
    """Return parameter name, place in words, and declared shape of each array of a call."""
    pairs = zip(op.schema.parameters, values, strict=True)
    return [
        (p.name, f"argument '{p.name}'{where}", t.shape)
        for p, value in pairs
        for where, x, t in typed_arrays(value, p.type)
        if is_chunked(x)
    ]


# ---- axes that must be whole ----


def check_whole(
    op: RuleTable, values: Sequence[Any], arrays: Sequence[Any], labels: Labels
) -> None:
    """Raise if an axis that the kernel needs whole is in several chunks."""
    for number, (x, own) in enumerate(zip(arrays, labels.arrays, strict=True)):
        core = [i for i, label in enumerate(own) if label not in labels.loop]
        cut = [i for i in core if x.numblocks[i] > 1]
        if cut and not (op.namespace in OURS and _is_small(x, core)):
            raise _cut(op, typed(op, values)[number], x, core, cut)


def _limit() -> int:
    return int(parse_bytes(config.get("array.chunk-size")))


def _joined(x: Any, core: Sequence[int]) -> float:
    """Return the size in bytes of the largest chunk after some axes are joined."""
    lengths = [
        x.shape[i] if i in core else max(x.chunks[i], default=0) for i in range(x.ndim)
    ]
    return float(prod(lengths) * x.dtype.itemsize)


def _is_small(x: Any, core: Sequence[int]) -> bool:
    """Return whether joined chunks are within dask's default size of chunks."""
    return not _joined(x, core) > _limit()  # an unknown length, nan, is not larger


def _cut(
    op: RuleTable,
    typed: tuple[str, str, Any],
    x: Any,
    core: Sequence[int],
    cut: Sequence[int],
) -> ShapeError:
    name, place, shape = typed
    axis = cut[0]
    entry = "" if shape is None else f" ('{shape.entries[axis - x.ndim]}')"
    chunks = ", ".join(f"{i}: -1" for i in cut)
    what = (
        f"{place} has {x.numblocks[axis]} chunks along axis {axis}{entry}, which the"
        " kernel needs whole"
    )
    if op.namespace in OURS:
        what += (
            f": joined they have {format_bytes(int(_joined(x, core)))}, and dask's"
            f" array.chunk-size is {format_bytes(_limit())}"
        )
    return op.error(
        ShapeError,
        what,
        do=f"{name}.rechunk({{{chunks}}}), if a worker can hold such a chunk",
        parameter=name,
    )


# ---- plans ----
# They say which chunks the operators of NumPy and SciPy need together.
#
# An operator gets whole arrays if it has no plan, is not pointwise and has no kernel in
# ``dask_kernels.py``.


class Labels(NamedTuple):
    """Labels of the axes of all arrays of a call.

    Attributes
    ----------
    arrays : list of tuple of int
        The labels of each array.
    loop : tuple of int
        The labels of the first axes of every result.
    """

    arrays: list[tuple[int, ...]]
    loop: tuple[int, ...]


def rows(arrays: Sequence[Any], core: Sequence[int]) -> Labels:
    """Return the labels for a kernel that treats each row separately, as a gufunc does.

    Parameters
    ----------
    arrays : sequence of array
    core : sequence of int
        How many of the last axes of each array make a row.
    """
    ranks = [x.ndim - n for x, n in zip(arrays, core, strict=True)]
    rank = max(ranks, default=0)
    fresh = count(rank)
    found = [
        (*range(rank - own, rank), *[next(fresh) for _ in range(n)])
        for own, n in zip(ranks, core, strict=True)
    ]
    return Labels(found, tuple(range(rank)))


# Operators of these namespaces may join chunks, up to dask's own limit on their size.
OURS = ("np", "scipy", "customop")

# plan(op, values, arrays, fakes) returns the labels of the arrays and of each result.
Plan: TypeAlias = Callable[
    [RuleTable, Sequence[Any], Sequence[Any], Sequence[Any]],
    tuple[Labels, list[tuple[int, ...]]],
]


def by_rows(*core: int | None) -> Plan:
    """Return the plan for a kernel that treats rows separately.

    Parameters
    ----------
    *core : int or None
        How many of the last axes of each array make a row; None for all axes. The last
        number also applies to all arrays that follow.
    """

    def plan(
        op: RuleTable, values: Any, arrays: Sequence[Any], fakes: Sequence[Any]
    ) -> tuple[Labels, list[tuple[int, ...]]]:
        given = (*core, *core[-1:] * len(arrays))
        axes = [
            x.ndim if n is None else min(n, x.ndim)
            for x, n in zip(arrays, given, strict=False)
        ]
        labels = rows(arrays, axes)
        fresh = count(max([*labels.loop, *sum(labels.arrays, ())], default=-1) + 1)
        outs = [
            (*labels.loop, *[next(fresh) for _ in range(f.ndim - len(labels.loop))])
            for f in fakes
        ]
        return labels, outs

    return plan


def by_axis(name: str) -> Plan:
    """Return the plan for a kernel of one array that needs some axes whole.

    The parameter `name` says which axes; the others stay in chunks. The result keeps
    the whole axes, perhaps with other lengths, or lacks them.
    """

    def plan(
        op: RuleTable, values: Sequence[Any], arrays: Sequence[Any], fakes: Any
    ) -> tuple[Labels, list[tuple[int, ...]]]:
        (x,) = arrays
        position = [p.name for p in op.schema.parameters].index(name)
        axis = values[position]
        given = range(x.ndim) if axis is None else [axis] if type(axis) is int else axis
        core = {i % x.ndim for i in given} if x.ndim else set()
        own = tuple(range(x.ndim))
        loop = tuple(i for i in own if i not in core)
        outs = [_kept(own, core) if f.ndim == x.ndim else loop for f in fakes]
        return Labels([own], loop), outs

    return plan


def _kept(own: Sequence[int], core: set[int]) -> tuple[int, ...]:
    return tuple(i + len(own) if i in core else i for i in own)


def _solve(
    op: RuleTable, values: Sequence[Any], arrays: Sequence[Any], fakes: Sequence[Any]
) -> tuple[Labels, list[tuple[int, ...]]]:
    """Return the labels for matrices, and vectors or matrices as right-hand sides."""
    plan = by_rows(2, 1 if arrays[1].ndim == 1 else 2)
    return plan(op, values, arrays, fakes)


# ---- plans of operators of NumPy and SciPy ----


def _polyval(
    op: RuleTable, values: Sequence[Any], arrays: Sequence[Any], fakes: Sequence[Any]
) -> tuple[Labels, list[tuple[int, ...]]]:
    """Return the labels for coefficients of one or several polynomials, and for points."""
    plan = by_rows(None, 0 if arrays[0].ndim == 1 else None)
    return plan(op, values, arrays, fakes)


def _digitize(
    op: RuleTable, values: Sequence[Any], arrays: Sequence[Any], fakes: Sequence[Any]
) -> tuple[Labels, list[tuple[int, ...]]]:
    """Return the labels for values and one sequence of edges, or rows of edges."""
    x, bins = arrays
    plan = by_rows(0, None) if bins.ndim == 1 else by_rows(x.ndim - bins.ndim + 1, 1)
    return plan(op, values, arrays, fakes)


_MATRICES = by_rows(2)
_NUMBERS = by_rows(0)
_AXIS = by_axis("axis")
_AXES = by_axis("axes")

PLANS: dict[str, Plan] = {
    **{
        f"np::{name}": _MATRICES
        for name in (
            *("det", "slogdet", "cofactors", "moved_cofactors", "inv", "cholesky"),
            *("qr", "svd", "svdvals", "eig", "eigvals", "eigh", "eigvalsh"),
        )
    },
    "np::pinv": by_rows(2, 0),
    "np::solve": _solve,
    "np::cross": by_rows(1),
    "np::require": by_rows(0, None),
    "np::interp": by_rows(0, None),
    "np::digitize": _digitize,
    "np::isin": by_rows(0, None),
    "np::searchsorted": by_rows(None, 0, None),
    "np::polyval": _polyval,
    "np::unravel_index": _NUMBERS,
    "np::ravel_multi_index": _NUMBERS,
    **{
        f"np::{name}": _AXIS
        for name in (
            *("sort", "argsort", "partition", "argpartition", "packbits", "unpackbits"),
            *("diff", "reduce", "accumulate", "reduceat"),
        )
    },
    **{f"np::{name}": _AXES for name in ("fftn", "ifftn", "rfftn", "irfftn")},
    "scipy::solve_triangular": _MATRICES,
    "scipy::expm": _MATRICES,
    "scipy::lu_factor": _MATRICES,
    "scipy::sici": _NUMBERS,
    "scipy::shichi": _NUMBERS,
    "scipy::fresnel": _NUMBERS,
}


# ---- results ----


def on_chunks(
    op: RuleTable,
    args: Sequence[Any],
    labels: Labels,
    outs: Sequence[tuple[int, ...]],
    fakes: Any,
) -> Any:
    """Return the lazy results of a call, nested as the operator returns them.

    Parameters
    ----------
    op : Operator
    args : sequence
        Values of all parameters.
    labels : Labels
        The labels of the arrays in `args`.
    outs : sequence of tuple of int
        Labels of each result. A label that no array has is an axis in one chunk.
    fakes : FakeArray, or nested
        The result of `fakes_of`.
    """
    arrays = arrays_of(args)
    run = ChunkCall(op, args)
    meta = meta_from_array(arrays[0])
    if is_array(fakes):
        return _blockwise(run, op.name, outs[0], arrays, labels, fakes, meta)
    kept = tuple(label for label in labels.loop if all(label in out for out in outs))
    is_open = _has_open_core(arrays, labels)
    every = da.blockwise(
        on_whole_axes(AllResults(run), labels, kept),
        kept,
        *paired(arrays, labels.arrays),
        token=op.name,
        dtype=object,
        meta=np.empty((0,) * len(kept), object),
    )
    own = Labels([kept], kept)
    found = [
        _blockwise(
            partial(nth_result, i), op.name, out, [every], own, fake, meta, is_open
        )
        for i, (out, fake) in enumerate(zip(outs, flat(fakes), strict=True))
    ]
    each = iter(found)
    return map_nested(fakes, lambda _: next(each))


def summed(
    op: RuleTable,
    args: Sequence[Any],
    labels: Labels,
    places: tuple[int, ...],
    kept: tuple[int, ...],
    own: tuple[int, ...],
    adapt: Callable[[list[Any]], list[Any]] | None = None,
) -> Any:
    """Sum the results for the chunks along some axes.

    Parameters
    ----------
    op : Operator
    args : sequence
        Values of all parameters.
    labels : Labels
        The labels of the arrays in `args`.
    places : tuple of int
        Labels of the axes that are summed over.
    kept : tuple of int
        Labels of the result that some array has. The other axes of the result are in
        one chunk.
    own : tuple of int
        Labels of the axes of the result.
    adapt : callable, optional
        The same parameter of `ChunkCall`.
    """
    arrays = arrays_of(args)
    fake = fakes_of(op, args)
    new = [label if label in kept else label + FRESH for label in own]
    sizes = {k: n for k, n in zip(new, fake.shape, strict=True) if k >= FRESH}
    meta = meta_from_array(arrays[0])
    run = Addend(ChunkCall(op, args, adapt), len(places))
    parts = da.blockwise(
        on_whole_axes(run, labels, (*places, *new)),
        (*places, *new),
        *paired(arrays, labels.arrays),
        new_axes=_new_axes(sizes),
        adjust_chunks=dict.fromkeys(places, 1),
        token=op.name,
        dtype=fake.dtype,
        meta=empty_chunk(meta, len(places) + len(new), fake.dtype),
    )
    return parts.sum(tuple(range(len(places))), dtype=fake.dtype)


def fakes_of(op: RuleTable, args: Sequence[Any]) -> Any:
    """Return the results of the fake kernel, nested as the operator returns them.

    An axis of unknown length is passed as an axis of length 1. This is correct because
    only the dtypes and the new axes of the results are read.
    """
    return op.invoke([map_nested(v, _fake) for v in args])


def _fake(value: Any) -> Any:
    if not is_chunked(value):
        return value
    lengths = [1 if np.isnan(n) else int(n) for n in value.shape]
    return FakeArray(lengths, value.dtype)


@dataclass(frozen=True, slots=True)
class AllResults:
    """A `ChunkCall` that returns its results as one tuple."""

    run: ChunkCall

    def __call__(self, *chunks: Any) -> Any:
        """Return all results for chunks."""
        return tuple(flat(self.run(*chunks)))

    def __dask_tokenize__(self) -> Any:
        return "every", self.run.__dask_tokenize__()


def nth_result(number: int, every: Any) -> Any:
    """Return one of the results of `AllResults`."""
    return every[number]


def on_whole_axes(
    run: Callable[..., Any], labels: Labels, out: Sequence[int]
) -> Callable[..., Any]:
    """Return a call that joins its chunks along the axes that its result lacks."""
    axes = [
        tuple([i for i, label in enumerate(own) if label not in out])
        for own in labels.arrays
    ]
    return _Joined(run, tuple(axes)) if any(axes) else run


@dataclass(frozen=True, slots=True)
class _Joined:
    """A call whose chunks come in nested lists, one level for each axis to join.

    dask's own option to join chunks also copies a single chunk.
    """

    run: Callable[..., Any]
    axes: tuple[tuple[int, ...], ...]

    def __call__(self, *chunks: Any) -> Any:
        pairs = zip(chunks, self.axes, strict=True)
        return self.run(*[_join(chunk, axes) for chunk, axes in pairs])

    def __dask_tokenize__(self) -> Any:
        return "joined", self.axes, normalize_token(self.run)


def _join(chunks: Any, axes: Sequence[int]) -> Any:
    """Join chunks along some axes; return a single chunk without copying it."""
    found = chunks
    for _ in axes:
        if len(found) > 1:
            return concatenate_axes(chunks, axes)
        (found,) = found
    return found


def paired(arrays: Sequence[Any], labels: Sequence[tuple[int, ...]]) -> list[Any]:
    """Return arrays, each with its labels after it, as dask takes them."""
    return [part for pair in zip(arrays, labels, strict=True) for part in pair]


def _blockwise(
    run: Callable[..., Any],
    name: str,
    out: tuple[int, ...],
    arrays: Sequence[Any],
    labels: Labels,
    fake: Any,
    meta: Any,
    is_open: bool = False,
) -> Any:
    known = {label for own in labels.arrays for label in own}
    is_open = is_open or _has_open_core(arrays, labels)
    new = {
        label: np.nan if is_open else n
        for label, n in zip(out, fake.shape, strict=True)
        if label not in known
    }
    return da.blockwise(
        on_whole_axes(run, labels, out),
        out,
        *paired(arrays, labels.arrays),
        new_axes=_new_axes(new),
        token=name,
        dtype=fake.dtype,
        meta=empty_chunk(meta, len(out), fake.dtype),
    )


def empty_chunk(like: Any, rank: int, dtype: Any) -> Any:
    """Return an empty chunk of the same array library as `like`."""
    return np.empty_like(like, dtype=dtype, shape=(0,) * rank)


def _has_open_core(arrays: Sequence[Any], labels: Labels) -> bool:
    """Return whether a kernel gets a whole axis whose length is not known."""
    pairs = zip(arrays, labels.arrays, strict=True)
    return any(
        np.isnan(n) and label not in labels.loop
        for x, own in pairs
        for label, n in zip(own, x.shape, strict=True)
    )


def _new_axes(new: Mapping[int, Any]) -> dict[int, float] | None:
    return {label: _length(n) for label, n in new.items()} or None


def _length(n: Any) -> Any:
    """Return a length as dask expects it: nan if it depends on values."""
    return n if type(n) is int else np.nan


# Larger than any label of an array.
FRESH = 1000


@dataclass(frozen=True, slots=True)
class Addend:
    """A `ChunkCall` whose result gets axes of length 1 in front."""

    run: ChunkCall
    added: int

    def __call__(self, *chunks: Any) -> Any:
        """Return the result for chunks, with the axes in front."""
        out = np.asanyarray(self.run(*chunks))
        return out.reshape((1,) * self.added + out.shape)

    def __dask_tokenize__(self) -> Any:
        return "part", self.added, self.run.__dask_tokenize__()


# ---- what a task runs ----


class Hole(NamedTuple):
    """Marks the place of an array among the arguments of a call."""

    number: int


class ChunkCall:
    """An operator with all its arguments except the arrays, as tasks call it.

    In another process the operator is found, or made, at the first call: an error is the
    task's then, and a scheduler need not have the operator.

    Parameters
    ----------
    op : Operator or Recipe
        A recipe comes from another process.
    args : sequence
        Values of all parameters, with whole arrays or holes for them.
    adapt : callable, optional
        Changes the values of a call on chunks, if they depend on the chunks.
    kernel_alone : bool
        Whether only the kernel runs, so that other rules may differ between processes.
    """

    __slots__ = ("_op", "_sent", "_ufunc", "adapt", "args", "kernel_alone")

    def __init__(
        self,
        op: RuleTable | Recipe,
        args: Sequence[Any],
        adapt: Callable[[list[Any]], list[Any]] | None = None,
        kernel_alone: bool = True,
    ) -> None:
        numbers = count()
        self.kernel_alone: bool = kernel_alone
        self._sent: Recipe | None = op if isinstance(op, Recipe) else None
        self._op: RuleTable | None = None
        if not isinstance(op, Recipe):
            self._set(op)
        self.adapt: Callable[[list[Any]], list[Any]] | None = adapt
        self.args: list[Any] = [
            map_nested(v, lambda x: Hole(next(numbers)) if is_chunked(x) else x)
            for v in args
        ]

    def _set(self, op: RuleTable) -> RuleTable:
        # Chunks without axes are NumPy's scalars, for which an operator takes 25 us more
        # than a ufunc that is its kernel.
        kernel = find_kernel(op, CPU.name)
        self._ufunc: Any = kernel if isinstance(kernel, np.ufunc) else None
        self._op = op
        return op

    def found(self) -> RuleTable:
        """Return the operator; it is looked for once."""
        if self._op is None and self._sent is not None:
            return self._set(self._sent.find(kernel_alone=self.kernel_alone))
        return self._op  # type: ignore[return-value]  # one of them is set

    def __call__(self, *chunks: Any) -> Any:
        """Return the results for chunks in the places of the arrays."""
        op = self._op or self.found()
        values = _filled(self.args, chunks)
        try:
            if self._ufunc is not None and self.adapt is None:
                return self._ufunc(*values)
            return op.invoke(values if self.adapt is None else self.adapt(values))
        except Exception as error:
            note_chunk(error, op, chunks)
            raise

    def bare(self, arrays: Sequence[Any]) -> Any:
        """Call the operator on arrays, which may be traced."""
        return (self._op or self.found()).invoke(_filled(self.args, arrays))

    def __dask_tokenize__(self) -> Any:
        kernel = "" if self._sent else normalize_token(kernel_for(self.found(), "cpu"))
        return self._recipe.token, kernel, tokenize(self.args)

    def __reduce__(self) -> tuple[Any, ...]:
        return ChunkCall, (self._recipe, self.args, self.adapt, self.kernel_alone)

    @property
    def _recipe(self) -> Recipe:
        """Return what other processes get of the operator."""
        return self._sent or recipe_of(self.found())


def note_chunk(error: Exception, op: RuleTable, chunks: Sequence[Any]) -> None:
    """Add a note to an error: the operator, the index of the task's chunk, the shapes."""
    index = _index_of_task()
    where = "a chunk" if index is None else f"chunk {index}"
    shapes = [getattr(x, "shape", ()) for x in chunks]
    given = ", ".join(f"{s}" for s in shapes) or "none"
    noun = "an array of shape" if len(shapes) == 1 else "arrays of shapes"
    error.add_note(f"in {op.qualname} on {where}: {noun} {given}")


def _index_of_task() -> tuple[int, ...] | None:
    """Return the index of the chunk that the running task of dask makes, if it has one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        task = frame.f_locals.get("self")
        if isinstance(task, GraphNode) and isinstance(task.key, tuple):
            index = tuple([n for n in task.key[1:] if isinstance(n, int)])
            if len(index) == len(task.key) - 1:
                return index
        frame = frame.f_back
    return None


def _filled(args: Sequence[Any], chunks: Sequence[Any]) -> list[Any]:
    """Return the arguments with each `Hole` replaced by a chunk."""
    return [
        map_nested(v, lambda x: chunks[x.number] if type(x) is Hole else x)
        for v in args
    ]


def is_chunked(value: Any) -> bool:
    """Return whether a value is an array that can be cut into chunks (not a NumPy scalar)."""
    return isinstance(value, da.Array | np.ndarray)


def arrays_of(args: Sequence[Any]) -> list[Any]:
    """Return the arrays of a call as dask arrays."""
    found = [v for value in args for v in flat(value) if is_chunked(v)]
    return [v if isinstance(v, da.Array) else da.asarray(v) for v in found]
