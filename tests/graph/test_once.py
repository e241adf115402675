"""run_once runs a graph, and refuses inputs, as its compiled code does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.graph.walk import run_once

Array = np.ndarray


def kernel(x: Array) -> Array:
    """The numbers above zero."""
    return x[x > 0]


def fake(x: Any) -> Any:
    """From two to four of them."""
    size = co.get_ctx().new_dynamic_size(min=2, max=4)
    return co.fake_like(x, shape=(size,))


def total(x: Array) -> float:
    """A number that depends on values."""
    return float(np.sum(x))


positive = co.custom_op("once::positive", kernel, mutates_args=())
positive.register_fake(fake)
summed = co.custom_op("once::total", total, mutates_args=())


def checked(x: Any) -> Any:
    """A size that depends on data, and a check of it."""
    found = positive(x)
    co.check(found.shape[0] != 3, "not three")
    return found * 2.0 + found.shape[0]


def branching(x: Any, y: Any) -> Any:
    """A branch on a size, and sizes in arguments."""
    if x.shape[0] > 2:
        return np.reshape(x, (1, x.shape[0])) * (x.shape[0] / 2) + y
    return x + y


ONE, TWO = np.ones(3), np.ones((3, 3))
# Name -> module, and inputs for which it is right.
MODULES: dict[str, tuple[Callable[[], Any], list[list[Any]]]] = {
    "branch": (
        lambda: co.make_fx(branching, "symbolic")(ONE, ONE),
        [[ONE, ONE], [np.arange(5.0), np.arange(5.0)]],
    ),
    "data": (
        lambda: co.make_fx(checked, "symbolic")(np.ones(2)),
        [[np.array([1.0, -1.0, 3.0])], [np.ones(4)]],
    ),
    "square": (
        lambda: co.make_fx(lambda x: x @ x.T, sizes={"x": ("n", "n")})(TWO),
        [[TWO], [np.arange(4.0).reshape(2, 2)]],
    ),
    "number": (lambda: co.make_fx(lambda x: x * summed(x))(ONE), [[ONE]]),
    "plain": (lambda: co.make_fx(lambda x, k: x * k)(ONE, 2.0), [[ONE, 2.0]]),
    "items": (lambda: co.make_fx(lambda x: np.modf(x)[1])(ONE), [[ONE]]),
}


@pytest.mark.parametrize("name", MODULES)
def test_results(name: str) -> None:
    """The results are those of NumPy."""
    make, inputs = MODULES[name]
    plain: dict[str, Callable[..., Any]] = {
        "branch": lambda x, y: x[None] * (len(x) / 2) + y,
        "data": lambda x: x[x > 0] * 2.0 + np.sum(x > 0),
        "square": lambda x: x @ x.T,
        "number": lambda x: x * np.sum(x),
        "plain": lambda x, k: x * k,
        "items": lambda x: np.modf(x)[1],
    }
    module = make()
    for args in inputs:
        expected = plain[name](*args)
        for found in (run_once(module, args), module(*args)):
            np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.parametrize(
    ("name", "args", "says"),
    [
        ("branch", [ONE.astype("f4"), ONE], "called with another dtype"),
        ("branch", [TWO, ONE], "another number of axes"),
        ("branch", [np.ones(2), np.ones(2)], "the graph holds only where s0 > 2"),
        ("branch", [ONE, np.ones(4)], "the graph holds only where"),
        ("branch", ["x", ONE], "what is not an array"),
        ("data", [np.array([1.0, -1.0])], "and the fake kernel says at least 2"),
        ("data", [np.ones(5)], "and the fake kernel says at least 2 and at most 4"),
        ("data", [np.ones(3)], "not three"),
        ("square", [np.ones((2, 3))], "sizes that do not fit together"),
        ("number", [2 * ONE], "once::total gives a number: "),
        ("number", [np.ones(4)], "another shape"),
        ("plain", [ONE, 3.0], "called with another value"),
    ],
)
def test_refusals(name: str, args: list[Any], says: str) -> None:
    """What the compiled code refuses, with the same error but for the place."""
    # A first call is compared with the fake kernel, in words of its own.
    positive(np.array([1.0, -1.0, 3.0]))
    module = MODULES[name][0]()
    with pytest.raises(co.CustomOpError) as compiled:
        module(*args)
    with pytest.raises(co.CustomOpError) as found:
        run_once(module, args)
    assert says in found.value.what
    assert type(found.value) is type(compiled.value)
    assert found.value.what == compiled.value.what


def test_an_error_names_the_node() -> None:
    """An error of a kernel says in which node it was raised."""
    module = co.make_fx(lambda x, y: np.matmul(x, y))(TWO, TWO)
    module.graph.nodes[2].args = (module.inputs[0], np.ones(2))
    with pytest.raises(ValueError, match="matmul") as found:
        run_once(module, [TWO, TWO])
    assert "in the node 'matmul', traced at " in found.value.__notes__[0]
