"""Random programs: eager, transformed and captured, against plain Python."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.control.programs import gradient, plain, program, with_functions
from tests.tiers import all_but

RNG = np.random.default_rng(7)
X, V, ROWS = RNG.normal(size=3), RNG.normal(size=3), RNG.normal(size=(4, 3))


def fx(fn: Callable[..., Any], like: Any = V) -> Any:
    """The graph of a function, which has seen no values."""
    return co.make_fx(fn, "fake")(like)


def elsewhere(fn: Callable[..., Any]) -> Callable[[Any], Any]:
    """The graph of a function at another length, after saving and loading."""
    file = io.BytesIO()
    co.make_fx(fn, "symbolic")(V[:2]).save(file)
    file.seek(0)
    return co.load_graph(file)


def from_text(fn: Callable[..., Any]) -> Any:
    """The function that the text of a graph for any length defines."""
    graph = co.make_fx(fn, "symbolic")(V[:2])
    names: dict[str, Any] = {"constants": graph.named_constants()}
    exec(graph.print_readable(print_output=False), names)
    return names[graph.__name__ if graph.__name__.isidentifier() else "graph"]


def total(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda rows: np.sum(co.vmap(fn)(rows))


def push(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: co.jvp(fn, (x,), (V,))[1]


# What is computed -> what of the plain program it must be.
EAGER: dict[str, tuple[Callable[[Any], Any], str]] = {
    "value": (lambda f: f(X), "value"),
    "grad": (lambda f: co.grad(f)(X), "gradient"),
    "jvp": (lambda f: push(f)(X), "tangent"),
    "vmap": (lambda f: co.vmap(f)(ROWS), "values"),
    "vmap grad": (lambda f: co.vmap(co.grad(f))(ROWS), "gradients"),
    "grad vmap": (lambda f: co.grad(total(f))(ROWS), "gradients"),
    "hessian": (lambda f: co.hessian(f)(X), "hessian"),
}
CAPTURED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "graph": (lambda f: fx(f)(X), "value"),
    "real": (lambda f: co.make_fx(f)(X)(X), "value"),
    "symbolic": (lambda f: co.make_fx(f, "symbolic")(V)(X), "value"),
    "at another length": (lambda f: elsewhere(f)(X), "value"),
    "text at another length": (lambda f: from_text(f)(X), "value"),
    "gradient at another length": (lambda f: elsewhere(co.grad(f))(X), "gradient"),
    "grad of a graph": (lambda f: co.grad(fx(f))(X), "gradient"),
    "jvp of a graph": (lambda f: push(fx(f))(X), "tangent"),
    "vmap of a graph": (lambda f: co.vmap(fx(f))(ROWS), "values"),
    "graph of jvp": (lambda f: fx(push(f))(X), "tangent"),
    "graph of vmap": (lambda f: fx(co.vmap(f), 0 * ROWS)(ROWS), "values"),
    "graph of a graph": (lambda f: fx(fx(f))(X), "value"),
    "graph of jacfwd": (lambda f: fx(co.jacfwd(f))(X), "gradient"),
}
AXES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "along 1": (lambda f: co.vmap(fx(f), in_dims=1)(ROWS.T), "values"),
    "graph along 1": (lambda f: fx(co.vmap(f, in_dims=1), ROWS.T)(ROWS.T), "values"),
    "vmap vmap": (
        lambda f: fx(co.vmap(co.vmap(f)), ROWS[None])(ROWS[None])[0],
        "values",
    ),
    "vmap of vmap": (lambda f: co.vmap(fx(co.vmap(f), ROWS))(ROWS[None])[0], "values"),
    "jacfwd twice": (lambda f: fx(co.jacfwd(co.jacfwd(f)))(X), "hessian"),
    "hessian of a graph": (lambda f: co.hessian(fx(f))(X), "hessian"),
}
# Reverse mode in a capture.
BACKWARD: dict[str, tuple[Callable[[Any], Any], str]] = {
    "graph of grad": (lambda f: fx(co.grad(f))(X), "gradient"),
    "graph of vmap grad": (
        lambda f: fx(co.vmap(co.grad(f)), 0 * ROWS)(ROWS),
        "gradients",
    ),
    "graph of grad vmap": (
        lambda f: fx(co.grad(total(f)), 0 * ROWS)(ROWS),
        "gradients",
    ),
    "graph of hessian": (lambda f: fx(co.hessian(f))(X), "hessian"),
    "graph of grad of a graph": (lambda f: fx(co.grad(fx(f)))(X), "gradient"),
}


def expected(fn: Callable[[Any], Any]) -> dict[str, Any]:
    """What plain Python and complex steps give."""
    at, step = gradient(fn, X), 1e-6
    moved = [gradient(fn, X + s * d) for d in np.eye(3) for s in (step, -step)]
    pairs = zip(moved[::2], moved[1::2], strict=True)
    return {
        "value": fn(X),
        "gradient": at,
        "tangent": at @ V,
        "values": [fn(row) for row in ROWS],
        "gradients": [gradient(fn, row) for row in ROWS],
        "hessian": [(up - down) / (2 * step) for up, down in pairs],
    }


def compare(seed: int, depth: int, forms: dict[str, Any]) -> None:
    """Run a program in all forms."""
    rng = np.random.default_rng(seed)
    steps = program(rng, depth, int(rng.integers(1, 4)))
    want, fn = expected(plain(steps)), with_functions(steps)
    for name, (form, what) in forms.items():
        found = form(fn)
        tolerance = 1e-4 if what == "hessian" else 1e-9
        np.testing.assert_allclose(
            found, want[what], rtol=tolerance, atol=tolerance, err_msg=f"{name} {seed}"
        )


@pytest.mark.parametrize("seed", range(8))
def test_eager(seed: int) -> None:
    """Values and derivatives of nested control flow, without a graph."""
    compare(seed, 2, EAGER)


@pytest.mark.parametrize("seed", all_but(range(10, 14), [10]))
def test_captured(seed: int) -> None:
    """The same in graphs, and of graphs."""
    compare(seed, 1, CAPTURED | BACKWARD | AXES)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(100, 110))
def test_deeper(seed: int) -> None:
    """Programs nested deeper, in every form."""
    compare(seed, 2, EAGER | CAPTURED | BACKWARD | AXES)
