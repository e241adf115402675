"""Symbolic sizes in graph files."""

from __future__ import annotations

import io
import random
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.shapes.size_context import SizeContext, check
from tests.graph._broken_files import broken_json
from tests.graph.test_file_errors import changed, message
from tests.graph.test_files import loaded, saved


def symbolic() -> co.GraphModule:
    """A graph with sizes of all kinds, and what is made of them."""
    sizes = SizeContext()
    n = sizes.input_size(4, "x.shape[0]")
    batch = sizes.input_size(3, "x.shape[1]", name="batch", max=50)
    u = sizes.new_dynamic_size(min=1, max=10, origin="nonzero")
    assert n > 2
    check(u < n, "too many")
    graph = co.Graph()
    graph.sizes = sizes
    x = graph.placeholder("x", co.FakeArray((n, batch), np.float32))
    y = graph.call(co.ops.np.sin.default, (x,))
    mixed = (6 * n + 5) // 4 + n % 7 + sizes.extreme("min", n, 2 * batch)
    y.meta["val"] = co.FakeArray((n * batch, mixed, u), np.float64, order=(2, 0, 1))
    y.meta["numbers"] = [n / 2, n**0.5, np.sqrt(n), 3 * u - 1, 10**20 * n]
    graph.output(y)
    return co.GraphModule(graph)


def test_sizes_come_back() -> None:
    """Expressions, names, bounds, guards and checks are as they were."""
    before = symbolic()
    after = loaded(saved(before))
    assert saved(after) == saved(before)
    for a, b in zip(before.graph.nodes, after.graph.nodes, strict=True):
        assert repr(a.meta) == repr(b.meta)
    first, second = before.graph.sizes, after.graph.sizes
    assert first is not None
    assert second is not None
    assert second.guards == first.guards
    assert second.checks == first.checks
    assert [g.place for g in second.guards] == [g.place for g in first.guards]
    assert [g.message for g in second.checks] == ["too many"]
    assert second.knowledge.bounds == {
        "s0": (3, np.inf),
        "batch": (0, 50),
        "u0": (1, 10),
    }
    assert second.knowledge.facts == first.knowledge.facts
    # A new size does not take the name of another one.
    assert str(second.input_size(3, "z.shape[0]")) == "s1"


def test_huge_numbers_are_compared() -> None:
    """Sizes with numbers beyond those of floats are written, too."""
    graph = symbolic()
    sizes = graph.graph.sizes
    assert sizes is not None
    node = next(iter(graph.graph.nodes))
    n, u = node.meta["val"].shape[0], sizes.new_dynamic_size()
    node.meta["val"] = co.FakeArray((n, u), np.float32, strides=(10**400 * n - u, u))
    again = loaded(saved(graph))
    assert repr(next(iter(again.graph.nodes)).meta["val"].strides) == repr(
        node.meta["val"].strides
    )


def test_loading_asks_no_questions() -> None:
    """Neither saving nor loading makes a guard."""
    graph = symbolic()
    assert len(graph.graph.sizes.guards) == 1  # type: ignore[union-attr]  # it has sizes
    again = loaded(saved(graph))
    assert len(graph.graph.sizes.guards) == 1  # type: ignore[union-attr]
    assert len(again.graph.sizes.guards) == 1  # type: ignore[union-attr]


BIG = {"sum": [[1, *["s0"] * 150]]}
HOSTILE: list[tuple[Any, str]] = [
    ({"sum": [[1, "__import__('os')"]]}, "the name of a size is "),
    ({"sum": [[1, "q"]]}, "there is no size 'q'"),
    ({"sum": [[1, {"//": [{"sum": [[1, "s0"]]}, 0]}]]}, "a division of sizes has no"),
    ({"sum": [[1, {"%": [1, 2]}]]}, "'%' is not an operation on sizes"),
    ({"sum": [[1, *["s0"] * 300]]}, "a size has a product of more than 200 sizes"),
    ({"sum": [[1, {"min": [BIG] * 3}, {"min": [BIG] * 3}]]}, "a size has a product"),
    ({"calculation": ["fromfile", "x"]}, "'fromfile' is not a calculation with sizes"),
    ({"calculation": ["sqrt", 1, 2]}, "'sqrt' has 2 operands"),
    (3, "the size 3 is a plain number"),
]


@pytest.mark.parametrize(("size", "expected"), HOSTILE)
def test_expressions_are_checked(size: Any, expected: str) -> None:
    """Names go into generated code, and large expressions take long."""
    data = changed(saved(symbolic()), lambda d: d["sizes"][0].update(size=size))
    assert message(data).startswith(expected)


def test_numbers_of_sizes_are_checked() -> None:
    """Their classes go into generated code, and conditions have no other names."""
    one = {"sum": [[1, "s0"]]}
    for entry, expected in (
        ({"size": {"calculation": ["object", one]}}, "'object' is not a calculation"),
        ({"size": {"calculation": ["int64", one, 1]}}, "'int64' has 2 operands"),
        ({"size": {"calculation": [{}, one]}}, "{} is not a calculation with sizes"),
        (
            {"size": {"calculation": ["+", one, {"numpy": ["int8", 300]}]}},
            "300 is not a number of int8",
        ),
        (
            {"size": {"calculation": ["+", one, {"numpy": ["void", 1]}]}},
            "'void' is not a class of numbers of NumPy",
        ),
        ({"condition": {"<": [{"sum": [[1, "s9"]]}, 2]}}, "there is no size 's9'"),
        ({"condition": {"is": [1, 2]}}, "'is' is not a comparison"),
    ):

        def change(d: Any, entry: Any = entry) -> None:
            d["sizes"][0] = {"context": 0, **entry}

        assert message(changed(saved(symbolic()), change)).startswith(expected)


def test_powers_are_not_worked_out() -> None:
    """A calculation from a file is not evaluated when it is loaded."""
    tower: Any = {"calculation": ["**", 10, {"calculation": ["**", 10, 10]}]}
    data = changed(saved(symbolic()), lambda d: d["sizes"][-1].update(size=tower))
    assert loaded(data).graph.sizes is not None


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(3))
def test_broken_sizes_are_graph_errors_or_graphs(seed: int) -> None:
    """Whatever is in the tables of sizes, loading is one error or a good graph."""
    rng = random.Random(seed)
    data = saved(symbolic())
    for _ in range(200):
        try:
            graph = loaded(broken_json(data, rng))
        except co.GraphFileError:
            continue
        graph.graph.lint()
        graph.save(io.BytesIO())


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_a_size_of_a_capture_around_the_graph_cannot_be_saved(mode: Any) -> None:
    """It has no value when the capture has ended. The graph runs while it is open."""
    graphs = []

    def around(x: Any) -> Any:
        inner = co.make_fx(lambda y: y * x.shape[0], mode)(np.ones(3))
        graphs.append(inner)
        return inner(x)

    outer = co.make_fx(around, "symbolic")(np.ones(3))
    np.testing.assert_array_equal(outer(np.ones(3)), np.full(3, 3.0))
    with pytest.raises(co.GraphFileError) as error:
        graphs[0].save(io.BytesIO())
    assert "'multiply' cannot be saved: it has the size s0 of another capture" in str(
        error.value
    )
