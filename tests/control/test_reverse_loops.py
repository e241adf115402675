"""Reverse mode of loops in captures: the number of steps is known when the graph runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.control.programs import gradient

X = np.array([0.3, 1.2, -0.7])
SCALES = (1.0, 3.0, 0.1, -1.0)


def below(x: Any, limit: float) -> Any:
    return (x.real if np.iscomplexobj(x) else x) < limit


def grown(x: Any) -> Any:
    """2 to 5 steps; none for large `x`."""
    return co.while_loop(
        lambda c: np.sum(c) < 30, lambda c: c * c + np.sin(x) + 1, 2 * x
    )[1]


def plain_grown(x: Any) -> Any:
    c = 2 * x
    while below(np.sum(c), 30):
        c = c * c + np.sin(x) + 1
    return c[1]


def nested(x: Any) -> Any:
    """A scan whose steps have loops of different lengths."""

    def step(total: Any, row: Any) -> Any:
        found = co.while_loop(
            lambda c: c < 3 * row, lambda c: c * c + row * row + 0.5, total
        )
        return np.sin(found) + total, None

    return co.scan(step, 0 * np.sum(x), x)[0]


def plain_nested(x: Any) -> Any:
    total = 0 * np.sum(x)
    for row in x:
        c = total
        while below(c - 3 * row, 0):
            c = c * c + row * row + 0.5
        total = np.sin(c) + total
    return total


def masked(x: Any) -> Any:
    """A scan whose steps have arrays of different sizes."""

    def step(total: Any, row: Any) -> Any:
        chosen = x[x > row]
        return np.sin(total + np.sum(chosen * chosen)), None

    return co.scan(step, 0 * np.sum(x), x)[0]


def plain_masked(x: Any) -> Any:
    total = 0 * np.sum(x)
    for row in x:
        total = np.sin(total + np.sum(x[x.real > row.real] ** 2))
    return total


def counted(x: Any) -> Any:
    """A range whose limit is known when the graph runs."""
    steps = np.floor(np.abs(x[0]) * 7).astype(int)
    return np.sum(co.fori_loop(0, steps, lambda i, c: np.sin(c + 0.1 * i * x), x))


def plain_counted(x: Any) -> Any:
    c = x
    for i in range(int(np.floor(np.abs(x[0].real) * 7))):
        c = np.sin(c + 0.1 * i * x)
    return np.sum(c)


def replaced(x: Any) -> Any:
    """A body that forgets its carry: only without steps is there a gradient."""
    return co.while_loop(lambda c: c < 0, lambda c: np.array(1.0), np.sum(x))


def plain_replaced(x: Any) -> Any:
    return np.array(1.0) if np.sum(x.real) < 0 else np.sum(x)


FUNCTIONS = [
    (grown, plain_grown),
    (nested, plain_nested),
    (masked, plain_masked),
    (counted, plain_counted),
    (replaced, plain_replaced),
]
NAMES = [fn.__name__ for fn, _ in FUNCTIONS]


def cases() -> Any:
    return pytest.mark.parametrize(("fn", "plain"), FUNCTIONS, ids=NAMES)


@cases()
@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_gradients_in_a_capture(fn: Any, plain: Any, mode: Any) -> None:
    """One graph has the gradient for any number of steps."""
    graph = co.make_fx(co.grad(fn), mode)(X)
    graph.graph.lint()
    for scale in SCALES:
        np.testing.assert_allclose(graph(scale * X), gradient(plain, scale * X))


@cases()
def test_second_derivatives(fn: Any, plain: Any) -> None:
    """Forward over reverse, reverse over reverse, and a gradient of a captured one."""
    of_sum = lambda x: np.sum(co.grad(fn)(x) ** 2)  # short
    graphs = [co.make_fx(form)(X) for form in (co.hessian(fn), co.grad(of_sum))]
    inner = co.make_fx(co.grad(fn))(X)
    for scale in SCALES[:3]:
        x, step = scale * X, 1e-6
        moves = [gradient(plain, x + s * d) for d in np.eye(3) for s in (step, -step)]
        pairs = zip(moves[::2], moves[1::2], strict=True)
        want = np.array([(up - down) / (2 * step) for up, down in pairs])
        np.testing.assert_allclose(graphs[0](x), want, rtol=1e-4, atol=1e-4)
        product = 2 * want @ gradient(plain, x)
        np.testing.assert_allclose(graphs[1](x), product, rtol=1e-4, atol=1e-4)
        found = co.grad(lambda x: np.sum(inner(x) ** 2))(x)
        np.testing.assert_allclose(found, product, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fn", [grown, nested, counted, replaced])
@pytest.mark.parametrize("mode", ["real", "symbolic"])
def test_rows_with_different_numbers_of_steps(fn: Any, mode: Any) -> None:
    """A batch of gradients in a graph, and a batch of a graph."""
    plain = dict(FUNCTIONS)[fn]
    rows = np.stack([scale * X for scale in SCALES])
    want = [gradient(plain, row) for row in rows]
    batched = co.make_fx(co.vmap(co.grad(fn)), mode)(rows[:2] * 0)
    np.testing.assert_allclose(batched(rows[:2]), want[:2])
    np.testing.assert_allclose(batched(rows[2:]), want[2:])
    one = co.make_fx(co.grad(fn), mode)(X)
    np.testing.assert_allclose(co.vmap(one)(rows), want)
    total = lambda rows: np.sum(co.vmap(fn)(rows))  # short
    np.testing.assert_allclose(co.make_fx(co.grad(total), mode)(rows)(rows), want)


def test_rows_that_are_done_do_not_fail() -> None:
    """What a step saves of a row that is done cannot divide by zero."""

    def fn(x: Any) -> Any:
        return co.while_loop(lambda c: c > 1, lambda c: np.log(c) / (c - 1), x)

    x = np.array([0.0, 1.0, 40.0, 3.0])
    want = [1.0, 1.0, *(gradient(fn_plain, x[i : i + 1])[0] for i in (2, 3))]
    graph = co.make_fx(co.vmap(co.grad(fn)), "fake")(x)
    with np.errstate(all="raise"):
        np.testing.assert_allclose(graph(x), want)


def fn_plain(x: Any) -> Any:
    c = x[0]
    while c.real > 1:
        c = np.log(c) / (c - 1)
    return c


def test_draws() -> None:
    """The backward graph has what the forward loop drew."""

    def fn(x: Any, rng: Any) -> Any:
        body = lambda c: c * c * (1 + rng.random(3)) + x * x + 1  # short
        return np.sum(co.while_loop(lambda c: np.sum(c) < 50, body, x))

    graph = co.make_fx(co.grad(fn))(X, np.random.default_rng(0))
    for scale in SCALES:
        found = graph(scale * X, np.random.default_rng(1))
        rng = np.random.default_rng(1)
        c = x = scale * X.astype(complex)
        drawn: list[Any] = []
        while np.sum(c).real < 50:
            drawn.append(rng.random(3))
            c = c * c * (1 + drawn[-1]) + x * x + 1

        def again(x: Any, drawn: Any = drawn) -> Any:
            c = x
            for factor in drawn:
                c = c * c * (1 + factor) + x * x + 1
            return np.sum(c)

        np.testing.assert_allclose(found, gradient(again, scale * X))


def test_draws_of_different_sizes() -> None:
    """What cannot be drawn again, and has another size in each step, is an error."""

    def fn(x: Any, rng: Any) -> Any:
        def step(total: Any, row: Any) -> Any:
            body = lambda c: c * c * (1 + rng.random(size=())) + 0.5  # short
            return co.while_loop(lambda c: c < 3 * row, body, total), None

        return co.scan(step, 0 * np.sum(x), x)[0]

    with pytest.raises(co.GradientError) as caught:
        co.make_fx(co.grad(fn))(X, np.random.default_rng(0))
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        "control::scan has no reverse mode in a captured graph: a step draws"
        " FakeArray(f64[u1], device='cpu'), whose size may differ between steps, and the"
        " gradient cannot draw it again"
    )
    assert lines[1].startswith("  the body is at ")
    assert lines[2] == (
        "  do: draw an array of a fixed size in each step; or take the gradient of the"
        " graph: grad(make_fx(f)(*args))"
    )
    graph = co.make_fx(fn)(X, np.random.default_rng(0))
    found = co.grad(graph)(X, np.random.default_rng(1))
    np.testing.assert_allclose(found, co.grad(fn)(X, np.random.default_rng(1)))


def test_what_has_no_gradient_is_a_plain_loop() -> None:
    """A loop on ints is not recorded."""

    def fn(x: Any) -> Any:
        n = co.while_loop(lambda c: c[1] < 9, lambda c: (c[0] + 1, c[1] * 2), (0, 1))
        return np.sum(x * n[0] * co.while_loop(lambda i: i < 9, lambda i: i + 4, 0))

    graph = co.make_fx(co.grad(fn))(X)
    names = [node.target.qualname for node in graph.graph.nodes if node.op == "call"]
    assert "control::while_scan" not in names
    np.testing.assert_allclose(graph(X), [48.0, 48.0, 48.0])


def test_files_and_text(tmp_path: Path) -> None:
    """Such a graph is saved, loaded, and printed as a program that runs."""
    graph = co.make_fx(co.grad(grown), "symbolic", sizes={"x": (3,)})(X)
    graph.save(tmp_path / "graph.zip")
    names: dict[str, Any] = {}
    exec(graph.print_readable(print_output=False), names)
    for scale in SCALES:
        want = gradient(plain_grown, scale * X)
        again = co.load_graph(tmp_path / "graph.zip")
        np.testing.assert_allclose(again(scale * X), want)
        np.testing.assert_allclose(names["grown"](scale * X), want)


def test_zero_steps_of_a_scan() -> None:
    """Without rows the carry is the first one, and so is its gradient."""

    def fn(x: Any, rows: Any) -> Any:
        return np.sum(co.scan(lambda c, r: (np.ones(3) * r, None), x, rows)[0])

    graph = co.make_fx(co.grad(fn), sizes={"rows": ("n",)})(X, np.ones(2))
    np.testing.assert_array_equal(graph(X, np.ones(0)), np.ones(3))
    np.testing.assert_array_equal(graph(X, np.ones(4)), np.zeros(3))


def _wide(a: Any) -> Any:
    return np.fft.hfft(a)


@pytest.mark.parametrize(
    "fn",
    [
        lambda a: co.scan(lambda c, r: (c * np.sum(r), _wide(r)), 1.0, a[None])[1][0],
        lambda a: co.while_loop(
            lambda c: c[0] < 3,
            lambda c: (c[0] + 1, c[1] * _wide(c[2]), np.sin(c[2]), c[3] * c[3]),
            (0, _wide(a), a, a),
        )[1],
        lambda a: co.cond(np.sum(a) > 0, lambda a: _wide(a) * a[0, 0], _wide, a),
    ],
    ids=["scan", "while_loop", "cond"],
)
def test_gradients_of_symbolic_graphs_inside_of_other_captures(fn: Any) -> None:
    """A graph with sizes of its own has gradients where it runs in another capture."""
    a = np.cos(np.arange(9.0)).reshape(3, 3)

    def loss(a: Any) -> Any:
        return np.sum(np.sin(fn(a)))

    def captured(a: Any) -> Any:
        return co.make_fx(loss, "symbolic")(a)(a)

    want = co.grad(loss)(a)
    steps = [
        (loss(a + h) - loss(a - h)) / 2e-6 for h in 1e-6 * np.eye(9).reshape(9, 3, 3)
    ]
    np.testing.assert_allclose(want.ravel(), steps, rtol=1e-6, atol=1e-7)
    slope = co.grad(captured)
    np.testing.assert_allclose(co.make_fx(slope)(a)(a), want)
    np.testing.assert_allclose(co.compile(slope)(a), want)
    rows = co.compile(co.vmap(slope))(np.stack([a, -a]))
    np.testing.assert_allclose(rows[0], want)
