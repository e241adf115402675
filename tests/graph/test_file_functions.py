"""Functions with derivatives of their own in graph files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.array([0.3, 1.2, -0.7])
ONE = np.array(1.0)


@co.custom_vjp
def clipped(x: Any, limit: Any) -> Any:
    return np.sin(x) * x


# The rules of these two are not the derivatives, and call the functions again.
def _clipped_fwd(x: Any, limit: Any) -> Any:
    return clipped(x, limit), (x, limit)


def _clipped_bwd(saved: Any, g: Any) -> Any:
    x, limit = saved
    return np.clip(g, -limit, limit) * np.cos(x) * clipped(x, limit), None


clipped.defvjp(_clipped_fwd, _clipped_bwd)


@co.custom_jvp
def softened(x: Any) -> Any:
    return np.log(1 + np.exp(x))


@softened.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return softened(x), t * softened(x) * x


@co.custom_vjp
def nested(tree: Any, scale: float) -> Any:
    return {"sum": scale * np.sum(tree["a"] * tree["b"]), "at": np.argmax(tree["a"])}


nested.defvjp(
    lambda tree, scale: (nested(tree, scale), tree["b"]),
    lambda b, g: ({"a": 2 * g["sum"] * b, "b": None}, None),
)


def in_scan(x: Any) -> Any:
    step = lambda c, row: (softened(c) * row, clipped(c, ONE))  # short
    return co.scan(step, 0 * x[0], x)[1]


PROGRAMS: dict[str, Any] = {
    "vjp": lambda x: 2 * clipped(x, ONE),
    "jvp": lambda x: softened(x) * x,
    "one in another": lambda x: softened(clipped(softened(x), ONE / 2)),
    "checkpoint": lambda x: co.checkpoint(lambda x: np.sin(np.exp(x)))(x),
    "vmap of vjp": lambda x: co.vmap(lambda r: clipped(r * x, ONE))(X[:2])[0],
    "vmap of jvp": lambda x: co.vmap(lambda r: softened(r * x))(X[:2])[0],
    "trees": lambda x: nested({"a": x, "b": x * 2}, 3.0)["sum"] * x,
    "cond": lambda x: co.cond(
        np.sum(x) > 0, lambda x: clipped(x, ONE), lambda x: softened(x), x
    ),
    "scan": in_scan,
}


def again(graph: Any, folder: Path) -> Any:
    """The graph, from a file."""
    graph.save(folder / "f.graph")
    return co.load_graph(folder / "f.graph")


def total(fn: Any) -> Any:
    return lambda x: np.sum(fn(x))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_derivatives_are_those_of_the_rules(
    name: str, mode: Any, tmp_path: Path
) -> None:
    """Values and derivatives of every kind, which the user's rules define."""
    fn = PROGRAMS[name]
    loaded = again(co.make_fx(fn, mode)(X), tmp_path)
    squares = lambda f: lambda x: np.sum(co.grad(total(f))(x) ** 2)  # short
    forms: list[Any] = [
        lambda f: f,
        lambda f: co.grad(total(f)),
        lambda f: co.hessian(total(f)),
        lambda f: lambda x: co.jvp(f, (x,), (x,))[1],
        lambda f: co.grad(squares(f)),
        lambda f: lambda x: co.vmap(co.grad(total(f)))(np.stack([x, X]))[0],
    ]
    for form in forms:
        for x in (X, -2 * X):
            np.testing.assert_allclose(form(loaded)(x), form(fn)(x), rtol=1e-12)
    captured = again(co.make_fx(loaded)(X), tmp_path)
    gradient = co.make_fx(co.grad(total(loaded)), mode)(X)
    for form in (co.grad(total(captured)), gradient):
        np.testing.assert_allclose(form(-X), co.grad(total(fn))(-X), rtol=1e-12)


def test_another_process(tmp_path: Path) -> None:
    """It needs no code of the functions."""
    fn = PROGRAMS["one in another"]
    co.make_fx(fn)(X).save(tmp_path / "f.graph")
    want = [co.grad(total(fn))(X), co.hessian(total(fn))(X)]
    np.savez(tmp_path / "want.npz", *want)
    code = (
        "import numpy as np, customop as co\n"
        "f, want = co.load_graph('f.graph'), np.load('want.npz')\n"
        "total, x = lambda x: np.sum(f(x)), np.array([0.3, 1.2, -0.7])\n"
        "np.testing.assert_allclose(co.grad(total)(x), want['arr_0'], rtol=1e-12)\n"
        "np.testing.assert_allclose(co.hessian(total)(x), want['arr_1'], rtol=1e-12)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_equal_calls_share_their_graphs(tmp_path: Path) -> None:
    """Ten calls take little more room than one, and files of one graph are equal."""

    def fn(x: Any, count: int) -> Any:
        for _ in range(count):
            x = clipped(x, ONE)
        return x

    sizes = {}
    for count in (1, 10):
        graph = co.make_fx(lambda x, n=count: fn(x, n))(X)
        graph.save(tmp_path / f"{count}.graph")
        sizes[count] = (tmp_path / f"{count}.graph").read_bytes()
        graph.save(tmp_path / "again.graph")
        assert (tmp_path / "again.graph").read_bytes() == sizes[count]
    assert len(sizes[10]) < 2 * len(sizes[1])


def test_a_function_without_a_rule(tmp_path: Path) -> None:
    """It is saved; the error for its gradient says why there is none."""
    plain = co.custom_vjp(lambda x: x * 2)
    loaded = again(co.make_fx(lambda x: plain(x) + 1)(X), tmp_path)
    np.testing.assert_array_equal(loaded(X), X * 2 + 1)
    with pytest.raises(co.MissingRuleError) as caught:
        co.grad(total(loaded))(X)
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        "custom_vjp::<lambda> has no gradient, since the function had none when its graph"
        " was saved"
    )
    assert lines[-1] == "  do: register the rule, and save the graph again"


@pytest.mark.parametrize("part", ["the body", "fwd", "bwd"])
def test_what_cannot_be_captured(part: str, tmp_path: Path) -> None:
    """Code that asks for values runs, and has a gradient, but cannot be in a file."""

    def asks(x: Any, here: str) -> Any:
        return x * 2 if here != part or float(x[0]) > 0 else x

    bad = co.custom_vjp(lambda x: asks(x, "the body"))
    bad.defvjp(lambda x: (asks(x, "fwd"), None), lambda saved, g: (asks(g, "bwd") + 0,))
    graph = co.make_fx(lambda x: np.sum(bad(x)))(X)
    np.testing.assert_allclose(graph(X), 2 * np.sum(X))
    with pytest.raises(co.GraphFileError) as caught:
        graph.save(tmp_path / "f.graph")
    lines = str(caught.value).splitlines()
    assert lines[0].startswith(
        f"the node 'lambda_' cannot be saved: {part} of custom_vjp::<lambda> cannot be"
        " captured: float() of GraphTracer"
    )
    assert not (tmp_path / "f.graph").exists()


def test_rules_without_end(tmp_path: Path) -> None:
    """A rule that calls its function with ever longer arrays is an error."""
    longer = co.custom_jvp(lambda x: np.sum(x))

    @longer.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return np.sum(x), longer(np.concatenate([t, t]))

    graph = co.make_fx(longer)(X)
    with pytest.raises(co.GraphFileError, match="functions again and again"):
        graph.save(tmp_path / "f.graph")
