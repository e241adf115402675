"""Discrete Fourier transforms, convolution and correlation.

Four linear operators over any number of axes serve all functions. The matrix of a
complex transform is symmetric, so it is its own transpose. The transforms between real
arrays and half spectra are the transposes of each other, but for weights: an element of
a half spectrum counts twice if the other half has its conjugate.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from customop import (
    FakeArray,
    Operator,
    fake_like,
    register_numpy_function,
)
from customop.numpy.arguments import (
    as_array,
    as_ints,
    broadcast,
    counted,
    dtype_of,
    is_below,
    is_known,
    larger,
    numpy_refuses,
    same_shape,
    size_of,
    smaller,
    warn_user,
    whole,
    with_zeros,
)
from customop.numpy.index_operators import constant, numbers
from customop.numpy.rules import (
    aligned_rows,
    device_of,
    is_complex,
    numpy_operator,
    register_bilinear,
    register_linear,
)

# ---- discrete Fourier transforms: the functions of `numpy.fft` ----


# The transposed transform has the scale of the inverse in the other convention.
_SWAPPED = {
    None: "forward",
    "backward": "forward",
    "ortho": "ortho",
    "forward": "backward",
}


def _transform(
    name: str, one: Any, many: Any, count: Callable[[int], int] | None = None
) -> Operator[..., Any]:
    """Make the operator of a transform over several axes, each at most once.

    `one` and `many` are NumPy's functions for one axis and for several. `count` gives the
    length of the result along the last of the axes.
    """

    def kernel(x: Any, s: Any, axes: Any, norm: Any = None) -> Any:
        if type(x) is np.ndarray and not x.size:  # irfft (NumPy 2.4) writes no zeros
            x = with_zeros(x, axes)
        if len(axes) == 1:
            return one(x, s[0], axes[0], norm)
        return many(x, s, axes, norm)

    op = numpy_operator(
        name, "(Array x, int[] s, int[] axes, str? norm=None) -> Array", kernel
    )

    @op.register_fake
    def _(x: Any, s: Any, axes: Any, norm: Any) -> FakeArray:
        _check(s, norm)
        shape = list(x.shape)
        for length, axis in zip(s, axes, strict=True):
            shape[normalize_axis_index(axis, len(shape))] = length
        if count is not None:
            shape[axes[-1]] = count(s[-1])
        return fake_like(
            x,
            shape=shape,
            dtype=_result_dtype(one if len(axes) == 1 else many, x.dtype),
        )

    @op.register_vmap
    def _(info: Any, in_dims: Any, x: Any, s: Any, axes: Any, norm: Any) -> Any:
        dim = in_dims[0]
        rows = [a + (a >= dim) for a in counted(axes, x.ndim - 1)]
        return op(x, s, rows, norm), dim

    return op


@lru_cache(maxsize=256)
def _result_dtype(function: Any, dtype: Any) -> Any:
    return function(np.zeros((2, 2), dtype)).dtype


def _check(s: Sequence[int], norm: Any) -> None:
    """Raise for lengths and norms that NumPy refuses, in its words."""
    for length in s:
        if is_below(length, 1):
            numpy_refuses(np.fft.fft, [0.0], length, do="give lengths of at least 1")
    _swapped(norm)


fftn: Operator[..., Any] = _transform("fftn", np.fft.fft, np.fft.fftn)
ifftn: Operator[..., Any] = _transform("ifftn", np.fft.ifft, np.fft.ifftn)
rfftn: Operator[..., Any] = _transform(
    "rfftn", np.fft.rfft, np.fft.rfftn, lambda n: n // 2 + 1
)
irfftn: Operator[..., Any] = _transform(
    "irfftn", np.fft.irfft, np.fft.irfftn, lambda n: n
)

# ---- transposes of the transforms ----


def resized(x: Any, shape: Sequence[int]) -> Any:
    """Cut an array at the ends of its axes, or add zeros there."""
    if same_shape(x.shape, shape):
        return x
    if not all((n <= m) is True for n, m in zip(x.shape, shape, strict=True)):
        x = x[tuple([slice(0, m) for m in shape])]
    missing = [(0, m - n) for n, m in zip(x.shape, shape, strict=True)]
    return x if all(is_known(m, 0) for _, m in missing) else np.pad(x, missing)


def _weights(spectrum: Any, n: int, axis: int) -> Any:
    """Return how often the whole spectrum, of length n, has each element of a half."""
    axis = normalize_axis_index(axis, spectrum.ndim)
    found = _counts(n, spectrum)
    wide = np.reshape(found, (-1, *(1,) * (spectrum.ndim - axis - 1)))
    return wide.astype(np.finfo(dtype_of(spectrum)).dtype)


def _counts(n: int, like: Any) -> Any:
    if type(n) is not int:
        places = numbers(0, n // 2 + 1, like)
        return np.where(np.equal(places, 0) | np.equal(places * 2, n), 1, 2)
    found = np.full(n // 2 + 1, 2)
    found[0] = 1
    if n % 2 == 0:
        found[-1] = 1
    return constant(found, like)


def _fftn_pull(op: Operator[..., Any]) -> Callable[..., Any]:
    def pull(g: Any, shape: Any, s: Any, axes: Any, norm: Any) -> Any:
        return resized(op(g, s, axes, norm), shape)

    return pull


def _rfftn_pull(g: Any, shape: Any, s: Any, axes: Any, norm: Any) -> Any:
    # They are 1 and 2: the product is the quotient, in a fifth of the time.
    whole = np.conjugate(g) * (1.0 / _weights(g, s[-1], axes[-1]))
    return resized(irfftn(whole, s, axes, _SWAPPED[norm]), shape)


def _irfftn_pull(g: Any, shape: Any, s: Any, axes: Any, norm: Any) -> Any:
    half = np.conjugate(rfftn(g, s, axes, _SWAPPED[norm]))
    return resized(half * _weights(half, s[-1], axes[-1]), shape)


register_linear(fftn, _fftn_pull(fftn))
register_linear(ifftn, _fftn_pull(ifftn))
register_linear(rfftn, _rfftn_pull)
register_linear(irfftn, _irfftn_pull)

# ---- NumPy's functions of one axis ----


def _half(n: int) -> int:
    """Return the length of the real array of a half spectrum, where none is given."""
    return (n - 1) * 2


def _whole(n: int) -> int:
    return n


def _serve_one(function: Any, op: Operator[..., Any], default: Any = _whole) -> None:
    def transform(
        a: Any, n: Any = None, axis: Any = -1, norm: Any = None, out: None = None
    ) -> Any:
        return _along(op, a, n, axis, norm, default)

    register_numpy_function(function, transform)


def _along(
    op: Operator[..., Any], a: Any, n: Any, axis: Any, norm: Any, default: Any = _whole
) -> Any:
    """Transform along one axis, of n elements or of as many as the array has."""
    a = as_array(a)
    axis = normalize_axis_index(operator.index(axis), a.ndim)
    as_size = size_of if op is rfftn else whole  # NumPy 2.4
    length = default(a.shape[axis]) if n is None else as_size(n)
    return op(a, [length], [axis], norm)


_serve_one(np.fft.fft, fftn)
_serve_one(np.fft.ifft, ifftn)
_serve_one(np.fft.rfft, rfftn)
_serve_one(np.fft.irfft, irfftn, _half)


def _swapped(norm: Any) -> Any:
    """Return the convention of the transposed transform; raise if there is none."""
    if norm not in _SWAPPED:
        numpy_refuses(np.fft.fft, [0.0], norm=norm)
    return _SWAPPED[norm]


@register_numpy_function(np.fft.hfft)
def _(a: Any, n: Any = None, axis: Any = -1, norm: Any = None, out: None = None) -> Any:
    return _along(irfftn, np.conjugate(a), n, axis, _swapped(norm), _half)


@register_numpy_function(np.fft.ihfft)
def _(a: Any, n: Any = None, axis: Any = -1, norm: Any = None, out: None = None) -> Any:
    return np.conjugate(_along(rfftn, a, n, axis, _swapped(norm)))


# ---- NumPy's functions of several axes ----


def _lengths_and_axes(
    a: Any, s: Any, axes: Any, default: Any
) -> tuple[list[int], list[int]]:
    """Return the lengths and axes of a transform; `default` gives the last length."""
    if s is None:
        axes = list(range(-a.ndim, 0) if axes is None else axes)
        own = [a.shape[normalize_axis_index(i, a.ndim)] for i in axes]
        return [*own[:-1], *map(default, own[-1:])], list(counted(axes, a.ndim))
    s = list(s)
    if axes is None:
        _deprecated("`axes` should not be `None` if `s` is not `None`")
        axes = range(-len(s), 0)
    axes = [normalize_axis_index(operator.index(i), a.ndim) for i in axes]
    if len(s) != len(axes):
        numpy_refuses(
            np.fft.fftn,
            a,
            s,
            axes,
            do="give a length for each axis; -1 keeps the one of the array",
        )
    if None in s:
        _deprecated("Passing an array containing `None` values to `s`")
    pairs = zip(s, axes, strict=True)
    return [_length(n, a.shape[i]) for n, i in pairs], axes


def _length(n: Any, own: int) -> int:
    return own if n is None or is_known(n, -1) else whole(n)


def _deprecated(what: str) -> None:
    warn_user(f"{what} (Deprecated in NumPy 2.0).", DeprecationWarning)


def _one_by_one(
    a: Any,
    steps: Sequence[tuple[Operator[..., Any], int, int]],
    norm: Any,
) -> Any:
    """Transform along one axis after the other; an axis may be repeated."""
    for op, length, axis in steps:
        a = op(a, [length], [axis], norm)
    return a


def _serve_many(
    function: Any,
    op: Operator[..., Any],
    order: Callable[..., list[tuple[Operator[..., Any], int, int]]],
    default: Any = _whole,
) -> None:
    """Serve a function of several axes; `order` lists the steps if an axis repeats."""
    two = function.__name__.endswith("2")

    def transform(
        a: Any,
        s: Any = None,
        axes: Any = (-2, -1) if two else None,
        norm: Any = None,
        out: None = None,
    ) -> Any:
        a = as_array(a)
        lengths, places = _lengths_and_axes(a, s, axes, default)
        if not places and op in (fftn, ifftn):
            return a
        if len(set(places)) == len(places):
            return op(a, lengths, places, norm)
        return _one_by_one(a, order(lengths, places), norm)

    register_numpy_function(function, transform)


def _backwards(op: Operator[..., Any]) -> Callable[..., Any]:
    """List the steps of a complex transform, which begins with the last axis."""
    return lambda s, axes: [
        (op, n, axis) for n, axis in zip(s[::-1], axes[::-1], strict=True)
    ]


def _real_first(s: Any, axes: Any) -> Any:
    return [(rfftn, s[-1], axes[-1]), *_backwards(fftn)(s[:-1], axes[:-1])]


def _real_last(s: Any, axes: Any) -> Any:
    pairs = zip(s[:-1], axes[:-1], strict=True)
    return [*((ifftn, n, axis) for n, axis in pairs), (irfftn, s[-1], axes[-1])]


_serve_many(np.fft.fftn, fftn, _backwards(fftn))
_serve_many(np.fft.fft2, fftn, _backwards(fftn))
_serve_many(np.fft.ifftn, ifftn, _backwards(ifftn))
_serve_many(np.fft.ifft2, ifftn, _backwards(ifftn))
_serve_many(np.fft.rfftn, rfftn, _real_first)
_serve_many(np.fft.rfft2, rfftn, _real_first)
_serve_many(np.fft.irfftn, irfftn, _real_last, _half)
_serve_many(np.fft.irfft2, irfftn, _real_last, _half)

# ---- shifts ----


def _shift(x: Any, axes: Any, sign: int) -> Any:
    """Roll each axis by half its length."""
    x = as_array(x)
    places = range(x.ndim) if axes is None else as_ints(axes)
    shift = [sign * (x.shape[i] // 2) for i in places]
    return np.roll(x, shift, tuple(places))


register_numpy_function(np.fft.fftshift, lambda x, axes=None: _shift(x, axes, 1))
register_numpy_function(
    np.fft.ifftshift,
    # An odd length is not rolled back by floor(-n / 2).
    lambda x, axes=None: _shift(x, axes, -1),
)


# ---- np.convolve: the kernel ----


def _convolved(a: Any, v: Any, mode: Any) -> Any:
    """Convolve along the last axes; those before them are broadcast."""
    if a.ndim == v.ndim == 1:
        return np.convolve(a, v, mode)
    if v.shape[-1] > a.shape[-1]:
        a, v = v, a
    outer = np.broadcast_shapes(a.shape[:-1], v.shape[:-1])
    length = convolved_length(a.shape[-1], v.shape[-1], mode)
    out = np.zeros_like(
        a, shape=(*outer, length), dtype=np.result_type(a, v), order="C"
    )
    few = math.prod(outer) < v.shape[-1]
    (_by_row if few else _by_tap)(out, a, v, mode)
    return out


def _by_row(out: Any, a: Any, v: Any, mode: Any) -> None:
    outer = out.shape[:-1]
    wide_a = np.broadcast_to(a, (*outer, a.shape[-1]))
    wide_v = np.broadcast_to(v, (*outer, v.shape[-1]))
    for row in np.ndindex(outer):
        out[row] = np.convolve(wide_a[row], wide_v[row], mode)


def _by_tap(out: Any, a: Any, v: Any, mode: str) -> None:
    """Add the products with one element of the shorter sequences after the other."""
    length, count = a.shape[-1], v.shape[-1]
    first = _skipped(length, count, mode)
    for k in range(count):
        # Element i of `a` is added to element i + k - first of the result.
        start, stop = max(first - k, 0), min(first - k + out.shape[-1], length)
        place = out[..., start + k - first : stop + k - first]
        place += a[..., start:stop] * v[..., k : k + 1]


def convolved_length(a: int, v: int, mode: str) -> int:
    """Return the length of a convolution."""
    if mode == "full":
        return a + v - 1
    longer = larger(a, v)
    return longer if mode == "same" else longer - smaller(a, v) + 1


def _skipped(a: int, v: int, mode: str) -> int:
    """Return the number of elements of the full convolution before the first one."""
    shorter = smaller(a, v)
    return {"full": 0, "same": (shorter - 1) // 2, "valid": shorter - 1}[mode]


# ---- np.convolve: the operator ----

convolve: Operator[..., Any] = numpy_operator(
    "convolve",
    "(Array a, Array v, str mode) -> Array",
    _convolved,
    device_types=("cpu", "cuda"),  # it writes views of its result
)


@convolve.register_fake
def _(a: Any, v: Any, mode: str) -> FakeArray:
    outer = broadcast(a.shape[:-1], v.shape[:-1])
    length = convolved_length(a.shape[-1], v.shape[-1], mode)
    dtype = np.result_type(a.dtype, v.dtype)
    return FakeArray((*outer, length), dtype, device=device_of(a))


def _flipped(x: Any) -> Any:
    return x[..., ::-1]


def _pull(g: Any, shape: Sequence[int], other: Any, mode: str) -> Any:
    """Return the gradient of one factor, not yet summed over broadcast axes."""
    own, count = shape[-1], other.shape[-1]
    if mode == "valid":
        is_shorter = own < count
        if is_shorter is True:
            return convolve(_flipped(other), g, "valid")
        whole = convolve(g, _flipped(other), "full")
        if is_shorter is False:
            return whole
        return part_of(whole, larger(count - own, 0), own)
    if mode == "same":
        before = _skipped(own, count, mode)
        after = own + count - 1 - before - g.shape[-1]
        g = np.pad(g, [(0, 0)] * (g.ndim - 1) + [(before, after)])
    if type(own) is type(count) is int:
        return convolve(g, _flipped(other), "valid")
    return part_of(convolve(g, _flipped(other), "full"), count - 1, own)


def part_of(x: Any, start: Any, length: Any, axis: int = -1) -> Any:
    """Return so many elements along an axis.

    A slice would have an unknown length.
    """
    return np.take(x, numbers(start, start + length, x), axis)


register_bilinear(
    convolve,
    (_pull, ["a_shape", "v", "mode"]),
    (_pull, ["v_shape", "a", "mode"]),
)


@convolve.register_vmap
def _(info: Any, in_dims: Any, a: Any, v: Any, mode: str) -> Any:
    return convolve(*aligned_rows(in_dims, a, v), mode), 0


# ---- np.convolve and np.correlate: their arguments ----


def _check_sequences(function: Any, *sequences: Any) -> None:
    """Raise unless arrays have one axis each, and elements."""
    if any(x.ndim != 1 or is_known(x.shape[0], 0) for x in sequences):
        numpy_refuses(
            function, *sequences, do="give lines of elements, or use customop.vmap"
        )


def _checked(mode: Any) -> str:
    """Return the mode; NumPy's error if it does not exist."""
    np.convolve([1.0], [1.0], mode)
    return str({0: "valid", 1: "same", 2: "full"}.get(mode, mode))


@register_numpy_function(np.convolve)
def _(a: Any, v: Any, mode: Any = "full") -> Any:
    a, v = (np.reshape(x, (1,)) if not x.ndim else x for x in map(as_array, (a, v)))
    _check_sequences(np.convolve, a, v)
    return convolve(a, v, _checked(mode))


@register_numpy_function(np.correlate)
def _(a: Any, v: Any, mode: Any = "valid") -> Any:
    a, v = as_array(a), as_array(v)
    _check_sequences(np.correlate, a, v)
    v = np.conjugate(v) if is_complex(v) else v
    mode, is_longer = _checked(mode), v.shape[0] > a.shape[0]
    if mode == "same" and type(is_longer) is not bool:
        return _correlated(a, v)
    # NumPy swaps the two if v is longer, and reverses the result; so it centers it
    # differently. The other modes have the same elements in either way.
    if is_below(a.shape[0], v.shape[0]):
        return np.copy(_flipped(convolve(v, _flipped(a), mode)))
    return convolve(a, _flipped(v), mode)


def _correlated(a: Any, v: Any) -> Any:
    """Return the mode "same" where it is not known which sequence is longer."""
    most, least = larger(a.shape[0], v.shape[0]), smaller(a.shape[0], v.shape[0])
    is_longer = smaller(larger(v.shape[0] - a.shape[0], 0), 1)
    start = (least - 1 + is_longer) // 2
    if is_below(a.shape[0], v.shape[0]):
        whole = convolve(v, _flipped(a), "full")
        return np.copy(_flipped(part_of(whole, least - 1 - start, most)))
    return part_of(convolve(a, _flipped(v), "full"), start, most)
