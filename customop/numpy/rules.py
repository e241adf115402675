"""Rules that many NumPy operators share: fake kernels, layouts, warnings, batches."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from customop import (
    FakeArray,
    Operator,
    Tag,
    Tracer,
    axis_rule,
    custom_op,
    fake_like,
    impl,
    partials,
    write_back,
)
from customop.numpy.arguments import (
    as_dtype,
    broadcast,
    class_of,
    copied,
    dtype_of,
    has_none,
    is_one,
    product,
    typical,
    wide_to,
)

# ---- fake kernels of elementwise operators, and fake arrays of views ----


def device_of(x: Any) -> str:
    """Return the name of the device of an array."""
    while isinstance(x, Tracer):
        x = x.below
    if type(x) is np.ndarray:
        return "cpu"
    return x.device if type(x) is FakeArray else fake_like(x).device


def view_of(x: Any, shape: Iterable[int], strides: Iterable[int]) -> FakeArray:
    """Return the fake array of a view of another one."""
    return FakeArray(tuple(shape), x.dtype, tuple(strides), device_of(x))


def without_ones(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Return lengths and strides of the axes that are not of length one, as numbers."""
    pairs = zip(typical(shape), typical(strides), strict=True)
    return [(n, s) for n, s in pairs if n != 1]


def packed_as(x: Any, shape: Sequence[int], dtype: Any) -> FakeArray:
    """Make a fake array in F order if `x` is contiguous in F order alone.

    Else in C order.

    Else in C order.
    """
    if not _has_fortran_strides(x):
        return FakeArray(shape, dtype, device=device_of(x))
    last_to_first = range(len(shape))[::-1]
    return FakeArray(shape, dtype, device=device_of(x), order=last_to_first)


def _has_fortran_strides(x: Any) -> bool:
    """Return whether an array is contiguous in F order and not in C order."""
    pairs = without_ones(x.shape, x.strides)
    if len(pairs) < 2 or has_none(x.shape):
        return False
    step = x.dtype.itemsize
    for length, stride in pairs:
        if stride != step:
            return False
        step *= length
    return True


@lru_cache(maxsize=4096)
def result_dtype(ufunc: Any, kinds: tuple[Any, ...]) -> Any:
    """Return the dtype of a ufunc's result, for dtypes and classes of numbers."""
    samples = [np.empty(0, k) if isinstance(k, np.dtype) else k(1) for k in kinds]
    return ufunc(*samples).dtype


def fake_of_ufunc(ufunc: Any) -> Callable[..., FakeArray]:
    """Make the fake kernel of a ufunc with one output."""

    def unary(x: Any) -> FakeArray:
        dtype = result_dtype(ufunc, (x.dtype,))
        # Unlike numpy.empty_like, ufuncs do not look at axes of stride 0.
        return keep_order((x,), dtype) if _repeats(x) else fake_like(x, dtype=dtype)

    def binary(x1: Any, x2: Any) -> FakeArray:
        kinds = kind_of(x1), kind_of(x2)
        if int in kinds:
            check_range(ufunc, x1, x2)
        return keep_order((x1, x2), result_dtype(ufunc, kinds))

    return unary if ufunc.nin == 1 else binary


def check_range(ufunc: Any, *operands: Any) -> None:
    """Raise as NumPy does for an int of Python that an array beside it cannot hold."""
    samples = [np.empty(0, x.dtype) if hasattr(x, "dtype") else x for x in operands]
    is_whole = any(getattr(s, "dtype", _FLOAT).kind in "biu" for s in samples)
    numbers = [_large_int(s) for s in samples]
    if is_whole and any(n is not None for n in numbers):
        pairs = zip(samples, numbers, strict=True)
        ufunc(*[s if n is None else n for s, n in pairs])


def check_held(value: Any, dtype: Any) -> None:
    """Raise as NumPy does for an int of Python that arrays of a dtype cannot hold."""
    number = _large_int(value)
    if number is not None and as_dtype(dtype).kind in "iu":
        np.asarray(number, dtype)


def _large_int(value: Any) -> int | None:
    """Return an int, at tracing that of a symbolic one, unless every dtype holds it."""
    if hasattr(value, "dtype") or class_of(value) is not int:
        return None
    number = getattr(value, "hint", value)
    return None if number is None or 0 <= number <= _SMALLEST else number


_FLOAT = np.dtype(float)
_SMALLEST = np.iinfo(np.int8).max


def kind_of(x: Any) -> Any:
    """Return the dtype of an array, or the Python class of a number."""
    return x.dtype if hasattr(x, "dtype") else class_of(x)


def keep_order(operands: Sequence[Any], dtype: Any) -> FakeArray:
    """Make the fake result of an elementwise operation.

    Its shape is broadcast. Its axes have the order in memory that fits the operands,
    as with ``order="K"`` in ``numpy.nditer``, NumPy 2.4.
    """
    arrays = [x for x in operands if hasattr(x, "shape")]
    first = next((x for x in arrays if isinstance(x, FakeArray)), arrays[0])
    are_alike = all(
        x.shape is first.shape and x.strides is first.strides for x in arrays
    )
    if are_alike and not _repeats(first):
        return fake_like(first, dtype=dtype)  # of one array, or of equal ones
    shapes = [tuple(x.shape) for x in arrays]
    shape = shapes[0] if len(set(shapes)) == 1 else broadcast(*shapes)
    strides = tuple(typical(_broadcast_strides(x, shape)) for x in arrays)
    order = order_of(len(shape), strides)
    return FakeArray(shape, dtype, device=device_of(first), order=order)


def _repeats(x: Any) -> bool:
    """Return whether some axis has stride 0, so that elements share memory."""
    return any(type(step) is int and step == 0 for step in getattr(x, "strides", ()))


def _broadcast_strides(x: Any, shape: Sequence[int]) -> tuple[int, ...]:
    missing = len(shape) - len(x.shape)
    own = zip(x.shape, x.strides, strict=True)
    return (0,) * missing + tuple(0 if is_one(n) else s for n, s in own)


@lru_cache(maxsize=4096)
def order_of(ndim: int, strides: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """Return axes from slowest to fastest, sorted by the strides of all operands."""
    order = list(range(ndim))
    for i in range(len(order) - 2, -1, -1):
        to = i
        for j in range(i + 1, len(order)):
            votes = _votes(order[i], order[j], strides)
            if votes and not all(votes):
                break
            # An axis without votes does not end the search.
            to = j if votes else to
        order.insert(to, order.pop(i))
    return tuple(order)


def _votes(a: int, b: int, strides: Sequence[tuple[int, ...]]) -> list[bool]:
    """Return whether `a` lies inside `b`, for each operand with strides along both."""
    return [abs(s[a]) < abs(s[b]) for s in strides if s[a] and s[b]]


def stack_strides(
    operands: Sequence[Any], ranks: Sequence[int], core: Sequence[int], dtype: Any
) -> list[int]:
    """Return the strides of a result of a generalized ufunc, whose own axes are `core`.

    These are in C order; the axes before them are in the order of those of the operands,
    whose last `ranks` axes are their own. Source: NumPy 2.4.
    """
    batches = []
    for x, rank in zip(operands, ranks, strict=True):
        count = max(len(x.shape) - rank, 0)
        batches.append(FakeArray(x.shape[:count], dtype, x.strides[:count]))
    outer = keep_order(batches, dtype).strides
    size = product(core)
    size = max(size, 1) if type(size) is int else size
    inner = FakeArray(core, dtype).strides
    return [*(stride * size for stride in outer), *inner]


# ---- rules that many NumPy operators share, made of public names of the package ----


def numpy_operator(
    name: str, schema: str, kernel: Callable[..., Any], **options: Any
) -> Operator[..., Any]:
    """Make an operator of the namespace ``np`` that writes no argument."""
    return custom_op(f"np::{name}", kernel, mutates_args=(), schema=schema, **options)


def whole_operator(
    name: str,
    schema: str,
    body: Callable[..., Any],
    kernel: Callable[..., Any],
    **options: Any,
) -> Operator[..., Any]:
    """Make an operator that a graph keeps as one call of a NumPy function.

    NumPy's function is Python over several kernels, which a composition of operators
    repeats only up to rounding. Transforms for which it has no rule, and arrays of other
    kinds, run that body.
    """
    op = numpy_operator(name, schema, body, **options)
    impl(op, "CompositeImplicitAutograd", body)
    return op.register_kernel("cpu", kernel)


def is_complex(x: Any) -> bool:
    """Return whether an array or number is complex."""
    if isinstance(x, complex):
        return True
    return dtype_kind(getattr(x, "dtype", None)) == "c"


def dtype_kind(dtype: Any) -> str:
    """Return NumPy's letter for the kind of a dtype, also of other libraries' dtypes.

    The name of a dtype in another byte order is only letters and digits: ``>f8``.
    """
    kind = getattr(dtype, "kind", None)
    if kind is not None:
        return str(kind)
    name = str(dtype)
    return next((letter for word, letter in _KINDS.items() if word in name), "")


_KINDS = {"complex": "c", "float": "f", "uint": "u", "int": "i", "bool": "b"}


def fit(g: Any, x: Any) -> Any:
    """Cast a gradient to the dtype of its input; the real part for a real input."""
    own = getattr(
        g, "dtype", None
    )  # none of a product of objects, which is refused later
    return g if own is None or own == x.dtype else in_dtype(g, x.dtype)


def in_dtype(g: Any, dtype: Any) -> Any:
    """Cast a gradient to a dtype; its real part for a real one."""
    if g.dtype == dtype:
        return g
    if is_complex(g) and dtype_kind(dtype) != "c":
        g = np.real(g)
    return g if g.dtype == dtype else g.astype(dtype)


def sum_of(parts: Sequence[Any], y: Any) -> Any:
    """Add up tangents, in the dtype of the output."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return fit(total, y)


def no_gradient(op: Operator[..., Any]) -> Operator[..., Any]:
    """Register that the results of an operator have no derivative."""
    count = len(op.schema.positional)

    def block(
        ctx: Any, inputs: Any, output: Any, keyword_only_inputs: Any = None
    ) -> None:
        ctx.mark_non_differentiable(
            *(output if isinstance(output, tuple) else (output,))
        )

    op.register_autograd(lambda ctx, *grads: (None,) * count, setup_context=block)
    return op.register_jvp(
        lambda primals, tangents, **keywords: (op(*primals, **keywords), None)
    )


# ---- linear operators ----

# How a parameter of an operator changes for a batch: ``change(value, shape)``.
Change = Callable[[Any, Sequence[Any]], Any]


def linear(
    name: str,
    schema: str,
    kernel: Callable[..., Any],
    *,
    fake: Callable[..., Any],
    transpose: Callable[..., Any],
    rows: Mapping[str, Change] | Callable[..., Any] | None = None,
    cpu: Callable[..., Any] | None = None,
    is_rearrangement: bool = False,
) -> Operator[..., Any]:
    """Make an operator that is linear in its first array, with all of its rules.

    Parameters
    ----------
    name, schema, kernel
        One array out; the parameters after the first one are constants.
    fake : callable
        The fake kernel.
    transpose : callable
        ``transpose(g, shape, *constants)``: the gradient of an input of that shape.
    rows : mapping or callable, optional
        The constants that change for a batch whose rows come first, by name, or a
        function for `axis_rule`.
    cpu : callable, optional
        The kernel for arrays of NumPy, if it is another one.
    is_rearrangement : bool
        Whether elements only move, so that the transpose is the inverse. It then puts a
        view that was written back into its array.
    """
    op = numpy_operator(name, schema, kernel).register_fake(fake)
    if cpu is not None:
        op.register_kernel("cpu", cpu)
    if rows is not None:
        op.register_vmap(
            axis_rule(op, rows) if callable(rows) else rows_first(op, **rows)
        )
    if is_rearrangement:
        op.register(
            write_back,
            lambda new, x, *constants: transpose(new, tuple(x.shape), *constants),
        )
    register_linear(op, transpose)
    return op


def register_linear(op: Operator[..., Any], transpose: Callable[..., Any]) -> None:
    """Register autograd and jvp of an operator that is linear in its first array."""
    first, *others = [p.name for p in op.schema.parameters]
    formulas = {first: (transpose, [f"{first}_shape", *others])}
    arrays = [op.schema.parameters[slot].name for slot in op.schema.array_slots]
    op.register_autograd(partials({**dict.fromkeys(arrays), **formulas}))
    register_linear_jvp(op)


def register_linear_jvp(op: Operator[..., Any]) -> None:
    """Register jvp of an operator that is linear in its first array."""

    def jvp(primals: Any, tangents: Any) -> Any:
        t = tangents[0]
        return op.run(*primals), None if t is None else op.run(t, *primals[1:])

    op.register_jvp(jvp)


def register_bilinear(
    op: Operator[..., Any],
    first: Any,
    second: Any,
    product: Callable[..., Any] | None = None,
) -> None:
    """Register autograd and jvp of an operator that is linear in each of two arrays.

    `first` and `second` are formulas for their gradients, as `partials` takes them;
    `product` computes the parts of a tangent, if not the operator.
    """
    names = [op.schema.parameters[slot].name for slot in op.schema.array_slots]
    op.register_autograd(partials(dict(zip(names, (first, second), strict=True))))

    def jvp(primals: Any, tangents: Any) -> Any:
        (a, b, *rest), (ta, tb, *_) = primals, tangents
        part = product or op.run
        y = op.run(a, b, *rest)
        parts = [] if ta is None else [part(ta, b, *rest)]
        parts += [] if tb is None else [part(a, tb, *rest)]
        return y, sum_of(parts, y)

    op.register_jvp(jvp)


def read_only(new: Any, x: Any, *constants: Any) -> Any:
    """Raise: this is the rule `write_back` of a view that cannot be written."""
    np.copyto(np.broadcast_to(0.0, 1), 0.0)


# ---- constants of a row, for a batch ----


def rows_first(op: Operator[..., Any], **changes: Change) -> Any:
    """Make a vmap rule that puts the rows first, and changes some constants by name."""
    names = [p.name for p in op.schema.parameters[1:]]
    at = [(names.index(name), change) for name, change in changes.items()]

    def move(shape: Any, dim: int, *constants: Any) -> tuple[list[Any], int] | None:
        if dim:
            return None  # the rows are put first
        found = [*constants]
        for i, change in at:
            found[i] = change(found[i], shape)
        return found, 0

    return axis_rule(op, move)


def past_rows(axes: Any, shape: Sequence[Any]) -> Any:
    """Return an axis of a row, or several, as axes of the batch.

    An axis counted from the end stays the same.
    """
    if isinstance(axes, int):
        return axes if axes < 0 else axes + 1
    return [axis if axis < 0 else axis + 1 for axis in axes]


def with_count(lengths: Sequence[Any], shape: Sequence[Any]) -> list[Any]:
    """Return the lengths of a row with the number of rows before them."""
    return [shape[0], *lengths]


def along_axis(op: Operator[..., Any]) -> Any:
    """Make the vmap rule of an operator ``op(x, axis, ...)`` that keeps all axes."""

    def move(
        shape: Any, dim: int, axis: int, *rest: Any
    ) -> tuple[tuple[Any, ...], int]:
        own = normalize_axis_index(axis, len(shape) - 1)
        return (own + (own >= dim), *rest), dim

    return axis_rule(op, move)


# ---- formulas that serve autograd and jvp ----


def register_formulas(
    op: Operator[..., Any], names: Sequence[str], formulas: Sequence[Any]
) -> None:
    """Register autograd and jvp of an elementwise operator.

    Parameters
    ----------
    op : Operator
        One array out.
    names : sequence of str
        Names of its inputs in the formulas.
    formulas : sequence of callable or None
        For each input, the derivative times a cotangent or tangent: ``f(g, ...)``, whose
        other parameters are names of inputs, or `y` for the output. None for zero.
    """
    rule = partials(dict(zip(names, formulas, strict=True)), result="y")
    op.register_autograd(rule).register_jvp(rule)


def of_winner(g: Any, x: Any, other: Any, y: Any) -> Any:
    """Return the gradient of `x` where it is the result `y`, half of it at ties, 0 elsewhere.

    The halves are the mean of the one-sided derivatives, as in JAX 0.10 and HIPS
    autograd 1.9.
    """
    mine, ties = g * np.equal(x, y), np.equal(x, other)
    if type(ties) is np.ndarray and not np.count_nonzero(ties):
        return mine
    if is_complex(mine) and mine.shape:  # division by 1 changes signs of zeros
        return np.where(ties, mine / 2, mine)
    return mine / (ties + ONE)


ONE: Any = np.int8(1)  # of the smallest type, so that the others keep theirs


# ---- batches ----


def batch_first(x: Any, dim: int | None, size: int | None = None) -> Any:
    """Put the batch axis of an array at the front.

    An array without one gets an axis of length `size`, or of length one.
    """
    if dim is not None:
        return x if dim == 0 else np.moveaxis(x, dim, 0)
    wide = np.expand_dims(x, 0)
    if size is None:
        return wide
    return wide_to(wide, (size, *x.shape))


def aligned_rows(dims: Sequence[int | None], *arrays: Any) -> list[Any]:
    """Return batches with their rows first and of one rank, so that they broadcast."""
    pairs = [*zip(arrays, dims[: len(arrays)], strict=True)]
    rank = max(x.ndim - (d is not None) for x, d in pairs)
    return [x if d is None else padded_rows(batch_first(x, d), rank) for x, d in pairs]


def padded_rows(batch: Any, rank: int) -> Any:
    """Return a batch whose rows have `rank` axes.

    New ones have length 1, and come first.

    New ones have length 1, and come first.
    """
    missing = rank - (batch.ndim - 1)
    if not missing:
        return batch
    return np.reshape(batch, (batch.shape[0], *(1,) * missing, *batch.shape[1:]))


# ---- how results of several operators lie in memory, where NumPy makes one array ----
# The bits of later sums depend on it. Operators have their own order; here are the few
# functions whose results NumPy lays out as their argument.


class _Lying(NamedTuple):
    """How an array lies in memory, as far as it is known."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any


def _lying(x: Any) -> _Lying | None:
    """Return how an array or tracer lies in memory; None if it does not say so."""
    strides = _strides(x)
    if type(strides) is not tuple or len(strides) != len(x.shape):
        return None
    return _Lying(typical(x.shape), typical(strides), dtype_of(x))


def _strides(x: Any) -> Any:
    if not isinstance(x, Tracer):
        return getattr(x, "strides", None)
    below = _strides(x.below)
    is_row = type(below) is tuple and hasattr(x, "row_strides")
    return x.row_strides(below) if is_row else below


# ---- results that nobody else has ----


def in_order_of(out: Any, x: Any) -> Any:
    """Lay a new array in the order of another one, as ``np.empty_like(x)`` does."""
    found = _lying(x) if len(x.shape) > 1 else None
    if found is None:
        return out
    return _laid(out, order_of(len(x.shape), (found.strides,)))


def packed_like(out: Any, x: Any) -> Any:
    """Lay a new array in F order if another one lies in it, else in C order.

    Its kernel decides, since a graph may be called with another order.
    """
    return _packed_like.run(out, x) if len(out.shape) > 1 else out


def _packed(out: Any, x: Any) -> Any:
    flags = getattr(x, "flags", None)
    return copied(out, "F" if flags is not None and flags.fnc else "C")


_packed_like = numpy_operator("packed_like", "(Array out, Array x) -> Array", _packed)
_packed_like.register_fake(lambda out, x: packed_as(x, out.shape, out.dtype))
_packed_like.register_autograd(partials({"out": (lambda g: g, ()), "x": None}))
register_linear_jvp(_packed_like)


@_packed_like.register_vmap
def _(info: Any, in_dims: Any, out: Any, x: Any) -> tuple[Any, int | None]:
    # Rows lie one after the other.
    if in_dims[0] is None:
        return out, None
    return in_c_order(np.moveaxis(out, in_dims[0], 0)), 0


def in_c_order(out: Any) -> Any:
    """Lay a new array in C order."""
    return _laid(out, range(len(out.shape)))


def columns_first(out: Any) -> Any:
    """Lay new matrices in F order, each by itself, as LAPACK writes them."""
    *outer, row, column = range(len(out.shape))
    return _laid(out, (*outer, column, row))


def _laid(out: Any, order: Sequence[int]) -> Any:
    """Lay the axes of a new array in this order in memory, if they are not."""
    found = _lying(out) if len(out.shape) > 1 else None
    if found is None or has_none(found.shape):
        return out
    steps = [found.strides[i] for i in order if found.shape[i] != 1]
    if all(a > b for a, b in pairwise(steps)):
        return out
    return _copied(out, order)


def _copied(x: Any, order: Sequence[int]) -> Any:
    """Copy an array so that its axes lie in memory in this order."""
    back = [order.index(i) for i in range(len(order))]
    return np.transpose(np.copy(np.transpose(x, order), order="C"), back)


# ---- arrays as they are, or copies ----


def contiguous(x: Any, order: str = "C") -> Any:
    """Return an array that is contiguous in C or F order; copy another one."""
    found = _lying(x)
    if found is None or has_none(found.shape) or not found.shape:
        return x
    axes = range(len(found.shape))[:: -1 if order == "F" else 1]
    step = found.dtype.itemsize
    for i in reversed(axes):
        if found.shape[i] != 1 and found.strides[i] != step:
            return _copied(x, axes)
        step *= found.shape[i]
    return x


# ---- warnings and errors of NumPy that depend on values, also of rows under vmap ----


def _check_flags(x: Any) -> None:
    if dtype_of(x) != np.bool_:
        raise TypeError(f"np::checked takes an array of flags, got {dtype_of(x)}")


def _kernel(x: Any, message: str, warns: bool) -> Any:
    _check_flags(x)
    if not bool(np.all(x)):
        if not warns:
            raise ValueError(message)
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    return x.copy("K") if isinstance(x, np.ndarray) else x.copy()


def _without_warning(x: Any, message: str, warns: bool) -> Any:
    # A warning is not worth the computation of a lazy array.
    return x.copy() if warns else _kernel(x, message, warns)


_checked: Operator[..., Any] = numpy_operator(
    "checked",
    "(Array x, str message, bool warns) -> Array",
    _without_warning,
    tags=Tag.pointwise,
)
for _kind in ("cpu", "cuda"):
    _checked.register_kernel(_kind, _kernel)
no_gradient(_checked)
_checked.register_sample_inputs(
    lambda: [
        (np.array(True), "never", False),
        (np.array([True, True]), "never", True),
        (np.ones((2, 3), bool), "never", False),
    ]
)


@_checked.register_fake
def _(x: Any, message: str, warns: bool) -> FakeArray:
    _check_flags(x)
    return fake_like(x)


def warn_unless(condition: Any, message: str) -> None:
    """Give a RuntimeWarning if a flag of an array is not set."""
    _check(condition, message, True)


def require(condition: Any, message: str) -> None:
    """Raise a ValueError if a flag of an array is not set."""
    _check(condition, message, False)


def _check(condition: Any, message: str, warns: bool) -> None:
    # Flags of NumPy are known also where fake arrays are made.
    is_plain = isinstance(condition, np.ndarray | np.generic)
    check = _kernel if is_plain else _checked
    check(condition, message, warns)
