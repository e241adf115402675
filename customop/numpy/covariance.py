"""Covariances and correlations: cov, corrcoef."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from customop import ArgumentError, SymInt, register_numpy_function
from customop.numpy.arguments import as_array, cast, dtype_of
from customop.numpy.checked import require, warn_unless
from customop.numpy.rules import is_complex
from customop.numpy.sizes import is_known, larger

__all__: list[str] = []


def _rows(x: Any, dtype: Any, transposed: bool) -> Any:
    """Variables in rows, observations in columns."""
    wide = np.atleast_2d(cast(x, dtype))
    return np.transpose(wide) if transposed else wide


def _frequencies(weights: Any, count: int) -> Any:
    weights = as_array(weights)
    _check_line("fweights", weights, count)
    if dtype_of(weights).kind == "f":
        require(np.equal(weights, np.around(weights)), "fweights must be integer")
    require(np.greater_equal(weights, 0), "fweights cannot be negative")
    return weights


def _importances(weights: Any, count: int) -> Any:
    weights = cast(as_array(weights), np.dtype(float))
    _check_line("aweights", weights, count)
    require(np.greater_equal(weights, 0), "aweights cannot be negative")
    return weights


def _check_line(name: str, weights: Any, count: int) -> None:
    if weights.ndim > 1:
        raise RuntimeError(f"cannot handle multidimensional {name}")
    if weights.shape[0] != count:
        raise RuntimeError(f"incompatible numbers of samples and {name}")


def _stacked(m: Any, y: Any, rowvar: bool, dtype: Any) -> Any:
    if m.ndim > 2:
        raise ValueError("m has more than 2 dimensions")
    if y is not None and y.ndim > 2:
        raise ValueError("y has more than 2 dimensions")
    if dtype is None:
        arrays = [dtype_of(v) for v in (m, y) if v is not None]
        dtype = np.result_type(*arrays, np.float64)
    x = _rows(m, dtype, not rowvar and m.ndim != 1)
    if y is None or is_known(x.shape[0], 0):
        return x
    other = _rows(y, dtype, transposed=False)
    if not rowvar and other.shape[0] != 1:
        other = np.transpose(other)
    return np.concatenate([x, other], axis=0)


@register_numpy_function(np.cov)
def _(
    m: Any,
    y: Any = None,
    rowvar: Any = True,
    bias: Any = False,
    ddof: Any = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Any:
    if ddof is not None and ddof != int(ddof):
        raise ValueError("ddof must be integer")
    m, y = as_array(m), None if y is None else as_array(y)
    if dtype is not None and np.dtype(dtype).kind not in "fc":
        raise ArgumentError(
            f"np.cov: dtype={dtype!r} has no room for deviations", do="use dtype=float"
        )
    x = _stacked(m, y, bool(rowvar), dtype)
    count = x.shape[1]
    if is_known(x.shape[0], 0):
        return np.zeros_like(x, np.float64, shape=(0, 0))
    ddof = (1 if bias == 0 else 0) if ddof is None else operator.index(int(ddof))
    frequent = None if fweights is None else _frequencies(fweights, count)
    important = None if aweights is None else _importances(aweights, count)
    given = [w for w in (frequent, important) if w is not None]
    weights = given[0] * given[1] if len(given) == 2 else given[0] if given else None
    mean, total = np.average(x, axis=1, weights=weights, returned=True)
    free = _freedom(count, total[0], weights, important, ddof)
    moved = x - np.expand_dims(mean, 1)
    weighted = moved if weights is None else moved * weights
    products = np.matmul(moved, np.conjugate(np.transpose(weighted)))
    is_open = isinstance(free, SymInt)
    shares = products / free if is_open else products * np.true_divide(1, free)
    return np.squeeze(cast(shares, products.dtype))


def _freedom(count: int, total: Any, weights: Any, important: Any, ddof: int) -> Any:
    """Degrees of freedom; 0 instead of fewer, with NumPy's warning."""
    if weights is None and type(count) is not int:
        return larger(count - ddof, 0)
    if weights is None:
        free: Any = np.asarray(float(count - ddof))
    elif ddof == 0:
        free = total
    elif important is None:
        free = total - ddof
    else:
        free = total - ddof * np.sum(weights * important) / total
    warn_unless(np.greater(free, 0), "Degrees of freedom <= 0 for slice")
    return np.where(np.greater(free, 0), free, 0.0)


@register_numpy_function(np.corrcoef)
def _(x: Any, y: Any = None, rowvar: Any = True, *, dtype: Any = None) -> Any:
    products = np.cov(x, y, rowvar, dtype=dtype)
    if not products.ndim:
        return products / products
    sizes = np.sqrt(np.real(np.diagonal(products)))
    ratios = products / np.expand_dims(sizes, 1) / sizes
    if not is_complex(ratios):
        return np.clip(ratios, -1, 1)
    real, imag = np.clip(np.real(ratios), -1, 1), np.clip(np.imag(ratios), -1, 1)
    return cast(real + 1j * imag, ratios.dtype)
