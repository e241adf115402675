"""Calls that once died or warned in graphs: odd names, empty samples, empty masks.

The oracle is the function itself on plain arrays.
"""

from __future__ import annotations

import builtins
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.array([1.0, 2.0, -3.0])
COUNTS = np.array([1, 2, 3])


@co.custom_op("odd_calls::type", mutates_args=())
def type_of(x: np.ndarray) -> np.ndarray:
    return x * 2.0


@co.custom_op("odd_calls::len", mutates_args=())
def len_of(len: np.ndarray, type: float = 2.0) -> np.ndarray:  # noqa: A002  # what is tried
    return len * type


type_of.register_fake(lambda x: co.fake_like(x))
len_of.register_fake(lambda len, type=2.0: co.fake_like(len))  # noqa: A006  # as above


def _parts(x: Any, is_first: bool) -> Any:
    out = np.zeros(3) * x
    given: Any = (out, None) if is_first else (None, out)
    fraction, whole = np.modf(x * 1.5, out=given)
    return fraction + 10.0 * out + 100.0 * whole


def _placed(x: Any) -> Any:
    y = x * 1.0
    np.place(y, np.zeros(3, bool), [])
    return y


def _named(type: Any, len: Any) -> Any:  # noqa: A002  # what is tried
    return type * 2.0 + len


CALLS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "arguments named type and len": (_named, (X, X)),
    "operators named type and len": (
        lambda x: type_of(x) + len_of(x, 3.0) + len_of(x),
        (X,),
    ),
    "modf into the first": (lambda x: _parts(x, True), (X,)),
    "modf into the second": (lambda x: _parts(x, False), (X,)),
    "place without places": (_placed, (X,)),
    "isin by a table": (lambda x: np.isin(x, [1, 2], kind="table"), (COUNTS,)),
    "isin by sorting": (lambda x: np.isin(x, [1, 2], kind="sort"), (COUNTS,)),
    "bincount": (lambda x: np.bincount(x, minlength=5), (COUNTS,)),
    "by the number of places": (lambda x: x / np.nonzero(x)[0].size, (X,)),
}


@pytest.mark.parametrize("name", CALLS)
def test_odd_calls_are_those_of_numpy(name: str) -> None:
    fn, arrays = CALLS[name]
    expected = fn(*arrays)
    for mode in ("real", "fake", "symbolic"):
        found = co.make_fx(fn, mode)(*arrays)(*arrays)  # type: ignore[arg-type]  # of the loop
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(co.compile(fn)(*arrays), expected)


@pytest.mark.parametrize(
    "name", ["isin by a table", "isin by sorting", *list(CALLS)[2:5]]
)
def test_odd_calls_of_rows(name: str) -> None:
    fn, arrays = CALLS[name]
    found = co.vmap(fn)(*(np.stack([a, a]) for a in arrays))
    np.testing.assert_array_equal(found[1], fn(*arrays))


def test_names_that_are_equal_in_python() -> None:
    """Python reads a ligature as the letters that it is made of."""

    def fn(values: Any) -> Any:
        return values["\ufb01"] * 2.0 + values["fi"] * 3.0

    given = {"\ufb01": X, "fi": X * 5.0}
    np.testing.assert_array_equal(co.make_fx(fn)(given)(given), fn(given))
    np.testing.assert_array_equal(co.compile(fn)(given), fn(given))
    assert builtins.type(co.make_fx(fn)(given).code) is str


def test_capturing_a_deviation_of_an_empty_sample_is_silent() -> None:
    def fn(x: Any) -> Any:
        return np.std(x[x > 0], ddof=2)

    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        for mode in ("real", "fake", "symbolic"):
            co.make_fx(fn, mode)(np.ones((3, 5)))  # type: ignore[arg-type]  # of the loop


def test_a_guard_that_divides_by_zero_is_the_error_of_the_function() -> None:
    def fn(x: Any, y: Any) -> Any:
        return x[: x.shape[0] // y.shape[0]] + (x.shape[0] % y.shape[0] == 0)

    run = co.compile(fn)
    for n, m in ((6, 3), (6, 2), (8, 3)):
        x, y = np.ones(n), np.ones(m)
        np.testing.assert_array_equal(run(x, y), fn(x, y))
    with pytest.raises(ZeroDivisionError):
        run(np.ones(6), np.ones(0))


def test_interp_of_a_number_beyond_the_points_is_a_scalar() -> None:
    def fn(xp: Any, fp: Any) -> Any:
        return np.interp(-1.0, xp, fp, left=2.0 + 3.0j)

    points = (np.arange(3.0), np.arange(3.0) + 1j)
    for found in (co.make_fx(fn)(*points)(*points), co.compile(fn)(*points)):
        assert type(found) is type(fn(*points))
        assert found == fn(*points)
