"""Functions of arrays of any sizes, for graphs that are captured at some and run at others.

Each row has a function and the sizes of its arguments as letters: axes with one letter
have one size. The sizes N, M and K are not small.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy import linalg
from numpy.lib.stride_tricks import sliding_window_view

import customop as co

__all__ = ["ROWS", "SizedRow"]


class SizedRow(NamedTuple):
    """A function of arrays of any sizes.

    Attributes
    ----------
    fn : callable
    shapes : str
        The letters of the sizes of each argument.
    slopes : tuple of int
        The arguments with a gradient.
    """

    fn: Callable[..., Any]
    shapes: str
    slopes: tuple[int, ...] = (0,)


def _positive(x: Any) -> Any:
    """Matrices that are positive definite."""
    return x @ np.swapaxes(x, -1, -2) + np.eye(x.shape[-2], like=x)


def _turned(x: Any) -> Any:
    """A factorization by which signs of columns cancel."""
    u, s, vh = linalg.svd(x, full_matrices=False)
    return (u * np.expand_dims(np.tanh(s), -2)) @ vh


def _squared(a: Any) -> Any:
    """Equations of several axes that are regular."""
    rows, columns = a.shape[0] * a.shape[1], a.shape[2] * a.shape[3]
    return np.reshape(_positive(np.reshape(a, (rows, columns))), a.shape)


def _written(write: Callable[..., Any]) -> Callable[..., Any]:
    """A function that writes in place, as one that returns what is written."""

    def fn(x: Any, *rest: Any) -> Any:
        y = x * 1.0
        write(y, *rest)
        return y

    return fn


def _rows(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of each row."""
    return lambda *args: co.vmap(fn)(*args)


def _both_sides(a: Any, v: Any) -> list[Any]:
    return [np.searchsorted(a, v, "left"), np.searchsorted(a, v, "right")]


def _whole(x: Any) -> Any:
    return np.absolute(x * 3.0).astype(int)


ROWS: dict[str, SizedRow] = {
    # ---- order and statistics ----
    "sort": SizedRow(lambda x: np.sort(x, 0), "nm"),
    "argmax": SizedRow(lambda x: np.argmax(x, 1), "nm", ()),
    "partition": SizedRow(lambda x: np.sort(np.partition(x, 0)), "nm"),
    "searchsorted": SizedRow(lambda a, v: np.searchsorted(np.sort(a), v), "n mk", ()),
    "searchsorted rows": SizedRow(
        _rows(lambda a, v: _both_sides(np.sort(np.round(a)), np.round(v))), "nm nk", ()
    ),
    "isin rows": SizedRow(
        _rows(lambda x, y: np.isin(np.round(x), np.round(y))), "nm nk", ()
    ),
    "quantile": SizedRow(lambda x: np.quantile(x, [0.1, 0.7], axis=1), "nm"),
    "median": SizedRow(lambda x: np.median(x, 0), "nm"),
    "nanmedian": SizedRow(lambda x: np.nanmedian(x, 1), "nm"),
    "var": SizedRow(lambda x: np.var(x, axis=0), "nm"),
    "std": SizedRow(lambda x: np.std(x, axis=1, ddof=1), "nM"),
    "var where": SizedRow(lambda x: np.var(x, axis=1, where=x > -9), "nm"),
    "average": SizedRow(lambda x: np.average(x, axis=0, returned=True), "nm"),
    "cov": SizedRow(lambda x: np.cov(x), "NM"),
    "count_nonzero": SizedRow(lambda x: np.count_nonzero(x > 0, axis=0), "nm", ()),
    "histogram": SizedRow(lambda x: np.histogram(x, 4), "nm", ()),
    "histogram edges": SizedRow(lambda x, e: np.histogram(x, np.sort(e)), "nm k", ()),
    "bincount": SizedRow(lambda w, x: np.bincount(_whole(x), w), "n n"),
    # ---- Fourier transforms ----
    "fft": SizedRow(lambda x: np.fft.fft(x, axis=0).real, "nm"),
    "rfft": SizedRow(lambda x: np.absolute(np.fft.rfft(x)), "nM"),
    "irfft": SizedRow(lambda x: np.fft.irfft(np.fft.rfft(x, 5)), "nM"),
    "irfftn": SizedRow(lambda x: np.fft.irfftn(x), "nmK"),
    "fftshift": SizedRow(lambda x: np.fft.fftshift(x), "nm"),
    # ---- linear algebra ----
    "solve": SizedRow(
        lambda a, b: linalg.solve(_positive(a), b), "nn nk", slopes=(0, 1)
    ),
    "det": SizedRow(linalg.det, "nmm"),
    "qr": SizedRow(lambda x: np.absolute(linalg.qr(x, mode="r")), "nm"),
    "svd": SizedRow(_turned, "nm"),
    "svd full": SizedRow(lambda x: np.absolute(linalg.svd(x)[0][:, 0]), "nm"),
    "eigvalsh": SizedRow(lambda x: linalg.eigvalsh(_positive(x)), "nm"),
    "pinv": SizedRow(lambda x: linalg.pinv(x, rtol=None), "nm"),
    "lstsq": SizedRow(lambda a, b: linalg.lstsq(a, b)[:2], "nm nk", slopes=(0, 1)),
    "matrix_rank": SizedRow(linalg.matrix_rank, "nm", ()),
    "cond": SizedRow(linalg.cond, "nm"),
    "norm of matrices": SizedRow(lambda x: linalg.matrix_norm(x, ord=2), "knm"),
    "norm of vectors": SizedRow(lambda x: linalg.norm(x, np.inf, axis=1), "nm"),
    "matrix_power": SizedRow(lambda x: linalg.matrix_power(x, 0) + x, "nn"),
    "tensorsolve": SizedRow(lambda a, b: linalg.tensorsolve(_squared(a), b), "nmnm nm"),
    "tensorinv": SizedRow(lambda a: linalg.tensorinv(_squared(a)), "nmnm"),
    "multi_dot": SizedRow(lambda a, b, c: linalg.multi_dot([a, b, c]), "nm mk kn"),
    # ---- polynomials and sequences ----
    "polyval": SizedRow(np.polyval, "n mk", slopes=(0, 1)),
    "polyfit": SizedRow(lambda x, y: np.polyfit(x, y, 1), "N N", slopes=(0, 1)),
    "polyadd": SizedRow(np.polyadd, "n m", slopes=(0, 1)),
    "polymul": SizedRow(np.polymul, "n m", slopes=(0, 1)),
    "polyder": SizedRow(np.polyder, "N"),
    "polyint": SizedRow(np.polyint, "n"),
    "vander": SizedRow(np.vander, "n"),
    "poly": SizedRow(np.poly, "n"),
    "convolve": SizedRow(np.convolve, "n m", slopes=(0, 1)),
    "convolve same": SizedRow(
        lambda a, v: np.convolve(a, v, "same"), "n m", slopes=(0, 1)
    ),
    "convolve valid": SizedRow(
        lambda a, v: np.convolve(a, v, "valid"), "n m", slopes=(0, 1)
    ),
    "correlate same": SizedRow(
        lambda a, v: np.correlate(a, v, "same"), "n m", slopes=(0, 1)
    ),
    "interp": SizedRow(lambda x, p, f: np.interp(x, np.sort(p), f), "nm k k", (0, 2)),
    "interp rows": SizedRow(
        _rows(lambda x, p, f: np.interp(x, np.sort(p), f)), "nm nk nk", (2,)
    ),
    # ---- sets and places ----
    "unique": SizedRow(
        lambda x: np.unique(np.round(x), return_inverse=True, return_counts=True),
        "nm",
        (),
    ),
    "intersect1d": SizedRow(
        lambda x, y: np.intersect1d(np.round(x), np.round(y)), "n m", ()
    ),
    "setdiff1d": SizedRow(
        lambda x, y: np.setdiff1d(np.round(x), np.round(y)), "n m", ()
    ),
    "setxor1d": SizedRow(lambda x, y: np.setxor1d(np.round(x), np.round(y)), "n m", ()),
    "delete": SizedRow(lambda x: np.delete(x, [0, -1][:1], axis=1), "nm"),
    "delete last": SizedRow(lambda x: np.delete(x, -1), "nm"),
    "delete some": SizedRow(lambda x: np.delete(x, [1, 0, 1], axis=0), "Nm"),
    "delete slice": SizedRow(lambda x: np.delete(x, slice(1, -1), axis=0), "nm"),
    "delete backward": SizedRow(
        lambda x: np.delete(x, slice(None, 0, -1), axis=0), "nm"
    ),
    "insert": SizedRow(lambda x, v: np.insert(x, 1, v, axis=0), "nm m", slopes=(0, 1)),
    "insert some": SizedRow(lambda x: np.insert(x, [1, 0, 1], [7.0, 8.0, 9.0]), "N"),
    "resize": SizedRow(lambda x: np.resize(x, (x.shape[1], 5)), "nm"),
    "windows": SizedRow(lambda x: sliding_window_view(x, 2, axis=0), "Nm"),
    "apply_along_axis": SizedRow(
        lambda x: np.apply_along_axis(lambda row: np.sum(row) * row, 1, x), "nm"
    ),
    "piecewise": SizedRow(
        lambda x: np.piecewise(x, [x < 0, x >= 0], [np.square, np.sin]), "nm"
    ),
    # ---- writing in place ----
    "fill_diagonal": SizedRow(
        _written(lambda y, v: np.fill_diagonal(y, v, wrap=True)), "nm k"
    ),
    "put": SizedRow(_written(lambda y: np.put(y, [0, -1], [5.0, 6.0])), "Nm"),
    "putmask": SizedRow(_written(lambda y, v: np.putmask(y, y > 0, v)), "nm k"),
    "put_along_axis": SizedRow(
        _written(
            lambda y: np.put_along_axis(y, np.argmax(y, 1, keepdims=True), 0.0, 1)
        ),
        "nm",
    ),
}
