"""custom_root and custom_fixed_point: derivatives, nestings, solvers and errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co

Fn = Callable[..., Any]


# ---- one unknown: the cube root, whose derivatives are known ----


def newton(g: Fn, x: Any) -> Any:
    for _ in range(30):
        x = x - g(x) / co.grad(g)(x)
    return x


def repeat(g: Fn, x: Any) -> Any:
    return co.fori_loop(0, 80, lambda i, x: g(x), x)


def divided(product: Fn, b: Any) -> Any:
    """Solve one linear equation."""
    return b / product(np.ones_like(b))


def cube_root(tangent_solve: Fn | None) -> Fn:
    root: Fn = co.custom_root(lambda x, a: x**3 - a, newton, tangent_solve)
    return lambda a: root(1.0, a)


def fixed_cube_root(tangent_solve: Fn | None) -> Fn:
    step = lambda x, a: (2 * x + a / x**2) / 3  # short
    fixed: Fn = co.custom_fixed_point(step, repeat, tangent_solve)
    return lambda a: fixed(1.0, a)


ROOTS: dict[str, Fn] = {
    "root": cube_root(None),
    "root by tangent_solve": cube_root(divided),
    "fixed point": fixed_cube_root(None),
    "fixed point by tangent_solve": fixed_cube_root(divided),
}
DERIVATIVES = [
    lambda a: a ** (1 / 3),
    lambda a: a ** (-2 / 3) / 3,
    lambda a: -2 / 9 * a ** (-5 / 3),
    lambda a: 10 / 27 * a ** (-8 / 3),
]


def pushed(fn: Fn) -> Fn:
    return lambda a: co.jvp(fn, (a,), (np.ones_like(a),))[1]


@pytest.mark.parametrize("name", ROOTS)
@pytest.mark.parametrize(
    "word",
    [
        *("", "gg", "gj", "jg"),
        *(pytest.param(w, marks=pytest.mark.exhaustive) for w in ("jj", "gjg", "ggj")),
    ],
)
def test_every_order_and_mode(name: str, word: str) -> None:
    """Derivatives of every order in both modes, for one value and for rows."""
    fn = ROOTS[name]
    for letter in word:
        fn = co.grad(fn) if letter == "g" else pushed(fn)
    want = DERIVATIVES[len(word)]
    a = np.array([1.3, 8.0])
    np.testing.assert_allclose(fn(a[1]), want(a[1]), rtol=1e-9)
    np.testing.assert_allclose(co.vmap(fn)(a), want(a), rtol=1e-9)


@pytest.mark.parametrize("name", ROOTS)
def test_graphs(name: str, tmp_path: Path) -> None:
    """Captured, compiled and saved functions have the same derivatives."""
    fn = ROOTS[name]
    a, want = np.array(8.0), DERIVATIVES[1](8.0)
    np.testing.assert_allclose(co.make_fx(co.grad(fn))(a)(a), want, rtol=1e-9)
    np.testing.assert_allclose(co.compile(pushed(fn))(a), want, rtol=1e-9)
    assert co.eval_shape(co.grad(fn), a).shape == ()
    co.make_fx(fn)(a).save(tmp_path / "f.graph")
    loaded = co.load_graph(tmp_path / "f.graph")
    np.testing.assert_allclose(co.grad(loaded)(a), want, rtol=1e-9)
    np.testing.assert_allclose(pushed(loaded)(a), want, rtol=1e-9)


# ---- several unknowns, found by a solver that no transform sees into ----


def hidden_newton(g: Fn, guess: Any) -> Any:
    """Find a root by differences of plain arrays, as a solver in C does."""
    vector, unravel = co.tree.ravel(guess)
    flat = lambda v: co.tree.ravel(g(unravel(v)))[0]  # short
    for _ in range(40):
        assert type(vector) is np.ndarray
        columns = [flat(vector + 1e-6 * e) for e in np.eye(len(vector))]
        slope = (np.stack(columns, 1) - flat(vector)[:, None]) / 1e-6
        vector = vector - np.linalg.solve(slope, flat(vector))
    return unravel(vector)


def by_columns(product: Fn, b: Any) -> Any:
    """Solve linear equations by products alone."""
    vector, unravel = co.tree.ravel(b)
    assert type(vector) is np.ndarray
    columns = [co.tree.ravel(product(unravel(e)))[0] for e in np.eye(len(vector))]
    return unravel(np.linalg.solve(np.stack(columns, 1), vector))


def equations(x: Any, p: Any, k: Any) -> Any:
    u, v = x["u"], x["v"]
    return {
        "u": u**3 + p["a"] * np.sum(v) - p["power"],
        "v": np.exp(v) * k + u * np.array([0.3, -0.2]) - p["b"],
    }


GUESS = {"u": np.array(1.0), "v": np.zeros(2)}


@pytest.mark.parametrize("tangent_solve", [None, by_columns])
def test_trees(tangent_solve: Any) -> None:
    """Unknowns and arguments are trees; the equations are not symmetric."""
    root = co.custom_root(equations, hidden_newton, tangent_solve)

    def loss(a: Any, b: Any, k: Any) -> Any:
        x = root(GUESS, {"a": a, "b": b, "power": 2}, k=k)
        return x["u"] * np.sum(x["v"] ** 2) + x["u"]

    point = np.array(0.4), np.array([1.1, 1.7]), np.array(0.8)
    co.gradcheck(loss, point)
    slope = lambda *args: co.grad(loss, (0, 1, 2))(*args)  # short
    for i in range(3):
        t = [v * (j == i) for j, v in enumerate(point)]
        ahead, behind = (
            [v + s * 1e-5 * w for v, w in zip(point, t, strict=True)] for s in (1, -1)
        )
        moved = co.jvp(loss, [*point], t)[1]
        np.testing.assert_allclose(
            moved, (loss(*ahead) - loss(*behind)) / 2e-5, rtol=1e-6
        )
        second = co.jvp(slope, [*point], t)[1]
        pairs = zip(slope(*ahead), slope(*behind), second, strict=True)
        for one, other, want in pairs:
            np.testing.assert_allclose(want, (one - other) / 2e-5, rtol=1e-5)
    # The other way around: the root is found on values below both modes again.
    first = lambda a: loss(a, *point[1:])  # short
    found = co.grad(pushed(first))(point[0]), pushed(pushed(first))(point[0])
    np.testing.assert_allclose(found, pushed(co.grad(first))(point[0]), rtol=1e-9)


def test_the_guess_has_no_gradient() -> None:
    """Nor has an argument that is a number or an integer."""
    root = co.custom_root(lambda x, a, n: x**n - a, newton)
    grads = co.grad(lambda x, a: root(x, a, 3), (0, 1))(1.5, 8.0)
    np.testing.assert_allclose(grads, (0.0, 1 / 12), atol=1e-12)
    _, tangent = co.jvp(lambda x: root(x, 8.0, 3), (1.5,), (1.0,))
    assert tangent == 0.0


def test_dtypes_stay() -> None:
    """A root in float32 has derivatives in float32, by arguments in float64 too."""
    root = co.custom_root(lambda x, a: x * a - np.float32(1), lambda g, x: x)
    x = np.full(2, 0.5, np.float32)
    a = np.full(2, 2.0)
    out, pullback = co.vjp(lambda a: root(x, a), a)
    assert out.dtype == np.float32
    np.testing.assert_allclose(pullback(out)[0], -0.25 * out)
    assert pullback(out)[0].dtype == np.float64
    assert co.jvp(lambda a: root(x, a), (a,), (a,))[1].dtype == np.float32


def test_brackets() -> None:
    """The guess may be what the solver takes; a number of Python that it returns counts."""
    optimize = pytest.importorskip("scipy.optimize")
    root = co.custom_root(
        lambda x, a: np.cos(x) - a * x, lambda g, ends: optimize.brentq(g, *ends)
    )
    x = root((0.0, 2.0), 1.0)
    assert type(x) is np.float64
    found = co.grad(lambda a: root((0.0, 2.0), a))(1.0)
    np.testing.assert_allclose(found, -x / (np.sin(x) + 1), rtol=1e-9)


# ---- against JAX ----


@pytest.mark.exhaustive
def test_jax_finds_the_same() -> None:
    """Gradients and second derivatives of a system, by JAX's function of this name."""
    jax = pytest.importorskip("jax")
    jnp, lax = jax.numpy, jax.lax
    a, guess = np.array([0.5, 1.5]), np.array([0.7, 0.9])
    mixed = np.array([[2.0, 0.3], [-0.4, 1.0]])

    def loss(numpy: Any, jacobian: Fn, root: Fn) -> Fn:
        def equations(x: Any, a: Any) -> Any:
            return mixed @ x + numpy.sin(x) * a[::-1] - a

        def solve(g: Fn, x: Any) -> Any:
            for _ in range(8):
                x = x - numpy.linalg.solve(jacobian(g)(x), g(x))
            return x

        return lambda a: numpy.sum(root(equations, solve, a) ** 3)

    ours = loss(np, co.jacfwd, lambda f, solve, a: co.custom_root(f, solve)(guess, a))
    tangents = lambda g, y: jnp.linalg.solve(jax.jacobian(g)(y), y)  # short
    theirs = loss(
        jnp,
        jax.jacfwd,
        lambda f, solve, a: lax.custom_root(
            lambda x: f(x, a), jnp.asarray(guess), solve, tangents
        ),
    )
    with jax.enable_x64(True):
        want = [np.asarray(f(theirs)(a)) for f in (jax.grad, jax.hessian)]
    np.testing.assert_allclose(co.grad(ours)(a), want[0], rtol=1e-9)
    np.testing.assert_allclose(co.hessian(ours)(a), want[1], rtol=1e-9)


# ---- errors ----


def test_errors() -> None:
    """Raise errors that say what to do for what has no right derivative."""
    stays = lambda g, x: x  # short
    x = np.ones(2)
    of_one = co.custom_root(lambda x, a: np.sum(x) * a, stays)
    flat = co.custom_root(lambda x, a: 0 * x * a, stays)
    other = co.custom_fixed_point(lambda x, a: [x * a], stays)
    whole = co.custom_root(lambda x, a: x - a, stays)
    for fn, guess, match in (
        (of_one, x, r"returned f64\[\] for the unknowns f64\[2\]"),
        (flat, x, "singular at the root"),
        (other, x, "nested alike"),
        (whole, np.ones(2, int), "must be real floats"),
        (whole, 1j * x, "must be real floats"),
        (whole, "a", "must be real floats"),
        (whole, None, "the solver returned None, must be"),
    ):
        with pytest.raises(co.GradientError, match=match):
            co.jacrev(fn, 1)(guess, 2.0)
        with pytest.raises(co.GradientError, match=match):
            co.jvp(lambda a: fn(guess, a), (2.0,), (1.0,))  # noqa: B023  # called here
    with pytest.raises(co.GradientError, match="the solver returned None"):
        whole(None, 2.0)
    for make in (co.custom_root, co.custom_fixed_point):
        with pytest.raises(co.ArgumentError):
            make(2, stays)  # type: ignore[arg-type, operator]  # on purpose
        with pytest.raises(co.ArgumentError):
            make(stays, stays, 2)  # type: ignore[arg-type]  # on purpose


def test_values_that_are_not_arguments() -> None:
    """They are named, because the rules would lose their gradients."""

    def loss(a: Any, b: Any) -> Any:
        return co.custom_root(lambda x, a: x**3 - a - b, newton)(1.0, a)

    with pytest.raises(co.GradientError, match="'b'"):
        co.grad(loss, (0, 1))(7.0, 1.0)


def test_a_value_that_is_not_an_argument() -> None:
    """A solver that only compares would lose it: it is refused, an argument is not."""

    def bisected(g: Any, guess: Any) -> Any:
        low, high = 0.0, 10.0
        for _ in range(60):
            middle = (low + high) / 2.0
            low, high = (low, middle) if g(middle) > 0 else (middle, high)
        return low

    def closed(a: Any) -> Any:
        return co.custom_root(lambda x: x * x - a, bisected)(1.0)

    for run in (lambda: co.grad(closed)(4.0), lambda: co.jvp(closed, (4.0,), (1.0,))):
        with pytest.raises(co.GradientError, match="uses 'a', a value of") as caught:
            run()
        assert caught.value.do == "pass 'a' as an argument"
    root = co.custom_root(lambda x, a: x * x - a, bisected)
    np.testing.assert_allclose(co.grad(lambda a: root(1.0, a))(4.0), 0.25)
    with pytest.raises(co.GradientError, match=r"custom_fixed_point::\S+ uses 'a'"):
        co.grad(lambda a: co.custom_fixed_point(lambda x: x * a, lambda g, x: x)(1.0))(
            4.0
        )
