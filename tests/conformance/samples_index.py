"""Sample calls of the operators for indexing."""

from __future__ import annotations

from operator import getitem
from typing import Any

import numpy as np

import customop as co
from customop.arrays.numpy_functions import call_numpy
from tests.conformance.samples import Sample

__all__ = ["SAMPLES"]

_random = np.random.default_rng(20240712)


def _floats(*shape: int) -> Any:
    return np.asarray(_random.normal(size=shape))


_V, _M, _T = _floats(5), _floats(3, 4), _floats(2, 3, 4)
_Q = _floats(2, 3, 4, 5)
_DOT, _NONE = _floats(), _floats(0, 3)
_FORTRAN = np.asfortranarray(_floats(3, 4))
_TURNED = np.transpose(_floats(4, 2, 3), (1, 2, 0))
_BACKWARDS = _floats(3, 4)[::-1, ::-1]
_INTS = np.arange(12).reshape(3, 4)
_I, _J = np.array([0, 2, 2, -1]), np.array([[1], [0]])
_MASK, _BOOLS = _M > 0.0, np.array([True, False, True])
_SMALL = np.array([2, 0], np.uint8)


def _row(name: str, fn: Any, *args: Any, **options: Any) -> Sample:
    """A row that is differentiated by all its float arguments."""
    diff = tuple(i for i, a in enumerate(args) if a.dtype == np.float64)
    return Sample(name, fn, args, diff=diff, **options)


def _get(name: str, x: Any, key: Any) -> Sample:
    """``x[key]``."""
    return _row(f"getitem_{name}", lambda a: a[key], x)


def _by(name: str, fn: Any, x: Any, *indices: Any) -> Sample:
    """A call with the index arrays as arguments, so that they are batched too."""
    return _row(f"getitem_{name}", fn, x, *indices)


_BASIC = [
    _get("int", _M, 1),
    _get("negative", _M, -1),
    _get("numpy_int", _M, np.int32(2)),
    _get("0d_int", _M, np.array(1)),
    _get("ints", _T, (1, -2, 3)),
    _get("slice", _V, slice(1, 4)),
    _get("step", _V, slice(None, None, 2)),
    _get("reversed", _V, slice(None, None, -1)),
    _get("reversed_part", _M, (slice(None, 0, -2), slice(-1, None, -3))),
    _get("past_end", _V, slice(3, 99)),
    _get("nothing", _V, slice(4, 2)),
    _get("all", _M, slice(None)),
    _get("column", _M, (slice(None), 1)),
    _get("ellipsis", _T, (..., 0)),
    _get("ellipsis_middle", _Q, (0, ..., slice(1, 3))),
    _get("ellipsis_alone", _M, ...),
    _get("ellipsis_empty", _V, (..., 0)),
    _get("newaxis", _V, (None, slice(None), None)),
    _get("newaxis_int", _T, (None, 0, ..., None, 1)),
    _get("no_key", _M, ()),
    _get("0d", _DOT, ()),
    _get("0d_ellipsis", _DOT, ...),
    _get("0d_newaxis", _DOT, None),
    _get("empty", _NONE, (slice(None), slice(1, None))),
    _get("fortran", _FORTRAN, (slice(1, None), slice(None, None, 2))),
    _get("turned", _TURNED, (slice(None), 1)),
    _get("backwards", _BACKWARDS, (slice(None, None, -1), 1)),
    _get("integers", _INTS, (slice(1), -1)),
    _row("getitem_iterated", lambda x: sum(row * row for row in x), _M),
]

_ADVANCED = [
    _get("list", _V, [0, 3, 3]),
    _get("list_nested", _V, [[0, 1], [4, 4]]),
    _get("list_empty", _V, []),
    _get("tuple_in_tuple", _M, ((0, 2),)),
    _get("array", _M, _I),
    _get("array_2d", _M, _J),
    _get("array_unsigned", _M, _SMALL),
    _get("array_last", _M, (slice(None), _I)),
    _get("array_middle", _T, (slice(None), _SMALL)),
    _get("array_fortran", _FORTRAN, (slice(None), _I)),
    _get("array_ellipsis", _T, (..., _I)),
    _get("array_sliced", _T, (slice(None, None, -1), slice(1, None), _I)),
    _get("array_empty", _M, np.zeros((0, 2), int)),
    _get("array_none", _NONE, (slice(None), _I[:3])),
    _get("two", _M, (np.array([0, 2]), np.array([1, -1]))),
    _get("two_broadcast", _M, (_J, np.array([0, 2, 3]))),
    _get("two_last", _T, (slice(None), _J, np.array([0, 2, 3]))),
    _get("two_apart", _T, (_J, slice(None), np.array([0, 2, 3]))),
    _get("two_apart_late", _Q, (slice(None), _J, slice(1, 3), np.array([0, 4]))),
    _get("two_apart_newaxis", _T, (_J, None, np.array([0, 2]))),
    _get("int_apart", _T, (0, slice(None), _I)),
    _get("int_beside", _T, (slice(None), 1, _I)),
    _get("int_before", _Q, (slice(None), 1, _I)),
    _get("newaxis_array", _M, (None, _I)),
    _get("array_newaxis", _M, (_I, None)),
    _get("mask", _M, _MASK),
    _get("mask_axis", _M, _BOOLS),
    _get(
        "mask_last", _T, (slice(None), slice(None), np.array([True, False, True, True]))
    ),
    _get("mask_two_axes", _T, (slice(None), _MASK)),
    _get("mask_list", _M, [True, False, True]),
    _get("mask_and_array", _M, (_BOOLS, np.array([1, 2]))),
    _get("mask_false", _M, np.zeros((3, 4), bool)),
    _get("true", _M, True),
    _get("false", _M, False),
    _get("true_middle", _M, (slice(None), True)),
    _get("0d_mask", _DOT, np.array(True)),
    _get("true_and_array", _M, (True, _I)),
    _get("repeated_integers", _INTS, _I),
]


def _at(x: Any, *key: Any) -> Any:
    """``x[key]``; by `getitem` where a plain array is indexed by a traced one."""
    if isinstance(x, np.ndarray) and any(isinstance(k, co.Tracer) for k in key):
        return call_numpy(getitem, x, key)
    return x[key]


_ALL = slice(None)

_TRACED = [
    _by("by_array", _at, _M, _I),
    _by("by_0d", _at, _M, np.array(2)),
    _by("by_0d_last", lambda x, i: _at(x, ..., i), _T, np.array(-1)),
    _by("by_array_last", lambda x, i: _at(x, _ALL, i), _M, _I),
    _by("by_array_middle", lambda x, i: _at(x, _ALL, i), _Q, _J),
    _by("by_two", _at, _M, _J, np.array([0, 2, 3])),
    _by("by_two_last", lambda x, i, j: _at(x, _ALL, i, j), _T, _J, np.array([0, 2, 3])),
    _by(
        "by_two_apart", lambda x, i, j: _at(x, i, _ALL, j), _T, _J, np.array([0, 2, 3])
    ),
    _by(
        "by_two_0d",
        lambda x, i, j: _at(x, _ALL, i, _ALL, j),
        _Q,
        np.array(1),
        np.array(-1),
    ),
    _by(
        "by_two_sliced",
        lambda x, i, j: _at(x, slice(None, None, -1), i, None, j),
        _T,
        _J,
        np.array([0, 2]),
    ),
    _by("by_list", lambda x, i: _at(x, np.stack([i, i * 0])), _M, np.array(1)),
    _row("take_by", lambda x, i: x[0] * _at(x, i), _M, _I),
]


# The shape depends on data.
_DATA = [
    _row("mask_traced", lambda x, m: x[m], _M, _MASK, vmap=False),
    _row("mask_axis_traced", lambda x, m: x[:, m], _T, _BOOLS, vmap=False),
    _row("mask_by_value", lambda x: x[x > 0.0], _M, vmap=False),
    _row("nonzero", lambda x: np.nonzero(x)[1], _M, vmap=False),
    _row("where_alone", lambda x: np.where(x)[0], _M, vmap=False),
    _row("flatnonzero", np.flatnonzero, _M, vmap=False),
]

_TAKE = [
    _row("take", lambda x: np.take(x, [0, 3]), _M),
    _row("take_axis", lambda x: np.take(x, [0, 3, 3], axis=1), _M),
    _row("take_negative_axis", lambda x: np.take(x, [[0], [2]], axis=-2), _T),
    _row("take_int", lambda x: np.take(x, 2, axis=1), _M),
    _row("take_method", lambda x: x.take([1, 0], axis=0), _FORTRAN),
    _row("take_wrap", lambda x: np.take(x, [-7, 9], mode="wrap"), _V),
    _row("take_clip", lambda x: np.take(x, [-7, 9], axis=0, mode="clip"), _M),
    _row(
        "take_along_axis",
        lambda x, i: np.take_along_axis(x, i, axis=1),
        _M,
        np.array([[0], [3], [3]]),
    ),
    _row(
        "take_along_axis_first",
        lambda x, i: np.take_along_axis(x, i, axis=0),
        _M,
        np.array([[0, 2, 1, 1], [0, 0, 2, 1]]),
    ),
    _row(
        "take_along_axis_sorted",
        lambda x: np.take_along_axis(x, np.array([[3, 0, 1, 2]] * 3), axis=-1),
        _BACKWARDS,
    ),
    _row(
        "take_along_axis_flat",
        lambda x: np.take_along_axis(x, np.array([1, 5]), axis=None),
        _M,
    ),
    _row("compress", lambda x: np.compress([True, False, True], x, axis=0), _M),
]

_DIAGONAL = [
    _row("diagonal", np.diagonal, _M),
    _row("diagonal_offset", lambda x: np.diagonal(x, 2), _M),
    _row("diagonal_below", lambda x: np.diagonal(x, -1), _FORTRAN),
    _row("diagonal_turned", lambda x: np.diagonal(x, -1, axis1=1, axis2=0), _M),
    _row("diagonal_outside", lambda x: np.diagonal(x, 9), _M),
    _row("diagonal_axes", lambda x: np.diagonal(x, 1, axis1=-1, axis2=0), _T),
    _row("diagonal_method", lambda x: x.diagonal(), _TURNED),
    _row("diag", np.diag, _M),
    _row("diag_k", lambda x: np.diag(x, -1), _M),
    _row("diag_build", np.diag, _V),
    _row("diag_build_above", lambda x: np.diag(x, 2), _V),
    _row("diag_build_below", lambda x: np.diag(x, -1), _V),
    _row("diag_ints", np.diag, np.arange(3)),
    _row("diagflat", lambda x: np.diagflat(x, 1), _floats(2, 2)),
    _row("trace", np.trace, _M),
    _row("trace_offset", lambda x: np.trace(x, 1, axis1=1, axis2=2), _T),
    _row("trace_method", lambda x: x.trace(), _BACKWARDS),
]

_WHERE = [
    _row("where", np.where, _MASK, _M, _FORTRAN),
    _row("where_broadcast", np.where, _BOOLS[:, None], _floats(4), _DOT),
    _row("where_number", lambda c, x: np.where(c, x, 0.0), _MASK, _M),
    _row("where_numbers", lambda c: np.where(c, 1, 2.5), _MASK),
    _row("where_condition", lambda x: np.where(x > 0.0, x * x, -x), _M),
    _row(
        "where_single", lambda c, x: np.where(c, x, 1.0), _MASK, _M.astype(np.float32)
    ),
    _row("where_0d", np.where, np.array(True), _DOT, _floats()),
    _row("where_empty", np.where, np.zeros((0, 3), bool), _NONE, _floats(3)),
    _row("where_list", lambda c, x: np.where(c, x, [1.0, 2.0, 3.0, 4.0]), _MASK, _M),
    _row("where_ints", lambda x: np.where([[True], [False], [True]], x, -1.5), _INTS),
    _row("select", lambda x: np.select([x > 1.0, x > 0.0], [x, x * x], -1.0), _M),
    _row("clip", lambda x: np.clip(x, -0.5, 0.5), _M),
    _row("clip_low", lambda x: np.clip(x, 0.1, None), _M),
    _row("clip_high", lambda x: np.clip(x, None, 0.1), _FORTRAN),
    _row("clip_arrays", np.clip, _M, np.full(4, -0.5), np.full((3, 1), 0.7)),
    _row("clip_names", lambda x: np.clip(x, min=-0.3), _M),
    _row("clip_method", lambda x: x.clip(-0.4, 0.6), _M),
    _row("clip_crossed", lambda x: np.clip(x, 0.5, -0.5), _M),
    _row("clip_ints", lambda x: np.clip(x, 2, 7), _INTS),
]


def _written(key: Any) -> Any:
    """``x[key] = v`` as a function of both."""

    def write(x: Any, v: Any) -> Any:
        out = x + 0.0 * np.sum(v)  # takes values of both
        out[key] = v
        return out

    return write


def _number_read(x: Any) -> Any:
    """A number of integers that is written into shorter ones."""
    out = x.astype(np.int16)
    out[0] = x[-1]
    return out


_I2 = np.array([[0, 2], [1, 1]])
_WRITTEN = [
    _row("set_int", _written(1), _M, _floats(4)),
    _row("set_slice", _written((slice(None), slice(1, 3))), _M, _floats(3, 2)),
    _row("set_step", _written(slice(None, None, -2)), _V, _floats(3)),
    _row("set_new_axis", _written((None, 1)), _T, _floats(1, 3, 4)),
    _row("set_broadcast", _written((..., 0)), _T, _floats(3)),
    _row("set_fortran", _written(0), _FORTRAN, _floats(4)),
    _row("set_indices", _written(_I[:2]), _M, _floats(2, 4)),
    _row("set_twice", _written(_I), _M, _floats(4, 4)),
    _row("set_matrix", _written((slice(None), _I2)), _T, _floats(2, 2, 2, 4)),
    _row("set_apart", _written(([0, 1], slice(None), [1, 2])), _T, _floats(2, 3)),
    _row("set_mask", _written(_M > 0.0), _M, _DOT),
    _row("set_rows", _written(_BOOLS), _M, _floats(2, 4)),
    _row("set_empty", _written(slice(0, 0)), _V, _floats(0)),
    _row("set_shorter", _number_read, np.array([3, -2, 700])),
]

SAMPLES = [
    *_WRITTEN,
    *_BASIC,
    *_ADVANCED,
    *_TRACED,
    *_DATA,
    *_TAKE,
    *_DIAGONAL,
    *_WHERE,
]
