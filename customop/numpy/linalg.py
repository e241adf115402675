"""Products of matrices and of arrays along axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from customop import (
    ArgumentError,
    FakeArray,
    Operator,
    ShapeError,
    custom_op,
    fake_like,
    register_numpy_function,
)
from customop.numpy.create import eye
from customop.numpy.reduce import (
    listed_axes,
    note_input_and_output,
    reduction_of,
    refuse,
    spread,
)
from customop.numpy.rules import (
    fit,
    is_complex,
    keep_order,
    result_dtype,
    shape_of,
)

__all__: list[str] = []

# ---- matmul ----


@custom_op("np::matmul", mutates_args=(), schema="(Array x1, Array x2) -> Array")
def matmul(x1: Any, x2: Any) -> Any:
    return np.matmul(x1, x2)


register_numpy_function(np.matmul, matmul)


@matmul.register_fake
def _(x1: Any, x2: Any) -> FakeArray:
    dtype = result_dtype(np.matmul, (x1.dtype, x2.dtype))
    shape = _matmul_shape(x1.shape, x2.shape)
    device = fake_like(x1).device
    if max(len(x1.shape), len(x2.shape)) < 4:
        return FakeArray(shape, dtype, device=device)
    return FakeArray(shape, dtype, _matmul_strides(x1, x2, shape, dtype), device)


def _matmul_strides(x1: Any, x2: Any, shape: Sequence[int], dtype: Any) -> list[int]:
    """Strides of a product: matrices in C order, batches in the order of the factors.

    Source: the iterator of generalized ufuncs, NumPy 2.4.
    """
    ranks = [max(len(x.shape) - 2, 0) for x in (x1, x2)]
    batches = [
        FakeArray(x.shape[:rank], dtype, x.strides[:rank])
        for x, rank in zip((x1, x2), ranks, strict=True)
    ]
    outer = keep_order(batches, dtype).strides
    core = shape[len(outer) :]
    size = max(math.prod(core), 1)
    inner = FakeArray(core, dtype).strides
    return [*(stride * size for stride in outer), *inner]


def _matmul_shape(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of a matrix product; raises as NumPy does where there is none."""
    if not first or not second:
        raise ShapeError(
            "np.matmul: an array without axes has no matrix product", do="use x * y"
        )
    a = first if len(first) > 1 else (1, *first)
    b = second if len(second) > 1 else (*second, 1)
    if a[-1] != b[-2]:
        raise ShapeError(
            f"np.matmul: shapes {first} and {second} differ in the summed axis",
            do="transpose or reshape one of them",
        )
    batch = np.broadcast_shapes(a[:-2], b[:-2])
    rows = a[-2:-1] if len(first) > 1 else ()
    columns = b[-1:] if len(second) > 1 else ()
    return (*batch, *rows, *columns)


def _note_operands(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _flipped(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)


def _matmul_backward(ctx: Any, g: Any) -> tuple[Any, Any]:
    x1, x2 = ctx.saved_arrays
    need1, need2 = ctx.needs_input_grad
    g1 = fit(_first_grad(g, x1, x2), x1) if need1 else None
    g2 = fit(_second_grad(g, x1, x2), x2) if need2 else None
    return g1, g2


def _first_grad(g: Any, x1: Any, x2: Any) -> Any:
    """Gradient of the first factor; axes that broadcasting added are not summed."""
    if x2.ndim == 1:
        return np.expand_dims(g, -1) * x2
    if x1.ndim == 1:
        return np.squeeze(np.matmul(x2, np.expand_dims(g, -1)), -1)
    return np.matmul(g, _flipped(x2))


def _second_grad(g: Any, x1: Any, x2: Any) -> Any:
    """Gradient of the second factor; axes that broadcasting added are not summed."""
    if x1.ndim == 1:
        return np.expand_dims(x1, -1) * np.expand_dims(g, -2) if x2.ndim > 1 else x1 * g
    if x2.ndim == 1:
        return np.squeeze(np.matmul(_flipped(x1), np.expand_dims(g, -1)), -1)
    return np.matmul(_flipped(x1), g)


matmul.register_autograd(_matmul_backward, setup_context=_note_operands)


@matmul.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    (x1, x2), (t1, t2) = primals, tangents
    y = matmul(x1, x2)
    parts = []
    if t1 is not None:
        parts.append(fit(np.matmul(t1, x2), y))
    if t2 is not None:
        parts.append(fit(np.matmul(x1, t2), y))
    return y, parts[0] if len(parts) == 1 else parts[0] + parts[1]


@matmul.register_vmap
def _(info: Any, in_dims: Any, x1: Any, x2: Any) -> Any:
    """Rows become matrices, so that NumPy's batches of matrices pair them."""
    dim1, dim2 = in_dims
    is_vector1 = x1.ndim - (dim1 is not None) == 1
    is_vector2 = x2.ndim - (dim2 is not None) == 1
    a = x1 if dim1 is None else np.moveaxis(x1, dim1, 0)
    b = x2 if dim2 is None else np.moveaxis(x2, dim2, 0)
    a = np.expand_dims(a, -2) if is_vector1 else a
    b = np.expand_dims(b, -1) if is_vector2 else b
    rank = max(a.ndim - (dim1 is not None), b.ndim - (dim2 is not None))
    a = a if dim1 is None else _padded(a, rank)
    b = b if dim2 is None else _padded(b, rank)
    out = np.matmul(a, b)
    out = np.squeeze(out, -2) if is_vector1 else out
    return np.squeeze(out, -1) if is_vector2 else out, 0


def _padded(batch: Any, rank: int) -> Any:
    """A batch whose rows have `rank` axes, new ones of length 1 in front."""
    missing = rank - (batch.ndim - 1)
    if not missing:
        return batch
    return np.reshape(batch, (batch.shape[0], *(1,) * missing, *batch.shape[1:]))


# ---- tensordot ----


@custom_op(
    "np::tensordot",
    mutates_args=(),
    schema="(Array a, Array b, int[] axes_a, int[] axes_b) -> Array",
)
def tensordot(a: Any, b: Any, axes_a: Any, axes_b: Any) -> Any:
    return np.tensordot(a, b, (axes_a, axes_b))


def _free(ndim: int, axes: Sequence[int]) -> tuple[list[int], tuple[int, ...]]:
    """Axes that are not summed, and those that are, counted from the front."""
    summed = normalize_axis_tuple(axes, ndim)
    return [i for i in range(ndim) if i not in summed], summed


@tensordot.register_fake
def _(a: Any, b: Any, axes_a: Any, axes_b: Any) -> FakeArray:
    free_a, summed_a = _free(len(a.shape), axes_a)
    free_b, summed_b = _free(len(b.shape), axes_b)
    if [a.shape[i] for i in summed_a] != [b.shape[i] for i in summed_b]:
        raise ShapeError(
            f"np.tensordot: shapes {a.shape} and {b.shape} differ along the summed axes"
            f" {summed_a} and {summed_b}",
            do="name pairs of axes of one length",
        )
    shape = [*(a.shape[i] for i in free_a), *(b.shape[i] for i in free_b)]
    dtype = result_dtype(np.multiply, (a.dtype, b.dtype))
    return FakeArray(shape, dtype, device=fake_like(a).device)


def _note_tensordot(ctx: Any, inputs: Any, output: Any) -> None:
    a, b, ctx.axes_a, ctx.axes_b = inputs
    ctx.save_for_backward(a, b)


def _sorted_by(x: Any, places: Sequence[int]) -> Any:
    """An array whose axes stand for `places`, with its axes sorted by them."""
    return np.transpose(x, _ranking(places))


def _ranking(places: Sequence[int]) -> list[int]:
    """The positions of some numbers, from the smallest number to the largest."""
    return sorted(range(len(places)), key=lambda i: places[i])


def _tensordot_backward(ctx: Any, g: Any) -> tuple[Any, ...]:
    a, b = ctx.saved_arrays
    free_a, summed_a = _free(a.ndim, ctx.axes_a)
    free_b, summed_b = _free(b.ndim, ctx.axes_b)
    by_a, by_b = _ranking(summed_a), _ranking(summed_b)
    grad_a = grad_b = None
    if ctx.needs_input_grad[0]:
        last = list(range(len(free_a), g.ndim))
        raw = np.tensordot(g, b, (last, free_b))
        grad_a = fit(_sorted_by(raw, [*free_a, *(summed_a[i] for i in by_b)]), a)
    if ctx.needs_input_grad[1]:
        raw = np.tensordot(a, g, (free_a, list(range(len(free_a)))))
        grad_b = fit(_sorted_by(raw, [*(summed_b[i] for i in by_a), *free_b]), b)
    return grad_a, grad_b, None, None


tensordot.register_autograd(_tensordot_backward, setup_context=_note_tensordot)


def _sum_of(parts: Sequence[Any], y: Any) -> Any:
    """Tangents added, in the dtype of the output."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return fit(total, y)


@tensordot.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    (a, b, axes_a, axes_b), (ta, tb, *_) = primals, tangents
    y = tensordot(a, b, axes_a, axes_b)
    parts = [] if ta is None else [tensordot(ta, b, axes_a, axes_b)]
    parts += [] if tb is None else [tensordot(a, tb, axes_a, axes_b)]
    return y, _sum_of(parts, y)


@tensordot.register_vmap
def _(info: Any, in_dims: Any, a: Any, b: Any, axes_a: Any, axes_b: Any) -> Any:
    dim_a, dim_b, *_ = in_dims
    free_a, summed_a = _free(a.ndim - (dim_a is not None), axes_a)
    free_b, summed_b = _free(b.ndim - (dim_b is not None), axes_b)
    if dim_b is None:
        shifted = [i + (i >= dim_a) for i in summed_a]
        return tensordot(a, b, shifted, axes_b), dim_a - sum(i < dim_a for i in shifted)
    if dim_a is None:
        shifted = [i + (i >= dim_b) for i in summed_b]
        place = len(free_a) + dim_b - sum(i < dim_b for i in shifted)
        return tensordot(a, b, axes_a, shifted), place
    left = _matrices(np.moveaxis(a, dim_a, 0), free_a, summed_a)
    right = _matrices(np.moveaxis(b, dim_b, 0), summed_b, free_b)
    rows_a, rows_b = np.moveaxis(a, dim_a, 0), np.moveaxis(b, dim_b, 0)
    lengths = [rows_a.shape[i + 1] for i in free_a]
    lengths += [rows_b.shape[i + 1] for i in free_b]
    return np.reshape(np.matmul(left, right), (info.batch_size, *lengths)), 0


def _matrices(batch: Any, rows: Sequence[int], columns: Sequence[int]) -> Any:
    """A batch of arrays as matrices: some of their axes as rows, others as columns."""
    moved = np.transpose(batch, (0, *(i + 1 for i in rows), *(i + 1 for i in columns)))
    shape = moved.shape
    count = 1 + len(rows)
    height, width = math.prod(shape[1:count]), math.prod(shape[count:])
    return np.reshape(moved, (shape[0], height, width))


@register_numpy_function(np.tensordot)
def _(a: Any, b: Any, axes: Any = 2) -> Any:
    if isinstance(axes, int):
        count = len(shape_of(a))
        return tensordot(a, b, list(range(count - axes, count)), list(range(axes)))
    axes_a, axes_b = axes
    return tensordot(a, b, listed_axes(axes_a), listed_axes(axes_b))


# ---- products made of those above ----


@register_numpy_function(np.dot)
def _(a: Any, b: Any, out: Any = None) -> Any:
    refuse("dot", out=out)
    ndim = len(shape_of(b))
    if not ndim or not shape_of(a):
        return np.multiply(a, b)
    return matmul(a, b) if ndim <= 2 else tensordot(a, b, [-1], [-2])


@register_numpy_function(np.inner)
def _(a: Any, b: Any) -> Any:
    ranks = {len(shape_of(a)), len(shape_of(b))}
    if 0 in ranks:
        return np.multiply(a, b)
    return matmul(a, b) if ranks == {1} else tensordot(a, b, [-1], [-1])


@register_numpy_function(np.vdot)
def _(a: Any, b: Any) -> Any:
    first = np.conjugate(a) if is_complex(a) else a
    return matmul(np.reshape(first, (-1,)), np.reshape(b, (-1,)))


@register_numpy_function(np.outer)
def _(a: Any, b: Any, out: Any = None) -> Any:
    refuse("outer", out=out)
    return np.multiply(np.reshape(a, (-1, 1)), np.reshape(b, (1, -1)))


@register_numpy_function(np.kron)
def _(a: Any, b: Any) -> Any:
    rank = max(len(shape_of(a)), len(shape_of(b)))
    first, second = ((*(1,) * (rank - len(shape_of(x))), *shape_of(x)) for x in (a, b))
    # Axes of the two alternate, and each pair becomes one.
    wide_a = np.reshape(a, [n for length in first for n in (length, 1)])
    wide_b = np.reshape(b, [n for length in second for n in (1, length)])
    lengths = [m * n for m, n in zip(first, second, strict=True)]
    return np.reshape(np.multiply(wide_a, wide_b), lengths)


# ---- einsum ----

# As string.ascii_letters, whose module is imported by nothing else here.
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@custom_op(
    "np::einsum",
    mutates_args=(),
    schema="(str subscripts, Array[] operands, bool optimize=False) -> Array",
)
def einsum(subscripts: str, operands: Any, optimize: bool = False) -> Any:
    out = np.einsum(subscripts, *operands, optimize=optimize)
    # One operand may come back as a view of it; others in the order of the operands.
    is_fresh = len(operands) > 1 and getattr(out.flags, "c_contiguous", True)
    return out if is_fresh else out.copy()


@lru_cache(maxsize=1024)
def _terms(subscripts: str, ranks: tuple[int, ...]) -> tuple[tuple[str, ...], str]:
    """Letters of the operands and of the result, with letters for each ellipsis."""
    text = subscripts.replace(" ", "")
    given, arrow, result = text.partition("->")
    terms = given.split(",")
    if len(terms) != len(ranks):
        raise ShapeError(
            f"np.einsum: '{subscripts}' names {len(terms)} operands, got {len(ranks)}",
            do="give a term for each operand",
        )
    spare = _spare_letters(text)
    counts = [r - len(t.replace("...", "")) for t, r in zip(terms, ranks, strict=True)]
    wide = spare[
        : max((n for t, n in zip(terms, counts, strict=True) if "..." in t), default=0)
    ]
    for term, count in zip(terms, counts, strict=True):
        if count < 0 or (count and "..." not in term):
            raise ShapeError(
                f"np.einsum: '{term}' in '{subscripts}' does not fit an operand of"
                f" {count + len(term.replace('...', ''))} axes",
                do="name each axis once, or write '...' for the rest",
            )
    pairs = zip(terms, counts, strict=True)
    full = tuple(t.replace("...", wide[len(wide) - max(n, 0) :]) for t, n in pairs)
    if arrow:
        return full, result.replace("...", wide)
    letters = given.replace("...", "").replace(",", "")
    return full, wide + "".join(sorted(c for c in letters if letters.count(c) == 1))


def _spare_letters(text: str) -> str:
    return "".join(c for c in _LETTERS if c not in text)


def _ranks(operands: Sequence[Any]) -> tuple[int, ...]:
    return tuple(len(x.shape) for x in operands)


def _joined(terms: Sequence[str], result: str) -> str:
    return f"{','.join(terms)}->{result}"


@einsum.register_fake
def _(subscripts: Any, operands: Any, optimize: Any) -> FakeArray:
    terms, result = _terms(subscripts, _ranks(operands))
    lengths: dict[str, Any] = {}
    for term, x in zip(terms, operands, strict=True):
        for letter, length in zip(term, x.shape, strict=True):
            known = lengths.setdefault(letter, length)
            if known == 1:
                lengths[letter] = length
            elif length not in (1, known):
                raise ShapeError(
                    f"np.einsum: '{letter}' in '{subscripts}' is {known} and {length}"
                    " long",
                    do="name axes of one length alike",
                )
    dtype = np.result_type(*(x.dtype for x in operands))
    shape = [lengths[letter] for letter in result]
    return FakeArray(shape, dtype, device=fake_like(operands[0]).device)


def _note_einsum(ctx: Any, inputs: Any, output: Any) -> None:
    subscripts, operands, ctx.optimize = inputs
    ctx.terms, ctx.result = _terms(subscripts, _ranks(operands))
    ctx.save_for_backward(*operands)


def _einsum_backward(ctx: Any, g: Any) -> tuple[Any, ...]:
    operands = ctx.saved_arrays
    grads = [
        fit(_operand_grad(g, i, operands, ctx), x) if asked else None
        for i, (x, asked) in enumerate(
            zip(operands, ctx.needs_input_grad[1], strict=True)
        )
    ]
    return None, grads, None


def _operand_grad(g: Any, index: int, operands: Sequence[Any], ctx: Any) -> Any:
    """Gradient of one operand: the sum with the cotangent in its place.

    Letters that nothing else has are broadcast over, and for a letter that the
    operand repeats the gradient lies on the diagonal.
    """
    term, x = ctx.terms[index], operands[index]
    others = [t for i, t in enumerate(ctx.terms) if i != index]
    known = set("".join([ctx.result, *others]))
    letters = "".join(dict.fromkeys(term))
    reached = "".join(c for c in letters if c in known)
    arrays = [g, *(y for i, y in enumerate(operands) if i != index)]
    found = einsum(_joined([ctx.result, *others], reached), arrays, ctx.optimize)
    return _on_diagonal(_filled(found, reached, letters, term, x), letters, term)


def _filled(found: Any, reached: str, letters: str, term: str, x: Any) -> Any:
    """A gradient with the axes that it lacks, as wide as the operand at least."""
    lengths = dict(zip(reached, found.shape, strict=True))
    wide = np.reshape(found, [lengths.get(c, 1) for c in letters])
    own = [x.shape[term.index(c)] for c in letters]
    shape = [m if n == 1 else n for m, n in zip(wide.shape, own, strict=True)]
    return wide if tuple(wide.shape) == tuple(shape) else np.broadcast_to(wide, shape)


def _on_diagonal(found: Any, letters: str, term: str) -> Any:
    """A gradient with the axes of repeated letters: zero off their diagonal."""
    if letters == term:
        return found
    spare = iter(_spare_letters(term))
    terms, arrays, result = [letters], [found], ""
    for letter in term:
        if letter not in result:
            result += letter
            continue
        twin = next(spare)
        length = found.shape[letters.index(letter)]
        device = fake_like(found).device
        terms.append(letter + twin)
        arrays.append(eye(length, None, 0, found.dtype, device))
        result += twin
    return einsum(_joined(terms, result), arrays)


einsum.register_autograd(_einsum_backward, setup_context=_note_einsum)


@einsum.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    subscripts, operands, optimize = primals
    y = einsum(subscripts, operands, optimize)
    parts = []
    for i, t in enumerate(tangents[1]):
        if t is not None:
            moved = [*operands[:i], t, *operands[i + 1 :]]
            parts.append(einsum(subscripts, moved, optimize))
    return y, _sum_of(parts, y)


@einsum.register_vmap
def _(info: Any, in_dims: Any, subscripts: Any, operands: Any, optimize: Any) -> Any:
    dims = in_dims[1]
    pairs = list(zip(operands, dims, strict=True))
    ranks = tuple(len(x.shape) - (d is not None) for x, d in pairs)
    terms, result = _terms(subscripts, ranks)
    batch = _spare_letters("".join(terms))[0]
    batched = [
        t if d is None else t[:d] + batch + t[d:]
        for t, d in zip(terms, dims, strict=True)
    ]
    return einsum(_joined(batched, batch + result), operands, optimize), 0


@register_numpy_function(np.einsum)
def _(
    *operands: Any,
    out: Any = None,
    optimize: Any = False,
    dtype: Any = None,
    **rest: Any,
) -> Any:
    refuse("einsum", out=out, dtype=dtype, **rest)
    subscripts, *arrays = operands
    if not isinstance(subscripts, str):
        raise ArgumentError(
            "np.einsum with lists of axes has no operator for traced or fake arrays",
            do='write the subscripts as text: np.einsum("ij,jk->ik", x, y)',
        )
    return einsum(subscripts, arrays, bool(optimize))


# ---- norms ----


def _norm_kernel(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    axes = None if axis is None else tuple(axis)
    squares = (x * x.conj()).real if x.dtype.kind == "c" else x * x
    return np.sqrt(squares.sum(axis=axes, keepdims=keepdims))


norm: Operator[..., Any] = reduction_of("norm", _norm_kernel)


def _direction(x: Any, y: Any, axis: Any, keepdims: bool) -> Any:
    """Derivative of the 2-norm by each element; not a number where the norm is zero."""
    top = np.conjugate(x) if is_complex(x) else x
    return top / spread(y, x.shape, axis, keepdims)


def _norm_backward(ctx: Any, g: Any) -> tuple[Any, None, None]:
    x, y = ctx.saved_arrays
    wide = spread(g, x.shape, ctx.axis, ctx.keepdims)
    return wide * _direction(x, y, ctx.axis, ctx.keepdims), None, None


norm.register_autograd(_norm_backward, setup_context=note_input_and_output)


@norm.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    x, axis, keepdims = primals
    y = norm(x, axis, keepdims)
    moved = fit(tangents[0] * _direction(x, y, axis, keepdims), y)
    axes = None if axis is None else tuple(axis)
    return y, np.sum(moved, axis=axes, keepdims=keepdims)


@register_numpy_function(np.linalg.norm)
def _(x: Any, ord: Any = None, axis: Any = None, keepdims: Any = False) -> Any:  # noqa: A002  # NumPy's name
    axes = listed_axes(axis)
    if axes is None and ord is not None:
        axes = list(range(len(shape_of(x))))
    floats = x if fake_like(x).dtype.kind in "fc" else x.astype(float)
    if ord is None or (axes is not None and len(axes) == 1 and ord == 2):
        return norm(floats, axes, bool(keepdims))
    if axes is not None and len(axes) == 1:
        return _vector_norm(floats, ord, axes[0], bool(keepdims))
    return _matrix_norm(floats, ord, axes, bool(keepdims))


def _vector_norm(x: Any, order: Any, axis: int, keepdims: bool) -> Any:
    if isinstance(order, str):
        raise ArgumentError(
            f"np.linalg.norm(ord={order!r}) is no norm of a vector",
            do="use ord=None, a number, inf or -inf",
        )
    if order == 0:
        return np.sum(np.not_equal(x, 0).astype(x.dtype), axis=axis, keepdims=keepdims)
    size = np.absolute(x)
    if order == np.inf:
        return np.max(size, axis=axis, keepdims=keepdims)
    if order == -np.inf:
        return np.min(size, axis=axis, keepdims=keepdims)
    if order == 1:
        return np.sum(size, axis=axis, keepdims=keepdims)
    return np.sum(size**order, axis=axis, keepdims=keepdims) ** (1.0 / order)


# Matrix norms that need no singular values -> the axis summed and the extreme taken.
_MATRIX_NORMS = {
    1: (0, np.max),
    -1: (0, np.min),
    np.inf: (1, np.max),
    -np.inf: (1, np.min),
}


def _matrix_norm(x: Any, order: Any, axes: Any, keepdims: bool) -> Any:
    if order == "fro":
        return norm(x, axes, keepdims)
    if order not in _MATRIX_NORMS or len(axes) != 2:
        raise ArgumentError(
            f"np.linalg.norm(ord={order!r}) has no operator for traced or fake arrays of"
            f" {len(axes)} axes",
            do="use ord=None, 'fro', 1, -1, inf or -inf",
        )
    summed, extreme = _MATRIX_NORMS[order]
    places = normalize_axis_tuple(axes, x.ndim)
    totals = np.sum(np.absolute(x), axis=places[summed], keepdims=True)
    found = extreme(totals, axis=places[1 - summed], keepdims=True)
    return found if keepdims else np.squeeze(found, tuple(axes))
