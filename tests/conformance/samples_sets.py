"""Sample calls of the functions for order, sets, comparisons and places."""

from __future__ import annotations

from typing import Any

import numpy as np

from customop import FakeArray, ops
from tests.conformance.samples import Sample

__all__ = ["SAMPLES"]

_random = np.random.default_rng(20250311)


def _spaced(*shape: int) -> Any:
    """Distinct floats, so that no order changes in a small step."""
    count = int(np.prod(shape, dtype=int))
    return (_random.permutation(count) * 0.7 - 1.3).reshape(shape)


_V, _M, _T = _spaced(7), _spaced(3, 4), _spaced(2, 3, 4)
_DOT, _NONE = np.asarray(0.4), np.zeros((0, 3))
_FORTRAN, _STRIDED = np.asfortranarray(_spaced(4, 3)), _spaced(6, 8)[::2, ::2]
_COMPLEX = _spaced(5) + 1j * _spaced(5)
_SINGLE = _spaced(6).astype(np.float32)
_TIES = np.array([2, 0, 2, 1, 0, 2])
_NANS = np.array([2.0, np.nan, -1.0, np.nan, 0.5])
_BYTES = np.arange(12, dtype=np.uint8).reshape(3, 4) * 21
_SMALL, _LARGE = np.array([0.3, 0.7]), np.array([-2.3, 0.4, 1.9])
_INFINITE = np.array([np.inf, np.inf, -np.inf, 1.0, 1e30])
_LINE = np.sort(_spaced(6))


def _row(name: str, fn: Any, *args: Any, **options: Any) -> Sample:
    """A row that is differentiated by all its arguments of doubles."""
    doubles = (np.float64, np.complex128)
    diff = tuple(i for i, a in enumerate(args) if a.dtype in doubles)
    return Sample(name, fn, args, **{"diff": diff, **options})


def _plain(name: str, fn: Any, *args: Any, **options: Any) -> Sample:
    """A row whose results have no derivative."""
    return Sample(name, fn, args, **options)


def _open(name: str, fn: Any, *args: Any, **options: Any) -> Sample:
    """A row whose result has a length that depends on data."""
    return _row(name, fn, *args, vmap=False, **options)


def _uneven(name: str, fn: Any, *args: Any, **options: Any) -> Sample:
    """A row whose result has a length or dtype by values: fake arrays get theirs."""

    def real(*given: Any) -> Any:
        pairs = zip(given, args, strict=True)
        return fn(
            *[a.astype(g.dtype) if isinstance(g, FakeArray) else g for g, a in pairs]
        )

    return _row(name, real, *args, vmap=False, **options)


_ORDER = [
    _row("partition", lambda x: np.partition(x, 3), _V),
    _row("partition_several", lambda x: np.partition(x, [1, -1], axis=0), _M),
    _row("partition_flat", lambda x: np.partition(x, 5, axis=None), _FORTRAN),
    _row("partition_strided", lambda x: np.partition(x, 1), _STRIDED),
    _row("partition_complex", lambda x: np.partition(x, 2), _COMPLEX),
    _row("partition_none", lambda x: np.partition(x, 0, axis=0), _NONE),
    _plain("partition_ties", lambda x: np.partition(x, 2), _TIES),
    _plain("argpartition", lambda x: np.argpartition(x, 2), _V),
    _plain("argpartition_axis", lambda x: np.argpartition(x, (0, 2), axis=0), _FORTRAN),
    _plain("argpartition_0d", lambda x: np.argpartition(x, 0), _DOT),
    _plain("argpartition_method", lambda x: x.argpartition(1, axis=None), _M),
    _plain("lexsort", lambda x, y: np.lexsort((x, y)), _V[:6], _TIES),
    _plain("lexsort_axis", lambda x, y: np.lexsort((x, y), axis=0), _M, _M % 1.0),
    _plain("lexsort_rows", np.lexsort, _M),
    _row("sort_complex", np.sort_complex, _COMPLEX),
    _row("sort_complex_real", np.sort_complex, _M),
]

_SEARCH = [
    _plain("searchsorted", np.searchsorted, _LINE, _M),
    _plain(
        "searchsorted_right", lambda a, v: np.searchsorted(a, v, "right"), _LINE, _V
    ),
    _plain("searchsorted_number", lambda a: np.searchsorted(a, 0.1), _LINE),
    _plain("searchsorted_method", lambda a: a.searchsorted(0.2), _LINE),
    _plain("searchsorted_none", np.searchsorted, np.zeros(0), _V),
    _plain("searchsorted_mixed", np.searchsorted, np.arange(5), _M, vmap=False),
    _plain("searchsorted_nan", np.searchsorted, np.sort(_NANS), _NANS),
    _plain(
        "searchsorted_complex",
        lambda a, v: np.searchsorted(np.sort(a), v),
        _COMPLEX,
        _COMPLEX[:2].real + 0j,
    ),
    _plain(
        "searchsorted_sorter",
        lambda a, v: np.searchsorted(a, v, sorter=np.argsort(a)),
        _V,
        _M,
    ),
]

# How many elements there are depends on data.
_UNEVEN = [
    _open("unique", np.unique, _V),
    _open("unique_ties", lambda x: np.unique(x, True, True, True), _TIES),
    _open("unique_nan", np.unique, _NANS, diff=()),
    _open("unique_axis", lambda x: np.unique(x, axis=0, return_index=True), _M),
    _open("unique_all", lambda x: tuple(np.unique_all(x)), _M),
    _open("unique_counts", lambda x: tuple(np.unique_counts(x)), _TIES),
    _open("unique_inverse", lambda x: tuple(np.unique_inverse(x)), _STRIDED),
    _open("unique_values", np.unique_values, _TIES),
    _open("union1d", np.union1d, _V, _LINE[:3] + 0.3),
    _open("intersect1d", lambda x: np.intersect1d(x, x[::2] * 1.0), _V),
    _open(
        "intersect1d_places",
        lambda x, y: np.intersect1d(x, y, False, True),
        _TIES,
        _TIES[:3],
    ),
    _open("setdiff1d", lambda x: np.setdiff1d(x, x[:2]), _V),
    _open("setxor1d", lambda x: np.setxor1d(x, x[:2] * 1.0), _V),
    _uneven(
        "trim_zeros", lambda x: np.trim_zeros(x * (np.abs(x) < 1.2)), _LINE, diff=()
    ),
    _open("bincount_all", lambda x: ops.np.bincount_all(x), _TIES),
    _open("bin_sum_all", lambda w, x: ops.np.bin_sum_all(w, x), _LINE, _TIES),
    _open("extract", lambda x, m: np.extract(m, x), _M, _M > 0),
]

_EMATH = [
    _uneven(f"emath-{name}-{kind}", getattr(np.emath, name), x)
    for name in ("sqrt", "log", "log2", "log10", "arccos", "arcsin", "arctanh")
    for kind, x in (("real", _SMALL), ("complex", _LARGE))
] + [
    _uneven("emath-logn-base", lambda x: np.emath.logn(2.0, x), _LARGE),
    _uneven("emath-power-real", lambda x: np.emath.power(x, -1.5), _LARGE),
    _uneven("emath-power-whole", np.emath.power, _TIES + 1, np.array([-1, 2, 0] * 2)),
]

_MEMBERS = [
    _plain("isin", np.isin, _TIES, np.array([[1, 2]])),
    _plain("isin_floats", lambda x, y: np.isin(x, y, invert=True), _M, _M[:2, :2]),
    _plain("isin_none", np.isin, _M, np.zeros((0, 2))),
    _plain(
        "isin_many", lambda x, y: np.isin(x, y, kind="sort"), _TIES, np.arange(1, 40)
    ),
]

_COMPARE = [
    _plain("isclose", np.isclose, _M, _M + 1e-9),
    _plain("isclose_nan", lambda x: np.isclose(x, _NANS, equal_nan=True), _NANS),
    _plain("isclose_number", lambda x: np.isclose(x, 2, atol=1), _TIES),
    _plain("isclose_inf", np.isclose, _INFINITE, np.roll(_INFINITE, 1), vmap=False),
    _plain("isclose_inf_equal", np.isclose, _INFINITE, _INFINITE),
    _plain("allclose", np.allclose, _M, _M + 1e-9),
    _plain("array_equal", np.array_equal, _M, _M),
    _plain("array_equal_nan", lambda x: np.array_equal(x, x, equal_nan=True), _NANS),
    _plain("array_equiv", np.array_equiv, _M, _M[:1]),
    _plain("isreal", np.isreal, _COMPLEX),
    _plain("iscomplex", np.iscomplex, _COMPLEX),
    _plain("iscomplex_real", np.iscomplex, _M),
    _plain("isposinf", np.isposinf, _NANS / 0.5),
    _plain("isneginf", np.isneginf, np.array([-np.inf, np.inf, 1.0])),
]

_SHAPE, _COUNT = (3, 4, 2), 24
_PLACES = [
    _plain(
        "ravel_multi_index",
        lambda i, j, k: np.ravel_multi_index((i, j, k), _SHAPE),
        np.array([0, 2]),
        np.array([[3], [1]]),
        np.array(1),
    ),
    _plain(
        "ravel_multi_index_wrap",
        lambda i: np.ravel_multi_index(i, (3, 4), ("wrap", "clip"), "F"),
        np.array([[5, -1], [9, 2]]),
    ),
    _plain(
        "unravel_index",
        lambda i: np.unravel_index(i, _SHAPE),
        np.asfortranarray(np.arange(6).reshape(2, 3) * 4),
    ),
    _plain("unravel_index_F", lambda i: np.unravel_index(i, 24, "F"), np.array(7)),
    _plain("ix", lambda i, j: np.ix_(i, j), np.array([0, 2]), np.array([1, 0, 3])),
    _row("tril_indices_from", lambda x: x[np.tril_indices_from(x, -1)], _M),
    _row("triu_indices_from", lambda x: x[np.triu_indices_from(x)], _FORTRAN),
    _row("diag_indices_from", lambda x: x[np.diag_indices_from(x)], _spaced(3, 3)),
    _plain("packbits", np.packbits, _BYTES > 99),
    _plain("packbits_axis", lambda x: np.packbits(x, 0, "little"), _BYTES),
    _plain("unpackbits", np.unpackbits, _BYTES),
    _plain("unpackbits_count", lambda x: np.unpackbits(x, axis=1, count=-5), _BYTES),
    _plain("unpackbits_pad", lambda x: np.unpackbits(x, 0, 30, "little"), _BYTES.T),
]

SAMPLES = [*_ORDER, *_SEARCH, *_UNEVEN, *_EMATH, *_MEMBERS, *_COMPARE, *_PLACES]
