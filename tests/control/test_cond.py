"""cond: which branch runs, batches of conditions, and results that do not agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co

X = np.array([-1.5, 0.5, 2.0])


def branch(x: Any) -> Any:
    return co.cond(np.sum(x) > 0, lambda x: x**3, lambda x: np.sin(x), x)


def plain(x: Any) -> Any:
    return x**3 if np.sum(x) > 0 else np.sin(x)


def slope(x: Any) -> Any:
    return 3 * x**2 if np.sum(x) > 0 else np.cos(x)


@pytest.mark.parametrize("x", [X, -X, X[1], X[0]])
def test_one_branch(x: Any) -> None:
    """Values and derivatives are those of the branch taken."""
    np.testing.assert_array_equal(branch(x), plain(x))
    want = slope(x) * np.ones_like(x)
    np.testing.assert_allclose(co.grad(lambda x: np.sum(branch(x)))(x), want)
    np.testing.assert_allclose(co.jvp(branch, (x,), (np.ones_like(x),))[1], want)


def test_the_other_branch_does_not_run() -> None:
    """Where the condition is known, it is a Python branch, also inside vmap."""
    calls: list[str] = []

    def yes(x: Any) -> Any:
        calls.append("yes")
        return x

    def no(x: Any) -> Any:
        calls.append("no")
        return x + 1

    for pred in (True, np.True_, 1, np.array(True), np.array(2.0)):
        co.cond(pred, yes, no, X)
    co.grad(lambda x: co.cond(x > 0, yes, no, x))(np.array(1.0))
    co.vmap(lambda x: co.cond(X[2] > 0, yes, no, x))(X)
    co.vmap(lambda x: co.cond(x < 9, yes, no, x))(X)  # all rows agree
    assert set(calls) == {"yes"}


@pytest.mark.parametrize("x", [X, np.stack([X, -X, X * 0]), np.zeros(0)])
def test_batches_of_conditions(x: Any) -> None:
    """Each row has its own branch, in any nesting with grad."""

    def one(x: Any) -> Any:
        return np.sum(branch(x))

    want = [np.sum(plain(row)) for row in x]
    np.testing.assert_allclose(co.vmap(one)(x), np.array(want))
    slopes = np.array([slope(row) * np.ones_like(row) for row in x]).reshape(x.shape)
    np.testing.assert_allclose(co.vmap(co.grad(one))(x), slopes)
    total = co.grad(lambda x: np.sum(co.vmap(one)(x)))
    np.testing.assert_allclose(total(x), slopes)
    pushed = co.vmap(lambda x: co.jvp(one, (x,), (np.ones_like(x),))[1])(x)
    np.testing.assert_allclose(pushed, np.array([row.sum() for row in slopes]))


def test_batches_of_batches() -> None:
    """Conditions of two batches."""
    a, b = np.array([-1.0, 2.0]), np.array([0.5, -3.0, 4.0])

    def one(a: Any, b: Any) -> Any:
        return co.cond(a * b > 0, lambda a, b: np.sqrt(a * b), lambda a, b: a - b, a, b)

    def want(a: float, b: float) -> float:
        return float(np.sqrt(a * b)) if a * b > 0 else a - b

    def da(a: float, b: float) -> float:
        return b / 2 / float(np.sqrt(a * b)) if a * b > 0 else 1.0

    inner = co.vmap(one, in_dims=(None, 0))
    values = [[want(p, q) for q in b] for p in a]
    np.testing.assert_allclose(co.vmap(inner, in_dims=(0, None))(a, b), values)
    of_a = co.vmap(co.vmap(co.grad(one), in_dims=(None, 0)), in_dims=(0, None))
    np.testing.assert_allclose(of_a(a, b), [[da(p, q) for q in b] for p in a])


def test_rows_that_a_branch_cannot_take() -> None:
    """A branch sees safe values in the rows that go the other way: no nan, no failure."""

    def one(x: Any, i: Any) -> Any:
        return co.cond(
            x > 0,
            lambda x, i: np.log(x) + co.getitem(np.array([1.0, 2.0]), i),
            lambda x, i: x / 2,
            x,
            i,
        )

    x, i = np.array([0.0, 2.0, -1.0]), np.array([7, 1, 9])
    with np.errstate(all="raise"):
        value, gradient = co.vmap(co.value_and_grad(one))(x, i)
    np.testing.assert_allclose(value, [0.0, np.log(2) + 2, -0.5])
    np.testing.assert_allclose(gradient, [0.5, 0.5, 0.5])


def test_trees_and_numbers() -> None:
    """Results are pytrees; numbers take the dtype of arrays in their place."""

    def one(x: Any) -> Any:
        return co.cond(
            x > 0,
            lambda x: {"a": (x, 1), "b": None},
            lambda x: {"a": (0.0, 2), "b": None},
            x,
        )

    found = co.vmap(one)(np.array([1.0, -1.0], np.float32))
    assert found["b"] is None
    np.testing.assert_array_equal(found["a"][0], np.array([1, 0], np.float32))
    np.testing.assert_array_equal(found["a"][1], [1, 2])
    assert found["a"][0].dtype == np.float32


def test_fake_arrays() -> None:
    """Both branches run, and agree."""
    found = co.eval_shape(branch, X)
    assert (found.shape, found.dtype) == ((3,), np.float64)
    fake = co.eval_shape(co.grad(lambda x: np.sum(branch(x))), X)
    assert fake.shape == (3,)
    assert co.eval_shape(co.vmap(branch), np.zeros((4, 2))).shape == (4, 2)


def test_results_that_do_not_agree() -> None:
    """The error names the leaf, and both functions."""
    with pytest.raises(co.ArgumentError) as caught:
        co.eval_shape(
            lambda x: co.cond(
                x[0] > 0, lambda x: {"h": x}, lambda x: {"h": x.astype(np.float32)}, x
            ),
            X,
        )
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        "cond: result['h'] is f64[3] from true_fn, and f32[3] from false_fn"
    )
    assert lines[1].startswith("  true_fn at ")
    assert "test_cond.py" in lines[2]
    assert lines[3] == ("  do: return the same structure, shapes and dtypes from both")
    with pytest.raises(
        co.ArgumentError, match=r"is f64\[3\] from true_fn, and f64\[\]"
    ):
        co.vmap(lambda x: co.cond(x[0] > 0, lambda: x, lambda: x[0]))(np.stack([X, -X]))
    with pytest.raises(
        co.ArgumentError, match=r"the result is \(\*, \*\) from true_fn"
    ):
        co.vmap(lambda x: co.cond(x > 0, lambda: (x, x), lambda: x))(X)


@pytest.mark.parametrize(
    ("pred", "what"),
    [
        (X > 0, "cond: pred is bool[3], must have no axes"),
        (np.array("yes"), "cond: pred is <U3[], must be a bool"),
        (None, "cond: pred is None, must be a bool"),
        ([True], "cond: pred is list [True], must be a bool"),
        (np.array(1j), "cond: pred is c128[], must be a bool"),
    ],
)
def test_what_is_not_a_condition(pred: Any, what: str) -> None:
    """Only a number or an array without axes is one."""
    with pytest.raises(co.CustomOpError) as caught:
        co.cond(pred, np.sin, np.cos, X)
    assert str(caught.value).splitlines()[0] == what


def test_what_is_not_a_function() -> None:
    """Both must be callable."""
    with pytest.raises(co.ArgumentError, match="cond: 3 is not a function"):
        co.cond(True, 3, np.sin, X)  # type: ignore[arg-type]  # the mistake
