"""custom_vjp and custom_jvp: arguments, results, batches, threads and errors."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co

RNG = np.random.default_rng(7)
X, Y = RNG.normal(size=(2, 3))
ROWS = RNG.normal(size=(4, 3))


# ---- a function of trees: twice the gradient of x y in p["x"] and p["y"] ----


@co.custom_vjp
def product(p: Any, n: int, name: str) -> Any:
    return {"xy": p["x"] * p["y"] * n, "name": name}


def product_fwd(p: Any, n: int, name: str) -> Any:
    assert type(n) is int
    return product(p, n, name), (p, {"n": n, "why": "kept"})


def product_bwd(residuals: Any, g: Any) -> Any:
    p, kept = residuals
    assert kept["why"] == "kept"
    assert g["name"] is None
    scaled = 2 * g["xy"] * kept["n"]
    return {"x": scaled * p["y"], "y": scaled * p["x"]}, None, None


product.defvjp(product_fwd, product_bwd)


@co.custom_jvp
def product_jvp(p: Any, n: int, name: str) -> Any:
    return {"xy": p["x"] * p["y"] * n, "name": name}


@product_jvp.defjvp
def _product_jvp(primals: Any, tangents: Any) -> Any:
    p, n, name = primals
    t, t_n, t_name = tangents
    assert t_name is None
    moved = 2 * n * (t["x"] * p["y"] + p["x"] * t["y"]) + p["x"] * p["y"] * t_n
    return product_jvp(p, n, name), {"xy": moved, "name": None}


@pytest.mark.parametrize("fn", [product, product_jvp], ids=["vjp", "jvp"])
def test_trees(fn: Any) -> None:
    """Arguments and results are trees; values that are not arrays pass through."""

    def loss(x: Any, y: Any) -> Any:
        out = fn({"x": x, "y": y}, 3, name="p")
        assert out["name"] == "p"
        return np.sum(out["xy"])

    gx, gy = co.grad(loss, (0, 1))(X, Y)
    np.testing.assert_allclose(gx, 6 * Y)
    np.testing.assert_allclose(gy, 6 * X)
    np.testing.assert_allclose(co.grad(loss, 1)(X, Y), 6 * X)
    _, tangent = co.jvp(loss, (X, Y), (Y, X))
    np.testing.assert_allclose(tangent, np.sum(6 * (X * X + Y * Y)))
    assert fn({"x": X, "y": Y}, 3, "p")["xy"] == pytest.approx(3 * X * Y)


@pytest.mark.parametrize("fn", [product, product_jvp], ids=["vjp", "jvp"])
@pytest.mark.parametrize("dims", [(0, None), (None, 0), (0, 0)])
def test_batches(fn: Any, dims: Any) -> None:
    """Rows of a batch, and gradients of what they share: sums over the rows."""
    x = X if dims[0] is None else ROWS
    y = Y if dims[1] is None else ROWS[::-1]

    def rows(x: Any, y: Any) -> Any:
        of_row = co.vmap(lambda x, y: fn({"x": x, "y": y}, 2, "p")["xy"], dims)
        return of_row(x, y)

    np.testing.assert_allclose(rows(x, y), 2 * x * y)
    gx, gy = co.grad(lambda x, y: np.sum(rows(x, y)), (0, 1))(x, y)
    ones = np.ones((4, 3))
    want = 4 * y * ones, 4 * x * ones
    np.testing.assert_allclose(gx, want[0].sum(0) if dims[0] is None else want[0])
    np.testing.assert_allclose(gy, want[1].sum(0) if dims[1] is None else want[1])
    per_row = co.vmap(co.grad(lambda x, y: np.sum(rows_of_one(fn, x, y))), dims)(x, y)
    np.testing.assert_allclose(per_row, want[0])


def rows_of_one(fn: Any, x: Any, y: Any) -> Any:
    return fn({"x": x, "y": y}, 2, "p")["xy"]


def test_output_that_rows_share() -> None:
    """An output that is the same for all rows is counted once for each row."""

    @co.custom_vjp
    def pair(x: Any, w: Any) -> Any:
        return x * w, 2 * w

    pair.defvjp(
        lambda x, w: (pair(x, w), (x, w)),
        lambda r, g: (r[1] * g[0], r[0] * g[0] + 2 * g[1]),
    )

    def loss(w: Any) -> Any:
        first, second = co.vmap(pair, (0, None))(X, w)
        return np.sum(first) + np.sum(second)

    w = np.array(3.0)
    assert co.grad(loss)(w) == pytest.approx(np.sum(X) + 2 * len(X))
    exact = co.grad(
        lambda w: np.sum(co.vmap(lambda x, w: x * w + 2 * w, (0, None))(X, w))
    )
    assert co.grad(loss)(w) == pytest.approx(exact(w))


def test_other_rows_of_the_batch() -> None:
    """A function may use rows of its batch that are not arguments."""

    def of_row(x: Any, y: Any) -> Any:
        scaled = co.custom_jvp(lambda x: x * y)
        scaled.defjvp(lambda p, t: (scaled(*p), t[0] * y))
        return scaled(x)

    np.testing.assert_allclose(co.vmap(of_row)(ROWS, ROWS + 1), ROWS * (ROWS + 1))


def test_chunks_and_out_dims() -> None:
    """Vmap in chunks, with the batch along another axis."""
    fn = co.vmap(lambda x: product({"x": x, "y": x}, 1, "")["xy"], 1, 1, chunk_size=3)
    np.testing.assert_allclose(fn(ROWS.T), ROWS.T**2)


# ---- arguments ----


def test_nondiff_argnums() -> None:
    """Functions among the arguments come first in the rules, and have no gradient."""

    @co.custom_vjp
    def plain(f: Any, x: Any) -> Any:
        return f(x)

    custom = co.custom_vjp(plain.fn, nondiff_argnums=(0,))
    custom.defvjp(lambda f, x: (f(x), x), lambda f, x, g: (10 * f(x) * g,))
    assert co.grad(lambda x: custom(np.exp, x))(np.array(0.0)) == 10.0
    rule = co.custom_jvp(plain.fn, nondiff_argnums=0)
    rule.defjvp(lambda f, p, t: (f(*p), 10 * f(*p) * t[0]))
    assert co.grad(lambda x: rule(np.exp, x))(np.array(0.0)) == 10.0
    assert co.vmap(lambda x: rule(np.exp, x))(np.zeros(2)) == pytest.approx([1.0, 1.0])
    with pytest.raises(co.ArgumentError) as caught:
        co.grad(lambda x: rule(x, x))(np.array(0.0))
    assert caught.value.what == (
        "custom_jvp::plain gets a traced value for argument 0, which is in nondiff_argnums"
    )


def test_methods_defaults_and_keywords() -> None:
    """Methods are bound; keywords and defaults come by position to the rules."""

    class Layer:
        def __init__(self) -> None:
            self.k = 3.0

        @co.custom_vjp
        def scaled(self, x: Any, by: float = 2.0) -> Any:
            return self.k * by * x

        scaled.defvjp(
            lambda self, x, by: (self.k * by * x, (self.k, by)),
            lambda r, g: (None, 100 * r[0] * r[1] * g, None),
        )

    layer = Layer()
    assert co.grad(lambda x: layer.scaled(x))(np.array(1.0)) == 600.0
    assert co.grad(lambda x: layer.scaled(x=x, by=1.0))(np.array(1.0)) == 300.0
    assert layer.scaled(1.0) == 6.0
    only = co.custom_vjp(lambda x, *, k: x * k)
    with pytest.raises(co.ArgumentError, match="has the keyword-only argument 'k'"):
        co.grad(lambda x: only(x, k=2.0))(np.array(1.0))


def test_integers_have_no_tangent() -> None:
    """Arrays of integers have the tangent 0.0, and need no gradient."""

    @co.custom_jvp
    def power(x: Any, n: Any) -> Any:
        return x**n

    power.defjvp(lambda p, t: (power(*p), t[0] * 7 + t[1] * 5))
    assert co.grad(lambda x: power(x, np.array(2)))(np.array(3.0)) == 7.0
    _, pullback = co.vjp(lambda x: (product({"x": x, "y": x}, 1, "")["xy"], 3), X)
    found = co.vmap(power, (None, 0))(np.array(2.0), np.array([1, 2]))
    np.testing.assert_array_equal(found, [2.0, 4.0])
    assert callable(pullback)


def test_results_are_arrays_of_their_own() -> None:
    """A result that is an argument can be written without changing it."""

    @co.custom_vjp
    def same(x: Any) -> Any:
        return x

    same.defvjp(lambda x: (x, None), lambda _, g: (3 * g,))

    def loss(x: Any) -> Any:
        y = same(x)
        y *= 2.0
        return np.sum(y + x)

    value, gradient = co.value_and_grad(loss)(X)
    np.testing.assert_allclose(value, np.sum(3 * X))
    np.testing.assert_allclose(gradient, np.full(3, 7.0))
    rows = co.vmap(same)(ROWS)
    assert not np.shares_memory(rows, ROWS)
    rows += 1.0

    def parts(x: Any) -> Any:
        first, second = co.checkpoint(lambda x: (x[:2], x))(x)
        first *= 2.0
        return first, second

    for first, second in (co.vmap(parts)(ROWS), co.jvp(parts, (X,), (X,))[0]):
        np.testing.assert_allclose(first, 2 * second[..., :2])
        assert not np.shares_memory(second, first)
        second[...] = 1.0


def test_dataclass_as_argument() -> None:
    """Registered dataclasses go in and come out, also of rules."""

    @co.register_dataclass
    @dataclasses.dataclass
    class Point:
        x: Any
        y: Any

    @co.custom_vjp
    def swap(p: Point) -> Point:
        return Point(p.y * 1.0, p.x * 1.0)

    swap.defvjp(lambda p: (swap(p), None), lambda _, g: (Point(5 * g.y, 5 * g.x),))
    found = co.grad(lambda p: np.sum(swap(p).x * 2) + np.sum(swap(p).y))(Point(X, Y))
    np.testing.assert_allclose(found.x, np.full(3, 5.0))
    np.testing.assert_allclose(found.y, np.full(3, 10.0))


def test_complex() -> None:
    """Rules for complex functions follow the convention of vjp: no conjugation."""
    z = X + 1j * Y
    square = co.custom_jvp(lambda z: z * z)
    square.defjvp(lambda p, t: (p[0] * p[0], 2 * p[0] * t[0]))
    _, pullback = co.vjp(square, z)
    np.testing.assert_allclose(pullback(np.full(3, 1j))[0], 2j * z)
    phase = co.custom_jvp(lambda x: np.exp(1j * x))
    phase.defjvp(lambda p, t: (phase(*p), 1j * np.exp(1j * p[0]) * t[0]))
    found = co.grad(lambda x: np.real(np.sum(phase(x))))(X)
    np.testing.assert_allclose(found, -np.sin(X))


def test_variables_and_no_grad() -> None:
    """The rules serve variables; inside no_grad nothing is tracked."""
    v = co.variable(X)
    np.sum(product({"x": v, "y": Y}, 1, "")["xy"]).backward()
    np.testing.assert_allclose(v.grad, 2 * Y)
    with co.no_grad():
        out = product({"x": v, "y": Y}, 1, "")["xy"]
        with co.enable_grad():
            tracked = product({"x": v, "y": Y}, 1, "")["xy"]
    assert type(out) is np.ndarray
    assert isinstance(tracked, co.Tracer)


def test_modes_see_the_operators_inside() -> None:
    """A mode such as autocast acts inside the rules, which stay in use."""
    seen = []

    class Log(co.Mode):
        kind = co.RuleKind("log")

        def process(self, op: Any, args: Any) -> Any:
            seen.append(op.qualname)
            return op.invoke(args)

    with Log():
        found = co.grad(lambda x: np.sum(product({"x": x, "y": Y}, 1, "")["xy"]))(X)
    np.testing.assert_allclose(found, 2 * Y)
    assert "np::sum" in seen


def test_interpreter_of_a_user() -> None:
    """An interpreter of a user sees a call as one operator; rules below it stay."""
    seen = []

    class Count(co.Interpreter):
        kind = co.RuleKind("count")

        def process(self, op: Any, args: Any) -> Any:
            seen.append(op.qualname)
            return self.wrap(op.invoke(self.unwrap(args)))

    def counted(x: Any) -> Any:
        with Count() as count:
            out = np.sum(product({"x": count.wrap(x), "y": Y}, 1, "")["xy"])
            return count.lower(out)

    np.testing.assert_allclose(co.grad(counted)(X), 2 * Y)
    assert seen == ["custom_vjp::product", "np::sum"]


def test_threads() -> None:
    """Threads call one function at once, with their own arguments and rules in use."""
    found: dict[int, Any] = {}

    def work(n: int) -> None:
        def loss(x: Any) -> Any:
            return np.sum(product({"x": x, "y": Y * n}, 1, "")["xy"])

        found[n] = [co.grad(loss)(X) for _ in range(20)]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in range(4):
        np.testing.assert_allclose(found[n], [2 * Y * n] * 20)


def test_signature_is_kept() -> None:
    """Name, docstring and signature are those of the function."""

    @co.custom_jvp
    def documented(x: Any, n: int = 2) -> Any:
        """Say something."""
        return x

    wrapped: Any = documented
    assert wrapped.__name__ == "documented"
    assert wrapped.__doc__ == "Say something."
    assert wrapped.nondiff_argnums == ()


_KEPT = {"float": 2.0, "int": 2, "scalar": np.float64(2.0), "array": np.array(2.0)}
_NESTS: dict[str, Callable[[Any], Any]] = {
    "alone": lambda v: v,
    "tuple": lambda v: (v,),
    "dict": lambda v: {"k": [v]},
}


@pytest.mark.parametrize("kept", _KEPT.values(), ids=_KEPT)
@pytest.mark.parametrize("nest", _NESTS.values(), ids=_NESTS)
def test_residuals_of_any_kind(kept: Any, nest: Callable[[Any], Any]) -> None:
    """A lone number or array is as good as one in a tree, and so is None."""

    @co.custom_vjp
    def doubled(x: Any) -> Any:
        return 2.0 * x

    def bwd(residuals: Any, g: Any) -> Any:
        if isinstance(residuals, dict):
            residuals = residuals["k"]
        if isinstance(residuals, tuple | list):
            (residuals,) = residuals
        return (residuals * g,)

    doubled.defvjp(lambda x: (2.0 * x, nest(kept)), bwd)
    x = np.array([1.0, 3.0])
    step = co.grad(lambda x: np.sum(doubled(doubled(x))))
    np.testing.assert_array_equal(step(x), [4.0, 4.0])
    np.testing.assert_array_equal(co.make_fx(step)(x)(x), [4.0, 4.0])
    doubled.defvjp(lambda x: (2.0 * x, None), lambda _, g: (g + g,))
    np.testing.assert_array_equal(step(x), [4.0, 4.0])


# ---- rules for both modes ----


@co.custom_vjp
def square(x: Any, y: Any) -> Any:
    return {"all": x * x * y, "count": 2}


# Wrong by a factor of 3 in reverse mode and of 5 in forward mode, to tell them apart.
square.defvjp(
    lambda x, y: (square(x, y), (x, y)),
    lambda saved, g: (6 * saved[0] * saved[1] * g["all"], None),
)


@square.defjvp
def _square_jvp(primals: Any, tangents: Any) -> Any:
    (x, y), (t, _) = primals, tangents
    return square(x, y), {"all": 10 * x * y * t, "count": None}


def squared(x: Any) -> Any:
    return square(x, 1.0)["all"]


def test_each_mode_has_its_rule() -> None:
    """Each mode uses its own rule: alone, in the other one, and for rows of a batch."""
    total = lambda x: np.sum(squared(x))  # short
    pushed = lambda x: co.jvp(squared, (x,), (np.ones_like(x),))[1]
    forms: list[tuple[Any, Any]] = [
        (co.grad(total), 6 * X),
        (pushed, 10 * X),
        (co.jacfwd(squared), 10 * np.diag(X)),
        (co.jacrev(squared), 6 * np.diag(X)),
        (lambda x: co.jvp(co.grad(total), (x,), (x,))[1], 6 * X),
        (co.grad(lambda x: np.sum(pushed(x))), 10 * np.ones(3)),
        (lambda x: co.linearize(squared, x)[1](x), 6 * X * X),  # transposes twice
        (co.compile(pushed), 10 * X),
        (co.make_fx(pushed)(X), 10 * X),
    ]
    for fn, want in forms:
        np.testing.assert_allclose(fn(X), want, rtol=1e-12)
    for fn, factor in ((co.grad(total), 6), (pushed, 10)):
        np.testing.assert_allclose(co.vmap(fn)(ROWS), factor * ROWS, rtol=1e-12)


def test_only_the_rule_of_the_other_mode() -> None:
    """A gradient does not transpose the rule for tangents: it needs its own."""
    fn = co.custom_vjp(lambda x: x * x)
    fn.defjvp(lambda primals, tangents: (fn(*primals), 7.0 * tangents[0]))
    np.testing.assert_allclose(co.jvp(fn, (X,), (X,))[1], 7 * X)
    with pytest.raises(co.MissingRuleError, match=r"defvjp\(fwd, bwd\)"):
        co.jacrev(fn)(X)


def test_both_rules_in_a_graph_file(tmp_path: Path) -> None:
    """A file holds the rules of both modes."""
    co.make_fx(squared)(X).save(tmp_path / "f.graph")
    loaded = co.load_graph(tmp_path / "f.graph")
    np.testing.assert_allclose(co.jacrev(loaded)(Y), 6 * np.diag(Y), rtol=1e-12)
    np.testing.assert_allclose(co.jacfwd(loaded)(Y), 10 * np.diag(Y), rtol=1e-12)
    rows = co.vmap(lambda x: co.jvp(loaded, (x,), (x,))[1])(ROWS)
    np.testing.assert_allclose(rows, 10 * ROWS * ROWS, rtol=1e-12)


# What `fwd` saves -> how `bwd` reads the cosine.
SAVED: dict[str, tuple[Any, Any]] = {
    "an array": (lambda cos: cos, lambda rest: rest),
    "a tuple": (lambda cos: (cos, cos), lambda rest: rest[1]),
    "a dict": (lambda cos: {"cos": cos}, lambda rest: rest["cos"]),
    "arrays beside others": (lambda cos: ("cos", cos), lambda rest: rest[1]),
}


@pytest.mark.parametrize("name", SAVED)
def test_fwd_runs_once_whatever_it_saves(name: str) -> None:
    """One tracked array beside a plain one, as a first or as a second argument."""
    save, read = SAVED[name]
    count = 0

    def fwd(x: Any, y: Any) -> Any:
        nonlocal count
        count += 1
        return np.sin(x + y), save(np.cos(x + y))

    sine = co.custom_vjp(lambda x, y: np.sin(x + y))
    sine.defvjp(fwd, lambda rest, g: (g * read(rest), g * read(rest)))
    x, y = np.array([0.1, 0.2]), np.array([0.3, 0.5])
    first = co.grad(lambda x: np.sum(sine(x, y)))(x)
    second = co.grad(lambda y: np.sum(sine(x, y)))(y)
    assert count == 2
    np.testing.assert_array_equal(first, np.cos(x + y))
    np.testing.assert_array_equal(second, np.cos(x + y))


def test_a_result_that_is_an_array_from_outside_is_copied() -> None:
    """`fwd` knows the array that the gradient is taken at, and returns it."""
    x = np.array([1.0, 2.0])
    same = co.custom_vjp(lambda _: x)
    same.defvjp(lambda _: (x, None), lambda _, g: (3.0 * g,))

    def loss(v: Any) -> Any:
        y = same(v)
        y += 1.0
        return np.sum(y * y)

    np.testing.assert_array_equal(co.grad(loss)(x), 6.0 * (x + 1.0))
    np.testing.assert_array_equal(x, [1.0, 2.0])
