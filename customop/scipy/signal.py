"""`scipy.signal` on traced, fake and plain arrays: convolution and correlation.

The functions have SciPy's parameters. Plain arrays are passed to SciPy.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple
from scipy import signal as _signal

from customop import ArgumentError, Array, FakeArray, ShapeError, custom_op
from customop.numpy.arguments import as_array, broadcast, dtype_of, larger
from customop.numpy.fft import convolve as convolve_lines
from customop.numpy.fft import convolved_length, part_of
from customop.numpy.rules import (
    aligned_rows,
    device_of,
    dtype_kind,
    is_complex,
    register_bilinear,
)
from customop.scipy.ufunc_rules import is_plain

__all__ = ["convolve", "correlate", "fftconvolve"]

# pyright infers types from SciPy's code and gets some of them wrong.
signal: Any = _signal


# ---- the operator, for the modes "full" and "valid" ----


@custom_op(
    "scipy::convolve",
    mutates_args=(),
    schema="(Array a, Array v, int rank, str mode, str method) -> Array",
    device_types="cpu",
)
def convolve_grids(a: Any, v: Any, rank: int, mode: str, method: str) -> Any:
    """Convolve along the last `rank` axes; those before them are broadcast."""
    ndim = max(a.ndim, v.ndim)
    a, v = (np.reshape(x, (*(1,) * (ndim - x.ndim), *x.shape)) for x in (a, v))
    outer = np.broadcast_shapes(a.shape[: ndim - rank], v.shape[: ndim - rank])
    lengths = _lengths(a.shape[ndim - rank :], v.shape[ndim - rank :], mode)
    dtype = _result_dtype(a.dtype, v.dtype, method)
    if not math.prod(outer):
        return np.zeros((*outer, *lengths), dtype)
    if method == "fft":
        axes = tuple(range(ndim - rank, ndim))
        return np.asarray(signal.fftconvolve(a, v, mode, axes), order="C")
    out = np.empty((*outer, *lengths), dtype)
    wide_a = np.broadcast_to(a, (*outer, *a.shape[ndim - rank :]))
    wide_v = np.broadcast_to(v, (*outer, *v.shape[ndim - rank :]))
    for row in np.ndindex(outer):
        out[row] = signal.convolve(wide_a[row], wide_v[row], mode, "direct")
    return out


def _lengths(a: Sequence[Any], v: Sequence[Any], mode: str) -> tuple[Any, ...]:
    if any((n < 1) is True for n in (*a, *v)):
        raise ShapeError(
            f"scipy::convolve: lengths {tuple(a)} and {tuple(v)}: there are no elements",
            do="call it for arrays with elements only",
        )
    pairs = zip(a, v, strict=True)
    return tuple([convolved_length(m, n, mode) for m, n in pairs])


def _result_dtype(a: Any, v: Any, method: str) -> Any:
    if method == "direct":
        return np.result_type(a, v)
    return signal.fftconvolve(np.zeros(2, a), np.zeros(2, v)).dtype


@convolve_grids.register_fake
def _(a: Any, v: Any, rank: int, mode: str, method: str) -> FakeArray:
    outer = broadcast(a.shape[: a.ndim - rank], v.shape[: v.ndim - rank])
    lengths = _lengths(a.shape[a.ndim - rank :], v.shape[v.ndim - rank :], mode)
    dtype = _result_dtype(a.dtype, v.dtype, method)
    return FakeArray((*outer, *lengths), dtype, device=device_of(a))


@convolve_grids.register_sample_inputs
def _() -> list[Any]:
    a, v = np.array([[0.5, 1.0, -0.25], [0.75, 2.0, 1.0]]), np.array([[1.0, 0.5]])
    return [(a, v, 2, "full", "direct"), (v, a, 2, "valid", "fft")]


def _pull(g: Any, shape: Any, other: Any, rank: int, mode: str, method: str) -> Any:
    """Return the gradient of one factor, not yet summed over broadcast axes."""
    flipped = other[(..., *(slice(None, None, -1),) * rank)]
    own, lengths = shape[len(shape) - rank :], other.shape[other.ndim - rank :]
    if mode == "full" and all(type(n) is int for n in (*own, *lengths)):
        return convolve_grids(g, flipped, rank, "valid", method)
    if mode == "full":
        found = convolve_grids(g, flipped, rank, "full", method)
        return _part(found, [m - 1 for m in lengths], own)
    is_shorter = [n < m for n, m in zip(own, lengths, strict=True)]
    if any(known is True for known in is_shorter):
        return convolve_grids(flipped, g, rank, "valid", method)
    found = convolve_grids(g, flipped, rank, "full", method)
    if all(known is False for known in is_shorter):
        return found
    starts = [larger(m - n, 0) for n, m in zip(own, lengths, strict=True)]
    return _part(found, starts, own)


def _part(x: Any, starts: Sequence[Any], lengths: Sequence[Any]) -> Any:
    """Return so many elements along each of the last axes."""
    for i, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        x = part_of(x, start, length, i - len(lengths))
    return x


register_bilinear(
    convolve_grids,
    (_pull, ["a_shape", "v", "rank", "mode", "method"]),
    (_pull, ["v_shape", "a", "rank", "mode", "method"]),
)


@convolve_grids.register_vmap
def _(info: Any, in_dims: Any, a: Any, v: Any, *options: Any) -> Any:
    return convolve_grids(*aligned_rows(in_dims, a, v), *options), 0


# ---- functions with SciPy's parameters ----


def convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Array:
    """Convolve two arrays along all axes, as `scipy.signal.convolve` does.

    Parameters
    ----------
    in1, in2 : array
        Of the same number of axes.
    mode : {"full", "valid", "same"}
        Which part is returned; "same" has the shape of `in1`.
    method : {"auto", "direct", "fft"}
        By sums of products, or by Fourier transforms.

    Returns
    -------
    array

    Raises
    ------
    ArgumentError
        If `mode` or `method` does not exist.
    ShapeError
        If the shapes do not fit.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import signal
    >>> kernel = np.array([1.0, 10.0])
    >>> co.grad(lambda x: signal.convolve(x, kernel, "valid")[0])(np.ones(3))
    array([10.,  1.,  0.])
    >>> signal.convolve(np.arange(4.0), np.ones(2), mode="valid")
    array([1., 3., 5.])
    """
    in1, in2 = as_array(in1), as_array(in2)
    if is_plain(in1, in2):
        return signal.convolve(in1, in2, mode, method)
    _check("convolve", in1, in2, mode, range(in1.ndim))
    if method not in ("auto", "direct", "fft"):
        raise ArgumentError(
            f"scipy.signal.convolve: method={method!r} does not exist",
            do="use 'auto', 'direct' or 'fft'",
        )
    if not in1.ndim:
        return in1 * in2
    if method == "auto":
        method = _chosen(in1, in2, mode)
    found = _whole(in1, in2, in1.ndim, mode, method)
    if method == "fft":
        dtype = np.result_type(dtype_of(in1), dtype_of(in2))
        rounded = np.round(found) if dtype_kind(dtype) in "iu" else found
        found = rounded.astype(dtype)
    return _centered(found, in1.shape) if mode == "same" else found


def _check(name: str, a: Any, v: Any, mode: str, axes: Sequence[int]) -> None:
    if mode not in ("full", "valid", "same"):
        raise ArgumentError(
            f"scipy.signal.{name}: mode={mode!r} does not exist",
            do="use 'full', 'valid' or 'same'",
        )
    if a.ndim != v.ndim:
        raise ShapeError(
            f"scipy.signal.{name}: arrays of {a.ndim} and {v.ndim} axes",
            do="add axes of length 1",
        )
    pairs = [(a.shape[i], v.shape[i]) for i in axes]
    if any((n < 1) is True for pair in pairs for n in pair):
        raise ShapeError(
            f"scipy.signal.{name}: shapes {a.shape} and {v.shape} have no elements",
            do="call it for arrays with elements only",
        )
    is_mixed = any((m < n) is True for m, n in pairs) and any(
        (m > n) is True for m, n in pairs
    )
    if mode == "valid" and is_mixed:
        raise ShapeError(
            f"scipy.signal.{name}: neither of the shapes {a.shape} and {v.shape}"
            " is at least as long as the other one in every axis",
            do="use another mode than 'valid'",
        )


def _chosen(a: Any, v: Any, mode: str) -> str:
    """Return the method that SciPy takes for these shapes and dtypes of floats."""
    dtypes = dtype_of(a), dtype_of(v)
    is_known = all(type(n) is int for n in (*a.shape, *v.shape))
    if not is_known or any(dtype_kind(d) not in "fc" for d in dtypes):
        return "direct"
    zeros = [np.zeros((), d) for d in dtypes]
    wide = [np.broadcast_to(z, x.shape) for z, x in zip(zeros, (a, v), strict=True)]
    return str(signal.choose_conv_method(*wide, mode=mode))


def _whole(a: Any, v: Any, rank: int, mode: str, method: str) -> Any:
    part = "valid" if mode == "valid" else "full"
    if rank == 1 and method == "direct":
        return convolve_lines(a, v, part)
    return convolve_grids(a, v, rank, part, method)


def _centered(x: Any, shape: Sequence[Any]) -> Any:
    """Return the middle of an array, of a shape that is not larger."""
    if all((n == m) is True for n, m in zip(x.shape, shape, strict=True)):
        return x
    starts = [(n - m) // 2 for n, m in zip(x.shape, shape, strict=True)]
    if all(type(n) is int for n in (*starts, *shape)):
        pairs = zip(starts, shape, strict=True)
        return np.copy(x[tuple([slice(start, start + n) for start, n in pairs])])
    return _part(x, starts, shape)


def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Array:
    """Convolve two arrays by Fourier transforms, as `scipy.signal.fftconvolve` does.

    Parameters
    ----------
    in1, in2 : array
        Of the same number of axes.
    mode : {"full", "valid", "same"}
        Which part is returned; "same" has the shape of `in1`.
    axes : int or sequence of int, optional
        All by default. Other axes are broadcast.

    Returns
    -------
    array

    Raises
    ------
    ArgumentError
        If `mode` does not exist.
    ShapeError
        If the shapes do not fit.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import signal
    >>> kernel = np.array([1.0, 10.0])
    >>> slope = co.grad(lambda x: signal.fftconvolve(x, kernel, "same").sum())
    >>> slope(np.ones(3)).round(6)
    array([11., 11.,  1.])
    >>> signal.fftconvolve(np.ones((2, 3)), np.ones((1, 2)), mode="valid", axes=1).round(6)
    array([[2., 2.],
           [2., 2.]])
    """
    in1, in2 = as_array(in1), as_array(in2)
    if is_plain(in1, in2):
        return signal.fftconvolve(in1, in2, mode, axes)
    given: Any = range(in1.ndim) if axes is None else axes
    several = given if hasattr(given, "__len__") else (operator.index(given),)
    places = normalize_axis_tuple(tuple(several), in1.ndim)
    _check("fftconvolve", in1, in2, mode, places)
    if not places:
        return in1 * in2
    last = range(-len(places), 0)
    a, v = (np.moveaxis(x, places, last) for x in (in1, in2))
    found = _whole(a, v, len(places), mode, "fft")
    found = np.moveaxis(found, last, places)
    return _centered(found, in1.shape) if mode == "same" else found


def correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Array:
    """Correlate two arrays along all axes, as `scipy.signal.correlate` does.

    Parameters
    ----------
    in1, in2 : array
        Of the same number of axes.
    mode : {"full", "valid", "same"}
        Which part is returned; "same" has the shape of `in1`.
    method : {"auto", "direct", "fft"}
        By sums of products, or by Fourier transforms.

    Returns
    -------
    array

    Raises
    ------
    ArgumentError
        If `mode` or `method` does not exist.
    ShapeError
        If the shapes do not fit.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import signal
    >>> kernel = np.array([1.0, 10.0])
    >>> co.grad(lambda x: signal.correlate(x, kernel, "valid")[0])(np.ones(3))
    array([ 1., 10.,  0.])
    >>> signal.correlate(np.arange(4.0), np.ones(2), mode="same")
    array([0., 1., 3., 5.])
    """
    in1, in2 = as_array(in1), as_array(in2)
    if is_plain(in1, in2):
        return signal.correlate(in1, in2, mode, method)
    flipped = np.flip(in2) if in2.ndim else in2
    turned = np.conjugate(flipped) if is_complex(flipped) else flipped
    return convolve(in1, turned, mode, method)
