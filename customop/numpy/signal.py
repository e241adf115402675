"""Convolution and correlation of sequences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from customop import FakeArray, Operator, ShapeError, partials, register_numpy_function
from customop.numpy.arguments import as_array
from customop.numpy.fakes import device_of
from customop.numpy.index import numbers
from customop.numpy.rules import (
    batch_first,
    is_complex,
    numpy_operator,
    padded_rows,
    sum_of,
)
from customop.numpy.sizes import broadcast, is_below, is_known, larger, smaller

__all__ = ["convolve"]

# ---- kernel ----


def _convolved(a: Any, v: Any, mode: Any) -> Any:
    """Convolve along the last axes; those before them are broadcast."""
    if a.ndim == v.ndim == 1:
        return np.convolve(a, v, mode)
    if v.shape[-1] > a.shape[-1]:
        a, v = v, a
    outer = np.broadcast_shapes(a.shape[:-1], v.shape[:-1])
    length = _length(a.shape[-1], v.shape[-1], mode)
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


def _length(a: int, v: int, mode: str) -> int:
    """Length of a convolution."""
    if mode == "full":
        return a + v - 1
    longer = larger(a, v)
    return longer if mode == "same" else longer - smaller(a, v) + 1


def _skipped(a: int, v: int, mode: str) -> int:
    """The number of elements of the full convolution before the first one."""
    shorter = smaller(a, v)
    return {"full": 0, "same": (shorter - 1) // 2, "valid": shorter - 1}[mode]


# ---- operator ----

convolve: Operator[..., Any] = numpy_operator(
    "convolve",
    "(Array a, Array v, str mode) -> Array",
    _convolved,
    device_types=("cpu", "cuda"),  # it writes views of its result
)


@convolve.register_fake
def _(a: Any, v: Any, mode: str) -> FakeArray:
    outer = broadcast(a.shape[:-1], v.shape[:-1])
    length = _length(a.shape[-1], v.shape[-1], mode)
    dtype = np.result_type(a.dtype, v.dtype)
    return FakeArray((*outer, length), dtype, device=device_of(a))


def _flipped(x: Any) -> Any:
    return x[..., ::-1]


def _pull(g: Any, shape: Sequence[int], other: Any, mode: str) -> Any:
    """Gradient of one factor of these lengths, not yet summed over broadcast axes."""
    own, count = shape[-1], other.shape[-1]
    if mode == "valid":
        is_shorter = own < count
        if is_shorter is True:
            return convolve(_flipped(other), g, "valid")
        whole = convolve(g, _flipped(other), "full")
        if is_shorter is False:
            return whole
        return _part(whole, larger(count - own, 0), own)
    if mode == "same":
        before = _skipped(own, count, mode)
        after = own + count - 1 - before - g.shape[-1]
        g = np.pad(g, [(0, 0)] * (g.ndim - 1) + [(before, after)])
    if type(own) is type(count) is int:
        return convolve(g, _flipped(other), "valid")
    return _part(convolve(g, _flipped(other), "full"), count - 1, own)


def _part(x: Any, start: Any, length: Any) -> Any:
    """So many elements along the last axis: of a slice the length is not certain."""
    return np.take(x, numbers(start, start + length, x), -1)


convolve.register_autograd(
    partials(
        {
            "a": (_pull, ["a_shape", "v", "mode"]),
            "v": (_pull, ["v_shape", "a", "mode"]),
        }
    )
)


@convolve.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    (a, v, mode), (ta, tv, _) = primals, tangents
    y = convolve(a, v, mode)
    parts = [] if ta is None else [convolve(ta, v, mode)]
    parts += [] if tv is None else [convolve(a, tv, mode)]
    return y, sum_of(parts, y)


@convolve.register_vmap
def _(info: Any, in_dims: Any, a: Any, v: Any, mode: str) -> Any:
    rank = max(x.ndim - (d is not None) for x, d in ((a, in_dims[0]), (v, in_dims[1])))
    rows = [
        x if d is None else padded_rows(batch_first(x, d), rank)
        for x, d in ((a, in_dims[0]), (v, in_dims[1]))
    ]
    return convolve(*rows, mode), 0


# ---- NumPy's functions ----


def _sequence(x: Any, name: str) -> Any:
    """An array of one axis that has elements."""
    if x.ndim != 1:
        raise ShapeError(
            f"object {'too deep' if x.ndim else 'of too small depth'} for desired array",
            f"np.convolve and np.correlate: {name} has the shape {tuple(x.shape)}",
            do="use customop.vmap for rows",
        )
    if is_known(x.shape[0], 0):
        raise ShapeError(
            f"{name} cannot be empty", do="give sequences of at least one element"
        )
    return x


def _checked(mode: Any) -> str:
    """The mode; NumPy's error if it does not exist."""
    np.convolve([1.0], [1.0], mode)
    return str({0: "valid", 1: "same", 2: "full"}.get(mode, mode))


@register_numpy_function(np.convolve)
def _(a: Any, v: Any, mode: Any = "full") -> Any:
    a, v = (np.reshape(x, (1,)) if not x.ndim else x for x in map(as_array, (a, v)))
    return convolve(_sequence(a, "a"), _sequence(v, "v"), _checked(mode))


@register_numpy_function(np.correlate)
def _(a: Any, v: Any, mode: Any = "valid") -> Any:
    a, v = _sequence(as_array(a), "a"), _sequence(as_array(v), "v")
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
    """The mode "same" where it is not known which sequence is longer."""
    most, least = larger(a.shape[0], v.shape[0]), smaller(a.shape[0], v.shape[0])
    is_longer = smaller(larger(v.shape[0] - a.shape[0], 0), 1)
    start = (least - 1 + is_longer) // 2
    if is_below(a.shape[0], v.shape[0]):
        whole = convolve(v, _flipped(a), "full")
        return np.copy(_flipped(_part(whole, least - 1 - start, most)))
    return _part(convolve(a, _flipped(v), "full"), start, most)
