"""Graphs of operators that declare their chunks: halos, combined results, gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeAlias

import dask.array as da
import numpy as np
from dask.array.core import unify_chunks
from dask.array.overlap import ensure_minimum_chunksize, overlap, trim_internal
from dask.array.utils import meta_from_array
from dask.base import normalize_token

from customop.arrays.kinds import is_array, is_traced
from customop.arrays.nested import flat, map_nested
from customop.core.shape_rules import loop_name, result_types
from customop.core.table import RuleTable
from customop.errors import DataDependentError, MissingRuleError, ShapeError
from customop.interop.dask.chunk_check import DeclaredCall, Halo, Split
from customop.interop.dask.chunks import (
    FRESH,
    Addend,
    AllResults,
    Labels,
    arrays_of,
    check_whole,
    empty_chunk,
    fakes_of,
    is_chunked,
    note_chunk,
    nth_result,
    on_whole_axes,
    paired,
    typed,
)
from customop.interop.dask.declarations import Declaration, pair_of
from customop.transforms.autograd.grad import vjp

# ---- calls ----


def on_declared_chunks(
    op: RuleTable, declared: Declaration, values: Sequence[Any]
) -> Any:
    """Return the lazy results of a call, nested as the operator returns them.

    Parameters
    ----------
    op : Operator
    declared : Declaration
    values : sequence
        Values of all parameters.
    """
    plan = _planned(op, declared, values)
    reach = dict(plan.reach)
    arrays = _extended(plan.arrays, plan.labels.arrays, reach)
    run = DeclaredCall(op, plan.values, splits=_splits(plan, arrays))
    places = tuple(plan.combined)
    results = [
        _TaskResult(own, places, fake)
        for own, fake in zip(plan.outs, flat(plan.fakes), strict=True)
    ]
    found = _parts(run, op.name, arrays, plan.labels, results)
    ways = set(plan.combined.values())
    for how in ("sum", "max", "min"):
        if how in ways:
            along = [i for i, label in enumerate(places) if plan.combined[label] == how]
            found = [_combined(x, how, along) for x in found]
            places = tuple(p for p in places if plan.combined[p] != how)
    trimmed = iter(
        [_trimmed(x, own, reach) for x, own in zip(found, plan.outs, strict=True)]
    )
    return map_nested(plan.fakes, lambda _: next(trimmed))


def _splits(plan: _DeclaredPlan, arrays: Sequence[Any]) -> tuple[Split, ...]:
    """Return what the tasks check: the axes that are cut."""
    pairs = [*zip(arrays, plan.labels.arrays, strict=True)]
    cut = {
        k for x, own in pairs for k, n in zip(own, x.numblocks, strict=True) if n > 1
    }
    return tuple(
        Split(
            str(plan.names[label]),
            tuple(_place(label, own) for own in plan.labels.arrays),
            tuple(_place(label, own) for own in plan.outs),
            plan.reach.get(label, Halo(0, 0, "none")),
            plan.combined.get(label, ""),
        )
        for label in (*plan.reach, *plan.combined)
        if label in cut
    )


def _place(label: int, own: Sequence[int]) -> int:
    return own.index(label) if label in own else -1


def _combined(x: Any, how: str, axes: Sequence[int]) -> Any:
    if how == "sum":
        return x.sum(tuple(axes), dtype=x.dtype)
    return getattr(x, how)(tuple(axes))


def is_lazy_call(values: Sequence[Any]) -> bool:
    """Return whether all arrays of a call have their values, some of them lazily."""
    leaves = [leaf for value in values for leaf in flat(value)]
    return any(isinstance(v, da.Array) for v in leaves) and not any(
        map(is_traced, leaves)
    )


# ---- plans ----


class _DeclaredPlan(NamedTuple):
    """A call on chunks that its operator declares.

    Attributes
    ----------
    values : list
        Values of all parameters; scalars of NumPy are arrays.
    arrays : list of dask array
    labels : Labels
    outs : list of tuple of int
        The labels of each result.
    fakes : FakeArray, or nested
        What the fake kernel returns.
    reach : dict of int to Halo
        By label.
    combined : dict of int to str
        How results are combined along labels that they lack.
    names : dict of int to str or int
        The names of the declared labels.
    """

    values: list[Any]
    arrays: list[Any]
    labels: Labels
    outs: list[tuple[int, ...]]
    fakes: Any
    reach: dict[int, Halo]
    combined: dict[int, str]
    names: dict[int, Any]


def _planned(
    op: RuleTable, declared: Declaration, values: Sequence[Any]
) -> _DeclaredPlan:
    values = [map_nested(v, _as_array) for v in values]
    fakes = fakes_of(op, values)
    every = flat(fakes)
    if not every or not all(map(is_array, every)):
        raise op.error(
            MissingRuleError,
            " returns more than arrays, which cannot be computed later",
            do=f'@{op.name}.register_kernel("dask")',
            kind="dask",
        )
    arrays = arrays_of(values)
    find = _by_names if op.schema.has_shapes else _by_numbers
    numbers, labels, outs = find(op, declared, values, arrays, every)
    check_whole(op, values, arrays, labels)
    names = {numbers[axis]: axis for axis in numbers}
    reach = {
        numbers[axis]: _reach(op, declared, axis, values)
        for axis in numbers
        if axis not in declared.combine
    }
    combined = {
        numbers[axis]: how for axis, how in declared.combine.items() if axis in numbers
    }
    plan = _DeclaredPlan(
        list(values), arrays, labels, outs, fakes, reach, combined, names
    )
    _check_lengths(op, plan, every)
    return plan


def _as_array(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, np.generic) else value


def _reach(
    op: RuleTable, declared: Declaration, axis: Any, values: Sequence[Any]
) -> Halo:
    given = declared.on_all if declared.on_all is not None else declared.overlap[axis]
    if callable(given):
        positional, keywords = op.schema.split(values)
        given = given(*positional, **keywords)
    before, after = pair_of(op, given)
    return Halo(before, after, declared.boundary.get(axis, declared.kind))


def _check_lengths(op: RuleTable, plan: _DeclaredPlan, fakes: Sequence[Any]) -> None:
    """Raise unless results are as long as arrays along the axes that are concatenated."""
    lengths = {
        label: n
        for x, own in zip(plan.arrays, plan.labels.arrays, strict=True)
        for label, n in zip(own, x.shape, strict=True)
        if label in plan.labels.loop
    }
    for label in (*plan.reach, *plan.combined):
        if np.isnan(lengths.get(label, 0)):
            raise op.error(
                DataDependentError,
                f" needs the length of axis {plan.names[label]!r}, which depends on data",
                do="call x.compute_chunk_sizes() first, which computes it",
                kind="dask",
            )
    for own, fake in zip(plan.outs, fakes, strict=True):
        for label, n in zip(own, fake.shape, strict=True):
            if label in plan.reach and lengths[label] != n:
                raise op.error(
                    ShapeError,
                    f" has a result of length {n} along axis {plan.names[label]!r}, where"
                    f" its arrays have {lengths[label]}: results of chunks cannot be"
                    " concatenated",
                    do="return a result that is as long, and let the caller cut its ends",
                    parameter=None,
                )


_Found: TypeAlias = tuple[dict[Any, int], Labels, list[tuple[int, ...]]]


def _by_names(
    op: RuleTable,
    declared: Declaration,
    values: Sequence[Any],
    arrays: Sequence[Any],
    fakes: Sequence[Any],
) -> _Found:
    """Return the labels by the names in the shapes of the schema."""
    loop = loop_name(op.schema)
    shapes = [shape for _, _, shape in typed(op, values)]
    keys = [_keys(s, x.ndim, loop) for s, x in zip(shapes, arrays, strict=True)]
    types = result_types(op.schema) or ()
    found = [_keys(t.shape, f.ndim, loop) for t, f in zip(types, fakes, strict=True)]
    named = [n for n in declared.axes if any(n in own for own in keys)]
    looped = {k for own in found for k in own if type(k) is tuple}
    return _numbered([*looped, *named], named, keys, found, arrays)


def _by_numbers(
    op: RuleTable,
    declared: Declaration,
    values: Sequence[Any],
    arrays: Sequence[Any],
    fakes: Sequence[Any],
) -> _Found:
    """Return the labels of arrays of one rank, whose axes are numbered."""
    ranks = {x.ndim for x in arrays} - {0}
    if len(ranks) > 1:
        raise op.error(
            ShapeError,
            f"the arrays have {', '.join(map(str, sorted(ranks)))} axes, so a number does"
            " not say which axis is cut",
            do="write the shapes of its arrays in the schema, and name the axes",
        )
    rank = max(ranks, default=0)
    is_all = declared.on_all is not None
    named: list[Any] = [*range(rank)] if is_all else [*declared.axes]
    for axis in named:
        if not -rank <= axis < rank:
            raise op.error(
                ShapeError,
                f"register_chunks names axis {axis}, and its arrays have {rank} axes",
                do="pass arrays that have the axis",
            )
    own = [axis % rank for axis in named]
    keys = [[i if i in own else None for i in range(x.ndim)] for x in arrays]
    is_kept = not declared.combine
    found = [
        [i if is_kept and f.ndim == rank and i in own else None for i in range(f.ndim)]
        for f in fakes
    ]
    for f in fakes:
        if is_kept and f.ndim != rank:
            raise op.error(
                ShapeError,
                f" has a result of {f.ndim} axes of arrays of {rank}, so results of chunks"
                " cannot be concatenated",
                do="write the shapes of its arrays in the schema, and name the axes",
                parameter=None,
            )
    numbers, labels, outs = _numbered(own, own, keys, found, arrays)
    back = dict(zip(own, named, strict=True))
    return {back[axis]: label for axis, label in numbers.items()}, labels, outs


def _keys(shape: Any, rank: int, loop: str | None) -> list[Any]:
    """Return a key for each axis of an array: a name, a place in the loop, or None."""
    if shape is None:
        return [None] * rank
    before = [_key(axis) for axis in shape.before]
    after = [_key(axis) for axis in shape.after]
    inner = rank - len(before) - len(after)
    is_loop = shape.leads and shape.loop.name == loop
    places = [(i - inner,) if is_loop else None for i in range(inner)]
    return [*before, *places, *after]


def _key(axis: Any) -> Any:
    return axis.length if isinstance(axis.length, str) else None


def _numbered(
    cut: Sequence[Any],
    named: Sequence[Any],
    keys: Sequence[Sequence[Any]],
    found: Sequence[Sequence[Any]],
    arrays: Sequence[Any],
) -> _Found:
    """Return the labels: axes that may be cut come first and have the same labels.

    An axis of length 1 next to longer ones is broadcast: each task gets it.
    """
    numbers = {key: i for i, key in enumerate(cut)}
    longest: dict[Any, Any] = {}
    for own, x in zip(keys, arrays, strict=True):
        for key, n in zip(own, x.shape, strict=True):
            longest[key] = max(longest.get(key, 0), n)
    fresh = count(len(numbers))

    def label(key: Any, n: Any) -> int:
        is_cut = key in numbers and (n != 1 or longest[key] == 1)
        return numbers[key] if is_cut else next(fresh)

    labels = [
        tuple(label(key, n) for key, n in zip(own, x.shape, strict=True))
        for own, x in zip(keys, arrays, strict=True)
    ]
    outs = [
        tuple(numbers[key] if key in numbers else next(fresh) for key in own)
        for own in found
    ]
    loop = tuple(numbers.values())
    return {key: numbers[key] for key in named}, Labels(labels, loop), outs


# ---- halos ----


def _extended(
    arrays: Sequence[Any],
    labels: Sequence[tuple[int, ...]],
    reach: dict[int, Halo],
) -> list[Any]:
    """Return arrays whose chunks also have what the kernel reaches around them.

    `reach` becomes 0 along axes in one chunk, where the kernel needs nothing more.
    """
    joint = _aligned(arrays, labels, reach)
    return [_with_halo(x, own, reach) for x, own in zip(joint, labels, strict=True)]


def _aligned(
    arrays: Sequence[Any],
    labels: Sequence[tuple[int, ...]],
    reach: dict[int, Halo],
) -> list[Any]:
    """Cut arrays at the same places, into chunks that are as long as the reach."""
    chunks, found = unify_chunks(*paired(arrays, labels))
    wanted = {}
    for label, each in reach.items():
        own = chunks.get(label, (0,))
        size = max(each.before, each.after)
        is_short = size > sum(own)
        wanted[label] = (sum(own),) if is_short else ensure_minimum_chunksize(size, own)
        if len(wanted[label]) == 1:
            reach[label] = Halo(0, 0, "none")
    return [
        x.rechunk({i: wanted[label] for i, label in enumerate(own) if label in wanted})
        for x, own in zip(found, labels, strict=True)
    ]


def _depths(
    own: Sequence[int], reach: Mapping[int, Halo]
) -> tuple[dict[int, Any], dict[int, Any]]:
    """Return depth and boundary by axis, as dask takes them."""
    depth = {i: reach[k].depth for i, k in enumerate(own) if k in reach}
    kinds = {i: reach[k].kind for i, k in enumerate(own) if k in reach}
    return depth, kinds


def _is_deep(depth: Mapping[int, Any]) -> bool:
    return any(each not in (0, (0, 0)) for each in depth.values())


def _with_halo(x: Any, own: Sequence[int], reach: Mapping[int, Halo]) -> Any:
    depth, kinds = _depths(own, reach)
    if not _is_deep(depth):
        return x
    whole = dict.fromkeys(range(x.ndim), 0)
    none = dict.fromkeys(range(x.ndim), "none")
    return overlap(x, {**whole, **depth}, {**none, **kinds})


def _trimmed(x: Any, own: Sequence[int], reach: Mapping[int, Halo]) -> Any:
    depth, kinds = _depths(own, reach)
    if not _is_deep(depth):
        return x
    return trim_internal(x, depth, kinds)


# ---- tasks ----


class _TaskResult(NamedTuple):
    """A result of the tasks.

    Attributes
    ----------
    own : tuple of int
        The labels of its axes.
    places : tuple of int
        Labels along which there are parts of it, which are still to be combined.
    fake : FakeArray
        Its lengths along axes that no array has, and its dtype.
    """

    own: tuple[int, ...]
    places: tuple[int, ...]
    fake: Any


def _parts(
    run: Any,
    name: str,
    arrays: Sequence[Any],
    labels: Labels,
    results: Sequence[_TaskResult],
) -> list[Any]:
    """Return the results of all tasks, with an axis in front for each of their places."""
    meta = meta_from_array(arrays[0])
    if len(results) == 1:
        (one,) = results
        added = len(one.places)
        call = Addend(run, added) if added else run
        return [_layer(call, name, arrays, labels.arrays, labels.loop, one, meta)]
    kept = labels.loop
    every = da.blockwise(
        on_whole_axes(AllResults(run), labels, kept),
        kept,
        *paired(arrays, labels.arrays),
        token=name,
        dtype=object,
        meta=np.empty((0,) * len(kept), object),
    )
    return [
        _layer(
            partial(_nth_part, i, len(each.places)),
            name,
            [every],
            [kept],
            kept,
            each,
            meta,
        )
        for i, each in enumerate(results)
    ]


def _nth_part(number: int, added: int, every: Any) -> Any:
    out = np.asanyarray(nth_result(number, every))
    return out.reshape((1,) * added + out.shape)


def _layer(
    call: Callable[..., Any],
    name: str,
    arrays: Sequence[Any],
    labels: list[tuple[int, ...]],
    loop: tuple[int, ...],
    result: _TaskResult,
    meta: Any,
) -> Any:
    new = [label if label in loop else label + FRESH for label in result.own]
    pairs = zip(new, result.fake.shape, strict=True)
    sizes = {label: n for label, n in pairs if label >= FRESH}
    out = (*result.places, *new)
    return da.blockwise(
        on_whole_axes(call, Labels(labels, loop), out),
        out,
        *paired(arrays, labels),
        new_axes=sizes or None,
        adjust_chunks=dict.fromkeys(result.places, 1) or None,
        token=name,
        dtype=result.fake.dtype,
        meta=empty_chunk(meta, len(out), result.fake.dtype),
    )


# ---- gradients ----
# The gradient of an element needs the cotangents of the elements that reach it, and what
# these reach: so chunks are extended by twice the reach. Their gradients are right
# in the middle.


def is_smooth(op: RuleTable, values: Sequence[Any]) -> bool:
    """Return whether all results are floats, so that all have cotangents."""
    fakes = flat(fakes_of(op, values))
    return all(is_array(f) and np.dtype(f.dtype).kind in "fc" for f in fakes)


def gradient(
    op: RuleTable,
    declared: Declaration,
    values: Sequence[Any],
    grads: Sequence[Any],
    needed: Sequence[Any],
) -> dict[str, Any]:
    """Return the gradients of the positional arguments, by name.

    Parameters
    ----------
    op : Operator
    declared : Declaration
    values : sequence
        Values of all parameters.
    grads : sequence of array or None
        A cotangent for each result.
    needed : sequence
        Whether the gradient of each positional argument is needed, nested as it is.
    """
    plan = _planned(op, declared, values)
    numbers = count()
    places = [
        map_nested(v, lambda x: next(numbers) if is_chunked(x) else None)
        for v in plan.values
    ]
    wanted = [
        number
        for own, need in zip(places, needed, strict=False)
        for number in flat(own)
        if type(number) is int and any(flat(need))
        if plan.arrays[number].dtype.kind in "fc"
    ]
    parts = iter(_gradients(op, plan, wanted, grads))
    found = {number: next(parts) for number in wanted}
    names = [p.name for p in op.schema.positional]
    return {
        name: map_nested(own, found.get)
        for name, own in zip(names, places, strict=False)
        if any(n in found for n in flat(own))
    }


def _gradients(
    op: RuleTable, plan: _DeclaredPlan, wanted: Sequence[int], grads: Sequence[Any]
) -> list[Any]:
    """Return the gradient of each array that is wanted."""
    fakes = flat(plan.fakes)
    given = [
        da.zeros(f.shape, dtype=f.dtype) if g is None else da.asarray(g)
        for g, f in zip(grads, fakes, strict=True)
    ]
    reach = {label: _twice(each) for label, each in plan.reach.items()}
    own = [*plan.labels.arrays, *plan.outs]
    joint = _aligned([*plan.arrays, *given], own, reach)
    inputs = [_with_halo(x, o, reach) for x, o in zip(joint, own, strict=True)]
    deep = {label for label, each in reach.items() if each.before or each.after}
    # Gradients of arrays that every chunk has: an element's part counts once.
    shared = [i for i in wanted if not deep.issubset(plan.labels.arrays[i])]
    labels = own
    if shared:
        first = len(plan.arrays)
        pairs = zip(joint[first:], plan.outs, strict=True)
        inputs += [_with_zeros(g, o, reach) for g, o in pairs]
        labels = [*own, *plan.outs]
    run = _ChunkGradient(
        DeclaredCall(op, plan.values, kernel_alone=False),
        len(plan.arrays),
        len(given),
        tuple(wanted),
        tuple(i in shared for i in wanted),
        plan.fakes,
    )
    loop = plan.labels.loop
    results = [
        _TaskResult(
            plan.labels.arrays[i],
            tuple(label for label in loop if label not in plan.labels.arrays[i]),
            plan.arrays[i],
        )
        for i in wanted
    ]
    found = _parts(run, f"{op.name}-gradient", inputs, Labels(labels, loop), results)
    return [
        _trimmed(_summed(g, len(each.places)), each.own, reach)
        for g, each in zip(found, results, strict=True)
    ]


def _summed(g: Any, places: int) -> Any:
    return g.sum(tuple(range(places)), dtype=g.dtype) if places else g


def _twice(each: Halo) -> Halo:
    depth = each.before + each.after
    # The kernel continues arrays beyond their ends by itself, unless it wraps around.
    return Halo(depth, depth, "periodic" if each.kind == "periodic" else "none")


def _with_zeros(g: Any, own: Sequence[int], reach: Mapping[int, Halo]) -> Any:
    """Extend the chunks of a cotangent by zeros."""
    depths = [
        reach[k].before if k in reach and g.numblocks[i] > 1 else 0
        for i, k in enumerate(own)
    ]
    wraps = [k in reach and reach[k].kind == "periodic" for k in own]
    chunks = tuple(
        tuple(
            n + sum(_widths(j, len(each), depth, wrap))
            for j, n in enumerate(each)
        )
        for each, depth, wrap in zip(g.chunks, depths, wraps, strict=True)
    )  # fmt: skip
    if chunks == g.chunks:
        return g
    return g.map_blocks(
        partial(_padded, depths, wraps, g.numblocks),
        chunks=chunks,
        dtype=g.dtype,
        meta=meta_from_array(g),
    )


def _widths(place: int, of: int, depth: int, wraps: bool) -> tuple[int, int]:
    before = depth if wraps or place > 0 else 0
    return before, depth if wraps or place < of - 1 else 0


def _padded(
    depths: Sequence[int],
    wraps: Sequence[bool],
    numbers: Sequence[int],
    chunk: Any,
    block_id: Sequence[int] = (),
) -> Any:
    pairs = zip(block_id, numbers, depths, wraps, strict=True)
    return np.pad(chunk, [_widths(*each) for each in pairs])


@dataclass(frozen=True, slots=True)
class _ChunkGradient:
    """The gradients of the arrays of a call on chunks.

    Attributes
    ----------
    run : DeclaredCall
        The call.
    arrays, grads : int
        How many arrays and cotangents there are. Cotangents that are zero in the halo
        may follow.
    wanted : tuple of int
        The arrays whose gradients are returned.
    shared : tuple of bool
        For each of them, whether it takes the cotangents that are zero in the halo.
    nested : FakeArray, or nested
        How the results are nested.
    """

    run: DeclaredCall
    arrays: int
    grads: int
    wanted: tuple[int, ...]
    shared: tuple[bool, ...]
    nested: Any

    def __call__(self, *chunks: Any) -> Any:
        try:
            return self._gradients(chunks)
        except Exception as error:
            note_chunk(error, self.run.found(), chunks[: self.arrays])
            raise

    def _gradients(self, chunks: Sequence[Any]) -> Any:
        own = list(chunks[: self.arrays])

        def of_wanted(*moving: Any) -> Any:
            for i, x in zip(self.wanted, moving, strict=True):
                own[i] = x
            return self.run.bare(own)

        pullback: Any
        _, pullback = vjp(of_wanted, *[own[i] for i in self.wanted])
        rest = chunks[self.arrays :]
        found = pullback(self._like(rest[: self.grads]))
        if any(self.shared):
            other = pullback(self._like(rest[self.grads :]))
            trios = zip(found, other, self.shared, strict=True)
            found = tuple(b if is_shared else a for a, b, is_shared in trios)
        return found if len(self.wanted) > 1 else found[0]

    def _like(self, grads: Sequence[Any]) -> Any:
        each = iter(grads)
        return map_nested(self.nested, lambda _: next(each))

    def __dask_tokenize__(self) -> Any:
        own = (self.arrays, self.grads, self.wanted, self.shared)
        return "gradient", own, normalize_token(self.run)
