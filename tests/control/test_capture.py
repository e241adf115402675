"""Graphs with control flow: one node each, values from outside, writes, draws, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.array([0.3, 1.2, -0.7])


@co.custom_op("control_tests::grow_", mutates_args=("x",))
def grow_(x: np.ndarray, by: float) -> None:
    x += by


grow_.register_fake(lambda x, by: None)


OUTSIDE = (
    "a value of cond(write) is written into an array of make_fx(fn), which is outside"
    " of it"
)


def calls(graph: Any) -> list[str]:
    """Names of the operators of a graph, without those of NumPy."""
    named = [node.target.qualname for node in graph.graph.nodes if node.op == "call"]
    return [name for name in named if not name.startswith("np::")]


def branch(x: Any) -> Any:
    return co.cond(np.sum(x) > 0, lambda x: x * np.sin(x), lambda x: x**3, x)


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (branch, "cond"),
        (
            lambda x: co.while_loop(lambda c: np.sum(c) < 9, lambda c: c + 1, x),
            "while_loop",
        ),
        (lambda x: co.scan(lambda c, r: (c + r, c), 0.0, x), "scan"),
        (lambda x: co.map(np.sin, x), "scan"),
        (lambda x: co.fori_loop(0, 3, lambda i, c: c * i, x), "scan"),
        (
            lambda x: co.fori_loop(0, np.argmax(x), lambda i, c: c + i, x),
            "while_loop",
        ),
    ],
    ids=["cond", "while_loop", "scan", "map", "fori_loop", "traced limits"],
)
def test_one_node(fn: Any, name: str) -> None:
    """Each is one call of an operator, traced again as that, and runs for other values."""
    graph = co.make_fx(fn)(X)
    graph.graph.lint()
    assert calls(graph) == [f"control::{name}"]
    assert calls(co.make_fx(graph)(X)) == [f"control::{name}"]
    for x in (X, -X, X * 0):
        for a, b in zip(co.tree.leaves(graph(x)), co.tree.leaves(fn(x)), strict=True):
            np.testing.assert_allclose(a, b)
            assert np.asarray(a).dtype == np.asarray(b).dtype


def test_both_branches_are_in_the_graph() -> None:
    """The text of a graph has the functions of its control flow."""
    text = co.make_fx(branch)(X).print_readable(print_output=False)
    assert "def true_fn(x:" in text
    assert "def false_fn(x:" in text
    assert "cond.default(greater, [x], true_fn_graph, false_fn_graph)" in text


def test_the_text_of_a_graph_runs() -> None:
    """Its functions stand for the graphs inside."""

    def fn(x: Any) -> Any:
        def step(c: Any, r: Any) -> Any:
            return co.cond(c > 0, lambda c: c - r, lambda c: c + r * r, c), c

        return co.scan(step, np.float64(0.0), x)

    names: dict[str, Any] = {}
    exec(co.make_fx(fn)(X).print_readable(print_output=False), names)
    for x in (X, -X):
        found, want = names["fn"](x), fn(x)
        np.testing.assert_array_equal(found[0], want[0])
        np.testing.assert_array_equal(found[1], want[1])


def test_decompose() -> None:
    """A scan becomes its steps, a cond both branches; a while_loop stays."""

    def fn(x: Any) -> Any:
        step = lambda c, r: (branch(c * r), np.sum(c))  # short
        return co.scan(step, x, x)

    graph = co.make_fx(fn)(X)
    steps = co.decompose(graph, [co.ops.control.scan.default])
    assert calls(steps) == ["control::unstack"] + ["control::cond"] * 3
    plain = co.decompose(steps, [co.ops.control.cond.default])
    assert calls(plain) == ["control::unstack"]
    for x in (X, -X):
        for module in (steps, plain):
            pairs = zip(module(x), fn(x), strict=True)
            for found, want in pairs:
                np.testing.assert_allclose(found, want)
    loop = co.make_fx(lambda x: co.while_loop(lambda c: np.sum(c) < 9, np.exp, x))(X)
    with pytest.raises(co.DataDependentError, match=r"bool\(\) of GraphTracer bool"):
        co.decompose(loop, [co.ops.control.while_loop.default])


def test_a_gradient_without_rows() -> None:
    """The backward scan needs no row of the forward scan, but has its length."""

    def fn(x: Any) -> Any:
        first = co.scan(lambda c, _: (2 * c, None), np.sum(x), x)[0]
        return first + np.sum(co.grad(lambda x: np.sum(branch(x) ** 2))(x))

    graph = co.make_fx(co.grad(fn))(X)
    np.testing.assert_allclose(graph(-X), co.grad(fn)(-X))


def test_a_known_condition_is_a_python_branch() -> None:
    """What does not depend on the inputs is not in the graph."""
    graph = co.make_fx(lambda x: co.cond(X[1] > 0, np.sin, np.cos, x))(X)
    assert calls(graph) == []
    np.testing.assert_array_equal(graph(-X), np.sin(-X))


def test_values_from_outside() -> None:
    """Traced values of all levels become operands; plain arrays stay constants."""
    table = np.array([2.0, 3.0, 5.0])

    def fn(x: Any, scale: Any) -> Any:
        y = np.exp(x)

        def step(c: Any, r: Any) -> Any:
            inner = co.cond(r > 0, lambda r: r * np.sum(y), lambda r: scale * r, r)
            return c + inner * table, c

        return np.sum(co.scan(step, x * 0, x)[0])

    def plain(x: Any, scale: Any) -> Any:
        c = x * 0
        for r in x:
            c = c + (r * np.sum(np.exp(x)) if r.real > 0 else scale * r) * table
        return np.sum(c)

    scale = np.array(0.7)
    graph = co.make_fx(fn)(X, scale)
    np.testing.assert_allclose(graph(-X, scale), plain(-X, 0.7))
    want = np.array([plain(-X + 1e-30j * d, 0.7).imag / 1e-30 for d in np.eye(3)])
    of_scale = plain(-X, 0.7 + 1e-30j).imag / 1e-30
    for form in (
        co.grad(graph, argnums=(0, 1)),
        co.make_fx(co.grad(fn, argnums=(0, 1)))(X, scale),
        co.make_fx(co.grad(graph, argnums=(0, 1)))(X, scale),
    ):
        of_x, other = form(-X, scale)
        np.testing.assert_allclose(of_x, want)
        np.testing.assert_allclose(other, of_scale)
    outer = co.grad(lambda s: co.make_fx(lambda x: fn(x, s))(X)(-X))
    np.testing.assert_allclose(outer(scale), of_scale)
    rows = co.vmap(lambda s: co.make_fx(lambda x: fn(x, s))(X)(-X))(
        np.array([0.7, 2.0])
    )
    np.testing.assert_allclose(rows, [plain(-X, 0.7), plain(-X, 2.0)])


def test_batches_with_rows_that_fail() -> None:
    """In a captured batch too, a branch and a body see safe values in other rows."""

    def one(x: Any, i: Any) -> Any:
        y = co.cond(
            x > 0,
            lambda x, i: np.log(x) + co.getitem(np.array([1.0, 2.0]), i),
            lambda x, i: x / 2,
            x,
            i,
        )
        return co.while_loop(lambda y: y > 0.5, np.log, y)

    x, i = np.array([0.0, 2.0, -1.0]), np.array([7, 1, 9])
    batched = co.vmap(one)
    with np.errstate(all="raise"):
        want = batched(x, i)
        np.testing.assert_allclose(co.make_fx(batched, "fake")(x, i)(x, i), want)
        push = lambda x: co.jvp(lambda x: batched(x, i), (x,), (x,))[1]
        np.testing.assert_allclose(co.make_fx(push, "fake")(x)(x), push(x))

    def rooted(x: Any) -> Any:
        return co.cond(x > 0, np.sqrt, lambda x: x / 2, x)

    of_rows = co.vmap(co.grad(rooted))
    with np.errstate(all="raise"):
        found = co.make_fx(of_rows, "fake")(x)(np.array([0.0, 4.0, -1.0]))
    np.testing.assert_allclose(found, [0.5, 0.25, 0.5])


@pytest.mark.parametrize("mode", ["real", "symbolic"])
def test_batches_in_which_no_row_takes_a_branch(mode: Any) -> None:
    """The branch that no row takes does not run, and neither does its gradient."""
    a = np.array([[[2.0, 1.0], [0.0, 4.0]], [[1.0, 3.0], [1.0, 1.0]]])

    def one(a: Any) -> Any:
        def inverse(a: Any) -> Any:
            return np.sum(np.linalg.inv(a))

        def product(a: Any) -> Any:
            return np.prod(a) / a[0, 0]

        return co.cond(np.trace(a) < 100.0, inverse, product, a)

    graph: Any = co.make_fx(co.vmap(co.grad(one)), mode)(a)
    singular = np.ones((2, 2, 2)) * 60.0
    with np.errstate(all="raise"):
        back = np.swapaxes(np.linalg.inv(a), 1, 2)
        want = -np.einsum("bij,bkl->bil", back, back)
        np.testing.assert_allclose(graph(a), want)
        want = np.full((2, 2, 2), 60.0**2)
        want[:, 0, 0] = 0.0
        np.testing.assert_allclose(graph(singular), want)
    given = co.make_fx(co.vmap(lambda p: co.cond(p, one, lambda a: 0.0, singular[0])))
    np.testing.assert_allclose(given(np.array([1, 0]))(np.array([0, 0])), [0.0, 0.0])

    known = lambda a: co.vmap(lambda p: co.cond(p, one, np.trace, a))(np.zeros(2, bool))
    np.testing.assert_allclose(co.make_fx(known, mode)(a[0])(singular[0]), [120.0] * 2)


def test_batches_of_branches_with_loops() -> None:
    """Loops of unknown lengths in a branch, in the batch of a scan, have a tangent."""

    def powers(x: Any) -> Any:
        step = lambda c: (c[0] + 1, c[1] * x)
        return co.while_loop(lambda c: c[0] < 3, step, (0, 1.0))[1]

    def branch(x: Any) -> Any:
        return co.cond(x > 0, co.grad(powers), lambda x: 2 * co.grad(powers)(x), x)

    def total(x: Any) -> Any:
        return co.scan(lambda c, r: (c, branch(r)), 0.0, np.stack([x, 2 * x]))[1]

    rows = co.compile(co.vmap(lambda x: co.jvp(total, (x,), (1.0,))[1]))
    want = [[6.0, 24.0], [12.0, 48.0]]
    np.testing.assert_allclose(
        rows(np.array([1.0, -1.0])), np.multiply(want, [[1], [-1]])
    )


@pytest.mark.parametrize("mode", ["real", "fake"])
def test_results_of_different_layouts(
    mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of axes in memory may depend on the branch, and on the steps taken."""
    monkeypatch.setattr(co.config, "checks", "always")

    def turned(x: Any) -> Any:
        return co.cond(np.sum(x) > 0, lambda x: x.T * 2, lambda x: x.T.copy(), x)

    def repeated(x: Any, n: Any) -> Any:
        step = lambda c: (c[0] + 1, c[1].copy() * 2)
        return co.while_loop(lambda c: c[0] < n, step, (0, x))[1]

    def loss(x: Any) -> Any:
        fn = lambda x: np.abs(np.cumprod(x, axis=0))
        return np.sum(co.cond(np.sum(x) > 0, fn, lambda x: 2 * fn(x), x) ** 2)

    x = np.array([[1.0, 2.0, 3.0], [0.5, 4.0, -1.0]])
    graph: Any = co.make_fx(turned, mode)(x)
    for sign in (1, -1):
        assert graph(sign * x).tolist() == turned(sign * x).tolist()
        assert graph(sign * x).strides == turned(sign * x).strides
    tall = np.asfortranarray(x)
    loop: Any = co.make_fx(repeated, mode)(tall, np.array(0))
    for n in (0, 2):
        assert loop(tall, np.array(n)).tolist() == (x * 2**n).tolist()
    slope: Any = co.make_fx(co.grad(loss), mode)(x)
    first, last = 2 * x[0] * (1 + x[1] ** 2), 2 * x[0] ** 2 * x[1]
    np.testing.assert_allclose(slope(x), [first, last])


def test_writes_in_branches() -> None:
    """A branch that writes an operand writes it, and no other one does."""

    def doubled(x: Any) -> Any:
        x *= 2
        return np.sum(x)

    def grown(x: Any) -> Any:
        grow_(x, 1.0)
        return np.sum(x)

    for write in (doubled, grown):

        def fn(x: Any, write: Any = write) -> Any:
            y = x + 0
            return co.cond(np.sum(x) > 0, write, lambda x: np.sum(x) * 0, y), y

        graph = co.make_fx(fn)(X)
        for x in (X, -X):
            before = x.copy()
            found, want = graph(x), fn(x.copy())
            np.testing.assert_allclose(found[0], want[0])
            np.testing.assert_allclose(found[1], want[1])
            np.testing.assert_array_equal(x, before)


def test_writes_in_bodies() -> None:
    """A body may write its carry; the first carry stays."""

    def body(c: Any, r: Any) -> Any:
        c += r
        c[0] = 5.0
        grow_(c, 0.5)
        return c, c * 2

    def fn(x: Any) -> Any:
        return co.scan(body, x, np.ones((3, 3)))

    before = X.copy()
    want, found = fn(X), co.make_fx(fn)(X)(X)
    np.testing.assert_allclose(found[0], want[0])
    np.testing.assert_allclose(found[1], want[1])
    np.testing.assert_array_equal(X, before)


def test_writes_to_what_is_outside() -> None:
    """A branch cannot write a value from outside: the error says what to do."""

    def fn(x: Any) -> Any:
        y = x + 0

        def write() -> Any:
            y[...] = x * 2
            return y

        return co.cond(np.sum(x) > 0, write, lambda: y)

    with pytest.raises(co.ArgumentError) as caught:
        co.make_fx(fn)(X)
    assert str(caught.value).splitlines() == [
        OUTSIDE,
        "  do: return the value from the inner function, and write it outside",
    ]
    sort = lambda x: (x.sort(), x)[1]  # short
    with pytest.raises(co.ArgumentError) as caught:
        co.make_fx(lambda x: co.cond(x[0] > 0, sort, np.sin, np.ones(3)))(X)
    lines = str(caught.value).splitlines()
    assert lines[0] == "cond: a function writes an operand in place that is not traced"
    assert lines[-1] == "  do: write to a copy in the function: x = x.copy()"


def test_operators_that_write_what_is_outside() -> None:
    """A graph would write it whenever it runs, so it must be an operand."""
    buffer = np.zeros(3)

    def body(c: Any) -> Any:
        grow_(buffer, 1.0)
        return c + buffer

    with pytest.raises(co.ArgumentError) as caught:
        co.make_fx(lambda x: co.while_loop(lambda c: np.sum(c) < 9, body, x))(X)
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        "while_loop: control_tests::grow_ writes an array that is not an argument of body"
    )
    assert lines[-1] == "  do: pass the array as an operand, or in the carry"
    np.testing.assert_array_equal(buffer, np.zeros(3))


def test_results_are_arrays_of_their_own() -> None:
    """Who writes a result does not write a constant of the graph, or an input."""
    table = np.ones(3)
    graph = co.make_fx(lambda x: co.cond(x[0] > 0, lambda x: x, lambda x: table, x))(X)
    for x in (X.copy(), -X):
        before = x.copy()
        graph(x)[...] = 7.0
        np.testing.assert_array_equal(x, before)
    np.testing.assert_array_equal(graph(-X), np.ones(3))


def test_memory_of_a_checkpoint() -> None:
    """The forward scan saves the carries alone, and the backward scan computes again."""

    def of(x: Any, checkpoint: bool) -> Any:
        def step(c: Any, r: Any) -> Any:
            return np.tanh(np.sin(c) * np.exp(c) + r), None

        return np.sum(co.scan(step, x, np.ones((4, 3)), checkpoint=checkpoint)[0])

    saved = {}
    for checkpoint in (False, True):
        graph = co.make_fx(co.grad(lambda x, c=checkpoint: of(x, c)))(X)
        np.testing.assert_allclose(graph(X), co.grad(lambda x: of(x, False))(X))
        node = next(n for n in graph.graph.nodes if n.name == "scan")
        saved[checkpoint] = len(node.meta["val"]) - 1
    assert saved == {False: 4, True: 1}


def test_files(tmp_path: Path) -> None:
    """Graphs in graphs are saved and loaded."""

    def fn(x: Any) -> Any:
        def step(c: Any, r: Any) -> Any:
            return co.cond(c > 0, lambda c: c - r, lambda c: c + r * r, c), c

        return np.sum(co.scan(step, np.float64(0.0), x)[1])

    graph = co.make_fx(co.grad(fn))(X)
    graph.save(tmp_path / "graph.zip")
    again = co.load_graph(tmp_path / "graph.zip")
    np.testing.assert_array_equal(again(-X), co.grad(fn)(-X))


def test_numbers_take_the_dtype_of_a_step() -> None:
    """As without a graph."""
    x = X.astype(np.float32)
    for fn in (
        lambda x: co.fori_loop(0, 3, lambda i, c: c + x.sum(), 0),
        lambda x: co.while_loop(lambda c: c < 9, lambda c: c + x[1], 0),
        lambda x: co.scan(lambda c, r: (c + r, 1), 0, x),
    ):
        found, want = co.make_fx(fn)(x)(x), fn(x)
        for a, b in zip(co.tree.leaves(found), co.tree.leaves(want), strict=True):
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype


def test_autocast() -> None:
    """Casts around control flow are in its graphs."""

    @co.custom_op("control_tests::half", mutates_args=())
    def half(x: np.ndarray) -> np.ndarray:
        return x / 2

    half.register_fake(lambda x: co.fake_like(x)).register_autocast("cpu", np.float16)

    def fn(x: Any) -> Any:
        with co.autocast("cpu"):
            return co.cond(x[0] > 0, half, lambda x: half(x) + 0, x)

    x = X.astype(np.float32)
    assert fn(x).dtype == np.float16
    assert co.make_fx(fn)(x)(x).dtype == np.float16


@pytest.mark.parametrize(
    ("fn", "what"),
    [
        (
            lambda x: co.cond(x[0] > 0, lambda x: {"a": x}, lambda x: {"a": x[:2]}, x),
            "cond: result['a'] is f64[3] from true_fn, and f64[2] from false_fn",
        ),
        (
            lambda x: co.while_loop(lambda c: x[0] > 0, lambda c: c[:1], x),
            "while_loop: carry goes in as f64[3], and comes out as f64[1]",
        ),
        (
            lambda x: co.scan(lambda c, r: c, x, x),
            "scan: f returned GraphTracer of shape (3,), must be a pair",
        ),
        (
            lambda x: co.while_loop(lambda c: c > 0, lambda c: c, x),
            "while_loop: what cond_fn returns is bool[3], must have no axes",
        ),
    ],
)
def test_what_does_not_fit(fn: Any, what: str) -> None:
    """Errors are those of the loop in Python."""
    with pytest.raises(co.CustomOpError) as caught:
        co.make_fx(fn)(X)
    assert str(caught.value).splitlines()[0] == what
