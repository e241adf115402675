"""replace_pattern: what is found, what is left, and what takes its place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co

X = np.array([[0.5, -1.0, 2.0], [3.0, 0.25, -0.5]])
W = np.arange(12.0).reshape(3, 4)


def targets(module: co.GraphModule) -> list[str]:
    """Names of the operators that are called."""
    return [n.target.qualname for n in module.graph.nodes if n.op == "call"]


def same(first: Any, second: Any) -> bool:
    """Whether two trees of arrays have the same bits."""
    pairs = zip(co.tree.leaves(first), co.tree.leaves(second), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


@co.custom_op("patterns::linear", mutates_args=())
def linear(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A layer as one operator."""
    return x @ w + b


linear.register_fake(
    lambda x, w, b: co.FakeArray((x.shape[0], w.shape[1]), np.result_type(x, w, b))
)


@pytest.mark.parametrize("mode", ["real", "symbolic"])
def test_layers(mode: Any) -> None:
    """Several arguments, found twice, for the shapes of each place."""

    def f(x: Any, w: Any, b: Any) -> Any:
        h = np.tanh(x @ w + b)
        return h @ w.T + b[:3]

    module = co.make_fx(f, mode)(X, W, np.ones(4))
    found = co.replace_pattern(module, lambda x, w, b: x @ w + b, linear)
    names = ["patterns::linear", "np::tanh", "np::transpose", "np::slice"]
    assert targets(found) == [*names, "patterns::linear"]
    assert same(found(X, W, np.ones(4)), f(X, W, np.ones(4)))
    node = found.graph.nodes[3]
    assert node.meta["place"].startswith(__file__)
    assert node.meta["val"].shape == module.graph.nodes[4].meta["val"].shape
    assert "np::matmul" in targets(module)
    if mode == "symbolic":
        assert same(found(X[:1], W, np.ones(4)), f(X[:1], W, np.ones(4)))
        with pytest.raises(co.GuardError):
            found(X[:, :2], W, np.ones(4))


def test_numbers_must_be_the_same() -> None:
    """Constants of the pattern are compared, with class and sign; axes by meaning."""
    module = co.make_fx(lambda x: (x * 2.0, x * 2, x * 3.0, np.sum(x, axis=-1)))(X)

    def count(pattern: Any, replacement: Any) -> int:
        found = co.replace_pattern(module, pattern, replacement)
        assert same(found(X), module(X))
        return targets(found).count("np::add")

    assert count(lambda x: x * 2.0, lambda x: x + x) == 1
    assert count(lambda x: x * 2, lambda x: x + x) == 1
    assert count(lambda x, k: x * k, lambda x, k: x * k + 0.0) == 3
    assert count(lambda x: np.sum(x, axis=-1), lambda x: np.sum(x, axis=-1) + 0.0) == 1
    assert count(lambda x: np.sum(x, axis=0), lambda x: np.sum(x, axis=0) + 0.0) == 0


def test_arrays_in_a_pattern_are_compared() -> None:
    """A constant array fits one with the same bits."""
    module = co.make_fx(lambda x: np.exp(x * W[:, 0]) + np.exp(x * W[:, 1]))(X)
    column = W[:, 0].copy()
    found = co.replace_pattern(
        module, lambda x: np.exp(x * column), lambda x: np.exp(column * x)
    )
    assert targets(found).count("np::multiply") == 2
    assert same(found(X), module(X))
    first = [n for n in found.graph.nodes if n.target is co.ops.np.multiply.default]
    assert [n.args[0].op for n in first] == ["constant", "placeholder"]


def test_matches_that_escape_are_left() -> None:
    """A value inside that something else uses, and overlapping matches."""

    def f(x: Any) -> Any:
        e = np.exp(x)
        return np.log(e + 1.0), e + 1.0, np.log(np.exp(x) + 1.0)

    module = co.make_fx(f)(X)

    def softplus(x: Any) -> Any:
        return np.log(np.exp(x) + 1.0)

    found = co.replace_pattern(module, softplus, lambda x: np.logaddexp(x, 0.0))
    assert targets(found).count("np::logaddexp") == 1
    assert targets(found).count("np::log") == 1
    # x + x + x + x has three sums; of two that overlap the first is replaced.
    module = co.make_fx(lambda x: ((x + x) + x) + x)(X)
    found = co.replace_pattern(
        module, lambda a, b, c: (a + b) + c, lambda a, b, c: c * 3
    )
    assert targets(found) == ["np::multiply", "np::add"]


def test_one_wildcard_in_two_places() -> None:
    """The same argument twice fits the same value twice."""
    module = co.make_fx(lambda x, y: (x * x, x * y))(X, X)
    found = co.replace_pattern(module, lambda x: x * x, np.square)
    assert targets(found) == ["np::square", "np::multiply"]


def test_several_results() -> None:
    """A pattern with two results, of one operator and of several."""

    def f(x: Any) -> Any:
        q, r = np.linalg.qr(x)
        return q * 2.0, np.sin(r), np.cos(r)

    module = co.make_fx(f)(X)
    found = co.replace_pattern(
        module, lambda x: (np.sin(x), np.cos(x)), lambda x: (np.cos(x), np.sin(x))
    )
    outcome, expected = found(X), f(X)
    assert same((outcome[0], outcome[2], outcome[1]), expected)
    found = co.replace_pattern(
        module,
        lambda x: tuple(np.linalg.qr(x)),
        lambda x: tuple(v * 1.0 for v in np.linalg.qr(x)),
    )
    assert same(found(X), expected)
    assert targets(found).count("np::multiply") == 3


def test_not_across_a_write() -> None:
    """What was read before a write is not computed after it."""

    def kernel(x: np.ndarray) -> None:
        x += 1.0

    change = co.custom_op("patterns::change", kernel, mutates_args=("x",))
    change.register_fake(lambda x: None)

    def f(x: Any) -> Any:
        before = np.exp(x)
        change(x)
        return np.log(before + 1.0), np.log(np.exp(x) + 1.0)

    module = co.make_fx(f)(X)
    found = co.replace_pattern(
        module, lambda x: np.log(np.exp(x) + 1.0), lambda x: np.logaddexp(x, 0.0)
    )
    assert targets(found).count("np::logaddexp") == 1
    np.testing.assert_allclose(found(X.copy()), f(X.copy()))


def test_a_result_stays_an_array_of_its_own() -> None:
    """A replacement that returns its argument is copied where that matters."""
    module = co.make_fx(lambda x: x + 0.0)(X)
    found = co.replace_pattern(module, lambda x: x + 0.0, lambda x: x)
    assert targets(found) == ["np::copy"]
    assert found(X) is not X
    module = co.make_fx(lambda x: np.sin(x + 0.0))(X)
    found = co.replace_pattern(module, lambda x: x + 0.0, lambda x: x)
    assert targets(found) == ["np::sin"]


def test_mistakes() -> None:
    """Patterns that cannot be traced, compute nothing, or have other results."""
    module = co.make_fx(lambda x: np.reshape(np.sin(x), (6,)))(X)

    def pattern(x: Any) -> Any:
        return np.reshape(x, (6,))

    with pytest.raises(co.ArgumentError) as error:
        co.replace_pattern(module, pattern, np.ravel)
    assert str(error.value).startswith(
        "replace_pattern: the pattern fails for matrices of 3 x 3: "
    )
    assert str(error.value).endswith(
        "do: pass examples of its arguments: replace_pattern(graph, pattern, replacement,"
        " examples=[...])"
    )
    found = co.replace_pattern(
        module, pattern, lambda x: np.ravel(x) * 1.0, examples=[np.ones((2, 3))]
    )
    assert "np::multiply" in targets(found)
    with pytest.raises(co.ArgumentError, match="the pattern calls no operator"):
        co.replace_pattern(module, lambda x: x, np.sin)
    with pytest.raises(co.GraphError) as wrong:
        co.replace_pattern(module, np.sin, lambda x: np.sum(x))
    assert str(wrong.value).startswith(
        "replace_pattern: the replacement gives f64[], the pattern f64[2, 3]\n"
        f"  at 'sin', traced at {__file__}:"
    )
