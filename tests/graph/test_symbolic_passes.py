"""Text and passes of graphs with symbolic sizes and with control flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.arange(12.0).reshape(4, 3)


def program(x: Any, y: Any) -> Any:
    """Sizes of inputs in arguments, sizes that depend on data, and a guard."""
    n = x.shape[0]
    (places,) = np.nonzero(x[:, 0] > 1)
    rows = x[places]
    twice = np.concatenate([x, x]) + 1
    line = np.reshape(x, (-1,)) * (n - 1)
    more = np.reshape(line, (x.shape[1], n)) * np.broadcast_to(y[0], (x.shape[1], n))
    return rows, twice[:n], more, rows * places.shape[0], np.split(y, 3)[0]


def control(x: Any, y: Any) -> Any:
    """A branch and a loop."""
    total = co.cond(np.sum(x) > 0, np.sin, lambda x: x * 2.0, x)
    return total, co.scan(lambda c, row: (c + row, c * y[0]), x[0] * 0.0, x)


def parts(module: co.GraphModule) -> co.GraphModule:
    """Three parts, the middle one with sizes and no array that has them."""
    count = len(module.graph.nodes)
    number = {node: i for i, node in enumerate(module.graph.nodes)}
    return co.split_graph(module, lambda node: f"part{3 * number[node] // count}")


PASSES: dict[str, Callable[[co.GraphModule], co.GraphModule]] = {
    "dead": co.eliminate_dead_code,
    "common": co.eliminate_common_subexpressions,
    "fold": co.fold_constants,
    "functionalize": co.functionalize,
    "reuse": co.reuse_buffers,
    "split": parts,
    "open parts": lambda module: co.inline_graphs(parts(module)),
    "every call": lambda module: co.split_graph(module, lambda node: f"of_{node.name}"),
    "decompose": lambda module: co.decompose(
        module, {"np::multiply": lambda x1, x2: np.multiply(x2, x1)}
    ),
    "pattern": lambda module: co.replace_pattern(
        module, lambda x: x + 1, lambda x: x - -1
    ),
}


def check_same(first: Any, second: Any) -> None:
    """Check that trees of arrays are equal."""
    pairs = zip(co.tree.leaves(first), co.tree.leaves(second), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("fn", [program, control])
@pytest.mark.parametrize("name", PASSES)
def test_passes(name: str, fn: Any) -> None:
    """The numbers are those of the program, also for other sizes."""
    module = co.make_fx(fn, "symbolic")(X, np.arange(6.0))
    changed = PASSES[name](module)
    changed.graph.lint()
    for rows in (4, 7, 2):
        args = np.arange(3.0 * rows).reshape(rows, 3) - rows, np.arange(9.0)
        check_same(changed(*args), fn(*args))
        check_same(changed(*args), module(*args))


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("fn", [program, control])
def test_text(fn: Any, mode: Any) -> None:
    """The text has the sizes, the guards and the graphs inside, and runs."""
    y = np.arange(6.0)
    if fn is program and mode == "fake":
        mode = "real"
    module = co.make_fx(fn, mode)(X, y)
    text = module.print_readable(print_output=False)
    names: dict[str, Any] = {"constants": module.named_constants()}
    exec(text, names)
    check_same(names[fn.__name__](X, y), fn(X, y))
    if mode == "symbolic":
        check_same(names[fn.__name__](X[:2], y), fn(X[:2], y))
        assert 'x: "f64[s0, s1]"' in text
        assert "    s0 = x.shape[0]\n" in text
    if fn is program and mode == "symbolic":
        assert '"i64[u0]"' in text
        assert "    u0 = nonzero[0].shape[0]\n" in text
        assert f"    assert s2 % 3 == 0  # {__file__}:" in text
        with pytest.raises(AssertionError):
            names["program"](X, np.arange(7.0))


def test_the_call_that_makes_a_size_stays() -> None:
    """It does while the size is used, even if nothing reads its array."""

    def f(x: Any) -> Any:
        (places,) = np.nonzero(x[:, 0])
        return np.sum(x) * places.shape[0]

    module = co.make_fx(f, "symbolic")(X)
    for change in (co.eliminate_dead_code, co.functionalize):
        changed = change(module)
        assert "nonzero" in [node.name for node in changed.graph.nodes]
        assert changed(X) == f(X)
    names = {n.name for n in module.graph.nodes if n.op == "call"}
    fused = co.fuse_nodes(module, names - {"nonzero", "multiply"})
    assert fused(X[:3]) == f(X[:3])
