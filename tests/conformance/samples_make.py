"""Sample calls of the functions that make arrays, and of those that change their length."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tests.conformance.samples import Sample

__all__ = ["SAMPLES"]

_random = np.random.default_rng(20250312)


def _floats(*shape: int) -> Any:
    return np.asarray(_random.normal(size=shape))


_V, _M, _T = _floats(4), _floats(3, 4), _floats(2, 3, 4)
_DOT, _NONE, _OTHER = _floats(), _floats(0, 3), _floats()
_FORTRAN, _STRIDED = np.asfortranarray(_floats(3, 4)), _floats(6, 8)[::2, ::2]
_COMPLEX = _floats(2, 3) + 1j * _floats(2, 3)
_INTS = np.arange(12).reshape(3, 4)
_POSITIVE = np.abs(_floats(3)) + 0.5
_SPACED = _random.permutation(12).reshape(3, 4) * 0.7 - 1.1


def _row(name: str, fn: Any, *args: Any, **options: Any) -> Sample:
    """A row that is differentiated by all its arguments of doubles."""
    doubles = (np.float64, np.complex128)
    diff = tuple(i for i, a in enumerate(args) if a.dtype in doubles)
    return Sample(name, fn, args, diff=diff, **options)


_BETWEEN = [
    _row("linspace", lambda a, b: np.linspace(a, b, 5), _DOT, _OTHER),
    _row("linspace_arrays", lambda a, b: np.linspace(a, b, 4, axis=-1), _M, _V),
    _row("linspace_open", lambda a: np.linspace(a, 1.0, 3, endpoint=False), _V),
    _row("linspace_step", lambda a, b: np.linspace(a, b, 4, retstep=True), _V, _DOT),
    _row("linspace_one", lambda b: np.linspace(0.0, b, 1), _DOT),
    _row("linspace_none", lambda b: np.linspace(0.0, b, 0), _DOT),
    _row("linspace_same", lambda a: np.linspace(a, a, 3), _DOT),
    _row("linspace_ints", lambda a: np.linspace(a, 10, 3, dtype=int), _INTS),
    _row("linspace_complex", lambda a: np.linspace(a, 2, 3), _COMPLEX),
    _row("logspace", lambda a, b: np.logspace(a, b, 4), _DOT, _OTHER),
    _row("logspace_base", lambda a, c: np.logspace(a, 1.0, 3, base=c), _DOT, _POSITIVE),
    _row("geomspace", lambda a, b: np.geomspace(a, b, 4), _POSITIVE, _POSITIVE[:1]),
    _row("geomspace_axis", lambda a: np.geomspace(a, -8.0, 4, axis=1), -_POSITIVE),
    _row("geomspace_complex", lambda a: np.geomspace(a, 1j, 3), _COMPLEX),
    _row(
        "geomspace_open", lambda a: np.geomspace(a, 9.0, 3, endpoint=False), _POSITIVE
    ),
]

_LIKE = [
    _row("array_like", lambda x, y: np.array([x, y], like=x + y), _V, _V * 2.0),
    _row("array_ndmin", lambda x: np.array(x, complex, ndmin=3, like=x), _V),
    _row("asarray_like", lambda x: np.asarray([x[0], 1.0, x[1]], like=x), _V),
    _row("asanyarray_like", lambda x: np.asanyarray(x, like=x) * x, _M),
    _row("ascontiguousarray", lambda x: np.ascontiguousarray(x, like=x), _V),
    _row("asfortranarray", lambda x: np.asfortranarray(x, like=x) * x, _M),
    _row("require", lambda x: np.require(x, None, ["C", "O"], like=x), _M),
    _row("arange_like", lambda x: np.arange(4, like=x) * x, _V),
    _row("arange_floats", lambda x: np.arange(1, 3, 0.5, like=x) * x, _V),
    _row("identity_like", lambda x: np.identity(4, like=x) @ x, _V),
    _row("tri_like", lambda x: np.tri(3, 4, 1, like=x) @ x, _V),
    _row("fromfunction", lambda x: np.fromfunction(np.add, (3, 4), like=x) * x, _M),
]

_EDIT = [
    _row("insert", lambda x, v: np.insert(x, 1, v), _V, _DOT),
    _row(
        "insert_several",
        lambda x, v: np.insert(x, [0, 2, 2], v, axis=1),
        _M,
        _floats(3, 1),
    ),
    _row("insert_rows", lambda x, v: np.insert(x, -1, v, axis=0), _M, _floats(2, 4)),
    _row(
        "insert_slice",
        lambda x, v: np.insert(x, slice(None, None, 2), v, 1),
        _FORTRAN,
        _floats(2),
    ),
    _row(
        "insert_mask",
        lambda x: np.insert(x, np.array([True, False, True, False]), 7.0),
        _V,
    ),
    _row("insert_cast", lambda x: np.insert(x, 2, 7.9), _INTS),
    _row("delete", lambda x: np.delete(x, 1), _V),
    _row("delete_several", lambda x: np.delete(x, [0, -1], axis=1), _M),
    _row("delete_slice", lambda x: np.delete(x, slice(1, None, 2), axis=0), _STRIDED),
    _row("delete_mask", lambda x: np.delete(x, [True, False, False, True], 1), _M),
    _row("delete_traced", lambda x, i: np.delete(x, i, axis=1), _M, np.array(2)),
    _row("resize", lambda x: np.resize(x, (3, 3)), _V),
    _row("resize_less", lambda x: np.resize(x, 5), _M),
    _row("resize_none", lambda x: np.resize(x, (2, 2)), _NONE),
    _row("block", lambda x, y: np.block([[x, x], [y, 2.0 * y]]), _M, _floats(1, 4)),
    _row("block_ranks", lambda x, y: np.block([x, y, 1.0]), _V, _M[:1]),
    _row("block_one", lambda x: np.block(x), _V),
]

_PAD = [
    _row(
        "pad_ramp", lambda x: np.pad(x, (2, 3), "linear_ramp", end_values=(1, -2)), _V
    ),
    _row("pad_ramp_ints", lambda x: np.pad(x, 2, "linear_ramp"), _INTS),
    _row("pad_mean", lambda x: np.pad(x, ((1, 2), (0, 1)), "mean"), _M),
    _row("pad_mean_near", lambda x: np.pad(x, 2, "mean", stat_length=(1, 2)), _M),
    _row("pad_mean_ints", lambda x: np.pad(x, 1, "mean"), _INTS),
    _row("pad_median", lambda x: np.pad(x, 1, "median"), _SPACED[0, :3]),
    _row("pad_maximum", lambda x: np.pad(x, 1, "maximum", stat_length=2), _SPACED),
    _row("pad_minimum", lambda x: np.pad(x, (0, 2), "minimum"), _SPACED),
    _row("pad_odd", lambda x: np.pad(x, (2, 14), "reflect", reflect_type="odd"), _V),
    _row(
        "pad_odd_edge",
        lambda x: np.pad(x, (3, 7), "symmetric", reflect_type="odd"),
        _V[:2],
    ),
    _row("pad_undefined", lambda x: np.pad(x, 1, "empty")[1:-1], _V),
]

_KNOWN_LATER = [
    _row("pad_by_traced", lambda x: np.pad(x, (1, 2), constant_values=x[0]), _V),
    _row("pad_by_each", lambda x: np.pad(x, 1, constant_values=(x[0], 2.0)), _V),
    _row("pad_ramp_to", lambda x: np.pad(x, 2, "linear_ramp", end_values=x[1]), _V),
    _row("roll_by_traced", lambda x: np.roll(x, np.argmax(x[0]), 1), _M),
    _row("windows", lambda x: sliding_window_view(x, (2, 3)), _M),
    _row("windows_axis", lambda x: sliding_window_view(x, 2, -1), _FORTRAN),
    _row("windows_twice", lambda x: sliding_window_view(x, (2, 2), (0, 0)), _M),
]

SAMPLES = [*_KNOWN_LATER, *_BETWEEN, *_LIKE, *_EDIT, *_PAD]
