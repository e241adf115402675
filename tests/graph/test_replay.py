"""Replay: the generated code, what it keeps alive, tracebacks, and long graphs."""

from __future__ import annotations

import re
import traceback
import weakref
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.graph import writer

X = np.linspace(0.1, 1.0, 3)
FAST = (
    "type(x) is ndarray and x.dtype is dtype and len(x.shape) == 2 and x.shape[1] == 2"
)


def test_the_code_is_straight_python() -> None:
    """Guards come first, then a line for each call; values are freed after their last use."""
    trace = co.make_fx(lambda x, k: np.sin(x) * x + k, sizes={"x": ("n", 2)})
    graph = trace(np.ones((3, 2)), 2)

    assert graph.code.splitlines() == [
        "def forward(inputs):",
        "    x, k, = inputs",
        f"    if not ({FAST}): check_x(x)",
        "    check_k(k)",
        "    inputs.clear()",
        "    n = x.shape[0]",
        "    del k",
        "    sin = np_sin(x)",
        "    multiply = np_multiply(sin, x)",
        "    del sin, x",
        "    add = np_add(multiply, 2)",
        "    del multiply",
        "    return [add]",
    ]
    assert [str(guard) for guard in graph.guards] == ["x is f64[n, 2]", "k is int 2"]


def test_variables_do_not_hide_what_sizes_need() -> None:
    """Nodes and arguments may be named as sizes and functions in the text of sizes are."""

    def f(inputs: Any, n: Any, np_sin: Any) -> Any:
        most = inputs.sum(axis=0)
        return np.sin(most) * np.maximum(inputs.shape[0], n.shape[0]) + np_sin, np.sum(
            n
        ) + most

    graph = co.make_fx(f, sizes={"inputs": ("n", None), "n": ("m",)})(
        np.ones((2, 3)), np.ones(3), X
    )
    args = np.random.default_rng(0).normal(size=(5, 3)), X, X
    for a, b in zip(graph(*args), f(*args), strict=True):
        np.testing.assert_array_equal(a, b)


def test_values_are_freed_after_their_last_use() -> None:
    """While a call runs, only what later calls need is alive: no more than by hand."""
    alive: list[int] = []
    made: list[weakref.ref[Any]] = []

    class Big(np.ndarray):
        pass

    @co.custom_op("replay::step", mutates_args=())
    def step(x: np.ndarray) -> np.ndarray:
        alive.append(sum(r() is not None for r in made))
        out = (x + 1.0).view(Big)
        made.append(weakref.ref(out))
        return out

    def f(x: Any) -> Any:
        for _ in range(10):
            x = step(x)
        return x * 2.0

    graph = co.make_fx(f)(X)
    for run in (graph, f):
        alive.clear()
        made.clear()
        run(X)
        assert alive == [0] + [1] * 9, run


def test_large_graphs_run_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part is a function; values go from one to a later one, and none stays longer."""
    alive: list[int] = []
    made: list[weakref.ref[Any]] = []

    class Big(np.ndarray):
        pass

    @co.custom_op("replay::counted", mutates_args=())
    def counted(x: np.ndarray) -> np.ndarray:
        alive.append(sum(r() is not None for r in made))
        out = (x + 1.0).view(Big)
        made.append(weakref.ref(out))
        return out

    counted.register_fake(lambda x: co.fake_like(x))

    def f(x: Any, y: Any, unused: Any) -> Any:
        early = np.cos(y)  # taken by the first part and by the last one
        kept = [np.sin(x) * n for n in range(5)]
        for z in kept:
            x = counted(x) + z
        low, high = np.modf(x)
        np.sin(y)
        return x + early, (high, y), low * kept[1], 2.0

    args = (X, X + 1.0, X)
    whole = co.make_fx(f)(*args)
    assert "def part" not in whole.code
    monkeypatch.setattr(writer, "LARGE", 4)
    monkeypatch.setattr(writer, "_PART", 3)
    cut, compiled = co.make_fx(f)(*args), co.compile(f)
    assert cut.code.count("def part") > 5
    counts = []
    for run in (whole, cut, compiled, f, cut, compiled):
        alive.clear()
        made.clear()
        out, (high, y), low, two = run(*args)
        counts.append([*alive])
        expected = f(*args)
        for a, b in zip((out, high, y, low), _flat(expected), strict=True):
            np.testing.assert_array_equal(a, b)
        assert (y is args[1], two) == (True, 2.0)
    assert counts[0] == counts[1] == counts[4]


def _flat(found: Any) -> list[Any]:
    out, (high, y), low, _ = found
    return [out, high, y, low]


def test_errors_in_a_part_of_a_large_graph_show_its_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tracebacks have the line of the part where there is code, and the user's own."""
    monkeypatch.setattr(writer, "LARGE", 2)
    monkeypatch.setattr(writer, "_PART", 2)

    def f(x: Any) -> Any:
        for _ in range(4):
            x = x * 1.0
        return np.linalg.inv(x) + 1.0

    module = co.make_fx(f)(np.eye(2))  # its calls are the rows of a table
    for run in (module, co.compile(f)):
        run(np.eye(2))
        with pytest.raises(np.linalg.LinAlgError) as caught:
            run(np.zeros((2, 2)))
        text = "".join(traceback.format_exception(caught.value))
        if run is not module:
            assert re.search(r"in part_2\n    inv = \w+\(multiply_3", text), text
        assert text.count(f"in the node 'inv', traced at {__file__}:") == 1


def test_rows_take_arguments_as_lines_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists, tuples, dicts with arrays inside, keywords, several results, and numbers."""
    got: list[Any] = []

    @co.custom_op("replay::nested", mutates_args=())
    def nested(
        xs: list[np.ndarray],
        named: dict[str, np.ndarray],
        sizes: list[int],
        *,
        more: np.ndarray | None = None,
    ) -> np.ndarray:
        got.append((type(xs), type(sizes), [*named], [*sizes], more is None))
        sizes.append(3)  # the next call gets a list of its own
        return xs[0] + named["b"] + len(sizes)

    @co.custom_op("replay::sized", mutates_args=())
    def sized(x: np.ndarray, sizes: list[int]) -> np.ndarray:
        sizes.append(len(sizes))
        return x + len(sizes)

    sized.register_fake(lambda x, sizes: co.fake_like(x))
    nested.register_fake(lambda xs, named, sizes, *, more=None: co.fake_like(xs[0]))

    def f(x: Any, y: Any) -> Any:
        low, high = np.modf(x)
        total = nested([x, low], {"b": high, "a": y}, [1, 2])
        total = sized(nested([total], {"b": y}, [1], more=x), [1])
        joined = np.concatenate([total, y, total])
        where = np.where(joined > 0.0, joined, -np.inf)
        last = np.sum(where) ** 2.0 + np.float32(2.0)
        return {"where": where, "x": x}, [last, total, low, 1.5], None

    args = X, X + 1.0
    whole = co.make_fx(f)(*args)
    expected = [whole(*args), whole(*args)]
    calls = [*got[-2:]]
    monkeypatch.setattr(writer, "LARGE", 1)
    rows = co.make_fx(f)(*args)
    for out in expected:
        found = rows(*args)
        assert calls == got[-2:]
        pairs = zip(co.tree.leaves(found), co.tree.leaves(out), strict=True)
        for a, b in pairs:
            assert type(a) is type(b)
            np.testing.assert_array_equal(a, b)
        assert found[0]["x"] is args[0]


def test_rows_follow_the_way_of_checking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modes and settings see each call of a large graph, as those of a small one."""
    monkeypatch.setattr(writer, "LARGE", 1)
    module = co.make_fx(lambda x: np.sin(x) * 2.0 + np.cos(x))(X)
    module(X)
    with co.profile() as seen:
        found = module(X)
    np.testing.assert_array_equal(found, np.sin(X) * 2.0 + np.cos(X))
    assert all(f"np::{name}" in str(seen) for name in ("sin", "cos", "multiply", "add"))
    with pytest.raises(co.GuardError):
        module(X[:1])
    again = co.make_fx(module)(X)  # with tracers for arguments
    np.testing.assert_array_equal(again(X), found)


def test_a_result_that_must_be_as_traced_is_checked_in_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A graph of which a size depends on data raises for another size."""
    monkeypatch.setattr(writer, "LARGE", 1)
    module = co.make_fx(lambda x: np.flatnonzero(x > 0.0) + 1)(np.ones(3))
    np.testing.assert_array_equal(module(np.ones(3)), [1, 2, 3])
    with pytest.raises(co.GuardError, match="nonzero"):
        module(np.array([1.0, 0.0, 1.0]))


def test_kernels_that_change_are_seen_by_all_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A graph in parts follows the tables of operators too."""
    monkeypatch.setattr(writer, "LARGE", 2)
    monkeypatch.setattr(writer, "_PART", 2)

    @co.custom_op("replay::changed", mutates_args=())
    def changed(x: np.ndarray) -> np.ndarray:
        return x * 2.0

    changed.register_fake(lambda x: co.fake_like(x))

    def f(x: Any) -> Any:
        for _ in range(4):
            x = changed(np.sin(x))
        return x

    runs = co.make_fx(f)(X), co.compile(f)
    for run in runs:
        np.testing.assert_array_equal(run(X), f(X))
    changed.register_kernel("cpu", lambda x: x * 3.0)
    for run in runs:
        np.testing.assert_array_equal(run(X), f(X))


def test_tracebacks_show_the_generated_line_and_the_users() -> None:
    """An error inside a graph shows its line of code, and names the line that was traced."""
    graph = co.make_fx(lambda x: np.linalg.inv(x) + 1.0)(np.eye(2))
    with pytest.raises(np.linalg.LinAlgError) as caught:
        graph(np.zeros((2, 2)))
    text = "".join(traceback.format_exception(caught.value))

    assert "inv = np_inv(x, False)" in text
    assert f"in the node 'inv', traced at {__file__}:" in text


def test_a_kernel_that_is_registered_later_runs() -> None:
    """A graph calls operators, so it follows their tables."""

    @co.custom_op("replay::late", mutates_args=())
    def late(x: np.ndarray) -> np.ndarray:
        return x * 2.0

    graph = co.make_fx(lambda x: late(x) + np.sin(x))(X)
    graph(X)
    late.register_kernel("cpu", lambda x: x * 3.0)

    np.testing.assert_array_equal(graph(X), X * 3.0 + np.sin(X))


def test_modes_see_the_operators_of_a_graph() -> None:
    """Also those of NumPy, whose kernels a graph calls directly where nobody looks."""
    graph = co.make_fx(lambda x: np.sin(x) + 1.0)(X)
    graph(X)

    with co.profile() as report:
        graph(X)
    assert "np::sin" in str(report.table())
    with co.FakeMode():
        assert isinstance(graph(X), co.FakeArray)


def test_scalars_of_numpy_stay_what_they_are() -> None:
    """Arithmetic on results without axes gives the classes that NumPy gives."""

    def f(x: Any) -> Any:
        total = np.sum(x)
        half = total / 2.0 - np.float32(1.0)
        return total, half * half, np.sqrt(half + 9.0), x.max() > 0.5, np.argmax(x)

    graph = co.make_fx(f)(X)
    for a, b in zip(graph(X), f(X), strict=True):
        assert (type(a), a) == (type(b), b)


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["real", "symbolic"])
def test_long_graphs(mode: Any) -> None:
    """100,000 calls are traced, compiled, copied and run without recursion."""

    def f(x: Any) -> Any:
        for _ in range(50_000):
            x = x * 1.00001
            x = x + 0.5
        return x

    graph = co.make_fx(f, mode)(X)

    assert graph.graph.count == 100_002
    np.testing.assert_array_equal(graph(X), f(X))


def test_arguments_of_other_kinds_between_plain_ones() -> None:
    """A graph tries the shortest way first, and takes another one where it has to."""

    class Sub(np.ndarray):
        pass

    def f(x: Any, k: int, y: Any) -> Any:
        return np.sum(np.reshape(x, (3, 1))[:, 0] * y) * k

    graph = co.make_fx(f)(X, 2, X)
    slope = co.make_fx(co.grad(f))(X, 2, X)
    for _ in range(20):
        np.testing.assert_array_equal(graph(X, 2, X + 1.0), f(X, 2, X + 1.0))
        np.testing.assert_array_equal(co.grad(graph)(X, 2, X), slope(X, 2, X))
        np.testing.assert_array_equal(graph(X.view(Sub), 2, X), f(X, 2, X))
        rows = co.vmap(graph, in_dims=(0, None, None))(np.stack([X, X]), 2, X)
        np.testing.assert_array_equal(rows, [f(X, 2, X)] * 2)
        with pytest.raises(co.GuardError, match="another value: k is int 3"):
            graph(X, 3, X)
        with pytest.raises(co.GuardError, match="another shape: y is"):
            graph(X, 2, X[:2])
        with pytest.raises(co.GuardError, match="is called as"):
            graph(X, 2, [X])


def test_inputs_that_a_graph_writes_must_lie_apart() -> None:
    """The graph writes at its end, where the function has read the other one since."""

    def step(a, b):
        a += b
        return a + b

    module = co.make_fx(step)(np.arange(4.0), np.arange(4.0))
    whole = np.arange(6.0)
    with pytest.raises(
        co.GuardError, match="a, which the graph writes, and b share memory"
    ):
        module(whole[:4], whole[2:])
    with pytest.raises(co.GuardError, match="share memory"):
        module(whole[:4], whole[:4])
    assert whole.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    parts = np.arange(8.0)
    assert module(parts[::2], parts[1::2]).tolist() == [2.0, 8.0, 14.0, 20.0]
    assert parts[::2].tolist() == [1.0, 5.0, 9.0, 13.0]
    for mode in ("fake", "symbolic"):
        with pytest.raises(co.GuardError, match="share memory"):
            co.make_fx(step, mode)(np.arange(4.0), np.arange(4.0))(whole[:4], whole[2:])
