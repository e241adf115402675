"""Arrays joined, split, and repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import index as as_int
from typing import Any, Final

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from customop import (
    ArgumentError,
    DataDependentError,
    FakeArray,
    Operator,
    ShapeError,
    SymInt,
    Tag,
    get_ctx,
    register_numpy_function,
)
from customop.numpy.arguments import (
    are_equal,
    as_array,
    as_dtype,
    as_ints,
    cast,
    copied,
    is_below,
    is_one,
    is_plain,
    is_symbolic,
    lined,
    numpy_refuses,
    only,
    shape_of,
    size_of,
    smaller,
    typical,
    value_of,
    whole,
)
from customop.numpy.create import array_like
from customop.numpy.index_operators import numbers
from customop.numpy.rules import (
    batch_first,
    device_of,
    in_dtype,
    linear,
    no_gradient,
    numpy_operator,
    past_rows,
)
from customop.numpy.shape import expanded

# ---- joining ----


def _merged_order(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[int]:
    """Return axes from slowest to fastest, by the shapes and strides of all arrays.

    Where arrays disagree, C order wins. Source: numpy.concatenate, NumPy 2.4.
    """
    order = list(range(len(pairs[0][0])))
    for i in range(1, len(order)):
        axis, to = order[i], i
        for j in range(i - 1, -1, -1):
            votes = [
                abs(strides[axis]) > abs(strides[order[j]])
                for shape, strides in pairs
                if shape[axis] != 1 and shape[order[j]] != 1
            ]
            if votes and not all(votes):
                break
            to = j if votes else to
        order.insert(to, order.pop(i))
    return order


def _joined(
    arrays: Sequence[Any], shape: Sequence[int], pairs: Sequence[Any]
) -> FakeArray:
    """Return the fake array of this shape, with dtype and order to fit all arrays."""
    dtype = np.result_type(*[a.dtype for a in arrays])
    device = device_of(arrays[0])
    if is_symbolic(shape):
        pairs = [
            ([1 if is_one(n) else 2 for n in own], typical(strides))
            for own, strides in pairs
        ]
    return FakeArray(shape, dtype, device=device, order=_merged_order(pairs))


def _misfit(function: str, shapes: Sequence[Any]) -> ShapeError:
    return ShapeError(
        f"{function}: arrays of the shapes {', '.join(map(str, shapes))} do not fit",
        do="join arrays that have the same lengths except along the joined axis",
    )


def _register_join(op: Operator[..., Any], parts: Callable[..., Any]) -> None:
    """Register the rules of an operator that joins arrays.

    ``parts(g, shapes, axis)`` gives the piece of a gradient for each array.
    """

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        arrays, axis = inputs
        ctx.shapes = [a.shape for a in arrays]
        ctx.dtypes = [a.dtype for a in arrays]
        ctx.axis = axis if axis >= 0 else axis + output.ndim

    def backward(ctx: Any, g: Any) -> Any:
        pieces = parts(g, ctx.shapes, ctx.axis)
        if ctx.dtypes.count(g.dtype) == len(pieces):
            return pieces, None
        return [in_dtype(p, d) for p, d in zip(pieces, ctx.dtypes, strict=True)], None

    def jvp(primals: Any, tangents: Any) -> Any:
        arrays, axis = primals
        pairs = zip(arrays, tangents[0], strict=True)
        steps = [np.zeros_like(a) if t is None else t for a, t in pairs]
        return op(arrays, axis), op(steps, axis)

    def batch(info: Any, in_dims: Any, arrays: Any, axis: int) -> Any:
        pairs = zip(arrays, in_dims[0], strict=True)
        first = [batch_first(a, d, info.batch_size) for a, d in pairs]
        # An axis counted from the end stays the same in a batch.
        return op(first, axis if axis < 0 else axis + 1), 0

    op.register_autograd(backward, setup_context=setup)
    op.register_jvp(jvp)
    op.register_vmap(batch)


_concatenate = numpy_operator(
    "concatenate",
    "(Array[] arrays, int axis) -> Array",
    lambda arrays, axis: np.concatenate(arrays, axis),
)


@_concatenate.register_fake
def _(arrays: Any, axis: int) -> FakeArray:
    shapes = [tuple(a.shape) for a in arrays]
    axis = normalize_axis_index(axis, len(shapes[0]))
    # Lengths that are not known to be equal must be so, from here on.
    rests = {s[:axis] + s[axis + 1 :] for s in shapes}
    if len(rests) > 1 and not are_equal(rests):
        raise _misfit("np.concatenate", shapes)
    shape = list(shapes[0])
    shape[axis] = sum(s[axis] for s in shapes)
    return _joined(arrays, shape, [(a.shape, a.strides) for a in arrays])


def _pieces(g: Any, shapes: Sequence[Any], axis: int) -> list[Any]:
    lead, start, found = (slice(None),) * axis, 0, []
    for shape in shapes:
        end = start + shape[axis]
        part = slice(start, end)
        found.append(g[(*lead, part)] if axis else g[part])
        start = end
    return found


_register_join(_concatenate, _pieces)


_CASTING: Final = "same_kind"


def _cast_all(
    function: str, arrays: Iterable[Any], dtype: Any, casting: str
) -> list[Any]:
    if casting != _CASTING:
        only(function, casting=(casting, _CASTING))
    found = _on_one_device([as_array(a) for a in arrays])
    if dtype is None:
        return found
    for a in found:
        if not np.can_cast(a.dtype, dtype, _CASTING):
            raise ArgumentError(
                f"{function}: an array of {a.dtype} cannot be cast to"
                f" {as_dtype(dtype)} by casting='{casting}'",
                do=f"cast it yourself: x.astype({as_dtype(dtype)})",
            )
    return [cast(a, dtype) for a in found]


def _on_one_device(arrays: list[Any]) -> list[Any]:
    """Move scalars of NumPy to the device of the first array."""
    like = next((a for a in arrays if not isinstance(a, np.generic)), None)
    if like is None or device_of(like) == "cpu":
        return arrays
    return [array_like(a, like) if isinstance(a, np.generic) else a for a in arrays]


@register_numpy_function(np.concatenate)
def concatenate(
    arrays: Any,
    /,
    axis: int | None = 0,
    *,
    dtype: Any = None,
    casting: str = "same_kind",
    out: None = None,
) -> Any:
    """Join arrays as `numpy.concatenate` does."""
    given = _cast_all("np.concatenate", arrays, dtype, casting)
    if axis is None:
        return _concatenate([np.ravel(a) for a in given], 0)
    ranks = [len(a.shape) for a in given]
    if 0 in ranks:
        numpy_refuses(
            np.concatenate, given, do="use np.stack, or np.atleast_1d on each"
        )
    if type(axis) is not int or not 0 <= axis < ranks[0]:
        axis = normalize_axis_index(whole(axis), ranks[0])
    return _concatenate.run(given, axis)


@register_numpy_function(np.append)
def _(arr: Any, values: Any, axis: int | None = None) -> Any:
    return concatenate((as_array(arr), as_array(values)), axis)


_stack = numpy_operator(
    "stack",
    "(Array[] arrays, int axis) -> Array",
    lambda arrays, axis: np.stack(arrays, axis),
)


@_stack.register_fake
def _(arrays: Any, axis: int) -> FakeArray:
    shapes = [tuple(a.shape) for a in arrays]
    if len(set(shapes)) > 1 and not are_equal(set(shapes)):
        raise _misfit("np.stack", shapes)
    axis = normalize_axis_index(axis, len(shapes[0]) + 1)
    shape = (*shapes[0][:axis], len(arrays), *shapes[0][axis:])
    return _joined(arrays, shape, [expanded(a, (axis,)) for a in arrays])


def _slabs(g: Any, shapes: Sequence[Any], axis: int) -> list[Any]:
    lead = (slice(None),) * axis
    return [g[(*lead, i)] for i in range(len(shapes))]


_register_join(_stack, _slabs)


@register_numpy_function(np.stack)
def _(
    arrays: Any,
    axis: int = 0,
    out: None = None,
    *,
    dtype: Any = None,
    casting: str = "same_kind",
) -> Any:
    given = _cast_all("np.stack", arrays, dtype, casting)
    if not given:
        numpy_refuses(np.stack, [], do="pass arrays")
    return _stack.run(given, normalize_axis_index(axis, given[0].ndim + 1))


def _joiner(name: str, prepare: Any, axis: Callable[[int], int]) -> Callable[..., Any]:
    """Make ``np.vstack`` and others: `axis` gives the axis for a rank."""

    def join(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
        given = _cast_all(f"np.{name}", tup, dtype, casting)
        if name == "vstack" and all(len(a.shape) == 1 for a in given):
            shapes = [tuple(a.shape) for a in given]
            if shapes.count(shapes[0]) == len(shapes):
                return _stack.run(given, 0)  # one operator in the place of several
        arrays = [prepare(a) for a in given]
        return concatenate(arrays, axis(arrays[0].ndim))

    return join


def _as_columns(x: Any) -> Any:
    return np.atleast_2d(x).T if x.ndim < 2 else x


register_numpy_function(np.vstack, _joiner("vstack", np.atleast_2d, lambda rank: 0))
register_numpy_function(
    np.hstack, _joiner("hstack", np.atleast_1d, lambda rank: 0 if rank == 1 else 1)
)
register_numpy_function(np.dstack, _joiner("dstack", np.atleast_3d, lambda rank: 2))
register_numpy_function(
    np.column_stack, _joiner("column_stack", _as_columns, lambda rank: 1)
)


# ---- splitting ----


def _cuts(x: Any, where: Any, axis: int, *, is_even: bool) -> list[Any]:
    """Return the places where an axis is cut."""
    if isinstance(where, list | tuple) or shape_of(where):
        return [size_of(at) for at in where]
    count, length = as_int(where), x.shape[axis]
    if count <= 0 or (is_even and length % count):
        instead = "give the places to cut, or a positive number of parts"
        if count > 0:
            instead = "use np.array_split, or give the places to cut"
        split = np.split if is_even else np.array_split
        numpy_refuses(split, x, count, axis=axis, do=instead)
    size, longer = length // count, length % count
    return [i * size + smaller(i, longer) for i in range(1, count)]


def _split(x: Any, where: Any, axis: int, *, is_even: bool) -> list[Any]:
    axis = normalize_axis_index(axis, x.ndim)
    cuts = _cuts(x, where, axis, is_even=is_even)
    lead = (slice(None),) * axis
    bounds = zip([0, *cuts], [*cuts, x.shape[axis]], strict=True)
    return [x[(*lead, slice(start, end))] for start, end in bounds]


@register_numpy_function(np.split)
def _(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    return _split(ary, indices_or_sections, axis, is_even=True)


@register_numpy_function(np.array_split)
def _(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    return _split(ary, indices_or_sections, axis, is_even=False)


def _splitter(name: str, rank: int, axis: Callable[[int], int]) -> Callable[..., Any]:
    def split(ary: Any, indices_or_sections: Any) -> Any:
        if ary.ndim < rank:
            instead = "use np.split" if ary.ndim else "use np.atleast_1d(x) first"
            numpy_refuses(getattr(np, name), ary, 1, do=instead)
        return _split(ary, indices_or_sections, axis(ary.ndim), is_even=True)

    return split


register_numpy_function(
    np.hsplit, _splitter("hsplit", 1, lambda rank: 0 if rank == 1 else 1)
)
register_numpy_function(np.vsplit, _splitter("vsplit", 2, lambda rank: 0))
register_numpy_function(np.dsplit, _splitter("dsplit", 3, lambda rank: 2))


@register_numpy_function(np.unstack)
def _(x: Any, /, *, axis: int = 0) -> Any:
    slabs = np.moveaxis(x, axis, 0)
    return tuple([slabs[i] for i in range(slabs.shape[0])])


# ---- tile ----


def _pairs(first: Sequence[Any], second: Sequence[Any]) -> tuple[Any, ...]:
    """Return the items of two sequences in turn."""
    return tuple([n for pair in zip(first, second, strict=True) for n in pair])


def _ones(rank: int) -> list[int]:
    return [1] * rank


def _tiled(x: Any, reps: Sequence[int]) -> Any:
    """Repeat an array beside itself, so many times along each axis."""
    wide = np.broadcast_to(
        np.reshape(x, _pairs(_ones(x.ndim), x.shape)), _pairs(reps, x.shape)
    )
    whole = tuple([c * n for c, n in zip(reps, x.shape, strict=True)])
    return np.reshape(copied(wide, "C"), whole)


def _numpy_tile(x: Any, reps: Sequence[int]) -> Any:
    if len(reps) != x.ndim:
        return _tiled(x, reps)  # raises
    return np.tile(x, tuple(reps))


def _fake_tile(x: Any, reps: Any) -> FakeArray:
    whole = [c * n for c, n in zip(reps, x.shape, strict=True)]
    if any(is_below(c, 0) for c in reps):
        numpy_refuses(np.tile, [0], -1)
    return FakeArray(whole, x.dtype, device=device_of(x))


def _untiled(g: Any, shape: Sequence[Any], reps: Sequence[Any]) -> Any:
    """Return the sum of the gradients of all copies."""
    axes = tuple(range(0, 2 * len(shape), 2))
    return np.sum(np.reshape(g, _pairs(reps, shape)), axis=axes)


_tile: Operator[..., Any] = linear(
    "tile",
    "(Array x, int[] reps) -> Array",
    _tiled,
    cpu=_numpy_tile,
    fake=_fake_tile,
    transpose=_untiled,
    rows={"reps": lambda reps, shape: [1, *reps]},
)


@register_numpy_function(np.tile)
def _(A: Any, reps: Any) -> Any:  # noqa: N803  # NumPy's name
    counts = [size_of(n) for n in as_ints(reps)]
    rank = max(A.ndim, len(counts))
    counts = _ones(rank - len(counts)) + counts
    if rank > A.ndim:
        A = np.reshape(A, (*_ones(rank - A.ndim), *A.shape))  # noqa: N806  # NumPy's
    if all(type(n) is int for n in A.shape) and 0 in A.shape:
        # As NumPy: a view.
        return np.reshape(A, [c * n for c, n in zip(counts, A.shape, strict=True)])
    if all(type(n) is int and n == 1 for n in counts):
        return np.copy(A)  # in the same order in memory
    return _tile.run(A, counts)


# ---- repeat ----


def _repeated(x: Any, count: int, axis: int) -> Any:
    """Repeat each element along an axis so many times."""
    axis = normalize_axis_index(axis, x.ndim)
    shape = tuple(x.shape)
    wide = np.broadcast_to(
        np.expand_dims(x, axis + 1), (*shape[: axis + 1], count, *shape[axis + 1 :])
    )
    repeated = copied(wide, "C")  # a reshape alone may be a view
    return np.reshape(
        repeated, (*shape[:axis], shape[axis] * count, *shape[axis + 1 :])
    )


def _fake_repeat(x: Any, count: Any, axis: int) -> FakeArray:
    axis = normalize_axis_index(axis, x.ndim)
    shape = list(x.shape)
    shape[axis] *= count
    return FakeArray(shape, x.dtype, device=device_of(x))


def _unrepeated(g: Any, shape: Sequence[Any], count: Any, axis: int) -> Any:
    """Return the sum of the gradients of the copies of each element."""
    after = axis % len(shape) + 1
    apart = np.reshape(g, (*shape[:after], count, *shape[after:]))
    if type(g) is np.ndarray and after == len(shape) and 0 < count < 8:
        # np.sum of so few neighbors takes 5 to 30 times as long (NumPy 2.4); from 8 on it
        # adds in another order.
        return sum([apart[..., i] for i in range(1, count)], apart[..., 0])
    return np.sum(apart, axis=after)


_repeat: Operator[..., Any] = linear(
    "repeat",
    "(Array x, int count, int axis) -> Array",
    _repeated,
    cpu=lambda x, count, axis: x.repeat(count, axis),
    fake=_fake_repeat,
    transpose=_unrepeated,
    rows={"axis": past_rows},
)


@register_numpy_function(np.repeat)
def _(a: Any, repeats: Any, axis: int | None = None) -> Any:
    if axis is None:
        a, axis = a if a.ndim == 1 else np.ravel(a), 0
    else:
        a = lined(a, axis)
        axis = normalize_axis_index(axis, a.ndim)
    if isinstance(repeats, int | SymInt):
        return _repeat.run(a, repeats, axis)
    if not is_plain(repeats):
        wide = np.broadcast_to(repeats, (a.shape[axis],))
        return np.take(a, repeated_places(wide), axis)
    counts: Any = repeats if isinstance(repeats, np.generic) else value_of(repeats)
    if np.size(counts) != 1:
        return np.take(a, np.repeat(np.arange(int(a.shape[axis])), counts), axis)
    # NumPy says which numbers it takes: Python's floats, but not arrays of floats.
    np.zeros(0).repeat(counts)
    return _repeat.run(a, int(np.asarray(counts).item()), axis)


def _repeated_places(counts: Any) -> Any:
    if np.any(counts < 0):
        numpy_refuses(np.repeat, [0, 0], [-1, 1])
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.searchsorted(ends, numbers(0, total, counts), "right")


repeated_places: Operator[..., Any] = numpy_operator(
    "repeated_places",
    "(Array counts) -> Array",
    _repeated_places,
    tags=Tag.dynamic_output_shape,
)
repeated_places.register_kernel(
    "cpu", lambda counts: np.repeat(np.arange(counts.shape[0]), counts)
)
no_gradient(repeated_places)
repeated_places.register_sample_inputs(
    lambda: [(np.array([2, 0, 1]),), (np.array([3]),), (np.zeros(0, int),)]
)


@repeated_places.register_fake
def _(counts: Any) -> FakeArray:
    np.zeros(0).repeat(np.zeros(0, counts.dtype))  # raises for floats, as NumPy does
    size = get_ctx().new_dynamic_size()
    return FakeArray((size,), np.intp, device=device_of(counts))


@repeated_places.register_vmap
def _(info: Any, in_dims: Any, counts: Any) -> Any:
    raise DataDependentError(
        f"np.repeat by counts that are not known, under vmap of {info.batch_size} rows:"
        " the shape of the result depends on data",
        do="give plain integers, or np.take(x, places, axis) with a place for each"
        " element; or map(f, rows), which runs f once for each row",
    )
