"""assert_close passes for close arrays, and says where other arrays differ."""
# ruff: noqa: ISC004 - a message stands in the table line by line

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import customop as co
from tests.strict_arrays import KIND, StrictArray, to_strict

# Dictionaries keyed by dtypes compare keys of one hash, and strict dtypes hash as
# NumPy's: array_api_strict warns of the comparison, which says unequal as it should.
pytestmark = pytest.mark.filterwarnings(
    "ignore:You are comparing a array_api_strict dtype:UserWarning"
)

RNG = np.random.default_rng(7)
X = RNG.uniform(0.3, 2.0, (2, 3))
Y = RNG.uniform(0.3, 2.0, 3)
Z = RNG.standard_normal(3) + 1j * RNG.standard_normal(3)


def failure(check: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Return the message of a failing check."""
    with pytest.raises(co.OpCheckError) as caught:
        check(*args, **kwargs)
    return str(caught.value)


# ---- values that are close ----


class Pair(NamedTuple):
    first: Any
    second: Any


CLOSE = {
    "equal": (X, X.copy()),
    "within float64": (np.array([1.0]), np.array([1.0 + 1.9e-7])),
    "within float32": (np.ones(1, "f4"), np.full(1, 1 + 1e-5, "f4")),
    "within float16": (np.ones(1, "f2"), np.full(1, 1 + 9.8e-4, "f2")),
    "complex": (np.array([1 + 1j]), np.array([1 + 1j + 1e-8j])),
    "infinite": (np.array([np.inf, -np.inf]), np.array([np.inf, -np.inf])),
    "integers": (np.arange(3), np.arange(3)),
    "truths": (np.array([True, False]), np.array([True, False])),
    "texts": (np.array(["a"]), np.array(["a"])),
    "dates": (np.array(["2020-01-01"], "M8[D]"), np.array(["2020-01-01"], "M8[D]")),
    "empty": (np.zeros((0, 2)), np.zeros((0, 2))),
    "numbers": (1.0, 1.0 + 1e-8),
    "number and array": (1, np.array(1.0, "f4")),
    "number of NumPy": (np.float64(2.0), np.array(2.0)),
    "nested": ({"a": [X, (1, None)]}, {"a": (X, [1, None])}),
    "named tuple": (Pair(X, Y), Pair(X, Y)),
    "fake": (co.FakeArray((2, 3)), X),
    "nothing": ((), []),
}


@pytest.mark.parametrize("name", CLOSE)
def test_close_values_pass(name: str) -> None:
    """Values within the tolerances of their dtype pass."""
    co.assert_close(*CLOSE[name])


FAR = {
    "beyond float64": (np.array([1.0]), np.array([1.0 + 2.1e-7])),
    "beyond float32": (np.ones(1, "f4"), np.full(1, 1 + 2e-5, "f4")),
    "beyond float16": (np.ones(1, "f2"), np.full(1, 1 + 2e-3, "f2")),
    "infinite": (np.array([np.inf]), np.array([1.0])),
    "infinite expected": (np.array([1.0]), np.array([np.inf])),
    "other infinity": (np.array([np.inf]), np.array([-np.inf])),
    "nan": (np.array([np.nan]), np.array([np.nan])),
    "one nan": (np.array([np.nan]), np.array([1.0])),
    "integers": (np.array([2**63 - 1]), np.array([2**63 - 2])),
    "unsigned": (np.array([0], "u1"), np.array([1], "u1")),
    "truths": (np.array([True]), np.array([False])),
    "texts": (np.array(["a"]), np.array(["b"])),
    "imaginary": (np.array([1j]), np.array([-1j])),
    "shape": (np.ones(3), np.ones((3, 1))),
    "dtype": (np.ones(3), np.ones(3, "f4")),
    "fake shape": (co.FakeArray((2, 3)), co.FakeArray((3, 2))),
    "fake dtype": (co.FakeArray(3, "f4"), Y),
    "number": (1.0, 1.1),
    "classes of numbers": (1, 1.0),
    "length": ([1, 2], [1]),
    "keys": ({"a": 1}, {"b": 1}),
    "None": (None, X),
    "nesting": ([X], X),
}


@pytest.mark.parametrize("name", FAR)
def test_what_is_not_close_raises(name: str) -> None:
    """It is an AssertionError too."""
    with pytest.raises(AssertionError, match=r"^assert_close: "):
        co.assert_close(*FAR[name])


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "complex64", "complex128"]
)
@pytest.mark.exhaustive
def test_tolerances_are_those_of_torch(dtype: str) -> None:
    """Around its bound torch.testing.assert_close decides the same."""
    torch = pytest.importorskip("torch", reason="torch is the other side of this test")
    rtol, atol = torch.testing._comparison.default_tolerances(getattr(torch, dtype))
    expected = np.ones(1, dtype)
    for factor in (0.5, 0.9, 1.1, 2.0):
        actual = (expected + factor * (rtol + atol)).astype(dtype)
        tensors = torch.from_numpy(actual), torch.from_numpy(expected)
        assert is_close(torch.testing.assert_close, *tensors) == is_close(
            co.assert_close, actual, expected
        )


def is_close(check: Callable[..., Any], actual: Any, expected: Any) -> bool:
    """Whether a check passes."""
    try:
        check(actual, expected)
    except AssertionError:
        return False
    return True


def test_switches() -> None:
    """Each check can be switched off, and nan can count as equal."""
    co.assert_close(np.ones(3), np.ones(3, "f4"), check_dtype=False)
    co.assert_close(1, 1.0, check_dtype=False)
    co.assert_close(np.array([np.nan]), np.array([np.nan]), equal_nan=True)
    co.assert_close(np.array([1.0]), np.array([2.0]), rtol=0.5, atol=0.0)
    co.assert_close(X, X.copy("F"))
    other = co.FakeArray(3, device="cuda")
    co.assert_close(other, Y, check_device=False)
    assert "devices 'cuda' and 'cpu' differ" in failure(co.assert_close, other, Y)
    text = failure(co.assert_close, X, X.copy("F"), check_stride=True)
    assert "strides (24, 8) and (8, 16) differ" in text


def test_looser_of_two_dtypes() -> None:
    """With check_dtype=False the looser of the two tolerances counts."""
    pair = np.array([1.0 + 5e-6]), np.ones(1, "f4")
    co.assert_close(*pair, check_dtype=False)
    co.assert_close(*pair[::-1], check_dtype=False)


def test_arrays_of_another_kind(strict: Any) -> None:
    """Registered arrays are compared by their values."""
    co.assert_close(strict(X), strict(X))
    text = failure(co.assert_close, strict(X), strict(X + 1.0))
    assert "6 of 6 elements" in text
    assert f"devices '{KIND}' and 'cpu' differ" in failure(
        co.assert_close, strict(X), X, check_dtype=False
    )


@pytest.mark.usefixtures("built_in_kinds")
def test_values_that_nobody_can_read() -> None:
    """Values cannot be compared if the class does not convert to NumPy."""
    co.register_array_type(KIND, StrictArray)
    x = to_strict(Y)
    with pytest.raises(co.ArgumentError) as caught:
        co.assert_close(x, x)
    assert str(caught.value) == (
        "StrictArray array_api_strict.float64[3] cannot be converted to NumPy\n"
        "  do: give the class a method __array__ or __dlpack__"
    )


# ---- messages ----

WORDS: dict[str, tuple[Callable[[], Any], str]] = {
    "elements": (
        lambda: co.assert_close(
            {"w": [np.array([[1.0, 2.0], [3.0, 40.0]])]},
            {"w": [np.array([[1.0, 0.5], [3.0, 20.0]])]},
        ),
        "assert_close: 2 of 4 elements (50.0 %) are not close, at actual['w'][0]\n"
        "  actual f64[2, 2], expected f64[2, 2]\n"
        "  greatest absolute difference: 20 at [1, 1] (40.0 and 20.0), atol=1e-07\n"
        "  greatest relative difference: 3 at [0, 1] (2.0 and 0.5), rtol=1e-07\n"
        "  do: correct the elements, or pass rtol and atol that allow for the"
        " difference",
    ),
    "a nan": (
        lambda: co.assert_close(np.array([np.nan, 1.0]), np.array([np.nan, 1.0])),
        "assert_close: 1 of 2 elements (50.0 %) are not close\n"
        "  actual f64[2], expected f64[2]\n"
        "  greatest absolute difference: nan at [0] (nan and nan), atol=1e-07\n"
        "  greatest relative difference: nan at [0] (nan and nan), rtol=1e-07\n"
        "  nan is close to nan with equal_nan=True alone\n"
        "  do: correct the elements, or pass rtol and atol that allow for the"
        " difference",
    ),
    "several": (
        lambda: co.assert_close((X, 1, Y), (X.T, 1, Y + 1.0)),
        "assert_close: shapes (2, 3) and (3, 2) differ, at actual[0]\n"
        "  actual f64[2, 3], expected f64[3, 2]\n"
        "  also: 3 of 3 elements (100.0 %) are not close, at actual[2]\n"
        "  do: compare values of the same nesting and form, or switch that check off",
    ),
    "nan is furthest": (
        lambda: co.assert_close(np.array([np.inf, np.nan, 2]), np.array([1.0, 1, 2])),
        "assert_close: 2 of 3 elements (66.7 %) are not close\n"
        "  actual f64[3], expected f64[3]\n"
        "  greatest absolute difference: nan at [1] (nan and 1.0), atol=1e-07\n"
        "  greatest relative difference: nan at [1] (nan and 1.0), rtol=1e-07\n"
        "  do: correct the elements, or pass rtol and atol that allow for the"
        " difference",
    ),
    "equal infinities": (
        lambda: co.assert_close(np.array([np.inf, 1.0]), np.array([np.inf, 2.0])),
        "assert_close: 1 of 2 elements (50.0 %) are not close\n"
        "  actual f64[2], expected f64[2]\n"
        "  greatest absolute difference: 1 at [1] (1.0 and 2.0), atol=1e-07\n"
        "  greatest relative difference: 0.5 at [1] (1.0 and 2.0), rtol=1e-07\n"
        "  do: correct the elements, or pass rtol and atol that allow for the"
        " difference",
    ),
    "keys": (
        lambda: co.assert_close([{"a": 1, "b": 2}], [{"a": 1, "c": 2}]),
        "assert_close: mappings have different keys, at actual[0]\n"
        "  only expected: 'c'\n"
        "  only actual: 'b'\n"
        "  do: compare values of the same nesting and form, or switch that check off",
    ),
    "one tolerance": (
        lambda: co.assert_close(X, X, rtol=1e-3),
        "assert_close: rtol is given without atol\n  do: pass both, as atol=0.0, or none",
    ),
    "negative tolerance": (
        lambda: co.assert_close(X, X, rtol=-1.0, atol=0.0),
        "assert_close: rtol=-1.0 is out of range\n  do: pass rtol >= 0",
    ),
    "no array": (
        lambda: co.assert_close(["a"], ["a"]),
        "assert_close: str 'a', at actual[0] is not an array, number or container\n"
        "  do: compare other values with ==, and pass arrays here",
    ),
    "traced": (
        lambda: co.vjp(lambda x: co.assert_close([x], [X]), X),
        "assert_close: actual[0] is GradTracer f64[2, 3], which a transform follows\n"
        "  do: compare what the transform returns, or stop_gradient(x)",
    ),
    "own words": (lambda: co.assert_close(1, 2, msg="no luck"), "no luck"),
    "words around": (
        lambda: co.assert_close(1, None, msg=lambda text: f"epoch 3: {text}"),
        "epoch 3: assert_close: int 1 is compared with None\n"
        "  do: compare values of the same nesting and form, or switch that check off",
    ),
}


@pytest.mark.parametrize("name", WORDS)
def test_words_of_assert_close(name: str) -> None:
    """The message says which elements are off, where, and by how much."""
    call, text = WORDS[name]
    with pytest.raises(co.CustomOpError) as caught:
        call()
    assert str(caught.value) == text
