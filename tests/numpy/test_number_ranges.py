"""Ints of Python that a dtype cannot hold: errors of NumPy, also where nothing is computed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

LARGE: dict[str, Callable[[Any], Any]] = {
    "+": lambda x: x + 300,
    "r-": lambda x: 300 - x,
    "* negative": lambda x: x * -200,
    "<": lambda x: x < 300,
    "/": lambda x: x / 300,
    "huge": lambda x: x + 2**70,
    "maximum": lambda x: np.maximum(x, 300),
    "divmod": lambda x: np.divmod(x, 300),
    "where": lambda x: np.where(x > 1, x, 300),
    "clip": lambda x: np.clip(x, 0, 300),
    "full_like": lambda x: np.full_like(x, 300),
    "full_like of NumPy's": lambda x: np.full_like(x, np.int64(300)),
    "full": lambda x: np.full(3, 300, x.dtype, like=x),
    "pad": lambda x: np.pad(x, 1, constant_values=300),
    "dot": lambda x: np.dot(x, 300),
    "inner": lambda x: np.inner(x, 3),
    "tensordot": lambda x: np.tensordot(x, 300, 0),
    "size": lambda x: x + 100 * x.shape[0],
    "size in full_like": lambda x: np.full_like(x, -200 * len(x.shape)),
}
WRITES: dict[str, Callable[[Any], Any]] = {
    "item": lambda x: x.__setitem__(0, 300),
    "items": lambda x: x.__setitem__(slice(None), [300, 1, 2]),
    "index": lambda x: x.__setitem__([0, 1], 300),
    "mask": lambda x: x.__setitem__(x > 1, 300),
    "copyto of a float": lambda x: np.copyto(x, 1.5),
    "size": lambda x: x.__setitem__(0, 100 * x.shape[0]),
    "fill": lambda x: x.fill(-200),
    "copyto": lambda x: np.copyto(x, 300),
    "put": lambda x: np.put(x, [0], 300),
    "put_along_axis": lambda x: np.put_along_axis(x, np.array([0]), 300, 0),
    "putmask": lambda x: np.putmask(x, x > 1, 300),
    "at": lambda x: np.add.at(x, [0], 300),
}


def outcome(f: Callable[[Any], Any], x: Any) -> Any:
    """The dtype of the result, or the class and text of the error."""
    try:
        with np.errstate(all="ignore"):
            found = f(x)
    except (OverflowError, TypeError) as error:
        return type(error), str(error)
    first = found[0] if isinstance(found, tuple) else found
    return first.dtype


def in_fake_mode(f: Callable[[Any], Any], x: Any) -> Any:
    """The fake result."""
    with co.FakeMode() as mode:
        return f(mode.from_array(x))


def written(write: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that writes into a copy of its argument."""

    def f(x: Any) -> Any:
        x = np.copy(x)
        write(x)
        return x

    return f


FUNCTIONS = LARGE | {f"write {name}": written(f) for name, f in WRITES.items()}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_int_out_of_range_is_an_error_everywhere(name: str) -> None:
    """In fake calls, captures of all modes, and under vmap."""
    f = FUNCTIONS[name]
    for dtype in (np.uint8, np.bool_):
        x = np.array([1, 0, 1], dtype)
        expected = outcome(f, x.copy())
        ways: dict[str, Callable[[Any], Any]] = {
            "fake": lambda x: in_fake_mode(f, x),
            "vmap": lambda x: co.vmap(f)(np.stack([x, x])),
            "real": lambda x: co.make_fx(f)(x)(x),
            "symbolic": lambda x: co.make_fx(f, "symbolic")(x)(x),
        }
        for way, run in ways.items():
            assert outcome(run, x.copy()) == expected, (way, dtype)


def test_a_graph_raises_at_the_sizes_where_numpy_does() -> None:
    """It was captured at one where the number fits."""
    graph = co.make_fx(lambda x: x + 100 * x.shape[0], "symbolic")(np.ones(2, np.uint8))
    np.testing.assert_array_equal(graph(np.ones(1, np.uint8)), [101])
    with pytest.raises(OverflowError, match="300 out of bounds for uint8"):
        graph(np.ones(3, np.uint8))


def test_a_size_is_written_without_a_guard() -> None:
    """Also one that NumPy has calculated, which wraps where an int of Python raises."""

    def f(x: Any) -> Any:
        y = np.copy(x)
        y[0], y[1] = x.shape[0], np.multiply(x.shape[0], 100)
        return y

    graph = co.make_fx(f, sizes={"x": ("n",)})(np.ones(2, np.uint8))
    for n in (2, 7):
        np.testing.assert_array_equal(graph(np.ones(n, "u1")), f(np.ones(n, "u1")))


@pytest.mark.parametrize("initial", [1j, -1.5, np.nan, np.datetime64(1, "s"), 2**70])
@pytest.mark.parametrize("dtype", ["f8", "u1", "?"])
def test_initial_values_are_converted_as_by_numpy(initial: Any, dtype: str) -> None:
    """An imaginary part, or what does not fit, is an error; it is never dropped."""
    x = np.array([1, 0, 1], dtype)
    for fn in (np.sum, np.max, np.multiply.reduce):
        expected: Any = None
        error: Exception | None = None
        try:
            expected = fn(x, initial=initial)
        except (TypeError, ValueError, OverflowError) as found:
            error = found

        def program(x: Any, fn: Any = fn) -> Any:
            return fn(x, initial=initial)

        if error is None:
            np.testing.assert_array_equal(co.make_fx(program)(x)(x), expected)
            np.testing.assert_array_equal(co.vmap(program)(x[None]), expected[None])
            continue
        for way in (lambda: co.make_fx(program)(x), lambda: co.vmap(program)(x[None])):
            with pytest.raises(type(error)):
                way()


def test_the_order_of_a_norm_leaves_the_dtype() -> None:
    """A scalar of NumPy is no wider than a number of Python there."""
    x = np.array([1.5, -2.0], np.float32)
    expected = np.linalg.norm(x, np.float64(2.5))
    found = co.vjp(lambda x: np.linalg.norm(x, np.float64(2.5)), x)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-6, strict=True)
    with pytest.raises(co.ArgumentError, match="the order is complex"):
        co.vjp(lambda x: np.linalg.norm(x, 1j), x)
