"""reuse_buffers: which operands are written, and which must not be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co

from ._programs import OPS, TABLE

X = np.array([[0.5, -1.0, 2.0], [3.0, 0.25, -0.5], [1.0, 1.5, -2.0]])


def reused(fn: Any, *args: Any) -> list[str]:
    """Names of the operators that write, after checking that numbers stay."""
    module = co.make_fx(fn)(*args)
    found = co.reuse_buffers(module)
    expected = [np.copy(v) for v in co.tree.leaves(fn(*map(np.copy, args)))]
    given = [np.copy(v) for v in args]
    outcome = co.tree.leaves(found(*given))
    for a, b in zip(outcome, expected, strict=True):
        assert np.asarray(a).tobytes() == b.tobytes()
    calls = [n.target for n in found.graph.nodes if n.op == "call"]
    return [op.qualname for op in calls if op.schema.written]


def test_chains_use_one_array() -> None:
    """The first operator makes an array, and the others write to it."""
    names = reused(lambda x: OPS["scale"](np.exp(np.sin(x) + x) * x), X)
    assert names == ["np_out::add", "np_out::exp", "np_out::multiply", "passes::scale_"]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x + 1.0,  # an input
        lambda x: (y := np.sin(x), y + 1.0),  # a result
        lambda x: np.exp(np.sin(x)[0:2]),  # a view
        lambda x: np.sin(x) @ x,  # not elementwise
        lambda x: np.sin(np.sum(x)) + 1.0,  # without axes NumPy gives scalars
        lambda x: np.sin(x[0]) + x,  # of another shape
        lambda x: np.sin(x) > 0.0,  # of another dtype
        lambda x: np.sin(x).T + x,  # in another order
        lambda x: x + TABLE,  # a constant
    ],
    ids=[
        "input",
        "result",
        "view",
        "matmul",
        "scalar",
        "shape",
        "dtype",
        "order",
        "constant",
    ],
)
def test_what_is_not_written(fn: Any) -> None:
    """Inputs, constants, results, views, and arrays of another kind."""
    assert reused(fn, X) == []


def test_values_that_are_needed_later() -> None:
    """An operand that something else uses afterwards stays, also by a view."""

    def f(x: Any) -> Any:
        a = np.sin(x)
        view = a[0]
        b = a * 2.0
        return b + view, np.cos(b)

    assert reused(f, X) == ["np_out::cos"]
    assert reused(lambda x: (a := np.sin(x)) + np.cos(a), X) == ["np_out::add"]


def test_an_operand_twice() -> None:
    """A pointwise operator may read the array that it writes twice."""
    assert reused(lambda x: (a := np.sin(x)) * a, X) == ["np_out::multiply"]


def test_the_reverse() -> None:
    """Functionalize undoes it."""
    module = co.make_fx(lambda x: OPS["scale"](np.exp(np.sin(x)) + 1.0))(X)
    back = co.functionalize(co.reuse_buffers(module))
    calls = [n.target for n in back.graph.nodes if n.op == "call"]
    assert calls == [n.target for n in module.graph.nodes if n.op == "call"]


def test_with_symbolic_sizes() -> None:
    """Sizes that are certainly the same are enough."""
    module = co.make_fx(lambda x: np.exp(np.sin(x)) + x, "symbolic")(X)
    found = co.reuse_buffers(module)
    calls = [n.target.qualname for n in found.graph.nodes if n.op == "call"]
    assert calls == ["np::sin", "np_out::exp", "np_out::add"]
    assert np.array_equal(found(X[:2]), module(X[:2]))
