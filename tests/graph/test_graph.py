"""Graphs as data: nodes, editing, and lint, which names the fault."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import customop as co

SIN, ADD, MULTIPLY = (
    getattr(co.ops.np, name).default for name in ("sin", "add", "multiply")
)
X = np.linspace(0.0, 1.0, 3)


def traced() -> co.GraphModule:
    """``sin(x) * y + 1.0``."""
    return co.make_fx(lambda x, y: np.sin(x) * y + 1.0)(X, X)


def node(graph: co.Graph, name: str) -> co.Node:
    return next(n for n in graph.nodes if n.name == name)


def names(graph: co.Graph) -> list[str]:
    return [n.name for n in graph.nodes]


# ---- editing ----


def test_nodes_are_inserted_where_they_are_asked_for() -> None:
    """New nodes go to the end, or before or after a node while a block is open."""
    module = traced()
    graph = module.graph
    multiply = node(graph, "multiply")
    with graph.inserting_after(multiply):
        double = graph.call(ADD, (multiply, multiply))
        triple = graph.call(ADD, (double, multiply))
    multiply.replace_all_uses_with(triple, unless=lambda user: user in (double, triple))
    module.recompile()

    assert names(graph) == [
        "x",
        "y",
        "sin",
        "multiply",
        "add_1",
        "add_2",
        "add",
        "output",
    ]
    np.testing.assert_array_equal(
        module(X, X), (np.sin(X) * X + np.sin(X) * X) + np.sin(X) * X + 1.0
    )


def test_users_follow_the_arguments() -> None:
    """Assigning arguments, also nested ones, changes the users of the nodes in them."""
    graph = traced().graph
    x, y, sin, multiply = (node(graph, n) for n in ("x", "y", "sin", "multiply"))
    multiply.args = (y, y)

    assert (list(sin.users), list(y.users), multiply.inputs) == ([], [multiply], [y])
    with graph.inserting_before(multiply):
        join = graph.call(co.ops.np.concatenate.default, ([x, [y, x]], 0))
    assert (join.inputs, list(x.users)) == ([x, y], [sin, join])


def test_a_walk_goes_on_while_nodes_come_and_go() -> None:
    """Nodes that are erased on the way are not met; those after them are."""
    graph = traced().graph
    met = []
    for n in graph.nodes:
        met.append(n.name)
        if n.name == "sin":
            x, multiply = node(graph, "x"), node(graph, "multiply")
            n.replace_all_uses_with(x)
            with graph.inserting_before(multiply):
                graph.call(SIN, (x,))
            graph.erase_node(n)

    assert met == ["x", "y", "sin", "sin_1", "multiply", "add", "output"]
    assert [n.name for n in reversed(graph.nodes)] == names(graph)[::-1]
    assert len(graph.nodes) == len(names(graph)) == 6


def test_a_node_that_is_used_cannot_be_erased() -> None:
    """The error names the users, and the user's line."""
    graph = traced().graph
    with pytest.raises(co.GraphError) as caught:
        graph.erase_node(node(graph, "sin"))

    assert str(caught.value) == (
        "erase_node: 'sin' is used by multiply\n"
        f"  traced at {node(graph, 'sin').meta['place']}\n"
        "  do: replace_all_uses_with another node first, or erase its users"
    )


def test_dead_code_is_erased_but_for_effects() -> None:
    """Calls without users go, in one walk, with the constants that only they have."""
    module = co.make_fx(lambda x: [np.cos(np.sin(x) + np.ones(3)), x][1])(X)

    assert module.graph.eliminate_dead_code() == 4
    assert (names(module.graph), module.constants) == (["x", "output"], {})


def test_moving_a_node() -> None:
    """`prepend` and `append` move a node of the graph."""
    graph = traced().graph
    node(graph, "sin").prepend(node(graph, "multiply"))
    assert names(graph)[2:4] == ["multiply", "sin"]
    with pytest.raises(co.GraphError, match="uses 'sin', which comes later"):
        graph.lint()
    node(graph, "sin").append(node(graph, "multiply"))
    graph.lint()


# ---- lint ----


def later(graph: co.Graph) -> None:
    node(graph, "sin").args = (node(graph, "add"),)


def itself(graph: co.Graph) -> None:
    node(graph, "sin").args = (node(graph, "sin"),)


def erased(graph: co.Graph) -> None:
    sin, add = node(graph, "sin"), node(graph, "add")
    sin.replace_all_uses_with(node(graph, "x"))
    graph.erase_node(sin)
    add.args = (sin, *add.args[1:])


def no_keyword(graph: co.Graph) -> None:
    node(graph, "sin").target = co.ops.np_out.sin.default


def no_output(graph: co.Graph) -> None:
    graph.erase_node(graph.output_node)


def of_another_graph(graph: co.Graph) -> None:
    node(graph, "sin").args = (node(traced().graph, "x"),)


def too_many(graph: co.Graph) -> None:
    sin = node(graph, "sin")
    sin.args = (*sin.args, 2)


def number(graph: co.Graph) -> None:
    node(graph, "sin").args = ("x",)


def keyword(graph: co.Graph) -> None:
    node(graph, "sin").kwargs = {"k": 1}


def no_operator(graph: co.Graph) -> None:
    node(graph, "sin").target = np.sin


def after_output(graph: co.Graph) -> None:
    graph.call(SIN, (node(graph, "x"),))


def late_input(graph: co.Graph) -> None:
    with graph.inserting_before(node(graph, "add")):
        graph.placeholder("z")


def no_constant(graph: co.Graph) -> None:
    with graph.inserting_before(node(graph, "sin")):
        graph.constant(X).target = "gone"


def wrong_users(graph: co.Graph) -> None:
    node(graph, "x").users[node(graph, "add")] = None


@pytest.mark.parametrize(
    ("break_", "message"),
    [
        (later, "the node 'sin' uses 'add', which comes later"),
        (itself, "the node 'sin' uses 'sin', which is the node itself"),
        (of_another_graph, "the node 'sin' uses 'x', which is of another graph"),
        (erased, "the node 'add' uses 'sin', which was erased"),
        (no_keyword, "the node 'sin' lacks the keyword 'out' of np_out::sin(Array x"),
        (no_output, "the last node of the graph is not its output"),
        (too_many, "the node 'sin' has 2 arguments for np::sin(Array x) -> Array"),
        (number, "the node 'sin' has 'x' for the array 'x'"),
        (keyword, "the node 'sin' has the keyword 'k', which np::sin does not take"),
        (no_operator, "the node 'sin' calls <ufunc 'sin'>, which is not an operator"),
        (after_output, "the node 'output' is the output and not the last node"),
        (late_input, "the node 'z' is an input behind other nodes"),
        (no_constant, "names the constant 'gone', which the graph does not have"),
        (wrong_users, "the node 'x' counts add as a user, which is not"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_lint_names_the_fault(break_: Callable[[Any], None], message: str) -> None:
    """A graph that was edited wrongly is refused before it runs."""
    module = traced()
    break_(module.graph)
    module.recompile()
    with pytest.raises(co.GraphError) as caught:
        module(X, X)

    assert message in str(caught.value).splitlines()[0]


# ---- copies ----


def test_copies() -> None:
    """A copy has nodes of its own and the same constants; a deep copy, its own constants."""
    module = co.make_fx(lambda x: x + X)(X)
    shallow, deep = copy.copy(module), copy.deepcopy(module)
    again = pickle.loads(pickle.dumps(module))  # our own pickle

    assert all(
        a is not b for a, b in zip(shallow.graph.nodes, module.graph.nodes, strict=True)
    )
    assert shallow.constants["constant"] is X
    assert deep.constants["constant"] is not X
    for other in (shallow, deep, again):
        np.testing.assert_array_equal(other(X), module(X))


@pytest.mark.parametrize("part", ["graph", "node"])
def test_parts_of_a_module_are_not_pickled_alone(part: str) -> None:
    """The error says what to pickle."""
    graph = traced().graph
    with pytest.raises(co.GraphError, match="pickle its GraphModule"):
        pickle.dumps(graph if part == "graph" else node(graph, "sin"))


@pytest.mark.parametrize(
    ("break_", "remedy"),
    [
        (later, "in the order in which they run: with graph.inserting_before(node)"),
        (itself, "pass a node that comes before it"),
        (of_another_graph, "make a node in this graph: graph.call(op, args)"),
        (erased, "before you erase it: node.replace_all_uses_with(other)"),
        (no_keyword, "write node.kwargs = {'out': ...}"),
        (too_many, "write node.args with a value for each parameter"),
        (number, "pass a node: a constant array by graph.constant(value)"),
        (keyword, "write node.kwargs without it"),
        (no_operator, "set node.target to an operator"),
        (after_output, "with graph.inserting_before(graph.output_node)"),
        (late_input, "with graph.inserting_before(first_node)"),
        (no_constant, "make constants by graph.constant(value)"),
        (wrong_users, "through their methods, which note users: node.args = ..."),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_lint_says_what_mends_the_fault(
    break_: Callable[[Any], None], remedy: str
) -> None:
    """Each fault has the remedy that fits it."""
    graph = traced().graph
    break_(graph)
    with pytest.raises(co.GraphError) as caught:
        graph.lint()
    assert remedy in caught.value.do


# ---- names of nodes ----


@pytest.mark.parametrize("name", ["x", "class", "a b", "", "x; import os", "ﬁ", 3])
def test_a_name_that_code_cannot_have_is_refused_where_it_is_assigned(
    name: Any,
) -> None:
    graph = co.make_fx(lambda x: np.sin(x) + x)(X).graph
    with pytest.raises(co.GraphError, match="name"):
        node(graph, "sin").name = name
    graph.lint()


def test_a_node_gets_another_name() -> None:
    module = co.make_fx(lambda x: np.sin(x) + x)(X)
    node(module.graph, "sin").name = "wave"
    module.recompile()
    assert "wave" in module.code
    assert_array_equal(module(X), np.sin(X) + X)
    assert module.graph.name_for("wave") == "wave_1"


def test_names_that_python_reads_as_one_stay_apart() -> None:
    """Python reads both keywords as `fi`."""

    def f(**given: Any) -> Any:
        return given["ﬁ"] * 2.0 + given["fi"]

    given = {"ﬁ": X, "fi": X * 10.0}
    assert_array_equal(co.make_fx(f)(**given)(**given), f(**given))
    assert_array_equal(co.compile(f)(**given), f(**given))


def test_sizes_that_python_reads_as_one_are_one() -> None:
    f = co.make_fx(lambda a, b: a.sum() * b.size, sizes={"a": ("ﬁ",), "b": ("fi",)})
    with pytest.raises(co.ShapeError, match="the size 'fi' is 3"):
        f(np.ones(3), np.ones(4))


@pytest.mark.parametrize("name", ["type", "len"])
def test_arguments_and_sizes_are_named_as_builtins(name: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def f({name}): return {name} * {name}.shape[0]", namespace)
    f = namespace["f"]
    assert_array_equal(co.make_fx(f)(X)(X), f(X))
    assert_array_equal(co.make_fx(f, sizes={name: (name,)})(X)(X), f(X))
    assert_array_equal(co.compile(f)(X), f(X))
    assert_array_equal(co.compile(f, sizes={name: (name,)})(X), f(X))


# ---- operators that return config objects ----


@dataclass(frozen=True)
class Pair:
    """Two arrays."""

    first: np.ndarray
    second: np.ndarray


@dataclass(frozen=True)
class Nest:
    """A pair, and a list of arrays."""

    pair: Pair
    rest: list[np.ndarray]


def test_operators_return_config_objects_in_graphs() -> None:
    @co.custom_op("graph_tests::nest", mutates_args=())
    def nest(x: np.ndarray) -> Nest:
        return Nest(Pair(x * 2.0, x + 1.0), [x * 3.0])

    nest.register_fake(lambda x: Nest(Pair(x * 1.0, x * 1.0), [x * 1.0]))

    def f(x: Any) -> Any:
        found = nest(x)
        return found.pair.first * found.pair.second + found.rest[0]

    module = co.make_fx(f)(X)
    text = module.print_readable(print_output=False)
    namespace: dict[str, Any] = {"constants": module.named_constants()}
    exec(text, namespace)
    runs = (
        module,
        co.compile(f),
        co.compile(f, backend="eager"),
        co.fold_constants(module),
        co.functionalize(module),
        namespace["f"],
        partial(co.walk_graph, module, lambda node, args: node.target.run(*args)),
    )
    for run in runs:
        assert_array_equal(run(X), f(X))
