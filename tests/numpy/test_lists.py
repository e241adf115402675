"""Functions whose other arguments are nested lists, as NumPy takes them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import customop as co

_SQUARE = np.arange(9.0).reshape(3, 3) * 0.3 + np.eye(3)
_ROW = np.array([0.5, 1.5, 2.5])
_ONES, _COMPLEX = [1.0, -2.0, 3.0], [1j, 2.0, 3 - 1j]
_TABLE = [[2.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 2.0]]
_MASK = [True, False, True]

_CALLS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "dot of a matrix": (lambda x: np.dot(x, _ONES), _SQUARE),
    "dot of a row": (lambda x: np.dot(_ONES, x), _ROW),
    "dot, method": (lambda x: x.dot(_TABLE), _SQUARE),
    "dot of lists of three axes": (lambda x: np.dot(x, [_TABLE, _TABLE]), _SQUARE),
    "dot of a number": (lambda x: np.dot(x, 3), _SQUARE),
    "inner": (lambda x: np.inner(x, _ONES), _SQUARE),
    "inner of a row": (lambda x: np.inner(_COMPLEX, x), _ROW),
    "vdot, complex": (lambda x: np.vdot(_COMPLEX, x), _ROW),
    "vecdot, complex": (lambda x: np.vecdot(_COMPLEX, x), _ROW),
    "kron": (lambda x: np.kron(x, [1.0, 2.0]), _SQUARE),
    "kron of a list": (lambda x: np.kron([[1.0], [2.0]], x), _ROW),
    "matmul": (lambda x: _TABLE @ x, _SQUARE),
    "tensordot": (lambda x: np.tensordot(x, _TABLE, 1), _SQUARE),
    "einsum": (lambda x: np.einsum("ij,j", x, _ONES), _SQUARE),
    "outer": (lambda x: np.outer(_ONES, x), _ROW),
    "cross": (lambda x: np.cross(_ONES, x), _ROW),
    "correlate": (lambda x: np.correlate(x, _COMPLEX), _ROW),
    "convolve": (lambda x: np.convolve(_COMPLEX, x), _ROW),
    "interp": (lambda x: np.interp(x, [0.0, 1.0, 3.0], _COMPLEX), _ROW),
    "average": (lambda x: np.average(x, weights=_COMPLEX), _ROW),
    "cov": (lambda x: np.cov(x, _ONES), _ROW),
    "polyval": (lambda x: np.polyval(_COMPLEX, x), _ROW),
    "solve": (lambda x: np.linalg.solve(_TABLE, x), _ROW),
    "solve for a list": (lambda x: np.linalg.solve(x, _ONES), _SQUARE),
    "lstsq": (lambda x: np.linalg.lstsq(_TABLE, x)[0], _ROW),
    "multi_dot": (lambda x: np.linalg.multi_dot([x, _TABLE, _ONES]), _SQUARE),
    "where": (lambda x: np.where(_MASK, x, _COMPLEX), _ROW),
    "select": (lambda x: np.select([_MASK], [x], _ONES), _ROW),
    "std about a mean": (lambda x: np.std(x, axis=1, mean=[[1.0]] * 3), _SQUARE),
    "sum of some": (lambda x: np.sum(x, where=_MASK), _SQUARE),
    "concatenate": (lambda x: np.concatenate([x, _TABLE]), _SQUARE),
    "histogramdd": (lambda x: np.histogramdd(x, [[0, 1, 3]], weights=_ONES)[0], _ROW),
    "histogram2d": (lambda x: np.histogram2d(x, _ONES, bins=[2, [0, 2]])[0], _ROW),
    "quantile": (lambda x: np.quantile(x, [0.1, 0.5]), _ROW),
    "trapezoid": (lambda x: np.trapezoid(_ONES, x), _ROW),
    "append": (lambda x: np.append(_TABLE, x), _ROW),
}


@pytest.mark.parametrize("name", _CALLS)
def test_lists_beside_a_traced_value_are_arrays(name: str) -> None:
    fn, x = _CALLS[name]
    want = np.asarray(fn(x))
    results = {
        "jvp": co.jvp(fn, (x,), (x,))[0],
        "vmap": co.vmap(fn)(np.stack([x, 2 * x]))[0],
        "make_fx": co.make_fx(fn)(x)(x),
        "compile": co.compile(fn)(x),
    }
    for mode, found in results.items():
        assert np.shape(found) == want.shape, mode
        assert np.asarray(found).dtype == want.dtype, mode
        np.testing.assert_allclose(found, want, 1e-13, 1e-13, err_msg=mode)


def test_a_list_that_holds_traced_values_is_a_factor() -> None:
    def f(x: Any) -> Any:
        return np.dot(x, [x[0, 0], x[0, 1], 2.0])[1] + np.inner(x[0], [1.0, x[1, 1], 0])

    # By hand: x10 x00 + x11 x01 + 2 x12 + x00 + x01 x11.
    x = _SQUARE
    want = np.zeros((3, 3))
    want[0, 0], want[0, 1] = x[1, 0] + 1, 2 * x[1, 1]
    want[1] = x[0, 0], 2 * x[0, 1], 2.0
    np.testing.assert_allclose(co.grad(f)(x), want, 1e-13)


@pytest.mark.parametrize("order", ["C", "F"])
def test_orders_in_small_letters_are_those_in_capitals(order: str) -> None:
    x = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    # Any: NumPy's stubs know the capitals only.
    calls: list[Callable[[Any, Any], Any]] = [
        lambda x, order: np.ravel(x, order),
        lambda x, order: np.reshape(x, (3, 2), order=order),
        lambda x, order: np.copy(x, order),
        lambda x, order: x.flatten(order),
        lambda x, order: x.astype(np.float32, order=order),
        lambda x, order: np.add(x, 1, order=order),
        lambda x, order: np.einsum("ij->ji", x, order=order),
    ]
    for call in calls:
        want = call(x, order)
        found = co.jvp(partial(call, order=order.lower()), (x,), (x,))[0]
        np.testing.assert_array_equal(found, want)
        assert found.strides == want.strides
    small: Any = "c"
    assert co.grad(lambda x: np.asarray(x, order=small, like=x)[0, 1])(x)[0, 1] == 1
