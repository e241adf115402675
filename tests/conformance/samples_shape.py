"""Sample calls of the operators for shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from customop.numpy.join import repeated_places
from tests.conformance.samples import Sample

__all__ = ["SAMPLES"]

_random = np.random.default_rng(20240711)


def _floats(*shape: int) -> Any:
    return np.asarray(_random.normal(size=shape))


_V, _M, _T = _floats(4), _floats(3, 4), _floats(2, 3, 4)
_DOT, _NONE = _floats(), _floats(0, 3)
_FORTRAN = np.asfortranarray(_floats(3, 4))
_TURNED = np.transpose(_floats(4, 2, 3), (1, 2, 0))
_STRIDED, _BACKWARDS = _floats(6, 8)[::2, ::2], _floats(3, 4)[::-1, ::-1]
_COMPLEX = _floats(2, 3) + 1j * _floats(2, 3)
_SINGLE = _floats(3, 4).astype(np.float32)
_INTS = np.arange(12).reshape(3, 4)
_ONES = _floats(1, 3, 1, 2)


def _row(name: str, fn: Any, *args: Any, **options: Any) -> Sample:
    """A row that is differentiated by all its float arguments."""
    diff = tuple(i for i, a in enumerate(args) if a.dtype == np.float64)
    return Sample(name, fn, args, diff=diff, **options)


_RESHAPE = [
    _row("reshape", lambda x: np.reshape(x, (4, 3)), _M),
    _row("reshape_unknown", lambda x: np.reshape(x, (2, -1, 2)), _M),
    _row("reshape_int", lambda x: np.reshape(x, -1), _T),
    _row("reshape_0d", lambda x: np.reshape(x, (1, 1)), _DOT),
    _row("reshape_to_0d", lambda x: np.reshape(x, ()), _floats(1, 1)),
    _row("reshape_empty", lambda x: np.reshape(x, (3, 0, 2)), _NONE),
    _row("reshape_fortran", lambda x: np.reshape(x, (2, 6)), _FORTRAN),
    _row("reshape_turned_view", lambda x: np.reshape(x, (2, 3, 2, 2)), _TURNED),
    _row("reshape_turned_copy", lambda x: np.reshape(x, (6, 4)), _TURNED),
    _row("reshape_strided", lambda x: np.reshape(x, (12,)), _STRIDED),
    _row("reshape_backwards", lambda x: np.reshape(x, (2, 6)), _BACKWARDS),
    _row("reshape_order_f", lambda x: np.reshape(x, (2, 6), order="F"), _M),
    _row("reshape_method", lambda x: x.reshape(2, 6), _M),
    _row("reshape_ints", lambda x: np.reshape(x, (6, 2)), _INTS),
    _row("ravel", np.ravel, _T),
    _row("ravel_0d", np.ravel, _DOT),
    _row("ravel_turned", np.ravel, _TURNED),
    _row("ravel_order_f", lambda x: np.ravel(x, order="F"), _M),
    _row("flatten", lambda x: x.flatten(), _M),
    *[
        _row(f"{fn.__name__}_{x.ndim}d", fn, x)
        for fn in (np.atleast_1d, np.atleast_2d, np.atleast_3d)
        for x in (_DOT, _V, _M, _T)
    ],
    _row("atleast_2d_several", lambda x, y: np.atleast_2d(x, y)[1], _V, _DOT),
]

_TRANSPOSE = [
    _row("transpose", np.transpose, _T),
    _row("transpose_axes", lambda x: np.transpose(x, (1, -1, 0)), _T),
    _row("transpose_T", lambda x: x.T, _FORTRAN),
    _row("transpose_method", lambda x: x.transpose(2, 0, 1), _T),
    _row("transpose_0d", np.transpose, _DOT),
    _row("transpose_empty", np.transpose, _NONE),
    _row("transpose_backwards", np.transpose, _BACKWARDS),
    _row("moveaxis", lambda x: np.moveaxis(x, 0, -1), _T),
    _row("moveaxis_back", lambda x: np.moveaxis(x, -1, 0), _TURNED),
    _row("moveaxis_several", lambda x: np.moveaxis(x, (0, 2), (-1, 0)), _T),
    _row("swapaxes", lambda x: np.swapaxes(x, 0, -1), _T),
    _row("rollaxis", lambda x: np.rollaxis(x, 2), _T),
    _row("rollaxis_start", lambda x: np.rollaxis(x, 0, 3), _T),
    _row("matrix_transpose", np.matrix_transpose, _T),
    _row("mT", lambda x: np.swapaxes(x, -1, -2), _TURNED),
]

_AXES = [
    _row("expand_dims", lambda x: np.expand_dims(x, 0), _M),
    _row("expand_dims_last", lambda x: np.expand_dims(x, -1), _FORTRAN),
    _row("expand_dims_several", lambda x: np.expand_dims(x, (0, -2)), _M),
    _row("expand_dims_0d", lambda x: np.expand_dims(x, 0), _DOT),
    _row("expand_dims_empty", lambda x: np.expand_dims(x, 1), _NONE),
    _row("squeeze", np.squeeze, _ONES),
    _row("squeeze_axis", lambda x: np.squeeze(x, -2), _ONES),
    _row("squeeze_axes", lambda x: np.squeeze(x, (0, 2)), _ONES),
    _row("squeeze_nothing", np.squeeze, _M),
    _row("squeeze_to_0d", np.squeeze, _floats(1, 1)),
    _row("broadcast_to", lambda x: np.broadcast_to(x, (2, 3, 4)), _M),
    _row(
        "broadcast_to_stretched", lambda x: np.broadcast_to(x, (5, 3, 2)), _floats(3, 1)
    ),
    _row("broadcast_to_0d", lambda x: np.broadcast_to(x, (2, 2)), _DOT),
    _row("broadcast_to_empty", lambda x: np.broadcast_to(x, (0, 3)), _floats(1, 3)),
    _row("broadcast_to_same", lambda x: np.broadcast_to(x, (4,)), _V),
    _row(
        "broadcast_arrays",
        lambda x, y: np.broadcast_arrays(x, y)[0] * y,
        _V,
        _floats(3, 1),
    ),
    _row("meshgrid", lambda x, y: np.stack(np.meshgrid(x, y)), _V, _floats(3)),
    _row(
        "meshgrid_ij",
        lambda x, y: np.stack(np.meshgrid(x, y, indexing="ij")),
        _V,
        _floats(3),
    ),
    _row(
        "meshgrid_sparse",
        lambda x, y: np.meshgrid(x, y, sparse=True)[1],
        _V,
        _floats(3),
    ),
]

_JOIN = [
    _row("concatenate", lambda x, y: np.concatenate([x, y]), _M, _floats(2, 4)),
    _row(
        "concatenate_axis", lambda x, y: np.concatenate((x, y), axis=-1), _M, _FORTRAN
    ),
    _row("concatenate_fortran", lambda x: np.concatenate([x, x * 2.0], 1), _FORTRAN),
    _row("concatenate_turned", lambda x: np.concatenate([x, x]), _TURNED),
    _row(
        "concatenate_backwards",
        lambda x, y: np.concatenate([x, y], 1),
        _BACKWARDS,
        _STRIDED,
    ),
    _row(
        "concatenate_empty", lambda x, y: np.concatenate([x, y]), _NONE, _floats(2, 3)
    ),
    _row("concatenate_flat", lambda x, y: np.concatenate([x, y], axis=None), _M, _V),
    _row("concatenate_one", lambda x: np.concatenate([x]), _V),
    _row("concatenate_constant", lambda x: np.concatenate([x, np.ones(2)]), _V),
    _row("concatenate_mixed", lambda x, y: np.concatenate([x, y]), _M, _SINGLE),
    _row("concatenate_ints", lambda x, y: np.concatenate([x, y]), _INTS, _M),
    _row(
        "concatenate_dtype",
        lambda x: np.concatenate([x, x], dtype=np.complex128).real,
        _V,
    ),
    _row("append", lambda x, y: np.append(x, y), _V, _floats(2)),
    _row("append_axis", lambda x, y: np.append(x, y, axis=0), _M, _floats(1, 4)),
    _row("stack", lambda x, y: np.stack([x, y]), _M, _FORTRAN),
    _row("stack_axis", lambda x, y: np.stack([x, y], axis=-1), _M, _M * 2.0),
    _row(
        "stack_middle", lambda x, y: np.stack([x, y], axis=1), _FORTRAN, _FORTRAN + 1.0
    ),
    _row("stack_0d", lambda x, y: np.stack([x, y]), _DOT, _floats()),
    _row("stack_number", lambda x: np.stack([x, 1.0]), _DOT),
    _row("stack_mixed", lambda x, y: np.stack([x, y]), _M, _SINGLE),
    _row("stack_empty", lambda x: np.stack([x, x], 1), _NONE),
    _row("vstack", lambda x, y: np.vstack([x, y]), _V, _M),
    _row("hstack_1d", lambda x, y: np.hstack([x, y]), _V, _floats(2)),
    _row("hstack_2d", lambda x, y: np.hstack([x, y]), _M, _floats(3, 1)),
    _row("hstack_0d", lambda x, y: np.hstack([x, y]), _DOT, _floats()),
    _row("dstack", lambda x, y: np.dstack([x, y]), _M, _M + 1.0),
    _row("dstack_1d", lambda x, y: np.dstack([x, y]), _V, _V + 1.0),
    _row("column_stack", lambda x, y: np.column_stack([x, y]), _floats(3), _M),
]

_SPLIT = [
    _row("split", lambda x: np.split(x, 2)[1], _V),
    _row("split_used", lambda x: np.split(x, 2, axis=1)[0] * np.split(x, 2, -1)[1], _M),
    _row("split_places", lambda x: np.split(x, [1, 3], axis=1)[1], _M),
    _row("split_past_end", lambda x: np.split(x, [2, 9])[2], _V),
    _row("array_split", lambda x: np.array_split(x, 3)[0], _V),
    _row("array_split_last", lambda x: np.array_split(x, 3, axis=-1)[2], _M),
    _row("hsplit", lambda x: np.hsplit(x, 2)[1], _M),
    _row("hsplit_1d", lambda x: np.hsplit(x, 2)[1], _V),
    _row("vsplit", lambda x: np.vsplit(x, [1])[1], _M),
    _row("dsplit", lambda x: np.dsplit(x, 2)[0], _T),
    _row("unstack", lambda x: np.unstack(x, axis=1)[2], _M),
]

_PAD = [
    _row("pad", lambda x: np.pad(x, 1), _M),
    _row("pad_pairs", lambda x: np.pad(x, ((1, 0), (2, 3))), _M),
    _row("pad_pair", lambda x: np.pad(x, (2, 1)), _V),
    _row("pad_nothing", lambda x: np.pad(x, 0), _M),
    _row("pad_fortran", lambda x: np.pad(x, 1), _FORTRAN),
    _row("pad_turned", lambda x: np.pad(x, 1), _TURNED),
    _row("pad_empty", lambda x: np.pad(x, 1), _NONE),
    _row("pad_0d", lambda x: np.pad(x, 1), _DOT),
    _row("pad_value", lambda x: np.pad(x, 1, constant_values=2.5), _M),
    _row(
        "pad_values",
        lambda x: np.pad(x, 1, constant_values=((1.0, 2.0), (3.0, 4.0))),
        _M,
    ),
    _row("pad_dict", lambda x: np.pad(x, {-1: (1, 2)}), _M),
    *[
        _row(
            f"pad_{mode}",
            lambda x, mode=mode: np.pad(x, ((1, 2), (3, 0)), mode=mode),
            _M,
        )
        for mode in ("edge", "reflect", "symmetric", "wrap")
    ],
    _row("pad_ints", lambda x: np.pad(x, 1, constant_values=7), _INTS),
    _row("tile", lambda x: np.tile(x, 3), _V),
    _row("tile_axes", lambda x: np.tile(x, (2, 1, 3)), _M),
    _row("tile_fewer", lambda x: np.tile(x, 2), _T),
    _row("tile_0d", lambda x: np.tile(x, (2, 2)), _DOT),
    _row("tile_nothing", lambda x: np.tile(x, 0), _V),
    _row("repeat", lambda x: np.repeat(x, 2), _M),
    _row("repeat_axis", lambda x: np.repeat(x, 3, axis=-1), _M),
    _row("repeat_counts", lambda x: np.repeat(x, [1, 0, 2, 1], axis=1), _M),
    _row("repeat_method", lambda x: x.repeat(2, axis=0), _FORTRAN),
    _row(
        "repeat_counts_traced",
        lambda x, n: np.repeat(x, n, axis=1),
        _M,
        np.array([1, 0, 2, 1]),
        vmap=False,
    ),
    _row("repeated_places", repeated_places, np.array([1, 0, 2, 1]), vmap=False),
    _row("repeat_0d", lambda x: np.repeat(x, 4), _DOT),
    _row("repeat_nothing", lambda x: np.repeat(x, 0, axis=0), _M),
]

_TURN = [
    _row("flip", np.flip, _M),
    _row("flip_axis", lambda x: np.flip(x, -1), _T),
    _row("flip_axes", lambda x: np.flip(x, (0, -1)), _T),
    _row("flip_backwards", np.flip, _BACKWARDS),
    _row("flip_0d", np.flip, _DOT),
    _row("flip_empty", np.flip, _NONE),
    _row("flipud", np.flipud, _M),
    _row("fliplr", np.fliplr, _M),
    _row("roll", lambda x: np.roll(x, 2), _M),
    _row("roll_axis", lambda x: np.roll(x, -1, axis=1), _FORTRAN),
    _row("roll_axes", lambda x: np.roll(x, (1, 2), axis=(0, -1)), _M),
    _row("roll_one_shift", lambda x: np.roll(x, 1, axis=(0, 1)), _TURNED),
    _row("roll_empty", lambda x: np.roll(x, 1), _NONE),
    *[_row(f"rot90_{k}", lambda x, k=k: np.rot90(x, k), _M) for k in (-1, 0, 1, 2, 3)],
    _row("rot90_axes", lambda x: np.rot90(x, 1, (-1, 0)), _T),
]


def _part_written(name: str) -> Any:
    def fn(x: Any, v: Any) -> Any:
        z = (x - v) * (1.0 + 2.0j)
        getattr(z, name)[...] = v
        return z

    return fn


_REST = [
    _row("real_written", _part_written("real"), _M, _M[::-1]),
    _row("imag_written", _part_written("imag"), _FORTRAN, _FORTRAN[::-1]),
    _row("tril", np.tril, _M),
    _row("tril_k", lambda x: np.tril(x, -1), _T),
    _row("tril_1d", np.tril, _V),
    _row("tril_fortran", np.tril, _FORTRAN),
    _row("triu", np.triu, _M),
    _row("triu_k", lambda x: np.triu(x, 1), _TURNED),
    _row("triu_empty", np.triu, _NONE),
    _row("copy", np.copy, _M),
    _row("copy_c", lambda x: np.copy(x, order="C"), _FORTRAN),
    _row("copy_fortran", np.copy, _FORTRAN),
    _row("copy_0d", np.copy, _DOT),
    _row("astype", lambda x: x.astype(np.complex128).real, _M),
    _row("astype_ints", lambda x: x.astype(float), _INTS),
    _row("astype_to_ints", lambda x: np.astype(x, np.int32), _TURNED, second=False),
    _row("astype_function", lambda x: np.astype(x, np.float64, copy=False), _M),
    _row("real", np.real, _COMPLEX),
    _row("real_of_real", np.real, _M),
    _row("imag", np.imag, _COMPLEX),
    _row("imag_of_real", np.imag, _M),
    _row("imag_method", lambda x: (x * 2.0j).imag, _M),
    _row("real_method", lambda x: (x * (1.0 + 2.0j)).real, _FORTRAN),
]

SAMPLES = [*_RESHAPE, *_TRANSPOSE, *_AXES, *_JOIN, *_SPLIT, *_PAD, *_TURN, *_REST]
