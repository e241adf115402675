"""Results without axes are scalars or arrays as NumPy's, and views are NumPy's views.

A program can tell: ``y *= 2`` changes an array under all its names, and no scalar.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import customop as co

LINE, SQUARE = np.array([1.5, 0.25, -2.0]), np.arange(9.0).reshape(3, 3) + 1.0
NUMBER = np.array(1.5)

FUNCTIONS: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    # scalars
    "flip": (np.flip, NUMBER),
    "nanmean": (np.nanmean, LINE),
    "nanstd": (np.nanstd, LINE),
    "nanvar axis": (lambda x: np.nanvar(x, axis=0), LINE),
    "std with mean": (lambda x: np.std(x, mean=np.mean(x, keepdims=True)), LINE),
    "median": (np.median, LINE),
    "nanmedian": (np.nanmedian, LINE),
    "percentile": (lambda x: np.percentile(x, 30), SQUARE),
    "quantile lower": (lambda x: np.quantile(x, 0.3, method="lower"), LINE),
    "nanquantile": (lambda x: np.nanquantile(x, 0.3), LINE),
    "nan_to_num": (np.nan_to_num, NUMBER),
    "einsum sum": (lambda x: np.einsum("i->", x), LINE),
    "einsum trace": (lambda x: np.einsum("ii", x), SQUARE),
    "einsum of a number": (lambda x: np.einsum("...->...", x), NUMBER),
    "cond": (np.linalg.cond, SQUARE + np.eye(3)),
    "norm 1": (lambda x: np.linalg.norm(x, 1), SQUARE),
    "norm 3": (lambda x: np.linalg.norm(x, 3), LINE),
    "vecdot": (lambda x: np.vecdot(x, x), LINE),
    "count of average": (lambda x: np.average(x, returned=True)[1], LINE),
    "digitize": (lambda x: np.digitize(x, [0.0, 1.0]), NUMBER),
    "kron": (lambda x: np.kron(x, x), NUMBER),
    "transpose of a sum": (lambda x: np.sum(x).T, LINE),
    "reshape of a sum": (lambda x: np.sum(x).reshape(()), LINE),
    "astype of a sum": (lambda x: np.sum(x).astype(np.float32), LINE),
    # arrays
    "tensordot": (lambda x: np.tensordot(x, x, 1), LINE),
    "copy": (lambda x: x.copy(), NUMBER),
    "select": (lambda x: np.select([x > 0], [x]), NUMBER),
    "astype": (lambda x: np.astype(x, np.float32), NUMBER),
    "i0": (np.i0, NUMBER),
    "real_if_close of a sum": (lambda x: np.real_if_close(np.sum(x)), LINE),
    "broadcast_arrays of a sum": (
        lambda x: np.broadcast_arrays(np.sum(x), 1.0)[0],
        LINE,
    ),
    # views
    "conj of real": (lambda x: x.conj(), LINE),
    "conjugate of complex": (lambda x: x.conjugate(), LINE + 1j),
    "einsum transpose": (lambda x: np.einsum("ij->ji", x), SQUARE),
    "einsum diagonal": (lambda x: np.einsum("ii->i", x), SQUARE),
    "einsum two diagonals": (
        lambda x: np.einsum("ijij->ji", x),
        np.arange(16.0).reshape(2, 2, 2, 2),
    ),
    "broadcast_arrays of one shape": (lambda x: np.broadcast_arrays(x, x)[0], LINE),
}


def doubled(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def program(x: Any) -> Any:
        y = first = fn(x)
        y *= 2
        return first, y, x

    return program


def ways(program: Callable[[Any], Any], x: np.ndarray) -> dict[str, Any]:
    new = x.copy
    return {
        "jvp": co.jvp(program, (new(),), (np.ones_like(x),))[0],
        "vjp": co.vjp(program, new())[0],
        "real graph": co.make_fx(program, "real")(new())(new()),
        "fake graph": co.make_fx(program, "fake")(new())(new()),
        "compile": co.compile(program)(new()),
    }


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_write_to_a_result_is_seen_where_numpy_shows_it(name: str) -> None:
    fn, x = FUNCTIONS[name]
    expected = doubled(fn)(x.copy())
    for way, found in ways(doubled(fn), x).items():
        for one, known in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, known, rtol=1e-12, err_msg=way)
    assert type(co.compile(fn)(x.copy())) is type(fn(x.copy()))


def test_windows_are_views_that_show_later_writes() -> None:
    def program(x: Any) -> Any:
        windows = sliding_window_view(x, 2)
        x[1] = 3.0 * x[0]
        return np.sum(windows**2)

    for found in ways(program, LINE).values():
        np.testing.assert_allclose(found, program(LINE.copy()))
    # x[0]**2 + (3 x[0])**2 + (3 x[0])**2 + x[2]**2
    np.testing.assert_allclose(co.grad(program)(LINE), [38 * 1.5, 0.0, -4.0])


@pytest.mark.parametrize(
    "fn",
    [lambda x: sliding_window_view(x, 2, -1), np.imag, lambda x: x.imag],
    ids=["windows", "np.imag", "imag"],
)
def test_results_that_numpy_does_not_let_write_cannot_be_written(
    fn: Callable[[Any], Any],
) -> None:
    for transform in (co.grad, co.vmap, co.make_fx, co.compile):
        with pytest.raises(ValueError, match="read-only"):
            transform(doubled(fn))(SQUARE.copy())


def test_gradients_through_a_written_diagonal() -> None:
    def program(x: Any) -> Any:
        y = x * 2.0
        np.einsum("ii->i", y)[...] *= x[0]
        return np.sum(y)

    expected = np.full((3, 3), 2.0)
    expected[[0, 1, 2], [0, 1, 2]] = 2.0 * SQUARE[0]
    expected[0] += 2.0 * np.diagonal(SQUARE)
    np.testing.assert_allclose(co.grad(program)(SQUARE), expected)
    np.testing.assert_allclose(co.vmap(co.grad(program))(SQUARE[None]), expected[None])


def test_an_array_without_axes_that_is_written_stays_an_array() -> None:
    """So a later write to it, outside of the transform, changes all its names."""

    def program(x: Any) -> Any:
        y = x.copy()
        y *= 2.5
        return y

    def twice(x: Any) -> Any:
        y = z = co.jvp(program, (x,), (x,))[0]
        y += 1.0
        return z

    for found in (co.jvp(twice, (NUMBER,), (NUMBER,))[0], co.vjp(twice, NUMBER)[0]):
        np.testing.assert_array_equal(found, np.array(4.75), strict=True)
        assert type(found) is np.ndarray
