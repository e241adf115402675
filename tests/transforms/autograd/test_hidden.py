"""Tracked values beside foreign ones: NumPy's number and its slope, or an error."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.array([1.0, 2.0, 4.0])
MASK = np.array([True, False, True])

HIDDEN: dict[str, Callable[[Any], Any]] = {
    "where": lambda x: np.where(MASK, x, Fraction(1, 2)),
    "where None": lambda x: np.where(MASK, x, None),
    "concatenate": lambda x: np.concatenate([x, np.array([1, 2.5], object)]),
    "add": lambda x: x + np.array([1, 2.5, 3], object),
    "astype": lambda x: x.astype(object),
    "durations": lambda x: x * np.timedelta64(3, "s"),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_value_that_hides_in_objects(name: str) -> None:
    """The gradient would be zero without an error: arrays of objects are refused."""
    fn = HIDDEN[name]
    for run in (
        lambda: co.grad(lambda x: (fn(x), np.sum(x))[1])(X),
        lambda: co.vjp(lambda x: (fn(x), np.sum(x))[1], X),
        lambda: co.jvp(lambda x: (fn(x), np.sum(x))[1], (X,), (X,)),
    ):
        with pytest.raises((co.GradientError, co.ArgumentError)) as caught:
            run()
        assert caught.value.do
    value = co.grad(lambda x: (fn(co.stop_gradient(x)), np.sum(x))[1])(X)
    np.testing.assert_array_equal(value, np.ones(3))


# ---- random expressions ----


class Shift:
    def __radd__(self, other: Any) -> Any:
        return other + 1.0


class Alone:
    __array_ufunc__ = None

    def __rmul__(self, other: Any) -> Any:
        return other * 3.0

    def __mul__(self, other: Any) -> Any:
        return 3.0 * other


class Own:
    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        plain = [2.0 if isinstance(v, Own) else v for v in inputs]
        return getattr(ufunc, method)(*plain, **kwargs)


def others(rng: np.random.Generator) -> Any:
    """A value of some kind that programs mix with arrays."""
    made: list[Callable[[], Any]] = [
        Shift, Alone, Own,
        lambda: Fraction(1, 3), lambda: Decimal("1.5"), lambda: None, lambda: "a",
        lambda: [1.0, 2.0, 3.0], lambda: (1, 2, 3), lambda: 2, lambda: True, lambda: 1j,
        lambda: np.ma.array([1.0, 2.0, 3.0], mask=MASK),
        lambda: np.matrix([[1.0, 2.0, 3.0]]),
        lambda: np.array([1, Fraction(1, 2), 2.5], object),
        lambda: np.array([(1, 2.0)] * 3, "i4,f8"),
        lambda: np.datetime64("2020-01-01"), lambda: np.timedelta64(3, "s"),
        lambda: np.array(["a", "b", "c"]), lambda: np.float32(2), lambda: np.arange(3),
        lambda: X.view(type("Plain", (np.ndarray,), {})),
    ]  # fmt: skip
    return made[rng.integers(len(made))]()


OPS: list[Callable[[Any, Any], Any]] = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.pow,
    operator.matmul, operator.lt, np.add, np.multiply, np.maximum, np.arctan2,
    lambda a, b: np.where(MASK, a, b), lambda a, b: np.concatenate([a, b]),
    lambda a, b: np.stack([a, b]), np.copysign,
]  # fmt: skip


def as_float(value: Any) -> float | None:
    """The sum of a result as a float, or None if it has none."""
    try:
        return float(np.real(np.sum(np.asarray(value))))
    except (TypeError, ValueError):
        return None


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::PendingDeprecationWarning"
)
@pytest.mark.parametrize("seed", range(300))
def test_random_expressions(seed: int) -> None:
    """Value and slope are those of plain arrays, or an error says why not."""
    rng = np.random.default_rng(seed)
    other, op, swaps = others(rng), OPS[rng.integers(len(OPS))], rng.integers(2)

    def fn(x: Any) -> Any:
        return op(other, x) if swaps else op(x, other)

    try:
        expected = as_float(fn(X))
    except Exception:  # noqa: BLE001  # NumPy refuses it
        expected = None
    try:
        found, tangent = co.jvp(lambda x: np.sum(np.real(fn(x))), (X,), (np.ones(3),))
    except Exception as error:  # noqa: BLE001  # looked at below
        ours = isinstance(error, co.CustomOpError | TypeError | ValueError)
        assert ours or expected is None
        return
    assert expected is not None, "a value where NumPy has none"
    np.testing.assert_allclose(as_float(found), expected)
    up, down = as_float(fn(X + 1e-6)), as_float(fn(X - 1e-6))
    assert up is not None
    assert down is not None
    slope = (up - down) / 2e-6
    if np.isfinite(slope) and np.asarray(fn(X)).dtype.kind != "b":
        np.testing.assert_allclose(as_float(tangent), slope, rtol=1e-5, atol=1e-6)
