"""The back end "numba": the bits, warnings and errors of NumPy, at other speeds."""

from __future__ import annotations

import sys
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.compiling import backends
from customop.compiling.numpy_backend.elementwise_runs import limits
from customop.compiling.team import team

X = np.linspace(0.5, 2.0, 24).reshape(4, 6)


def chain(x: Any, y: Any) -> Any:
    """Arithmetic of two arrays."""
    return ((x * y + x) / (y + 2.0) - 0.5 * x) * (x > 1.0)


def compiled(fn: Any) -> Any:
    """A function compiled by numba; skip where that is not installed."""
    pytest.importorskip("numba", reason="numba is not installed")
    return co.compile(fn, backend="numba")


def test_without_numba_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "customop.compiling.numba_backend", raising=False)
    monkeypatch.setitem(backends._backends, "numba", "customop.compiling.numba_backend")
    with pytest.raises(co.ArgumentError) as caught:
        co.compile(chain, backend="numba")
    assert str(caught.value) == (
        "compile: the back end 'numba' needs numba, which is not installed\n"
        "  do: pip install 'customop[numba]'"
    )


@pytest.mark.exhaustive
def test_bits_of_arrays_and_of_a_gradient() -> None:
    y = np.linspace(-1.0, 3.0, 6)
    assert np.array_equal(compiled(chain)(X, y), chain(X, y))
    gradient = co.grad(lambda x: np.sum(chain(x, y) * chain(x, 1.0)))
    assert np.array_equal(compiled(gradient)(X), gradient(X))


@pytest.mark.exhaustive
def test_arrays_in_another_order_run_call_by_call() -> None:
    fast = compiled(chain)
    for x in (X, np.asfortranarray(X), X[::-1], X[:, ::-1], X.T.copy().T):
        found, expected = fast(x, x), chain(x, x)
        assert np.array_equal(found, expected)
        assert found.strides == expected.strides


@pytest.mark.exhaustive
def test_warnings_are_those_of_the_calls() -> None:
    def fn(x: Any) -> Any:
        return (1.0 / x + x) * 1e308

    fast = compiled(fn)
    x = np.array([1.0, 0.0, 2.0])
    with warnings.catch_warnings(record=True) as expected:
        warnings.simplefilter("always")
        wanted = fn(x)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        given = fast(x)
    assert np.array_equal(given, wanted)
    assert [str(w.message) for w in found] == [str(w.message) for w in expected]
    assert len(found) == 2
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError) as caught:
        fast(x)
    assert str(caught.value) == "divide by zero encountered in divide"
    with np.errstate(all="ignore"):
        assert np.array_equal(fast(x), wanted)


@pytest.mark.exhaustive
def test_zeros_of_both_signs_are_two_numbers() -> None:
    x = np.array([0.0, -0.0, 1.0])
    plus, minus = lambda x: x * 2.0 + 0.0, lambda x: x * 2.0 + -0.0
    for fn in (plus, minus):
        assert compiled(fn)(x).tobytes() == fn(x).tobytes()


@pytest.mark.exhaustive
def test_explain_names_the_ufuncs() -> None:
    fast = compiled(chain)
    fast(X, X)
    assert "one ufunc of 8 calls: multiply, add, " in str(fast.explain())


@pytest.mark.exhaustive
def test_integers_wrap_around() -> None:
    x = np.array([-128, 127, 100, 3], np.int8)
    fn = lambda x: x * x - x + np.int8(100)
    assert np.array_equal(compiled(fn)(x), fn(x))
    assert compiled(fn)(x).dtype == np.int8


@pytest.mark.exhaustive
def test_arrays_of_a_closure_are_read_at_each_call() -> None:
    w = np.ones(3)
    fast = compiled(lambda x: x * w + w)
    assert np.array_equal(fast(np.ones(3)), [2.0, 2.0, 2.0])
    w[:] = 5.0
    assert np.array_equal(fast(np.ones(3)), [10.0, 10.0, 10.0])


@pytest.mark.exhaustive
def test_threads_share_a_compiled_function() -> None:
    fast = compiled(chain)
    wrong: list[float] = []

    def work(number: float) -> None:
        x = X + number
        expected = chain(x, x)
        wrong.extend(
            number for _ in range(300) if not np.array_equal(fast(x, x), expected)
        )

    threads = [threading.Thread(target=work, args=(float(i),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.exhaustive
def test_large_arrays_are_written_by_several_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fast = compiled(chain)
    random = np.random.default_rng(0)
    shapes = [((1000,), (1000,)), ((40, 33), (33,)), ((40, 33), (1, 33))]
    pairs = [[random.normal(size=shape) for shape in both] for both in shapes]
    monkeypatch.setattr(co.config, "compile_threads", 3)
    monkeypatch.setattr(limits, "share_of_one", 64)
    calls = 0
    run = team.run

    def counted(*given: Any) -> None:
        nonlocal calls
        calls += 1
        run(*given)

    monkeypatch.setattr(team, "run", counted)
    for x, y in pairs:
        found, expected = fast(x, y), chain(x, y)
        assert found.tobytes() == expected.tobytes()
        assert found.strides == expected.strides
    assert calls == len(pairs)
    x, y = pairs[0]
    y[700] = -2.0
    with np.errstate(all="raise"), pytest.raises(FloatingPointError) as caught:
        fast(x, y)
    assert str(caught.value) == "divide by zero encountered in divide"
