"""Passes over graphs: what they leave out, and what they must not touch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co

from ._programs import OPS, TABLE

X = np.array([[0.5, -1.0, 2.0], [3.0, 0.25, -0.5], [1.0, 1.5, -2.0]])


def names(module: co.GraphModule) -> list[str]:
    """Names of the nodes between the inputs and the output."""
    return [n.name for n in module.graph.nodes if n.op not in ("placeholder", "output")]


def targets(module: co.GraphModule) -> list[str]:
    """Names of the operators that are called."""
    return [n.target.qualname for n in module.graph.nodes if n.op == "call"]


def same(first: Any, second: Any) -> bool:
    """Whether two trees of arrays have the same bits."""
    pairs = zip(co.tree.leaves(first), co.tree.leaves(second), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


# ---- dead code ----


def test_dead_code_keeps_what_has_effects() -> None:
    """Writes, draws and calls without a result stay; the rest goes, with its inputs."""
    rng = np.random.default_rng(0)

    def f(x: Any, y: Any) -> Any:
        np.cos(np.sin(x))
        OPS["low_high"](x)
        OPS["noise"](x, rng)
        OPS["bump"](y, np.tanh(x))
        return np.exp(x)

    module = co.make_fx(f)(X, X.copy())
    smaller = co.eliminate_dead_code(module)
    assert targets(smaller) == ["passes::noise", "np::tanh", "passes::bump", "np::exp"]
    assert len(names(module)) == 10  # as it was
    assert [n.name for n in smaller.inputs] == ["x", "y"]


# ---- common subexpressions ----


def test_common_subexpressions() -> None:
    """Equal calls on equal values are one, through several steps and results."""

    def f(x: Any) -> Any:
        a, b = np.sin(x) * 2.0, np.sin(x) * 2.0
        low, _ = OPS["low_high"](a)
        _, high = OPS["low_high"](b)
        return low + high + x[0] * x[0]

    smaller = co.eliminate_common_subexpressions(co.make_fx(f)(X))
    assert targets(smaller).count("passes::low_high") == 1
    assert targets(smaller).count("np::sin") == 1
    assert targets(smaller).count("np::slice") == 1
    assert same(smaller(X), f(X))


@pytest.mark.parametrize(
    ("first", "second"), [(1.0, 1), (0.0, -0.0), (1.0, True), (float("nan"), 2.0)]
)
def test_numbers_that_python_calls_equal(first: Any, second: Any) -> None:
    """An int is not a float, and minus zero is not zero; nan is the same as nan."""
    op = co.ops.np.multiply.default

    def f(x: Any) -> Any:
        return op(x, first) + op(x, second) + op(x, first)

    smaller = co.eliminate_common_subexpressions(co.make_fx(f)(X))
    assert targets(smaller).count("np::multiply") == 2


def test_common_subexpressions_across_a_write() -> None:
    """What was computed before a write is not what is computed after it."""

    def f(x: Any) -> Any:
        before = np.sin(x)
        OPS["bump"](x, before)
        return before + np.sin(x)

    module = co.make_fx(f)(X.copy())
    smaller = co.eliminate_common_subexpressions(module)
    assert targets(smaller).count("np::sin") == 2
    assert same(smaller(X.copy()), f(X.copy()))


def test_common_subexpressions_that_are_random_or_written() -> None:
    """Two draws are two, and so are two arrays of which one is written."""
    rng = np.random.default_rng(0)

    def f(x: Any) -> Any:
        a, b = np.sin(x), np.sin(x)
        OPS["bump"](a, x)
        return OPS["noise"](x, rng) + OPS["noise"](x, rng) + a + b

    smaller = co.eliminate_common_subexpressions(co.make_fx(f)(X))
    assert targets(smaller).count("passes::noise") == 2
    assert targets(smaller).count("np::sin") == 2


def test_results_stay_arrays_of_their_own() -> None:
    """The caller may write one result, so two of them are not made one array."""
    module = co.make_fx(lambda x: (np.sin(x), np.sin(x), np.sin(x)))(X)
    first, second, third = co.eliminate_common_subexpressions(module)(X)
    first += 1.0
    second += 2.0
    assert same((second, third), (np.sin(X) + 2.0, np.sin(X)))


# ---- constants ----


def test_constants_are_folded() -> None:
    """What does not depend on inputs is computed once, with all its parts."""
    calls = []

    def kernel(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        calls.append(x.shape)
        return x + 1.0, x + 2.0

    op = co.custom_op("passes::counted", kernel, mutates_args=())

    def f(x: Any) -> Any:
        a, b = op(TABLE)
        return x * np.sin(a) + b + OPS["total"](b)

    module = co.make_fx(f)(X)
    folded = co.fold_constants(module)
    assert targets(folded) == ["np::multiply", "np::add", "np::add"]
    calls.clear()
    assert same(folded(X), module(X))
    assert len(calls) == 1  # of the module alone
    assert [n.op for n in folded.graph.nodes].count("constant") == 2


def test_constants_that_are_not_folded() -> None:
    """Results that are returned, written, random, large, or made by a call that warns."""
    rng = np.random.default_rng(0)
    shared = TABLE.copy()

    def f(x: Any) -> Any:
        own = OPS["scale"](TABLE)
        written = OPS["scale"](TABLE, 3.0)
        OPS["bump"](written, x)
        log = co.ops.np.log(TABLE)
        OPS["bump"](shared, x)
        return own, written + log + OPS["noise"](TABLE, rng) + co.ops.np.sin(shared)

    with np.errstate(invalid="ignore", divide="ignore"):
        module = co.make_fx(f)(X)
    folded = co.fold_constants(module)
    assert targets(folded) == targets(module)
    module = co.make_fx(lambda x: x + OPS["scale"](TABLE))(X)
    assert len(targets(co.fold_constants(module, max_bytes=71))) == 2
    assert len(targets(co.fold_constants(module, max_bytes=72))) == 1


# ---- parts ----


def chain(x: Any, y: Any) -> Any:
    """A program with two ends."""
    a = np.sin(x)
    b = np.cos(a) + TABLE
    low, high = OPS["low_high"](b)
    return {"low": low * y, "high": [high, a]}


def test_split() -> None:
    """Named parts are graphs with their own inputs, constants and results."""
    module = co.make_fx(chain)(X, X)
    parts = {"sin": "one", "cos": "one", "add": "two", "low_high": "two"}
    split = co.split_graph(module, lambda node: parts.get(node.name))
    ends = ["low_high_0", "low_high_1", "multiply"]
    assert names(split) == ["one", "sin", "cos", "two", *ends]
    one, two = (n.target for n in split.graph.nodes if n.name in parts.values())
    assert isinstance(one, co.GraphModule)
    assert [n.name for n in two.inputs] == ["cos"]
    assert list(two.constants) == ["constant"]
    assert same(split(X, X), module(X, X))
    assert split.graph.nodes[2].meta["val"][0].shape == (3, 3)
    assert names(co.inline_graphs(split)) == names(module)
    by_node = {module.graph.nodes[2]: "one"}
    assert "one" in names(co.split_graph(module, by_node))


def test_fuse() -> None:
    """Chosen nodes become one, also when others lie between that need nothing of it."""
    module = co.make_fx(chain)(X, X)
    fused = co.fuse_nodes(module, ["sin", "cos", module.graph.nodes[5]], "front")
    assert names(fused) == ["front", "sin", "add", "low_high", *names(fused)[4:]]
    assert same(fused(X, X), module(X, X))
    value, gradient = co.value_and_grad(lambda x: np.sum(fused(x, X)["low"]))(X)
    expected = co.value_and_grad(lambda x: np.sum(chain(x, X)["low"]))(X)
    assert same((value, gradient), expected)


def test_parts_that_write_and_draw_keep_their_order() -> None:
    """A part takes its writes and draws along, in the order of the whole."""
    rng = np.random.default_rng(5)

    def f(x: Any) -> Any:
        a = OPS["noise"](x, rng)
        OPS["bump"](x, a)
        b = OPS["noise"](np.sin(x), rng)
        return a + b

    module = co.make_fx(f)(X.copy())
    halves = co.split_graph(
        module, lambda n: "a" if n.name in ("noise", "bump") else "b"
    )
    state = rng.bit_generator.state
    first, second = X.copy(), X.copy()
    expected = module(first)
    rng.bit_generator.state = state
    assert same((halves(second), second), (expected, first))
    with pytest.raises(co.GraphError) as error:
        co.fuse_nodes(module, ["noise", "noise_1"])
    assert str(error.value) == (
        "fuse_nodes: 'fused' cannot run as one call: nodes in and outside of it need each"
        " other, with 'bump', 'sin' between\n"
        "  do: put the nodes between into the same part, or make more parts"
    )


def test_draws_are_not_moved_past_others() -> None:
    """A draw between two others keeps them from being one node."""
    rng = np.random.default_rng(5)

    def f(x: Any) -> Any:
        first, second = OPS["noise"](x, rng), OPS["noise"](np.sin(x), rng)
        return first + second + OPS["noise"](x, rng)

    module = co.make_fx(f)(X)
    with pytest.raises(co.GraphError, match="'fused' cannot run as one call"):
        co.fuse_nodes(module, ["noise", "noise_2"])
    state = rng.bit_generator.state
    expected = module(X)
    rng.bit_generator.state = state
    assert same(co.fuse_nodes(module, ["noise", "noise_1"])(X), expected)


def test_parts_in_files_and_text(tmp_path: Path) -> None:
    """A part is saved with the graph, and its function stands in the text."""
    module = co.split_graph(co.make_fx(chain)(X, X), lambda node: "part")
    path = tmp_path / "parts.graph"
    module.save(path)
    assert same(co.load_graph(path)(X, X), module(X, X))
    found: dict[str, Any] = {}
    exec(module.print_readable(print_output=False), found)
    assert same(found["chain"](X, X), module(X, X))
    assert callable(found["part_"])  # the name itself is that of a node


def test_wrong_parts() -> None:
    """Names that are not names, and nodes that are not of the graph."""
    module = co.make_fx(chain)(X, X)
    with pytest.raises(
        co.ArgumentError, match="the part of 'sin' is 'a b', which is not"
    ):
        co.split_graph(module, lambda node: "a b")
    with pytest.raises(co.ArgumentError, match="'nothing' is not a node of the graph"):
        co.fuse_nodes(module, ["nothing"])
    with pytest.raises(co.ArgumentError, match="'x' is not a call but the input"):
        co.fuse_nodes(module, ["x"])
    with pytest.raises(co.ArgumentError, match="a pass takes a GraphModule or a Graph"):
        co.eliminate_dead_code(np.sin)  # type: ignore[type-var]


def test_passes_on_a_graph_without_a_module() -> None:
    """A Graph gives a Graph."""
    graph = co.make_fx(lambda x: np.sin(x) + np.sin(x))(X).graph
    smaller = co.eliminate_common_subexpressions(graph)
    assert isinstance(smaller, co.Graph)
    assert len(graph.nodes) == len(smaller.nodes) + 1


def test_passes_keep_what_is_known_of_nodes() -> None:
    """Places and fake values are those of the nodes that stay."""
    module = co.make_fx(chain)(X, X)
    for smaller in (
        co.eliminate_common_subexpressions(co.fold_constants(module)),
        co.inline_graphs(co.fuse_nodes(module, ["sin", "cos"])),
    ):
        before = {n.name: n.meta for n in module.graph.nodes}
        for node in smaller.graph.nodes:
            assert node.meta == before[node.name]


def test_scalars_of_numpy_are_the_same_to_the_last_bit() -> None:
    module = co.make_fx(lambda x: (x * 2.0, x * 3.0))(np.ones(2))
    first, second = [node for node in module.graph.nodes if node.op == "call"]
    first.args = (module.inputs[0], np.float64(0.0))
    second.args = (module.inputs[0], np.float64(-0.0))
    module.recompile()
    found = co.eliminate_common_subexpressions(module)(np.ones(2))
    assert [np.signbit(y).any() for y in found] == [False, True]
