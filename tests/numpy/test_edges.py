"""Edges of NumPy's functions: dtypes given as classes, wrapping ends, empty values, nan.

The oracle is NumPy, row by row, or a number worked out by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

_LINE = np.arange(3.0)
_FLOAT32 = np.dtypes.Float32DType


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, bool, np.int8])
def test_linspace_of_whole_numbers_does_not_wrap_under_vmap(dtype: Any) -> None:
    ends = np.array([[5, 2], [2, 9], [0, 200]]).astype(dtype)

    def line(row: Any) -> Any:
        return np.linspace(row[0], row[1], 3)

    want = np.stack([line(row) for row in ends])
    assert np.array_equal(co.vmap(line)(ends), want)


def test_padding_by_a_ramp_does_not_wrap_under_vmap() -> None:
    rows = np.array([[5, 5], [2, 9]], np.uint8)

    def ramp(row: Any) -> Any:
        return np.pad(row, 3, mode="linear_ramp", end_values=200)

    want = np.stack([ramp(row) for row in rows])
    assert np.array_equal(co.vmap(ramp)(rows), want)


_CALLS: dict[str, Callable[..., Any]] = {
    "linspace": lambda x, d: np.linspace(x[0], x[2], 3, dtype=d),
    "astype": lambda x, d: x.astype(d),
    "sum": lambda x, d: np.sum(x, dtype=d),
    "mean": lambda x, d: np.mean(x, dtype=d),
    "std": lambda x, d: np.std(x, dtype=d),
    "ones_like": lambda x, d: np.ones_like(x, dtype=d),
    "full_like": lambda x, d: np.full_like(x, x[1], dtype=d),
    "add": lambda x, d: np.add(x, x, dtype=d),
    "accumulate": lambda x, d: np.add.accumulate(x, dtype=d),
    "outer": lambda x, d: np.multiply.outer(x, x, dtype=d),
    "logspace": lambda x, d: np.logspace(x[0], x[1], 3, dtype=d),
}


@pytest.mark.parametrize("fn", _CALLS.values(), ids=_CALLS)
def test_a_dtype_may_be_a_class_of_numpy(fn: Callable[..., Any]) -> None:
    want = fn(_LINE, np.float32)
    found = [
        co.vjp(lambda x: fn(x, _FLOAT32), _LINE)[0],
        co.make_fx(lambda x: fn(x, _FLOAT32))(_LINE)(_LINE),
        co.vmap(lambda x: fn(x, _FLOAT32))(_LINE[None])[0],
    ]
    for y in found:
        assert y.dtype == np.float32
        assert np.array_equal(y, want)


@pytest.mark.parametrize("number", [1.0, 2])
def test_numbers_in_isclose_do_not_cast_arrays(number: float) -> None:
    x = np.array([1.0, 2.0, 1.5, 3.0], np.float32)

    def close(x: Any) -> Any:
        return np.isclose(x, number, rtol=0.4999999999999999, atol=0.0)

    assert np.array_equal(co.make_fx(close)(x)(x), close(x))
    assert np.array_equal(co.vmap(close)(x[None])[0], close(x))


def test_place_takes_no_values_for_an_empty_mask() -> None:
    def place(x: Any, mask: Any, values: Any) -> Any:
        y = x * 1.0
        np.place(y, mask, values)
        return y

    args = _LINE, np.zeros(3, bool), _LINE[:0]
    graph = co.make_fx(place)(*args)
    assert np.array_equal(graph(*args), _LINE)
    with pytest.raises(ValueError, match="Cannot insert from an empty array"):
        graph(_LINE, np.ones(3, bool), _LINE[:0])


def test_tables_of_isin_are_of_whole_numbers_under_vmap() -> None:
    with pytest.raises(ValueError, match="'table' method is only supported"):
        co.vmap(lambda x: np.isin(x, x[:1], kind="table"))(np.ones((2, 3)))


def test_fake_arrays_are_not_tiled_less_than_never() -> None:
    with pytest.raises(ValueError, match="negative dimensions"):
        np.tile(co.fake_like(_LINE), -1)
    for run in (co.make_fx(np.tile), co.compile(np.tile)):
        with pytest.raises(ValueError, match="negative dimensions"):
            run(_LINE, -1)


@pytest.mark.parametrize("fn", [np.logaddexp, np.logaddexp2])
@pytest.mark.parametrize(
    ("ends", "want"),
    [
        ((np.inf, np.inf), (0.5, 0.5)),
        ((-np.inf, -np.inf), (0.5, 0.5)),
        ((np.inf, 2.0), (1.0, 0.0)),
        ((-np.inf, 2.0), (0.0, 1.0)),
    ],
)
def test_infinite_terms_have_shares_in_their_sum(fn: Any, ends: Any, want: Any) -> None:
    a, b = (np.float64(v) for v in ends)
    with np.errstate(all="raise"):
        assert co.grad(fn, (0, 1))(a, b) == want
        assert co.jvp(fn, (a, b), (np.float64(1), np.float64(1)))[1] == 1.0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("n", [2, 3, 4])
def test_a_determinant_with_nan_has_a_gradient_with_nan(n: int) -> None:
    matrix = np.eye(n) + 1.0
    matrix[0, 0] = np.nan
    both = np.stack([matrix, np.zeros((n, n))])  # beside a singular one
    slopes = co.vmap(co.grad(np.linalg.det))(both)
    assert np.isnan(slopes[0]).any()
    assert np.array_equal(slopes[1], np.zeros((n, n)))
    assert co.hessian(np.linalg.det)(np.full((n, n), np.nan)).shape == (n,) * 4


def test_captures_of_deviations_do_not_warn() -> None:
    def deviation(x: Any) -> Any:
        return np.std(x, ddof=2)

    with np.errstate(all="raise"):
        graph = co.make_fx(deviation)(np.arange(5.0))
    assert graph(np.arange(5.0)) == deviation(np.arange(5.0))
