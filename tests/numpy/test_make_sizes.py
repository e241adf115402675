"""Arrays made with ``like=``, of symbolic sizes: no size becomes a number of the graph."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.numpy.arguments import SINCE_2_5


def _zeros_of(x: Any) -> Any:
    """Zeros, also where memory holds nan or inf."""
    return np.where(x > np.inf, x, 0.0)


MAKERS: dict[str, Callable[[Any, Any], Any]] = {
    "zeros": lambda x, n: np.zeros(n, like=x),
    "zeros of two": lambda x, n: np.zeros((2 * n, 3), np.float32, like=x),
    "zeros by keywords": lambda x, n: np.zeros(shape=(n,), dtype=int, like=x),
    "zeros of a shape": lambda x, n: np.zeros(x.shape, like=x),
    "zeros of NumPy's": lambda x, n: np.zeros(np.minimum(n, 3), like=x),
    "empty": lambda x, n: _zeros_of(np.empty((n, 2), like=x)),
    "ones": lambda x, n: np.ones((n + 1, 2), like=x),
    "full": lambda x, n: np.full((2, n), n, like=x),
    "array": lambda x, n: np.array([[n, 2], [n // 2, 0]], like=x),
    "array of floats": lambda x, n: np.array([n / 2, 1], like=x),
    "array of arrays": lambda x, n: np.array([x.sum(), n], like=x),
    "asarray": lambda x, n: np.asarray(n, like=x),
    "asarray of a dtype": lambda x, n: np.asarray([n, 1.5], np.float32, like=x),
    "asanyarray": lambda x, n: np.asanyarray([np.minimum(n, 3), 1], like=x),
    "ascontiguousarray": lambda x, n: np.ascontiguousarray(n, like=x),
    "arange": lambda x, n: np.arange(1, 2 * n, 2, like=x),
    "arange of floats": lambda x, n: np.arange(0.0, n, like=x),
    "arange of a half": lambda x, n: np.arange(n / 2, like=x),
    "eye": lambda x, n: np.eye(n, n + 1, 1, like=x),
    "identity": lambda x, n: np.identity(n, np.float32, like=x),
    "fromfunction": lambda x, n: np.fromfunction(
        lambda i, j: i + 2 * j, (n, 2), like=x
    ),
    "zeros_like": lambda x, n: np.zeros_like(x, shape=(n, 2)),
}
if not SINCE_2_5:  # NumPy 2.5 asks for the number before it looks at `like`
    MAKERS["tri"] = lambda x, n: np.tri(n, 2 * n, -1, like=x)
WAYS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "itself": (lambda f: f, lambda x: x),
    "jvp": (lambda f: lambda x: co.jvp(f, (x,), (x,))[0], lambda x: x),
    "vmap": (lambda f: lambda x: co.vmap(f)(x)[1], lambda x: np.stack([x, x])),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_size_is_not_asked_for_its_number(name: str) -> None:
    """In graphs of the function itself, and of it under grad and vmap; no guard is made."""
    make = MAKERS[name]

    def f(x: Any) -> Any:
        return make(x, x.shape[0])

    for change, given in WAYS.values():
        rows = (None,) if given(np.ones(1)).ndim == 2 else ()
        graph = co.make_fx(change(f), sizes={"x": (*rows, "n")})(given(np.ones(5)))
        assert graph.graph.sizes.guards == []
        for length in (5, 1, 0, 8):
            x = np.arange(length) + 1.0
            found, expected = graph(given(x)), f(x)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["zeros", "empty", "array", "fromfunction"])
def test_fake_arrays_have_such_sizes(name: str) -> None:
    """Also outside of a capture, and a compiled function makes one graph for all sizes."""
    make = MAKERS[name]
    x = co.FakeMode().from_array(np.ones(5), sizes=("n",))
    assert make(x, x.shape[0]).dtype == make(np.ones(5), 5).dtype
    compiled = co.compile(lambda x: make(x, x.shape[0]))
    for length in (5, 4, 3, 8):
        expected = make(np.ones(length), length)
        found = compiled(np.ones(length))
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(found, expected)
    assert len(compiled.graphs) == 2


@pytest.mark.usefixtures("adapted")
@pytest.mark.parametrize("name", ["zeros of two", "zeros by keywords", "empty"])
def test_code_that_is_followed_does_not_ask_for_it(name: str) -> None:
    """The call is found in the copy of the code, too."""
    make = MAKERS[name]
    graph = co.make_fx(lambda x: make(x, x.shape[0]), sizes={"x": ("n",)})(np.ones(5))
    for length in (5, 0, 8):
        expected = make(np.ones(length), length)
        np.testing.assert_array_equal(graph(np.ones(length)), expected)


def test_an_array_of_numpy_asks_for_the_number() -> None:
    """``like=`` a plain array makes a plain one, so its size is a number."""
    plain = np.ones(1)
    graph = co.make_fx(lambda x: x + np.zeros(x.shape[0], like=plain), "symbolic")(
        np.ones(5)
    )
    assert [guard.text for guard in graph.graph.sizes.guards] == ["s0 == 5"]
    with pytest.raises(co.SizeError):
        co.make_fx(lambda x: np.zeros(x.shape[0], like=plain), sizes={"x": ("n",)})(
            np.ones(5)
        )


def test_like_may_come_before_other_keywords() -> None:
    """Then the number is asked, which is a guard and not a wrong result."""
    graph = co.make_fx(lambda x: np.zeros(x.shape[0], like=x, dtype=int), "symbolic")(
        np.ones(5)
    )
    np.testing.assert_array_equal(graph(np.ones(5)), np.zeros(5, int))


# ---- custom functions ----


@co.custom_vjp
def scaled(x: Any, n: Any) -> Any:
    """Takes a size as an argument."""
    return x * n


scaled.defvjp(lambda x, n: (scaled(x, n), n), lambda n, g: (g * n, None))


def test_a_custom_function_of_a_size() -> None:
    """Its node is for that size: the graph says so, and gives real arrays."""
    graph = co.make_fx(lambda x: scaled(x, x.shape[0]), "symbolic")(np.ones(4))
    np.testing.assert_array_equal(graph(np.ones(4)), np.full(4, 4.0))
    with pytest.raises(co.GuardError):
        graph(np.ones(5))


def test_a_size_from_outside_of_a_custom_function_is_an_error() -> None:
    """When the graph runs, that size is of a capture that has ended."""
    graph = co.make_fx(
        lambda x: co.checkpoint(lambda y: y * x.shape[0])(x), "symbolic"
    )(np.ones(4))
    with pytest.raises(co.LeakedTracerError) as error:
        graph(np.ones(5))
    assert str(error.value).startswith(
        "np::multiply gets the size s0 of a capture that has ended\n"
        "  do: take the size inside of the function, from an array that it gets:"
        " x.shape[0]"
    )
