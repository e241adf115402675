"""grad, value_and_grad and vjp."""

from __future__ import annotations

import collections
import functools
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import optree
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import customop as co
from tests.transforms.autograd._operators import (
    X,
    Y,
    product,
    slope,
    square,
    total,
)

# ---- grad, value_and_grad ----


def test_value_and_grad() -> None:
    """The value comes with the gradient."""
    value, gradient = co.value_and_grad(total(square))(X)
    assert value == 14.0
    assert_array_equal(gradient, 2.0 * X)


@pytest.mark.parametrize(
    ("argnums", "expected"),
    [
        (0, "y"),
        (1, "x"),
        (-1, "x"),
        (-2, "y"),
        ((0, 1), "yx"),
        ((1, 0), "xy"),
        ([0], "y"),
        ((-1,), "x"),
        ((), ""),
        (np.int64(1), "x"),
    ],
)
def test_argnums(argnums: Any, expected: str) -> None:
    """An int gives one gradient, a sequence a tuple, negative ones count from the end."""
    found = co.grad(total(product), argnums)(X, Y)
    is_tuple = isinstance(argnums, tuple | list)
    assert isinstance(found, tuple) is is_tuple
    values = {"x": X, "y": Y}
    pairs = zip(found if is_tuple else (found,), expected, strict=True)
    for actual, name in pairs:
        assert_array_equal(actual, values[name])


@pytest.mark.parametrize("argnums", [2, -3, (0, 5)])
def test_argnums_outside(argnums: Any) -> None:
    """A position that the call does not have is named."""
    with pytest.raises(co.GradientError, match="the call has 2 positional arguments"):
        co.grad(total(product), argnums)(X, Y)


@pytest.mark.parametrize("argnums", [(0, 0), (0, -2), (1, 0, 1)])
def test_argnums_twice(argnums: Any) -> None:
    """An argument can be named only once."""
    with pytest.raises(co.GradientError, match="argnums"):
        co.grad(total(product), argnums)(X, Y)


@pytest.mark.parametrize("argnums", ["x", 1.0, None, (0, "y"), (0.0,)])
def test_argnums_of_another_type(argnums: Any) -> None:
    """Argnums must be ints."""
    with pytest.raises(co.GradientError, match="argnums"):
        co.grad(total(product), argnums)(X, Y)


def test_argnums_of_keywords() -> None:
    """A keyword argument has no position, and the message says so."""
    with pytest.raises(co.GradientError, match="pass that argument by position"):
        co.grad(lambda x: np.sum(x))(x=X)


def test_has_aux() -> None:
    """Aux comes back with its arrays untracked, other things as they are."""

    def f(x: Any) -> Any:
        y = square(x)
        return np.sum(y), {"y": y, "name": "n", "none": None}

    gradient, aux = co.grad(f, has_aux=True)(X)
    assert_array_equal(gradient, 2.0 * X)
    assert type(aux["y"]) is np.ndarray
    assert_array_equal(aux["y"], X * X)
    assert (aux["name"], aux["none"]) == ("n", None)


def test_value_and_grad_with_aux() -> None:
    """The result is ((value, aux), gradient)."""
    (value, aux), gradient = co.value_and_grad(
        lambda x: (np.sum(square(x)), 5), has_aux=True
    )(X)
    assert (value, aux) == (14.0, 5)
    assert_array_equal(gradient, 2.0 * X)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_has_aux_needs_a_pair(count: int) -> None:
    """Anything but a pair is refused."""
    with pytest.raises(co.GradientError, match=r"must return \(output, aux\)"):
        co.grad(lambda x: (np.sum(x),) * count, has_aux=True)(X)


@dataclass
class Layer:
    weight: Any
    bias: Any


optree.register_pytree_node(
    Layer,
    lambda layer: ((layer.weight, layer.bias), None, ("weight", "bias")),
    lambda _, children: Layer(*children),
    namespace="customop",
)

Point = collections.namedtuple("Point", "x y")  # noqa: PYI024  # as users write them

TREES = {
    "dict": ({"b": X, "a": Y}, lambda p: np.sum(p["a"] * p["b"]), {"b": Y, "a": X}),
    "list": ([X, Y], lambda p: np.sum(p[0] * p[1]), [Y, X]),
    "tuple": ((X, (Y,)), lambda p: np.sum(p[0] * p[1][0]), (Y, (X,))),
    "named": (Point(X, Y), lambda p: np.sum(p.x * p.y), Point(Y, X)),
    "None": (
        {"a": X, "n": None},
        lambda p: np.sum(p["a"]),
        {"a": np.ones(3), "n": None},
    ),
    "ordered": (
        collections.OrderedDict(z=X, a=Y),
        lambda p: np.sum(p["a"] * p["z"]),
        collections.OrderedDict(z=Y, a=X),
    ),
    "unused": ([X, Y], lambda p: np.sum(p[0]), [np.ones(3), np.zeros(3)]),
    "empty": ({}, lambda p: np.float64(1.0), {}),
    "dtypes": (
        [X, X.astype(np.float32)],
        lambda p: np.sum(p[0] * p[1]),
        [X, X.astype(np.float32)],
    ),
}


@pytest.mark.parametrize("name", TREES)
def test_gradients_have_the_structure_of_the_argument(name: str) -> None:
    """A pytree of arrays has a pytree of gradients, of the same classes and dtypes."""
    tree, f, expected = TREES[name]
    found = co.grad(f)(tree)
    assert type(found) is type(tree)
    assert optree.tree_structure(found, none_is_leaf=True) == optree.tree_structure(
        expected, none_is_leaf=True
    )
    pairs = zip(optree.tree_leaves(found), optree.tree_leaves(expected), strict=True)
    for actual, wanted in pairs:
        assert_array_equal(actual, wanted)
        assert actual.dtype == wanted.dtype


def test_gradients_of_a_registered_dataclass() -> None:
    """A class that optree knows in the namespace of the package is a pytree."""
    found = co.grad(lambda layer: np.sum(layer.weight * layer.bias))(Layer(X, Y))
    assert isinstance(found, Layer)
    assert_array_equal(found.weight, Y)
    assert_array_equal(found.bias, X)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.arange(3), "argument 0 has dtype int64, which has no derivative"),
        (np.array([True]), "argument 0 has dtype bool, which has no derivative"),
        (3, "argument 0 must be an array of floats, got int 3"),
        (True, "argument 0 must be an array of floats, got bool True"),
        ("s", "argument 0 must be an array of floats, got str 's'"),
        ({"a": X, "n": 3}, "argument 0['n'] must be an array of floats, got int 3"),
        (np.array(["s"]), "argument 0 has dtype <U1, which has no derivative"),
        (np.array([None]), "argument 0 has dtype object, which has no derivative"),
    ],
    ids=repr,
)
def test_arguments_without_derivatives_are_refused(value: Any, message: str) -> None:
    """Arguments without a derivative are refused."""
    with pytest.raises(co.GradientError) as caught:
        co.grad(lambda x: np.sum(x))(value)
    assert caught.value.what == f"grad of <lambda>: {message}"
    assert caught.value.do


@pytest.mark.parametrize("value", [2.0, np.float64(2.0), np.array(2.0)], ids=repr)
def test_a_number_is_an_array_without_axes(value: Any) -> None:
    """Python and NumPy floats are differentiated as 0-d arrays."""
    assert co.grad(lambda x: x * x * x)(value) == 12.0
    assert np.shape(co.grad(lambda x: x * x * x)(value)) == ()


def test_a_python_complex_is_an_array_without_axes() -> None:
    """Of Re(z^2) by z: 2 z."""
    assert co.grad(lambda z: np.real(z * z))(1.0 + 2.0j) == 2.0 + 4.0j


@pytest.mark.parametrize(
    ("result", "what", "do"),
    [
        (
            lambda x: x,
            "the value is f64[3], must be a real float",
            "return np.sum(result(x)) in place of",
        ),
        (
            lambda x: np.sum(x * 1j),
            "the value is c128[], must be a real float",
            "use real(x) or abs(x)",
        ),
        (
            lambda x: np.argmax(x),
            "the value is i64[], must be a real float",
            "leave out what makes it an integer",
        ),
        (lambda x: "s", "the value is str 's', must be an array", "return one array"),
        (lambda x: None, "the value is None", "return one array"),
        (lambda x: [np.sum(x)], "the value is list", "return one array"),
    ],
    ids=["axes", "complex", "int", "str", "None", "list"],
)
def test_values_without_a_gradient_are_refused(result: Any, what: str, do: str) -> None:
    """The value must be a real float without axes; the message says how to get one."""

    def f(x: Any) -> Any:
        return result(x)

    with pytest.raises(co.GradientError) as caught:
        co.grad(f)(X)
    assert caught.value.what.startswith(f"grad of f: {what}")
    assert caught.value.do.startswith(do)


@pytest.mark.parametrize("result", [3.0, 3, np.float64(3.0), np.array(3.0)], ids=repr)
def test_a_value_that_depends_on_nothing(result: Any) -> None:
    """Its gradient is zero."""
    assert_array_equal(co.grad(lambda x: result)(X), np.zeros(3))


def test_an_argument_that_is_not_used() -> None:
    """Its gradient is zeros of its shape and dtype."""
    other = np.ones((2, 2), np.float32)
    _, found = co.grad(lambda x, y: np.sum(x), (0, 1))(X, other)
    assert_array_equal(found, np.zeros((2, 2)))
    assert found.dtype == np.float32


def test_keywords_pass_through() -> None:
    """Keyword arguments reach the function as they are."""

    def f(x: Any, *, power: int, other: Any = None) -> Any:
        assert other == "o"
        return np.sum(x**power)

    assert_array_equal(co.grad(f)(X, power=3, other="o"), 3.0 * X**2)


@pytest.mark.parametrize("transform", [co.grad, co.value_and_grad])
def test_names_and_docstrings_stay(transform: Any) -> None:
    """The result of a transform has the name of its function."""

    def energy(x: Any) -> Any:
        """Half of the square."""
        return 0.5 * np.sum(x * x)

    made = transform(energy)
    assert made.__name__ == "energy"
    assert made.__doc__ == "Half of the square."
    assert made.__wrapped__ is energy


@pytest.mark.parametrize(
    "f",
    [
        functools.partial(lambda k, x: np.sum(k * x * x), 2.0),
        np.sum,
        type("Callable", (), {"__call__": lambda self, x: np.sum(x)})(),
    ],
    ids=["partial", "numpy", "object"],
)
def test_functions_of_other_kinds(f: Any) -> None:
    """A partial, a NumPy function and an object with __call__ are functions."""
    assert_allclose(co.grad(f)(X), slope(f, X), rtol=1e-8)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
def test_empty_arrays(shape: Any) -> None:
    """The gradient of an empty array is empty."""
    found = co.grad(total(square))(np.zeros(shape))
    assert found.shape == shape


@pytest.mark.parametrize(
    "x",
    [
        np.arange(12.0).reshape(3, 4).T,
        np.arange(12.0).reshape(3, 4)[::2, ::-1],
        np.broadcast_to(np.arange(3.0), (2, 3)),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    ],
    ids=["transposed", "strided", "broadcast", "fortran"],
)
def test_inputs_of_any_layout(x: Any) -> None:
    """How an input lies in memory makes no difference to its gradient."""
    assert_array_equal(co.grad(total(square))(x), 2.0 * x)


def test_a_read_only_input() -> None:
    """An input that cannot be written is read alone."""
    x = X.copy()
    x.flags.writeable = False
    assert_array_equal(co.grad(total(square))(x), 2.0 * X)


def test_a_subclass_of_ndarray() -> None:
    """A subclass is differentiated as an array."""

    class Metres(np.ndarray):
        pass

    found = co.grad(total(square))(X.view(Metres))
    assert_array_equal(np.asarray(found), 2.0 * X)


def test_branches_on_values() -> None:
    """Python control flow follows the value."""

    def f(x: Any) -> Any:
        return square(x) if x > 0.0 else 3.0 * x

    assert [co.grad(f)(v) for v in (2.0, -2.0)] == [4.0, 3.0]


def test_a_tracer_that_outlives_grad_is_refused() -> None:
    """The error for a value that left its transform names the transform."""
    kept = []
    co.grad(lambda x: (kept.append(x), np.sum(x))[1])(X)
    with pytest.raises(co.LeakedTracerError, match="has ended"):
        square(kept[0])


def test_threads() -> None:
    """Gradients in many threads at once are each right."""
    found: dict[int, Any] = {}
    barrier = threading.Barrier(8)

    def work(k: int) -> None:
        barrier.wait()
        for _ in range(20):
            found[k] = co.grad(co.grad(lambda x: square(square(x)) * k))(np.array(2.0))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {k: 48.0 * k for k in range(8)}


# ---- vjp ----


def test_vjp_pulls_any_number_of_times() -> None:
    """A pullback is linear, and may be called again."""
    value, pullback = co.vjp(product, X, Y)
    assert_array_equal(value, X * Y)
    for k in (1.0, 2.0, -3.0):
        gx, gy = pullback(np.full(3, k))
        assert_array_equal(gx, k * Y)
        assert_array_equal(gy, k * X)


def test_vjp_of_trees() -> None:
    """Cotangents are nested as the output, gradients as the primals."""

    def f(p: Any, z: Any) -> Any:
        return {"s": p["x"] * z, "t": [z * z]}

    value, pullback = co.vjp(f, {"x": X}, Y)
    assert_array_equal(value["t"][0], Y * Y)
    gp, gz = pullback({"s": np.ones(3), "t": [X]})
    assert_array_equal(gp["x"], Y)
    assert_allclose(gz, X + 2.0 * Y * X)


def test_vjp_with_aux() -> None:
    """Aux comes third."""
    value, pullback, aux = co.vjp(lambda x: (x * x, "aux"), X, has_aux=True)
    assert_array_equal(value, X * X)
    assert_array_equal(pullback(np.ones(3))[0], 2.0 * X)
    assert aux == "aux"


def test_vjp_of_an_output_that_depends_on_nothing() -> None:
    """Its gradient is zeros."""
    value, pullback = co.vjp(lambda x: Y, X)
    assert_array_equal(value, Y)
    assert_array_equal(pullback(np.ones(3))[0], np.zeros(3))


def test_a_number_as_cotangent() -> None:
    """A Python float serves for an output without axes."""
    _, pullback = co.vjp(np.sum, X)
    assert_array_equal(pullback(2.0)[0], np.full(3, 2.0))


@pytest.mark.parametrize(
    ("cotangent", "what"),
    [
        (
            np.ones(2),
            "pullback: the cotangent is f64[2], must be f64[3] like the output",
        ),
        (
            np.ones(3, np.float32),
            "pullback: the cotangent is f32[3], must be f64[3] like the output",
        ),
        (1.0, "pullback: the cotangent is f64[], must be f64[3] like the output"),
        (
            "s",
            "pullback: the cotangent is str 's', must be f64[3] like the output",
        ),
    ],
)
def test_wrong_cotangents_are_refused(cotangent: Any, what: str) -> None:
    """A cotangent has the shape and dtype of its output."""
    _, pullback = co.vjp(square, X)
    with pytest.raises(co.GradientError) as caught:
        pullback(cotangent)
    assert caught.value.what == what


def test_cotangents_of_another_structure_are_refused() -> None:
    """A cotangent for each array of the output, nested as it is."""
    _, pullback = co.vjp(lambda x: (x * 1.0, x * 2.0), X)
    with pytest.raises(
        co.GradientError, match=r"nested as \[\*, \*\], must be as \(\*, \*\) like"
    ):
        pullback([X, X])


def test_vjp_of_a_real_input_with_a_complex_output() -> None:
    """A complex cotangent gives a real gradient: Re(g f'(x))."""
    _, pullback = co.vjp(lambda x: x * (2.0 + 3.0j), X)
    (found,) = pullback(np.full(3, 1.0 - 1.0j))
    assert found.dtype == np.float64
    assert_allclose(found, np.full(3, ((1.0 - 1.0j) * (2.0 + 3.0j)).real))
